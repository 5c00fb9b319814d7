/* SPDX-License-Identifier: Apache-2.0
 *
 * model.c -- weft model list | tensors | layout: what a model is made of, and what one
 * inference rank needs of it.
 */
#include "cli/command.h"
#include "cli/model_verbs.h"

#include "common/array.h"
#include "common/json_write.h"
#include "common/parallel.h"
#include "common/text.h"
#include "model/family.h"
#include "model/model.h"
#include <argp.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPTION_JSON = 0x100, OPTION_INFER, OPTION_RANK, OPTION_ALL };

struct options {
	const char *name, *infer, *rank;
	bool json, all, wants_name;
};

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
	struct options *options = state->input;

	switch (key) {
	case OPTION_JSON:
		options->json = true;
		return 0;
	case OPTION_INFER:
		options->infer = argument;
		return 0;
	case OPTION_RANK:
		options->rank = argument;
		return 0;
	case OPTION_ALL:
		options->all = true;
		return 0;
	case ARGP_KEY_ARG:
		if (!options->wants_name || options->name)
			argp_error(state, "'%s' is one argument too many", argument);
		options->name = argument;
		return 0;
	case ARGP_KEY_END:
		if (options->wants_name && !options->name)
			argp_error(state,
				   "name a model: a built-in one (see `weft model list`), or a "
				   "folder or config.json written with a '/'");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static void print_shape(uint32_t dims, const uint64_t *shape, char out[96])
{
	int at = 0;

	for (uint32_t d = 0; d < dims; d++)
		at += snprintf(out + at, (size_t)(96 - at), "%s%" PRIu64, d ? ", " : "[", shape[d]);
	snprintf(out + at, (size_t)(96 - at), "]");
}

static void json_shape(struct json *json, uint32_t dims, const uint64_t *shape)
{
	json_put_key(json, "shape");
	json_put_array(json);
	for (uint32_t d = 0; d < dims; d++)
		json_put_u64(json, shape[d]);
	json_put_array_end(json);
}

static void list_json(const struct model *model)
{
	const struct model_config *config = &model->config;
	struct json line, *json = &line;

	json_to_file(json, stdout);
	json_put_object(json);
	json_put_key_string(json, "name", model->name);
	json_put_key_string(json, "architecture", config->family->architecture);
	json_put_key_u64(json, "tensors", model->tensor_count);
	json_put_key_u64(json, "parameters", model->parameters);
	json_put_key_u64(json, "bytes", model->bytes);
	json_put_key_u64(json, "all_tensors", model->all_count);
	json_put_key_u64(json, "all_parameters", model->all_parameters);
	json_put_key_u64(json, "all_bytes", model->all_bytes);
	json_put_key_string(json, "dtype", dtype_name(config->dtype));
	json_put_key_u64(json, "layers", config->layers);
	json_put_key_u64(json, "hidden_size", config->hidden_size);
	json_put_key_u64(json, "heads", config->heads);
	json_put_key_u64(json, "kv_heads", config->kv_heads);
	json_put_key_u64(json, "head_dim", config->head_dim);
	json_put_key_u64(json, "intermediate_size", config->intermediate_size);
	json_put_key_u64(json, "vocab_size", config->vocab_size);
	json_put_key_bool(json, "tied", config->tied);
	json_put_key_u64(json, "experts", config->experts);
	json_put_key_u64(json, "mtp_layers", config->mtp_layers);
	json_put_key_u64(json, "block_rows", config->block_rows);
	json_put_key_u64(json, "block_columns", config->block_columns);
	json_put_object_end(json);
	json_put_newline(json);
}

static void list_line(const struct model *model)
{
	char parameters[TEXT_SHORT_BYTES], bytes[TEXT_SHORT_BYTES], size[TEXT_SHORT_BYTES];

	printf("%-19s %-22s %7zu %17s %17s  %s\n", model->name, model->config.family->architecture,
	       model->tensor_count, grouped_text(model->parameters, parameters),
	       grouped_text(model->bytes, bytes), bytes_text(model->bytes, size));
	if (model->all_count > model->tensor_count)
		printf("%-19s %-22s %7zu %17s %17s  %s\n", "", "  with MTP layers",
		       model->all_count, grouped_text(model->all_parameters, parameters),
		       grouped_text(model->all_bytes, bytes), bytes_text(model->all_bytes, size));
}

static int run_list(int argc, char **argv)
{
	static const struct argp_option rows[] = {
		{"json", OPTION_JSON, NULL, 0, "one JSON object a model", 0},
		{0},
	};
	static const struct argp argp = {
		rows,
		parse_option,
		"",
		"The models that are known by name.\v"
		"Parameters are elements without those of fp8 scales; bytes are all. MTP layers are "
		"left to the engines' draft model: they are not sent.",
		NULL,
		NULL,
		NULL};
	struct options options = {0};
	const struct model_builtin *builtins;
	struct error error = {0};
	struct model *model;
	size_t count;

	argp_parse(&argp, argc, argv, 0, NULL, &options);
	builtins = model_builtins(&count);
	if (!options.json)
		printf("%-19s %-22s %7s %17s %17s\n", "name", "class", "tensors", "parameters",
		       "bytes");
	for (size_t i = 0; i < count; i++) {
		if (model_open(&model, builtins[i].name, &error))
			return command_fail(&error);
		if (options.json)
			list_json(model);
		else
			list_line(model);
		model_close(&model);
	}
	return 0;
}

static void tensors_json(const struct model *model, size_t count)
{
	struct json json;

	for (size_t i = 0; i < count; i++) {
		const struct model_tensor *tensor = &model->tensors[i];

		json_to_file(&json, stdout);
		json_put_object(&json);
		json_put_key_string(&json, "tensor", tensor->name);
		json_put_key_string(&json, "dtype", dtype_name(tensor->dtype));
		json_shape(&json, tensor->dims, tensor->shape);
		json_put_key_u64(&json, "bytes", tensor->bytes);
		json_put_key(&json, "layer");
		json_put_i64(&json, tensor->layer);
		json_put_object_end(&json);
		json_put_newline(&json);
	}
}

static void tensors_lines(const struct model *model, size_t count)
{
	char shape[96], bytes[TEXT_SHORT_BYTES], parameters[TEXT_SHORT_BYTES];

	for (size_t i = 0; i < count; i++) {
		const struct model_tensor *tensor = &model->tensors[i];

		print_shape(tensor->dims, tensor->shape, shape);
		printf("%-56s %-5s %-18s %15s\n", tensor->name, dtype_name(tensor->dtype), shape,
		       grouped_text(tensor->bytes, bytes));
	}
	printf("%s: %zu tensors, %s parameters, %s bytes\n", model->name, model->tensor_count,
	       grouped_text(model->parameters, parameters), grouped_text(model->bytes, bytes));
	if (model->all_count > model->tensor_count)
		printf("with MTP layers: %zu tensors, %s parameters, %s bytes\n", model->all_count,
		       grouped_text(model->all_parameters, parameters),
		       grouped_text(model->all_bytes, bytes));
}

static int run_tensors(int argc, char **argv)
{
	static const struct argp_option rows[] = {
		{"json", OPTION_JSON, NULL, 0, "one JSON object a tensor", 0},
		{"all", OPTION_ALL, NULL, 0, "with the tensors of MTP layers, which are not sent",
		 0},
		{0},
	};
	static const struct argp argp = {
		rows,
		parse_option,
		"MODEL",
		"The tensors of a model's checkpoint, in checkpoint order. MODEL is a built-in name, "
		"or a folder or config.json written with a '/'.\v"
		"In JSON, \"layer\" is -1 for tensors before the layers and the number of layers for "
		"those after them (with --all also for those of the first MTP layer, which stand at "
		"the end).",
		NULL,
		NULL,
		NULL};
	struct options options = {.wants_name = true};
	struct error error = {0};
	struct model *model;
	size_t count;

	argp_parse(&argp, argc, argv, 0, NULL, &options);
	if (model_open(&model, options.name, &error))
		return command_fail(&error);
	count = options.all ? model->all_count : model->tensor_count;
	if (options.json)
		tensors_json(model, count);
	else
		tensors_lines(model, count);
	model_close(&model);
	return 0;
}

static void layout_json(const struct layout *layout)
{
	struct json json;

	for (size_t i = 0; i < layout->piece_count; i++) {
		const struct piece *piece = &layout->pieces[i];

		json_to_file(&json, stdout);
		json_put_object(&json);
		json_put_key_string(&json, "tensor", layout->tensors[piece->tensor].name);
		json_put_key(&json, "src");
		json_put_array(&json);
		for (uint32_t d = 0; d < piece->src.dims; d++) {
			json_put_array(&json);
			json_put_u64(&json, piece->src.lo[d]);
			json_put_u64(&json, piece->src.hi[d]);
			json_put_array_end(&json);
		}
		json_put_array_end(&json);
		json_put_key_string(&json, "param", layout->params[piece->param].name);
		json_put_key_u64(&json, "offset", piece->offset);
		json_put_key_u64(&json, "bytes", piece->bytes);
		json_put_object_end(&json);
		json_put_newline(&json);
	}
}

static const struct layout *sort_layout; /* qsort has no context argument */

static int by_param(const void *left, const void *right)
{
	const struct piece *a = &sort_layout->pieces[*(const size_t *)left];
	const struct piece *b = &sort_layout->pieces[*(const size_t *)right];

	if (a->param != b->param)
		return a->param < b->param ? -1 : 1;
	return a->offset < b->offset ? -1 : a->offset > b->offset;
}

static void print_param(const struct layout *layout, uint32_t param, const size_t *order,
			size_t *next, size_t *next_fill)
{
	const struct param_info *info = &layout->params[param];
	char shape[96], bytes[TEXT_SHORT_BYTES], box[160];

	print_shape(info->dims, info->shape, shape);
	printf("%s %s %s, %s bytes\n", info->name, dtype_name(info->dtype), shape,
	       grouped_text(info->bytes, bytes));
	for (; *next < layout->piece_count; (*next)++) {
		const struct piece *piece = &layout->pieces[order[*next]];

		if (piece->param != param)
			break;
		printf("  %12" PRIu64 " +%12" PRIu64 "  %s %s\n", piece->offset, piece->bytes,
		       layout->tensors[piece->tensor].name,
		       box_text(&piece->src, box, sizeof(box)));
	}
	for (; *next_fill < layout->fill_count; (*next_fill)++) {
		const struct fill *fill = &layout->fills[*next_fill];

		if (fill->param != param)
			break;
		printf("  %12" PRIu64 " +%12" PRIu64 "  filled with zeroes\n", fill->offset,
		       fill->bytes);
	}
}

static int layout_lines(const struct layout *layout, const char *title, struct error *error)
{
	size_t *order = memory_zalloc(layout->piece_count, sizeof(*order));
	size_t next = 0, next_fill = 0;
	uint64_t params = 0, pieces = 0, fills = 0;
	char a[TEXT_SHORT_BYTES], b[TEXT_SHORT_BYTES], c[TEXT_SHORT_BYTES];

	if (!order)
		return memory_error(error, "sorting pieces", layout->piece_count * sizeof(*order));
	for (size_t i = 0; i < layout->piece_count; i++)
		order[i] = i;
	sort_layout = layout;
	if (layout->piece_count)
		qsort(order, layout->piece_count, sizeof(*order), by_param);
	for (uint32_t p = 0; p < layout->param_count; p++)
		print_param(layout, p, order, &next, &next_fill);
	memory_free(order);
	for (size_t i = 0; i < layout->param_count; i++)
		params += layout->params[i].bytes;
	for (size_t i = 0; i < layout->piece_count; i++)
		pieces += layout->pieces[i].bytes;
	for (size_t i = 0; i < layout->fill_count; i++)
		fills += layout->fills[i].bytes;
	printf("%s: %zu parameters, %s bytes; %zu pieces, %s bytes; %zu fills, %s bytes\n", title,
	       layout->param_count, grouped_text(params, a), layout->piece_count,
	       grouped_text(pieces, b), layout->fill_count, grouped_text(fills, c));
	return 0;
}

static int show_layout(const struct options *options, struct error *error)
{
	struct infer_spec infer;
	struct layout layout;
	struct model *model;
	uint64_t rank;
	char *title;
	int rc = infer_spec_parse(&infer, options->infer, error);

	if (rc)
		return rc;
	if (!parse_u64(options->rank, &rank) || rank >= infer_ranks(&infer))
		return error_set(error, ERROR_USAGE,
				 "--rank %s is not an inference rank; %s has ranks 0 to %u",
				 options->rank, options->infer, infer_ranks(&infer) - 1);
	rc = model_open(&model, options->name, error);
	if (rc)
		return rc;
	rc = model_layout(model, &infer, (uint32_t)(rank % infer.tp), &layout, error);
	if (rc == 0 && options->json) {
		layout_json(&layout);
	} else if (rc == 0) {
		title = memory_format("%s, inference rank %" PRIu64 " (engine %" PRIu64
				      ", engine rank %" PRIu64 " of %u)",
				      model->name, rank, rank / infer.tp, rank % infer.tp,
				      infer.tp);
		rc = title ? layout_lines(&layout, title, error)
			   : memory_error(error, "printing a layout", 0);
		memory_free(title);
	}
	layout_fini(&layout);
	model_close(&model);
	return rc;
}

static int run_layout(int argc, char **argv)
{
	static const struct argp_option rows[] = {
		{"infer", OPTION_INFER, "SPEC", 0,
		 "the inference side, as engines=2,tp=8,ep=8 (also dp, dp_lm_head, moe_dense_tp)",
		 0},
		{"rank", OPTION_RANK, "R", 0,
		 "the inference rank, counted over all engines (default 0)", 0},
		{"json", OPTION_JSON, NULL, 0, "one JSON object a piece", 0},
		{0},
	};
	static const struct argp argp = {
		rows,
		parse_option,
		"MODEL",
		"The parameters of one inference rank, and which part of which tensor becomes which "
		"byte range of them. MODEL is a built-in name, or a folder or config.json written "
		"with a '/'.",
		NULL,
		NULL,
		NULL};
	struct options options = {.wants_name = true, .rank = "0"};
	struct error error = {0};

	argp_parse(&argp, argc, argv, 0, NULL, &options);
	if (!options.infer) {
		error_set(&error, ERROR_USAGE,
			  "--infer is missing: say for example --infer "
			  "engines=1,tp=2");
		return command_fail(&error);
	}
	return show_layout(&options, &error) ? command_fail(&error) : 0;
}

const struct command model_commands[] = {
	{"model", "list", "the models that are known by name", run_list},
	{"model", "tensors", "the tensors of a model's checkpoint", run_tensors},
	{"model", "layout", "one inference rank's parameters and where they come from", run_layout},
	{"model", "check", "a running engine's own parameters beside a layout", model_check},
	{NULL, NULL, NULL, NULL},
};

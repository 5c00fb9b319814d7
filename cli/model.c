/* SPDX-License-Identifier: Apache-2.0
 *
 * model.c -- weft model list | tensors: what a model is made of; and the other verbs.
 */
#include "cli/model_verbs.h"

#include "cli/command.h"
#include "base/text.h"
#include "model/family.h"
#include "model/model.h"
#include <argp.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { OPTION_JSON = 0x100, OPTION_ALL };

struct options {
	const char *name;
	bool json, all, wants_name;
};

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
	struct options *options = state->input;

	switch (key) {
	case OPTION_JSON:
		options->json = true;
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

char *model_shape_text(uint32_t dims, const uint64_t *shape, char out[MODEL_SHAPE_BYTES])
{
	int at = 0;

	for (uint32_t d = 0; d < dims; d++)
		at += snprintf(out + at, (size_t)(MODEL_SHAPE_BYTES - at), "%s%" PRIu64,
			       d ? ", " : "[", shape[d]);
	snprintf(out + at, (size_t)(MODEL_SHAPE_BYTES - at), "]");
	return out;
}

void model_json_shape(struct json *json, const char *key, uint32_t dims, const uint64_t *shape)
{
	json_put_key(json, key);
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
		model_json_shape(&json, "shape", tensor->dims, tensor->shape);
		json_put_key_u64(&json, "bytes", tensor->bytes);
		json_put_key(&json, "layer");
		json_put_i64(&json, tensor->layer);
		json_put_object_end(&json);
		json_put_newline(&json);
	}
}

static void tensors_lines(const struct model *model, size_t count)
{
	char shape[MODEL_SHAPE_BYTES], bytes[TEXT_SHORT_BYTES], parameters[TEXT_SHORT_BYTES];

	for (size_t i = 0; i < count; i++) {
		const struct model_tensor *tensor = &model->tensors[i];

		model_shape_text(tensor->dims, tensor->shape, shape);
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

const struct command model_commands[] = {
	{"model", "list", "the models that are known by name", run_list},
	{"model", "tensors", "the tensors of a model's checkpoint", run_tensors},
	{"model", "layout", "one rank's parameters and where they come from", model_layout_print},
	{"model", "check", "a running engine's own parameters beside a layout", model_check},
	{"model", "plan-memory", "what each worker of a job keeps beside the model",
	 model_plan_memory},
	{NULL, NULL, NULL, NULL},
};

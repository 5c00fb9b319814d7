/* SPDX-License-Identifier: Apache-2.0
 *
 * model.c -- weft model list | tensors: what a model is made of; and the other verbs.
 */
#include "cli/model_verbs.h"
#include "cli/grid.h"
#include "cli/shown.h"

#include "job/parallel.h"
#include "model/family.h"
#include "model/model.h"
#include <inttypes.h>
#include <stdio.h>

struct options {
	const char *name, *as;
	bool json, all;
};

char *model_shape_text(uint32_t dims, const uint64_t *shape, char out[MODEL_SHAPE_BYTES])
{
	int at = 0;

	for (uint32_t d = 0; d < dims; d++)
		at += snprintf(out + at, (size_t)(MODEL_SHAPE_BYTES - at), "%s%" PRIu64,
			       d ? ", " : "[", shape[d]);
	snprintf(out + at, (size_t)(MODEL_SHAPE_BYTES - at), "]");
	return out;
}

int model_rank(const char *infer_text, const char *rank_text, struct infer_spec *infer,
	       uint32_t *rank, struct error *error)
{
	uint64_t value;
	int rc = infer_spec_parse(infer, infer_text, error);

	if (rc)
		return rc;
	if (!parse_u64(rank_text, &value) || value >= infer_ranks(infer))
		return error_set(error, ERROR_USAGE,
				 "--rank %s is not an inference rank; %s has ranks 0 to %u",
				 rank_text, infer_text, infer_ranks(infer) - 1);
	*rank = (uint32_t)value;
	return 0;
}

static void list_json(const struct model *model)
{
	const struct model_config *config = &model->config;
	struct json line, *json = &line;

	json_put_line(json, stdout);
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
	json_put_line_end(json);
}

/* The class gives way where the line is too long. */
static const struct grid_column list_columns[] = {
	COLUMN("name", -19),  COLUMN("class", -22, .least = 12),
	COLUMN("tensors", 7), COLUMN("parameters", 17),
	COLUMN("bytes", 17),  COLUMN(NULL, 0, .before = "  ", .spare = true),
};

static void list_line(struct grid *grid, const char *name, const char *class, size_t tensors,
		      uint64_t parameters, uint64_t bytes)
{
	grid_row(grid,
		 (const char *[]){name, class, grid_cell("%zu", tensors), GROUPED_TEXT(parameters),
				  GROUPED_TEXT(bytes), BYTES_TEXT(bytes)});
}

static void list_lines(struct grid *grid, const struct model *model)
{
	list_line(grid, shown(model->name), model->config.family->architecture, model->tensor_count,
		  model->parameters, model->bytes);
	if (model->all_count > model->tensor_count)
		list_line(grid, "", "  with MTP layers", model->all_count, model->all_parameters,
			  model->all_bytes);
}

static int run_list(void *taken, struct error *error)
{
	const struct options *options = taken;
	const struct model_builtin *builtins;
	struct model *model;
	struct grid grid;
	size_t count;
	int rc = 0;

	builtins = model_builtins(&count);
	if (!options->json)
		grid_begin(&grid, list_columns, ARRAY_SIZE(list_columns));
	for (size_t i = 0; i < count && !rc; i++) {
		rc = model_open(&model, builtins[i].name, error);
		if (rc)
			break;
		if (options->json)
			list_json(model);
		else
			list_lines(&grid, model);
		model_close(&model);
	}
	if (!options->json)
		grid_end(&grid);
	return rc;
}

static const struct verb_option list_rows[] = {
	FORMAT(json, "json", "one JSON object a model"),
	{0},
};

static const struct verb list = {
	VERB_OF(struct options, list_rows),
	.arguments = "",
	.doc = "The models that are known by name.\v"
	       "Parameters are elements without those of fp8 scales; bytes are all. MTP layers are "
	       "left to the engines' draft model: they are not sent.",
	.run = run_list,
};

static void tensors_json(const struct model *model, size_t count)
{
	struct json json;

	for (size_t i = 0; i < count; i++) {
		const struct model_tensor *tensor = &model->tensors[i];

		json_put_line(&json, stdout);
		json_put_key_string(&json, "tensor", tensor->name);
		json_put_key_string(&json, "dtype", dtype_name(tensor->dtype));
		json_put_key_u64s(&json, "shape", tensor->shape, tensor->dims);
		json_put_key_u64(&json, "bytes", tensor->bytes);
		json_put_key(&json, "layer");
		json_put_i64(&json, tensor->layer);
		json_put_line_end(&json);
	}
}

static void tensors_lines(const struct model *model, size_t count)
{
	static const struct grid_column columns[] = {COLUMN(NULL, -56, .least = 24),
						     COLUMN(NULL, -5), COLUMN(NULL, -18),
						     COLUMN(NULL, 15)};
	char shape[MODEL_SHAPE_BYTES];
	struct grid grid;

	grid_begin(&grid, columns, ARRAY_SIZE(columns));
	for (size_t i = 0; i < count; i++) {
		const struct model_tensor *tensor = &model->tensors[i];

		model_shape_text(tensor->dims, tensor->shape, shape);
		grid_row(&grid, (const char *[]){shown(tensor->name), dtype_name(tensor->dtype),
						 shape, GROUPED_TEXT(tensor->bytes)});
	}
	grid_end(&grid);
	printf("%s: %zu tensors, %s parameters, %s bytes\n", shown(model->name),
	       model->tensor_count, GROUPED_TEXT(model->parameters), GROUPED_TEXT(model->bytes));
	if (model->all_count > model->tensor_count)
		printf("with MTP layers: %zu tensors, %s parameters, %s bytes\n", model->all_count,
		       GROUPED_TEXT(model->all_parameters), GROUPED_TEXT(model->all_bytes));
}

static int run_tensors(void *taken, struct error *error)
{
	const struct options *options = taken;
	struct model *model;
	int rc = model_open_as(&model, options->name, options->as, error);

	if (rc)
		return rc;
	(options->json ? tensors_json : tensors_lines)(model, options->all ? model->all_count
									   : model->tensor_count);
	model_close(&model);
	return 0;
}

static const struct verb_option tensors_rows[] = {
	FORMAT(json, "json", "one JSON object a tensor"),
	FLAG(all, "all", "with the tensors of MTP layers, which are not sent"),
	ROW_AS,
	{0},
};

static const struct verb tensors = {
	VERB_OF(struct options, tensors_rows),
	VERB_ARGUMENTS(struct options, name, 1, 1),
	.arguments = "MODEL",
	.too_few = MODEL_NEEDED,
	.doc = "The tensors of a model's checkpoint, in checkpoint order. MODEL is a built-in name, "
	       "or a folder, config.json or layout file.\v"
	       "In JSON, \"layer\" is -1 for tensors before the layers and the number of layers for "
	       "those after them (with --all also for those of the first MTP layer, which stand at "
	       "the end).",
	.run = run_tensors,
};

const struct command model_commands[] = {
	{"model", "list", "the models that are known by name", &list},
	{"model", "tensors", "the tensors of a model's checkpoint", &tensors},
	{"model", "layout", "one rank's parameters and where they come from", &model_layout_verb},
	{"model", "holding", "what one trainer holds, and where", &model_holding_verb},
	{"model", "check", "a running engine's own parameters beside a layout", &model_check_verb},
	{"model", "plan-memory", "what each worker of a job keeps beside the model",
	 &model_memory_verb},
	{0},
};

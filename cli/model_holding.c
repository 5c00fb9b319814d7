/* SPDX-License-Identifier: Apache-2.0
 *
 * model_holding.c -- weft model holding: what one trainer holds of a model, box by box, in which of its own parameters.
 */
#include "cli/model_verbs.h"

#include "base/memory.h"
#include "base/text.h"
#include "cli/shown.h"
#include "job/parallel.h"
#include "model/model.h"

#include <inttypes.h>
#include <stdio.h>

struct options {
	const char *name, *as, *train, *rank;
	bool json;
};

/* The parameter that a box lies in: what is declared by rows is the tensor itself. */
static const char *local_name(const struct holding *holding, const struct held *held)
{
	return held->local == HELD_OWN ? holding->tensors[held->tensor].name
				       : holding->locals[held->local].name;
}

static void held_json(const struct holding *holding, const struct held *held)
{
	const struct tensor_info *tensor = &holding->tensors[held->tensor];
	struct json json;

	json_put_line(&json, stdout);
	json_put_key_string(&json, "tensor", tensor->name);
	json_put_key_string(&json, "dtype", dtype_name(tensor->dtype));
	json_put_key_u64s(&json, "shape", tensor->shape, tensor->dims);
	json_put_key_u64s(&json, "lo", held->box.lo, held->box.dims);
	json_put_key_u64s(&json, "hi", held->box.hi, held->box.dims);
	json_put_key_string(&json, "local", local_name(holding, held));
	if (held->local != HELD_OWN)
		json_put_key_u64s(&json, "local_shape", holding->locals[held->local].shape,
				  holding->locals[held->local].dims);
	json_put_key_u64(&json, "offset", held->place.offset);
	json_put_key_u64s(&json, "strides", held->place.stride, held->box.dims);
	json_put_line_end(&json);
}

static void print_held(const struct holding *holding, const struct held *held)
{
	char box[160], strides[MODEL_SHAPE_BYTES];

	printf("%s %s in %s", shown(holding->tensors[held->tensor].name),
	       box_text(&held->box, box, sizeof(box)), local_name(holding, held));
	if (held->local != HELD_OWN)
		printf(" from element %" PRIu64 ", strides %s", held->place.offset,
		       model_shape_text(held->box.dims, held->place.stride, strides));
	putchar('\n');
}

/* A local parameter may have more than its boxes: a vocabulary that was rounded up, what a shard was padded with. */
static void print_sums(const struct holding *holding, const char *model,
		       const struct train_spec *train, uint32_t rank)
{
	uint64_t held = 0, local = 0;
	size_t own = 0;

	for (size_t i = 0; i < holding->held_count; i++) {
		uint64_t bytes = box_elements(&holding->held[i].box) *
				 dtype_bytes(holding->tensors[holding->held[i].tensor].dtype);

		held += bytes;
		own += holding->held[i].local == HELD_OWN;
		local += holding->held[i].local == HELD_OWN ? bytes : 0;
	}
	for (size_t i = 0; i < holding->local_count; i++)
		local += holding->locals[i].bytes;
	printf("\n%s, trainer %" PRIu32 " of %" PRIu32 " (stage %" PRIu32
	       "): %zu boxes of %zu tensors in %zu parameters, %s bytes",
	       shown(model), rank, train->world, train_stage(train, rank), holding->held_count,
	       holding->tensor_count, holding->local_count + own, GROUPED_TEXT(held));
	if (local != held)
		printf(" and %s that are no tensor's", GROUPED_TEXT(local - held));
	putchar('\n');
}

static int parse_rank(const struct options *options, const struct train_spec *train, uint32_t *rank,
		      struct error *error)
{
	uint64_t number = 0;

	if (options->rank && (!parse_u64(options->rank, &number) || number >= train->world))
		return error_set(error, ERROR_USAGE, "--rank %s: --train has ranks 0 to %u",
				 options->rank, train->world - 1);
	*rank = (uint32_t)number;
	return 0;
}

static int run(void *taken, struct error *error)
{
	const struct options *options = taken;
	struct train_spec train;
	struct holding holding;
	struct model *model;
	uint32_t rank = 0;
	/* a spec that is wrong is told before a large file is read */
	int rc = train_spec_parse(&train, options->train, error);

	if (!rc)
		rc = parse_rank(options, &train, &rank, error);
	if (!rc)
		rc = model_open_as(&model, options->name, options->as, error);
	if (rc)
		return rc;
	rc = model_holding(model, &train, rank, &holding, error);
	for (size_t i = 0; !rc && i < holding.held_count; i++)
		(options->json ? held_json : print_held)(&holding, &holding.held[i]);
	if (!rc && !options->json)
		print_sums(&holding, model->name, &train, rank);
	if (!rc)
		holding_fini(&holding);
	model_close(&model);
	return rc;
}

static void check_arguments(void *taken, struct argp_state *state)
{
	const struct options *options = taken;

	if (!options->train)
		argp_error(
			state,
			"--train is missing: say for example --train world=4,source=megatron,tp=2,pp=2");
}

static const struct verb_option rows[] = {
	TEXT(train, "train", "SPEC",
	     "the trainers, as world=8,source=megatron,tp=2,pp=2 (docs/sources.md has all sources and keys)"),
	TEXT(rank, "rank", "R", "the trainer (default 0)"),
	FORMAT(json, "json", "one JSON object a box"),
	ROW_AS,
	{0},
};

const struct verb model_holding_verb = {
	VERB_OF(struct options, rows),
	VERB_ARGUMENTS(struct options, name, 1, 1),
	.check = check_arguments,
	.arguments = "MODEL",
	.too_few = MODEL_NEEDED,
	.doc = "What one trainer holds: which box of which tensor of the checkpoint lies where in which of its own "
	       "parameters. MODEL is a built-in name, or a folder, config.json or layout file.\v"
	       "The element with indexes i of a box is element offset + sum of (i - lo) * stride of the local parameter. "
	       "What is held by rows (source=gathered, sharded) is memory of its own: the box, row after row.",
	.run = run,
};

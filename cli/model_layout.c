/* SPDX-License-Identifier: Apache-2.0
 *
 * model_layout.c -- weft model layout: what one inference rank needs of a model, piece by piece;
 * and, with --derived, what its engine makes of that.
 */
#include "cli/model_verbs.h"
#include "cli/shown.h"

#include "base/array.h"
#include "base/compare.h"
#include "job/parallel.h"
#include "model/derived.h"
#include "model/layout_file.h"
#include "model/model.h"
#include <inttypes.h>
#include <stdio.h>

struct options {
	const char *name, *as, *from, *infer, *rank, *output;
	bool json, derived;
};

/* ---- pieces ---- */

/* How the piece's bytes are transformed; false when they are the tensor's own. */
static bool transform_name(const struct layout *layout, const struct piece *piece,
			   char out[TRANSFORM_TEXT_BYTES])
{
	bool convert = layout->tensors[piece->tensor].dtype != layout->params[piece->param].dtype;

	transform_text(&piece->transform, convert, out);
	return convert || !transform_plain(&piece->transform);
}

static void piece_json(const struct layout *layout, const struct piece *piece)
{
	const struct tensor_info *tensor = &layout->tensors[piece->tensor];
	const struct tensor_info *param = &layout->params[piece->param];
	char transform[TRANSFORM_TEXT_BYTES];
	struct json json;

	json_put_line(&json, stdout);
	json_put_key_string(&json, "tensor", tensor->name);
	json_put_key_array(&json, "src");
	for (uint32_t d = 0; d < piece->src.dims; d++)
		json_put_range(&json, piece->src.lo[d], piece->src.hi[d]);
	json_put_array_end(&json);
	json_put_key_string(&json, "param", param->name);
	json_put_key_u64(&json, "offset", piece->offset);
	json_put_key_u64(&json, "bytes", piece->bytes);
	if (transform_name(layout, piece, transform)) {
		json_put_key_string(&json, "make", transform);
		json_put_key_string(&json, "from", dtype_name(tensor->dtype));
		json_put_key_string(&json, "to", dtype_name(param->dtype));
		if (piece->transform.from_rows)
			json_put_key_string(&json, "scales", layout->tensors[piece->scales].name);
	}
	json_put_line_end(&json);
}

static const struct layout *sort_layout; /* qsort has no context argument */

static int by_param(const void *left, const void *right)
{
	const struct piece *a = &sort_layout->pieces[*(const size_t *)left];
	const struct piece *b = &sort_layout->pieces[*(const size_t *)right];

	return compare_u64(a->param, b->param) ?: compare_u64(a->offset, b->offset);
}

static void print_piece(const struct layout *layout, const struct piece *piece)
{
	const struct tensor_info *tensor = &layout->tensors[piece->tensor];
	char box[160], transform[TRANSFORM_TEXT_BYTES];

	printf("  %12" PRIu64 " +%12" PRIu64 "  %s %s", piece->offset, piece->bytes,
	       shown(tensor->name), box_text(&piece->src, box, sizeof(box)));
	if (transform_name(layout, piece, transform)) {
		printf(", %s, %s to %s", transform, dtype_name(tensor->dtype),
		       dtype_name(layout->params[piece->param].dtype));
		if (piece->transform.from_rows)
			printf(", scales %s", layout->tensors[piece->scales].name);
	}
	putchar('\n');
}

static void print_param(const struct layout *layout, uint32_t param, const size_t *order,
			size_t *next, size_t *next_fill)
{
	const struct tensor_info *info = &layout->params[param];
	char shape[MODEL_SHAPE_BYTES];

	printf("%s %s %s, %s bytes\n", shown(info->name), dtype_name(info->dtype),
	       model_shape_text(info->dims, info->shape, shape), GROUPED_TEXT(info->bytes));
	for (; *next < layout->piece_count; (*next)++) {
		const struct piece *piece = &layout->pieces[order[*next]];

		if (piece->param != param)
			break;
		print_piece(layout, piece);
	}
	for (; *next_fill < layout->fill_count; (*next_fill)++) {
		const struct fill *fill = &layout->fills[*next_fill];

		if (fill->param != param)
			break;
		printf("  %12" PRIu64 " +%12" PRIu64 "  filled with zeroes\n", fill->offset,
		       fill->bytes);
	}
}

static int print_layout(const struct layout *layout, const char *title, struct error *error)
{
	size_t *order = memory_zalloc(layout->piece_count, sizeof(*order));
	size_t next = 0, next_fill = 0;
	uint64_t params = 0, pieces = 0, fills = 0;

	if (!order)
		return memory_error(error, "sorting pieces", layout->piece_count * sizeof(*order));
	for (size_t i = 0; i < layout->piece_count; i++)
		order[i] = i;
	sort_layout = layout;
	sort_items(order, layout->piece_count, by_param);
	for (uint32_t p = 0; p < layout->param_count; p++)
		print_param(layout, p, order, &next, &next_fill);
	memory_free(order);
	for (size_t i = 0; i < layout->param_count; i++)
		params += layout->params[i].bytes;
	for (size_t i = 0; i < layout->piece_count; i++)
		pieces += layout->pieces[i].bytes;
	for (size_t i = 0; i < layout->fill_count; i++)
		fills += layout->fills[i].bytes;
	printf("%s: %zu parameters, %s bytes; %zu pieces, %s bytes; %zu fills, %s bytes\n",
	       shown(title), layout->param_count, GROUPED_TEXT(params), layout->piece_count,
	       GROUPED_TEXT(pieces), layout->fill_count, GROUPED_TEXT(fills));
	return 0;
}

/* ---- --derived ---- */

static void put_optional(struct json *json, const char *key, const char *value)
{
	json_put_key(json, key);
	if (value)
		json_put_string(json, value);
	else
		json_put_null(json);
}

static void derived_json(const struct layout *layout, const struct derived *derived)
{
	const uint32_t sources[] = {derived->param, derived->scales};
	struct json json;

	json_put_line(&json, stdout);
	json_put_key_string(&json, "derived", derived->name);
	json_put_key_string(&json, "state", derived_state_name(derived->kind->state));
	json_put_key_string(&json, "dtype", dtype_name(derived->dtype));
	json_put_key_u64s(&json, "shape", derived->shape, derived->dims);
	json_put_key_u64s(&json, "strides", derived->strides, derived->dims);
	json_put_key_u64(&json, "bytes", derived->bytes);
	json_put_key_array(&json, "from");
	for (size_t i = 0; i < ARRAY_SIZE(sources); i++)
		if (sources[i] != DERIVED_NO_PARAM && derived->kind->state != DERIVED_CONSTANT)
			json_put_string(&json, layout->params[sources[i]].name);
	json_put_array_end(&json);
	json_put_key_string(&json, "how", derived->kind->how);
	put_optional(&json, "by", derived->kind->by);
	put_optional(&json, "only", derived->kind->only);
	json_put_line_end(&json);
}

static void print_derived(const struct layout *layout, const struct derived *derived)
{
	char shape[MODEL_SHAPE_BYTES], strides[MODEL_SHAPE_BYTES];

	printf("%s %s %s, %s bytes, %s\n", derived->name, dtype_name(derived->dtype),
	       model_shape_text(derived->dims, derived->shape, shape), GROUPED_TEXT(derived->bytes),
	       derived_state_name(derived->kind->state));
	if (derived->kind->state == DERIVED_CONSTANT)
		return;
	printf("  of %s", layout->params[derived->param].name);
	if (derived->scales != DERIVED_NO_PARAM)
		printf(" and %s", layout->params[derived->scales].name);
	printf(", strides %s\n", model_shape_text(derived->dims, derived->strides, strides));
}

/* Each kind once, in the order in which it came. */
static void print_kinds(const struct derived_list *list)
{
	for (size_t i = 0; i < list->count; i++) {
		const struct derived_kind *kind = list->items[i].kind;
		size_t first = 0;

		while (list->items[first].kind != kind)
			first++;
		if (first != i)
			continue;
		printf("%s%s: %s", kind->state == DERIVED_STALE ? "WARNING: " : "", kind->name,
		       kind->how);
		if (kind->by)
			printf("; by %s", kind->by);
		if (kind->only)
			printf("; only in %s", kind->only);
		if (kind->state == DERIVED_STALE)
			printf(". Nobody makes it again: after an update the engine still routes "
			       "by the old gate");
		puts(".");
	}
}

static void print_derived_list(const struct derived_list *list, const struct layout *layout,
			       const char *title)
{
	uint64_t bytes[DERIVED_STATE_COUNT] = {0};
	size_t counts[DERIVED_STATE_COUNT] = {0};

	for (size_t i = 0; i < list->count; i++) {
		print_derived(layout, &list->items[i]);
		bytes[list->items[i].kind->state] += list->items[i].bytes;
		counts[list->items[i].kind->state]++;
	}
	if (list->count)
		putchar('\n');
	print_kinds(list);
	if (list->count)
		putchar('\n');
	printf("%s:", shown(title));
	for (int s = 0; s < DERIVED_STATE_COUNT; s++)
		if (counts[s])
			printf(" %zu %s, %s bytes;", counts[s],
			       derived_state_name((enum derived_state)s), GROUPED_TEXT(bytes[s]));
	if (!list->count) {
		puts(" no derived tensors");
		return;
	}
	printf(" %zu derived tensors. Weft writes none of them: after its parameters were written "
	       "and before the version is published the engine makes them again, in the hook of "
	       "weft_set_post_load (weft.h).\n",
	       list->count);
}

static int show_derived(const struct options *options, const struct model *model,
			const struct infer_spec *infer, const struct layout *layout,
			const char *title, struct error *error)
{
	struct derived_list list;
	int rc = derived_list(&list, model, infer, layout, error);

	if (rc)
		return rc;
	if (!options->json)
		print_derived_list(&list, layout, title);
	for (size_t i = 0; options->json && i < list.count; i++)
		derived_json(layout, &list.items[i]);
	derived_list_fini(&list);
	return 0;
}

/* ---- the verb ---- */

static int show_rank(const struct options *options, const struct model *model,
		     const struct infer_spec *infer, uint32_t rank, struct error *error)
{
	struct layout layout;
	char *title;
	int rc = model_layout(model, infer, rank % infer->tp, &layout, error);

	if (rc)
		return rc;
	title = memory_format("%s, inference rank %u (engine %u, engine rank %u of %u)",
			      model->name, rank, rank / infer->tp, rank % infer->tp, infer->tp);
	if (!title)
		rc = memory_error(error, "printing a layout", 0);
	else if (options->derived)
		rc = show_derived(options, model, infer, &layout, title, error);
	else if (!options->json)
		rc = print_layout(&layout, title, error);
	else
		for (size_t i = 0; i < layout.piece_count; i++)
			piece_json(&layout, &layout.pieces[i]);
	memory_free(title);
	layout_fini(&layout);
	return rc;
}

static int run_model(const struct options *options, const struct model *model, struct error *error)
{
	char of_file[PARALLEL_TEXT_BYTES];
	const char *infer_text = options->infer;
	struct infer_spec infer;
	uint32_t rank;
	int rc;

	if (!infer_text && model->file)
		infer_text = infer_spec_text(&model->file->infer, of_file);
	if (!infer_text)
		return error_set(error, ERROR_USAGE,
				 "--infer is missing: say for example --infer engines=1,tp=2");
	rc = model_rank(infer_text, options->rank ? options->rank : "0", &infer, &rank, error);
	if (rc)
		return rc;
	if (options->output)
		return model_layout_output(model, &infer, options->output, error);
	if (options->from && !options->rank && !options->derived && !options->json)
		return model_layout_check(model, &infer, options->from, error);
	return show_rank(options, model, &infer, rank, error);
}

static int run(void *taken, struct error *error)
{
	const struct options *options = taken;
	struct infer_spec infer;
	struct model *model;
	/* a spec that is wrong is told before a large file is read */
	int rc = options->infer ? infer_spec_parse(&infer, options->infer, error) : 0;

	if (!rc)
		rc = options->from ? layout_file_open(&model, options->from, error)
				   : model_open_as(&model, options->name, options->as, error);
	if (rc)
		return rc;
	rc = run_model(options, model, error);
	model_close(&model);
	return rc;
}

static void check_arguments(void *taken, struct argp_state *state)
{
	const struct options *options = taken;

	if (!options->name && !options->from)
		argp_error(state, MODEL_NEEDED);
	if (options->name && options->from)
		argp_error(state, "MODEL and --from: give one of the two");
	if (options->output && (options->rank || options->derived || options->json))
		argp_error(state, "--output writes the parameters of all ranks: leave --%s out",
			   options->rank      ? "rank"
			   : options->derived ? "derived"
					      : "json");
}

static const struct verb_option rows[] = {
	TEXT(from, "from", "FILE",
	     "instead of MODEL: a layout file (docs/layout-file.md). Without --rank, --json or "
	     "--derived: check the ranks of it all, a line each"),
	TEXT(infer, "infer", "SPEC",
	     "the inference side, as engines=2,tp=8,ep=8 (also dp, dp_lm_head, moe_dense_tp, "
	     "a2a, fuse_shared, embed_replicated, names, experts, routed_experts, expert_weights, "
	     "expert_halves, untied, gate, indexer, dtype, fp8, mxfp4_pad: docs/models.md)"),
	TEXT(rank, "rank", "R", "the inference rank, counted over all engines (default 0)"),
	TEXT(output, "output", "FILE",
	     "write a layout file of all ranks, which is given in the place of a model's name"),
	FLAG(derived, "derived",
	     "not the parameters, but what the engine makes of them after a load"),
	FORMAT(json, "json", "one JSON object a piece, or a derived tensor"),
	ROW_AS,
	{0},
};

const struct verb model_layout_verb = {
	VERB_OF(struct options, rows),
	VERB_ARGUMENTS(struct options, name, 0, 1),
	.check = check_arguments,
	.arguments = "MODEL\n--from FILE",
	.doc = "The parameters of one inference rank, and which part of which tensor becomes which "
	       "byte range of them. MODEL is a built-in name, or a folder, config.json or layout "
	       "file.\v"
	       "A layout file is made for one --infer spec (with any number of engines), which "
	       "is the default with it.\n\n"
	       "A piece whose bytes are not the tensor's own also says how they are transformed "
	       "(in JSON \"make\", \"from\", \"to\", and \"scales\" with an fp8 source): convert, "
	       "quantise, scales, dequantise, requantise, rescale, with the rows and columns of a "
	       "block, or transpose, or pad with the elements of a row.\n\nDerived tensors are never written. Their states: rebuilt (the engine "
	       "makes them after every load), optional (the same, in some builds), view (a "
	       "parameter's own bytes), constant (made of no tensor), stale (nobody makes them "
	       "again). Strides count elements. Not listed, because they are parameters in another "
	       "order: experts that a flashinfer TRT-LLM runner has shuffled; the engine must undo "
	       "that before a write, and do it again after.",
	.run = run,
};

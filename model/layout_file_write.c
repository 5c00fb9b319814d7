/* SPDX-License-Identifier: Apache-2.0
 *
 * layout_file_write.c -- the layouts of all ranks of an engine as few entries:
 *
 *   one parameter    ranks 0..7 ──► classes of ranks that have the same ──► chains of classes, each one
 *                                   {0,1} {2,3} {4,5} {6,7}                 step behind the one before
 */
#include "model/layout_file.h"

#include "base/compare.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "model/model.h"
#include "model/tensors.h"
#include <string.h>

/* A piece or a fill of a rank, in the order of the parameter's bytes. */
struct part {
	uint32_t param, index;
	uint64_t offset;
	bool fill;
};

struct rank {
	struct layout layout;
	uint32_t *tensors; /* of the layout: index into the model's */
	struct part *parts;
	size_t *first; /* of each parameter's parts, and the end */
};

/* Ranks whose parameter is the same; the first stands for all. */
struct class
{
	uint32_t first;
	bool written;
};

struct writing {
	const struct model *model;
	struct rank *ranks;
	uint32_t count;
	struct class *classes;
	uint32_t class_count;
	uint32_t *class_of; /* by rank */
	uint32_t *chain;    /* of classes */
	struct json json;
	struct error *error;
};

static int by_place(const void *left, const void *right)
{
	const struct part *a = left, *b = right;

	return compare_u64(a->param, b->param) ?: compare_u64(a->offset, b->offset);
}

static int sort_parts(struct rank *rank, struct error *error)
{
	const struct layout *layout = &rank->layout;
	size_t count = layout->piece_count + layout->fill_count, n = 0;

	rank->parts = memory_zalloc(count, sizeof(*rank->parts));
	rank->first = memory_zalloc(layout->param_count + 1, sizeof(*rank->first));
	if (!rank->parts || !rank->first)
		return memory_error(error, "writing a layout file", count * sizeof(*rank->parts));
	for (uint32_t i = 0; i < layout->piece_count; i++)
		rank->parts[n++] =
			(struct part){layout->pieces[i].param, i, layout->pieces[i].offset, false};
	for (uint32_t i = 0; i < layout->fill_count; i++)
		rank->parts[n++] =
			(struct part){layout->fills[i].param, i, layout->fills[i].offset, true};
	sort_items(rank->parts, count, by_place);
	n = 0;
	for (uint32_t p = 0; p < layout->param_count; p++) {
		rank->first[p] = n;
		while (n < count && rank->parts[n].param == p)
			n++;
	}
	rank->first[layout->param_count] = count;
	return 0;
}

static int take_rank(const struct model *model, const struct infer_spec *infer, uint32_t index,
		     struct rank *rank, struct error *error)
{
	int rc = model_layout(model, infer, index, &rank->layout, error);

	if (rc)
		return rc;
	rank->tensors = memory_zalloc(rank->layout.tensor_count + 1, sizeof(*rank->tensors));
	if (!rank->tensors)
		return memory_error(error, "writing a layout file",
				    rank->layout.tensor_count * sizeof(*rank->tensors));
	for (size_t t = 0; t < rank->layout.tensor_count; t++)
		rank->tensors[t] = (uint32_t)model_find(model, rank->layout.tensors[t].name);
	return sort_parts(rank, error);
}

/* ---- what two ranks have in common ---- */

/* The piece of a part; NULL: a fill of *bytes. */
static const struct piece *piece_of(const struct rank *rank, const struct part *part,
				    uint64_t *bytes)
{
	*bytes = part->fill ? rank->layout.fills[part->index].bytes : 0;
	return part->fill ? NULL : &rank->layout.pieces[part->index];
}

/* Is b the same as a but for its box? */
static bool alike(const struct rank *of_a, const struct part *part_a, const struct rank *of_b,
		  const struct part *part_b)
{
	uint64_t fill_a, fill_b;
	const struct piece *a = piece_of(of_a, part_a, &fill_a);
	const struct piece *b = piece_of(of_b, part_b, &fill_b);

	if (!a || !b)
		return !a && !b && fill_a == fill_b;
	return of_a->tensors[a->tensor] == of_b->tensors[b->tensor] &&
	       transform_equal(&a->transform, &b->transform) &&
	       (!a->transform.from_rows || of_a->tensors[a->scales] == of_b->tensors[b->scales]);
}

/* Does b's box lie `times` steps behind a's, where `next` lies one? next NULL: at the same place. */
static bool steps(const struct box *a, const struct box *next, const struct box *b, uint64_t times)
{
	for (uint32_t d = 0; d < a->dims; d++) {
		uint64_t step = next ? next->lo[d] - a->lo[d] : 0;

		if (next && next->lo[d] < a->lo[d])
			return false;
		if (b->lo[d] - a->lo[d] != step * times || b->hi[d] - a->hi[d] != step * times)
			return false;
	}
	return true;
}

static bool same_param(const struct rank *a, const struct rank *b, uint32_t param)
{
	const struct tensor_info *x = &a->layout.params[param], *y = &b->layout.params[param];

	return x->dtype == y->dtype && x->dims == y->dims &&
	       memcmp(x->shape, y->shape, sizeof(x->shape)) == 0 &&
	       a->first[param + 1] - a->first[param] == b->first[param + 1] - b->first[param];
}

/* Is `other` what `first` is, `times` steps on? `second` is one step on; NULL: there is no step. */
static bool follows(const struct rank *first, const struct rank *second, const struct rank *other,
		    uint32_t param, uint64_t times)
{
	size_t count = first->first[param + 1] - first->first[param];

	if (!same_param(first, other, param))
		return false;
	for (size_t i = 0; i < count; i++) {
		const struct part *a = &first->parts[first->first[param] + i];
		const struct part *b = &other->parts[other->first[param] + i];
		const struct part *c = second ? &second->parts[second->first[param] + i] : NULL;

		if (!alike(first, a, other, b))
			return false;
		if (!a->fill && !steps(&first->layout.pieces[a->index].src,
				       c ? &second->layout.pieces[c->index].src : NULL,
				       &other->layout.pieces[b->index].src, times))
			return false;
	}
	return true;
}

/* ---- one entry ---- */

static void put_src(struct writing *writing, const struct box *src, const struct box *next,
		    const struct model_tensor *tensor)
{
	const struct box whole = box_whole(tensor->dims, tensor->shape);
	struct json *json = &writing->json;

	if (box_equal(src, &whole) && (!next || box_equal(next, src)))
		return;
	json_put_key_array(json, "src");
	for (uint32_t d = 0; d < src->dims; d++) {
		json_put_array(json);
		json_put_u64(json, src->lo[d]);
		json_put_u64(json, src->hi[d]);
		if (next && next->lo[d] != src->lo[d])
			json_put_u64(json, next->lo[d] - src->lo[d]);
		json_put_array_end(json);
	}
	json_put_array_end(json);
}

static void put_part(struct writing *writing, const struct rank *rank, const struct part *part,
		     const struct box *next)
{
	const struct model *model = writing->model;
	struct json *json = &writing->json;
	char transform[TRANSFORM_TEXT_BYTES];
	const struct piece *piece;
	uint64_t fill;

	json_put_object(json);
	piece = piece_of(rank, part, &fill);
	if (piece) {
		const struct model_tensor *tensor = &model->tensors[rank->tensors[piece->tensor]];

		json_put_key_string(json, "tensor", tensor->name);
		put_src(writing, &piece->src, next, tensor);
		if (!transform_plain(&piece->transform))
			json_put_key_string(
				json, "make",
				transform_text(&piece->transform,
					       tensor->dtype !=
						       rank->layout.params[piece->param].dtype,
					       transform));
		if (piece->transform.from_rows)
			json_put_key_string(json, "scales",
					    model->tensors[rank->tensors[piece->scales]].name);
	} else {
		json_put_key_u64(json, "fill", fill);
	}
	json_put_object_end(json);
}

/* The ranks of one class: a number, or a list of them. */
static void put_class(struct writing *writing, uint32_t class)
{
	struct json *json = &writing->json;
	uint32_t ranks = 0;

	for (uint32_t r = 0; r < writing->count; r++)
		ranks += writing->class_of[r] == class;
	if (ranks > 1)
		json_put_array(json);
	for (uint32_t r = 0; r < writing->count; r++)
		if (writing->class_of[r] == class)
			json_put_u64(json, r);
	if (ranks > 1)
		json_put_array_end(json);
}

static void put_entry(struct writing *writing, uint32_t param, uint32_t chain)
{
	const struct rank *rank = &writing->ranks[writing->classes[writing->chain[0]].first];
	const struct rank *second =
		chain > 1 ? &writing->ranks[writing->classes[writing->chain[1]].first] : NULL;
	const struct tensor_info *info = &rank->layout.params[param];
	struct json *json = &writing->json;

	json_put_newline(json);
	json_put_object(json);
	json_put_key_string(json, "name", info->name);
	json_put_key_string(json, "dtype", dtype_name(info->dtype));
	json_put_key_u64s(json, "shape", info->shape, info->dims);
	/* a chain of all ranks, or one class of them all: every rank */
	if (chain < writing->count && writing->class_count > 1) {
		json_put_key_array(json, "ranks");
		for (uint32_t c = 0; c < chain; c++)
			put_class(writing, writing->chain[c]);
		json_put_array_end(json);
	}
	json_put_key_array(json, "pieces");
	for (size_t i = rank->first[param]; i < rank->first[param + 1]; i++) {
		const struct part *part = &rank->parts[i], *next = NULL;

		if (second)
			next = &second->parts[second->first[param] + i - rank->first[param]];
		put_part(writing, rank, part,
			 next && !next->fill ? &second->layout.pieces[next->index].src : NULL);
	}
	json_put_array_end(json);
	json_put_object_end(json);
}

/* ---- one parameter of all ranks ---- */

static void find_classes(struct writing *writing, uint32_t param)
{
	writing->class_count = 0;
	for (uint32_t r = 0; r < writing->count; r++) {
		uint32_t c = 0;

		while (c < writing->class_count &&
		       !follows(&writing->ranks[writing->classes[c].first], NULL,
				&writing->ranks[r], param, 0))
			c++;
		if (c == writing->class_count)
			writing->classes[writing->class_count++] = (struct class){.first = r};
		writing->class_of[r] = c;
	}
}

static void put_param(struct writing *writing, uint32_t param)
{
	find_classes(writing, param);
	for (uint32_t c = 0; c < writing->class_count; c++) {
		const struct rank *first = &writing->ranks[writing->classes[c].first];
		uint32_t chain = 0;

		if (writing->classes[c].written)
			continue;
		for (uint32_t other = c; other < writing->class_count; other++) {
			const struct rank *rank = &writing->ranks[writing->classes[other].first];
			const struct rank *second = rank;

			if (chain > 1)
				second = &writing->ranks[writing->classes[writing->chain[1]].first];
			if (writing->classes[other].written ||
			    (chain && !follows(first, second, rank, param, chain)))
				continue;
			writing->classes[other].written = true;
			writing->chain[chain++] = other;
		}
		put_entry(writing, param, chain);
	}
}

/* Ranks that have other parameters than rank 0, or in another order, share no entries. */
static bool in_step(const struct writing *writing)
{
	const struct layout *first = &writing->ranks[0].layout;

	for (uint32_t r = 1; r < writing->count; r++) {
		const struct layout *layout = &writing->ranks[r].layout;

		if (layout->param_count != first->param_count)
			return false;
		for (size_t p = 0; p < first->param_count; p++)
			if (strcmp(layout->params[p].name, first->params[p].name) != 0)
				return false;
	}
	return true;
}

static void put_params(struct writing *writing)
{
	json_put_key_array(&writing->json, "params");
	if (in_step(writing))
		for (uint32_t p = 0; p < writing->ranks[0].layout.param_count; p++)
			put_param(writing, p);
	else
		for (uint32_t r = 0; r < writing->count; r++) {
			writing->classes[0] = (struct class){.first = r};
			writing->chain[0] = 0;
			writing->class_count = writing->count;
			for (uint32_t other = 0; other < writing->count; other++)
				writing->class_of[other] = other != r;
			for (uint32_t p = 0; p < writing->ranks[r].layout.param_count; p++)
				put_entry(writing, p, 1);
		}
	json_put_newline(&writing->json);
	json_put_array_end(&writing->json);
}

/* ---- the head ---- */

static void put_tensors(struct writing *writing, size_t from, size_t to)
{
	const struct model *model = writing->model;
	struct json *json = &writing->json;

	for (size_t t = from; t < to; t++) {
		const struct model_tensor *tensor = &model->tensors[t];
		int64_t layers = (int64_t)model->config.layers;

		json_put_newline(json);
		json_put_object(json);
		json_put_key_string(json, "name", tensor->name);
		json_put_key_string(json, "dtype", dtype_name(tensor->dtype));
		json_put_key_u64s(json, "shape", tensor->shape, tensor->dims);
		if (tensor->layer >= 0 && layers)
			json_put_key_u64(
				json, "layer",
				(uint64_t)(tensor->layer < layers ? tensor->layer : layers));
		if (!tensor_counts(model, tensor))
			json_put_key_bool(json, "scale", true);
		json_put_object_end(json);
	}
}

static void put_lists(struct writing *writing)
{
	const struct model *model = writing->model;
	const struct layout *layout =
		&writing->ranks[0].layout; /* each rank's beginnings are these */
	struct json *json = &writing->json;

	json_put_key_array(json, "tensors");
	put_tensors(writing, 0, model->tensor_count);
	json_put_newline(json);
	json_put_array_end(json);
	json_put_newline(json);
	if (model->all_count == model->tensor_count && !layout->beginning_count)
		return;
	json_put_key_array(json, "left_alone");
	for (size_t i = 0; i < layout->beginning_count; i++) {
		json_put_newline(json);
		json_put_string(json, layout->beginnings[i]);
	}
	put_tensors(writing, model->tensor_count, model->all_count);
	json_put_newline(json);
	json_put_array_end(json);
	json_put_newline(json);
}

static void put_file(struct writing *writing, const struct infer_spec *infer)
{
	static const char engines[] = "engines=1,";
	const struct model *model = writing->model;
	struct infer_spec one = *infer;
	char text[PARALLEL_TEXT_BYTES];
	struct json *json = &writing->json;

	one.engines = 1;
	infer_spec_text(&one, text);
	json_put_object(json);
	json_put_key_string(json, "schema", LAYOUT_FILE_SCHEMA);
	json_put_key_string(json, "model", model->name);
	/* of any number of engines */
	json_put_key_string(json, "infer",
			    strncmp(text, engines, sizeof(engines) - 1) == 0
				    ? text + sizeof(engines) - 1
				    : "tp=1");
	if (model->config.layers)
		json_put_key_u64(json, "layers", model->config.layers);
	if (model->config.tied)
		json_put_key_bool(json, "tied", true);
	json_put_newline(json);
	put_lists(writing);
	put_params(writing);
	json_put_object_end(json);
	json_put_newline(json);
}

int layout_file_write(const struct model *model, const struct infer_spec *infer, FILE *stream,
		      struct error *error)
{
	struct writing writing = {.model = model, .count = infer->tp, .error = error};
	int rc = 0;

	writing.ranks = memory_zalloc(infer->tp, sizeof(*writing.ranks));
	writing.classes = memory_zalloc(infer->tp, sizeof(*writing.classes));
	writing.class_of = memory_zalloc(infer->tp, sizeof(*writing.class_of));
	writing.chain = memory_zalloc(infer->tp, sizeof(*writing.chain));
	if (!writing.ranks || !writing.classes || !writing.class_of || !writing.chain)
		rc = memory_error(error, "writing a layout file",
				  infer->tp * sizeof(*writing.ranks));
	for (uint32_t r = 0; r < infer->tp && rc == 0; r++)
		rc = take_rank(model, infer, r, &writing.ranks[r], error);
	if (rc == 0) {
		json_to_file(&writing.json, stream);
		put_file(&writing, infer);
	}
	for (uint32_t r = 0; writing.ranks && r < infer->tp; r++) {
		layout_fini(&writing.ranks[r].layout);
		memory_free(writing.ranks[r].tensors);
		memory_free(writing.ranks[r].parts);
		memory_free(writing.ranks[r].first);
	}
	memory_free(writing.ranks);
	memory_free(writing.classes);
	memory_free(writing.class_of);
	memory_free(writing.chain);
	return rc;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * layout_file.c -- what a layout file says, as the layout of one rank.
 */
#include "model/layout_file.h"

#include "base/memory.h"
#include "model/model.h"
#include "model/ranks.h"
#include <string.h>

void layout_file_free(struct layout_file **pointer)
{
	struct layout_file *file = *pointer;

	*pointer = NULL;
	if (!file)
		return;
	array_free(&file->entries);
	array_free(&file->items);
	array_free(&file->ranks);
	array_free(&file->left_alone);
	pool_free(&file->names);
	memory_free(file);
}

bool layout_file_leaves(const struct layout_file *file, const char *name)
{
	for (size_t i = 0; i < file->left_alone.count; i++)
		if (strncmp(name, file->left_alone.items[i], strlen(file->left_alone.items[i])) ==
		    0)
			return true;
	return false;
}

int layout_file_fits(const struct model *model, const struct infer_spec *infer, struct error *error)
{
	char has[PARALLEL_TEXT_BYTES], wanted[PARALLEL_TEXT_BYTES];
	struct infer_spec one = *infer, fitting = model->file->infer;

	one.engines = 1;
	if (memcmp(&one, &fitting, sizeof(one)) == 0)
		return 0;
	fitting.engines = infer->engines;
	return error_set(error, ERROR_CONFIG,
			 "--infer %s: the layout file of %s is made for --infer %s (any number of "
			 "engines): give that, or a file made for these engines",
			 infer_spec_text(infer, wanted), model->name,
			 infer_spec_text(&fitting, has));
}

/* Where the rank stands in the entry; false: it has no such parameter. */
static bool find_place(const struct layout_file *file, const struct layout_entry *entry,
		       uint32_t rank, uint32_t *place)
{
	const struct layout_place *ranks;
	size_t low = 0, high = entry->rank_count;

	*place = rank;
	if (entry->rank_count == 0)
		return true;
	ranks = file->ranks.items + entry->rank_first;
	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (ranks[middle].rank < rank)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == entry->rank_count || ranks[low].rank != rank)
		return false;
	*place = ranks[low].place;
	return true;
}

static int64_t add_tensor(const struct model *model, uint32_t tensor, struct layout *layout,
			  struct error *error)
{
	const struct model_tensor *info = &model->tensors[tensor];

	return layout_add_tensor(layout, info->name, info->dtype, info->dims, info->shape, error);
}

/* The box that many steps further; where a number does not fit, one that no tensor has. */
static struct box box_at(const struct layout_item *item, uint32_t place)
{
	struct box box = item->src;

	for (uint32_t d = 0; d < box.dims; d++) {
		uint64_t shift;

		if (__builtin_mul_overflow((uint64_t)place, item->step[d], &shift) ||
		    __builtin_add_overflow(box.hi[d], shift, &box.hi[d]))
			box.hi[d] = UINT64_MAX;
		else
			box.lo[d] += shift;
	}
	return box;
}

static int add_piece(const struct model *model, const struct layout_item *item, uint32_t place,
		     struct layout *layout, struct piece *piece, struct error *error)
{
	const struct model_tensor *tensor = &model->tensors[item->tensor];
	int64_t at = add_tensor(model, item->tensor, layout, error), scales = 0;

	if (at >= 0 && item->transform.from_rows)
		scales = add_tensor(model, item->scales, layout, error);
	if (at < 0 || scales < 0)
		return (int)(at < 0 ? at : scales);
	piece->tensor = (uint32_t)at;
	piece->scales = (uint32_t)scales;
	piece->src = box_at(item, place);
	piece->transform = item->transform;
	/* what has no size is refused by what adds it, in its words: never for having 0 bytes */
	if (!transform_bytes(&piece->transform, &piece->src, tensor->dims, tensor->shape,
			     layout->params[piece->param].dtype, &piece->bytes))
		piece->bytes = 1;
	return layout_add_piece(layout, piece, error);
}

int layout_file_add(const struct model *model, const struct layout_entry *entry, uint32_t place,
		    struct layout *layout, struct error *error)
{
	const struct layout_file *file = model->file;
	int64_t param = layout_add_param(layout, entry->name, entry->dtype, entry->dims,
					 entry->shape, error);
	struct piece piece = {.param = (uint32_t)param};
	int rc = param < 0 ? (int)param : 0;

	for (size_t i = 0; i < entry->item_count && rc == 0; i++) {
		const struct layout_item *item = &file->items.items[entry->item_first + i];

		if (item->tensor == LAYOUT_FILL) {
			piece.bytes = item->bytes;
			rc = layout_add_fill(layout,
					     &(struct fill){piece.param, piece.offset, piece.bytes},
					     error);
		} else {
			rc = add_piece(model, item, place, layout, &piece, error);
		}
		piece.offset += piece.bytes;
	}
	return rc;
}

/* The tensors of a rank in checkpoint order, as a layout of a built-in model has them. */
static int add_tensors(const struct model *model, uint32_t rank, struct layout *layout,
		       struct error *error)
{
	const struct layout_file *file = model->file;
	bool *used = memory_zalloc(model->tensor_count + 1, sizeof(*used));
	uint32_t place;
	int rc = 0;

	if (!used)
		return memory_error(error, "laying out a model", model->tensor_count);
	array_each(entry, &file->entries) {
		const struct layout_item *item = &file->items.items[entry->item_first];

		if (!find_place(file, entry, rank, &place))
			continue;
		for (const struct layout_item *end = item + entry->item_count; item < end; item++) {
			if (item->tensor == LAYOUT_FILL)
				continue;
			used[item->tensor] = true;
			if (item->transform.from_rows)
				used[item->scales] = true;
		}
	}
	for (size_t t = 0; t < model->tensor_count && rc == 0; t++) {
		int64_t at = used[t] ? add_tensor(model, (uint32_t)t, layout, error) : 0;

		rc = at < 0 ? (int)at : 0;
	}
	memory_free(used);
	return rc;
}

int layout_file_layout(const struct model *model, const struct infer_spec *infer,
		       uint32_t engine_rank, struct layout *layout, struct error *error)
{
	const struct layout_file *file = model->file;
	uint32_t place;
	int rc = layout_file_fits(model, infer, error);

	if (rc == 0)
		rc = rank_check(infer, engine_rank, error);
	if (rc == 0)
		rc = add_tensors(model, engine_rank, layout, error);
	for (size_t i = 0; i < file->left_alone.count && rc == 0; i++)
		rc = layout_leave(layout, file->left_alone.items[i], error);
	for (size_t e = 0; e < file->entries.count && rc == 0; e++) {
		const struct layout_entry *entry = &file->entries.items[e];

		if (find_place(file, entry, engine_rank, &place))
			rc = layout_file_add(model, entry, place, layout, error);
	}
	if (rc == 0 && layout->param_count == 0)
		rc = error_set(error, ERROR_CONFIG,
			       "the layout file has no parameter for it: list the rank in the "
			       "\"ranks\" of one, or make the file for fewer ranks");
	return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "job/layout.h"

#include "base/array.h"
#include "base/compare.h"
#include <string.h>

#define BOX_TEXT_BYTES 160

void layout_init(struct layout *layout)
{
	*layout = (struct layout){0};
}

void layout_fini(struct layout *layout)
{
	memory_free(layout->tensors);
	memory_free(layout->params);
	memory_free(layout->pieces);
	memory_free(layout->fills);
	strmap_fini(&layout->tensor_names);
	strmap_fini(&layout->param_names);
	memory_free(layout->beginnings);
	pool_free(&layout->names);
	layout_init(layout);
}

/* Adds one to a list; the lists are typed members here, not ARRAY(), because the header shows them
 * to everyone. */
#define ADD(owner, items, count, capacity, value)                                     \
	add_one((void **)&(owner)->items, &(owner)->count, &(owner)->capacity, value, \
		sizeof(*(owner)->items))

static bool add_one(void **items, size_t *count, size_t *capacity, const void *value, size_t size)
{
	void *item = array_push_raw(items, count, capacity, size);

	return item && memcpy(item, value, size);
}

int64_t layout_add_tensor(struct layout *layout, const char *name, enum dtype dtype, uint32_t dims,
			  const uint64_t *shape, struct error *error)
{
	return named_add(NAMED_LIST(layout, tensor, "tensor", false), name, dtype, dims, shape, 0,
			 error);
}

int64_t layout_add_param(struct layout *layout, const char *name, enum dtype dtype, uint32_t dims,
			 const uint64_t *shape, struct error *error)
{
	return named_add(NAMED_LIST(layout, param, "parameter", true), name, dtype, dims, shape, 0,
			 error);
}

static int check_range(const struct layout *layout, uint32_t param, uint64_t offset, uint64_t bytes,
		       const char *what, struct error *error)
{
	const struct tensor_info *info;

	if (param >= layout->param_count)
		return error_set(error, ERROR_CONFIG, "%s names parameter %u of %zu", what, param,
				 layout->param_count);
	info = &layout->params[param];
	if (bytes == 0 || offset > info->bytes || bytes > info->bytes - offset)
		return error_set(error, ERROR_BOUNDS,
				 "%s covers bytes %llu + %llu of parameter %s, which has %llu",
				 what, (unsigned long long)offset, (unsigned long long)bytes,
				 info->name, (unsigned long long)info->bytes);
	return 0;
}

/* One F32 number for each block of the tensor. */
static int check_scales(const struct layout *layout, const struct piece *piece, struct error *error)
{
	const struct tensor_info *tensor = &layout->tensors[piece->tensor], *scales;
	const struct transform *transform = &piece->transform;
	char a[BOX_TEXT_BYTES], b[BOX_TEXT_BYTES];
	uint64_t need[2];

	if (!transform->from_rows)
		return piece->scales == 0
			       ? 0
			       : error_set(error, ERROR_CONFIG,
					   "a piece of tensor %s is not in blocks but names tensor "
					   "%u as its scales",
					   tensor->name, piece->scales);
	if (piece->scales >= layout->tensor_count)
		return error_set(error, ERROR_CONFIG,
				 "a piece of tensor %s names tensor %u of %zu as its scales",
				 tensor->name, piece->scales, layout->tensor_count);
	scales = &layout->tensors[piece->scales];
	need[0] = (tensor->shape[0] + transform->from_rows - 1) / transform->from_rows;
	need[1] = (tensor->shape[1] + transform->from_columns - 1) / transform->from_columns;
	if (scales->dtype == DTYPE_F32 && scales->dims == 2 && scales->shape[0] == need[0] &&
	    scales->shape[1] == need[1])
		return 0;
	shape_text(scales->dims, scales->shape, a, sizeof(a));
	shape_text(2, need, b, sizeof(b));
	return error_set(error, ERROR_CONFIG,
			 "tensor %s is %s %s, but as the scales of tensor %s in blocks of %ux%u it "
			 "must be F32 %s",
			 scales->name, dtype_name(scales->dtype), a, tensor->name,
			 transform->from_rows, transform->from_columns, b);
}

/* Can the box become these bytes of the parameter? */
static int check_transform(const struct layout *layout, const struct piece *piece,
			   struct error *error)
{
	const struct tensor_info *tensor = &layout->tensors[piece->tensor];
	const struct tensor_info *param = &layout->params[piece->param];
	const struct transform *transform = &piece->transform;
	char text[BOX_TEXT_BYTES], shape[BOX_TEXT_BYTES], transformed[TRANSFORM_TEXT_BYTES];
	uint64_t bytes;

	if (!transform_bytes(transform, &piece->src, tensor->dims, tensor->shape, param->dtype,
			     &bytes)) {
		shape_text(tensor->dims, tensor->shape, shape, sizeof(shape));
		return error_set(
			error, ERROR_UNSUPPORTED,
			"a piece takes %s of tensor %s %s for parameter %s (%s, blocks of %ux%u "
			"to %ux%u): blocks need a matrix, and the box must begin at a block's "
			"border and end at one or at the tensor's end; padding needs three "
			"dimensions",
			box_text(&piece->src, text, sizeof(text)), tensor->name, shape, param->name,
			transform_text(transform, tensor->dtype != param->dtype, transformed),
			transform->from_rows, transform->from_columns, transform->to_rows,
			transform->to_columns);
	}
	if (!transform_possible(transform, tensor->dtype, param->dtype))
		return error_set(
			error, ERROR_UNSUPPORTED,
			"tensor %s is %s but parameter %s is %s, and weft cannot %s the one for "
			"the other: declare both alike; F32, BF16 and F16 are converted, "
			"F8_E4M3 needs the blocks of its scales",
			tensor->name, dtype_name(tensor->dtype), param->name,
			dtype_name(param->dtype),
			transform_text(transform, tensor->dtype != param->dtype, transformed));
	if (bytes != piece->bytes)
		return error_set(
			error, ERROR_CONFIG,
			"a piece of tensor %s takes %llu bytes but fills %llu of parameter %s",
			tensor->name, (unsigned long long)bytes, (unsigned long long)piece->bytes,
			param->name);
	return check_scales(layout, piece, error);
}

int layout_add_piece(struct layout *layout, const struct piece *piece, struct error *error)
{
	const struct tensor_info *tensor;
	char text[BOX_TEXT_BYTES], shape[BOX_TEXT_BYTES];
	struct runs runs;
	int rc;

	if (piece->tensor >= layout->tensor_count)
		return error_set(error, ERROR_CONFIG, "a piece names tensor %u of %zu",
				 piece->tensor, layout->tensor_count);
	tensor = &layout->tensors[piece->tensor];
	if (piece->src.dims > BOX_DIMS_MAX ||
	    !box_in_shape(&piece->src, tensor->dims, tensor->shape)) {
		struct box cut = piece->src;

		if (cut.dims > BOX_DIMS_MAX)
			cut.dims = BOX_DIMS_MAX;
		shape_text(tensor->dims, tensor->shape, shape, sizeof(shape));
		return error_set(error, ERROR_BOUNDS, "a piece takes %s of tensor %s, which is %s",
				 box_text(&cut, text, sizeof(text)), tensor->name, shape);
	}
	if (!box_runs(&piece->src, tensor->shape, dtype_bytes(tensor->dtype), &runs))
		return error_set(error, ERROR_UNSUPPORTED,
				 "a piece takes %s of tensor %s: more than one stride",
				 box_text(&piece->src, text, sizeof(text)), tensor->name);
	rc = check_range(layout, piece->param, piece->offset, piece->bytes, "a piece", error);
	if (rc)
		return rc;
	rc = check_transform(layout, piece, error);
	if (!rc && !ADD(layout, pieces, piece_count, piece_capacity, piece))
		rc = memory_error(error, "adding a piece", sizeof(*piece));
	return rc;
}

int layout_add_fill(struct layout *layout, const struct fill *fill, struct error *error)
{
	int rc = check_range(layout, fill->param, fill->offset, fill->bytes, "a fill", error);

	if (!rc && !ADD(layout, fills, fill_count, fill_capacity, fill))
		rc = memory_error(error, "adding a fill", sizeof(*fill));
	return rc;
}

static int compare_fills(const void *left, const void *right)
{
	const struct fill *a = left, *b = right;

	return compare_u64(a->param, b->param) ?: compare_u64(a->offset, b->offset);
}

/* Walks the sorted ranges of all parameters once; `at` is the first byte not yet covered. */
static int check_coverage(const struct layout *layout, const struct fill *ranges, size_t count,
			  struct error *error)
{
	size_t i = 0;

	for (uint32_t p = 0; p < layout->param_count; p++) {
		const struct tensor_info *param = &layout->params[p];
		uint64_t at = 0;

		for (; i < count && ranges[i].param == p && ranges[i].offset <= at; i++) {
			if (ranges[i].offset < at)
				return error_set(error, ERROR_CONFLICT,
						 "byte %llu of parameter %s has two sources",
						 (unsigned long long)ranges[i].offset, param->name);
			at += ranges[i].bytes;
		}
		if (at != param->bytes)
			return error_set(
				error, ERROR_UNSOURCED,
				"byte %llu of parameter %s (%llu bytes) has no source: declare "
				"a piece or a fill for it",
				(unsigned long long)at, param->name,
				(unsigned long long)param->bytes);
	}
	return 0;
}

int layout_leave(struct layout *layout, const char *beginning, struct error *error)
{
	const char *copy = pool_string(&layout->names, beginning);

	if (copy && ADD(layout, beginnings, beginning_count, beginning_capacity, &copy))
		return 0;
	return memory_error(error, "laying out a model", strlen(beginning) + 1);
}

bool layout_leaves(const struct layout *layout, const char *param)
{
	for (size_t i = 0; i < layout->beginning_count; i++)
		if (strncmp(param, layout->beginnings[i], strlen(layout->beginnings[i])) == 0)
			return true;
	return false;
}

int layout_finish(struct layout *layout, struct error *error)
{
	size_t count = layout->piece_count + layout->fill_count, n = 0;
	struct fill *ranges; /* of pieces too */
	int rc;

	sort_items(layout->pieces, layout->piece_count, piece_compare);
	sort_items(layout->fills, layout->fill_count, compare_fills);
	ranges = memory_zalloc(count, sizeof(*ranges));
	if (!ranges)
		return memory_error(error, "checking a layout", count * sizeof(*ranges));
	for (size_t i = 0; i < layout->piece_count; i++)
		ranges[n++] = (struct fill){layout->pieces[i].param, layout->pieces[i].offset,
					    layout->pieces[i].bytes};
	for (size_t i = 0; i < layout->fill_count; i++)
		ranges[n++] = layout->fills[i];
	sort_items(ranges, n, compare_fills);
	rc = check_coverage(layout, ranges, n, error);
	memory_free(ranges);
	return rc;
}

#define digest_numbers(stream, ...)                          \
	add_numbers(stream, (const uint64_t[]){__VA_ARGS__}, \
		    sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))

static void add_numbers(struct digest_stream *stream, const uint64_t *numbers, size_t count)
{
	for (size_t i = 0; i < count; i++)
		digest_add_u64(stream, numbers[i]);
}

static void digest_box(struct digest_stream *stream, const struct box *box)
{
	for (uint32_t d = 0; d < box->dims; d++)
		digest_numbers(stream, box->lo[d], box->hi[d]);
}

/* Nothing for a copy, or a conversion: that the dtypes say. The mark is no index and no count. */
static void digest_make(struct digest_stream *stream, const struct piece *piece)
{
	if (transform_plain(&piece->transform))
		return;
	digest_numbers(stream, UINT64_MAX, (uint64_t)piece->transform.part,
		       piece->transform.from_rows, piece->transform.from_columns,
		       piece->transform.to_rows, piece->transform.to_columns, piece->scales);
}

struct digest layout_digest(const struct layout *layout)
{
	struct digest_stream stream;

	digest_begin(&stream);
	digest_add_string(&stream, "layout/1");
	digest_add_u64(&stream, layout->tensor_count);
	for (size_t i = 0; i < layout->tensor_count; i++)
		tensor_info_digest(&stream, &layout->tensors[i]);
	digest_add_u64(&stream, layout->param_count);
	for (size_t i = 0; i < layout->param_count; i++)
		tensor_info_digest(&stream, &layout->params[i]);
	digest_add_u64(&stream, layout->piece_count);
	for (size_t i = 0; i < layout->piece_count; i++) {
		digest_numbers(&stream, layout->pieces[i].tensor, layout->pieces[i].param);
		digest_box(&stream, &layout->pieces[i].src);
		digest_numbers(&stream, layout->pieces[i].offset, layout->pieces[i].bytes);
		digest_make(&stream, &layout->pieces[i]);
	}
	digest_add_u64(&stream, layout->fill_count);
	for (size_t i = 0; i < layout->fill_count; i++)
		digest_numbers(&stream, layout->fills[i].param, layout->fills[i].offset,
			       layout->fills[i].bytes);
	return digest_end(&stream);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "job/box.h"

#include "base/compare.h"

#include <stdio.h>

struct box box_whole(uint32_t dims, const uint64_t *shape)
{
	struct box box = {.dims = dims};

	for (uint32_t d = 0; d < dims; d++)
		box.hi[d] = shape[d];
	return box;
}

uint64_t box_elements(const struct box *box)
{
	uint64_t n = 1;

	for (uint32_t d = 0; d < box->dims; d++)
		n *= box->hi[d] - box->lo[d];
	return n;
}

bool box_equal(const struct box *a, const struct box *b)
{
	return box_compare(a, b) == 0;
}

int box_compare(const struct box *a, const struct box *b)
{
	int order = compare_u64(a->dims, b->dims);

	for (uint32_t d = 0; d < a->dims && !order; d++)
		order = compare_u64(a->lo[d], b->lo[d]) ?: compare_u64(a->hi[d], b->hi[d]);
	return order;
}

bool box_in_shape(const struct box *box, uint32_t dims, const uint64_t *shape)
{
	if (box->dims != dims || dims == 0 || dims > BOX_DIMS_MAX)
		return false;
	for (uint32_t d = 0; d < dims; d++)
		if (box->lo[d] >= box->hi[d] || box->hi[d] > shape[d])
			return false;
	return true;
}

bool box_cut_rows(const struct box *box, uint64_t lo, uint64_t hi, struct box *out)
{
	*out = *box;
	if (lo > out->lo[0])
		out->lo[0] = lo;
	if (hi < out->hi[0])
		out->hi[0] = hi;
	return out->lo[0] < out->hi[0];
}

bool box_runs(const struct box *box, const uint64_t *shape, uint32_t element_bytes,
	      struct runs *out)
{
	uint64_t inner[BOX_DIMS_MAX] = {0}; /* bytes of one step in each dimension */
	uint64_t step = element_bytes;
	uint64_t offset = 0;
	uint32_t cut = 0; /* innermost dimension that is not whole */

	for (uint32_t d = box->dims; d-- > 0;) {
		inner[d] = step;
		offset += box->lo[d] * step;
		step *= shape[d];
	}
	for (uint32_t d = 0; d < box->dims; d++)
		if (box->lo[d] != 0 || box->hi[d] != shape[d])
			cut = d;
	/* everything inside `cut` is whole, so [cut ..] is one run of bytes */
	uint64_t row_bytes = (box->hi[cut] - box->lo[cut]) * inner[cut];
	uint64_t rows = 1, stride = row_bytes;
	bool strided = false;

	for (uint32_t d = cut; d-- > 0;) {
		uint64_t size = box->hi[d] - box->lo[d];

		if (size == 1)
			continue;
		if (!strided) {
			stride = inner[d];
			strided = true;
		} else if (stride * rows != inner[d]) {
			return false; /* a second stride */
		}
		rows *= size;
	}
	*out = (struct runs){offset, rows, row_bytes, stride};
	return true;
}

bool box_contiguous(const struct box *box, const uint64_t *shape)
{
	struct runs runs;

	return box_runs(box, shape, 1, &runs) && runs.rows == 1;
}

bool box_intersect(const struct box *a, const struct box *b, struct box *out)
{
	out->dims = a->dims;
	for (uint32_t d = 0; d < a->dims; d++) {
		out->lo[d] = a->lo[d] > b->lo[d] ? a->lo[d] : b->lo[d];
		out->hi[d] = a->hi[d] < b->hi[d] ? a->hi[d] : b->hi[d];
		if (out->lo[d] >= out->hi[d])
			return false;
	}
	return true;
}

bool box_within(const struct box *inner, const struct box *outer)
{
	for (uint32_t d = 0; d < inner->dims; d++)
		if (inner->lo[d] < outer->lo[d] || inner->hi[d] > outer->hi[d])
			return false;
	return inner->dims == outer->dims;
}

bool box_same_columns(const struct box *a, const struct box *b)
{
	for (uint32_t d = 1; d < a->dims; d++)
		if (a->lo[d] != b->lo[d] || a->hi[d] != b->hi[d])
			return false;
	return true;
}

bool box_whole_rows(const struct box *box, const uint64_t *shape)
{
	for (uint32_t d = 1; d < box->dims; d++)
		if (box->hi[d] - box->lo[d] != shape[d])
			return false;
	return true;
}

struct placement placement_dense(const struct box *box)
{
	struct placement place = {0};
	uint64_t step = 1;

	for (uint32_t d = box->dims; d-- > 0;) {
		place.stride[d] = step;
		step *= box->hi[d] - box->lo[d];
	}
	return place;
}

bool placement_last(const struct placement *place, const struct box *box, uint64_t *last)
{
	uint64_t at = place->offset, part;

	for (uint32_t d = 0; d < box->dims; d++)
		if (__builtin_mul_overflow(box->hi[d] - box->lo[d] - 1, place->stride[d], &part) ||
		    __builtin_add_overflow(at, part, &at) || at >> 62)
			return false;
	*last = at;
	return true;
}

bool placement_runs(const struct placement *place, const struct box *box, const struct box *src,
		    uint32_t element_bytes, struct runs *out)
{
	uint64_t offset = place->offset, run = 1, rows = 1, stride = 0;

	for (uint32_t d = box->dims; d-- > 0;) {
		uint64_t size = src->hi[d] - src->lo[d];

		offset += (src->lo[d] - box->lo[d]) * place->stride[d];
		if (size == 1)
			continue;
		if (!stride && place->stride[d] == run) {
			run *= size;
		} else if (!stride || place->stride[d] == stride * rows) {
			stride = stride ? stride : place->stride[d];
			rows *= size;
		} else {
			return false; /* a second stride */
		}
	}
	*out = (struct runs){offset * element_bytes, rows, run * element_bytes,
			     (stride ? stride : run) * element_bytes};
	return true;
}

void placement_each(const struct placement *place, const struct box *box, const uint64_t *shape,
		    placement_run *run, void *context)
{
	uint32_t inner = box->dims - 1; /* the outermost dimension of a run */
	uint64_t elements = box->hi[inner] - box->lo[inner], stride = place->stride[inner];
	uint64_t index[BOX_DIMS_MAX] = {0};

	/* whole slices that lie behind each other in memory as they do in the tensor */
	while (inner > 0 && elements * stride == place->stride[inner - 1] &&
	       box->hi[inner] - box->lo[inner] == shape[inner]) {
		inner--;
		elements *= box->hi[inner] - box->lo[inner];
	}
	for (;;) {
		uint64_t at = 0, to = place->offset;
		uint32_t d = inner;

		for (uint32_t i = 0; i < box->dims; i++) {
			at = at * shape[i] + box->lo[i] + index[i];
			to += index[i] * place->stride[i];
		}
		run(context, at, to, elements, stride);
		while (d > 0 && ++index[d - 1] == box->hi[d - 1] - box->lo[d - 1])
			index[--d] = 0;
		if (d == 0)
			return;
	}
}

bool shape_bytes(uint32_t dims, const uint64_t *shape, uint32_t element_bytes, uint64_t *bytes)
{
	uint64_t n = element_bytes;

	if (dims == 0 || dims > BOX_DIMS_MAX || element_bytes == 0)
		return false;
	for (uint32_t d = 0; d < dims; d++)
		if (shape[d] == 0 || __builtin_mul_overflow(n, shape[d], &n) || n >> 62)
			return false;
	*bytes = n;
	return true;
}

char *shape_text(uint32_t dims, const uint64_t *shape, char *out, uint32_t out_bytes)
{
	uint32_t n = 0;

	for (uint32_t d = 0; d < dims && n < out_bytes; d++)
		n += (uint32_t)snprintf(out + n, out_bytes - n, "%s%llu", d ? ", " : "[",
					(unsigned long long)shape[d]);
	if (n < out_bytes)
		snprintf(out + n, out_bytes - n, "]");
	return out;
}

char *box_text(const struct box *box, char *out, uint32_t out_bytes)
{
	uint32_t n = 0;

	for (uint32_t d = 0; d < box->dims && n < out_bytes; d++)
		n += (uint32_t)snprintf(out + n, out_bytes - n, "%s%llu..%llu", d ? ", " : "[",
					(unsigned long long)box->lo[d],
					(unsigned long long)box->hi[d]);
	if (n < out_bytes)
		snprintf(out + n, out_bytes - n, "]");
	return out;
}

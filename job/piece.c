/* SPDX-License-Identifier: Apache-2.0 */
#include "job/layout.h"

#include "base/compare.h"

/* Rows of the parameter that `rows` of the tensor become; no division where it is as many. */
static uint64_t transformed_rows(const struct transform *transform, uint64_t rows)
{
	if (transform->part != TRANSFORM_SCALES)
		return rows;
	return (rows + transform->to_rows - 1) / transform->to_rows;
}

/* A piece is one run of bytes in the target with its rows one after the other, so a cut of rows
 * is a cut of that run. Only the last row of scales may be of fewer rows than the others. */
bool piece_cut_rows(const struct piece *piece, uint64_t lo, uint64_t hi, struct piece *out)
{
	const uint64_t first = piece->src.lo[0], end = piece->src.hi[0];
	uint64_t row_bytes;

	lo = lo > first ? lo : first;
	hi = hi < end ? hi : end;
	if (lo >= hi)
		return false; /* *out may not be there: pieces are counted exactly */
	*out = *piece;
	if (lo == first && hi == end)
		return true; /* most pieces are not cut */
	row_bytes = piece->bytes / transformed_rows(&piece->transform, end - first);
	out->src.lo[0] = lo;
	out->src.hi[0] = hi;
	out->offset += transformed_rows(&piece->transform, lo - first) * row_bytes;
	out->bytes = transformed_rows(&piece->transform, hi - lo) * row_bytes;
	return true;
}

/* The box in what its parameter is made of: elements, or, of scales, blocks. False: it ends inside of a block. */
static bool in_units(const struct transform *transform, const struct box *piece, struct box *box)
{
	const uint32_t block[2] = {transform->to_rows, transform->to_columns};

	if (!transform->to_rows)
		return true;
	if (box->lo[1] % block[1] || (box->hi[1] % block[1] && box->hi[1] != piece->hi[1]))
		return false;
	for (int d = 0; d < 2 && transform->part == TRANSFORM_SCALES; d++) {
		box->lo[d] /= block[d];
		box->hi[d] = (box->hi[d] + block[d] - 1) / block[d];
	}
	return true;
}

bool transform_cuts_columns(const struct transform *transform)
{
	return !transform->from_rows && transform->part != TRANSFORM_PADDED;
}

/* Columns of what is transposed are rows of the parameter, which lie behind each other; a cut of its rows is none of these. */
static bool cut_transposed(const struct piece *piece, const struct box *part, struct piece *out)
{
	uint32_t column = piece->src.dims - 1;
	uint64_t column_bytes = piece->bytes / (piece->src.hi[column] - piece->src.lo[column]);

	for (uint32_t d = 0; d < column; d++)
		if (part->lo[d] != piece->src.lo[d] || part->hi[d] != piece->src.hi[d])
			return false;
	*out = *piece;
	out->src = *part;
	out->offset += (part->lo[column] - piece->src.lo[column]) * column_bytes;
	out->bytes = (part->hi[column] - part->lo[column]) * column_bytes;
	return true;
}

bool piece_cut_columns(const struct piece *piece, const struct box *box, struct piece *out,
		       bool *refused)
{
	struct box columns = *box, part, whole = piece->src;
	struct placement place;
	struct runs runs;

	*refused = false;
	columns.lo[0] = piece->src.lo[0];
	columns.hi[0] = piece->src.hi[0];
	if (!box_intersect(&piece->src, &columns, &part))
		return false;
	if (box_equal(&part, &piece->src)) {
		*out = *piece;
		return true;
	}
	if (piece->transform.part == TRANSFORM_TRANSPOSED) {
		*refused = !cut_transposed(piece, &part, out);
		return true;
	}
	columns = part;
	*refused = !transform_cuts_columns(&piece->transform) ||
		   !in_units(&piece->transform, &piece->src, &whole) ||
		   !in_units(&piece->transform, &piece->src, &part);
	if (*refused)
		return true;
	place = placement_dense(&whole);
	*refused = !placement_runs(&place, &whole, &part, 1, &runs);
	if (!*refused) {
		uint64_t unit_bytes = piece->bytes / box_elements(&whole);

		*out = *piece;
		out->src = columns;
		out->offset += runs.offset * unit_bytes;
		out->bytes = runs.rows * runs.row_bytes * unit_bytes;
		if (runs.rows > 1)
			out->spread = (struct spread){runs.row_bytes * unit_bytes,
						      runs.stride_bytes * unit_bytes};
	}
	return true;
}

static int compare_transform(const struct piece *a, const struct piece *b)
{
	const uint32_t x[] = {(uint32_t)a->transform.part, a->transform.from_rows,
			      a->transform.from_columns,   a->transform.to_rows,
			      a->transform.to_columns,	   a->scales};
	const uint32_t y[] = {(uint32_t)b->transform.part, b->transform.from_rows,
			      b->transform.from_columns,   b->transform.to_rows,
			      b->transform.to_columns,	   b->scales};

	int order = 0;

	for (size_t i = 0; i < sizeof(x) / sizeof(x[0]) && !order; i++)
		order = compare_u64(x[i], y[i]);
	return order;
}

int piece_compare(const void *left, const void *right)
{
	const struct piece *a = left, *b = right;

	return compare_u64(a->tensor, b->tensor) ?: box_compare(&a->src, &b->src) ?:
	       compare_u64(a->param, b->param) ?: compare_u64(a->offset, b->offset) ?:
	       compare_transform(a, b);
}

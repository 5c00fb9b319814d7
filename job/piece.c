/* SPDX-License-Identifier: Apache-2.0 */
#include "job/layout.h"

/* Rows of the parameter that `rows` of the tensor become; no division where it is as many. */
static uint64_t made_rows(const struct make *make, uint64_t rows)
{
	if (make->part != MAKE_SCALES)
		return rows;
	return (rows + make->to_rows - 1) / make->to_rows;
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
	row_bytes = piece->bytes / made_rows(&piece->make, end - first);
	out->src.lo[0] = lo;
	out->src.hi[0] = hi;
	out->offset += made_rows(&piece->make, lo - first) * row_bytes;
	out->bytes = made_rows(&piece->make, hi - lo) * row_bytes;
	return true;
}

int piece_compare_make(const struct piece *a, const struct piece *b)
{
	const uint32_t x[] = {(uint32_t)a->make.part, a->make.from_rows,  a->make.from_columns,
			      a->make.to_rows,	      a->make.to_columns, a->scales};
	const uint32_t y[] = {(uint32_t)b->make.part, b->make.from_rows,  b->make.from_columns,
			      b->make.to_rows,	      b->make.to_columns, b->scales};

	for (size_t i = 0; i < sizeof(x) / sizeof(x[0]); i++)
		if (x[i] != y[i])
			return x[i] < y[i] ? -1 : 1;
	return 0;
}

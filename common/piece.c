/* SPDX-License-Identifier: Apache-2.0 */
#include "common/layout.h"

/* Rows of the tensor that become one row of the parameter. */
static uint64_t rows_each(const struct make *make)
{
	return make->part == MAKE_SCALES ? make->to_rows : 1;
}

/* A piece is one run of bytes in the target with its rows one after the other, so a cut of rows
 * is a cut of that run. Only the last row of scales may be of fewer rows than the others. */
bool piece_cut_rows(const struct piece *piece, uint64_t lo, uint64_t hi, struct piece *out)
{
	const uint64_t each = rows_each(&piece->make);
	struct box src;

	if (!box_cut_rows(&piece->src, lo, hi, &src))
		return false; /* *out may not be there: pieces are counted exactly */
	uint64_t rows = (piece->src.hi[0] - piece->src.lo[0] + each - 1) / each;
	uint64_t row_bytes = piece->bytes / rows;
	uint64_t skipped = (src.lo[0] - piece->src.lo[0]) / each;
	uint64_t taken = (src.hi[0] - src.lo[0] + each - 1) / each;

	*out = *piece;
	out->src = src;
	out->offset = piece->offset + skipped * row_bytes;
	out->bytes = taken * row_bytes;
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

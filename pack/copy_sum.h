/* SPDX-License-Identifier: Apache-2.0
 *
 * copy_sum.h -- copies like those of copy.h that also sum what passes by, line by line, and that
 * read several columns of one matrix together. The sum is checksum64() of digest.h (XXH3-64, as
 * doc/xxhash_spec.md of the xxHash repository has it), added up in registers between the load and
 * the store, so that it costs no second look at the bytes.
 */
#ifndef PACK_COPY_SUM_H
#define PACK_COPY_SUM_H

#include <stddef.h>
#include <stdint.h>

#define COPY_LINE_BYTES	   64u
#define COPY_SUM_BYTES_MIN 241u /* shorter ones are another function: checksum64() */

/* Of `bytes` bytes that come in order, as whole lines but the last time. */
struct copy_sum {
	_Alignas(COPY_LINE_BYTES) uint64_t sums[8];
	uint64_t bytes;
	uint64_t lines;	 /* still to be added: all but the last, which copy_sum_end() adds */
	uint32_t line;	 /* of its block of 16 */
};
void copy_sum_begin(struct copy_sum *sum, uint64_t bytes); /* >= COPY_SUM_BYTES_MIN */
/* `last`: the last COPY_LINE_BYTES of all bytes. */
uint64_t copy_sum_end(struct copy_sum *sum, const void *last);

/* Copies with non-temporal stores at every size (visible as copy.h says); `target` may be NULL
 * (only the sum), and so may `sum`. */
void copy_sum_bytes(struct copy_sum *sum, void *target, const void *source, size_t bytes);

/* One column of the matrix. */
struct copy_column {
	const unsigned char *source; /* its first row */
	void *const *targets;	     /* each at the start of a line; may be none */
	size_t target_count;
	struct copy_sum *sum;	     /* or NULL */
};
/* What is taken of every column: rows of row_lines lines from `source` on, dense from `target` on.
 * Not of it: the last line of what is summed, which goes to copy_sum_end(). */
struct copy_grid {
	uint64_t source, target; /* bytes after the column's own; target: a multiple of a line */
	uint64_t rows, row_lines, stride_bytes;
};
/* Row by row, and within a row column by column: give the columns in the order in which they
 * lie. */
void copy_columns(const struct copy_column *columns, size_t count, const struct copy_grid *grid);

#endif

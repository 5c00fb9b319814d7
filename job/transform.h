/* SPDX-License-Identifier: Apache-2.0
 *
 * transform.h -- how a piece's bytes are transformed from its source box. All zero: the elements as
 * they are or, where the parameter has another dtype, each one converted (rounded to nearest even).
 *
 *   blocks of 2 x 3      scales [2, 2]      a value is element times the scale of its block
 *     # # # | # #           s00 s01
 *     # # # | # #
 *     ------+----           s10 s11         the last block of a row or column may be short
 *     # # # | # #
 *
 * from: the source is F8_E4M3 in blocks, with one F32 a block in a tensor of its own.
 * to:   the parameter is: TRANSFORM_VALUES are its F8_E4M3 elements, TRANSFORM_SCALES its F32
 * scales. With x the source values as F32, for each block of `to`:
 *
 *   amax  = largest |x| of the finite ones, at least 1e-10
 *   scale = amax / 448
 *   q     = F8_E4M3(min(max(x * (1 / scale), -448), 448)), nearest even; NaN stays NaN (0x7f with
 *           x's sign), infinities become 448 with their sign
 *
 * every operation rounded once to F32. Source: the block cast of DeepGEMM and of the trainers that
 * export DeepSeek-V3's format (e4m3 without infinities: OCP 8-bit floating point specification).
 */
#ifndef JOB_TRANSFORM_H
#define JOB_TRANSFORM_H

#include "job/box.h"
#include "job/dtype.h"
#include <stdbool.h>
#include <stdint.h>

#define TRANSFORM_FP8_MAX  448.0f
#define TRANSFORM_AMAX_MIN 1e-10f
#define TRANSFORM_BLOCK_MAX 65536u /* rows or columns of a block */

/* TRANSFORM_TRANSPOSED: column by column of the box, each a row of the parameter; no blocks. Its rows
 * cannot be cut: one row of the tensor is in every row of the parameter. A box of three dimensions is one
 * matrix, which has index lo[0]. */
/* TRANSFORM_PADDED: elements as they are. A row, which is all dimensions of the box but its first two, is
 * to_columns elements in the parameter; behind the tensor's own are zeroes. No blocks. */
enum transform_part {
	TRANSFORM_VALUES,
	TRANSFORM_SCALES,
	TRANSFORM_TRANSPOSED,
	TRANSFORM_PADDED,
	TRANSFORM_PART_COUNT
};

struct transform {
	enum transform_part part;
	uint32_t from_rows, from_columns; /* 0, 0: the source is not in blocks */
	uint32_t to_rows, to_columns;     /* 0, 0: the parameter is not */
};

/* The numbers fit each other: no block of 0 rows and some columns, scales only of blocks, and nothing
 * transposed or padded in them. */
bool transform_valid(const struct transform *transform);
/* Nothing but the elements, perhaps in another dtype. */
bool transform_plain(const struct transform *transform);
bool transform_equal(const struct transform *a, const struct transform *b);
/* Rows of the tensor after which a piece may be cut: 1, or the rows of a block of `to`, or
 * TRANSFORM_UNCUT, which no tensor of a model has. */
#define TRANSFORM_UNCUT UINT32_MAX
uint32_t transform_grain_rows(const struct transform *transform);
/* Elements of a row of what is padded, without its padding. */
uint64_t transform_row_elements(const struct box *src);
/* Bytes that the box becomes in a parameter of dtype `to`; false when it has none (a box that is
 * no matrix in blocks, or that starts inside of a block of `to`, or does not fit 2^62). `shape` is
 * the tensor's: a box may end inside of a block only where the tensor ends. */
bool transform_bytes(const struct transform *transform, const struct box *src, uint32_t dims,
		     const uint64_t *shape, enum dtype to, uint64_t *bytes);
/* The scales' box that the box of values needs. */
struct box transform_scales_box(const struct transform *transform, const struct box *src);
/* Is it possible at all? Converted are F32, BF16 and F16 into each other, and F8_E4M3 with its
 * scales into them; equal dtypes of any kind are copied. */
bool transform_possible(const struct transform *transform, enum dtype from, enum dtype to);
/* "copy", "convert", "quantise 128x128", "scales 128x128", "dequantise 128x128",
 * "requantise 128x128 64x64", "rescale 128x128 64x64", "transpose", "pad 736" into out; returns out. `convert`
 * says that the dtypes differ. */
#define TRANSFORM_TEXT_BYTES 64
char *transform_text(const struct transform *transform, bool convert,
		     char out[TRANSFORM_TEXT_BYTES]);
/* The reverse; false when the text is no such thing. *convert may be NULL. */
bool transform_parse(const char *text, struct transform *transform, bool *convert);

#endif

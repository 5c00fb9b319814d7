/* SPDX-License-Identifier: Apache-2.0
 *
 * quantise.h -- numbers into F8_E4M3 with one F32 scale a block, as job/transform.h defines it.
 *
 *   block_columns    |  128  |  128  | 70 |
 *   one band         # # # # # # # # # # #   rows <= the rows of a block
 *   scales           |  s0   |  s1   | s2 |
 */
#ifndef PACK_QUANTISE_H
#define PACK_QUANTISE_H

#include "job/dtype.h"
#include <stdbool.h>
#include <stdint.h>

/* `rows` x `columns` values of dtype `from` (F32, BF16 or F16), rows stride_bytes apart; any
 * alignment, no overlap. `scales` gets one a block: ceil(columns / block_columns). `values` gets
 * rows * columns dense bytes; NULL for the scales alone. [any thread] */
void quantise_band(unsigned char *values, float *scales, const void *source, enum dtype from,
		   uint64_t rows, uint64_t columns, uint64_t stride_bytes,
		   uint64_t block_columns);

/* The same, knowing more: `next` is the band of the same shape that is to be quantised after this
 * one, or NULL; its memory is asked for meanwhile. `stream`: the values are not read back soon, so
 * they pass the caches where they can; visible to others after copy_fence(). [any thread] */
void quantise_band_on(unsigned char *values, float *scales, const void *source, enum dtype from,
		      uint64_t rows, uint64_t columns, uint64_t stride_bytes,
		      uint64_t block_columns, const void *next, bool stream);

/* The values alone, with the scales that the whole blocks have: `rows` x `columns` is a part of a
 * band that starts on the border of a block, or lies inside of one. [any thread] */
void quantise_scaled(unsigned char *values, const float *scales, const void *source,
		     enum dtype from, uint64_t rows, uint64_t columns, uint64_t stride_bytes,
		     uint64_t block_columns);

/* For tests and benchmarks: the kernel of that name from now on, or the best one (NULL); false
 * when this processor has it not. Call it while nothing is quantised. */
bool quantise_use(const char *kernel);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * convert.h -- a row of elements in another dtype. What one number becomes is in element.h; the
 * kernels (AVX-512, AVX2, portable) give the same bits for every input, under any rounding mode,
 * flush-to-zero or trap that the calling thread has set.
 */
#ifndef PACK_CONVERT_H
#define PACK_CONVERT_H

#include "job/dtype.h"
#include <stdint.h>

/* `count` elements; any alignment, no overlap. `scale` is used from F8_E4M3 only: F32(element) *
 * scale, rounded once to F32, and once more to a smaller target. [any thread] */
typedef void (*convert_row)(void *target, const void *source, uint64_t count, float scale);

/* NULL when there is no such conversion, or this processor has not the kernel. `kernel` is
 * "avx512", "avx2", "portable" or NULL, the best one. Equal dtypes of any kind are copied: their
 * NaN keep every bit. */
convert_row convert_find(enum dtype from, enum dtype to, const char *kernel);

/* The same past the caches, for elements that are not read back soon: the target begins a line of
 * 64 bytes; visible to others after copy_fence(). NULL too where there is none. */
convert_row convert_find_streamed(enum dtype from, enum dtype to, const char *kernel);

/* As convert_row, of F8_E4M3 whose scales lie beside each other, one for `width` elements: element i has
 * scale (skip + i) / width, skip < width. `scales` are F32 of any alignment. [any thread] */
typedef void (*convert_scaled)(void *target, const void *source, uint64_t count,
			       const void *scales, uint64_t skip, uint64_t width);
/* To F32, BF16 or F16; NULL for others, or as above. */
convert_scaled convert_find_scaled(enum dtype to, const char *kernel);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * copy.h -- copies that move each byte of a large target once: non-temporal stores when the
 * processor has them (AVX-512, AVX2; chosen at run time), plain memcpy otherwise; the same bytes
 * on every path. Large means that the target will not be read back from this core's cache:
 * weights do not come back. Small copies go through the cache as usual.
 */
#ifndef BASE_COPY_H
#define BASE_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Regions must not overlap. Visible to other threads and processes after copy_fence(). */
void copy_bytes(void *target, const void *source, size_t bytes);
/* `rows` runs of row_bytes, stride_bytes apart in the source, packed densely in the target. */
void copy_rows(void *target, const void *source, uint64_t rows, uint64_t row_bytes,
	       uint64_t stride_bytes);
/* Orders all earlier non-temporal stores of this thread before its later stores. */
void copy_fence(void);
const char *copy_kernel_name(void); /* "avx512", "avx2", "portable" */
enum copy_kernel { COPY_KERNEL_PORTABLE, COPY_KERNEL_AVX2, COPY_KERNEL_AVX512 };
enum copy_kernel copy_kernel(void); /* the same, for copies in other files */
/* For tests and benchmarks: the kernels of that name from now on; false when this processor has
 * them not. Call it while nothing is copied. */
bool copy_kernel_use(const char *name);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * compare.h -- orders for qsort. Keys are chained, the first that differs decides:
 *
 *   return compare_u64(a->param, b->param) ?: compare_u64(a->offset, b->offset);
 */
#ifndef BASE_COMPARE_H
#define BASE_COMPARE_H

#include <stdint.h>

static inline int compare_u64(uint64_t a, uint64_t b)
{
	return (a > b) - (a < b);
}

/* Of arrays of numbers, ascending. */
static inline int compare_u64s(const void *a, const void *b)
{
	return compare_u64(*(const uint64_t *)a, *(const uint64_t *)b);
}

static inline int compare_u32s(const void *a, const void *b)
{
	return compare_u64(*(const uint32_t *)a, *(const uint32_t *)b);
}

#endif

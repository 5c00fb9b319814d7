/* SPDX-License-Identifier: Apache-2.0
 *
 * compare.h -- orders for qsort, and what is found by them. Keys are chained, the first that differs decides:
 *
 *   return compare_u64(a->param, b->param) ?: compare_u64(a->offset, b->offset);
 */
#ifndef BASE_COMPARE_H
#define BASE_COMPARE_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

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

/* qsort() of items of which there may be none, and then no memory either. */
#define sort_items(items, count, compare)                                                  \
	do {                                                                               \
		if (count)                                                                 \
			qsort(items, count, sizeof(*(items)), compare);                    \
	} while (0)

/* In sorted items: the first index of [from, to) for which `behind`, an expression of `at`, is true.
 * It is false before that one and true from there on; `to`: never. */
#define search_first(at, from, to, behind)                                                 \
	({                                                                                 \
		size_t low_ = (from), high_ = (to);                                        \
		while (low_ < high_) {                                                     \
			size_t at = low_ + (high_ - low_) / 2;                             \
			if (behind)                                                        \
				high_ = at;                                                \
			else                                                               \
				low_ = at + 1;                                             \
		}                                                                          \
		low_;                                                                      \
	})

#endif

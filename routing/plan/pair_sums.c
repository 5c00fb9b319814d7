/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/plan/pair_sums.h"

#include "base/compare.h"

static int by_pair(const void *a, const void *b)
{
	return compare_u64(((const struct pair_sum *)a)->pair, ((const struct pair_sum *)b)->pair);
}

void pair_sums_unite(struct pair_sums *sums)
{
	size_t kept = 0;

	if (sums->count)
		sort_items(sums->items, sums->count, by_pair);
	for (size_t i = 0; i < sums->count; kept++) {
		struct pair_sum sum = {.pair = sums->items[i].pair};

		for (; i < sums->count && sums->items[i].pair == sum.pair; i++) {
			sum.pieces += sums->items[i].pieces;
			sum.bytes += sums->items[i].bytes;
			sum.small_bytes += sums->items[i].small_bytes;
		}
		sums->items[kept] = sum;
	}
	sums->count = kept;
}

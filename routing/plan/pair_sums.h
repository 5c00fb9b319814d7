/* SPDX-License-Identifier: Apache-2.0
 *
 * pair_sums.h -- what all routes between a trainer and an inference rank have together: a route at a time, then added up.
 */
#ifndef ROUTING_PLAN_PAIR_SUMS_H
#define ROUTING_PLAN_PAIR_SUMS_H

#include "base/array.h"
#include <stdint.h>

struct pair_sum {
	uint64_t pair; /* table_pair */
	uint64_t pieces, bytes, small_bytes; /* of what the caller counts */
};

/* As ARRAY has them: array_add, array_free. */
struct pair_sums {
	struct pair_sum *items;
	size_t count, capacity;
};

/* One of each pair, ascending. */
void pair_sums_unite(struct pair_sums *sums);

#endif

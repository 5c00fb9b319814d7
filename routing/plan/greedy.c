/* SPDX-License-Identifier: Apache-2.0
 *
 * greedy.c -- each unit goes to the one of its holders with the fewest bytes so far, the lowest rank
 * on a tie; then its bytes are added to that trainer. `greedy` decides units in their own order.
 *
 * `lpt`, longest processing time first: by bytes descending, canonical order on a tie. Small units
 * come last and fill what the large ones left uneven. Only the deciding is in that order; the table
 * stays in the canonical one.
 */
#include "routing/plan/policy.h"

#include "base/compare.h"
#include "routing/plan/least.h"
#include <stdlib.h>

static int by_bytes_descending(const void *x, const void *y, void *context)
{
	const struct unit *units = context;
	uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;

	return compare_u64(units[b].bytes, units[a].bytes) ?: compare_u64(a, b);
}

static int assign(const struct problem *problem, const struct plan_options *options,
		  struct units *units, uint32_t *trainer, bool largest_first, struct error *error)
{
	struct least least;
	uint32_t *turn = NULL;
	int rc = least_init(&least, units, problem->trainer_count, error);

	if (rc)
		return rc;
	if (largest_first) {
		turn = pool_array(&least.pool, units->count, sizeof(*turn));
		if (!turn)
			rc = memory_error(error, "sorting what to route",
					  units->count * sizeof(*turn));
		for (size_t i = 0; turn && i < units->count; i++)
			turn[i] = (uint32_t)i;
		if (turn)
			qsort_r(turn, units->count, sizeof(*turn), by_bytes_descending,
				units->items);
	}
	for (size_t i = 0; i < units->count && !rc; i++) {
		size_t u = turn ? turn[i] : i;

		rc = least_decide(&least, &units->items[u], options->explain, &trainer[u], error);
	}
	least_fini(&least);
	return rc;
}

int greedy_assign(const struct problem *problem, const struct plan_options *options,
		  struct units *units, uint32_t **trainer, struct error *error)
{
	return assign(problem, options, units, *trainer, false, error);
}

int lpt_assign(const struct problem *problem, const struct plan_options *options,
	       struct units *units, uint32_t **trainer, struct error *error)
{
	return assign(problem, options, units, *trainer, true, error);
}

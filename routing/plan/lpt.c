/* SPDX-License-Identifier: Apache-2.0
 *
 * lpt.c -- longest processing time first: units by bytes descending, canonical order on a tie;
 * each to the holder with the fewest bytes so far, the lowest rank on a tie. Small units come
 * last and fill what the large ones left uneven. Only the deciding is in that order; the table
 * stays in the canonical one.
 */
#include "routing/plan/policy.h"

#include "base/memory.h"
#include "routing/plan/least.h"
#include <stdlib.h>

static int by_bytes_descending(const void *x, const void *y, void *context)
{
	const struct unit *units = context;
	uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;

	if (units[a].bytes != units[b].bytes)
		return units[a].bytes > units[b].bytes ? -1 : 1;
	return a < b ? -1 : a > b;
}

int lpt_assign(const struct problem *problem, const struct plan_options *options,
	       struct units *units, uint32_t **trainer, struct error *error)
{
	uint32_t *turn = memory_alloc(units->count * sizeof(*turn));
	struct least least;
	int rc;

	if (!turn)
		return memory_error(error, "sorting what to route", units->count * sizeof(*turn));
	rc = least_init(&least, units, problem->trainer_count, error);
	if (rc)
		goto free_turn;
	for (size_t i = 0; i < units->count; i++)
		turn[i] = (uint32_t)i;
	if (units->count)
		qsort_r(turn, units->count, sizeof(*turn), by_bytes_descending, units->items);
	for (size_t i = 0; i < units->count && !rc; i++)
		rc = least_decide(&least, &units->items[turn[i]], options->explain,
				  &(*trainer)[turn[i]], error);
	least_fini(&least);
free_turn:
	memory_free(turn);
	return rc;
}

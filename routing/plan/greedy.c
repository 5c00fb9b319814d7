/* SPDX-License-Identifier: Apache-2.0
 *
 * greedy.c -- for each unit in decision order, among its holders the one with the fewest bytes
 * so far, the lowest rank on a tie; then its bytes are added to that trainer.
 */
#include "routing/plan/policy.h"

#include "routing/plan/least.h"

int greedy_assign(const struct problem *problem, const struct plan_options *options,
		  struct units *units, uint32_t **trainer, struct error *error)
{
	struct least least;
	int rc = least_init(&least, units, problem->trainer_count, error);

	if (rc)
		return rc;
	for (size_t i = 0; i < units->count && !rc; i++)
		rc = least_decide(&least, &units->items[i], options->explain, &(*trainer)[i],
				  error);
	least_fini(&least);
	return rc;
}

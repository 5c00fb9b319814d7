/* SPDX-License-Identifier: Apache-2.0
 *
 * round_robin.c -- the baseline that users have today, by holder set:
 *
 *   senders   the trainers of the set, ascending;   targets   (engine, rank), engine-major
 *   1. the first min(senders, targets) targets go to senders 0, 1, 2, ..
 *   2. each further target (e, r) goes to the sender with the fewest engines of rank r among
 *      those that have rank r already, lowest on a tie; if none has, to the next in turn.
 *
 *   3 senders, 2 engines of 4:      s0: (0,0) (0,3) (1,0) (1,3)
 *                                   s1: (0,1) (1,1)      s2: (0,2) (1,2)
 *
 * A sender gets at most one target of a given rank r outside the tie rule (step 1 gives it one
 * target in all; step 2's turn gives one only when nobody has r). So the senders that have r are
 * fixed once the first one is, all start with one engine, and "fewest, lowest on a tie" walks
 * them in a ring: no search is needed.
 */
#include "routing/policy.h"

#include "common/memory.h"
#include <string.h>

/* The ring of one engine rank: senders first, first + step, .. (count of them). */
struct ring {
	uint32_t first, count, next;
};

int round_robin_plan(uint32_t senders, uint32_t ranks, uint32_t ranks_per_engine, uint32_t *sender,
		     struct error *error)
{
	uint32_t width = ranks_per_engine ? ranks_per_engine : ranks;
	uint32_t given = senders < ranks ? senders : ranks, turn = 0;
	struct ring *rings;

	if (ranks == 0)
		return 0;
	if (width > ranks)
		width = ranks;
	rings = memory_zalloc(width, sizeof(*rings));
	if (!rings)
		return memory_error(error, "dealing ranks out", width * sizeof(*rings));
	for (uint32_t i = 0; i < given; i++) {
		struct ring *ring = &rings[i % width];

		sender[i] = i; /* so the ring of rank r is r, r + width, r + 2 width .. */
		if (ring->count++ == 0)
			ring->first = i;
	}
	for (uint32_t i = given; i < ranks; i++) {
		struct ring *ring = &rings[i % width];

		if (ring->count == 0) {
			*ring = (struct ring){.first = turn++ % senders, .count = 1};
			sender[i] = ring->first;
			continue;
		}
		sender[i] = ring->first + ring->next * width;
		ring->next = (ring->next + 1) % ring->count;
	}
	memory_free(rings);
	return 0;
}

/* Sets of one size share one plan: it depends on the number of senders alone. */
int round_robin_assign(const struct problem *problem, const struct plan_options *options,
		       struct units *units, uint32_t **trainer, struct error *error)
{
	(void)options;
	uint32_t **plans = memory_zalloc((size_t)problem->trainer_count + 1, sizeof(*plans));
	int rc = 0;

	if (!plans)
		return memory_error(error, "dealing ranks out", problem->trainer_count);
	for (size_t i = 0; i < units->count && !rc; i++) {
		const struct unit *unit = &units->items[i];
		const struct holder_set *set = &units->sets[unit->holders];

		if (!plans[set->count]) {
			uint32_t *plan = memory_zalloc(problem->inference_count, sizeof(*plan));

			plans[set->count] = plan;
			rc = plan ? round_robin_plan(set->count, problem->inference_count,
						     problem->ranks_per_engine, plan, error)
				  : memory_error(error, "dealing ranks out",
						 problem->inference_count * sizeof(*plan));
			if (rc)
				break;
		}
		(*trainer)[i] = set->trainers[plans[set->count][unit->inference]];
	}
	for (uint32_t n = 0; n <= problem->trainer_count; n++)
		memory_free(plans[n]);
	memory_free(plans);
	return rc;
}

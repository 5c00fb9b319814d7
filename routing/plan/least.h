/* SPDX-License-Identifier: Apache-2.0
 *
 * least.h -- the holder with the fewest bytes so far, the lowest rank on a tie, for every holder
 * set at once.
 *
 * Each holder set has a heap of its trainers by (load, rank). A trainer may be in many sets, and
 * only the set that chose it hears of its new load; elsewhere its key is stale. Loads never
 * shrink, so a stale key is too small, never too large: if the top's key is current, nothing
 * below it can be smaller, and if it is stale, it is brought up to date and sinks. The answer is
 * exact, at O(log holders).
 */
#ifndef ROUTING_PLAN_LEAST_H
#define ROUTING_PLAN_LEAST_H

#include "routing/plan/explain.h"
#include "routing/plan/unit.h"

struct least_entry;
struct least {
	struct pool pool;             /* owns the arrays */
	const struct units *units;    /* borrowed */
	uint64_t *loads;              /* by trainer */
	struct least_entry **heaps;   /* by holder set */
};

int least_init(struct least *least, const struct units *units, uint32_t trainers,
	       struct error *error);
void least_fini(struct least *least);

/* Decides the unit: the least loaded of its holders gets its bytes. Tells `explain` (NULL: no
 * one) when it asked for this unit. */
int least_decide(struct least *least, const struct unit *unit, struct explain *explain,
		 uint32_t *trainer, struct error *error);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * explain.h -- why a pair went where it went: what a policy saw at the moment it decided about
 * the pair that was asked for. A policy plans as always and calls explain_add() when it decides
 * about that pair; so an explanation is never another computation than the plan.
 */
#ifndef ROUTING_PLAN_EXPLAIN_H
#define ROUTING_PLAN_EXPLAIN_H

#include "base/array.h"
#include "base/error.h"
#include "base/pool.h"
#include "routing/plan/unit.h"

struct explain_candidate {
	uint32_t trainer;
	uint64_t load_bytes; /* assigned to it before this decision */
};

/* One unit of the pair (or one part of it, for policies that cut). */
struct explain_decision {
	uint64_t lo, hi;     /* rows of the tensor */
	uint64_t bytes;
	struct explain_candidate *candidates; /* every holder, ascending; owned */
	uint32_t candidate_count;
	uint32_t chosen;     /* trainer */
	bool has_loads;      /* the policy looks at loads */
	char reason[256];    /* a sentence: why this one */
};

struct explain {
	struct pool pool;           /* owns the candidates */
	uint32_t tensor, inference; /* asked for: the problem's indexes */
	ARRAY(struct explain_decision) decisions;
};

/* Does the explanation want to hear about this unit? NULL explain: no. */
static inline bool explain_wants(const struct explain *explain, const struct unit *unit)
{
	return explain && explain->tensor == unit->tensor &&
	       explain->inference == unit->inference;
}

/* `loads` by trainer rank before the unit's bytes are added; NULL when the policy has none. */
int explain_add(struct explain *explain, const struct unit *unit, const struct holder_set *set,
		const uint64_t *loads, uint32_t chosen, struct error *error, const char *reason,
		...) __attribute__((format(printf, 7, 8)));
void explain_fini(struct explain *explain);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * round_robin.c -- the baseline that users have today, by holder set:
 *
 *   senders   the trainers of the set, ascending;   targets   (engine, rank), engine-major
 *   1. the first min(senders, targets) targets go to senders 0, 1, 2, ..
 *   2. each further target goes to the sender with the fewest targets of its kind among those
 *      that have one of its kind, lowest on a tie; if none has, to the next in turn.
 *
 *   3 senders, 2 engines of 4:      s0: (0,0) (0,3) (1,0) (1,3)
 *                                   s1: (0,1) (1,1)      s2: (0,2) (1,2)
 *
 * The kind is what a sender that keeps whole replicas can use again. round-robin takes the
 * engine rank for it, as published; round-robin-affinity the layout itself, so that ranks of one
 * engine that need the same bytes (attention-dp) are of one kind too.
 *
 * Step 1 gives each sender one target, and step 2's turn gives one only when nobody has its
 * kind. So the senders of a kind are fixed once the first is, all start with one, and "fewest,
 * lowest on a tie" walks them in a ring: no search is needed.
 */
#include "routing/plan/policy.h"

#include "base/memory.h"
#include "routing/plan/explain.h"
#include <inttypes.h>

/* The senders of one kind: members[first] .., count of them. */
struct ring {
	uint32_t first, count, next;
};

static void deal_out(const struct round_robin_targets *targets, uint32_t senders,
		     struct ring *rings, uint32_t *members, uint32_t *sender)
{
	uint32_t given = senders < targets->count ? senders : targets->count, turn = 0;
	uint32_t used = 0;

	for (uint32_t i = 0; i < given; i++)
		rings[targets->kind[i]].count++;
	for (uint32_t k = 0; k < targets->kinds; k++) {
		rings[k].first = used;
		used += rings[k].count;
		rings[k].count = 0;
	}
	for (uint32_t i = 0; i < given; i++) {
		struct ring *ring = &rings[targets->kind[i]];

		members[ring->first + ring->count++] = i;
		sender[i] = i;
	}
	for (uint32_t i = given; i < targets->count; i++) {
		struct ring *ring = &rings[targets->kind[i]];

		if (ring->count == 0) {
			*ring = (struct ring){.first = used, .count = 1};
			members[used++] = turn++ % senders;
			sender[i] = members[ring->first];
			continue;
		}
		sender[i] = members[ring->first + ring->next];
		ring->next = (ring->next + 1) % ring->count;
	}
}

int round_robin_deal(const struct round_robin_targets *targets, uint32_t senders, uint32_t *sender,
		     struct error *error)
{
	struct pool pool = {0};
	struct ring *rings = pool_array(&pool, targets->kinds, sizeof(*rings));
	/* step 1 makes one member a target; the turn at most one a kind */
	uint32_t *members =
		pool_array(&pool, (size_t)targets->count + targets->kinds, sizeof(*members));
	int rc = 0;

	if (pool_ok(&pool))
		deal_out(targets, senders, rings, members, sender);
	else
		rc = memory_error(error, "dealing ranks out", targets->kinds * sizeof(*rings));
	pool_free(&pool);
	return rc;
}

static int kinds_by_engine_rank(struct round_robin_targets *targets, uint32_t ranks,
				uint32_t ranks_per_engine, struct error *error)
{
	uint32_t width = ranks_per_engine && ranks_per_engine < ranks ? ranks_per_engine : ranks;

	*targets = (struct round_robin_targets){.count = ranks, .kinds = width};
	targets->kind = memory_alloc(ranks * sizeof(*targets->kind));
	if (!targets->kind)
		return memory_error(error, "dealing ranks out", ranks * sizeof(*targets->kind));
	for (uint32_t i = 0; i < ranks; i++)
		targets->kind[i] = i % width;
	return 0;
}

/* What the plan says about this rank, counted from the plan itself. */
static int tell(struct explain *explain, const struct round_robin_targets *targets,
		const uint32_t *plan, const struct unit *unit, const struct holder_set *set,
		const char *kind, struct error *error)
{
	uint32_t rank = unit->inference, number = plan[rank], chosen = set->trainers[number];
	uint32_t have = 0;

	if (rank < set->count)
		return explain_add(explain, unit, set, NULL, chosen, error,
				   "the first ranks are given to one holder each, and inference "
				   "rank %" PRIu32 " is holder number %" PRIu32
				   "'s, trainer %" PRIu32,
				   rank, number, chosen);
	for (uint32_t i = 0; i < rank; i++)
		have += targets->kind[i] == targets->kind[rank] && plan[i] == number;
	if (have == 0)
		return explain_add(explain, unit, set, NULL, chosen, error,
				   "no holder has another inference rank of this %s, so it is the "
				   "next in turn: holder number %" PRIu32 ", trainer %" PRIu32,
				   kind, number, chosen);
	return explain_add(explain, unit, set, NULL, chosen, error,
			   "of the holders that have inference ranks of this %s, trainer %" PRIu32
			   " has the fewest, %" PRIu32 " (the lowest rank on a tie)",
			   kind, chosen, have);
}

/* Sets of one size share one plan: it depends on the number of senders alone. */
static int assign(const struct problem *problem, const struct plan_options *options,
		  const struct round_robin_targets *targets, const char *kind, struct units *units,
		  uint32_t *trainer, struct error *error)
{
	struct pool pool = {0};
	uint32_t **plans = pool_array(&pool, (size_t)problem->trainer_count + 1, sizeof(*plans));
	int rc = 0;

	if (!plans)
		return memory_error(error, "dealing ranks out", problem->trainer_count);
	for (size_t i = 0; i < units->count && !rc; i++) {
		const struct unit *unit = &units->items[i];
		const struct holder_set *set = &units->sets[unit->holders];

		if (!plans[set->count]) {
			uint32_t *plan = pool_array(&pool, targets->count, sizeof(*plan));

			plans[set->count] = plan;
			rc = plan ? round_robin_deal(targets, set->count, plan, error)
				  : memory_error(error, "dealing ranks out",
						 targets->count * sizeof(*plan));
			if (rc)
				break;
		}
		trainer[i] = set->trainers[plans[set->count][unit->inference]];
		if (explain_wants(options->explain, unit))
			rc = tell(options->explain, targets, plans[set->count], unit, set, kind,
				  error);
	}
	pool_free(&pool);
	return rc;
}

int round_robin_assign(const struct problem *problem, const struct plan_options *options,
		       struct units *units, uint32_t **trainer, struct error *error)
{
	struct round_robin_targets targets;
	int rc = kinds_by_engine_rank(&targets, problem->inference_count, problem->ranks_per_engine,
				      error);

	if (!rc)
		rc = assign(problem, options, &targets, "engine rank", units, *trainer, error);
	memory_free(targets.kind);
	return rc;
}

int round_robin_affinity_assign(const struct problem *problem, const struct plan_options *options,
				struct units *units, uint32_t **trainer, struct error *error)
{
	const struct round_robin_targets targets = {.count = problem->inference_count,
						    .kind = problem->inference_layout,
						    .kinds = (uint32_t)problem->layout_count};

	return assign(problem, options, &targets, "layout", units, *trainer, error);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * unit_reach.c -- where a job lists several transports (pairs.h): of each unit's holders those that reach its
 * inference rank. One place for all policies, bounds and the certificate, which see holder sets alone:
 *
 *   holders {0, 1, 2}    to rank 0, reached by 0 and 1   {0, 1}
 *                        to rank 1, reached by all       {0, 1, 2}
 *                        to rank 2, reached by nobody    {0, 1, 2}, and the table's routes say who is not reached
 */
#include "routing/plan/unit_builder.h"

#include "base/assert.h"
#include "base/compare.h"
#include "base/memory.h"
#include <stdlib.h>

/* Inference ranks that want the same and are reached by the same are of one kind. */
struct kinds {
	uint32_t *of;	/* by inference rank */
	uint32_t *rank; /* one of each kind */
	size_t count;
};

struct reach {
	const struct problem *problem;
	const struct units *units;
	struct kinds kinds;
	uint32_t *made; /* by set and kind: which set it becomes, plus 1; 0: not asked yet */
	struct unit_builder sets;
	bool left_out; /* a unit that no holder of reaches */
};

static bool reaches(const struct problem *problem, uint32_t trainer, uint32_t inference)
{
	return pairs_transport(problem->pairs, trainer, inference) < problem->pairs->list.count;
}

static int by_kind(const void *x, const void *y, void *context)
{
	const struct problem *problem = context;
	uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
	const struct pair_side *p = pairs_side(problem->pairs, ROLE_INFERENCE, a, 0);
	const struct pair_side *q = pairs_side(problem->pairs, ROLE_INFERENCE, b, 0);
	int order = compare_u64(problem->inference_layout[a], problem->inference_layout[b]);

	for (uint32_t t = 0; !order && t < problem->pairs->list.count; t++)
		order = compare_u64(p[t].reach, q[t].reach);
	return order;
}

static int find_kinds(struct kinds *kinds, struct pool *pool, const struct problem *problem,
		      struct error *error)
{
	uint32_t count = problem->inference_count;
	uint32_t *ranks = pool_array(pool, count, sizeof(*ranks));

	kinds->of = pool_array(pool, count, sizeof(*kinds->of));
	kinds->rank = pool_array(pool, count, sizeof(*kinds->rank));
	if (!pool_ok(pool))
		return unit_no_memory(error);
	for (uint32_t i = 0; i < count; i++)
		ranks[i] = i;
	qsort_r(ranks, count, sizeof(*ranks), by_kind, (void *)(uintptr_t)problem);
	for (uint32_t i = 0; i < count; i++) {
		if (i == 0 || by_kind(&ranks[i - 1], &ranks[i], (void *)(uintptr_t)problem) != 0)
			kinds->rank[kinds->count++] = ranks[i];
		kinds->of[ranks[i]] = (uint32_t)kinds->count - 1;
	}
	return 0;
}

static bool all_reach(const struct problem *problem, const struct kinds *kinds)
{
	for (size_t k = 0; k < kinds->count; k++)
		for (uint32_t t = 0; t < problem->trainer_count; t++)
			if (!reaches(problem, t, kinds->rank[k]))
				return false;
	return true;
}

static int make_set(struct reach *r, const struct holder_set *from, uint32_t kind, uint32_t *made,
		    struct error *error)
{
	uint32_t set;
	int rc;

	r->sets.scratch.count = 0;
	for (uint32_t k = 0; k < from->count; k++)
		if (reaches(r->problem, from->trainers[k], r->kinds.rank[kind]) &&
		    !array_add(&r->sets.scratch, from->trainers[k]))
			return unit_no_memory(error);
	if (r->sets.scratch.count) {
		rc = unit_intern(&r->sets, r->sets.scratch.items, (uint32_t)r->sets.scratch.count,
				 &set, error);
	} else {
		r->left_out = true;
		rc = unit_intern(&r->sets, from->trainers, from->count, &set, error);
	}
	if (!rc)
		*made = set + 1;
	return rc;
}

static int give_sets(struct reach *r, struct unit *items, struct error *error)
{
	for (size_t i = 0; i < r->units->count; i++) {
		uint32_t kind = r->kinds.of[items[i].inference];
		uint32_t *made = &r->made[items[i].holders * r->kinds.count + kind];
		int rc = *made ? 0
			       : make_set(r, &r->units->sets[items[i].holders], kind, made, error);

		if (rc)
			return rc;
		items[i].holders = *made - 1;
	}
	return 0;
}

/* The sets that were made take the places of those there were. */
static int publish(struct units *units, const struct reach *r, struct error *error)
{
	const struct unit_builder *b = &r->sets;
	struct holder_set *sets = memory_zalloc(b->keys.count, sizeof(*sets));
	uint32_t *storage = memory_alloc(b->key_members.count * sizeof(*storage));
	uint32_t *kinds = memory_alloc(r->problem->inference_count * sizeof(*kinds));

	if (!sets || !storage || !kinds) {
		memory_free(sets);
		memory_free(storage);
		memory_free(kinds);
		return unit_no_memory(error);
	}
	for (size_t m = 0; m < b->key_members.count; m++)
		storage[m] = b->key_members.items[m];
	for (size_t k = 0; k < b->keys.count; k++)
		sets[k] = (struct holder_set){storage + b->keys.items[k].first,
					      b->keys.items[k].count};
	for (uint32_t i = 0; i < r->problem->inference_count; i++)
		kinds[i] = r->kinds.of[i];
	memory_free(units->sets);
	memory_free(units->set_storage);
	units->sets = sets;
	units->set_storage = storage;
	units->set_count = b->keys.count;
	units->kind = kinds;
	units->kind_count = r->kinds.count;
	return 0;
}

int unit_reach_all(bool *all, const struct problem *problem, struct error *error)
{
	struct kinds kinds = {0};
	struct pool pool = {0};
	int rc = problem->pairs ? find_kinds(&kinds, &pool, problem, error) : 0;

	*all = rc || !problem->pairs || all_reach(problem, &kinds);
	pool_free(&pool);
	return rc;
}

int unit_reach(struct units *units, const struct problem *problem, bool *left_out,
	       struct error *error)
{
	struct reach r = {.problem = problem, .units = units, .sets = {.problem = problem}};
	struct pool pool = {0};
	int rc = find_kinds(&r.kinds, &pool, problem, error);

	if (!rc) {
		r.made = pool_array(&pool, units->set_count * r.kinds.count, sizeof(*r.made));
		rc = r.made ? 0 : unit_no_memory(error);
	}
	if (!rc)
		rc = give_sets(&r, units->items, error);
	if (!rc)
		rc = publish(units, &r, error);
	*left_out = r.left_out;
	unit_builder_fini(&r.sets);
	pool_free(&pool);
	return rc;
}

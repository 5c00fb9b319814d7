/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/lab/simulate_without.h"

#include "base/compare.h"
#include "base/pool.h"
#include <string.h>

void problem_without_fini(struct problem_without *without)
{
	pool_free(&without->pool);
	layout_fini(&without->nothing);
	memset(&without->problem, 0, sizeof(without->problem));
}

static uint32_t *other(struct pool *pool, const uint32_t *of, uint32_t count, const bool *lost,
		       size_t nothing)
{
	uint32_t *out = pool_array(pool, count, sizeof(*out));

	for (uint32_t i = 0; out && i < count; i++)
		out[i] = lost[i] ? (uint32_t)nothing : of[i];
	return out;
}

/* Copies with one more at the end, which has nothing. */
static int add_nothing(struct problem_without *without, const struct problem *from,
		       bool *const lost[ROLE_COUNT])
{
	struct problem *to = &without->problem;
	struct pool *pool = &without->pool;
	size_t holdings = from->holding_count, layouts = from->layout_count;

	*to = *from;
	to->holdings = pool_array(pool, holdings + 1, sizeof(*to->holdings));
	to->layouts = pool_array(pool, layouts + 1, sizeof(*to->layouts));
	to->trainer_holding = other(pool, from->trainer_holding, from->trainer_count,
				    lost[ROLE_TRAINER], holdings);
	to->inference_layout = other(pool, from->inference_layout, from->inference_count,
				     lost[ROLE_INFERENCE], layouts);
	to->holding_count = holdings + 1;
	to->layout_count = layouts + 1;
	layout_init(&without->nothing);
	if (!pool_ok(pool))
		return -ERROR_MEMORY;
	memcpy(to->holdings, from->holdings, holdings * sizeof(*to->holdings));
	memcpy(to->layouts, from->layouts, layouts * sizeof(*to->layouts));
	to->holdings[holdings].held_of =
		pool_array(pool, from->tensor_count + 1, sizeof(*to->holdings->held_of));
	to->layouts[layouts].pieces_of =
		pool_array(pool, from->tensor_count + 1, sizeof(*to->layouts->pieces_of));
	to->layouts[layouts].layout = &without->nothing;
	return pool_ok(pool) ? 0 : -ERROR_MEMORY;
}

/* ---- does somebody else hold it? ---- */

static int by_lo(const void *x, const void *y)
{
	const struct problem_held *a = x, *b = y;

	return compare_u64(a->lo, b->lo);
}

/* Rows of the tensor that live holdings have; `held` has room for all of them. */
static size_t gather_held(const struct problem *problem, const bool *used, size_t tensor,
			  struct problem_held *held)
{
	size_t count = 0;

	for (size_t h = 0; h < problem->holding_count; h++) {
		const struct problem_holding *holding = &problem->holdings[h];

		for (uint32_t i = holding->held_of[tensor];
		     used[h] && i < holding->held_of[tensor + 1]; i++)
			held[count++] = holding->held[i];
	}
	sort_items(held, count, by_lo);
	return count;
}

static bool covered(const struct problem_held *held, size_t count, uint64_t lo, uint64_t hi)
{
	for (size_t i = 0; i < count && lo < hi && held[i].lo <= lo; i++)
		lo = held[i].hi > lo ? held[i].hi : lo;
	return lo >= hi;
}

static bool tensor_is_held(const struct problem *problem, const bool *wanted,
			   const struct problem_held *held, size_t count, size_t tensor)
{
	for (size_t l = 0; l < problem->layout_count; l++) {
		const struct problem_layout *layout = &problem->layouts[l];

		for (uint32_t p = layout->pieces_of[tensor];
		     wanted[l] && p < layout->pieces_of[tensor + 1]; p++)
			if (!covered(held, count, layout->pieces[p].src.lo[0],
				     layout->pieces[p].src.hi[0]))
				return false;
	}
	return true;
}

static int check_held(const struct problem *problem, struct error *error)
{
	size_t all = 1, missing = 0, first = 0;
	struct pool pool = {0};
	bool *used = pool_array(&pool, problem->holding_count, sizeof(*used));
	bool *wanted = pool_array(&pool, problem->layout_count, sizeof(*wanted));
	struct problem_held *held;

	for (size_t h = 0; h < problem->holding_count; h++)
		all += problem->holdings[h].held_count;
	held = pool_array(&pool, all, sizeof(*held));
	if (!pool_ok(&pool)) {
		pool_free(&pool);
		return memory_error(error, "planning without the lost ranks", all * sizeof(*held));
	}
	for (uint32_t t = 0; t < problem->trainer_count; t++)
		used[problem->trainer_holding[t]] = true;
	for (uint32_t r = 0; r < problem->inference_count; r++)
		wanted[problem->inference_layout[r]] = true;
	for (size_t t = 0; t < problem->tensor_count; t++) {
		size_t count = gather_held(problem, used, t, held);

		if (!tensor_is_held(problem, wanted, held, count, t) && !missing++)
			first = t;
	}
	pool_free(&pool);
	if (!missing)
		return 0;
	return error_set(error, ERROR_UNSOURCED,
			 "without the lost ranks nobody holds all of %zu tensor%s that inference "
			 "ranks need; the first is %s",
			 missing, missing == 1 ? "" : "s", problem->tensors[first].name);
}

int problem_without(struct problem_without *without, const struct problem *problem,
		    bool *const lost[ROLE_COUNT], struct error *error)
{
	int rc;

	memset(without, 0, sizeof(*without));
	if (add_nothing(without, problem, lost))
		rc = memory_error(error, "planning without the lost ranks",
				  problem->layout_count * sizeof(*problem->layouts));
	else
		rc = check_held(&without->problem, error);
	if (rc)
		problem_without_fini(without);
	return rc;
}

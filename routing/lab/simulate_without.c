/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/lab/simulate_without.h"

#include "job/box_cover.h"
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

/* Boxes of the tensor that live holdings have. */
static int gather_held(struct box_cover *held, const struct problem *problem, const bool *used,
		       size_t tensor)
{
	held->boxes.count = 0;
	for (size_t h = 0; h < problem->holding_count; h++) {
		const struct problem_holding *holding = &problem->holdings[h];

		for (uint32_t i = holding->held_of[tensor];
		     used[h] && i < holding->held_of[tensor + 1]; i++)
			if (!array_add(&held->boxes, holding->held[i].box))
				return -1;
	}
	return 0;
}

static int tensor_is_held(struct box_cover *held, const struct problem *problem, const bool *wanted,
			  size_t tensor, bool *covered)
{
	struct box gap;
	int rc = 0;

	*covered = true;
	for (size_t l = 0; l < problem->layout_count; l++) {
		const struct problem_layout *layout = &problem->layouts[l];

		for (uint32_t p = layout->pieces_of[tensor];
		     wanted[l] && !rc && *covered && p < layout->pieces_of[tensor + 1]; p++)
			rc = box_cover_all(held, &layout->pieces[p].src, covered, &gap);
	}
	return rc;
}

static int check_held(const struct problem *problem, struct error *error)
{
	size_t missing = 0, first = 0;
	struct pool pool = {0};
	bool *used = pool_array(&pool, problem->holding_count, sizeof(*used));
	bool *wanted = pool_array(&pool, problem->layout_count, sizeof(*wanted));
	struct box_cover held = {0};
	bool covered;
	int rc = pool_ok(&pool) ? 0 : -1;

	for (uint32_t t = 0; !rc && t < problem->trainer_count; t++)
		used[problem->trainer_holding[t]] = true;
	for (uint32_t r = 0; !rc && r < problem->inference_count; r++)
		wanted[problem->inference_layout[r]] = true;
	for (size_t t = 0; !rc && t < problem->tensor_count; t++) {
		rc = gather_held(&held, problem, used, t);
		if (!rc)
			rc = tensor_is_held(&held, problem, wanted, t, &covered);
		if (!rc && !covered && !missing++)
			first = t;
	}
	box_cover_fini(&held);
	pool_free(&pool);
	if (rc)
		return memory_error(error, "planning without the lost ranks", sizeof(struct box));
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

/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/plan/keep.h"

#include "base/compare.h"
#include "routing/plan/least.h"
#include "routing/plan/sent.h"
#include <stdlib.h>
#include <string.h>

struct keep {
	const struct units *units;
	struct pool pool;
	struct sent *sent;
	uint32_t *trainer;  /* by unit; SENT_BY_NOBODY */
	uint32_t *turn;	    /* units, in the order in which they are looked at */
	struct least least; /* loads of this plan */
	uint64_t limit;	    /* of them */
};

static bool holds(const struct keep *keep, const struct unit *unit, uint32_t trainer)
{
	const struct holder_set *set = &keep->units->sets[unit->holders];

	return bsearch(&trainer, set->trainers, set->count, sizeof(trainer), compare_u32s);
}

static uint64_t *load_of(struct keep *keep, uint32_t trainer)
{
	return &keep->least.loads[trainer];
}

static void keep_senders(struct keep *keep)
{
	for (size_t u = 0; u < keep->units->count; u++) {
		const struct unit *unit = &keep->units->items[u];
		uint32_t before = sent_unit(keep->sent, keep->units, unit);

		keep->trainer[u] = before != SENT_BY_NOBODY && holds(keep, unit, before)
					   ? before
					   : SENT_BY_NOBODY;
		if (keep->trainer[u] != SENT_BY_NOBODY)
			*load_of(keep, keep->trainer[u]) += unit->bytes;
	}
}

/* ---- what has no sender ---- */

/* By who sends them, then the largest first. */
static int by_turn(const void *x, const void *y, void *context)
{
	const struct keep *keep = context;
	uint32_t i = *(const uint32_t *)x, j = *(const uint32_t *)y;
	const struct unit *units = keep->units->items;

	return compare_u64(keep->trainer[i], keep->trainer[j])
		       ?: compare_u64(units[j].bytes, units[i].bytes) ?: compare_u64(i, j);
}

static int give(struct keep *keep, struct error *error)
{
	size_t count = 0;
	int rc = 0;

	for (size_t u = 0; u < keep->units->count; u++)
		if (keep->trainer[u] == SENT_BY_NOBODY)
			keep->turn[count++] = (uint32_t)u;
	qsort_r(keep->turn, count, sizeof(*keep->turn), by_turn, keep);
	for (size_t i = 0; i < count && !rc; i++)
		rc = least_decide(&keep->least, &keep->units->items[keep->turn[i]], NULL,
				  &keep->trainer[keep->turn[i]], error);
	return rc;
}

/* ---- who has too much ---- */

/* To the least loaded of the others that hold it, if that one does not have too much then. */
static void move_if_it_fits(struct keep *keep, uint32_t u)
{
	const struct unit *unit = &keep->units->items[u];
	const struct holder_set *set = &keep->units->sets[unit->holders];
	uint32_t from = keep->trainer[u], to = SENT_BY_NOBODY;

	for (uint32_t k = 0; k < set->count; k++)
		if (set->trainers[k] != from &&
		    (to == SENT_BY_NOBODY || *load_of(keep, set->trainers[k]) < *load_of(keep, to)))
			to = set->trainers[k];
	if (to == SENT_BY_NOBODY || *load_of(keep, to) + unit->bytes > keep->limit)
		return;
	*load_of(keep, from) -= unit->bytes;
	*load_of(keep, to) += unit->bytes;
	keep->trainer[u] = to;
}

/* Few routes and few bytes: the largest that is not more than there is too much, and so on; in the end the smallest that is. */
static bool even_out(struct keep *keep, const uint32_t *units, size_t count)
{
	uint32_t from = keep->trainer[units[0]];
	const uint64_t *load = load_of(keep, from);

	for (size_t i = 0; i<count && * load> keep->limit; i++)
		if (keep->units->items[units[i]].bytes <= *load - keep->limit)
			move_if_it_fits(keep, units[i]);
	for (size_t i = count; i-- > 0 && *load > keep->limit;)
		if (keep->trainer[units[i]] == from)
			move_if_it_fits(keep, units[i]);
	return *load <= keep->limit;
}

/* False: somebody is left with too much. */
static bool even_out_all(struct keep *keep)
{
	size_t count = 0, to;
	bool even = true;

	for (size_t u = 0; u < keep->units->count; u++)
		if (*load_of(keep, keep->trainer[u]) > keep->limit)
			keep->turn[count++] = (uint32_t)u;
	qsort_r(keep->turn, count, sizeof(*keep->turn), by_turn, keep);
	for (size_t from = 0; from < count && even; from = to) {
		uint32_t trainer = keep->trainer[keep->turn[from]];

		for (to = from; to < count && keep->trainer[keep->turn[to]] == trainer; to++)
			;
		even = even_out(keep, keep->turn + from, to - from);
	}
	return even;
}

/* ---- all of it ---- */

/* The most that a plan from the beginning gives one trainer, and the slack. */
static uint64_t limit_of(const struct keep *keep, const uint32_t *fresh, uint64_t *loads)
{
	uint64_t most = 0;

	for (size_t u = 0; u < keep->units->count; u++) {
		uint64_t *load = &loads[fresh[u]];

		*load += keep->units->items[u].bytes;
		most = *load > most ? *load : most;
	}
	return most + most / KEEP_SLACK;
}

static int keep_alloc(struct keep *keep, uint32_t trainers, uint64_t **loads, struct error *error)
{
	struct pool *pool = &keep->pool;
	size_t units = keep->units->count;

	keep->trainer = pool_array(pool, units, sizeof(*keep->trainer));
	keep->turn = pool_array(pool, units, sizeof(*keep->turn));
	*loads = pool_array(pool, trainers, sizeof(**loads));
	return pool_ok(pool)
		       ? 0
		       : memory_error(error, "keeping routes", units * sizeof(*keep->trainer));
}

int keep_assign(const struct table *before, const struct problem *problem,
		const struct units *units, uint32_t *trainer, struct table_moved *moved,
		struct error *error)
{
	struct keep keep = {.units = units};
	uint64_t *loads;
	int rc = keep_alloc(&keep, problem->trainer_count, &loads, error);

	if (!rc)
		rc = sent_new(&keep.sent, before, problem, error);
	if (!rc)
		rc = least_init(&keep.least, units, problem->trainer_count, error);
	if (!rc) {
		keep.limit = limit_of(&keep, trainer, loads);
		keep_senders(&keep);
		rc = give(&keep, error);
	}
	if (!rc) {
		if (even_out_all(&keep))
			memcpy(trainer, keep.trainer, units->count * sizeof(*trainer));
		sent_moved(keep.sent, units, trainer, false, moved);
	}
	sent_free(&keep.sent);
	least_fini(&keep.least);
	pool_free(&keep.pool);
	return rc;
}

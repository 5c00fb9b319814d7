/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/plan/keep.h"

#include "base/compare.h"
#include "routing/plan/least.h"
#include <stdlib.h>
#include <string.h>

#define NOBODY UINT32_MAX

struct keep {
	const struct table *before;
	const struct problem *problem;
	const struct units *units;
	struct pool pool;
	uint32_t *tensor_before; /* by tensor: the same one in the plan before, or NOBODY */
	uint32_t *routes;   /* of the plan before, by tensor, inference rank, where they begin */
	uint32_t *sent_by;  /* by unit: in the plan before, or NOBODY */
	uint32_t *trainer;  /* by unit: in this one */
	uint32_t *turn;	    /* units, in the order in which they are looked at */
	struct least least; /* loads of this plan */
	uint64_t limit;	    /* of them */
};

/* ---- who sent it before ---- */

static int by_name(const void *x, const void *y, void *context)
{
	const struct problem_tensor *tensors = context;

	return strcmp(tensors[*(const uint32_t *)x].name, tensors[*(const uint32_t *)y].name);
}

/* Tensors of two plans of one job are mostly the same ones in the same order. */
static bool find_tensors(struct keep *keep)
{
	const struct problem *before = keep->before->problem;
	uint32_t *sorted = pool_array(&keep->pool, before->tensor_count, sizeof(*sorted));

	if (!sorted)
		return false;
	for (uint32_t t = 0; t < before->tensor_count; t++)
		sorted[t] = t;
	qsort_r(sorted, before->tensor_count, sizeof(*sorted), by_name, before->tensors);
	for (size_t t = 0; t < keep->problem->tensor_count; t++) {
		const char *name = keep->problem->tensors[t].name;
		size_t found = search_first(at, 0, before->tensor_count,
					    strcmp(before->tensors[sorted[at]].name, name) >= 0);

		keep->tensor_before[t] =
			found < before->tensor_count &&
					strcmp(before->tensors[sorted[found]].name, name) == 0
				? sorted[found]
				: NOBODY;
	}
	return true;
}

struct place {
	uint32_t tensor, inference;
	const struct box *src; /* of the first piece */
};

static struct place place_of(const struct table *table, uint32_t r)
{
	const struct route *route = &table->routes[r];

	return (struct place){route->tensor, route->inference,
			      &table->pieces[route->piece_first].src};
}

static int compare_places(const struct place *a, const struct place *b)
{
	int order = compare_u64(a->tensor, b->tensor) ?: compare_u64(a->inference, b->inference);

	for (uint32_t d = 0; !order && d < a->src->dims && d < b->src->dims; d++)
		order = compare_u64(a->src->lo[d], b->src->lo[d]);
	return order;
}

static int by_place(const void *x, const void *y, void *context)
{
	const struct table *table = context;
	uint32_t i = *(const uint32_t *)x, j = *(const uint32_t *)y;
	struct place a = place_of(table, i), b = place_of(table, j);

	return compare_places(&a, &b) ?: compare_u64(i, j);
}

static bool first_piece(const struct keep *keep, const struct unit *unit, struct piece *out)
{
	const struct problem *problem = keep->problem;
	const struct problem_layout *layout =
		&problem->layouts[problem->inference_layout[unit->inference]];

	for (uint32_t p = layout->pieces_of[unit->tensor]; p < layout->pieces_of[unit->tensor + 1];
	     p++)
		if (unit_cut(keep->units, unit, unit->lo, unit->hi, &layout->pieces[p], out))
			return true;
	return false;
}

/* The route that begins where the unit does, or the last one before. */
static uint32_t sender_before(const struct keep *keep, const struct unit *unit)
{
	const struct table *before = keep->before;
	struct place place = {keep->tensor_before[unit->tensor], unit->inference, NULL}, found;
	struct piece piece;
	size_t behind;

	if (place.tensor == NOBODY || !first_piece(keep, unit, &piece))
		return NOBODY;
	place.src = &piece.src;
	behind = search_first(at, 0, before->route_count, ({
				      struct place there = place_of(before, keep->routes[at]);

				      compare_places(&there, &place) > 0;
			      }));
	if (!behind)
		return NOBODY;
	found = place_of(before, keep->routes[behind - 1]);
	return found.tensor == place.tensor && found.inference == place.inference
		       ? before->routes[keep->routes[behind - 1]].trainer
		       : NOBODY;
}

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
	for (uint32_t r = 0; r < keep->before->route_count; r++)
		keep->routes[r] = r;
	qsort_r(keep->routes, keep->before->route_count, sizeof(*keep->routes), by_place,
		(void *)keep->before);
	for (size_t u = 0; u < keep->units->count; u++) {
		const struct unit *unit = &keep->units->items[u];

		keep->sent_by[u] = sender_before(keep, unit);
		keep->trainer[u] = keep->sent_by[u] != NOBODY && holds(keep, unit, keep->sent_by[u])
					   ? keep->sent_by[u]
					   : NOBODY;
		if (keep->trainer[u] != NOBODY)
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
		if (keep->trainer[u] == NOBODY)
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
	uint32_t from = keep->trainer[u], to = NOBODY;

	for (uint32_t k = 0; k < set->count; k++)
		if (set->trainers[k] != from &&
		    (to == NOBODY || *load_of(keep, set->trainers[k]) < *load_of(keep, to)))
			to = set->trainers[k];
	if (to == NOBODY || *load_of(keep, to) + unit->bytes > keep->limit)
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

static void count_moved(const struct keep *keep, const uint32_t *trainer, struct table_moved *moved)
{
	*moved = (struct table_moved){.follows = true};
	for (size_t u = 0; u < keep->units->count; u++)
		if (keep->sent_by[u] != NOBODY && keep->sent_by[u] != trainer[u]) {
			moved->routes++;
			moved->bytes += keep->units->items[u].bytes;
		}
}

static bool keep_alloc(struct keep *keep, uint64_t **loads)
{
	struct pool *pool = &keep->pool;
	size_t units = keep->units->count;

	keep->tensor_before =
		pool_array(pool, keep->problem->tensor_count, sizeof(*keep->tensor_before));
	keep->routes = pool_array(pool, keep->before->route_count, sizeof(*keep->routes));
	keep->sent_by = pool_array(pool, units, sizeof(*keep->sent_by));
	keep->trainer = pool_array(pool, units, sizeof(*keep->trainer));
	keep->turn = pool_array(pool, units, sizeof(*keep->turn));
	*loads = pool_array(pool, keep->problem->trainer_count, sizeof(**loads));
	return pool_ok(pool) && find_tensors(keep);
}

int keep_assign(const struct table *before, const struct problem *problem,
		const struct units *units, uint32_t *trainer, struct table_moved *moved,
		struct error *error)
{
	struct keep keep = {.before = before, .problem = problem, .units = units};
	uint64_t *loads;
	int rc = 0;

	if (!keep_alloc(&keep, &loads))
		rc = memory_error(error, "keeping routes", units->count * sizeof(*keep.trainer));
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
		count_moved(&keep, trainer, moved);
	}
	least_fini(&keep.least);
	pool_free(&keep.pool);
	return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/plan/sent.h"

#include "base/compare.h"
#include "base/pool.h"
#include <stdlib.h>
#include <string.h>

struct rows {
	uint64_t lo, hi;
};

struct sent {
	const struct table *before;
	const struct problem *problem;
	struct pool pool;
	uint32_t *tensor_before; /* by tensor: the same one in the plan before, or SENT_BY_NOBODY */
	uint32_t *routes;  /* of the plan before, by tensor, inference rank, where they begin */
	struct rows *rows; /* by route: from the first to the last that its pieces have */
};

static int by_name(const void *x, const void *y, void *context)
{
	const struct problem_tensor *tensors = context;

	return strcmp(tensors[*(const uint32_t *)x].name, tensors[*(const uint32_t *)y].name);
}

/* Tensors of two plans of one job are mostly the same ones in the same order. */
static bool find_tensors(struct sent *sent)
{
	const struct problem *before = sent->before->problem;
	uint32_t *sorted = pool_array(&sent->pool, before->tensor_count, sizeof(*sorted));

	if (!sorted)
		return false;
	for (uint32_t t = 0; t < before->tensor_count; t++)
		sorted[t] = t;
	qsort_r(sorted, before->tensor_count, sizeof(*sorted), by_name, before->tensors);
	for (size_t t = 0; t < sent->problem->tensor_count; t++) {
		const char *name = sent->problem->tensors[t].name;
		size_t found = search_first(at, 0, before->tensor_count,
					    strcmp(before->tensors[sorted[at]].name, name) >= 0);

		sent->tensor_before[t] =
			found < before->tensor_count &&
					strcmp(before->tensors[sorted[found]].name, name) == 0
				? sorted[found]
				: SENT_BY_NOBODY;
	}
	return true;
}

struct place {
	uint32_t tensor, inference;
	const struct box *src; /* of the first piece; NULL: before any */
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

	if (!order && (!a->src || !b->src))
		return (a->src != NULL) - (b->src != NULL);
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

/* As a table mostly has them. */
static bool in_order(const struct sent *sent)
{
	size_t r = 1;

	while (r < sent->before->route_count &&
	       by_place(&sent->routes[r - 1], &sent->routes[r], (void *)sent->before) <= 0)
		r++;
	return r >= sent->before->route_count;
}

static void find_rows(struct sent *sent)
{
	const struct table *before = sent->before;

	for (size_t r = 0; r < before->route_count; r++) {
		const struct route *route = &before->routes[r];
		struct rows rows = {UINT64_MAX, 0};

		for (uint32_t p = 0; p < route->piece_count; p++) {
			const struct box *src = &before->pieces[route->piece_first + p].src;
			uint64_t lo = src->dims ? src->lo[0] : 0, hi = src->dims ? src->hi[0] : 1;

			rows.lo = lo < rows.lo ? lo : rows.lo;
			rows.hi = hi > rows.hi ? hi : rows.hi;
		}
		sent->rows[r] = rows;
	}
}

int sent_new(struct sent **out, const struct table *before, const struct problem *problem,
	     struct error *error)
{
	struct sent *sent = *out = memory_zalloc(1, sizeof(*sent));

	if (!sent)
		return memory_error(error, "keeping routes", sizeof(*sent));
	sent->before = before;
	sent->problem = problem;
	sent->tensor_before =
		pool_array(&sent->pool, problem->tensor_count, sizeof(*sent->tensor_before));
	sent->routes = pool_array(&sent->pool, before->route_count, sizeof(*sent->routes));
	sent->rows = pool_array(&sent->pool, before->route_count, sizeof(*sent->rows));
	if (!pool_ok(&sent->pool) || !find_tensors(sent)) {
		sent_free(out);
		return memory_error(error, "keeping routes",
				    before->route_count * sizeof(*sent->rows));
	}
	for (uint32_t r = 0; r < before->route_count; r++)
		sent->routes[r] = r;
	if (!in_order(sent))
		qsort_r(sent->routes, before->route_count, sizeof(*sent->routes), by_place,
			(void *)before);
	find_rows(sent);
	return 0;
}

void sent_free(struct sent **sent)
{
	if (*sent)
		pool_free(&(*sent)->pool);
	memory_free(*sent);
	*sent = NULL;
}

/* The first one of that place or behind it. */
static size_t find_place(const struct sent *sent, struct place place)
{
	return search_first(at, 0, sent->before->route_count, ({
				    struct place there = place_of(sent->before, sent->routes[at]);

				    compare_places(&there, &place) >= 0;
			    }));
}

static const struct route *route_at(const struct sent *sent, size_t at, uint32_t tensor,
				    uint32_t inference)
{
	const struct route *route;

	if (at >= sent->before->route_count)
		return NULL;
	route = &sent->before->routes[sent->routes[at]];
	return route->tensor == tensor && route->inference == inference ? route : NULL;
}

static bool first_piece(const struct sent *sent, const struct units *units, const struct unit *unit,
			struct piece *out)
{
	const struct problem *problem = sent->problem;
	const struct problem_layout *layout =
		&problem->layouts[problem->inference_layout[unit->inference]];

	for (uint32_t p = layout->pieces_of[unit->tensor]; p < layout->pieces_of[unit->tensor + 1];
	     p++)
		if (unit_cut(units, unit, unit->lo, unit->hi, &layout->pieces[p], out))
			return true;
	return false;
}

uint32_t sent_unit(const struct sent *sent, const struct units *units, const struct unit *unit)
{
	struct place place = {sent->tensor_before[unit->tensor], unit->inference, NULL};
	const struct route *found;
	struct piece piece;
	size_t behind;

	if (place.tensor == SENT_BY_NOBODY || !first_piece(sent, units, unit, &piece))
		return SENT_BY_NOBODY;
	place.src = &piece.src;
	behind = search_first(at, 0, sent->before->route_count, ({
				      struct place there = place_of(sent->before, sent->routes[at]);

				      compare_places(&there, &place) > 0;
			      }));
	found = behind ? route_at(sent, behind - 1, place.tensor, place.inference) : NULL;
	return found ? found->trainer : SENT_BY_NOBODY;
}

uint32_t sent_rank(const struct sent *sent, uint32_t tensor, uint64_t row, const uint32_t *kind,
		   uint32_t like)
{
	struct place place = {sent->tensor_before[tensor], 0, NULL};
	uint32_t found = SENT_BY_NOBODY;

	if (place.tensor == SENT_BY_NOBODY)
		return SENT_BY_NOBODY;
	for (size_t at = find_place(sent, place); at < sent->before->route_count; at++) {
		const struct route *route = &sent->before->routes[sent->routes[at]];
		struct rows rows = sent->rows[sent->routes[at]];

		if (route->tensor != place.tensor)
			break;
		if (row < rows.lo || row >= rows.hi ||
		    route->inference >= sent->problem->inference_count)
			continue;
		if (kind[route->inference] == kind[like])
			return route->inference;
		if (found == SENT_BY_NOBODY)
			found = route->inference;
	}
	return found;
}

uint32_t sent_row(const struct sent *sent, uint32_t tensor, uint32_t inference, uint64_t row,
		  const struct holder_set *by, uint64_t *until)
{
	struct place place = {sent->tensor_before[tensor], inference, NULL};
	const struct route *route;

	*until = UINT64_MAX;
	if (place.tensor == SENT_BY_NOBODY)
		return SENT_BY_NOBODY;
	for (size_t at = find_place(sent, place);
	     (route = route_at(sent, at, place.tensor, inference)); at++) {
		struct rows rows = sent->rows[sent->routes[at]];

		if (rows.hi <= row || (by && !bsearch(&route->trainer, by->trainers, by->count,
						      sizeof(route->trainer), compare_u32s)))
			continue;
		if (rows.lo <= row) {
			*until = rows.hi < *until ? rows.hi : *until;
			return route->trainer;
		}
		*until = rows.lo < *until ? rows.lo : *until;
	}
	return SENT_BY_NOBODY;
}

/* Of rows of the unit, but for holes between its pieces. */
static uint64_t bytes_of(const struct sent *sent, const struct units *units,
			 const struct unit *unit, uint64_t lo, uint64_t hi)
{
	const struct problem *problem = sent->problem;
	const struct problem_layout *layout =
		&problem->layouts[problem->inference_layout[unit->inference]];
	struct piece piece;
	uint64_t bytes = 0;

	for (uint32_t p = layout->pieces_of[unit->tensor]; p < layout->pieces_of[unit->tensor + 1];
	     p++)
		if (unit_cut(units, unit, lo, hi, &layout->pieces[p], &piece))
			bytes += piece.bytes;
	return bytes;
}

/* Of its bytes, those of rows that others sent. What takes some columns of its rows is looked at as a whole. */
static uint64_t moved_bytes(const struct sent *sent, const struct units *units,
			    const struct unit *unit, uint32_t trainer, bool cut)
{
	uint64_t moved = 0, until;
	uint32_t before;

	if (!cut || unit->cell != UNIT_FULL) {
		before = sent_unit(sent, units, unit);
		return before == SENT_BY_NOBODY || before == trainer ? 0 : unit->bytes;
	}
	for (uint64_t row = unit->lo; row < unit->hi; row = until) {
		before = sent_row(sent, unit->tensor, unit->inference, row, NULL, &until);
		until = until < unit->hi ? until : unit->hi;
		if (before != SENT_BY_NOBODY && before != trainer)
			moved += bytes_of(sent, units, unit, row, until);
	}
	return moved;
}

void sent_moved(const struct sent *sent, const struct units *units, const uint32_t *trainer,
		bool cut, struct table_moved *moved)
{
	*moved = (struct table_moved){.follows = true};
	for (size_t u = 0; u < units->count; u++) {
		uint64_t bytes = moved_bytes(sent, units, &units->items[u], trainer[u], cut);

		moved->routes += bytes != 0;
		moved->bytes += bytes;
	}
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * balanced.c -- the policy `balanced`: see balanced.h for its steps, docs/routing.md for its
 * rule. This file makes units of what was decided.
 */
#include "routing/plan/balanced.h"

#include "base/compare.h"
#include "base/memory.h"
#include "base/text.h"
#include "routing/plan/explain.h"
#include "routing/plan/policy.h"
#include <inttypes.h>

/* Gathered: nothing is held in part, and units are the same whether they are cut or not. */
static bool held_in_parts(const struct problem *problem)
{
	for (size_t h = 0; h < problem->holding_count; h++) {
		const struct problem_holding *holding = &problem->holdings[h];

		for (size_t t = 0; t < problem->tensor_count; t++)
			for (uint32_t i = holding->held_of[t]; i < holding->held_of[t + 1]; i++)
				if (box_elements(&holding->held[i].box) *
					    dtype_bytes(problem->tensors[t].dtype) !=
				    problem->tensors[t].bytes)
					return true;
	}
	return false;
}

/* Where one trainer holds all of a pair and others hold shards, shards let others help. */
static int cut_at_shards(const struct problem *problem, struct units *units, struct error *error)
{
	struct units cut;
	int rc;

	if (!held_in_parts(problem))
		return 0;
	rc = units_build_cut(&cut, problem, error);
	if (rc)
		return rc;
	units_fini(units);
	*units = cut;
	return 0;
}

/* ---- parts to units ---- */

/* A part of a unit, and who sends it. */
struct placed {
	struct unit unit;
	size_t number; /* as parts were made: cells of the same rows keep their order */
	uint32_t trainer;
	bool cut; /* one of several of the unit */
};

struct maker {
	struct balanced *b;
	ARRAY(struct unit) items;
	ARRAY(uint32_t) trainer;   /* of each item */
	ARRAY(struct placed) pair; /* of one tensor for one rank */
	struct error *error;
};

static int no_memory(const struct maker *m)
{
	return memory_error(m->error, "listing what to route", sizeof(struct unit));
}

static int tell(const struct maker *m, const struct placed *placed)
{
	struct balanced *b = m->b;
	const struct unit *unit = &placed->unit;
	const struct holder_set *set = &b->units->sets[unit->holders];
	uint32_t count = b->problem->trainer_count;
	uint64_t *loads = pool_array(&b->pool, count, sizeof(*loads));
	char bytes[TEXT_SHORT_BYTES];
	uint64_t figure = 0;

	if (!loads)
		return memory_error(m->error, "explaining a choice", count * sizeof(*loads));
	for (size_t p = 0; p < b->parts.count; p++) {
		const struct part *part = &b->parts.items[p];
		const struct share *share = &b->shares.items.items[part->share];

		loads[part->trainer] += share->row_bytes * share->targets * (part->hi - part->lo);
	}
	loads[placed->trainer] -= unit->bytes;
	for (size_t s = b->bound.share_first[unit->holders];
	     s < b->bound.share_first[unit->holders + 1]; s++)
		if (b->bound.shares[s].trainer == placed->trainer)
			figure += b->bound.shares[s].bytes;
	return explain_add(b->options->explain, unit, set, loads, placed->trainer, m->error,
			   "%s; a plan at the bound gives trainer %" PRIu32 " in all %s"
			   " bytes of what these %" PRIu32 " hold, and loads are those of the "
			   "finished plan without this",
			   placed->cut
				   ? "the pair is cut where one trainer's part ends, and at 32 MiB"
				   : "all ranks that want these bytes get them from one trainer",
			   placed->trainer, grouped_text(figure, bytes), set->count);
}

static int put(struct maker *m, const struct unit *unit, uint32_t trainer, bool cut)
{
	return array_add(&m->pair, (struct placed){*unit, m->pair.count, trainer, cut})
		       ? 0
		       : no_memory(m);
}

/* Is a piece of the unit cut there? Then others want only one side of it, and what is sent to
 * them is prepared for this rank too. */
static bool cuts_piece(const struct problem *problem, const struct unit *unit, uint64_t row)
{
	const struct problem_layout *layout =
		&problem->layouts[problem->inference_layout[unit->inference]];

	for (uint32_t p = layout->pieces_of[unit->tensor]; p < layout->pieces_of[unit->tensor + 1];
	     p++)
		if (layout->pieces[p].src.lo[0] < row && layout->pieces[p].src.hi[0] > row)
			return true;
	return false;
}

/* Rows of a part that one route takes: all, or an equal share of what is too much for one, at the
 * grain of the tensor. All targets of the part are cut alike, so it is still prepared once. */
static uint64_t rows_of_route(const struct share *share, const struct part *part)
{
	uint64_t grain = share->grain;
	uint64_t rows = part->hi - part->lo, most = BALANCED_ROUTE_BYTES / share->row_bytes, count;

	most = most > grain ? most / grain * grain : grain;
	count = (rows + most - 1) / most;
	return count < 2 ? rows : ((rows + count - 1) / count + grain - 1) / grain * grain;
}

/* A unit's shares, and their parts, ascending: neighbours of one trainer stay together if no
 * piece crosses the border between them. Rows that no piece has belong to what comes before. */
static int put_unit(struct maker *m, size_t u)
{
	const struct shares *shares = &m->b->shares;
	const struct unit *whole = &m->b->units->items[u];
	const struct recipe *recipe = &shares->recipes.items[shares->recipe_of[u]];
	struct unit unit = *whole;
	uint32_t trainer = UINT32_MAX;
	int rc = 0;

	unit.bytes = 0;
	for (size_t k = recipe->first; !rc && k < recipe->first + recipe->count; k++) {
		const struct share *share = &shares->items.items[shares->steps.items[k]];
		const struct part *parts = &m->b->parts.items[share->part_first];

		for (uint32_t p = 0; !rc && p < share->part_count; p++) {
			uint64_t step = rows_of_route(share, &parts[p]), hi;

			for (uint64_t lo = parts[p].lo; !rc && lo < parts[p].hi; lo = hi) {
				hi = lo + step < parts[p].hi ? lo + step : parts[p].hi;
				if (unit.bytes && (parts[p].trainer != trainer ||
						   cuts_piece(m->b->problem, whole, lo))) {
					unit.hi = lo;
					rc = put(m, &unit, trainer, true);
					unit.lo = lo;
					unit.bytes = 0;
				}
				trainer = parts[p].trainer;
				unit.bytes += share->row_bytes * (hi - lo);
			}
		}
	}
	unit.hi = whole->hi;
	return rc ? rc : put(m, &unit, trainer, unit.lo != whole->lo);
}

static int by_first_row(const void *x, const void *y)
{
	const struct placed *a = x, *b = y;

	return compare_u64(a->unit.lo, b->unit.lo) ?: compare_u64(a->number, b->number);
}

/* Where cells are cut, a part of one stands behind the next one's beginning. */
static void sort_pair(struct maker *m)
{
	for (size_t i = 1; i < m->pair.count; i++)
		if (m->pair.items[i].unit.lo < m->pair.items[i - 1].unit.lo) {
			sort_items(m->pair.items, m->pair.count, by_first_row);
			return;
		}
}

/* Units from..to: of one tensor for one rank. */
static int put_pair(struct maker *m, size_t from, size_t to)
{
	int rc = 0;

	m->pair.count = 0;
	for (size_t u = from; !rc && u < to; u++)
		rc = put_unit(m, u);
	if (!rc)
		sort_pair(m);
	for (size_t i = 0; !rc && i < m->pair.count; i++) {
		const struct placed *placed = &m->pair.items[i];

		if (!array_add(&m->items, placed->unit) || !array_add(&m->trainer, placed->trainer))
			rc = no_memory(m);
		else if (explain_wants(m->b->options->explain, &placed->unit))
			rc = tell(m, placed);
	}
	return rc;
}

static int make_units(struct balanced *b, uint32_t **trainer, struct error *error)
{
	struct maker m = {.b = b, .error = error};
	const struct unit *whole = b->units->items;
	int rc = 0;

	for (size_t from = 0, to; !rc && from < b->units->count; from = to) {
		for (to = from; to < b->units->count && whole[to].tensor == whole[from].tensor &&
				whole[to].inference == whole[from].inference;
		     to++)
			;
		rc = put_pair(&m, from, to);
	}
	array_free(&m.pair);
	if (rc) {
		array_free(&m.items);
		array_free(&m.trainer);
		return rc;
	}
	memory_free(b->units->items);
	memory_free(*trainer);
	b->units->items = m.items.items;
	b->units->count = m.items.count;
	*trainer = m.trainer.items;
	return 0;
}

int balanced_assign(const struct problem *problem, const struct plan_options *options,
		    struct units *units, uint32_t **trainer, struct error *error)
{
	struct balanced b = {.problem = problem, .options = options, .units = units};
	int rc = cut_at_shards(problem, units, error);

	if (!rc && options->sessions_max)
		return balanced_sessions(problem, options, units, trainer, error);
	if (!rc)
		rc = balanced_shares(&b.shares, problem, units, error);
	if (!rc)
		rc = balanced_lay(&b, error);
	if (!rc)
		rc = balanced_search(&b, error);
	if (!rc)
		rc = make_units(&b, trainer, error);
	balanced_shares_fini(&b.shares);
	bound_fini(&b.bound);
	limits_fini(&b.limits);
	topology_free(&b.flat);
	pool_free(&b.pool);
	array_free(&b.parts);
	return rc;
}

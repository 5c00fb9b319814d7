/* SPDX-License-Identifier: Apache-2.0
 *
 * unit.h -- what a policy decides about: a pair (tensor, inference rank), or, where no trainer
 * holds all that the pair needs, one shard of the pair. Units come in decision order: tensors
 * in checkpoint order, inference ranks ascending, rows ascending.
 *
 *   tensor rows   0 ........ 8 ........ 16 ........ 24
 *   held          [ shard 0  )[ shard 1  )[ shard 2  )      borders: 0, 8, 16, 24
 *   pair wants          [4 ....... 12)                      units: rows 4..8 and 8..12
 *
 * Borders are those of all holdings of the tensor together, so between two borders every
 * trainer holds all or nothing, and a unit always lies in one box of each holder's. Where shards are no whole rows, the rows
 * between two borders are cut again, into cells, unless one trainer has all that the pair wants of them:
 *
 *   columns       0 ...... 8 ...... 16
 *   rows 0..8     [ cell 0  )[ cell 1  )      pair wants columns 4..12 of both: a unit a cell
 *   rows 8..16    [ cell 2  )[ cell 3  )
 *
 * A pair that is transformed into blocks is cut only between them, and who holds a tensor in blocks
 * is who holds its scales too (else ERROR_UNSOURCED). Holder sets are interned: `holders` indexes a
 * list of distinct ascending trainer lists.
 *
 * Where the job lists several transports, a unit's holders are those that reach its inference rank. If nobody
 * that holds all of a pair does, all pairs are cut at the shards; a unit that still nobody reaches keeps its
 * holders, and table_unreached finds its route.
 */
#ifndef ROUTING_PLAN_UNIT_H
#define ROUTING_PLAN_UNIT_H

#include "routing/plan/problem.h"

#define UNIT_FULL UINT32_MAX

struct unit {
	uint32_t tensor, inference;
	uint32_t holders;     /* index of the holder set */
	uint32_t cell;        /* index of the box, whose columns it takes; UNIT_FULL: all there are */
	uint64_t lo, hi;      /* rows of the tensor that this unit takes from a holder: its
				 pieces are the pair's, cut to these rows (unit_cut) */
	uint64_t bytes;
};

struct holder_set {
	const uint32_t *trainers; /* ascending */
	uint32_t count;
};

struct units {
	struct unit *items;
	size_t count;
	struct holder_set *sets;
	size_t set_count;
	uint32_t *set_storage;
	struct box *cells;    /* that units name: where trainers' shards are no whole rows */
	size_t cell_count;
	uint32_t *kind;       /* by inference rank: equal ones have the same units of the same holders */
	size_t kind_count;
};

/* The part of a pair's piece in rows [lo, hi) of the unit; false when empty. */
bool unit_cut(const struct units *units, const struct unit *unit, uint64_t lo, uint64_t hi,
	      const struct piece *piece, struct piece *out);

int units_build(struct units *units, const struct problem *problem, struct error *error);
/* The same, and every pair is cut at every border of a shard, even where one trainer holds all
 * of it: what routing could do if it liked. */
int units_build_cut(struct units *units, const struct problem *problem, struct error *error);
/* For the bound, where pairs may be cut at will: only the holder sets (no items), and for each
 * the bytes that exactly these trainers can send (memory_free). */
int units_weigh(struct units *units, uint64_t **set_bytes, const struct problem *problem,
		struct error *error);
void units_fini(struct units *units);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * unit_builder.h -- inside unit*.c: what the steps from holdings to units hand to each other, one
 * tensor after the other.
 *
 *   holdings ──► segments ──► cells ──► shares of each distinct layout ──► units of each rank ──► who reaches it
 *        unit_segment.c  unit_cell.c       unit_share.c                        unit.c            unit_reach.c
 */
#ifndef ROUTING_PLAN_UNIT_BUILDER_H
#define ROUTING_PLAN_UNIT_BUILDER_H

#include "base/array.h"
#include "routing/plan/unit.h"

#define UNIT_BYTES_MAX (UINT64_C(1) << 62)

/* Rows of the tensor between two borders, and the distinct holdings that have them, or some columns of them. */
struct unit_segment {
	uint64_t lo, hi;
	size_t first; /* into builder.members */
	uint32_t count;
	size_t cell_first; /* into builder.cells */
	uint32_t cell_count; /* 0: each of them has whole rows */
};

/* A part of a segment's rows that every trainer holds all or nothing of. */
struct unit_cell {
	struct box box;
	size_t first; /* into builder.members */
	uint32_t count;
	uint32_t published; /* index into builder.boxes, plus 1; 0: no unit names it */
};
#define UNIT_CELLS_MAX (16u << 20) /* of one tensor: shards that are cut like that are no trainer's */

/* A range of rows that one distinct holding has. */
struct unit_source {
	uint64_t lo, hi;
	uint32_t holding;
	const struct box *box; /* that they are of; NULL: whole rows */
};

/* Part of a pair: what one unit is, without the inference rank. */
struct unit_share {
	uint64_t lo, hi, bytes;
	uint32_t set, cell;
};

/* An interned set: distinct holdings, ascending. Equal holdings have equal trainers, so sets of
 * holdings are as good as sets of trainers, and much shorter. */
struct unit_key {
	size_t first; /* into builder.key_members */
	uint32_t count;
};

struct unit_builder {
	const struct problem *problem;
	bool cut;  /* always at every border */
	bool list; /* make items */
	ARRAY(struct unit_source) sources;
	ARRAY(struct unit_segment) segments;
	ARRAY(struct unit_cell) cells;
	ARRAY(struct box) boxes; /* of cells that units name */
	ARRAY(uint32_t) inside;	 /* sources, a list a level of cells */
	ARRAY(uint64_t) edges;	 /* borders of columns, the same */
	ARRAY(uint32_t) members;
	ARRAY(uint64_t) borders;
	ARRAY(struct unit_share) shares;
	ARRAY(struct unit_key) keys;
	ARRAY(uint32_t) key_members;
	ARRAY(uint32_t) scratch;
	ARRAY(uint32_t) able; /* of a share's holders: those that have the scales too */
	ARRAY(struct unit) items;
	ARRAY(uint64_t) weights;
	uint32_t *slots; /* hash of keys */
	size_t slot_count;
	struct pool pool;    /* owns what follows */
	size_t *share_first; /* by layout, and one more */
	uint64_t *ranks_of;  /* how many inference ranks have the layout */
	uint64_t total;
};

/* Pieces of one tensor that one layout wants. */
struct unit_wants {
	uint32_t layout, tensor;
	const struct piece *pieces;
	size_t count;
};

static inline int unit_no_memory(struct error *error)
{
	return memory_error(error, "listing what to route", sizeof(struct unit));
}

/* The number of that set of holdings, ascending; new or known. */
int unit_intern(struct unit_builder *b, const uint32_t *holdings, uint32_t count, uint32_t *set,
		struct error *error);
/* Replaces segments and members by those of tensor t. */
int unit_segments(struct unit_builder *b, size_t t, struct error *error);
/* unit_cell.c: of a segment with members that have not whole rows; its cells, whose members are appended to builder.members. */
int unit_cells(struct unit_builder *b, size_t t, struct unit_segment *segment, const uint32_t *sources, uint32_t count,
	       struct error *error);
/* `count` members from `first` on are sources; they become those sources' holdings, ascending, each once. How many these are. */
uint32_t unit_name_holdings(struct unit_builder *b, size_t first, uint32_t count);
/* The segment that has this row. */
size_t unit_segment_at(const struct unit_builder *b, uint64_t row);
/* Appends the shares of one layout. ERROR_UNSOURCED when rows are held, but not together. */
int unit_shares(struct unit_builder *b, const struct unit_wants *wants, struct error *error);
/* Does each trainer reach each inference rank? Always, where the job lists no transports. */
int unit_reach_all(bool *all, const struct problem *problem, struct error *error);
/* Where they do not: each unit's holder set becomes that of those who reach its inference rank, and ranks
 * get kinds. *left_out: there is a unit that nobody of them reaches; it keeps them all. */
int unit_reach(struct units *units, const struct problem *problem, bool *left_out,
	       struct error *error);
void unit_builder_fini(struct unit_builder *b);

#endif

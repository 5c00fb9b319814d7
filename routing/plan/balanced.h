/* SPDX-License-Identifier: Apache-2.0
 *
 * balanced.h -- what the steps of the policy `balanced` hand to each other:
 *
 *   units ──► shares ──► line, cut at each trainer's part of the bound ──► parts ──► units
 *             balanced_share.c   balanced_line.c     balanced_search.c     balanced.c
 *                                balanced_keep.c
 *
 * A share is the same rows of one tensor for all inference ranks that want exactly those bytes:
 * prepared once, written many times. It is decided as a whole, or cut at rows into parts; so no
 * byte is prepared twice.
 */
#ifndef ROUTING_PLAN_BALANCED_H
#define ROUTING_PLAN_BALANCED_H

#include "base/array.h"
#include "routing/plan/limits.h"
#include "routing/plan/table.h"

/* To one target: larger parts become several routes of one trainer, so that no send order has to
 * fill one inference rank's queue while the others' run dry. */
#define BALANCED_ROUTE_BYTES (UINT64_C(32) << 20)

struct share {
	uint32_t tensor, holders;
	uint32_t targets;         /* inference ranks */
	uint32_t first_target;    /* the lowest */
	uint64_t lo, hi;          /* rows of the tensor */
	uint64_t row_bytes;       /* of one row, to one target; rounded up where rows share scales */
	uint64_t grain;           /* rows between two places where it may be cut */
	uint32_t stripe;          /* of the line */
	size_t columns_first;     /* into shares.columns: what the rows are cut to */
	uint32_t column_count;
	uint32_t part_count;
	size_t part_first;        /* into parts, by rows */
};

struct part {
	uint64_t lo, hi;
	uint32_t share, trainer;
};

/* Ranks of one kind (unit.h) cut the units of one tensor alike. */
struct recipe {
	size_t first;   /* into steps */
	uint32_t count;
};

struct shares {
	ARRAY(struct share) items;
	ARRAY(struct recipe) recipes;
	ARRAY(uint32_t) steps;   /* shares that a unit consists of, by rows */
	ARRAY(uint32_t) columns;
	uint32_t *recipe_of;     /* by unit */
};

struct balanced {
	const struct problem *problem;
	const struct plan_options *options;
	struct units *units;
	struct pool pool;        /* owns line, set_bytes, limit_bytes and scratch */
	struct shares shares;
	uint32_t *line;          /* shares: sets of holders one after the other */
	uint64_t *set_bytes;     /* by holder set */
	struct topology *flat;   /* ours, when the plan has none */
	struct limits limits;
	struct bound bound;
	uint64_t *limit_bytes;   /* what passes each limit, in this plan */
	ARRAY(struct part) parts;
	bool kept;               /* they are those of a plan that follows another one */
};

static inline uint64_t share_bytes(const struct share *share)
{
	return share->row_bytes * (share->hi - share->lo) * share->targets;
}

/* Rows between two places where a tensor may be cut: 1, or a block of quantisation. */
static inline uint64_t row_grain(enum dtype dtype)
{
	return dtype == DTYPE_F8_E4M3 || dtype == DTYPE_F8_E5M2 ? 128 : 1;
}

/* More rows than any tensor has: not to be cut. */
#define BALANCED_WHOLE (UINT64_C(1) << 62)

/* Rows between two places where a piece of blocks of b rows may be cut too: the least
 * common multiple. */
static inline uint64_t common_grain(uint64_t a, uint64_t b)
{
	uint64_t x = a, y = b, all;

	while (y) {
		uint64_t rest = x % y;

		x = y;
		y = rest;
	}
	return __builtin_mul_overflow(a / x, b, &all) || all > BALANCED_WHOLE ? BALANCED_WHOLE
									      : all;
}

/* Where pieces of this tensor and layout may be cut. What is transformed in blocks is cut between
 * them, and a copy of fp8 between those of 128 rows that most checkpoints have. */
static inline uint64_t pieces_grain(const struct problem *problem,
				    const struct problem_layout *layout, uint32_t tensor)
{
	uint64_t grain = row_grain(problem->tensors[tensor].dtype);

	for (uint32_t p = layout->pieces_of[tensor]; p < layout->pieces_of[tensor + 1]; p++)
		grain = common_grain(grain, transform_grain_rows(&layout->pieces[p].transform));
	return grain;
}

int balanced_shares(struct shares *shares, const struct problem *problem,
		    const struct units *units, struct error *error);
void balanced_shares_fini(struct shares *shares);
/* Once there are parts: in their place those of the plan before, as far as can be; or, and `kept` is false, they stay. */
int balanced_keep(struct balanced *b, const struct table *before, struct error *error);
/* Fills line, bound and parts. */
int balanced_lay(struct balanced *b, struct error *error);
/* Moves and swaps parts, from the limit that is passed longest. */
int balanced_search(struct balanced *b, struct error *error);
/* The plan under options->sessions_max: replaces units->items and *trainer. */
int balanced_sessions(const struct problem *problem, const struct plan_options *options,
		      struct units *units, uint32_t **trainer, struct error *error);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * table.h -- a routing table: all routes of a problem in one canonical order (tensor order,
 * inference rank, first source row), each with its pieces; and its digest.
 */
#ifndef ROUTING_PLAN_TABLE_H
#define ROUTING_PLAN_TABLE_H

#include "routing/plan/problem.h"
#include "routing/plan/topology.h"
#include "routing/plan/unit.h"

struct explain;
struct order;

/* A piece of a route: as the layout's, or the part of it that lies in one shard. */
struct route_piece {
	uint32_t param;     /* index into the layout of the route's inference rank */
	struct box src;
	uint64_t offset, bytes;
	enum route_path path;
	uint32_t transformed; /* index into the problem's `transformed` */
	struct spread spread; /* of its bytes in the parameter */
};

struct route {
	uint32_t tensor, trainer, inference;
	uint32_t piece_count;
	uint64_t piece_first;      /* into table.pieces */
	uint64_t bytes;
};

/* Of a plan that follows another one: what another trainer sends than before, of what was sent before. */
struct table_moved {
	bool follows;
	uint64_t routes, bytes;
};

struct table {
	const struct problem *problem; /* borrowed */
	const char *policy, *order;    /* static names */
	const struct topology *topology; /* borrowed; NULL: flat */
	uint32_t sessions_max;         /* that it was planned under; 0: any */
	struct route *routes;
	size_t route_count;
	struct route_piece *pieces;
	size_t piece_count;
	struct table_moved moved;      /* follows: as much as could be of the plan before was kept */
	struct digest digest;          /* of labels, policy and routes; set by table_plan */
};

/* All that a plan depends on beside the problem. A zeroed struct is the default. */
struct plan_options {
	const struct topology *topology; /* borrowed by the table; NULL: flat */
	const struct order *order;       /* NULL: ORDER_DEFAULT */
	uint32_t sessions_max;           /* inference ranks one trainer may write to; 0: any */
	const struct table *before;      /* the plan that this one follows, of which policies that can keep what they can; NULL: none */
	struct explain *explain;         /* NULL: not asked (explain.h) */
};

/* Decides every unit; pure and deterministic: ties by rule, never by address or hash order.
 * On entry *trainer has units->count entries; trainer[i] gets the sender of units->items[i].
 * A policy that cuts units replaces units->items and *trainer (memory_free the old): the new
 * items tile the old ones exactly, in the same canonical order (tensor, inference rank, lo),
 * with holder sets of `units`. options is never NULL. */
typedef int policy_assign(const struct problem *problem, const struct plan_options *options,
			  struct units *units, uint32_t **trainer, struct error *error);

enum policy_keeps {
	KEEPS_NOTHING,        /* it decides by a rule that knows nothing of balance */
	KEEPS_UNITS,          /* it balances bytes of whole units: keep.h */
	KEEPS_PARTS           /* it cuts them, and keeps by itself what it can of options->before, but for sessions_max */
};

struct policy {
	const char *name;
	const char *rule;  /* one sentence, for --help and dumps */
	policy_assign *assign;
	bool limits_sessions; /* obeys sessions_max; others refuse it (ERROR_USAGE) */
	enum policy_keeps keeps; /* what a plan that follows another one keeps of its routes */
};

#define POLICY_DEFAULT "greedy"

/* Rows in one table; NULL when unknown. */
const struct policy *policy_find(const char *name);
const struct policy *policy_list(size_t *count);
/* ERROR_USAGE lists the known ones; `flag` is how the user said it ("--policy"). */
int policy_named(const struct policy **policy, const char *flag, const char *name,
		 struct error *error);

/* Can this policy plan with these options? ERROR_USAGE says which flag to change. */
int plan_options_check(const struct policy *policy, const struct plan_options *options,
		       struct error *error);

/* Units -> policy -> routes -> proof -> digest. A table that the proof refuses is never
 * returned. options NULL: the defaults. */
int table_plan(struct table **table, const struct problem *problem, const struct policy *policy,
	       const struct plan_options *options, struct error *error);
void table_free(struct table **table);
/* Between planning and proof: in jobs whose trainers hold boxes that are no whole rows, pieces of less than MERGE_BYTES
 * land, and so go out many to a write, where one trainer has MERGE_PIECES_MIN of them or more for one inference rank whose memory it
 * does not map, or has a window there anyway (merge.c). */
int table_merge(struct table *table, struct error *error);
/* A trainer and an inference rank. */
static inline uint64_t table_pair(const struct route *route)
{
	return (uint64_t)route->trainer << 32 | route->inference;
}
/* The first route between two that no transport of a list connects, or route_count. */
size_t table_unreached(const struct table *table);

/* The proof (docs/routing.md), independent of how the table was made: every byte of every
 * parameter that has a source is written exactly once, in bounds, from the right box, by a
 * trainer that holds it. ERROR_UNPROVED names the first violated byte. */
int table_prove(const struct table *table, struct error *error);

/* Recomputes the digest over labels, policy and routes (docs/routing.md has the exact bytes). */
struct digest table_digest(const struct table *table);

#endif

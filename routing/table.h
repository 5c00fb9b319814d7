/* SPDX-License-Identifier: Apache-2.0
 *
 * table.h -- a routing table: all routes of a problem in one canonical order (tensor order,
 * inference rank, first source row), each with its pieces; and its digest.
 */
#ifndef ROUTING_TABLE_H
#define ROUTING_TABLE_H

#include "routing/problem.h"
#include "routing/unit.h"

/* A piece of a route: as the layout's, or the part of it that lies in one shard. */
struct route_piece {
	uint32_t param;     /* index into the layout of the route's inference rank */
	struct box src;
	uint64_t offset, bytes;
	enum route_how how;
};

struct route {
	uint32_t tensor, trainer, inference;
	uint32_t piece_count;
	uint64_t piece_first;      /* into table.pieces */
	uint64_t bytes;
};

struct table {
	const struct problem *problem; /* borrowed */
	const char *policy;            /* static name */
	struct route *routes;
	size_t route_count;
	struct route_piece *pieces;
	size_t piece_count;
	struct digest digest;          /* of labels, policy and routes; set by table_plan */
};

struct policy {
	const char *name;
	const char *rule;  /* one sentence, for --help and dumps */
	/* Fills trainer[i] for every item of units (see unit.h); pure. */
	int (*assign)(const struct problem *problem, const struct units *units,
		      uint32_t *trainer, struct error *error);
};

/* Rows in one table; NULL when unknown. */
const struct policy *policy_find(const char *name);
const struct policy *policy_list(size_t *count);

/* Units -> policy -> routes -> proof -> digest. A table that the proof refuses is never
 * returned. */
int table_plan(struct table **table, const struct problem *problem, const struct policy *policy,
	       struct error *error);
void table_free(struct table **table);

/* The proof (DESIGN section 7), independent of how the table was made: every byte of every
 * parameter that has a source is written exactly once, in bounds, from the right box, by a
 * trainer that holds it. ERROR_UNPROVED names the first violated byte. */
int table_prove(const struct table *table, struct error *error);

/* Recomputes the digest over labels, policy and routes (docs/routing.md has the exact bytes). */
struct digest table_digest(const struct table *table);

/* Send order: trainer's own routes tensor by tensor (so that a box packed once is written to all
 * its targets in a row), the targets of each tensor rotated by the trainer's rank (so that
 * senders do not gang up on one receiver). Returns indexes into table.routes; memory_free. */
int table_send_order(const struct table *table, uint32_t trainer, uint32_t **routes,
		     size_t *count, struct error *error);

#endif

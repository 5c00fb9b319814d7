/* SPDX-License-Identifier: Apache-2.0
 *
 * dump_read.h -- a routing dump as data again, and the verdict about it.
 *
 * Reading is strict: unknown, missing and repeated keys, numbers out of range, names that mean
 * nothing, lists of the wrong length and text after the end are errors that say where. Any legal
 * JSON layout of the same content is read: pretty printed, keys in any order (a pipe wants the
 * routes after labels and ranks). What a dump claims is only checked against a job by
 * dump_verify.
 */
#ifndef ROUTING_REPORT_DUMP_READ_H
#define ROUTING_REPORT_DUMP_READ_H

#include "base/pool.h"
#include "job/strmap.h"
#include "routing/report/dump.h"
#include "routing/report/report.h"

#define DUMP_BYTES_MAX (UINT64_C(1) << 36) /* of a dump file that is read */

struct dump_rank {
	uint32_t engine, engine_rank;
};
/* Of a problem's inference rank. */
struct dump_rank rank_in_engine(const struct problem *problem, uint32_t inference);

struct dump {
	struct pool pool; /* of labels and ranks */
	struct plan_labels labels;   /* what they point at is the dump's */
	struct topology *topology;   /* NULL: flat */
	struct dump_rank *inference; /* by inference rank */
	bool has_routes;             /* false: a dump of the summary alone */
	struct names names;          /* of tensors and parameters: each once */
	struct strmap known;         /* name -> index into names */
	/* as in a problem, but `scales` indexes names, and there may be equal ones */
	struct problem_transformed *transformed;
	size_t transformed_count, transformed_capacity;
	/* as in a table, but `tensor` and `param` index names, and `transformed` this dump's */
	struct route *routes;
	size_t route_count, route_capacity;
	struct route_piece *pieces;
	size_t piece_count, piece_capacity;
	struct report report;
};

/* ERROR_FILE with the place in the text; `name` stands for the file in messages. */
int dump_parse(struct dump **dump, const char *text, size_t bytes, const char *name,
	       struct error *error);
/* Holds the compact arrays and a chunk of the file: some 140 bytes a route of one piece. */
int dump_open(struct dump **dump, const char *path, struct error *error);

/* Route by route, in the order of the file, holding one route and the names. `head` has the
 * labels and ranks (not yet order, topology, summary and digest); a route's tensor and its
 * pieces' params index head->names; all of it is borrowed for the call. The route's piece_first
 * is 0: `pieces` are its own. An error ends the reading and is returned as it is. */
struct dump_visitor {
	int (*head)(void *context, const struct dump *head, struct error *error); /* may be NULL */
	int (*route)(void *context, const struct dump *head, const struct route *route,
		     const struct route_piece *pieces, struct error *error);
	void *context;
};
/* (head->made has what the route's pieces need; it is another for the next route.)
 * Afterwards *dump has all but the routes (route_count is 0; has_routes as in the file). What
 * follows the routes is checked after they were visited. */
int dump_visit(struct dump **dump, const char *path, const struct dump_visitor *visitor,
	       struct error *error);
/* The same data from a table, as if it had been written and read. */
int dump_of(struct dump **dump, const struct table *table, struct error *error);
void dump_free(struct dump **dump);

/* The dump's routes as a table of `problem`. The problem takes the dump's label for the model
 * (the same model may lie in a folder of another name) and its facts for `how` (which ranks are
 * mapped, which trainers registered: the labels do not say). Errors name what the problem does
 * not have. The dump must outlive the table. */
int dump_table(struct table **table, const struct dump *dump, struct problem *problem,
	       struct error *error);

/* Proof, digest, summary; the first thing that is wrong, by name (ERROR_UNPROVED). */
int dump_verify(const struct dump *dump, struct problem *problem, struct error *error);

#endif

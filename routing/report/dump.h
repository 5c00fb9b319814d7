/* SPDX-License-Identifier: Apache-2.0
 *
 * dump.h -- the routing table as JSON, schema weft.routing/1, stable byte for byte.
 */
#ifndef ROUTING_REPORT_DUMP_H
#define ROUTING_REPORT_DUMP_H

#include "routing/report/report.h"
#include <stdio.h>

enum dump_part { DUMP_WHOLE, DUMP_SUMMARY_ONLY };

#define DUMP_SCHEMA "weft.routing/1"

/* What a plan is called, and between whom it is: of a table or of a dump, and no longer than that
 * lives. */
struct plan_labels {
	const char *policy, *order, *model, *train, *infer;
	uint32_t sessions_max;           /* that it was planned under; 0: any */
	uint32_t trainer_count, inference_count;
	const uint32_t *trainer_stage;
	const bool *trainer_away, *inference_away; /* who has no part in it; NULL: all have */
	struct table_moved moved;
	const struct topology *topology; /* NULL: flat */
	const struct pairs *pairs;       /* NULL: one transport for all */
	struct digest digest;
};

struct dump;
struct plan_labels table_labels(const struct table *table);

/* Writes what it is given, and computes nothing: the table, and its report (report_of) under the key
 * "summary". The caller checks ferror. */
void dump_write(FILE *stream, const struct table *table, const struct report *report,
		enum dump_part part);
/* The same from a dump, byte for byte, whatever layout it was read from; the caller checks
 * ferror. */
void dump_put(FILE *stream, const struct dump *dump, enum dump_part part);
/* To a file, whole or not at all. */
int dump_save(const char *path, const struct table *table, const struct report *report,
	      enum dump_part part, struct error *error);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * dump.h -- the routing table as JSON, schema weft.routing/1, stable byte for byte.
 */
#ifndef ROUTING_REPORT_DUMP_H
#define ROUTING_REPORT_DUMP_H

#include "routing/plan/table.h"
#include <stdio.h>

enum dump_part { DUMP_WHOLE, DUMP_SUMMARY_ONLY };

#define DUMP_SCHEMA "weft.routing/1"

/* Writes the dump to a stream; the caller checks ferror. The summary includes the same figures
 * for round-robin under the key "round_robin". */
int dump_write(FILE *stream, const struct table *table, enum dump_part part,
	       struct error *error);
/* The same from a dump, byte for byte, whatever layout it was read from; the caller checks
 * ferror. */
struct dump;
void dump_put(FILE *stream, const struct dump *dump, enum dump_part part);
/* To a file, whole or not at all. */
int dump_save(const char *path, const struct table *table, struct error *error);

#endif

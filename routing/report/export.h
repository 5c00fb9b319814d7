/* SPDX-License-Identifier: Apache-2.0
 *
 * export.h -- a routing dump in other forms. A row a format; each is a function of the dump
 * alone, so its text is the same on every run and machine (no clock, no locale, no addresses).
 */
#ifndef ROUTING_REPORT_EXPORT_H
#define ROUTING_REPORT_EXPORT_H

#include "routing/report/dump_read.h"
#include <stdio.h>

/* Who sends how much to whom: of ranks, or of what ranks are drawn as. */
struct export_cell {
	uint32_t from, to;
	uint64_t bytes, routes;
};
/* Sorts, and adds those of equal ends up; how many are left. */
size_t export_merge(struct export_cell *cells, size_t count);

struct export_format {
	const char *name, *what; /* for --help */
	/* The caller checks ferror. Every format needs the dump's routes: they are there. */
	int (*write)(FILE *stream, const struct dump *dump, struct error *error);
	/* Formats of one route a line also come apart, so that a file is exported without holding
	 * its routes: `begin` once (NULL: nothing), `route` for each, with the dump's head (labels
	 * and ranks). NULL: the whole dump is needed. */
	int (*begin)(FILE *stream, const struct dump *head, struct error *error);
	int (*route)(FILE *stream, const struct dump *head, const struct route *route,
		     const struct route_piece *pieces, struct error *error);
	/* With a second plan of the same job beside the first. NULL: a format of one plan. */
	int (*beside)(FILE *stream, const struct dump *dump, const struct dump *beside,
		      struct error *error);
};

/* Rows in one table; NULL when unknown. */
const struct export_format *export_find(const char *name);
const struct export_format *export_list(size_t *count);
/* ERROR_USAGE lists the known ones; `flag` is how the user said it ("--format"). */
int export_named(const struct export_format **format, const char *flag, const char *name,
		 struct error *error);

/* The rows' functions. */
int export_csv_begin(FILE *stream, const struct dump *head, struct error *error);
int export_csv_route(FILE *stream, const struct dump *head, const struct route *route,
		     const struct route_piece *pieces, struct error *error);
int export_jsonl_route(FILE *stream, const struct dump *head, const struct route *route,
		       const struct route_piece *pieces, struct error *error);
/* Of Graphviz, between quotes. */
void export_quoted(FILE *stream, const char *value);
int export_dot(FILE *stream, const struct dump *dump, struct error *error);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/report/export.h"

#include "base/array.h"
#include "base/compare.h"
#include "base/text.h"
#include "routing/report/dump.h"
#include "routing/report/export_html.h"
#include <string.h>

static int by_ends(const void *x, const void *y)
{
	const struct export_cell *a = x, *b = y;

	return compare_u64(a->from, b->from) ?: compare_u64(a->to, b->to);
}

size_t export_merge(struct export_cell *cells, size_t count)
{
	size_t kept = 0;

	sort_items(cells, count, by_ends);
	for (size_t i = 0; i < count; i++) {
		if (kept && by_ends(&cells[kept - 1], &cells[i]) == 0) {
			cells[kept - 1].bytes += cells[i].bytes;
			cells[kept - 1].routes += cells[i].routes;
		} else {
			cells[kept++] = cells[i];
		}
	}
	return kept;
}

static int write_html(FILE *stream, const struct dump *dump, struct error *error)
{
	return export_html(stream, dump, NULL, NULL, error);
}

static int write_html_beside(FILE *stream, const struct dump *dump, const struct dump *beside,
			     struct error *error)
{
	return export_html(stream, dump, beside, NULL, error);
}

static int write_json(FILE *stream, const struct dump *dump, struct error *error)
{
	dump_put(stream, dump, DUMP_WHOLE);
	return 0;
}

static int write_jsonl(FILE *stream, const struct dump *dump, struct error *error)
{
	int rc = 0;

	for (size_t r = 0; !rc && r < dump->route_count; r++)
		rc = export_jsonl_route(stream, dump, &dump->routes[r],
					dump->pieces + dump->routes[r].piece_first, error);
	return rc;
}

static int write_csv(FILE *stream, const struct dump *dump, struct error *error)
{
	int rc = export_csv_begin(stream, dump, error);

	for (size_t r = 0; !rc && r < dump->route_count; r++)
		rc = export_csv_route(stream, dump, &dump->routes[r],
				      dump->pieces + dump->routes[r].piece_first, error);
	return rc;
}

static const struct export_format formats[] = {
	{"json", "the routing dump itself, in its canonical form", write_json, NULL, NULL, NULL},
	{"csv", "one route a line, under a row of column names", write_csv, export_csv_begin,
	 export_csv_route, NULL},
	{"jsonl", "one route a line, each a JSON object", write_jsonl, NULL, export_jsonl_route,
	 NULL},
	{"dot", "a Graphviz graph: who sends to whom, wider for more bytes", export_dot, NULL, NULL,
	 NULL},
	{"html", "one self-contained page: figures, heat map, loads, a searchable table",
	 write_html, NULL, NULL, write_html_beside},
};

const struct export_format *export_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(formats); i++)
		if (strcmp(formats[i].name, name) == 0)
			return &formats[i];
	return NULL;
}

const struct export_format *export_list(size_t *count)
{
	*count = ARRAY_SIZE(formats);
	return formats;
}

int export_named(const struct export_format **format, const char *flag, const char *name,
		 struct error *error)
{
	struct text known = {0};
	int rc;

	*format = export_find(name);
	if (*format)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(formats); i++)
		text_format(&known, "%s%s", i ? ", " : "", formats[i].name);
	rc = error_set(error, ERROR_USAGE, "%s %s is not known; these are: %s", flag, name,
		       text_string(&known));
	text_fini(&known);
	return rc;
}

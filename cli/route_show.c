/* SPDX-License-Identifier: Apache-2.0
 *
 * weft route show: a dump for people, without the model it was made from.
 */
#include "cli/route.h"
#include "cli/route_lines.h"
#include "cli/grid.h"
#include "cli/screen.h"
#include "cli/shown.h"
#include "base/json_write.h"

#include <inttypes.h>
#include <string.h>

struct options {
	const char *file;
	enum view_by view;
	uint64_t top;
	bool json;
};

static void take_by(void *taken, const char *argument, struct argp_state *state)
{
	struct options *options = taken;

	for (enum view_by by = BY_TRAINER; by < BY_COUNT; by++)
		if (strcmp(argument, view_by_names[by]) == 0)
			options->view = by;
	if (options->view == BY_NOTHING)
		argp_error(state,
			   "--by %s is not known; it is trainer, inference, tensor, host, nic "
			   "or transport",
			   argument);
}

static const struct verb_option rows[] = {
	TAKE(take_by, "by", "WHAT",
	     "one line for each trainer, inference, tensor, host or nic (these two of plans with "
	     "--topology), or transport (of jobs with several)"),
	NUMBER(top, "top", "N", "only the N largest (default 20; 0: all)"),
	FORMAT(json, "json", "one JSON object a line (by trainer, unless --by)"),
	{0},
};

/* ---- one line each ---- */

#define BAR_WIDTH  24
#define BAR_BESIDE 72 /* the figures, and enough of a name */

static void put_nic(struct json *json, const struct topology *topology, uint32_t index)
{
	const struct topology_nic *nic = &topology->nics[index];

	json_put_key_string(json, "host", topology->hosts[nic->host].name);
	json_put_key_string(json, "nic", nic->name);
	json_put_key_u64(json, "rail", nic->rail);
	json_put_key_u64(json, "bytes_per_second", nic->bytes_per_second);
}

static double nic_seconds(const struct dump *dump, const struct line *line)
{
	return (double)line->bytes /
	       (double)dump->labels.topology->nics[line->key].bytes_per_second;
}

static const char *peers_name(enum view_by view)
{
	return view == BY_TRAINER ? "sessions" : view == BY_TRANSPORT ? "pairs" : "trainers";
}

static void print_json(const struct dump *dump, enum view_by view, const struct line *line)
{
	struct json json;

	json_put_line(&json, stdout);
	if (view == BY_TENSOR) {
		json_put_key_string(&json, "tensor", dump->names.items[line->key]);
	} else if (view == BY_TRAINER) {
		json_put_key_u64(&json, "trainer", line->key);
		json_put_key_u64(&json, "stage", dump->labels.trainer_stage[line->key]);
	} else if (view == BY_INFERENCE) {
		json_put_key_u64(&json, "inference", line->key);
		json_put_key_u64(&json, "engine", dump->inference[line->key].engine);
		json_put_key_u64(&json, "engine_rank", dump->inference[line->key].engine_rank);
	} else if (view == BY_TRANSPORT) {
		json_put_key_string(&json, "transport", dump->labels.pairs->list.names[line->key]);
	} else if (view == BY_HOST) {
		json_put_key_string(&json, "host", dump->labels.topology->hosts[line->key].name);
	} else {
		put_nic(&json, dump->labels.topology, line->key);
	}
	json_put_key_u64(&json, "bytes", line->bytes);
	if (view == BY_HOST || view == BY_NIC) {
		json_put_key_u64(&json, "sent_bytes", line->sent);
		json_put_key_u64(&json, "received_bytes", line->received);
		if (view == BY_NIC)
			json_put_key_double(&json, "seconds", nic_seconds(dump, line));
		json_put_key_u64(&json, "ranks", line->peers);
	} else {
		json_put_key_u64(&json, "routes", line->routes);
		json_put_key_u64(&json, peers_name(view), line->peers);
	}
	json_put_line_end(&json);
}

static void add_name(struct text *text, const struct dump *dump, enum view_by view, uint32_t key)
{
	const struct topology *topology = dump->labels.topology;

	if (view == BY_TRAINER)
		text_format(text, "trainer %" PRIu32 " (stage %" PRIu32 ")", key,
			    dump->labels.trainer_stage[key]);
	else if (view == BY_INFERENCE)
		text_format(text, "inference %" PRIu32 " (engine %" PRIu32 ", rank %" PRIu32 ")",
			    key, dump->inference[key].engine, dump->inference[key].engine_rank);
	else if (view == BY_TENSOR)
		text_add(text, shown(dump->names.items[key]));
	else if (view == BY_TRANSPORT)
		text_add(text, dump->labels.pairs->list.names[key]);
	else if (view == BY_HOST)
		text_add(text, shown(topology->hosts[key].name));
	else
		text_format(text, "%s of %s", shown(topology->nics[key].name),
			    shown(topology->hosts[topology->nics[key].host].name));
}

static const char *bar(uint64_t bytes, uint64_t largest, char out[BAR_WIDTH + 1])
{
	int width = screen_width(BAR_WIDTH, BAR_BESIDE);
	uint64_t full = (uint64_t)((__uint128_t)bytes * (uint64_t)width / (largest ? largest : 1));

	memset(out, ' ', (size_t)width);
	memset(out, '#', (size_t)full);
	out[width] = '\0';
	return out;
}

static void print_line(struct grid *grid, const struct dump *dump, enum view_by view,
		       const struct line *line, uint64_t largest)
{
	bool place = view == BY_HOST || view == BY_NIC;
	char graph[BAR_WIDTH + 1];
	struct text name = {0};

	add_name(&name, dump, view, line->key);
	grid_row(grid,
		 (const char *[]){BYTES_TEXT(place ? line->sent : line->bytes),
				  place ? BYTES_TEXT(line->received)
					: grid_cell("%" PRIu64, line->routes),
				  view == BY_NIC ? grid_cell("%.3f", nic_seconds(dump, line) * 1e3)
						 : grid_cell("%" PRIu32, line->peers),
				  bar(line->bytes, largest, graph), text_string(&name)});
	text_fini(&name);
}

/* The bar and the name have no heads. */
#define FIGURES(first, second, second_width, third)                                \
	{                                                                          \
		COLUMN(first, 10), COLUMN(second, second_width), COLUMN(third, 9), \
			COLUMN(NULL, 0, .before = "  "),                           \
			COLUMN(NULL, 0, .before = "  ", .least = 24),              \
	}
#define COLUMNS 5

static const struct grid_column columns[BY_COUNT][COLUMNS] = {
	[BY_TRAINER] = FIGURES("bytes", "routes", 9, "sessions"),
	[BY_INFERENCE] = FIGURES("bytes", "routes", 9, "trainers"),
	[BY_TENSOR] = FIGURES("bytes", "routes", 9, "trainers"),
	[BY_TRANSPORT] = FIGURES("bytes", "routes", 9, "pairs"),
	[BY_HOST] = FIGURES("sent", "received", 10, "ranks"),
	[BY_NIC] = FIGURES("sent", "received", 10, "ms"),
};

static void show_lines(const struct dump *dump, const struct lines *lines,
		       const struct options *options)
{
	size_t count = lines->items.count;
	size_t lines_shown = options->top && options->top < count ? options->top : count;
	struct grid grid;

	if (!options->json)
		grid_begin(&grid, columns[lines->view], COLUMNS);
	for (size_t i = 0; i < lines_shown; i++) {
		if (options->json)
			print_json(dump, lines->view, &lines->items.items[i]);
		else
			print_line(&grid, dump, lines->view, &lines->items.items[i],
				   lines->items.items[0].bytes);
	}
	if (!options->json)
		grid_end(&grid);
	if (!options->json && lines_shown < count)
		printf("and %zu more (--top 0 shows all)\n", count - lines_shown);
}

static void show_summary(const struct dump *dump)
{
	const struct report *report = &dump->report;
	struct route_view view = {dump->labels, report,
				  report->has_certificate ? &report->certificate : NULL};

	route_print(stdout, &view);
}

static int run(void *taken, struct error *error)
{
	struct options *options = taken;
	struct dump *dump = NULL;
	struct lines lines;
	int rc;

	if (options->json && options->view == BY_NOTHING)
		options->view = BY_TRAINER;
	rc = lines_open(&lines, &dump, options->file, options->view, error);
	if (!rc && options->view)
		show_lines(dump, &lines, options);
	else if (!rc)
		show_summary(dump);
	lines_fini(&lines);
	dump_free(&dump);
	return rc;
}

const struct verb route_show_verb = {
	VERB_OF(struct options, rows),
	VERB_ARGUMENTS(struct options, file, 1, 1),
	.defaults = &(const struct options){.top = 20},
	.arguments = "FILE",
	.too_many = "'%s' is one file too many",
	.too_few = "name a routing dump: a file of `weft route plan "
		   "--output FILE` or `weft-controller --dump FILE`",
	.doc = "Shows a routing dump: its figures, or its routes by one of their ends, the largest "
	       "first. What the file says is shown as it is; `weft route verify` checks it.\v"
	       "Example:\n  weft route show plan.json --by tensor --top 10",
	.run = run,
};

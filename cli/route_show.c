/* SPDX-License-Identifier: Apache-2.0
 *
 * weft route show: a dump for people, without the model it was made from.
 */
#include "cli/command.h"
#include "cli/route.h"
#include "common/array.h"
#include "common/json_write.h"
#include "common/text.h"
#include "routing/dump_read.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { OPTION_BY = 0x100, OPTION_TOP, OPTION_JSON };

enum view_by { BY_NOTHING, BY_TRAINER, BY_INFERENCE, BY_TENSOR };

static const struct argp_option option_rows[] = {
	{"by", OPTION_BY, "WHAT", 0, "one line for each trainer, inference or tensor", 0},
	{"top", OPTION_TOP, "N", 0, "only the N largest (default 20; 0: all)", 0},
	{"json", OPTION_JSON, NULL, 0, "one JSON object a line (by trainer, unless --by)", 0},
	{0},
};

struct options {
	const char *file;
	enum view_by view;
	uint64_t top;
	bool json;
};

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
	static const char *const names[] = {
		[BY_TRAINER] = "trainer", [BY_INFERENCE] = "inference", [BY_TENSOR] = "tensor"};
	struct options *options = state->input;

	switch (key) {
	case OPTION_BY:
		for (enum view_by by = BY_TRAINER; by <= BY_TENSOR; by++)
			if (strcmp(argument, names[by]) == 0)
				options->view = by;
		if (options->view == BY_NOTHING)
			argp_error(state,
				   "--by %s is not known; it is trainer, inference or "
				   "tensor",
				   argument);
		return 0;
	case OPTION_TOP:
		if (!parse_u64(argument, &options->top))
			argp_error(state, "--top %s is not a number", argument);
		return 0;
	case OPTION_JSON:
		options->json = true;
		return 0;
	case ARGP_KEY_ARG:
		if (options->file)
			argp_error(state, "'%s' is one file too many", argument);
		options->file = argument;
		return 0;
	case ARGP_KEY_END:
		if (!options->file)
			argp_error(state, "name a routing dump: a file of `weft route plan "
					  "--output FILE` or `weft-controller --dump FILE`");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* ---- routes gathered by one of their three ends ---- */

struct line {
	uint32_t key;	/* rank, or index of a name */
	uint32_t peers; /* distinct ranks on the other side: trainers for a tensor */
	uint64_t routes, bytes;
};

struct lines {
	struct line *items;
	uint32_t count;
};

static int by_u64(const void *x, const void *y)
{
	const uint64_t *a = x, *b = y;

	return *a < *b ? -1 : *a > *b;
}

static int by_bytes(const void *x, const void *y)
{
	const struct line *a = x, *b = y;

	if (a->bytes != b->bytes)
		return a->bytes > b->bytes ? -1 : 1;
	return a->key < b->key ? -1 : a->key > b->key;
}

static int gather(struct lines *lines, const struct dump *dump, enum view_by view,
		  struct error *error)
{
	uint32_t keys = view == BY_TRAINER     ? dump->trainer_count
			: view == BY_INFERENCE ? dump->inference_count
					       : (uint32_t)dump->names.count;
	uint64_t *ends = memory_alloc(dump->route_count * sizeof(*ends)); /* key, peer */

	lines->count = 0;
	lines->items = memory_zalloc(keys, sizeof(*lines->items));
	if (!ends || !lines->items) {
		memory_free(ends);
		return memory_error(error, "sorting routes", dump->route_count * sizeof(*ends));
	}
	for (uint32_t k = 0; k < keys; k++)
		lines->items[k].key = k;
	for (size_t r = 0; r < dump->route_count; r++) {
		const struct route *route = &dump->routes[r];
		uint32_t key = view == BY_TRAINER     ? route->trainer
			       : view == BY_INFERENCE ? route->inference
						      : route->tensor;
		uint32_t peer = view == BY_TRAINER ? route->inference : route->trainer;

		lines->items[key].routes++;
		lines->items[key].bytes += route->bytes;
		ends[r] = (uint64_t)key << 32 | peer;
	}
	qsort(ends, dump->route_count, sizeof(*ends), by_u64);
	for (size_t r = 0; r < dump->route_count; r++)
		if (r == 0 || ends[r] != ends[r - 1])
			lines->items[ends[r] >> 32].peers++;
	memory_free(ends);
	for (uint32_t k = 0; k < keys; k++) /* names are of parameters too */
		if (view != BY_TENSOR || lines->items[k].routes)
			lines->items[lines->count++] = lines->items[k];
	qsort(lines->items, lines->count, sizeof(*lines->items), by_bytes);
	return 0;
}

static void print_json(const struct dump *dump, enum view_by view, const struct line *line)
{
	struct json json;

	json_to_file(&json, stdout);
	json_put_object(&json);
	if (view == BY_TENSOR) {
		json_put_key_string(&json, "tensor", dump->names.items[line->key]);
	} else if (view == BY_TRAINER) {
		json_put_key_u64(&json, "trainer", line->key);
		json_put_key_u64(&json, "stage", dump->trainer_stage[line->key]);
	} else {
		json_put_key_u64(&json, "inference", line->key);
		json_put_key_u64(&json, "engine", dump->inference[line->key].engine);
		json_put_key_u64(&json, "engine_rank", dump->inference[line->key].engine_rank);
	}
	json_put_key_u64(&json, "bytes", line->bytes);
	json_put_key_u64(&json, "routes", line->routes);
	json_put_key_u64(&json, view == BY_TRAINER ? "sessions" : "trainers", line->peers);
	json_put_object_end(&json);
	json_put_newline(&json);
}

static void print_line(const struct dump *dump, enum view_by view, const struct line *line)
{
	char bytes[TEXT_SHORT_BYTES], name[64];

	if (view == BY_TRAINER)
		snprintf(name, sizeof(name), "trainer %" PRIu32 " (stage %" PRIu32 ")", line->key,
			 dump->trainer_stage[line->key]);
	else if (view == BY_INFERENCE)
		snprintf(name, sizeof(name),
			 "inference %" PRIu32 " (engine %" PRIu32 ", rank %" PRIu32 ")", line->key,
			 dump->inference[line->key].engine, dump->inference[line->key].engine_rank);
	printf("%10s %9" PRIu64 " %9" PRIu32 "  %s\n", bytes_text(line->bytes, bytes), line->routes,
	       line->peers, view == BY_TENSOR ? dump->names.items[line->key] : name);
}

static int show_lines(const struct dump *dump, const struct options *options, struct error *error)
{
	enum view_by view = options->view ? options->view : BY_TRAINER;
	struct lines lines = {0};
	uint64_t shown;
	int rc;

	if (!dump->has_routes)
		return error_set(error, ERROR_FILE,
				 "%s has no routes to list: it was written "
				 "with --summary",
				 options->file);
	rc = gather(&lines, dump, view, error);
	if (rc) {
		memory_free(lines.items);
		return rc;
	}
	shown = options->top && options->top < lines.count ? options->top : lines.count;
	if (!options->json)
		printf("%10s %9s %9s\n", "bytes", "routes",
		       view == BY_TRAINER ? "sessions" : "trainers");
	for (uint64_t i = 0; i < shown; i++) {
		if (options->json)
			print_json(dump, view, &lines.items[i]);
		else
			print_line(dump, view, &lines.items[i]);
	}
	if (!options->json && shown < lines.count)
		printf("and %" PRIu64 " more (--top 0 shows all)\n", lines.count - shown);
	memory_free(lines.items);
	return 0;
}

static void show_summary(const struct dump *dump)
{
	struct route_view view = {
		.policy = dump->policy,
		.model = dump->model,
		.train = dump->train,
		.infer = dump->infer,
		.trainer_count = dump->trainer_count,
		.inference_count = dump->inference_count,
		.trainer_stage = dump->trainer_stage,
		.report = &dump->report,
		.digest = dump->digest,
	};

	route_print(stdout, &view);
}

int route_show_run(int argc, char **argv)
{
	static const struct argp argp = {
		option_rows,
		parse_option,
		"FILE",
		"Shows a routing dump: its figures, or its routes by one of their ends, the largest "
		"first. What the file says is shown as it is; `weft route verify` checks it.",
		NULL,
		NULL,
		NULL};
	struct options options = {.top = 20};
	struct error error = {0};
	struct dump *dump;
	int rc;

	argp_err_exit_status = 2;
	argp_parse(&argp, argc, argv, 0, NULL, &options);
	rc = dump_open(&dump, options.file, &error);
	if (!rc && (options.view || options.json))
		rc = show_lines(dump, &options, &error);
	else if (!rc)
		show_summary(dump);
	dump_free(&dump);
	if (!rc && (fflush(stdout) || ferror(stdout)))
		rc = error_set_errno(&error, ERROR_IO, errno, "cannot write to standard output");
	return rc ? command_fail(&error) : 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * weft route order: what one trainer sends, in its order. A worker of such a job posts its rows
 * like this.
 */
#include "cli/route_options.h"
#include "cli/grid.h"
#include "cli/shown.h"
#include "base/json_write.h"
#include "routing/plan/order.h"

#include <inttypes.h>

struct options {
	struct route_options route;
	uint64_t trainer, top;
	bool json;
};

static const struct verb_option rows[] = {
	NUMBER(trainer, "trainer", "N", "whose sends (default 0)"),
	NUMBER(top, "top", "N", "only the first N (default all)"),
	FORMAT(json, "json", "one object a line"),
	{0},
};

/* The rows of its tensor that a route takes, first to last. */
static void rows_of(const struct table *table, const struct route *route, uint64_t *lo,
		    uint64_t *hi)
{
	*lo = UINT64_MAX;
	*hi = 0;
	for (uint32_t p = 0; p < route->piece_count; p++) {
		const struct box *src = &table->pieces[route->piece_first + p].src;

		*lo = src->lo[0] < *lo ? src->lo[0] : *lo;
		*hi = src->hi[0] > *hi ? src->hi[0] : *hi;
	}
}

static void print_json(const struct table *table, const struct route *route, size_t position)
{
	struct json json;
	uint64_t lo, hi;

	rows_of(table, route, &lo, &hi);
	json_put_line(&json, stdout);
	json_put_key_u64(&json, "position", position);
	json_put_key_u64(&json, "trainer", route->trainer);
	json_put_key_u64(&json, "inference", route->inference);
	json_put_key_string(&json, "tensor", table->problem->tensors[route->tensor].name);
	json_put_key_range(&json, "rows", lo, hi);
	json_put_key_u64(&json, "bytes", route->bytes);
	json_put_key_u64(&json, "pieces", route->piece_count);
	json_put_key_string(&json, "how", route_path_name(table->pieces[route->piece_first].path));
	json_put_line_end(&json);
}

static const struct grid_column columns[] = {
	COLUMN("position", 8, .before = "  "),	COLUMN("inference", 9, .before = "  "),
	COLUMN("bytes", 10, .before = "  "),	COLUMN("path", -8, .before = "  "),
	COLUMN("source box", 0, .folds = true),
};

static void print_line(struct grid *grid, const struct table *table, const struct route *route,
		       size_t position)
{
	const struct route_piece *first = &table->pieces[route->piece_first];
	struct text source = {0};
	char box[128];

	text_format(&source, "%s%s", shown(table->problem->tensors[route->tensor].name),
		    box_text(&first->src, box, sizeof(box)));
	if (route->piece_count > 1)
		text_format(&source, " and %" PRIu32 " more", route->piece_count - 1);
	grid_row(grid,
		 (const char *[]){grid_cell("%zu", position),
				  grid_cell("%" PRIu32, route->inference), BYTES_TEXT(route->bytes),
				  route_path_name(first->path), text_string(&source)});
	text_fini(&source);
}

static void print_head(const struct table *table, const struct send_order *sends, uint32_t trainer)
{
	uint64_t total = 0;

	for (size_t i = sends->first[trainer]; i < sends->first[trainer + 1]; i++)
		total += table->routes[sends->routes[i]].bytes;
	printf("trainer %" PRIu32 " sends %s routes, %s: policy %s, order %s\n", trainer,
	       GROUPED_TEXT(sends->first[trainer + 1] - sends->first[trainer]), BYTES_TEXT(total),
	       table->policy, table->order);
}

static int print(const struct table *table, const struct options *options, struct error *error)
{
	uint32_t trainer = (uint32_t)options->trainer;
	struct send_order sends;
	size_t count, shown;
	struct grid grid;
	int rc;

	if (options->trainer >= table->problem->trainer_count)
		return error_set(error, ERROR_USAGE,
				 "--trainer %" PRIu64 " is not a trainer of this job, which has "
				 "%" PRIu32 ", 0 to %" PRIu32,
				 options->trainer, table->problem->trainer_count,
				 table->problem->trainer_count - 1);
	rc = order_sends(table, &sends, error);
	if (rc)
		return rc;
	count = sends.first[trainer + 1] - sends.first[trainer];
	shown = options->top && options->top < count ? (size_t)options->top : count;
	if (!options->json) {
		print_head(table, &sends, trainer);
		grid_begin(&grid, columns, ARRAY_SIZE(columns));
	}
	for (size_t i = 0; i < shown; i++) {
		const struct route *route = &table->routes[sends.routes[sends.first[trainer] + i]];

		if (options->json)
			print_json(table, route, i);
		else
			print_line(&grid, table, route, i);
	}
	if (!options->json)
		grid_end(&grid);
	if (!options->json && shown < count)
		printf("  and %zu more (leave --top out)\n", count - shown);
	send_order_fini(&sends);
	return rc;
}

static int run(void *taken, struct error *error)
{
	const struct options *options = taken;
	struct route_job job;
	int rc = route_options_plan(&job, &options->route, error);

	if (!rc)
		rc = print(job.table, options, error);
	route_job_close(&job);
	return rc;
}

const struct verb route_order_verb = {
	VERB_OF(struct options, rows),
	ROUTE_VERB,
	.doc = "What one trainer sends, in the order in which it sends.\v"
	       "Example:\n  weft route order --model Qwen2.5-0.5B --train world=4 \\\n"
	       "      --infer engines=2,tp=2 --order rounds --trainer 1 --top 20",
	.run = run,
};

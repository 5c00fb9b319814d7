/* SPDX-License-Identifier: Apache-2.0
 *
 * weft route compare: every policy on one input, one line each.
 *
 *   policy        largest trainer     gap  imbalance   prepared  x least  sessions  ..
 *   greedy                 247 MB   0.01%      1.000     988 MB     1.00         8
 */
#include "cli/route_options.h"
#include "cli/grid.h"
#include "cli/shown.h"
#include "cli/screen.h"
#include "base/clock.h"
#include "base/progress.h"
#include "base/json_write.h"
#include "routing/report/certificate.h"
#include "routing/plan/order.h"
#include "routing/lab/simulate.h"
#include "routing/report/summary.h"

#include <inttypes.h>

struct options {
	struct route_options route;
	bool times, simulate, json;
};

static const struct verb_option rows[] = {
	FLAG(simulate, "simulate",
	     "also simulate every order (or --order): seconds of an update, and the least possible as "
	     "part of them; `weft route simulate` tells more"),
	FLAG(times, "times", "also the seconds each plan took, its proof included"),
	FORMAT(json, "json", "one JSON object a line"),
	{0},
};

#define ORDERS_MAX 8

/* One policy's line. */
struct row {
	const struct policy *policy;
	struct table *table;
	struct summary summary;
	struct certificate certificate;
	uint32_t sessions; /* of the busiest trainer */
	bool too_many;	   /* more than --sessions-max: this policy cannot limit them */
	double plan_seconds;
	struct simulated {
		const struct order *order;
		double seconds, bound_seconds;
	} simulated[ORDERS_MAX];
	size_t simulated_count;
};

/* ---- one row ---- */

static void row_fini(struct row *row)
{
	summary_fini(&row->summary);
	table_free(&row->table);
}

/* An order moves no route to another trainer, so one plan serves all orders. */
static int simulate_orders(struct row *row, const struct route_job *job, bool one,
			   struct error *error)
{
	struct simulate_options options = {0};
	struct simulated_bound bound;
	size_t count;
	const struct order *orders = order_list(&count);
	int rc;

	simulate_rates_default(&options);
	rc = simulate_bound(&bound, row->table, options.stage_bytes_per_second, error);
	for (size_t o = 0; !rc && o < count && row->simulated_count < ORDERS_MAX; o++) {
		struct simulation simulation;

		if (one && &orders[o] != job->plan.order)
			continue;
		row->table->order = orders[o].name;
		progress_step("%s: simulating order %s", row->policy->name, orders[o].name);
		rc = simulate(&simulation, row->table, &options, error);
		if (rc)
			break;
		row->simulated[row->simulated_count++] =
			(struct simulated){&orders[o], simulation.makespan_seconds, bound.seconds};
		simulation_fini(&simulation);
	}
	row->table->order = job->plan.order->name;
	return rc;
}

static int row_of(struct row *row, const struct options *options, const struct route_job *job,
		  const struct policy *policy, struct error *error)
{
	struct plan_options plan = job->plan;
	uint64_t start = clock_ns();
	int rc;

	*row = (struct row){.policy = policy};
	if (!policy->limits_sessions)
		plan.sessions_max = 0; /* shown as it is, and marked where it is more */
	progress_step("planning by %s", policy->name);
	rc = table_plan(&row->table, job->problem, policy, &plan, error);
	row->plan_seconds = (double)(clock_ns() - start) / 1e9;
	if (!rc)
		rc = summary_of(&row->summary, row->table, error);
	if (!rc)
		rc = certificate_of(&row->certificate, row->table, error);
	if (!rc && options->simulate)
		rc = simulate_orders(row, job, options->route.order != NULL, error);
	progress_steps_end();
	if (rc) {
		row_fini(row);
		return error_wrap(error, "policy %s", policy->name);
	}
	row->sessions = summary_sessions_max(&row->summary, job->problem->trainer_count);
	row->too_many = job->plan.sessions_max && row->sessions > job->plan.sessions_max;
	return 0;
}

/* ---- for people ---- */

#define COLUMNS 10

static const struct grid_column figures[COLUMNS] = {
	COLUMN("policy", -21),	COLUMN("largest", 10), COLUMN("gap", 10),   COLUMN("imbalance", 9),
	COLUMN("prepared", 10), COLUMN("x least", 8),  COLUMN("routes", 9), COLUMN("sessions", 8),
	COLUMN("wire", 9),	COLUMN("of bound", 8),
};

/* Two columns an order behind the figures, and the time of planning. */
struct view {
	struct grid_column columns[COLUMNS + 2 * ORDERS_MAX + 1];
	struct grid grid;
};

static void begin_table(struct view *view, const struct options *options, const struct row *row)
{
	size_t count = COLUMNS;

	memcpy(view->columns, figures, sizeof(figures));
	for (size_t o = 0; o < row->simulated_count; o++) {
		view->columns[count++] = (struct grid_column)COLUMN(row->simulated[o].order->name,
								    9, .before = "  ");
		view->columns[count++] = (struct grid_column)COLUMN("of bound", 8);
	}
	if (options->times)
		view->columns[count++] = (struct grid_column)COLUMN("plan", 0, .before = "  ");
	grid_begin_slow(&view->grid, view->columns, count);
}

static void print_head(const struct route_job *job, const struct row *row)
{
	const struct summary *summary = &row->summary;

	printf("%s from %" PRIu32 " trainers (%s) to %" PRIu32 " inference ranks (%s)\n",
	       shown(job->problem->model), job->problem->trainer_count, shown(job->problem->train),
	       job->problem->inference_count, shown(job->problem->infer));
	printf("%s in all; no plan has a largest trainer below %s, prepares less than %s or takes "
	       "less than %s on the wire\n\n",
	       BYTES_TEXT(summary->bytes_total), BYTES_TEXT(summary->lower_bound_bytes),
	       BYTES_TEXT(summary->prepared_minimum_bytes),
	       SECONDS_TEXT((uint64_t)(row->certificate.bound_seconds * 1e9 + 0.5)));
}

static double bound_percent(const struct simulated *simulated)
{
	return simulated->seconds > 0 ? 100 * simulated->bound_seconds / simulated->seconds : 100;
}

static const char *seconds_cell(double seconds)
{
	return grid_cell("%s", SECONDS_TEXT((uint64_t)(seconds * 1e9 + 0.5)));
}

static void print_row(struct view *view, const struct options *options, const struct row *row)
{
	const struct summary *summary = &row->summary;
	const struct certificate *certificate = &row->certificate;
	double least = (double)summary->prepared_minimum_bytes;
	const char *cells[ARRAY_SIZE(view->columns)] = {
		row->policy->name,
		BYTES_TEXT(summary->makespan_bytes),
		grid_cell("%.2f%%", summary->gap * 100),
		grid_cell("%.3f", summary->imbalance),
		BYTES_TEXT(summary->prepared_bytes),
		grid_cell("%.3f", least > 0 ? (double)summary->prepared_bytes / least : 1),
		grid_cell("%" PRIu64, summary->routes),
		grid_cell("%" PRIu32 "%c", row->sessions, row->too_many ? '!' : ' '),
		seconds_cell(certificate->makespan_seconds),
		grid_cell("%.1f%%", 100 / (1 + certificate->gap)),
	};
	size_t count = COLUMNS;

	for (size_t o = 0; o < row->simulated_count; o++) {
		cells[count++] = seconds_cell(row->simulated[o].seconds);
		cells[count++] = grid_cell("%.1f%%", bound_percent(&row->simulated[o]));
	}
	if (options->times)
		cells[count++] = seconds_cell(row->plan_seconds);
	grid_row(&view->grid, cells);
}

/* ---- for programs ---- */

static void put_row(const struct options *options, const struct row *row)
{
	const struct summary *summary = &row->summary;
	const struct certificate *certificate = &row->certificate;
	char digest[DIGEST_TEXT_BYTES];
	struct json json;

	json_put_line(&json, stdout);
	json_put_key_string(&json, "policy", row->policy->name);
	json_put_key_u64(&json, "makespan_bytes", summary->makespan_bytes);
	json_put_key_u64(&json, "lower_bound_bytes", summary->lower_bound_bytes);
	json_put_key_double(&json, "gap", summary->gap);
	json_put_key_double(&json, "imbalance", summary->imbalance);
	json_put_key_u64(&json, "prepared_bytes", summary->prepared_bytes);
	json_put_key_u64(&json, "prepared_minimum_bytes", summary->prepared_minimum_bytes);
	json_put_key_u64(&json, "routes", summary->routes);
	json_put_key_u64(&json, "pieces", summary->pieces);
	json_put_key_u64(&json, "sessions_max", row->sessions);
	json_put_key_double(&json, "wire_seconds", certificate->makespan_seconds);
	json_put_key_double(&json, "wire_bound_seconds", certificate->bound_seconds);
	json_put_key_double(&json, "wire_gap", certificate->gap);
	if (options->simulate) {
		json_put_key_array(&json, "simulated");
		for (size_t o = 0; o < row->simulated_count; o++) {
			json_put_object(&json);
			json_put_key_string(&json, "order", row->simulated[o].order->name);
			json_put_key_double(&json, "seconds", row->simulated[o].seconds);
			json_put_key_double(&json, "bound_seconds",
					    row->simulated[o].bound_seconds);
			json_put_object_end(&json);
		}
		json_put_array_end(&json);
	}
	if (options->times)
		json_put_key_double(&json, "plan_seconds", row->plan_seconds);
	json_put_key_string(&json, "digest", digest_text(row->table->digest, digest));
	json_put_line_end(&json);
}

static int compare(const struct options *options, const struct route_job *job, struct error *error)
{
	bool one = options->route.policy != NULL, head = !options->json, too_many = false;
	struct view view;
	size_t count;
	const struct policy *policies = policy_list(&count);
	int rc = 0;

	for (size_t p = 0; p < count && !rc; p++) {
		struct row row;

		if (one && &policies[p] != job->policy)
			continue;
		rc = row_of(&row, options, job, &policies[p], error);
		if (rc)
			break;
		if (head) {
			print_head(job, &row);
			begin_table(&view, options, &row);
		}
		head = false;
		if (options->json)
			put_row(options, &row);
		else
			print_row(&view, options, &row);
		screen_flush(); /* large jobs take seconds a row */
		too_many = too_many || row.too_many;
		row_fini(&row);
	}
	if (!options->json && !head)
		grid_end(&view.grid);
	if (!rc && too_many && !options->json)
		printf("\n! more than --sessions-max %" PRIu32 ": this policy cannot limit them\n",
		       job->plan.sessions_max);
	return rc;
}

static int run(void *taken, struct error *error)
{
	const struct options *options = taken;
	struct route_job job;
	int rc = route_options_open(&job, &options->route, error);

	if (!rc)
		rc = compare(options, &job, error);
	route_job_close(&job);
	return rc;
}

const struct verb route_compare_verb = {
	VERB_OF(struct options, rows),
	ROUTE_VERB,
	.doc = "All policies on one input, a line each: bytes of the largest trainer and how far "
	       "that is from the least possible (gap), largest over mean (imbalance), what all "
	       "trainers prepare together and how many times the least, routes, inference ranks "
	       "of the busiest trainer (sessions), and the seconds that the busiest wire needs, "
	       "as part of the bound. --policy shows one. An order changes none of these figures; "
	       "--simulate shows what it changes.\v"
	       "Example:\n  weft route compare --model Qwen2.5-0.5B --train world=16 --infer engines=8",
	.run = run,
};

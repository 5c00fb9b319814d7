/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/simulate_view.h"

#include <math.h>
#include <stdio.h>

void simulate_put_rates(struct json *json, const struct simulate_options *options)
{
	json_put_key_object(json, "rates_bytes_per_second");
	for (int s = 0; s < STAGE_COUNT; s++)
		json_put_key_double(json, stage_name((enum stage)s),
				    options->stage_bytes_per_second[s]);
	json_put_object_end(json);
	json_put_key_double(json, "writes_per_second", options->writes_per_second);
}

static void put_bound(struct json *json, const struct simulate_view *view)
{
	const struct simulated_bound *bound = view->bound;
	double makespan = view->simulation->makespan_seconds;

	json_put_key_double(json, "makespan_seconds", makespan);
	json_put_key_double(json, "bound_seconds", bound->seconds);
	json_put_key_double(json, "of_bound", makespan > 0 ? bound->seconds / makespan : 1);
	json_put_key_object(json, "bounds_seconds");
	json_put_key_double(json, "wire", bound->wire_seconds);
	for (int s = 0; s < STAGE_COUNT; s++)
		json_put_key_double(json, stage_name((enum stage)s), bound->stage_seconds[s]);
	json_put_object_end(json);
}

static void put_bottleneck(struct json *json, const struct simulate_view *view)
{
	struct bottleneck most = simulation_bottleneck(view->simulation);
	char what[BOTTLENECK_TEXT_BYTES];

	json_put_key_object(json, "bottleneck");
	json_put_key_string(json, "what",
			    bottleneck_text(view->simulation, &most, view->topology, what));
	json_put_key_string(json, "stage", most.is_stage ? stage_name(most.stage) : "wire");
	json_put_key_double(json, "work_seconds", most.seconds);
	if (!most.is_stage)
		json_put_key_double(json, "full_seconds",
				    view->simulation->wire[most.wire].full_seconds);
	json_put_object_end(json);
}

/* null where it never ends */
static void put_stage_seconds(struct json *json, enum stage stage,
			      const struct simulated_rank *rank)
{
	char key[48];

	snprintf(key, sizeof(key), "%s_seconds", stage_name(stage));
	json_put_key_double(json, key, rank->stage_seconds[stage]);
}

static void put_ranks(struct json *json, const struct simulation *simulation, enum role role)
{
	json_put_key_array(json, role == ROLE_TRAINER ? "trainers" : "inference");
	for (uint32_t r = 0; r < simulation->rank_count[role]; r++) {
		const struct simulated_rank *rank = &simulation->ranks[role][r];

		json_put_object(json);
		json_put_key_u64(json, "rank", r);
		json_put_key_double(json, "bytes", rank->bytes);
		json_put_key_double(json, "finish_seconds", rank->finish_seconds);
		json_put_key_double(json, "busy_seconds", rank->busy_seconds);
		json_put_key_double(json, "idle_seconds",
				    fmax(0, simulation->makespan_seconds - rank->busy_seconds));
		if (role == ROLE_TRAINER)
			for (int s = 0; s < STAGE_VERIFY; s++)
				put_stage_seconds(json, (enum stage)s, rank);
		else
			put_stage_seconds(json, STAGE_VERIFY, rank);
		if (rank->missing_bytes > 0)
			json_put_key_double(json, "missing_bytes", rank->missing_bytes);
		json_put_object_end(json);
	}
	json_put_array_end(json);
}

static void put_bins(struct json *json, const char *name, const double bins[SIMULATE_BINS])
{
	json_put_key_array(json, name);
	for (int b = 0; b < SIMULATE_BINS; b++)
		json_put_double(json, bins[b]);
	json_put_array_end(json);
}

static void put_samples(struct json *json, const struct simulation *simulation)
{
	json_put_key_object(json, "samples");
	json_put_key_double(json, "seconds", simulation->bin_seconds);
	put_bins(json, "wire_bytes", simulation->wire_bins);
	for (int s = 0; s < STAGE_COUNT; s++) {
		char name[32];

		snprintf(name, sizeof(name), "%s_bytes", stage_name((enum stage)s));
		put_bins(json, name, simulation->stage_bins[s]);
	}
	json_put_object_end(json);
}

static void put_failure(struct json *json, const struct simulate_view *view)
{
	const struct simulate_flags *flags = view->flags;
	const struct simulation *simulation = view->simulation;
	double total = simulation->makespan_seconds;
	bool repeats = simulate_repeats(view, &total);

	json_put_key_object(json, "failure");
	json_put_key_string(json, "what", slow_name(flags->failure.what));
	json_put_key_u64(json, "index", flags->failure.index);
	json_put_key_double(json, "seconds", flags->failure.seconds);
	json_put_key_array(json, "cannot_publish");
	for (uint32_t r = 0; r < simulation->rank_count[ROLE_INFERENCE]; r++)
		if (!isfinite(simulation->ranks[ROLE_INFERENCE][r].finish_seconds))
			json_put_u64(json, r);
	json_put_array_end(json);
	json_put_key_bool(json, "repeated", repeats);
	if (repeats) {
		json_put_key_double(json, "lost_after_seconds", flags->lost_after_seconds);
		json_put_key_double(json, "again_seconds", view->replay->makespan_seconds);
	}
	json_put_key_double(json, "total_seconds", total);
	json_put_object_end(json);
}

static void put_baseline(struct json *json, const struct baseline *baseline)
{
	json_put_key_object(json, "broadcast");
	json_put_key_double(json, "seconds", baseline->seconds);
	json_put_key_double(json, "wire_seconds", baseline->wire_seconds);
	json_put_key_double(json, "gather_seconds", baseline->gather_seconds);
	json_put_key_double(json, "fixed_seconds", baseline->fixed_seconds);
	json_put_key_u64(json, "buckets", baseline->buckets);
	json_put_key_u64(json, "receiver_bytes", baseline->receiver_bytes);
	json_put_object_end(json);
}

void simulate_put(const struct simulate_view *view)
{
	const struct problem *problem = view->table->problem;
	const struct simulation *simulation = view->simulation;
	struct json json;

	json_put_line(&json, stdout);
	json_put_key_string(&json, "model", problem->model);
	json_put_key_string(&json, "train", problem->train);
	json_put_key_string(&json, "infer", problem->infer);
	json_put_key_string(&json, "policy", view->table->policy);
	json_put_key_string(&json, "order", view->table->order);
	json_put_key_u64(&json, "depth_bytes", view->flags->simulate.depth_bytes);
	json_put_key_u64(&json, "ring_bytes", view->flags->simulate.ring_bytes);
	simulate_put_rates(&json, &view->flags->simulate);
	put_bound(&json, view);
	put_bottleneck(&json, view);
	json_put_key_u64(&json, "bytes", simulation->bytes);
	json_put_key_u64(&json, "routes", simulation->routes);
	json_put_key_u64(&json, "flows", simulation->flows);
	json_put_key_u64(&json, "flow_min_bytes", simulation->flow_bytes_min);
	json_put_key_u64(&json, "events", simulation->events);
	json_put_key_u64(&json, "levels", simulation->levels);
	put_ranks(&json, simulation, ROLE_TRAINER);
	put_ranks(&json, simulation, ROLE_INFERENCE);
	put_samples(&json, simulation);
	if (view->flags->simulate.failure)
		put_failure(&json, view);
	if (view->baseline)
		put_baseline(&json, view->baseline);
	json_put_line_end(&json);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * published.c -- each published run: planned, simulated and bounded by our best and by the defaults, and by our best
 * once more from trainers that send their shards and gather nothing, beside what its authors measured.
 */
#include "cli/simulate_view.h"
#include "cli/grid.h"
#include "cli/shown.h"
#include "cli/screen.h"
#include "routing/plan/order.h"
#include "routing/lab/scenario.h"
#include "routing/plan/topology_file.h"

#include "base/progress.h"
#include <stdio.h>

static const struct way {
	const char *policy, *order;
	bool cut; /* trainers as they are cut */
} ways[] = {
	{"balanced", "rounds", false}, {"greedy", "rotated", false}, {"balanced", "rounds", true}};

#define WAYS (sizeof(ways) / sizeof(ways[0]))

struct outcome {
	double makespan, wire, bound, rank_gigabytes;
	const char *limit; /* the stage whose bound is the largest */
	char slowest[BOTTLENECK_TEXT_BYTES];
};

static void note(struct outcome *outcome, const struct simulation *simulation,
		 const struct simulated_bound *bound, const struct topology *topology)
{
	struct bottleneck most = simulation_bottleneck(simulation);
	double bytes = 0;

	for (uint32_t r = 0; r < simulation->rank_count[ROLE_INFERENCE]; r++)
		if (simulation->ranks[ROLE_INFERENCE][r].bytes > bytes)
			bytes = simulation->ranks[ROLE_INFERENCE][r].bytes;
	*outcome = (struct outcome){
		.makespan = simulation->makespan_seconds,
		.wire = bound->wire_seconds,
		.bound = bound->seconds,
		.rank_gigabytes = bytes / 1e9,
		.limit = "wire",
	};
	for (int s = 0; s < STAGE_COUNT; s++)
		if (bound->stage_seconds[s] == bound->seconds &&
		    bound->wire_seconds < bound->seconds)
			outcome->limit = stage_name((enum stage)s);
	bottleneck_text(simulation, &most, topology, outcome->slowest);
}

static int simulate_way(struct outcome *outcome, struct route_job *job, const struct way *way,
			const struct simulate_flags *flags, struct error *error)
{
	struct plan_options plan = {.topology = job->topology};
	const struct policy *policy = NULL;
	struct simulation simulation;
	struct simulated_bound bound;
	struct table *table;
	int rc = policy_named(&policy, "policy", way->policy, error);

	if (!rc)
		rc = order_named(&plan.order, "order", way->order, error);
	if (!rc)
		rc = table_plan(&table, job->problem, policy, &plan, error);
	if (rc)
		return rc;
	rc = simulate(&simulation, table, &flags->simulate, error);
	if (!rc) {
		rc = simulate_bound(&bound, table, flags->simulate.stage_bytes_per_second, error);
		if (!rc)
			note(outcome, &simulation, &bound, job->topology);
		simulation_fini(&simulation);
	}
	table_free(&table);
	return rc;
}

static int simulate_job(struct outcome *outcomes, const struct scenario *scenario, bool cut,
			const char *where, const struct simulate_flags *flags, struct error *error)
{
	struct route_job job;
	int rc = cut ? route_job_open(&job, scenario->cut_model, NULL, scenario->cut,
				      scenario->cut_infer, false, error)
		     : route_job_open(&job, scenario->model, NULL, scenario->train, scenario->infer,
				      false, error);

	if (rc)
		return rc;
	rc = topology_open(&job.topology, scenario->topology, job.problem->trainer_count,
			   job.problem->inference_count, error);
	for (size_t w = 0; !rc && w < WAYS; w++) {
		if (ways[w].cut != cut)
			continue;
		progress_step("run %s: %s, %s%s", shown(where), ways[w].policy, ways[w].order,
			      cut ? ", nothing gathered" : "");
		rc = simulate_way(&outcomes[w], &job, &ways[w], flags, error);
	}
	progress_steps_end();
	route_job_close(&job);
	return rc;
}

static int simulate_row(struct outcome *outcomes, const struct scenario *scenario,
			const char *where, const struct simulate_flags *flags, struct error *error)
{
	int rc = simulate_job(outcomes, scenario, false, where, flags, error);

	return rc ? rc : simulate_job(outcomes, scenario, true, where, flags, error);
}

/* ---- output ---- */

static void print_head(const struct simulate_flags *flags)
{
	printf("assumed of each worker, GB/s:");
	for (int s = 0; s < STAGE_COUNT; s++)
		printf("%s %s=%.4g", s ? "," : "", stage_name((enum stage)s),
		       flags->simulate.stage_bytes_per_second[s] / 1e9);
	printf(" (0: no stage), write=%.4g million a second; 400 Gb/s NICs\nmeasured by others: NCCL broadcast, RDMA point to "
	       "point, whole update; ours: simulated transfer, no pause and no engine\n"
	       "nothing gathered: balanced + rounds from Megatron's trainers as they are cut\n\n",
	       flags->simulate.writes_per_second / 1e6);
}

static const struct grid_column columns[] = {
	COLUMN("", -14),
	COLUMN("GB/rank", 8),
	COLUMN("wire", 8),
	COLUMN("bound", 8),
	COLUMN("of", -6, .before = "  "),
	COLUMN("balanced + rounds", 18),
	COLUMN("greedy + rotated", 18),
	COLUMN("nothing gathered", 18),
	COLUMN("NCCL", 8),
	COLUMN("RDMA", 8),
};

static const char *way_cell(const struct outcome *outcome)
{
	return grid_cell("%.3f s %5.1f %%", outcome->makespan,
			 100 * outcome->bound / outcome->makespan);
}

static void print_row(struct grid *grid, const struct scenario *scenario,
		      const struct outcome *outcomes)
{
	grid_row(grid, (const char *[]){shown(scenario->name),
					grid_cell("%.2f", outcomes->rank_gigabytes),
					grid_cell("%.3f s", outcomes->wire),
					grid_cell("%.3f s", outcomes->bound),
					grid_cell("%.6s", outcomes->limit), way_cell(&outcomes[0]),
					way_cell(&outcomes[1]), way_cell(&outcomes[2]),
					grid_cell("%.3f s", scenario->nccl_seconds),
					grid_cell("%.3f s", scenario->rdma_seconds)});
}

static void put_row(const struct scenario *scenario, const struct outcome *outcomes,
		    const struct simulate_flags *flags)
{
	struct json json;

	json_put_line(&json, stdout);
	json_put_key_string(&json, "name", scenario->name);
	json_put_key_string(&json, "model", scenario->model);
	json_put_key_string(&json, "train", scenario->train);
	json_put_key_string(&json, "infer", scenario->infer);
	json_put_key_string(&json, "topology", scenario->topology);
	json_put_key_double(&json, "published_nccl_seconds", scenario->nccl_seconds);
	json_put_key_double(&json, "published_rdma_seconds", scenario->rdma_seconds);
	simulate_put_rates(&json, &flags->simulate);
	json_put_key_double(&json, "rank_bytes", outcomes->rank_gigabytes * 1e9);
	json_put_key_double(&json, "wire_bound_seconds", outcomes->wire);
	json_put_key_double(&json, "bound_seconds", outcomes->bound);
	json_put_key_string(&json, "bound_by", outcomes->limit);
	json_put_key_array(&json, "simulated");
	for (size_t w = 0; w < WAYS; w++) {
		json_put_object(&json);
		json_put_key_string(&json, "policy", ways[w].policy);
		json_put_key_string(&json, "order", ways[w].order);
		if (ways[w].cut)
			json_put_key_string(&json, "train", scenario->cut);
		json_put_key_double(&json, "makespan_seconds", outcomes[w].makespan);
		json_put_key_double(&json, "of_bound", outcomes[w].bound / outcomes[w].makespan);
		json_put_key_string(&json, "bottleneck", outcomes[w].slowest);
		json_put_object_end(&json);
	}
	json_put_array_end(&json);
	json_put_line_end(&json);
	screen_flush();
}

int published_run(const struct simulate_flags *flags, struct error *error)
{
	struct scenarios scenarios;
	struct grid grid;
	bool lines;
	int rc = scenarios_published(&scenarios, error);

	if (rc)
		return rc;
	rc = scenarios_select(&scenarios, flags->row, error);
	lines = !rc && !flags->json;
	if (lines) {
		print_head(flags);
		grid_begin_slow(&grid, columns, ARRAY_SIZE(columns));
	}
	for (size_t i = 0; !rc && i < scenarios.count; i++) {
		struct outcome outcomes[WAYS];
		char where[128];

		snprintf(where, sizeof(where), "%zu of %zu, %s", i + 1, scenarios.count,
			 scenarios.items[i].name);
		rc = simulate_row(outcomes, &scenarios.items[i], where, flags, error);
		if (rc)
			error_wrap(error, "%s", scenarios.items[i].name);
		else if (flags->json)
			put_row(&scenarios.items[i], outcomes, flags);
		else
			print_row(&grid, &scenarios.items[i], outcomes);
	}
	if (lines)
		grid_end(&grid);
	scenarios_fini(&scenarios);
	return rc;
}

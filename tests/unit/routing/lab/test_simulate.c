/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/routing/routing_job.h"

#include "routing/plan/order.h"
#include "routing/lab/scenario.h"
#include "routing/lab/simulate_without.h"
#include "routing/lab/simulate.h"
#include <math.h>

#define NAIVE_FLOWS 64

static const struct simulate_options wire_only = {.depth_bytes = 0};

static void run(struct simulation *out, const struct table *table,
		const struct simulate_options *options)
{
	struct error error = {0};

	if (simulate(out, table, options, &error))
		fail_msg("simulate: %s", error.text);
}

/* Trainer 0 holds a tensor of rows x 1024 F32 that every rank wants as a whole. */
static struct table *broadcast_job(struct job *job, uint32_t trainers, uint32_t ranks,
				   uint64_t rows)
{
	job_init(job, trainers, ranks);
	for (uint32_t t = 0; t < trainers; t++)
		job_hold(job, t, "w", 0, rows, 1024, 0, rows);
	for (uint32_t r = 0; r < ranks; r++)
		job_want(job, r, "p", "w", rows, 1024, 0, rows, 0, 1024);
	job_build(job);
	return job_plan(job, "greedy");
}

static void assert_near(double value, double expected)
{
	if (fabs(value - expected) > 1e-9 * fabs(expected))
		fail_msg("%.12g, should be %.12g", value, expected);
}

static void test_simulate__one_sender_to_two_takes_both_times_its_bytes(void **state)
{
	struct job job;
	struct table *table = broadcast_job(&job, 1, 2, 512); /* 2 MiB each */
	struct simulation simulation;

	(void)state;
	run(&simulation, table, &wire_only);
	assert_near(simulation.makespan_seconds, 2 * 512 * 4096 / 50e9);
	assert_near(simulation.ranks[ROLE_INFERENCE][0].finish_seconds,
		    2 * 512 * 4096 / 50e9); /* half the rate each, at once */
	simulation_fini(&simulation);
	table_free(&table);
	job_fini(&job);
}

/* Two tensors to rank 0, then one to rank 1: the second waits for room in the first's queue, and
 * what comes behind it waits too. */
static void test_simulate__a_full_queue_holds_up_what_is_posted_behind_it(void **state)
{
	struct simulate_options options = {.depth_bytes = 4096};
	const double part = 512 * 4096;
	struct job job;
	struct table *table;
	struct simulation simulation;

	(void)state;
	job_init(&job, 1, 2);
	for (uint32_t k = 0; k < 3; k++) {
		const char *const names[] = {"a", "b", "c"};

		job_hold(&job, 0, names[k], k, 512, 1024, 0, 512);
		job_want(&job, k / 2, names[k], names[k], 512, 1024, 0, 512, 0, 1024);
	}
	job_build(&job);
	table = job_plan(&job, "greedy");
	run(&simulation, table, &options); /* a alone; then b and c share */
	assert_near(simulation.ranks[ROLE_INFERENCE][0].finish_seconds, 3 * part / 50e9);
	assert_near(simulation.makespan_seconds, 3 * part / 50e9);
	simulation_fini(&simulation);
	options.depth_bytes = 0; /* the default: all posted at once, c is through after 2 */
	run(&simulation, table, &options);
	assert_near(simulation.ranks[ROLE_INFERENCE][1].finish_seconds, 2 * part / 50e9);
	simulation_fini(&simulation);
	table_free(&table);
	job_fini(&job);
}

static void test_simulate__stages_follow_each_other_and_a_box_is_prepared_once(void **state)
{
	const double bytes = 2 * 1024 * 4.0;
	struct simulate_options options = {.stage_bytes_per_second = {0, 4e9, 2e9, 8e9}};
	struct simulation simulation;
	struct table *table;
	struct job job;

	(void)state;
	job_init(&job, 1, 2); /* columns 0..512 of 4 rows: cut, so packed */
	job.mapped[0] = job.mapped[1] = false;
	job_hold(&job, 0, "w", 0, 4, 1024, 0, 4);
	for (uint32_t r = 0; r < 2; r++)
		job_want(&job, r, "p", "w", 4, 1024, 0, 4, 0, 512);
	job_build(&job);
	table = job_plan(&job, "greedy");
	run(&simulation, table, &options);
	assert_near(simulation.ranks[ROLE_TRAINER][0].stage_seconds[STAGE_PACK], bytes / 2e9);
	assert_near(simulation.makespan_seconds,
		    bytes / 4e9 + bytes / 2e9 + 2 * bytes / 50e9 + bytes / 8e9);
	simulation_fini(&simulation);
	table_free(&table);
	job_fini(&job);
}

static void test_simulate__a_slow_nic_takes_its_time(void **state)
{
	const struct slow slow = {SLOW_NIC, 1, 0.25}; /* flat: NIC 1 is inference 0's */
	struct simulate_options options = {.slow = &slow, .slow_count = 1};
	struct job job;
	struct table *table = broadcast_job(&job, 1, 1, 64);
	struct simulation simulation;
	struct error error = {0};

	(void)state;
	run(&simulation, table, &options);
	assert_near(simulation.makespan_seconds, 64 * 4096 / 12.5e9);
	simulation_fini(&simulation);
	const struct slow nowhere = {SLOW_NIC, 2, 0.5};

	options.slow = &nowhere;
	assert_int_equal(simulate(&simulation, table, &options, &error), -ERROR_USAGE);
	assert_string_equal(error.text, "--slow nic=2: there are 2 NICs, counted from 0");
	table_free(&table);
	job_fini(&job);
}

/* ---- a second simulator: every moment everything from scratch ---- */

struct naive_flow {
	uint32_t trainer, inference;
	double bytes, left;
	bool posted, flying, done;
};

static void naive_rates(const struct naive_flow *flows, size_t count, double *rate)
{
	bool fixed[NAIVE_FLOWS];

	for (size_t f = 0; f < count; f++) {
		fixed[f] = !flows[f].flying;
		rate[f] = 0;
	}
	for (;;) { /* the NIC that is full first, sending or receiving */
		double least = INFINITY;
		uint32_t full = 0, side = 0;

		for (uint32_t s = 0; s < 2; s++)
			for (uint32_t n = 0; n < JOB_RANKS_MAX; n++) {
				double left = TOPOLOGY_FLAT_BYTES_PER_SECOND, open = 0;

				for (size_t f = 0; f < count; f++) {
					if ((s ? flows[f].inference : flows[f].trainer) != n ||
					    !flows[f].flying)
						continue;
					left -= fixed[f] ? rate[f] : 0;
					open += !fixed[f];
				}
				if (open > 0 && left / open < least) {
					least = left / open;
					full = n;
					side = s;
				}
			}
		if (!isfinite(least))
			return;
		for (size_t f = 0; f < count; f++)
			if (!fixed[f] && (side ? flows[f].inference : flows[f].trainer) == full) {
				rate[f] = least;
				fixed[f] = true;
			}
	}
}

/* A trainer posts in order until the queue of the next one's rank is full; the oldest flies. */
static void naive_post(struct naive_flow *flows, size_t count, double depth)
{
	bool held[JOB_RANKS_MAX] = {false};

	for (size_t f = 0; f < count; f++) {
		double queued = 0;
		bool first = true;

		for (size_t g = 0; g < f; g++)
			if (flows[g].posted && !flows[g].done &&
			    flows[g].trainer == flows[f].trainer &&
			    flows[g].inference == flows[f].inference) {
				queued += flows[g].bytes;
				first = false;
			}
		if (!flows[f].posted && !held[flows[f].trainer])
			flows[f].posted = first || queued + flows[f].bytes <= depth;
		if (!flows[f].posted)
			held[flows[f].trainer] = true;
		flows[f].flying = flows[f].posted && !flows[f].done && first;
	}
}

static double naive(const struct table *table, double depth)
{
	struct naive_flow flows[NAIVE_FLOWS];
	double now = 0, rate[NAIVE_FLOWS];
	struct send_order sends;
	size_t count = table->route_count;

	assert_int_equal(order_sends(table, &sends, NULL), 0);
	for (size_t i = 0; i < count; i++) {
		const struct route *route = &table->routes[sends.routes[i]];

		flows[i] = (struct naive_flow){route->trainer,
					       route->inference,
					       (double)route->bytes,
					       (double)route->bytes,
					       false,
					       false,
					       false};
	}
	send_order_fini(&sends);
	for (;;) {
		double step = INFINITY;

		naive_post(flows, count, depth);
		naive_rates(flows, count, rate);
		for (size_t f = 0; f < count; f++)
			if (flows[f].flying)
				step = fmin(step, flows[f].left / rate[f]);
		if (!isfinite(step))
			return now;
		now += step;
		for (size_t f = 0; f < count; f++) {
			flows[f].left -= flows[f].flying ? rate[f] * step : 0;
			if (flows[f].flying && flows[f].left < 1e-6) {
				flows[f].flying = false;
				flows[f].done = true;
			}
		}
	}
}

static void assert_conserved(const struct simulation *simulation, const struct table *table)
{
	double sent = 0, received = 0;

	for (uint32_t t = 0; t < simulation->rank_count[ROLE_TRAINER]; t++)
		sent += simulation->ranks[ROLE_TRAINER][t].bytes;
	for (uint32_t r = 0; r < simulation->rank_count[ROLE_INFERENCE]; r++) {
		received += simulation->ranks[ROLE_INFERENCE][r].bytes;
		assert_true(simulation->ranks[ROLE_INFERENCE][r].missing_bytes == 0);
	}
	for (size_t i = 0; i < table->route_count; i++) {
		sent -= (double)table->routes[i].bytes;
		received -= (double)table->routes[i].bytes;
	}
	assert_true(sent == 0 && received == 0);
}

static void test_simulate__agrees_with_a_naive_one_and_never_beats_the_bound(void **state)
{
	static const char *const orders[] = {"table", "rotated", "rounds"};
	static const char *const policies[] = {"greedy", "round-robin", "lpt"};
	struct dice dice = dice_seeded("simulate");

	(void)state;
	for (int i = 0; i < 300; i++) {
		struct plan_options plan = {.order = order_find(orders[dice_below(&dice, 3)])};
		struct simulate_options options = {.depth_bytes = 1 + dice_below(&dice, 2000)};
		struct simulated_bound bound;
		struct simulation simulation;
		struct table *table;
		struct job job;

		job_random(&job, &dice);
		assert_int_equal(table_plan(&table, job.problem,
					    policy_find(policies[dice_below(&dice, 3)]), &plan,
					    NULL),
				 0);
		if (table->route_count && table->route_count <= NAIVE_FLOWS) {
			run(&simulation, table, &options);
			assert_conserved(&simulation, table);
			double expected = naive(table, (double)options.depth_bytes);

			if (fabs(simulation.makespan_seconds - expected) > 1e-6 * expected)
				fail_msg("run %d: %.12g, naive %.12g", i,
					 simulation.makespan_seconds, expected);
			simulation_fini(&simulation);
			/* any rates, any ring: the bound holds */
			for (int s = 0; s < STAGE_COUNT; s++)
				options.stage_bytes_per_second[s] =
					(double)dice_below(&dice, 4) * 1e10;
			run(&simulation, table, &options);
			assert_conserved(&simulation, table);
			assert_int_equal(
				simulate_bound(&bound, table, options.stage_bytes_per_second, NULL),
				0);
			assert_true(simulation.makespan_seconds >= bound.wire_seconds * (1 - 1e-9));
			simulation_fini(&simulation);
		}
		table_free(&table);
		job_fini(&job);
	}
}

static void test_simulate__a_small_ring_prepares_a_box_again(void **state)
{
	struct simulate_options options = {.ring_bytes = SIMULATE_RING_MIN,
					   .stage_bytes_per_second = {0, 0, 1e9, 0}};
	struct simulation simulation;
	struct table *table;
	struct job job;
	double whole = 2048.0 * 512 * 4;

	(void)state;
	job_init(&job, 1, 2);
	job.mapped[0] = job.mapped[1] = false;
	job_hold(&job, 0, "w", 0, 2048, 1024, 0, 2048);
	for (uint32_t r = 0; r < 2; r++)
		job_want(&job, r, "p", "w", 2048, 1024, 0, 2048, 0, 512);
	job_build(&job);
	table = job_plan(&job, "greedy");
	run(&simulation, table, &options);
	assert_near(simulation.ranks[ROLE_TRAINER][0].stage_seconds[STAGE_PACK], 2 * whole / 1e9);
	simulation_fini(&simulation);
	options.ring_bytes = 64 << 20;
	run(&simulation, table, &options);
	assert_near(simulation.ranks[ROLE_TRAINER][0].stage_seconds[STAGE_PACK], whole / 1e9);
	simulation_fini(&simulation);
	table_free(&table);
	job_fini(&job);
}

static void test_fail__a_lost_trainer_leaves_its_bytes_missing(void **state)
{
	const struct failure failure = {SLOW_TRAINER, 0, 1e-6};
	struct simulate_options options = {.failure = &failure};
	struct job job;
	struct table *table = broadcast_job(&job, 2, 2, 512);
	struct simulation simulation;

	(void)state;
	run(&simulation, table, &options); /* greedy: 0 to 0, 1 to 1 */
	assert_true(simulation.ranks[ROLE_TRAINER][0].lost);
	assert_true(isinf(simulation.ranks[ROLE_INFERENCE][0].finish_seconds));
	assert_near(simulation.ranks[ROLE_INFERENCE][0].missing_bytes, 512 * 4096);
	assert_near(simulation.makespan_seconds, 512 * 4096 / 50e9);
	simulation_fini(&simulation);
	table_free(&table);
	job_fini(&job);
}

static void test_without__an_only_holder_is_told_by_its_tensor(void **state)
{
	bool trainers[2] = {false, true}, ranks[2] = {false};
	bool *const lost[ROLE_COUNT] = {trainers, ranks};
	struct problem_without without;
	struct error error = {0};
	struct table *table;
	struct job job;

	(void)state;
	job_init(&job, 2, 2);
	job_hold(&job, 0, "a", 0, 4, 4, 0, 4);
	job_hold(&job, 1, "a", 0, 4, 4, 0, 4);
	job_hold(&job, 1, "b", 1, 4, 4, 2, 4);
	job_hold(&job, 0, "b", 1, 4, 4, 0, 2);
	job_want(&job, 0, "p", "a", 4, 4, 0, 4, 0, 4);
	job_want(&job, 1, "q", "b", 4, 4, 0, 4, 0, 4);
	job_build(&job);
	assert_int_equal(problem_without(&without, job.problem, lost, &error), -ERROR_UNSOURCED);
	assert_non_null(strstr(error.text, "1 tensor that"));
	assert_non_null(strstr(error.text, "the first is b"));
	ranks[1] = true; /* who wanted it is lost too */
	assert_int_equal(problem_without(&without, job.problem, lost, &error), 0);
	assert_int_equal(table_plan(&table, &without.problem, policy_find("greedy"), NULL, &error),
			 0);
	assert_int_equal(table->route_count, 1);
	assert_int_equal(table->routes[0].trainer, 0);
	table_free(&table);
	problem_without_fini(&without);
	job_fini(&job);
}

static void test_scenarios__eight_rows_are_built_in_and_bad_ones_are_told(void **state)
{
	struct scenarios scenarios;
	struct error error = {0};
	const char *bad = "{\"schema\":\"weft.scenarios/1\",\"scenarios\":[{\"name\":\"x\"}]}";

	(void)state;
	assert_int_equal(scenarios_published(&scenarios, &error), 0);
	assert_int_equal(scenarios.count, 8);
	assert_string_equal(scenarios.items[7].name, "Kimi-K2");
	assert_near(scenarios.items[7].rdma_seconds, 7.227);
	scenarios_fini(&scenarios);
	assert_int_equal(scenarios_parse(&scenarios, bad, strlen(bad), "bad.json", &error),
			 -ERROR_FILE);
	assert_string_equal(error.text, "bad.json: scenario 0 needs a string \"model\"");
}

static void test_simulate__every_allocation_may_fail_once(void **state)
{
	const struct slow slow = {SLOW_INFERENCE, 1, 0.5};
	struct simulate_options options = {.slow = &slow, .slow_count = 1, .record = true};
	struct job job;
	struct table *table = broadcast_job(&job, 2, 3, 64);
	struct simulated_bound bound;
	struct simulation simulation;
	struct error error;
	int rc = -1;

	(void)state;
	for (uint64_t k = 1; rc; k++) {
		memory_fail_at(k);
		rc = simulate(&simulation, table, &options, &error);
		memory_fail_at(0);
		assert_true(rc == 0 || rc == -ERROR_MEMORY);
		assert_true(k < 1000);
	}
	simulation_fini(&simulation);
	rc = -1;
	for (uint64_t k = 1; rc; k++) {
		memory_fail_at(k);
		rc = simulate_bound(&bound, table, options.stage_bytes_per_second, &error);
		memory_fail_at(0);
		assert_true(rc == 0 || rc == -ERROR_MEMORY);
	}
	table_free(&table);
	job_fini(&job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_simulate__one_sender_to_two_takes_both_times_its_bytes),
		cmocka_unit_test(test_simulate__a_full_queue_holds_up_what_is_posted_behind_it),
		cmocka_unit_test(
			test_simulate__stages_follow_each_other_and_a_box_is_prepared_once),
		cmocka_unit_test(test_simulate__a_slow_nic_takes_its_time),
		cmocka_unit_test(test_simulate__agrees_with_a_naive_one_and_never_beats_the_bound),
		cmocka_unit_test(test_simulate__a_small_ring_prepares_a_box_again),
		cmocka_unit_test(test_fail__a_lost_trainer_leaves_its_bytes_missing),
		cmocka_unit_test(test_without__an_only_holder_is_told_by_its_tensor),
		cmocka_unit_test(test_scenarios__eight_rows_are_built_in_and_bad_ones_are_told),
		cmocka_unit_test(test_simulate__every_allocation_may_fail_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "model/model.h"
#include "routing/report/certificate.h"
#include "routing/plan/explain.h"
#include "routing/report/summary.h"
#include "tests/unit/routing/routing_job.h"

static struct table *plan(const struct job *job, const struct plan_options *options)
{
	struct error error = {0};
	struct table *table;

	if (table_plan(&table, job->problem, policy_find("balanced"), options, &error))
		fail_msg("plan: %s", error.text);
	return table;
}

static struct summary summed(const struct table *table)
{
	struct summary summary;

	assert_int_equal(summary_of(&summary, table, NULL), 0);
	return summary;
}

/* docs/routing.md: two trainers that hold everything, two inference ranks that want all of it.
 * Rows have 4 bytes, for two targets 8; the line is a, b, c, and the border at 520 bytes. */
static void test_balanced__cuts_the_line_of_the_worked_example(void **state)
{
	static struct job job;
	static const struct {
		uint32_t trainer;
		uint64_t lo, hi;
	} want[] = {{0, 0, 60}, {0, 0, 60}, {0, 0, 5},	{1, 5, 40},
		    {0, 0, 5},	{1, 5, 40}, {1, 0, 30}, {1, 0, 30}};
	struct table *table;

	(void)state;
	job_init(&job, 2, 2);
	for (uint32_t r = 0; r < 2; r++) {
		job_hold(&job, r, "a", 0, 60, 1, 0, 60);
		job_hold(&job, r, "b", 1, 40, 1, 0, 40);
		job_hold(&job, r, "c", 2, 30, 1, 0, 30);
		job_want(&job, r, "pa", "a", 60, 1, 0, 60, 0, 1);
		job_want(&job, r, "pb", "b", 40, 1, 0, 40, 0, 1);
		job_want(&job, r, "pc", "c", 30, 1, 0, 30, 0, 1);
	}
	job_build(&job);
	table = job_plan(&job, "balanced");
	assert_int_equal(table->route_count, 8);
	for (size_t r = 0; r < 8; r++) {
		const struct route_piece *piece = &table->pieces[table->routes[r].piece_first];

		assert_int_equal(table->routes[r].trainer, want[r].trainer);
		assert_int_equal(piece->src.lo[0], want[r].lo);
		assert_int_equal(piece->src.hi[0], want[r].hi);
	}
	struct summary summary = summed(table);

	assert_int_equal(summary.makespan_bytes, 520);
	assert_int_equal(summary.prepared_bytes, 520); /* 130 rows, each once */
	assert_int_equal(summary.prepared_minimum_bytes, 520);
	summary_fini(&summary);
	table_free(&table);
	job_fini(&job);
}

/* Does each rank want one range of columns of each tensor, and no row twice, as engines do? */
static bool one_range(const struct problem *problem)
{
	for (size_t l = 0; l < problem->layout_count; l++)
		for (size_t p = 1; p < problem->layouts[l].piece_count; p++) {
			const struct piece *a = &problem->layouts[l].pieces[p - 1], *b = a + 1;

			if (a->tensor == b->tensor && a->src.hi[0] > b->src.lo[0])
				return false;
			for (uint32_t d = 1; d < a->src.dims; d++)
				if (a->tensor == b->tensor &&
				    (a->src.lo[d] != b->src.lo[d] || a->src.hi[d] != b->src.hi[d]))
					return false;
		}
	return true;
}

static void test_balanced__is_within_a_row_of_the_bound_on_random_jobs(void **state)
{
	struct dice dice = dice_seeded("balanced");
	int less = 0, least = 0;

	(void)state;
	for (int round = 0; round < 4000; round++) {
		static struct job job;

		job_random(&job, &dice);
		struct table *table = plan(&job, NULL), *again = plan(&job, NULL);
		struct table *greedy = job_plan(&job, "greedy");
		struct summary own = summed(table), other = summed(greedy);
		double bound = (double)own.lower_bound_bytes;
		double row = (double)problem_largest_row(job.problem);

		assert_true(digest_equal(table->digest, again->digest));
		assert_true((double)own.makespan_bytes <= bound * 1.005 + row);
		assert_true((double)own.makespan_bytes <=
			    (double)other.makespan_bytes * 1.005 + row);
		less += own.prepared_bytes < other.prepared_bytes;
		if (one_range(job.problem)) {
			assert_int_equal(own.prepared_bytes, own.prepared_minimum_bytes);
			least++;
		}
		summary_fini(&own);
		summary_fini(&other);
		table_free(&table);
		table_free(&again);
		table_free(&greedy);
		job_fini(&job);
	}
	assert_true(less > 1000 && least > 200);
}

/* Tensors of many rows are cut as finely as balance asks. */
static void test_balanced__is_within_one_percent_where_rows_are_many(void **state)
{
	struct dice dice = dice_seeded("many rows");

	(void)state;
	for (int round = 0; round < 1000; round++) {
		static struct job job;
		uint32_t trainers = 1 + (uint32_t)dice_below(&dice, 8);
		uint32_t ranks = 1 + (uint32_t)dice_below(&dice, 8);
		uint32_t tensors = 1 + (uint32_t)dice_below(&dice, 5);

		job_init(&job, trainers, ranks);
		for (uint32_t t = 0; t < tensors; t++) {
			uint64_t rows = 4000 + dice_below(&dice, 100000);
			uint32_t only = (uint32_t)dice_below(&dice, trainers);
			bool cut = dice_below(&dice, 2);
			char name[16];

			snprintf(name, sizeof(name), "t%" PRIu32, t);
			for (uint32_t r = 0; r < trainers; r++)
				if (r == only || dice_below(&dice, 2))
					job_hold(&job, r, name, t, rows, 1, 0, rows);
			for (uint32_t i = 0; i < ranks; i++)
				job_want(&job, i, name, name, rows, 1, cut ? rows / ranks * i : 0,
					 cut ? rows / ranks * (i + 1) : rows, 0, 1);
		}
		job_build(&job);
		struct table *table = plan(&job, NULL);
		struct summary own = summed(table);

		assert_true(own.gap <= 0.01);
		assert_int_equal(own.prepared_bytes, own.prepared_minimum_bytes);
		summary_fini(&own);
		table_free(&table);
		job_fini(&job);
	}
}

/* Two trainers behind a NIC of 1 byte/s, one with a NIC of 2: bytes go 1 : 1 : 4. */
static void test_balanced__gives_each_trainer_what_its_nic_can_send(void **state)
{
	static struct job job;
	struct plan_options options = {0};
	struct topology *topology;
	struct certificate certificate;

	(void)state;
	job_init(&job, 3, 1);
	for (uint32_t r = 0; r < 3; r++)
		job_hold(&job, r, "w", 0, 6000, 1, 0, 6000);
	job_want(&job, 0, "p", "w", 6000, 1, 0, 6000, 0, 1);
	job_build(&job);
	assert_int_equal(topology_new(&topology, 3, 1, NULL), 0);
	assert_int_equal(topology_add_host(topology, "a", 0, NULL), 0);
	assert_int_equal(topology_add_nic(topology, "slow", 0, 1, NULL), 0);
	assert_int_equal(topology_add_nic(topology, "fast", 0, 2, NULL), 0);
	assert_int_equal(topology_add_host(topology, "b", 0, NULL), 0);
	assert_int_equal(topology_add_nic(topology, "n", 0, 100, NULL), 0);
	for (uint32_t r = 0; r < 3; r++) {
		topology_place(topology, ROLE_TRAINER, r, 0);
		assert_int_equal(
			topology_add_link(topology, ROLE_TRAINER, r, r == 2, DISTANCE_PIX, NULL),
			0);
	}
	topology_place(topology, ROLE_INFERENCE, 0, 1);
	assert_int_equal(topology_add_link(topology, ROLE_INFERENCE, 0, 2, DISTANCE_PIX, NULL), 0);
	topology_finish(topology);
	options.topology = topology;
	struct table *table = plan(&job, &options);
	struct summary own = summed(table);

	assert_int_equal(own.trainer_bytes[0], 4000);
	assert_int_equal(own.trainer_bytes[1], 4000);
	assert_int_equal(own.trainer_bytes[2], 16000);
	assert_int_equal(certificate_of(&certificate, table, NULL), 0);
	assert_true(certificate.makespan_seconds == 8000 && certificate.gap == 0);
	summary_fini(&own);
	table_free(&table);
	job_fini(&job);
	topology_free(&topology);
}

/* Two hosts of two trainers, whose uplinks are so slow that NICs have time. */
static void test_balanced__divides_evenly_what_a_slow_uplink_passes(void **state)
{
	static struct job job;
	struct plan_options options = {0};
	struct topology *topology;

	(void)state;
	job_init(&job, 4, 1);
	for (uint32_t r = 0; r < 4; r++)
		job_hold(&job, r, "w", 0, 6000, 1, 0, 6000);
	job_want(&job, 0, "p", "w", 6000, 1, 0, 6000, 0, 1);
	job_build(&job);
	assert_int_equal(topology_new(&topology, 4, 1, NULL), 0);
	for (uint32_t h = 0; h < 3; h++) {
		assert_int_equal(topology_add_host(topology,
						   h == 0   ? "a"
						   : h == 1 ? "b"
							    : "c",
						   h < 2    ? 100
						   : h == 1 ? 100
							    : 0,
						   NULL),
				 0);
		assert_int_equal(topology_add_nic(topology, "x", 0, 100, NULL), 0);
		assert_int_equal(topology_add_nic(topology, "y", 0, 100, NULL), 0);
	}
	for (uint32_t r = 0; r < 4; r++) {
		topology_place(topology, ROLE_TRAINER, r, r / 2);
		assert_int_equal(
			topology_add_link(topology, ROLE_TRAINER, r, r, DISTANCE_PIX, NULL), 0);
	}
	topology_place(topology, ROLE_INFERENCE, 0, 2);
	assert_int_equal(topology_add_link(topology, ROLE_INFERENCE, 0, 4, DISTANCE_PIX, NULL), 0);
	topology_finish(topology);
	options.topology = topology;
	struct table *table = plan(&job, &options);
	struct summary own = summed(table);

	for (uint32_t t = 0; t < 4; t++)
		assert_in_range(own.trainer_bytes[t], 5970, 6030);
	summary_fini(&own);
	table_free(&table);
	job_fini(&job);
	topology_free(&topology);
}

/* Uplinks that pass more in the time of the bound than any number says: as if there were none. */
static void test_balanced__uplinks_much_faster_than_nics_change_nothing(void **state)
{
	static const uint64_t uplinks[2] = {UINT64_C(1) << 20, UINT64_C(1) << 24};
	static struct job job;
	struct plan_options options = {0};
	struct topology *topology;
	struct table *table;

	(void)state;
	job_init(&job, 2, 1);
	for (uint32_t r = 0; r < 2; r++)
		job_hold(&job, r, "w", 0, UINT64_C(1) << 40, 1, 0, UINT64_C(1) << 40);
	job_want(&job, 0, "p", "w", UINT64_C(1) << 40, 1, 0, UINT64_C(1) << 40, 0, 1);
	job_build(&job);
	assert_int_equal(topology_new(&topology, 2, 1, NULL), 0);
	for (uint32_t h = 0; h < 2; h++) {
		assert_int_equal(topology_add_host(topology, h ? "b" : "a", uplinks[h], NULL), 0);
		assert_int_equal(topology_add_nic(topology, "n", 0, 2, NULL), 0);
		topology_place(topology, ROLE_TRAINER, h, h);
		assert_int_equal(
			topology_add_link(topology, ROLE_TRAINER, h, h, DISTANCE_PIX, NULL), 0);
	}
	assert_int_equal(topology_add_host(topology, "c", 0, NULL), 0);
	assert_int_equal(topology_add_nic(topology, "n", 0, 100, NULL), 0);
	topology_place(topology, ROLE_INFERENCE, 0, 2);
	assert_int_equal(topology_add_link(topology, ROLE_INFERENCE, 0, 2, DISTANCE_PIX, NULL), 0);
	topology_finish(topology);
	options.topology = topology;
	table = plan(&job, &options);
	struct summary own = summed(table);

	assert_int_equal(own.trainer_bytes[0], UINT64_C(1) << 41);
	assert_int_equal(own.trainer_bytes[1], UINT64_C(1) << 41);
	summary_fini(&own);
	table_free(&table);
	job_fini(&job);
	topology_free(&topology);
}

/* A refusal names the least limit; with that it works, and no trainer writes to more. */
static void test_balanced__writes_to_no_more_ranks_than_sessions_max(void **state)
{
	struct dice dice = dice_seeded("sessions");
	int refused = 0;

	(void)state;
	for (int round = 0; round < 4000; round++) {
		static struct job job;
		struct plan_options options = {.sessions_max = 1 + (uint32_t)dice_below(&dice, 4)};
		struct error error = {0};
		struct table *table;

		job_random(&job, &dice);
		if (table_plan(&table, job.problem, policy_find("balanced"), &options, &error)) {
			const char *hint = strstr(error.text, "use --sessions-max ");

			assert_int_equal(error.code, ERROR_CONFIG);
			assert_non_null(hint);
			uint32_t least = (uint32_t)strtoul(hint + 19, NULL, 10);

			assert_true(least > options.sessions_max && least <= job.inference_count);
			options.sessions_max = least;
			table = plan(&job, &options);
			refused++;
		}
		struct table *again = plan(&job, &options);
		struct summary own = summed(table);

		for (uint32_t t = 0; t < job.trainer_count; t++)
			assert_true(own.sessions[t] <= options.sessions_max);
		assert_true(digest_equal(table->digest, again->digest));
		summary_fini(&own);
		table_free(&table);
		table_free(&again);
		job_fini(&job);
	}
	assert_true(refused > 100 && refused < 3900);
}

/* Two trainers, four ranks, whole tensors: arcs of two ranks each, and not of three. */
static void test_balanced__with_sessions_max_keeps_equal_layouts_together(void **state)
{
	static struct job job;
	struct plan_options options = {.sessions_max = 2};
	struct error error = {0};
	struct table *table;

	(void)state;
	job_init(&job, 2, 4);
	for (uint32_t r = 0; r < 2; r++)
		job_hold(&job, r, "w", 0, 8, 1, 0, 8);
	for (uint32_t i = 0; i < 4; i++) /* ranks 0 and 2 are alike, and 1 and 3 */
		job_want(&job, i, "p", "w", 8, 1, i % 2 * 4, i % 2 * 4 + 4, 0, 1);
	job_build(&job);
	table = plan(&job, &options);
	for (size_t r = 0; r < 4; r++)
		assert_int_equal(table->routes[r].trainer, table->routes[r].inference % 2);
	table_free(&table);
	options.sessions_max = 1;
	assert_int_equal(table_plan(&table, job.problem, policy_find("balanced"), &options, &error),
			 -ERROR_CONFIG);
	assert_non_null(strstr(error.text, "only 2 trainers"));
	assert_non_null(strstr(error.text, "4 inference ranks need it"));
	assert_non_null(strstr(error.text, "use --sessions-max 2 or more"));
	job_fini(&job);
}

/* One session a trainer, and one trainer's NIC is 10^15 times slower: it serves a rank all the
 * same, and the plan ends. */
static void test_balanced__with_sessions_max_uses_a_trainer_however_slow(void **state)
{
	static struct job job;
	struct plan_options options = {.sessions_max = 1};
	struct topology *topology;
	struct table *table;

	(void)state;
	job_init(&job, 2, 2);
	for (uint32_t r = 0; r < 2; r++)
		job_hold(&job, r, "w", 0, UINT64_C(1) << 40, 1, 0, UINT64_C(1) << 40);
	for (uint32_t i = 0; i < 2; i++)
		job_want(&job, i, "p", "w", UINT64_C(1) << 40, 1, 0, UINT64_C(1) << 40, 0, 1);
	job_build(&job);
	assert_int_equal(topology_new(&topology, 2, 2, NULL), 0);
	assert_int_equal(topology_add_host(topology, "a", 0, NULL), 0);
	assert_int_equal(topology_add_nic(topology, "slow", 0, 1, NULL), 0);
	assert_int_equal(topology_add_nic(topology, "fast", 0, TOPOLOGY_RATE_MAX, NULL), 0);
	for (int role = 0; role < ROLE_COUNT; role++)
		for (uint32_t r = 0; r < 2; r++) {
			topology_place(topology, (enum role)role, r, 0);
			assert_int_equal(topology_add_link(topology, (enum role)role, r, r,
							   DISTANCE_PIX, NULL),
					 0);
		}
	topology_finish(topology);
	options.topology = topology;
	table = plan(&job, &options);
	assert_int_equal(table->route_count, 2);
	assert_int_equal(table->routes[0].trainer, 0);
	assert_int_equal(table->routes[1].trainer, 1);
	table_free(&table);
	job_fini(&job);
	topology_free(&topology);
}

static void test_balanced__explains_every_part_of_a_pair(void **state)
{
	struct dice dice = dice_seeded("balanced, explained");

	(void)state;
	for (int round = 0; round < 500; round++) {
		static struct job job;
		struct explain explain = {0};
		struct plan_options options = {.explain = &explain};

		job_random(&job, &dice);
		struct table *bare = plan(&job, NULL);
		const struct route *route = &bare->routes[dice_below(&dice, bare->route_count)];

		explain.tensor = route->tensor;
		explain.inference = route->inference;
		options.sessions_max = round % 2 ? job.inference_count : 0;
		struct table *table = plan(&job, &options);
		size_t told = 0;

		assert_true(round % 2 || digest_equal(table->digest, bare->digest));
		for (size_t r = 0; r < table->route_count; r++) {
			if (table->routes[r].tensor != explain.tensor ||
			    table->routes[r].inference != explain.inference)
				continue;
			assert_true(told < explain.decisions.count);
			assert_int_equal(explain.decisions.items[told].chosen,
					 table->routes[r].trainer);
			assert_int_equal(explain.decisions.items[told].bytes,
					 table->routes[r].bytes);
			told++;
		}
		assert_int_equal(told, explain.decisions.count);
		explain_fini(&explain);
		table_free(&table);
		table_free(&bare);
		job_fini(&job);
	}
}

static void test_balanced__survives_every_failed_allocation(void **state)
{
	struct dice dice = dice_seeded("balanced's memory");

	(void)state;
	for (int round = 0; round < 24; round++) {
		static struct job job;
		struct plan_options options = {.sessions_max = round % 2 ? JOB_RANKS_MAX : 0};
		struct table *table = NULL;
		int rc = -1;

		job_random(&job, &dice);
		for (uint64_t k = 1; rc; k++) {
			struct error error = {0};

			memory_fail_at(k);
			rc = table_plan(&table, job.problem, policy_find("balanced"), &options,
					&error);
			memory_fail_at(0);
			assert_true(rc == 0 || rc == -ERROR_MEMORY);
			assert_true(k < 2000);
		}
		table_free(&table);
		job_fini(&job);
	}
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PUBLISHED_FROM 1 /* the first takes a minute there */
#else
#define PUBLISHED_FROM 0
#endif

/* The published rows that are largest and most uneven. */
static void test_balanced__reaches_the_bound_on_published_jobs(void **state)
{
	static const struct {
		const char *model, *train, *infer;
	} rows[] = {
		{"Kimi-K2-block64", "world=256,pp=8",
		 "engines=8,tp=32,ep=32,dp=8,dp_lm_head=1,moe_dense_tp=1"},
		{"Qwen3-235B-A22B", "world=128,pp=4", "engines=2,tp=32,ep=32"},
	};

	(void)state;
	for (size_t r = PUBLISHED_FROM; r < ARRAY_SIZE(rows); r++) {
		struct problem_storage *storage;
		struct error error = {0};
		struct problem *problem;
		struct train_spec train;
		struct infer_spec infer;
		struct model *model;
		struct table *table;

		assert_int_equal(train_spec_parse(&train, rows[r].train, NULL), 0);
		assert_int_equal(infer_spec_parse(&infer, rows[r].infer, NULL), 0);
		if (model_open(&model, rows[r].model, &error) ||
		    problem_from_model(&problem, &storage, model, &train, &infer, true, &error) ||
		    table_plan(&table, problem, policy_find("balanced"), NULL, &error))
			fail_msg("%s", error.text);
		struct summary own = summed(table);

		assert_true(own.gap <= 0.01);
		assert_int_equal(own.prepared_bytes, own.prepared_minimum_bytes);
		summary_fini(&own);
		table_free(&table);
		problem_free(&problem);
		problem_storage_free(&storage);
		model_close(&model);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_balanced__cuts_the_line_of_the_worked_example),
		cmocka_unit_test(test_balanced__is_within_a_row_of_the_bound_on_random_jobs),
		cmocka_unit_test(test_balanced__is_within_one_percent_where_rows_are_many),
		cmocka_unit_test(test_balanced__gives_each_trainer_what_its_nic_can_send),
		cmocka_unit_test(test_balanced__divides_evenly_what_a_slow_uplink_passes),
		cmocka_unit_test(test_balanced__uplinks_much_faster_than_nics_change_nothing),
		cmocka_unit_test(test_balanced__writes_to_no_more_ranks_than_sessions_max),
		cmocka_unit_test(test_balanced__with_sessions_max_keeps_equal_layouts_together),
		cmocka_unit_test(test_balanced__with_sessions_max_uses_a_trainer_however_slow),
		cmocka_unit_test(test_balanced__explains_every_part_of_a_pair),
		cmocka_unit_test(test_balanced__survives_every_failed_allocation),
		cmocka_unit_test(test_balanced__reaches_the_bound_on_published_jobs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

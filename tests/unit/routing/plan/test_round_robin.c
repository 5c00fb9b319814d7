/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/routing/routing_job.h"

#include "routing/plan/policy.h"

#define TARGETS_MAX 64

/* The published plan as it is written, with its searches. */
static void published(uint32_t senders, uint32_t engines, uint32_t width, uint32_t *sender)
{
	static uint32_t owns[TARGETS_MAX][TARGETS_MAX]; /* sender, rank -> engines */
	uint32_t targets = engines * width, cur = 0;
	uint32_t k = senders < targets ? senders : targets;

	memset(owns, 0, sizeof(owns));
	for (uint32_t i = 0; i < targets; i++) {
		uint32_t r = i % width, best = UINT32_MAX;

		if (i < k) {
			best = i;
		} else {
			for (uint32_t s = 0; s < senders; s++)
				if (owns[s][r] &&
				    (best == UINT32_MAX || owns[s][r] < owns[best][r]))
					best = s;
			if (best == UINT32_MAX)
				best = cur++ % senders;
		}
		owns[best][r]++;
		sender[i] = best;
	}
}

static void assert_plan(uint32_t senders, uint32_t engines, uint32_t width,
			const uint32_t *expected)
{
	uint32_t sender[TARGETS_MAX];

	round_robin_of(senders, engines, width, sender);
	for (uint32_t i = 0; i < engines * width; i++)
		assert_int_equal(sender[i], expected[i]);
}

static void test_round_robin__gives_the_published_plans(void **state)
{
	uint32_t wide[32];

	(void)state;
	for (uint32_t i = 0; i < 32; i++) /* 8 senders, 2x16: rank r of both engines to r mod 8 */
		wide[i] = i % 16 % 8;
	assert_plan(8, 2, 16, wide);
	assert_plan(4, 2, 3, (uint32_t[]){0, 1, 2, 3, 1, 2});
	assert_plan(4, 3, 3, (uint32_t[]){0, 1, 2, 3, 1, 2, 0, 1, 2});
	assert_plan(3, 2, 4, (uint32_t[]){0, 1, 2, 0, 0, 1, 2, 0});
	assert_plan(2, 1, 8, (uint32_t[]){0, 1, 0, 1, 0, 1, 0, 1});
}

static void test_round_robin__equals_the_published_search_for_all_small_jobs(void **state)
{
	uint32_t expected[TARGETS_MAX];

	(void)state;
	for (uint32_t senders = 1; senders <= 40; senders++)
		for (uint32_t engines = 1; engines <= 7; engines++)
			for (uint32_t width = 1; width <= 9; width++) {
				published(senders, engines, width, expected);
				assert_plan(senders, engines, width, expected);
			}
}

static void test_round_robin__has_the_published_sessions_of_real_runs(void **state)
{
	static const struct {
		uint32_t senders, engines, width, sessions;
	} runs[] = {{8, 2, 4, 1},   {8, 1, 8, 1},   {16, 2, 8, 1}, {8, 4, 8, 4},
		    {16, 2, 32, 4}, {16, 2, 64, 8}, {32, 8, 32, 8}};

	(void)state;
	for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
		uint32_t sender[256], most = 0;
		uint32_t targets = runs[i].engines * runs[i].width;

		round_robin_of(runs[i].senders, runs[i].engines, runs[i].width, sender);
		for (uint32_t s = 0; s < runs[i].senders; s++) {
			uint32_t sessions = 0;

			for (uint32_t t = 0; t < targets; t++)
				sessions += sender[t] == s;
			most = sessions > most ? sessions : most;
		}
		assert_int_equal(most, runs[i].sessions);
	}
}

static void test_round_robin__deals_each_holder_set_on_its_own(void **state)
{
	static struct job job;
	struct table *table;

	(void)state;
	/* stages {0, 1} and {2, 3}; tensors one a stage, three inference ranks */
	job_init(&job, 4, 3);
	for (uint32_t t = 0; t < 4; t++)
		job_hold(&job, t, t < 2 ? "first" : "second", t < 2 ? 0 : 1, 4, 2, 0, 4);
	for (uint32_t i = 0; i < 3; i++) {
		job_want(&job, i, "p", "first", 4, 2, 0, 4, 0, 2);
		job_want(&job, i, "q", "second", 4, 2, 0, 4, 0, 2);
	}
	job_build(&job);
	table = job_plan(&job, "round-robin");
	assert_int_equal(table->route_count, 6);
	for (uint32_t r = 0; r < 6; r++) {
		static const uint32_t expected[] = {0, 1, 0, 2, 3, 2};

		assert_int_equal(table->routes[r].trainer, expected[r]);
	}
	table_free(&table);
	job_fini(&job);
}

static void test_round_robin__serves_a_shard_from_the_ranks_sender_of_its_holders(void **state)
{
	static struct job job;
	struct table *table;

	(void)state;
	/* shard 0: trainers 0, 2; shard 1: trainers 1, 3 */
	job_init(&job, 4, 2);
	for (uint32_t t = 0; t < 4; t++)
		job_hold(&job, t, "w", 0, 8, 2, t % 2 * 4, t % 2 * 4 + 4);
	for (uint32_t i = 0; i < 2; i++)
		job_want(&job, i, "p", "w", 8, 2, 0, 8, 0, 2);
	job_build(&job);
	table = job_plan(&job, "round-robin");
	assert_int_equal(table->route_count, 4);
	assert_int_equal(table->routes[0].trainer, 0);
	assert_int_equal(table->routes[1].trainer, 1);
	assert_int_equal(table->routes[2].trainer, 2);
	assert_int_equal(table->routes[3].trainer, 3);
	table_free(&table);
	job_fini(&job);
}

static void test_round_robin__is_proved_on_random_jobs(void **state)
{
	struct dice dice = dice_seeded("round-robin");

	(void)state;
	for (int round = 0; round < 1000; round++) {
		static struct job job;
		struct table *table;

		job_random(&job, &dice);
		table = job_plan(&job, "round-robin"); /* planning proves */
		table_free(&table);
		job_fini(&job);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_robin__gives_the_published_plans),
		cmocka_unit_test(test_round_robin__equals_the_published_search_for_all_small_jobs),
		cmocka_unit_test(test_round_robin__has_the_published_sessions_of_real_runs),
		cmocka_unit_test(test_round_robin__deals_each_holder_set_on_its_own),
		cmocka_unit_test(
			test_round_robin__serves_a_shard_from_the_ranks_sender_of_its_holders),
		cmocka_unit_test(test_round_robin__is_proved_on_random_jobs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

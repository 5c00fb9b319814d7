/* SPDX-License-Identifier: Apache-2.0 */
#include "routing/plan/order.h"
#include "tests/unit/routing/plan/routing_naive.h"

static void test_greedy__equals_the_naive_rule_on_random_jobs(void **state)
{
	struct dice dice = dice_seeded("greedy");

	(void)state;
	for (int round = 0; round < 10000; round++) {
		static struct job job;
		static struct naive naive;
		struct table *table;

		job_random(&job, &dice);
		table = job_plan(&job, "greedy");
		naive_list(&naive, &job);
		naive_greedy(&naive);
		naive_equals(&naive, table);
		table_free(&table);
		job_fini(&job);
	}
}

static void assert_senders(const struct table *table, const uint32_t *trainers, size_t count)
{
	assert_int_equal(table->route_count, count);
	for (size_t r = 0; r < count; r++)
		assert_int_equal(table->routes[r].trainer, trainers[r]);
}

static void test_greedy__prefers_the_least_loaded_holder(void **state)
{
	static struct job job;
	struct table *table;

	(void)state;
	job_init(&job, 2, 1);
	for (uint32_t t = 0; t < 2; t++) {
		job_hold(&job, t, "big", 0, 8, 2, 0, 8);
		job_hold(&job, t, "small", 1, 1, 2, 0, 1);
		job_hold(&job, t, "middle", 2, 2, 2, 0, 2);
	}
	job_want(&job, 0, "a", "big", 8, 2, 0, 8, 0, 2);
	job_want(&job, 0, "b", "small", 1, 2, 0, 1, 0, 2);
	job_want(&job, 0, "c", "middle", 2, 2, 0, 2, 0, 2);
	job_build(&job);
	table = job_plan(&job, "greedy");
	assert_senders(table, (uint32_t[]){0, 1, 1}, 3);
	table_free(&table);
	job_fini(&job);
}

static void test_greedy__takes_the_lowest_rank_on_a_tie(void **state)
{
	static struct job job;
	struct table *table;

	(void)state;
	job_init(&job, 3, 4);
	for (uint32_t t = 0; t < 3; t++)
		job_hold(&job, t, "w", 0, 4, 2, 0, 4);
	for (uint32_t i = 0; i < 4; i++)
		job_want(&job, i, "p", "w", 4, 2, 0, 4, 0, 2);
	job_build(&job);
	table = job_plan(&job, "greedy");
	assert_senders(table, (uint32_t[]){0, 1, 2, 0}, 4);
	table_free(&table);
	job_fini(&job);
}

static void test_greedy__decides_shard_by_shard_where_nobody_has_all(void **state)
{
	static struct job job;
	struct table *table;

	(void)state;
	/* two shard groups of two: trainers 0, 2 have rows 0..4, trainers 1, 3 rows 4..7 */
	job_init(&job, 4, 2);
	for (uint32_t t = 0; t < 4; t++)
		job_hold(&job, t, "w", 0, 7, 2, t % 2 ? 4 : 0, t % 2 ? 7 : 4);
	job_want(&job, 0, "p", "w", 7, 2, 1, 6, 0, 1); /* crosses the border */
	job_want(&job, 1, "p", "w", 7, 2, 0, 4, 0, 2); /* inside shard 0 */
	job_build(&job);
	table = job_plan(&job, "greedy");
	assert_senders(table, (uint32_t[]){0, 1, 2}, 3);
	assert_int_equal(table->routes[0].bytes, 12);
	assert_int_equal(table->routes[1].bytes, 8);
	/* rows 1..4 come first in the target, rows 4..6 right after them */
	assert_int_equal(table->pieces[0].offset, 0);
	assert_int_equal(table->pieces[1].offset, 12);
	assert_int_equal(table->pieces[1].src.lo[0], 4);
	assert_int_equal(table->pieces[1].src.hi[0], 6);
	assert_int_equal(table->pieces[0].path, PATH_MAPPED);
	assert_int_equal(table->pieces[2].path, PATH_DIRECT);
	table_free(&table);
	job_fini(&job);
}

static void test_greedy__a_whole_holder_wins_over_cutting_into_shards(void **state)
{
	static struct job job;
	struct table *table;

	(void)state;
	job_init(&job, 3, 1);
	job_hold(&job, 0, "w", 0, 6, 1, 0, 3);
	job_hold(&job, 1, "w", 0, 6, 1, 3, 6);
	job_hold(&job, 2, "w", 0, 6, 1, 0, 6);
	job_want(&job, 0, "p", "w", 6, 1, 0, 6, 0, 1);
	job_build(&job);
	table = job_plan(&job, "greedy");
	assert_senders(table, (uint32_t[]){2}, 1);
	table_free(&table);
	job_fini(&job);
}

static void test_send_order__is_each_tensors_targets_rotated_by_the_trainer(void **state)
{
	static struct job job;
	struct table *table;
	struct send_order sends;

	(void)state;
	job_init(&job, 3, 4);
	job_hold(&job, 0, "other", 0, 4, 2, 0, 4);
	job_hold(&job, 1, "other", 0, 4, 2, 0, 0);
	job_hold(&job, 2, "w", 1, 4, 2, 0, 4);
	job_hold(&job, 2, "v", 2, 4, 2, 0, 4);
	for (uint32_t i = 0; i < 4; i++) {
		job_want(&job, i, "p", "w", 4, 2, 0, 4, 0, 2);
		job_want(&job, i, "q", "v", 4, 2, 0, 4, 0, 2);
		job_want(&job, i, "r", "other", 4, 2, 0, 4, 0, 2);
	}
	job_build(&job);
	table = job_plan(&job, "greedy");
	assert_string_equal(table->order, "rotated");
	assert_int_equal(order_sends(table, &sends, NULL), 0);
	assert_int_equal(sends.first[3] - sends.first[2], 8);
	for (size_t k = 0; k < 8; k++) {
		const struct route *route = &table->routes[sends.routes[sends.first[2] + k]];

		assert_int_equal(route->trainer, 2);
		assert_string_equal(job.problem->tensors[route->tensor].name, k < 4 ? "w" : "v");
		assert_int_equal(route->inference, (2 + k) % 4);
	}
	assert_int_equal(sends.first[2], sends.first[1]);
	send_order_fini(&sends);
	table_free(&table);
	job_fini(&job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_greedy__equals_the_naive_rule_on_random_jobs),
		cmocka_unit_test(test_greedy__prefers_the_least_loaded_holder),
		cmocka_unit_test(test_greedy__takes_the_lowest_rank_on_a_tie),
		cmocka_unit_test(test_greedy__decides_shard_by_shard_where_nobody_has_all),
		cmocka_unit_test(test_greedy__a_whole_holder_wins_over_cutting_into_shards),
		cmocka_unit_test(test_send_order__is_each_tensors_targets_rotated_by_the_trainer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

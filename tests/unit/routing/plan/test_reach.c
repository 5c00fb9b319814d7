/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/routing/plan/routing_naive.h"

#include "routing/report/certificate.h"
#include "routing/report/summary.h"

/* Who is on which host; shm reaches on one host, tcp between all that have it. */
struct places {
	uint32_t host[ROLE_COUNT][JOB_RANKS_MAX];
	bool tcp[ROLE_COUNT][JOB_RANKS_MAX];
};

static void place(struct job *job, const struct places *places)
{
	struct transports list;
	struct pool pool = {0};
	struct pairs pairs;

	assert_int_equal(transports_parse(&list, "shm,tcp", NULL), 0);
	assert_true(pairs_init(&pairs, &pool, &list, job->trainer_count, job->inference_count));
	for (int role = 0; role < ROLE_COUNT; role++)
		for (uint32_t i = 0; i < pairs.count[role]; i++) {
			pairs_side(&pairs, (enum role)role, i, 0)->reach =
				places->host[role][i] + 1;
			pairs_side(&pairs, (enum role)role, i, 1)->reach = places->tcp[role][i];
		}
	assert_int_equal(problem_set_pairs(job->problem, &pairs, NULL), 0);
	pool_free(&pool);
}

static bool reaches(const struct places *places, uint32_t trainer, uint32_t rank)
{
	return places->host[ROLE_TRAINER][trainer] == places->host[ROLE_INFERENCE][rank] ||
	       (places->tcp[ROLE_TRAINER][trainer] && places->tcp[ROLE_INFERENCE][rank]);
}

static struct table *plan(const struct job *job, const struct policy *policy)
{
	struct error error = {0};
	struct table *table;

	if (table_plan(&table, job->problem, policy, NULL, &error))
		fail_msg("%s: %s", policy->name, error.text);
	return table;
}

/* ---- by hand ---- */

static void test_policies__take_a_holder_that_reaches_whatever_their_rule_says(void **state)
{
	const struct places places = {.host = {{0, 1, 1}, {0, 1, 1, 0}}};
	size_t count;
	const struct policy *policies = policy_list(&count);
	struct job job;

	(void)state;
	job_init(&job, 3, 4);
	for (uint32_t t = 0; t < 3; t++)
		for (uint32_t w = 0; w < 4; w++)
			job_hold(&job, t, (const char *[]){"a", "b", "c", "d"}[w], w, 8, 4, 0, 8);
	for (uint32_t i = 0; i < 4; i++)
		for (uint32_t w = 0; w < 4; w++)
			job_want(&job, i, (const char *[]){"A", "B", "C", "D"}[w],
				 (const char *[]){"a", "b", "c", "d"}[w], 8, 4, 0, 8, 0, 4);
	job_build(&job);
	place(&job, &places);
	for (size_t p = 0; p < count; p++) {
		struct table *table = plan(&job, &policies[p]);

		assert_int_equal(table_unreached(table), table->route_count);
		for (size_t r = 0; r < table->route_count; r++)
			if (places.host[ROLE_INFERENCE][table->routes[r].inference] == 0)
				assert_int_equal(table->routes[r].trainer, 0);
			else
				assert_int_not_equal(table->routes[r].trainer, 0);
		table_free(&table);
	}
	job_fini(&job);
}

static void test_shards__are_taken_where_who_holds_all_does_not_reach(void **state)
{
	const struct places places = {.host = {{0, 1, 1}, {1}}};
	struct table *table;
	struct job job;

	(void)state;
	job_init(&job, 3, 1);
	job_hold(&job, 0, "a", 0, 8, 4, 0, 8);
	job_hold(&job, 1, "a", 0, 8, 4, 0, 5);
	job_hold(&job, 2, "a", 0, 8, 4, 5, 8);
	job_want(&job, 0, "A", "a", 8, 4, 0, 8, 0, 4);
	job_build(&job);
	table = job_plan(&job, "greedy");
	assert_int_equal(table->route_count, 1); /* one transport: who holds all sends all */
	table_free(&table);
	place(&job, &places);
	table = job_plan(&job, "greedy");
	assert_int_equal(table->route_count, 2);
	assert_int_equal(table->routes[0].trainer, 1);
	assert_int_equal(table->routes[0].bytes, 5 * 4 * 4);
	assert_int_equal(table->routes[1].trainer, 2);
	table_free(&table);
	job_fini(&job);
}

static void test_bound__counts_only_who_may_send(void **state)
{
	/* rank 1 is alone with trainer 1: all its 128 bytes are that trainer's */
	const struct places places = {.host = {{0, 1, 0, 0}, {0, 1}}};
	struct certificate certificate;
	struct summary summary;
	struct table *table;
	struct job job;

	(void)state;
	job_init(&job, 4, 2);
	for (uint32_t t = 0; t < 4; t++)
		job_hold(&job, t, "a", 0, 8, 4, 0, 8);
	for (uint32_t i = 0; i < 2; i++)
		job_want(&job, i, "A", "a", 8, 4, 0, 8, 0, 4);
	job_build(&job);
	for (int placed = 0; placed < 2; placed++) {
		if (placed)
			place(&job, &places);
		table = job_plan(&job, "balanced");
		assert_int_equal(summary_of(&summary, table, NULL), 0);
		assert_int_equal(certificate_of(&certificate, table, NULL), 0);
		assert_int_equal(summary.lower_bound_bytes, placed ? 128 : 64);
		assert_int_equal(summary.makespan_bytes, placed ? 128 : 64);
		if (placed)
			assert_int_equal(certificate.sender_bound_bytes, 128);
		summary_fini(&summary);
		table_free(&table);
	}
	job_fini(&job);
}

static void test_plan__without_memory_for_who_reaches_whom_fails_and_leaks_nothing(void **state)
{
	const struct places places = {.host = {{0, 1, 1}, {1, 1}}};
	struct table *table = NULL;
	struct error error;
	struct job job;
	uint64_t at = 0;
	int rc;

	(void)state;
	job_init(&job, 3, 2);
	job_hold(&job, 0, "a", 0, 8, 4, 0, 8);
	job_hold(&job, 1, "a", 0, 8, 4, 0, 5);
	job_hold(&job, 2, "a", 0, 8, 4, 5, 8);
	for (uint32_t i = 0; i < 2; i++)
		job_want(&job, i, "A", "a", 8, 4, 0, 8, 0, 4);
	job_build(&job);
	place(&job, &places);
	do {
		memory_fail_at(++at);
		rc = table_plan(&table, job.problem, policy_find("balanced"), NULL, &error);
		memory_fail_at(0);
		assert_true(rc == 0 || rc == -ERROR_MEMORY);
	} while (rc);
	assert_int_equal(table_unreached(table), table->route_count);
	assert_true(at > 20);
	table_free(&table);
	job_fini(&job);
}

/* ---- random jobs ---- */

/* Each row that each rank wants is held by somebody who reaches it. */
static bool can_be_served(const struct job *job, const struct places *places)
{
	for (uint32_t i = 0; i < job->inference_count; i++)
		for (size_t p = 0; p < job->inference[i]->piece_count; p++) {
			const struct piece *piece = &job->inference[i]->pieces[p];
			const char *name = job->inference[i]->tensors[piece->tensor].name;

			for (uint64_t row = piece->src.lo[0]; row < piece->src.hi[0]; row++) {
				bool held = false;

				for (uint32_t t = 0; t < job->trainer_count; t++)
					held = held || (reaches(places, t, i) &&
							naive_holds(job, t, name, row, row + 1));
				if (!held)
					return false;
			}
		}
	return true;
}

static void check_job(const struct job *job, const struct places *places, struct dice *dice,
		      uint32_t *served, uint32_t *narrowed)
{
	size_t count;
	const struct policy *policies = policy_list(&count);
	bool can = can_be_served(job, places);

	*served += can;
	for (size_t p = 0; p < count; p++) {
		struct table *table = plan(job, &policies[p]);
		struct certificate certificate;
		struct summary summary;

		assert_true((table_unreached(table) == table->route_count) == can);
		assert_int_equal(table_prove(table, NULL), 0);
		assert_int_equal(summary_of(&summary, table, NULL), 0);
		assert_int_equal(certificate_of(&certificate, table, NULL), 0);
		assert_true(summary.lower_bound_bytes <= summary.makespan_bytes);
		assert_true(certificate.bound_seconds <=
			    certificate.makespan_seconds * (1 + 1e-12));
		for (uint32_t t = 0; can && t < job->trainer_count; t++)
			for (uint32_t i = 0; i < job->inference_count; i++)
				*narrowed += !reaches(places, t, i);
		summary_fini(&summary);
		table_free(&table);
	}
	/* a limit of sessions may be too low; a plan that obeys it obeys this too */
	struct plan_options options = {.sessions_max = 1 + (uint32_t)dice_below(dice, 4)};
	struct table *table;

	if (table_plan(&table, job->problem, policy_find("balanced"), &options, NULL) == 0) {
		assert_true((table_unreached(table) == table->route_count) == can);
		table_free(&table);
	}
}

static void test_random_jobs__are_served_by_who_reaches_whenever_that_can_be(void **state)
{
	struct dice dice = dice_seeded("reach");
	uint32_t served = 0, narrowed = 0, runs = 600;

	(void)state;
	for (uint32_t run = 0; run < runs; run++) {
		struct places places;
		uint32_t hosts = 1 + (uint32_t)dice_below(&dice, 3);
		uint64_t some = dice_below(&dice, 4);
		struct job job;

		job_random(&job, &dice);
		for (int role = 0; role < ROLE_COUNT; role++)
			for (uint32_t i = 0; i < JOB_RANKS_MAX; i++) {
				places.host[role][i] = (uint32_t)dice_below(&dice, hosts);
				places.tcp[role][i] = dice_below(&dice, 4) < some;
			}
		place(&job, &places);
		check_job(&job, &places, &dice, &served, &narrowed);
		job_fini(&job);
	}
	/* both kinds, and holders that had to be left out, were really met */
	assert_true(served > runs / 10 && served < runs);
	assert_true(narrowed > runs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_policies__take_a_holder_that_reaches_whatever_their_rule_says),
		cmocka_unit_test(test_shards__are_taken_where_who_holds_all_does_not_reach),
		cmocka_unit_test(test_bound__counts_only_who_may_send),
		cmocka_unit_test(
			test_plan__without_memory_for_who_reaches_whom_fails_and_leaks_nothing),
		cmocka_unit_test(test_random_jobs__are_served_by_who_reaches_whenever_that_can_be),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * An explanation is of the plan that was made: same plan with and without a listener, and what it
 * tells is what the table says.
 */
#include "routing/plan/explain.h"
#include "tests/unit/routing/plan/routing_naive.h"

static struct table *plan_explained(const struct job *job, const struct policy *policy,
				    struct explain *explain)
{
	struct plan_options options = {.explain = explain};
	struct error error = {0};
	struct table *table;

	if (table_plan(&table, job->problem, policy, &options, &error))
		fail_msg("plan: %s", error.text);
	return table;
}

/* The routes of the pair and the decisions about it are the same rows, bytes and trainers. */
static void assert_told(const struct table *table, const struct explain *explain)
{
	size_t told = 0;

	for (size_t r = 0; r < table->route_count; r++) {
		const struct route *route = &table->routes[r];
		uint64_t bytes = 0;
		bool found = false;

		if (route->tensor != explain->tensor || route->inference != explain->inference)
			continue;
		for (size_t d = 0; d < explain->decisions.count && !found; d++) {
			const struct explain_decision *decision = &explain->decisions.items[d];
			const struct box *src = &table->pieces[route->piece_first].src;

			found = decision->lo <= src->lo[0] && src->hi[0] <= decision->hi &&
				decision->chosen == route->trainer;
			bytes = decision->bytes;
		}
		assert_true(found);
		assert_int_equal(bytes, route->bytes);
		told++;
	}
	assert_int_equal(told, explain->decisions.count);
	for (size_t d = 0; d < told; d++) {
		const struct explain_decision *decision = &explain->decisions.items[d];
		bool chosen = false;

		assert_true(decision->reason[0] != '\0');
		for (uint32_t c = 0; c < decision->candidate_count; c++) {
			uint32_t trainer = decision->candidates[c].trainer;

			assert_true(c == 0 || decision->candidates[c - 1].trainer < trainer);
			chosen = chosen || trainer == decision->chosen;
		}
		assert_true(chosen);
	}
}

static void test_explain__tells_what_every_policy_decided_and_changes_nothing(void **state)
{
	struct dice dice = dice_seeded("explain");
	size_t count;
	const struct policy *policies = policy_list(&count);

	(void)state;
	for (int round = 0; round < 500; round++) {
		static struct job job;

		job_random(&job, &dice);
		for (size_t p = 0; p < count; p++) {
			struct explain explain = {
				.tensor = (uint32_t)dice_below(&dice, job.problem->tensor_count),
				.inference = (uint32_t)dice_below(&dice, job.inference_count)};
			struct table *plain = job_plan(&job, policies[p].name);
			struct table *table = plan_explained(&job, &policies[p], &explain);

			assert_true(digest_equal(plain->digest, table->digest));
			assert_told(table, &explain);
			explain_fini(&explain);
			table_free(&plain);
			table_free(&table);
		}
		job_fini(&job);
	}
}

/* For greedy, what each candidate had to send is the sum of the routes before this one. */
static void test_explain__gives_the_loads_at_the_moment_of_the_decision(void **state)
{
	struct dice dice = dice_seeded("loads");
	int seen = 0;

	(void)state;
	for (int round = 0; round < 500; round++) {
		static struct job job;
		uint64_t loads[JOB_RANKS_MAX] = {0};
		struct table *table;
		size_t d = 0;

		job_random(&job, &dice);
		struct explain explain = {
			.tensor = (uint32_t)dice_below(&dice, job.problem->tensor_count),
			.inference = (uint32_t)dice_below(&dice, job.inference_count)};

		table = plan_explained(&job, policy_find("greedy"), &explain);
		for (size_t r = 0; r < table->route_count; r++) {
			const struct route *route = &table->routes[r];

			if (route->tensor == explain.tensor &&
			    route->inference == explain.inference) {
				const struct explain_decision *decision =
					&explain.decisions.items[d++];

				assert_true(decision->has_loads);
				for (uint32_t c = 0; c < decision->candidate_count; c++) {
					const struct explain_candidate *candidate =
						&decision->candidates[c];

					assert_int_equal(candidate->load_bytes,
							 loads[candidate->trainer]);
					assert_true(loads[decision->chosen] <=
						    candidate->load_bytes);
					seen++;
				}
			}
			loads[route->trainer] += route->bytes;
		}
		explain_fini(&explain);
		table_free(&table);
		job_fini(&job);
	}
	assert_true(seen > 200);
}

static void test_explain__words_the_reason(void **state)
{
	static struct job job;
	static const struct {
		const char *policy, *reason;
	} rows[] = {
		{"greedy", "2 of its 3 holders have the fewest bytes so far, 0; of these trainer 1 "
			   "is the lowest rank"},
		{"lpt", "2 of its 3 holders have the fewest bytes so far, 0; of these trainer 1 is "
			"the lowest rank"},
		{"round-robin", "the first ranks are given to one holder each, and inference rank "
				"1 is holder number 1's, trainer 1"},
		{"first-holder", "trainer 0 is the lowest rank of its 3 holders"},
		{"modulo", "inference rank 1 % 3 holders is 1, and holder number 1 is trainer 1"},
		{"hash", "the name's crc32 is 0xe8b7be43; % 3 holders is 0, and holder number 0 is "
			 "trainer 0"},
		{"prefix", "piece 0 of 3 of these holders' tensors, which begins with a, is holder "
			   "number 0's, trainer 0"},
	};

	(void)state;
	job_init(&job, 3, 4);
	for (uint32_t t = 0; t < 3; t++)
		job_hold(&job, t, "a", 0, 4, 1, 0, 4);
	for (uint32_t i = 0; i < 4; i++)
		job_want(&job, i, "p", "a", 4, 1, 0, 4, 0, 1);
	job_build(&job);
	for (size_t p = 0; p < sizeof(rows) / sizeof(rows[0]); p++) {
		struct explain explain = {.inference = 1};
		struct table *table = plan_explained(&job, policy_find(rows[p].policy), &explain);

		assert_int_equal(explain.decisions.count, 1);
		assert_string_equal(explain.decisions.items[0].reason, rows[p].reason);
		assert_int_equal(explain.decisions.items[0].bytes, 16);
		explain_fini(&explain);
		table_free(&table);
	}
	/* the fourth rank: of no kind of its own by engine rank, of trainer 0's by layout */
	struct explain explain = {.inference = 3};
	struct table *table = plan_explained(&job, policy_find("round-robin"), &explain);

	assert_string_equal(explain.decisions.items[0].reason,
			    "no holder has another inference rank of this engine rank, so it is "
			    "the next in turn: holder number 0, trainer 0");
	explain_fini(&explain);
	table_free(&table);
	table = plan_explained(&job, policy_find("round-robin-affinity"), &explain);
	assert_string_equal(explain.decisions.items[0].reason,
			    "of the holders that have inference ranks of this layout, trainer 0 "
			    "has the fewest, 1 (the lowest rank on a tie)");
	explain_fini(&explain);
	table_free(&table);
	job_fini(&job);
}

static void test_explain__fails_cleanly_at_every_allocation(void **state)
{
	static struct job job;
	size_t count;
	const struct policy *policies = policy_list(&count);

	(void)state;
	job_init(&job, 3, 4);
	for (uint32_t t = 0; t < 3; t++)
		job_hold(&job, t, "a", 0, 4, 1, 0, 4);
	for (uint32_t i = 0; i < 4; i++)
		job_want(&job, i, "p", "a", 4, 1, 0, 4, 0, 1);
	job_build(&job);
	for (size_t p = 0; p < count; p++) {
		uint64_t failed = 0;

		for (uint64_t k = 1;; k++) {
			struct explain explain = {.inference = 1};
			struct plan_options options = {.explain = &explain};
			struct error error = {0};
			struct table *table;

			memory_fail_at(k);
			int rc = table_plan(&table, job.problem, &policies[p], &options, &error);

			memory_fail_at(0);
			explain_fini(&explain);
			table_free(&table);
			if (rc == 0)
				break;
			assert_int_equal(rc, -ERROR_MEMORY);
			failed++;
		}
		assert_true(failed > 5);
	}
	job_fini(&job);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_explain__tells_what_every_policy_decided_and_changes_nothing),
		cmocka_unit_test(test_explain__gives_the_loads_at_the_moment_of_the_decision),
		cmocka_unit_test(test_explain__words_the_reason),
		cmocka_unit_test(test_explain__fails_cleanly_at_every_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

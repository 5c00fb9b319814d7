/* SPDX-License-Identifier: Apache-2.0
 *
 * Every policy beside greedy and round-robin: the worked example of docs/routing.md, the rule
 * said again naively, and what each is compared with.
 */
#include "routing/plan/policy.h"
#include "tests/unit/routing/plan/routing_naive.h"

static void assert_senders(const struct table *table, const uint32_t *trainers, size_t count)
{
	assert_int_equal(table->route_count, count);
	for (size_t r = 0; r < count; r++)
		assert_int_equal(table->routes[r].trainer, trainers[r]);
}

/* Everybody holds and everybody wants these tensors, one F32 column each. */
static void job_of_bytes(struct job *job, uint32_t trainers, uint32_t inference,
			 const uint64_t *bytes, uint32_t count)
{
	job_init(job, trainers, inference);
	for (uint32_t n = 0; n < count; n++) {
		char name[] = {(char)('a' + n), 0}, param[] = {(char)('A' + n), 0};
		uint64_t rows = bytes[n] / 4;

		for (uint32_t t = 0; t < trainers; t++)
			job_hold(job, t, name, n, rows, 1, 0, rows);
		for (uint32_t i = 0; i < inference; i++)
			job_want(job, i, param, name, rows, 1, 0, rows, 0, 1);
	}
	job_build(job);
}

static void assert_plans(const char *policy, uint32_t trainers, uint32_t inference,
			 const uint64_t *bytes, uint32_t tensors, const uint32_t *senders)
{
	static struct job job;
	struct table *table;

	job_of_bytes(&job, trainers, inference, bytes, tensors);
	table = job_plan(&job, policy);
	assert_string_equal(table->policy, policy);
	assert_senders(table, senders, (size_t)tensors * inference);
	table_free(&table);
	job_fini(&job);
}

/* ---- worked examples ---- */

static void test_first_holder__sends_all_from_the_lowest_rank(void **state)
{
	(void)state;
	assert_plans("first-holder", 3, 2, (uint64_t[]){60, 40}, 2, (uint32_t[]){0, 0, 0, 0});
}

static void test_modulo__takes_the_inference_rank_modulo_the_holders(void **state)
{
	(void)state;
	assert_plans("modulo", 3, 4, (uint64_t[]){60, 40}, 2, (uint32_t[]){0, 1, 2, 0, 0, 1, 2, 0});
}

static void test_hash__gives_every_inference_rank_of_a_tensor_one_sender(void **state)
{
	(void)state;
	/* crc32 of a is 0xe8b7be43, of b 0x71beeff9, of c 0x06b9df6f: % 3 they are 0, 2, 0 */
	assert_plans("hash", 3, 2, (uint64_t[]){60, 40, 32}, 3, (uint32_t[]){0, 0, 2, 2, 0, 0});
}

static void test_prefix__cuts_the_tensor_list_into_pieces_of_a_share_or_more(void **state)
{
	(void)state;
	/* n = min(8, 4 holders, 3 ranks) = 3; of 3 x 140 bytes a piece ends at 140 or more */
	assert_plans("prefix", 4, 3, (uint64_t[]){60, 12, 20, 28, 4, 16}, 6,
		     (uint32_t[]){0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2});
}

static void test_prefix__leaves_trainers_idle_when_one_tensor_is_larger_than_a_share(void **state)
{
	(void)state;
	assert_plans("prefix", 4, 4, (uint64_t[]){80, 8, 8}, 3,
		     (uint32_t[]){0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1});
}

static void test_prefix__uses_no_more_than_eight_holders(void **state)
{
	uint64_t bytes[20];
	static struct job job;
	struct table *table;

	(void)state;
	for (size_t n = 0; n < 20; n++)
		bytes[n] = 8;
	job_of_bytes(&job, 12, 10, bytes, 20);
	table = job_plan(&job, "prefix");
	for (size_t r = 0; r < table->route_count; r++) /* ends at 2.5 tensors or more: 3 */
		assert_int_equal(table->routes[r].trainer, r / 10 / 3);
	assert_int_equal(table->routes[table->route_count - 1].trainer, 6);
	table_free(&table);
	job_fini(&job);
}

static void test_lpt__decides_large_pairs_first_and_keeps_the_canonical_order(void **state)
{
	(void)state;
	/* greedy ends at 20 + 60 = 80 against 40 + 4; lpt at 64 against 60 */
	assert_plans("greedy", 2, 1, (uint64_t[]){20, 40, 60, 4}, 4, (uint32_t[]){0, 1, 0, 1});
	assert_plans("lpt", 2, 1, (uint64_t[]){20, 40, 60, 4}, 4, (uint32_t[]){1, 1, 0, 0});
}

static void test_lpt__takes_the_lowest_rank_and_the_first_pair_on_a_tie(void **state)
{
	(void)state;
	assert_plans("lpt", 3, 2, (uint64_t[]){8, 8}, 2, (uint32_t[]){0, 1, 2, 0});
}

/* ---- crc32 ---- */

static void test_hash__is_the_crc32_of_zlib(void **state)
{
	(void)state;
	assert_int_equal(hash_crc32("123456789"), 0xcbf43926);
	assert_int_equal(hash_crc32(""), 0);
	assert_int_equal(hash_crc32("a"), 0xe8b7be43);
	assert_int_equal(hash_crc32("The quick brown fox jumps over the lazy dog"), 0x414fa339);
	assert_int_equal(hash_crc32("\xff\xff\xff\xff"), 0xffffffff);
}

/* ---- naive rules on random jobs: gathered, sharded and mixed ---- */

static void assert_naive(const char *policy, void (*rule)(struct naive *), int rounds)
{
	struct dice dice = dice_seeded(policy);

	for (int round = 0; round < rounds; round++) {
		static struct job job;
		static struct naive naive;
		struct table *table;

		job_random(&job, &dice);
		table = job_plan(&job, policy);
		naive_list(&naive, &job);
		rule(&naive);
		naive_equals(&naive, table);
		table_free(&table);
		job_fini(&job);
	}
}

static void test_lpt__equals_the_naive_rule_on_random_jobs(void **state)
{
	(void)state;
	assert_naive("lpt", naive_lpt, 10000);
}

static void test_modulo__equals_the_naive_rule_on_random_jobs(void **state)
{
	(void)state;
	assert_naive("modulo", naive_modulo, 10000);
}

static void test_first_holder__equals_the_naive_rule_on_random_jobs(void **state)
{
	(void)state;
	assert_naive("first-holder", naive_first_holder, 2000);
}

static void naive_hash(struct naive *naive)
{
	for (size_t u = 0; u < naive->count; u++) {
		struct naive_unit *unit = &naive->units[u];

		unit->sender = naive_holder(unit, hash_crc32(unit->name) % naive_holders(unit));
	}
}

static void test_hash__equals_the_naive_rule_on_random_jobs(void **state)
{
	(void)state;
	assert_naive("hash", naive_hash, 2000);
}

/* Cuts the list of one holder set, all of it at once. */
static void naive_cut(struct naive *naive, const bool *holds)
{
	struct naive_unit *units = naive->units;
	uint64_t total = 0, piece_bytes = 0;
	uint32_t n = 8, piece = 0;
	const char *last = NULL;

	for (size_t u = 0; u < naive->count; u++)
		if (memcmp(units[u].holds, holds, sizeof(units[u].holds)) == 0) {
			total += units[u].bytes;
			n = naive_holders(&units[u]) < n ? naive_holders(&units[u]) : n;
		}
	n = naive->job->inference_count < n ? naive->job->inference_count : n;
	for (size_t u = 0; u < naive->count; u++) {
		if (memcmp(units[u].holds, holds, sizeof(units[u].holds)) != 0)
			continue;
		if (last && strcmp(last, units[u].name) != 0 && piece_bytes * n >= total &&
		    piece + 1 < n) {
			piece++;
			piece_bytes = 0;
		}
		last = units[u].name;
		piece_bytes += units[u].bytes;
		units[u].sender = naive_holder(&units[u], piece);
	}
}

static void naive_prefix(struct naive *naive)
{
	for (size_t u = 0; u < naive->count; u++)
		naive_cut(naive, naive->units[u].holds);
}

static void test_prefix__equals_the_naive_rule_on_random_jobs(void **state)
{
	(void)state;
	assert_naive("prefix", naive_prefix, 2000);
}

/* ---- round-robin-affinity ---- */

/* The published plan with its searches; what an engine's rank is, is the layout's index. */
static void published_by_layout(const struct job *job, uint32_t senders, uint32_t *sender)
{
	const uint32_t *layout = job->problem->inference_layout;
	uint32_t owns[JOB_RANKS_MAX][JOB_RANKS_MAX] = {{0}}, turn = 0;

	for (uint32_t i = 0; i < job->inference_count; i++) {
		uint32_t best = i < senders ? i : UINT32_MAX;

		for (uint32_t s = 0; s < senders && i >= senders; s++)
			if (owns[s][layout[i]] &&
			    (best == UINT32_MAX || owns[s][layout[i]] < owns[best][layout[i]]))
				best = s;
		if (best == UINT32_MAX)
			best = turn++ % senders;
		owns[best][layout[i]]++;
		sender[i] = best;
	}
}

static void naive_affinity(struct naive *naive)
{
	for (size_t u = 0; u < naive->count; u++) {
		struct naive_unit *unit = &naive->units[u];
		uint32_t sender[JOB_RANKS_MAX];

		published_by_layout(naive->job, naive_holders(unit), sender);
		unit->sender = naive_holder(unit, sender[unit->rank]);
	}
}

static void test_affinity__equals_the_published_search_by_layout_on_random_jobs(void **state)
{
	(void)state;
	assert_naive("round-robin-affinity", naive_affinity, 4000);
}

/* One tensor, everybody holds it; rank i wants row row_of(i) of it, so equal rows are equal
 * layouts. */
static void job_of_rows(struct job *job, uint32_t senders, uint32_t engines, uint32_t width,
			uint32_t rows)
{
	job_init(job, senders, engines * width);
	job->ranks_per_engine = width;
	for (uint32_t s = 0; s < senders; s++)
		job_hold(job, s, "w", 0, rows, 1, 0, rows);
	for (uint32_t i = 0; i < engines * width; i++)
		job_want(job, i, "p", "w", rows, 1, i % width % rows, i % width % rows + 1, 0, 1);
	job_build(job);
}

static void assert_affinity(uint32_t senders, uint32_t engines, uint32_t width, uint32_t rows,
			    const uint32_t *expected)
{
	static struct job job;
	struct table *table;

	job_of_rows(&job, senders, engines, width, rows);
	table = job_plan(&job, "round-robin-affinity");
	assert_senders(table, expected, (size_t)engines * width);
	table_free(&table);
	job_fini(&job);
}

static void test_affinity__gives_the_published_plans(void **state)
{
	uint32_t wide[32];

	(void)state;
	for (uint32_t i = 0; i < 32; i++) /* 8 senders, 2x16: rank r of both engines to r mod 8 */
		wide[i] = i % 16 % 8;
	assert_affinity(8, 2, 16, 16, wide);
	assert_affinity(4, 2, 3, 3, (uint32_t[]){0, 1, 2, 3, 1, 2});
	assert_affinity(4, 3, 3, 3, (uint32_t[]){0, 1, 2, 3, 1, 2, 0, 1, 2});
	assert_affinity(3, 2, 4, 4, (uint32_t[]){0, 1, 2, 0, 0, 1, 2, 0});
	assert_affinity(2, 1, 8, 8, (uint32_t[]){0, 1, 0, 1, 0, 1, 0, 1});
}

static void test_affinity__is_round_robin_where_an_engine_has_no_equal_layouts(void **state)
{
	(void)state;
	for (uint32_t senders = 1; senders <= 20; senders++)
		for (uint32_t engines = 1; engines <= 4; engines++)
			for (uint32_t width = 1; width <= 6; width++) {
				uint32_t expected[JOB_RANKS_MAX];

				round_robin_of(senders, engines, width, expected);
				assert_affinity(senders, engines, width, width, expected);
			}
}

static void test_affinity__keeps_equal_ranks_of_one_engine_together(void **state)
{
	static struct job job;
	struct table *table;

	(void)state;
	/* tp=4, dp=2: ranks 0 and 2 need the same bytes, and so do 1 and 3 */
	assert_affinity(3, 1, 4, 2, (uint32_t[]){0, 1, 2, 1});
	job_of_rows(&job, 3, 1, 4, 2);
	table = job_plan(&job, "round-robin"); /* trainer 0 would have both layouts */
	assert_senders(table, (uint32_t[]){0, 1, 2, 0}, 4);
	table_free(&table);
	job_fini(&job);
}

/* ---- all of them ---- */

static void test_policies__plan_random_jobs_that_the_proof_accepts(void **state)
{
	struct dice dice = dice_seeded("policies");
	size_t count;
	const struct policy *policies = policy_list(&count);

	(void)state;
	assert_true(count >= 8);
	for (int round = 0; round < 300; round++) {
		static struct job job;

		job_random(&job, &dice);
		for (size_t p = 0; p < count; p++) {
			struct table *table = job_plan(&job, policies[p].name);

			assert_string_equal(table->policy, policies[p].name);
			table_free(&table);
		}
		job_fini(&job);
	}
}

static void test_policies__fail_cleanly_at_every_allocation(void **state)
{
	struct dice dice = dice_seeded("out of memory");
	static struct job job;
	size_t count;
	const struct policy *policies = policy_list(&count);

	(void)state;
	job_random(&job, &dice);
	for (size_t p = 0; p < count; p++) {
		uint64_t failed = 0;

		for (uint64_t k = 1;; k++) {
			struct error error = {0};
			struct table *table;

			memory_fail_at(k);
			int rc = table_plan(&table, job.problem, &policies[p], NULL, &error);

			memory_fail_at(0);
			if (rc == 0) {
				table_free(&table);
				break;
			}
			assert_int_equal(rc, -ERROR_MEMORY);
			assert_null(table);
			failed++;
		}
		assert_true(failed > 3);
	}
	job_fini(&job);
}

static void test_policies__an_unknown_one_is_refused_with_the_known(void **state)
{
	const struct policy *policy;
	struct error error = {0};
	size_t count;
	const struct policy *policies = policy_list(&count);

	(void)state;
	assert_int_equal(policy_named(&policy, "--policy", "best", &error), -ERROR_USAGE);
	assert_non_null(strstr(error.text, "--policy best"));
	for (size_t p = 0; p < count; p++) {
		assert_non_null(strstr(error.text, policies[p].name));
		assert_int_equal(policy_named(&policy, "--policy", policies[p].name, &error), 0);
		assert_ptr_equal(policy, &policies[p]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_first_holder__sends_all_from_the_lowest_rank),
		cmocka_unit_test(test_modulo__takes_the_inference_rank_modulo_the_holders),
		cmocka_unit_test(test_hash__gives_every_inference_rank_of_a_tensor_one_sender),
		cmocka_unit_test(test_prefix__cuts_the_tensor_list_into_pieces_of_a_share_or_more),
		cmocka_unit_test(
			test_prefix__leaves_trainers_idle_when_one_tensor_is_larger_than_a_share),
		cmocka_unit_test(test_prefix__uses_no_more_than_eight_holders),
		cmocka_unit_test(test_lpt__decides_large_pairs_first_and_keeps_the_canonical_order),
		cmocka_unit_test(test_lpt__takes_the_lowest_rank_and_the_first_pair_on_a_tie),
		cmocka_unit_test(test_hash__is_the_crc32_of_zlib),
		cmocka_unit_test(test_lpt__equals_the_naive_rule_on_random_jobs),
		cmocka_unit_test(test_modulo__equals_the_naive_rule_on_random_jobs),
		cmocka_unit_test(test_first_holder__equals_the_naive_rule_on_random_jobs),
		cmocka_unit_test(test_hash__equals_the_naive_rule_on_random_jobs),
		cmocka_unit_test(test_prefix__equals_the_naive_rule_on_random_jobs),
		cmocka_unit_test(
			test_affinity__equals_the_published_search_by_layout_on_random_jobs),
		cmocka_unit_test(test_affinity__gives_the_published_plans),
		cmocka_unit_test(
			test_affinity__is_round_robin_where_an_engine_has_no_equal_layouts),
		cmocka_unit_test(test_affinity__keeps_equal_ranks_of_one_engine_together),
		cmocka_unit_test(test_policies__plan_random_jobs_that_the_proof_accepts),
		cmocka_unit_test(test_policies__fail_cleanly_at_every_allocation),
		cmocka_unit_test(test_policies__an_unknown_one_is_refused_with_the_known),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * test_commit.c -- whom each rank agrees with on what it shows.
 */
#include "job/commit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void check(enum commit commit, uint32_t rank, uint32_t ranks, uint32_t engine_ranks,
		  uint32_t count, const uint32_t *expected)
{
	const struct commit_ranks all = {commit, ranks, engine_ranks, NULL};
	uint32_t mates[16];

	assert_int_equal(commit_mates(&all, rank, NULL), count);
	assert_int_equal(commit_mates(&all, rank, mates), count);
	for (uint32_t i = 0; i < count; i++)
		assert_int_equal(mates[i], expected[i]);
}

#define MATES(commit, rank, ranks, engine_ranks, ...) \
	check(commit, rank, ranks, engine_ranks,      \
	      sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t), (uint32_t[]){__VA_ARGS__})

static void test_mates__of_an_engine_are_its_first_rank_and_that_ones_others(void **state)
{
	(void)state;
	MATES(COMMIT_ENGINE, 0, 8, 4, 1, 2, 3);
	MATES(COMMIT_ENGINE, 2, 8, 4, 0);
	MATES(COMMIT_ENGINE, 4, 8, 4, 5, 6, 7);
	MATES(COMMIT_ENGINE, 7, 8, 4, 4);
	check(COMMIT_ENGINE, 3, 8, 1, 0, NULL); /* an engine of one rank decides by itself */
	for (uint32_t rank = 0; rank < 8; rank++)
		check(COMMIT_RANK, rank, 8, 4, 0, NULL);
}

static void test_mates__of_a_job_are_a_tree_over_its_engines(void **state)
{
	(void)state;
	MATES(COMMIT_JOB, 0, 12, 4, 1, 2, 3, 4, 8);
	MATES(COMMIT_JOB, 4, 12, 4, 0, 5, 6, 7);
	MATES(COMMIT_JOB, 11, 12, 4, 8);
	MATES(COMMIT_JOB, 0, 3, 1, 1, 2);
	MATES(COMMIT_JOB, 2, 3, 1, 0);
}

static void test_mates__of_a_job_are_of_engines_that_are_here(void **state)
{
	bool away[12] = {true, true, true, false, false, false, true, true, true};
	const struct commit_ranks ranks = {COMMIT_JOB, 12, 3, away};
	uint32_t mates[12];

	(void)state;
	assert_int_equal(commit_mates(&ranks, 3, mates), 3);
	assert_int_equal(mates[0], 4);
	assert_int_equal(mates[1], 5);
	assert_int_equal(mates[2], 9);
	assert_int_equal(commit_mates(&ranks, 9, mates), 3);
	assert_int_equal(mates[0], 3);
	assert_int_equal(commit_mates(&ranks, 11, mates), 1);
	assert_int_equal(mates[0], 9);
}

/* Each pair is one of both its ranks, and the lower one decides. */
static void check_mutual(const struct commit_ranks *ranks)
{
	for (uint32_t rank = 0; rank < 12; rank++) {
		uint32_t mates[16], theirs[16], decider = UINT32_MAX, count;
		bool has;

		if (ranks->away[rank])
			continue;
		count = commit_mates(ranks, rank, mates);
		has = commit_decider(ranks, rank, &decider);

		assert_int_equal(has, count && mates[0] < rank);
		for (uint32_t i = 0; i < count; i++) {
			uint32_t back = commit_mates(ranks, mates[i], theirs), j = 0;

			while (j < back && theirs[j] != rank)
				j++;
			assert_true(j < back);
			assert_true(i == 0 || mates[i] > rank);
		}
	}
}

static void test_mates__are_mutual(void **state)
{
	(void)state;
	for (int commit = 0; commit < COMMIT_COUNT; commit++)
		for (uint32_t here = 0; here < 16; here++) {
			struct commit_ranks ranks = {(enum commit)commit, 12, 3, NULL};
			bool away[12];

			for (uint32_t rank = 0; rank < 12; rank++)
				away[rank] = !(here >> (rank / 3) & 1);
			ranks.away = away;
			check_mutual(&ranks);
		}
}

static void test_parse__knows_three_names(void **state)
{
	enum commit commit;
	struct error error;

	(void)state;
	for (int i = 0; i < COMMIT_COUNT; i++) {
		assert_int_equal(commit_parse(&commit, commit_name((enum commit)i), &error), 0);
		assert_int_equal(commit, i);
	}
	assert_int_equal(commit_parse(&commit, "engines", &error), -ERROR_USAGE);
	assert_non_null(strstr(error.text, "--commit 'engines' is none of engine"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mates__of_an_engine_are_its_first_rank_and_that_ones_others),
		cmocka_unit_test(test_mates__of_a_job_are_a_tree_over_its_engines),
		cmocka_unit_test(test_mates__of_a_job_are_of_engines_that_are_here),
		cmocka_unit_test(test_mates__are_mutual),
		cmocka_unit_test(test_parse__knows_three_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

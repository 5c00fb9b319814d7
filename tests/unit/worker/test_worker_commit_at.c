/* SPDX-License-Identifier: Apache-2.0
 *
 * test_worker_commit_at.c -- versions that all ranks of an engine have prepared and each shows when its host says so.
 */
#include "tests/unit/worker/worker_rig.h"

#include <sys/wait.h>

#define RANKS 3

static const struct rig_options by_host = {.trainers = 2,
					   .ranks = RANKS,
					   .transport = "shm",
					   .commit = "engine",
					   .shadow = 1,
					   .checksums = 1,
					   .by_host = (1 << RANKS) - 1};

static struct rig rig;

static uint64_t shown(uint32_t rank)
{
	uint64_t version = 0;

	return weft_read_begin(rig.ranks[rank], &version) ? 0 : version;
}

static void all_show(uint64_t version)
{
	for (uint32_t i = 0; i < RANKS; i++)
		assert_int_equal(shown(i), version);
}

/* All ranks have it, and no reader has seen it. */
static void prepare(uint64_t version)
{
	uint64_t before = weft_published(rig.ranks[0]);

	rig_fill(&rig, version);
	rig_wait_begin(&rig, version, 0);
	for (uint32_t t = 0; t < rig.options.trainers; t++)
		rig_send(&rig, t, version);
	rig_wait_end(&rig, 0);
	for (uint32_t i = 0; i < RANKS; i++) {
		assert_int_equal(rig.waits[i].published, version);
		assert_int_equal(weft_published(rig.ranks[i]), before);
		assert_null(weft_param_memory(rig.ranks[i], 0, version));
	}
	all_show(before);
}

static void commit(uint32_t rank, uint64_t version)
{
	weft_error error = WEFT_ERROR_INIT;

	rig_ok(weft_commit_at(rig.ranks[rank], version, &error), &error);
	rig_check(&rig, rank, version);
	assert_int_equal(shown(rank), version);
}

static void refused(int rc, int code, const weft_error *error, const char *words)
{
	assert_int_equal(rc, -code);
	if (!strstr(error->text, words))
		fail_msg("no '%s' in: %s", words, error->text);
}

static void test_commit_at__shows_on_its_rank_what_all_ranks_have_prepared(void **state)
{
	(void)state;
	rig_open(&rig, &by_host);
	all_show(0);
	for (uint64_t version = 1; version <= 20; version++) {
		prepare(version);
		for (uint32_t i = 0; i < RANKS; i++) {
			commit((i + version) % RANKS, version);
			assert_int_equal(shown((i + version + 1) % RANKS),
					 i + 1 < RANKS ? version - 1 : version);
		}
	}
	rig_close(&rig);
}

/* 0: a forked child is refused what is its parent's. */
static int in_a_child(void)
{
	weft_error error = WEFT_ERROR_INIT;
	int status;
	pid_t pid = fork();

	if (!pid)
		_exit(weft_commit_at(rig.ranks[0], 1, &error) != -WEFT_E_STATE ||
		      !strstr(error.text, "forked child"));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void
test_wait__for_what_is_prepared_is_done_and_for_more_is_refused_until_it_is_shown(void **state)
{
	weft_error error = WEFT_ERROR_INIT;
	uint64_t published = 0;

	(void)state;
	rig_open(&rig, &by_host);
	prepare(1);
	rig_ok(weft_update_wait(rig.ranks[0], 1, 0, &published, &error), &error);
	assert_int_equal(published, 1);
	refused(weft_update_wait(rig.ranks[0], 2, 0, NULL, &error), WEFT_E_STATE, &error,
		"update 1 is prepared here and not shown: weft_commit_at shows it");
	refused(weft_update_try_wait(rig.ranks[0], WEFT_VERSION_NEXT, 0, NULL, &error),
		WEFT_E_STATE, &error, "update 1 is prepared here");
	refused(weft_commit_at(rig.ranks[0], 2, &error), WEFT_E_STATE, &error,
		"update 2 is not prepared here, but 1 is");
	assert_int_equal(in_a_child(), 0);
	for (uint32_t i = 0; i < RANKS; i++)
		commit(i, 1);
	commit(0, 1); /* once more is nothing */
	refused(weft_commit_at(rig.ranks[0], 2, &error), WEFT_E_STATE, &error,
		"update 2 is not prepared here, and no other is");
	rig_ok(weft_update_wait(rig.ranks[0], 1, 0, &published, &error), &error);
	prepare(2);
	for (uint32_t i = 0; i < RANKS; i++)
		commit(i, 2);
	rig_close(&rig);
}

static void test_commit_at__of_what_was_prepared_outlives_the_job(void **state)
{
	weft_error error = WEFT_ERROR_INIT;
	uint64_t end;

	(void)state;
	rig_open(&rig, &by_host);
	prepare(1);
	for (uint32_t i = 0; i < RANKS; i++)
		commit(i, 1);
	prepare(2);
	rig_ok(weft_fail(rig.trainers[0], WEFT_E_USAGE, "out of memory", &error), &error);
	for (uint32_t i = 0; i < RANKS; i++) {
		end = clock_ns() + UINT64_C(10000000000);
		while (!weft_update_wait(rig.ranks[i], 2, 0, NULL, &error) && clock_ns() < end)
			clock_sleep_ms(5);
		assert_non_null(strstr(error.text, "out of memory"));
	}
	all_show(1);
	for (uint32_t i = 0; i < RANKS; i++)
		commit(i, 2);
	rig_close(&rig);
}

static int slow(void *context, uint64_t version)
{
	(void)context;
	if (version == 2)
		clock_sleep_ms(1000);
	return 0;
}

/* On threads; the last rank has less time. */
static void wait_for_2(uint32_t last_ms)
{
	for (uint32_t i = 0; i < RANKS; i++) {
		rig.waits[i] = (struct rig_wait){.worker = rig.ranks[i],
						 .version = 2,
						 .timeout_ms = i + 1 < RANKS ? 0 : last_ms,
						 .error = WEFT_ERROR_INIT};
		pthread_create(&rig.waits[i].thread, NULL, rig_wait_thread, &rig.waits[i]);
	}
}

/* Its wait ended at a deadline, after it had promised; the others are let go meanwhile, and so is it. */
static void
test_promise__that_outlived_a_deadline_is_prepared_for_whatever_is_waited_for_next(void **state)
{
	weft_error error = WEFT_ERROR_INIT;
	uint64_t published = 0;

	(void)state;
	for (int next = 0; next < 2; next++) {
		rig_open(&rig, &by_host);
		prepare(1);
		for (uint32_t i = 0; i < RANKS; i++)
			commit(i, 1);
		rig_ok(weft_set_post_load(rig.ranks[1], slow, NULL, &error), &error);
		rig_fill(&rig, 2);
		wait_for_2(400);
		for (uint32_t t = 0; t < rig.options.trainers; t++)
			rig_send(&rig, t, 2);
		pthread_join(rig.waits[2].thread, NULL);
		refused(rig.waits[2].rc, WEFT_E_TIMEOUT, &rig.waits[2].error, "update 2");
		for (uint32_t i = 0; i < 2; i++) {
			pthread_join(rig.waits[i].thread, NULL);
			rig_ok(rig.waits[i].rc, &rig.waits[i].error);
		}
		all_show(1);
		if (next) {
			refused(weft_update_wait(rig.ranks[2], 3, 0, NULL, &error), WEFT_E_STATE,
				&error, "update 2 is prepared here and not shown");
		} else {
			rig_ok(weft_update_wait(rig.ranks[2], WEFT_VERSION_NEXT, 0, &published,
						&error),
			       &error);
			assert_int_equal(published, 2);
		}
		for (uint32_t i = 0; i < RANKS; i++)
			commit(i, 2);
		rig_close(&rig);
	}
}

static void test_ranks__that_show_versions_in_different_ways_are_named(void **state)
{
	struct rig_options mixed = by_host;

	(void)state;
	mixed.by_host = 1 << 0 | 1 << 1;
	rig_open(&rig, &mixed);
	rig_wait_begin(&rig, 1, 0);
	for (uint32_t i = 0; i < RANKS; i++)
		pthread_join(rig.waits[i].thread, NULL);
	refused(rig.waits[0].rc, WEFT_E_USAGE, &rig.waits[0].error,
		"shows versions at once, and this rank when its host calls weft_commit_at (commit_by_host)");
	assert_non_null(strstr(rig.waits[0].error.text, "inference 2"));
	for (uint32_t i = 1; i < RANKS; i++)
		refused(rig.waits[i].rc, WEFT_E_ABORTED, &rig.waits[i].error,
			"set commit_by_host on all or none");
	rig_close(&rig);
}

static void test_commit_at__is_refused_where_it_means_nothing(void **state)
{
	struct rig_options at_once = by_host;
	weft_options options = WEFT_OPTIONS_INIT;
	weft_error error = WEFT_ERROR_INIT;
	weft_worker *worker = NULL;

	(void)state;
	at_once.by_host = 0;
	rig_open(&rig, &at_once);
	rig_update(&rig, 1);
	refused(weft_commit_at(rig.ranks[0], 1, &error), WEFT_E_STATE, &error,
		"weft_options.commit_by_host");
	refused(weft_commit_at(rig.trainers[0], 1, &error), WEFT_E_STATE, &error, "weft_commit_at");
	refused(weft_commit_at(NULL, 1, &error), WEFT_E_USAGE, &error, "worker is NULL");
	options.controller = rig.address;
	options.role = WEFT_INFERENCE;
	options.commit_by_host = 1;
	refused(weft_open(&worker, &options, &error), WEFT_E_USAGE, &error, "set shadow too");
	options.role = WEFT_TRAINER;
	refused(weft_open(&worker, &options, &error), WEFT_E_USAGE, &error,
		"are for inference ranks");
	rig_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_commit_at__shows_on_its_rank_what_all_ranks_have_prepared),
		cmocka_unit_test(
			test_wait__for_what_is_prepared_is_done_and_for_more_is_refused_until_it_is_shown),
		cmocka_unit_test(test_commit_at__of_what_was_prepared_outlives_the_job),
		cmocka_unit_test(
			test_promise__that_outlived_a_deadline_is_prepared_for_whatever_is_waited_for_next),
		cmocka_unit_test(test_ranks__that_show_versions_in_different_ways_are_named),
		cmocka_unit_test(test_commit_at__is_refused_where_it_means_nothing),
	};

	shell_block_signals();
	return cmocka_run_group_tests(tests, NULL, NULL);
}

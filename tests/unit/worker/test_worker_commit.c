/* SPDX-License-Identifier: Apache-2.0
 *
 * test_worker_commit.c -- the ranks of one engine show a version together, or none of them does: real workers over shm,
 * with everything that can come between the first END and the last store.
 */
#include "tests/unit/worker/worker_rig.h"

#include <stdatomic.h>

static const struct rig_options in_place = {
	.trainers = 2, .ranks = 3, .transport = "shm", .commit = "engine"};
static const struct rig_options shadow = {.trainers = 2,
					  .ranks = 3,
					  .transport = "shm",
					  .commit = "engine",
					  .shadow = 1,
					  .checksums = 1};

enum { VERSIONS = 100 };

/* What a reader of the rank is shown; 0: none. */
static uint64_t shown(struct rig *rig, uint32_t rank)
{
	uint64_t version = 0;

	return weft_read_begin(rig->ranks[rank], &version) ? 0 : version;
}

static void all_show(struct rig *rig, uint64_t version)
{
	for (uint32_t i = 0; i < rig->options.ranks; i++)
		assert_int_equal(shown(rig, i), version);
}

static void send_all(struct rig *rig, uint64_t version)
{
	rig_fill(rig, version);
	for (uint32_t t = 0; t < rig->options.trainers; t++)
		rig_send(rig, t, version);
}

/* Ends of the ranks' waits: `code` of rank `first`, and the others with its words. */
static void ends_by(struct rig *rig, uint32_t first, int code, const char *words)
{
	for (uint32_t i = 0; i < rig->options.ranks; i++) {
		char name[32];

		pthread_join(rig->waits[i].thread, NULL);
		snprintf(name, sizeof(name), "inference %u", first);
		assert_int_equal(rig->waits[i].rc, i == first ? code : -WEFT_E_ABORTED);
		assert_non_null(strstr(rig->waits[i].error.text, words));
		if (i == first)
			continue;
		assert_non_null(strstr(rig->waits[i].error.text, name));
		assert_non_null(strstr(rig->waits[i].error.text, " was given up by "));
	}
}

/* ---- agreed ---- */

static void test_commit__is_one_version_on_all_ranks(void **state)
{
	(void)state;
	for (int shadowed = 0; shadowed < 2; shadowed++) {
		struct rig *rig = rig_new(shadowed ? &shadow : &in_place);

		all_show(rig, 0);
		for (uint64_t version = 1; version <= 20; version++) {
			rig_update(rig, version);
			all_show(rig, version);
		}
		rig_free(rig);
	}
}

struct watching {
	struct rig *rig;
	_Atomic bool ends;
	uint64_t looks, moves;
};

/* Rank 0 before and after the others: what they show lies in between. */
static void *watch(void *context)
{
	struct watching *watching = context;
	uint64_t last = 0;

	while (!watching->ends) {
		uint64_t before = weft_published(watching->rig->ranks[0]), between[2], after;

		for (uint32_t i = 0; i < 2; i++)
			between[i] = weft_published(watching->rig->ranks[i + 1]);
		after = weft_published(watching->rig->ranks[0]);
		for (uint32_t i = 0; i < 2; i++)
			assert_true(before <= between[i] && between[i] <= after);
		watching->looks++;
		watching->moves += after != last;
		last = after;
	}
	return NULL;
}

static void test_readers__of_two_ranks_never_see_two_versions(void **state)
{
	struct rig *rig = rig_new(&shadow);
	struct watching watching = {.rig = rig};
	pthread_t thread;

	(void)state;
	pthread_create(&thread, NULL, watch, &watching);
	for (uint64_t version = 1; version <= 100; version++)
		rig_update(rig, version);
	watching.ends = true;
	pthread_join(thread, NULL);
	assert_true(watching.looks > 100);
	assert_true(watching.moves > 10);
	rig_free(rig);
}

static void test_open__in_place_readers_lose_their_version_when_all_ranks_are_there(void **state)
{
	struct rig *rig = rig_new(&in_place);
	weft_error error = WEFT_ERROR_INIT;

	(void)state;
	rig_update(rig, 1);
	assert_int_equal(weft_update_try_wait(rig->ranks[1], 2, 0, NULL, &error), WEFT_AGAIN);
	assert_int_equal(weft_update_try_wait(rig->ranks[0], 2, 0, NULL, &error), WEFT_AGAIN);
	all_show(rig, 1);
	assert_int_equal(weft_update_try_wait(rig->ranks[2], 2, 0, NULL, &error), WEFT_AGAIN);
	assert_int_equal(weft_update_try_wait(rig->ranks[0], 2, 0, NULL, &error), WEFT_AGAIN);
	all_show(rig, 0); /* by one store, though two of them have not looked */
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(weft_tainted(rig->ranks[i]), 0);
	rig_update(rig, 2);
	all_show(rig, 2);
	rig_free(rig);
}

static void test_next__is_the_same_version_for_all(void **state)
{
	struct rig *rig = rig_new(&shadow);

	(void)state;
	rig_wait_begin(rig, WEFT_VERSION_NEXT, 0);
	send_all(rig, 7);
	rig_wait_end(rig, 0);
	all_show(rig, 7);
	rig_free(rig);
}

struct trying {
	weft_worker *worker;
	int rc;
	weft_error error;
};

static void *try_thread(void *context)
{
	struct trying *trying = context;
	uint64_t published = 0, before = 0, tries = 0;

	while (before < VERSIONS) {
		trying->rc = weft_update_try_wait(trying->worker, WEFT_VERSION_NEXT, 5000,
						  &published, &trying->error);
		if (trying->rc == WEFT_AGAIN) {
			if (++tries % 64 == 0) /* the others need the processors too */
				clock_sleep_ms(1);
			continue;
		}
		if (trying->rc || published != before + 1)
			break;
		before = published;
	}
	return NULL;
}

/* A loop may see that the word is stored before it is told so. */
static void test_tries__of_the_next_version_get_each_and_leave_with_their_work_done(void **state)
{
	struct rig *rig = rig_new(&shadow);
	weft_error error = WEFT_ERROR_INIT;
	struct trying trying[3];
	pthread_t threads[3];

	(void)state;
	for (uint32_t i = 0; i < 3; i++) {
		trying[i] = (struct trying){rig->ranks[i], 0, WEFT_ERROR_INIT};
		pthread_create(&threads[i], NULL, try_thread, &trying[i]);
	}
	for (uint64_t version = 1; version <= VERSIONS; version++)
		send_all(rig, version);
	for (uint32_t i = 0; i < 3; i++) {
		pthread_join(threads[i], NULL);
		rig_ok(trying[i].rc, &trying[i].error);
		assert_int_equal(weft_published(rig->ranks[i]), VERSIONS);
	}
	for (uint32_t i = 0; i < 3; i++)
		rig_ok(weft_leave(rig->ranks[i], &error), &error);
	for (uint32_t i = 0; i < 2; i++)
		rig_ok(weft_leave(rig->trainers[i], &error), &error);
	rig_close(rig);
	assert_int_equal(rig->controller_rc, 0);
	memory_free(rig);
}

/* ---- not agreed ---- */

static void test_deadline__names_the_rank_that_is_not_there_and_touches_nothing(void **state)
{
	struct rig *rig = rig_new(&in_place);
	weft_error error = WEFT_ERROR_INIT;

	(void)state;
	rig_update(rig, 1);
	assert_int_equal(weft_update_wait(rig->ranks[0], 2, 200, NULL, &error), -WEFT_E_TIMEOUT);
	assert_non_null(strstr(error.text, "update 2: inference 1 (host "));
	assert_non_null(strstr(error.text, "are not in weft_update_wait for it after 0.2 s"));
	assert_int_equal(weft_update_wait(rig->ranks[1], 2, 200, NULL, &error), -WEFT_E_TIMEOUT);
	assert_non_null(strstr(error.text, "inference 0 (host "));
	assert_non_null(strstr(error.text, "has not said that all ranks are in weft_update_wait"));
	all_show(rig, 1);
	rig_update(rig, 2);
	all_show(rig, 2);
	rig_free(rig);
}

static void test_versions__that_differ_are_named_on_all_ranks(void **state)
{
	struct rig *rig = rig_new(&shadow);

	(void)state;
	rig_update(rig, 1);
	for (uint32_t i = 0; i < 3; i++) {
		rig->waits[i] = (struct rig_wait){.worker = rig->ranks[i],
						  .version = i == 1 ? 4 : 3,
						  .error = WEFT_ERROR_INIT};
		pthread_create(&rig->waits[i].thread, NULL, rig_wait_thread, &rig->waits[i]);
	}
	ends_by(rig, 0, -WEFT_E_VERSION, "wait for");
	assert_non_null(
		strstr(rig->waits[0].error.text, "waits for update 4, and this rank for update 3"));
	all_show(rig, 1);
	rig_update(rig, 4);
	all_show(rig, 4);
	rig_free(rig);
}

static int refuse(void *context, uint64_t version)
{
	(void)context;
	return version == 2 ? 7 : 0;
}

static void test_hook__that_refuses_on_one_rank_keeps_the_version_from_all(void **state)
{
	(void)state;
	for (uint32_t rank = 0; rank < 3; rank++)
		for (int shadowed = 0; shadowed < 2; shadowed++) {
			struct rig *rig = rig_new(shadowed ? &shadow : &in_place);
			weft_error error = WEFT_ERROR_INIT;

			rig_ok(weft_set_post_load(rig->ranks[rank], refuse, NULL, &error), &error);
			rig_update(rig, 1);
			rig_wait_begin(rig, 2, 0);
			send_all(rig, 2);
			ends_by(rig, rank, -WEFT_E_POST_LOAD, "the post-load hook returned 7");
			all_show(rig, shadowed ? 1 : 0);
			for (uint32_t i = 0; i < 3; i++)
				assert_int_equal(weft_tainted(rig->ranks[i]), !shadowed);
			rig_update(rig, 3);
			all_show(rig, 3);
			rig_free(rig);
		}
}

static void test_abort__of_a_trainer_ends_the_version_for_all(void **state)
{
	struct rig *rig = rig_new(&shadow);
	weft_error error = WEFT_ERROR_INIT;

	(void)state;
	rig_update(rig, 1);
	rig_fill(rig, 2);
	rig_wait_begin(rig, 2, 0);
	rig_send(rig, 0, 2);
	rig_ok(weft_update_begin(rig->trainers[1], 2, &error), &error);
	rig_ok(weft_update_abort(rig->trainers[1], "loss is NaN", &error), &error);
	for (uint32_t i = 0; i < 3; i++) {
		pthread_join(rig->waits[i].thread, NULL);
		assert_int_equal(rig->waits[i].rc, -WEFT_E_ABORTED);
	}
	all_show(rig, 1);
	rig_update(rig, 3);
	all_show(rig, 3);
	rig_free(rig);
}

/* What its ranks have given up a trainer may have yet to begin: it writes that in vain, and is in step with the others. */
static void test_abort__before_another_trainer_begins_the_version_does_not_refuse_it(void **state)
{
	(void)state;
	for (int kind = 0; kind < 4; kind++) {
		struct rig *rig = rig_new(kind & 1 ? &shadow : &in_place);
		uint64_t next = kind & 2 ? WEFT_VERSION_NEXT : 3;
		weft_error error = WEFT_ERROR_INIT;

		rig_update(rig, 1);
		rig_fill(rig, 2);
		rig_wait_begin(rig, 2, 0);
		rig_ok(weft_update_begin(rig->trainers[1], 2, &error), &error);
		rig_ok(weft_update_abort(rig->trainers[1], "loss is NaN", &error), &error);
		for (uint32_t i = 0; i < 3; i++) {
			pthread_join(rig->waits[i].thread, NULL);
			assert_int_equal(rig->waits[i].rc, -WEFT_E_ABORTED);
		}
		rig_wait_begin(rig, next, 0);
		clock_sleep_ms(100); /* all have opened for the next one */
		rig_send(rig, 0, 2);
		send_all(rig, 3);
		rig_wait_end(rig, 0);
		all_show(rig, 3);
		for (uint32_t i = 0; i < 3; i++)
			rig_check(rig, i, 3);
		rig_free(rig);
	}
}

/* ---- promised ---- */

static int count(void *context, uint64_t version)
{
	(void)version;
	++*(int *)context;
	return 0;
}

static int count_slowly(void *context, uint64_t version)
{
	if (version == 2)
		clock_sleep_ms(1000);
	return count(context, version);
}

static void test_promise__outlives_a_deadline_and_is_kept_without_loading_again(void **state)
{
	(void)state;
	for (int shadowed = 0; shadowed < 2; shadowed++) {
		struct rig *rig = rig_new(shadowed ? &shadow : &in_place);
		weft_error error = WEFT_ERROR_INIT;
		int loads[3] = {0};

		rig_update(rig, 1);
		for (uint32_t i = 0; i < 3; i++)
			rig_ok(weft_set_post_load(rig->ranks[i], i == 1 ? count_slowly : count,
						  &loads[i], &error),
			       &error);
		rig_wait_begin(rig, 2, 500);
		send_all(rig, 2);
		for (uint32_t i = 0; i < 3; i += 2) {
			pthread_join(rig->waits[i].thread, NULL);
			assert_int_equal(rig->waits[i].rc, -WEFT_E_TIMEOUT);
			assert_non_null(strstr(rig->waits[i].error.text, "loading it"));
			assert_int_equal(shown(rig, i), shadowed ? 1 : 0);
		}
		pthread_join(rig->waits[1].thread, NULL); /* who decides is not there */
		assert_int_equal(rig->waits[1].rc, -WEFT_E_TIMEOUT);
		rig_wait_begin(rig, 2, 5000);
		rig_wait_end(rig, 0);
		all_show(rig, 2);
		for (uint32_t i = 0; i < 3; i++)
			assert_int_equal(loads[i], 1);
		rig_update(rig, 3);
		all_show(rig, 3);
		rig_free(rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_tries__of_the_next_version_get_each_and_leave_with_their_work_done),
		cmocka_unit_test(test_commit__is_one_version_on_all_ranks),
		cmocka_unit_test(test_readers__of_two_ranks_never_see_two_versions),
		cmocka_unit_test(
			test_open__in_place_readers_lose_their_version_when_all_ranks_are_there),
		cmocka_unit_test(test_next__is_the_same_version_for_all),
		cmocka_unit_test(
			test_deadline__names_the_rank_that_is_not_there_and_touches_nothing),
		cmocka_unit_test(test_versions__that_differ_are_named_on_all_ranks),
		cmocka_unit_test(test_hook__that_refuses_on_one_rank_keeps_the_version_from_all),
		cmocka_unit_test(test_abort__of_a_trainer_ends_the_version_for_all),
		cmocka_unit_test(
			test_abort__before_another_trainer_begins_the_version_does_not_refuse_it),
		cmocka_unit_test(
			test_promise__outlives_a_deadline_and_is_kept_without_loading_again),
	};

	shell_block_signals();
	return cmocka_run_group_tests(tests, NULL, NULL);
}

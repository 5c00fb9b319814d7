/* SPDX-License-Identifier: Apache-2.0
 *
 * What a worker says of itself: the board between its host's calls and its heartbeats.
 */
#include "worker/control/activity.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct activity_board board;
static struct member room[LIMIT_WAITS];
static struct message_activity said;

static int set_up(void **unused)
{
	(void)unused;
	board = (struct activity_board){0};
	activity_init(&board);
	return 0;
}

static int tear_down(void **unused)
{
	(void)unused;
	activity_fini(&board);
	return 0;
}

static const struct message_activity *take(void)
{
	activity_take(&board, room, &said);
	return &said;
}

static void test_phase__is_kept_with_its_version_until_another_one_comes(void **unused)
{
	(void)unused;
	assert_int_equal(take()->what, ACTIVITY_JOINS);
	activity_is(&board, ACTIVITY_BEGINS, 7);
	assert_int_equal(take()->what, ACTIVITY_BEGINS);
	assert_int_equal(take()->version, 7);
	clock_sleep_ms(30);
	activity_is(&board, ACTIVITY_BEGINS, 7); /* the same once more */
	assert_true(take()->since_ms >= 30);
	activity_is(&board, ACTIVITY_BEGINS, 8);
	assert_true(take()->since_ms < 30);
}

static void test_waits__are_the_first_few_and_how_many_more_and_end_with_the_phase(void **unused)
{
	struct member first[LIMIT_WAITS];

	(void)unused;
	for (uint32_t i = 0; i < LIMIT_WAITS; i++)
		first[i] = (struct member){ROLE_INFERENCE, i};
	activity_is(&board, ACTIVITY_BEGINS, 7);
	activity_waits(&board, first, LIMIT_WAITS + 3);
	assert_int_equal(take()->wait_count, LIMIT_WAITS);
	assert_int_equal(take()->waits_more, 3);
	assert_int_equal(take()->waits[2].rank, 2);
	activity_is(&board, ACTIVITY_OPEN, 7);
	assert_int_equal(take()->wait_count, 0);
	assert_int_equal(take()->waits_more, 0);
}

static void test_due__is_true_once_a_slice(void **unused)
{
	(void)unused;
	activity_is(&board, ACTIVITY_RECEIVES, 7);
	assert_false(activity_due(&board)); /* it has just begun */
	clock_sleep_ms(ACTIVITY_SLICE_MS + 5);
	assert_true(activity_due(&board));
	assert_false(activity_due(&board));
}

static void test_open__an_update_in_which_a_call_writes_writes(void **unused)
{
	uint64_t begun = clock_ns();

	(void)unused;
	activity_is(&board, ACTIVITY_OPEN, 7);
	assert_int_equal(take()->what, ACTIVITY_OPEN);
	activity_writes(&board, begun);
	clock_sleep_ms(20);
	assert_int_equal(take()->what, ACTIVITY_WRITES);
	assert_true(take()->since_ms >= 20);
	assert_true(take()->busy_ms >= 20);
	activity_wrote(&board, begun);
	assert_int_equal(take()->what, ACTIVITY_OPEN);
	assert_true(take()->busy_ms >= 20);
}

/* Who is at one peer from look to look, and nothing else goes on meanwhile, waits for it. */
static void test_stuck__is_who_has_not_moved_between_two_looks(void **unused)
{
	struct member slow = {ROLE_INFERENCE, 3}, fast = {ROLE_INFERENCE, 4};

	(void)unused;
	activity_is(&board, ACTIVITY_ENDS, 7);
	activity_at(&board, fast);
	activity_past(&board, true);
	activity_at(&board, slow);
	assert_int_equal(take()->wait_count, 0);
	assert_int_equal(take()->wait_count, 1);
	assert_int_equal(said.waits[0].role, ROLE_INFERENCE);
	assert_int_equal(said.waits[0].rank, 3);
	activity_past(&board, false); /* it looked, and waits on */
	assert_int_equal(take()->wait_count, 1);
	activity_past(&board, true);
	assert_int_equal(take()->wait_count, 0);
	assert_int_equal(take()->wait_count, 0);
}

static void test_clocks__of_the_last_update_have_its_bytes_alone(void **unused)
{
	(void)unused;
	activity_ends(&board, &(struct update_clocks){.version = 7, .bytes = 100, .update_us = 5},
		      true);
	assert_int_equal(take()->last.bytes, 100);
	activity_ends(&board, &(struct update_clocks){.version = 8, .bytes = 250, .update_us = 6},
		      true);
	assert_int_equal(take()->last.version, 8);
	assert_int_equal(take()->last.bytes, 150);
	/* what was given up counts for no other update */
	activity_ends(&board, &(struct update_clocks){.version = 9, .bytes = 300}, false);
	assert_int_equal(take()->last.version, 8);
	activity_ends(&board, &(struct update_clocks){.version = 10, .bytes = 310}, true);
	assert_int_equal(take()->last.bytes, 10);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(test_phase__is_kept_with_its_version_until_another_one_comes),
		TEST(test_waits__are_the_first_few_and_how_many_more_and_end_with_the_phase),
		TEST(test_due__is_true_once_a_slice),
		TEST(test_open__an_update_in_which_a_call_writes_writes),
		TEST(test_stuck__is_who_has_not_moved_between_two_looks),
		TEST(test_clocks__of_the_last_update_have_its_bytes_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

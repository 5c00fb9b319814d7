/* SPDX-License-Identifier: Apache-2.0
 *
 * Random updates on a fake clock: whatever is lost, late, given up or full, nothing wrong is published,
 * nothing is reused before its writes completed, and every call returns. And the same with mistakes
 * put in by hand, each of which must be found.
 */
#include "tests/support/update_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SCHEDULES 5000
#else
#define SCHEDULES 100000
#endif

static char *story_of(const struct world_options *options)
{
	struct world_options told = *options;
	struct world *world;
	char *story;

	told.story = told.small = true;
	told.versions = told.abort_version ? 2 : 1; /* the next one recovers */
	world = world_new(&told);
	assert_non_null(world);
	world_run(world);
	assert_null(world_finding(world));
	story = strdup(world_story(world));
	world_free(&world);
	assert_non_null(story);
	return story;
}

static void expect_story(const struct world_options *options, const char *expected)
{
	char *story = story_of(options);

	if (strcmp(story, expected) != 0)
		fprintf(stderr, "%s", story);
	assert_string_equal(story, expected);
	free(story);
}

static void test_story__an_update(void **state)
{
	(void)state;
	expect_story(&(struct world_options){0},
		     "[  2.00] trainer 0 begins version 1\n"
		     "[  2.00] trainer 0 packs source 0 part 0\n"
		     "[  3.00] trainer 0 packs source 0 part 1\n"
		     "[  4.00] trainer 0 posts source 0 part 0 to rank 0\n"
		     "[  5.00] trainer 0 posts source 0 part 1 to rank 0\n"
		     "[  5.00] trainer 0 packs source 1 part 0\n"
		     "[  6.00] trainer 0 posts source 2 part 0 to rank 1\n"
		     "[  7.00] trainer 0 posts source 0 part 0 to rank 1\n"
		     "[  7.00] trainer 0 posts source 0 part 1 to rank 1\n"
		     "[  9.00] trainer 0 posts checksums to rank 0\n"
		     "[ 10.00] trainer 0 posts checksums to rank 1\n"
		     "[ 14.00] trainer 0 signals the end of version 1 to rank 0\n"
		     "[ 15.00] trainer 0 signals the end of version 1 to rank 1\n"
		     "[ 16.00] trainer 0 has ended version 1\n"
		     "[ 17.00] rank 0 publishes version 1\n"
		     "[ 18.00] rank 1 publishes version 1\n");
}

static void test_story__a_slow_pack_is_waited_for_and_the_others_go_on(void **state)
{
	(void)state;
	expect_story(&(struct world_options){.slow_pack = 20},
		     "[  2.00] trainer 0 begins version 1\n"
		     "[  2.00] trainer 0 packs source 0 part 0\n"
		     "[  3.00] trainer 0 packs source 0 part 1\n"
		     "[  5.00] trainer 0 posts source 0 part 1 to rank 0\n"
		     "[  6.00] trainer 0 packs source 1 part 0\n"
		     "[  8.00] trainer 0 posts source 2 part 0 to rank 1\n"
		     "[ 22.00] trainer 0 posts source 0 part 0 to rank 0\n"
		     "[ 22.00] trainer 0 posts source 0 part 0 to rank 1\n"
		     "[ 23.00] trainer 0 posts source 0 part 1 to rank 1\n"
		     "[ 25.00] trainer 0 posts checksums to rank 0\n"
		     "[ 26.00] trainer 0 posts checksums to rank 1\n"
		     "[ 30.00] trainer 0 signals the end of version 1 to rank 0\n"
		     "[ 31.00] trainer 0 signals the end of version 1 to rank 1\n"
		     "[ 32.00] trainer 0 has ended version 1\n"
		     "[ 33.00] rank 0 publishes version 1\n"
		     "[ 34.00] rank 1 publishes version 1\n");
}

static void test_story__a_full_ring_waits_for_writes_and_packs_once_more(void **state)
{
	(void)state;
	expect_story(&(struct world_options){.small_ring = true},
		     "[  2.00] trainer 0 begins version 1\n"
		     "[  2.00] trainer 0 packs source 0 part 0\n"
		     "[  4.00] trainer 0 posts source 0 part 0 to rank 0\n"
		     "[  5.00] trainer 0 packs source 1 part 0\n"
		     "[  7.00] trainer 0 posts source 2 part 0 to rank 1\n"
		     "[  8.00] trainer 0 packs source 0 part 1\n"
		     "[ 10.00] trainer 0 posts source 0 part 1 to rank 0\n"
		     "[ 11.00] trainer 0 posts source 0 part 1 to rank 1\n"
		     "[ 15.00] trainer 0 packs source 0 part 0 once more\n"
		     "[ 17.00] trainer 0 posts source 0 part 0 to rank 1\n"
		     "[ 19.00] trainer 0 posts checksums to rank 0\n"
		     "[ 20.00] trainer 0 posts checksums to rank 1\n"
		     "[ 24.00] trainer 0 signals the end of version 1 to rank 0\n"
		     "[ 25.00] trainer 0 signals the end of version 1 to rank 1\n"
		     "[ 26.00] trainer 0 has ended version 1\n"
		     "[ 27.00] rank 0 publishes version 1\n"
		     "[ 28.00] rank 1 publishes version 1\n");
}

static void test_story__a_lost_link_publishes_nowhere(void **state)
{
	(void)state;
	expect_story(&(struct world_options){.lose_post = 3},
		     "[  2.00] trainer 0 begins version 1\n"
		     "[  2.00] trainer 0 packs source 0 part 0\n"
		     "[  3.00] trainer 0 packs source 0 part 1\n"
		     "[  4.00] trainer 0 posts source 0 part 0 to rank 0\n"
		     "[  5.00] trainer 0 posts source 0 part 1 to rank 0\n"
		     "[  5.00] trainer 0 packs source 1 part 0\n"
		     "[  6.00] trainer 0 posts source 2 part 0 to rank 1\n"
		     "[  6.00] trainer 0 loses rank 1\n"
		     "[  6.00] rank 0: the job failed\n"
		     "[  6.00] rank 1: the job failed\n");
}

static void test_story__an_abort_is_told_when_all_has_landed(void **state)
{
	(void)state;
	expect_story(&(struct world_options){.abort_version = 1},
		     "[  2.00] trainer 0 begins version 1\n"
		     "[  2.00] trainer 0 packs source 0 part 0\n"
		     "[  3.00] trainer 0 packs source 0 part 1\n"
		     "[  4.00] trainer 0 posts source 0 part 0 to rank 0\n"
		     "[  5.00] trainer 0 posts source 0 part 1 to rank 0\n"
		     "[  5.00] trainer 0 packs source 1 part 0\n"
		     "[  6.00] trainer 0 posts source 2 part 0 to rank 1\n"
		     "[  7.00] trainer 0 posts source 0 part 0 to rank 1\n"
		     "[  7.00] trainer 0 posts source 0 part 1 to rank 1\n"
		     "[ 11.00] trainer 0 signals the abort of version 1 to rank 0\n"
		     "[ 12.00] trainer 0 signals the abort of version 1 to rank 1\n"
		     "[ 12.00] rank 0: update 1 was given up by trainer 0: a test\n"
		     "[ 13.00] trainer 0 has given up version 1\n"
		     "[ 13.00] rank 1: update 1 was given up by trainer 0: a test\n"
		     "[ 14.00] trainer 0 begins version 2\n"
		     "[ 14.00] trainer 0 packs source 0 part 0\n"
		     "[ 15.00] trainer 0 packs source 0 part 1\n"
		     "[ 16.00] trainer 0 posts source 0 part 0 to rank 0\n"
		     "[ 17.00] trainer 0 posts source 0 part 1 to rank 0\n"
		     "[ 17.00] trainer 0 packs source 1 part 0\n"
		     "[ 18.00] trainer 0 posts source 2 part 0 to rank 1\n"
		     "[ 19.00] trainer 0 posts source 0 part 0 to rank 1\n"
		     "[ 19.00] trainer 0 posts source 0 part 1 to rank 1\n"
		     "[ 21.00] trainer 0 posts checksums to rank 0\n"
		     "[ 22.00] trainer 0 posts checksums to rank 1\n"
		     "[ 26.00] trainer 0 signals the end of version 2 to rank 0\n"
		     "[ 27.00] trainer 0 signals the end of version 2 to rank 1\n"
		     "[ 28.00] trainer 0 has ended version 2\n"
		     "[ 29.00] rank 0 publishes version 2\n"
		     "[ 30.00] rank 1 publishes version 2\n");
}

static void test_story__what_lands_in_a_window_is_taken_while_more_comes(void **state)
{
	(void)state;
	expect_story(&(struct world_options){.small_landed = true},
		     "[  2.00] trainer 0 begins version 1\n"
		     "[  2.00] trainer 0 packs source 0 part 0\n"
		     "[  3.00] trainer 0 packs source 0 part 1\n"
		     "[  4.00] trainer 0 posts source 0 part 0 to rank 0\n"
		     "[  5.00] trainer 0 posts source 0 part 1 to rank 0\n"
		     "[  5.00] trainer 0 packs source 1 part 0\n"
		     "[  6.00] trainer 0 posts source 2 bytes 0..64 into the window of rank 1\n"
		     "[  7.00] trainer 0 tells rank 1 of 1 entries\n"
		     "[  7.00] trainer 0 posts source 0 bytes 64..128 into the window of rank 1\n"
		     "[ 11.00] trainer 0 tells rank 1 of 2 entries\n"
		     "[ 15.00] trainer 0 posts source 0 bytes 0..64 into the window of rank 1\n"
		     "[ 16.00] rank 1 has taken 2 entries\n"
		     "[ 17.00] trainer 0 posts checksums to rank 0\n"
		     "[ 18.00] trainer 0 posts checksums to rank 1\n"
		     "[ 19.00] trainer 0 tells rank 1 of 3 entries\n"
		     "[ 23.00] trainer 0 signals the end of version 1 to rank 0\n"
		     "[ 24.00] trainer 0 signals the end of version 1 to rank 1\n"
		     "[ 24.00] rank 1 has taken 3 entries\n"
		     "[ 25.00] trainer 0 has ended version 1\n"
		     "[ 26.00] rank 0 publishes version 1\n"
		     "[ 27.00] rank 1 publishes version 1\n");
}

static struct world_options options_of(uint64_t seed)
{
	return (struct world_options){
		.seed = seed,
		.versions = 3,
		.full = seed % 4 == 3,
		.replay = seed % 8 == 3,
		.loss = seed % 3 == 1,
		.delay = seed % 5 < 2,
		.abort = seed % 7 < 2,
		.slow_target = seed % 11 < 3,
		.small_ring = seed % 2 == 0,
		.landed = seed % 5 == 4 || seed % 5 == 1,
		.deltas = seed % 10 == 4 || seed % 10 == 1,
		.interrupt = seed % 13 < 4,
		.dies = seed % 3 != 1 && seed % 17 < 6,
	};
}

static void test_schedule__nothing_wrong_is_published_and_nothing_is_stuck(void **state)
{
	uint64_t publications = 0, steps = 0;
	const char *only = getenv("WEFT_SEED");

	(void)state;
	for (uint64_t seed = only ? strtoull(only, NULL, 10) : 0; seed < SCHEDULES; seed++) {
		struct world_options options = options_of(seed);
		struct world *world;

		options.story = only != NULL;
		world = world_new(&options);
		assert_non_null(world);
		world_run(world);
		if (only)
			fputs(world_story(world), stdout);
		if (world_finding(world))
			print_message("seed %llu: %s\n", (unsigned long long)seed,
				      world_finding(world));
		assert_null(world_finding(world));
		publications += world_publications(world);
		steps += world_steps(world);
		world_free(&world);
		if (only)
			break;
	}
	print_message("%llu publications in %llu steps\n", (unsigned long long)publications,
		      (unsigned long long)steps);
	if (!only)
		assert_true(publications > SCHEDULES);
}

static bool finds(enum world_bug bug, uint64_t seed)
{
	struct world_options options = options_of(seed);

	options.bug = bug;
	return world_finds(&options);
}

static void test_schedule__every_planted_bug_is_found(void **state)
{
	(void)state;
	for (int bug = BUG_NONE + 1; bug < BUG_HEDGE_FIRST; bug++) {
		bool found = false;

		for (uint64_t seed = 0; seed < 200 && !found; seed++)
			found = finds((enum world_bug)bug, seed);
		assert_true(found);
	}
	assert_false(finds(BUG_NONE, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_story__an_update),
		cmocka_unit_test(test_story__a_slow_pack_is_waited_for_and_the_others_go_on),
		cmocka_unit_test(test_story__a_full_ring_waits_for_writes_and_packs_once_more),
		cmocka_unit_test(test_story__a_lost_link_publishes_nowhere),
		cmocka_unit_test(test_story__what_lands_in_a_window_is_taken_while_more_comes),
		cmocka_unit_test(test_story__an_abort_is_told_when_all_has_landed),
		cmocka_unit_test(test_schedule__nothing_wrong_is_published_and_nothing_is_stuck),
		cmocka_unit_test(test_schedule__every_planted_bug_is_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

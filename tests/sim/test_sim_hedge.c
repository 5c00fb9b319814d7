/* SPDX-License-Identifier: Apache-2.0
 *
 * Random updates where trainers are late and others stand in for them (--hedge): whoever is stopped, slow, interrupted or gone, a rank
 * shows whole versions, nothing of a version is written once the next one may be, and every call returns. And the same with
 * mistakes put in by hand, each of which must be found.
 */
#include "tests/support/sanitized.h"
#include "tests/support/update_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#if SANITIZED
#define JOBS 1000
#else
#define JOBS 5000
#endif
#define SEEDS 400

static const char story[] = "[  2.00] trainer 0 begins version 1\n"
			    "[  2.00] trainer 0 packs source 0 part 0\n"
			    "[  2.00] trainer 1 begins version 1\n"
			    "[  2.00] trainer 1 packs source 0 part 0\n"
			    "[  3.00] trainer 0 packs source 0 part 1\n"
			    "[  3.00] trainer 1 packs source 0 part 1\n"
			    "[  4.00] trainer 0 is stopped\n"
			    "[  4.00] trainer 1 posts source 0 part 0 to rank 0\n"
			    "[  5.00] trainer 1 posts source 0 part 1 to rank 0\n"
			    "[  5.00] trainer 1 packs source 1 part 0\n"
			    "[  6.00] trainer 1 posts source 2 part 0 to rank 1\n"
			    "[  7.00] trainer 1 posts source 0 part 0 to rank 1\n"
			    "[  7.00] trainer 1 posts source 0 part 1 to rank 1\n"
			    "[  9.00] trainer 1 posts checksums to rank 0\n"
			    "[ 10.00] trainer 1 posts checksums to rank 1\n"
			    "[ 14.00] trainer 1 signals the end of version 1 to rank 0\n"
			    "[ 15.00] trainer 1 signals the end of version 1 to rank 1\n"
			    "[ 16.00] trainer 1 has ended version 1\n"
			    "[ 25.00] rank 0 asks trainer 1, version 1, permission 2\n"
			    "[ 25.00] trainer 1 for 0 is asked for version 1\n"
			    "[ 26.00] trainer 1 for 0 packs source 0 part 0\n"
			    "[ 26.00] rank 1 asks trainer 1, version 1, permission 2\n"
			    "[ 28.00] trainer 1 for 0 posts source 0 part 0 to rank 0\n"
			    "[ 29.00] trainer 1 for 0 packs source 0 part 1\n"
			    "[ 31.00] trainer 1 for 0 posts source 0 part 1 to rank 0\n"
			    "[ 32.00] trainer 1 for 0 packs source 1 part 0\n"
			    "[ 35.00] trainer 1 for 0 posts checksums to rank 0\n"
			    "[ 39.00] trainer 1 for 0 signals the end of version 1 to rank 0\n"
			    "[ 40.00] rank 0 releases trainer 0, version 1, permission 1\n"
			    "[ 41.00] trainer 1 for 0 is asked for version 1\n"
			    "[ 42.00] trainer 1 for 0 packs source 0 part 0\n"
			    "[ 42.00] rank 0 publishes version 1\n"
			    "[ 43.00] rank 0 releases trainer 0, version 1, permission 1\n"
			    "[ 44.00] trainer 1 for 0 packs source 0 part 1\n"
			    "[ 46.00] trainer 1 for 0 packs source 1 part 0\n"
			    "[ 48.00] trainer 1 for 0 posts source 2 part 0 to rank 1\n"
			    "[ 49.00] trainer 1 for 0 posts source 0 part 0 to rank 1\n"
			    "[ 50.00] trainer 1 for 0 posts source 0 part 1 to rank 1\n"
			    "[ 52.00] trainer 1 for 0 posts checksums to rank 1\n"
			    "[ 56.00] trainer 1 for 0 signals the end of version 1 to rank 1\n"
			    "[ 57.00] rank 1 releases trainer 0, version 1, permission 1\n"
			    "[ 59.00] rank 1 publishes version 1\n"
			    "[ 60.00] trainer 0 posts source 0 part 1 to rank 0\n"
			    "[ 60.00] trainer 0 is spared by rank 0\n"
			    "[ 60.00] trainer 0 posts source 0 part 0 to rank 0\n"
			    "[ 60.00] rank 1 releases trainer 0, version 1, permission 1\n"
			    "[ 61.00] trainer 0 packs source 1 part 0\n"
			    "[ 61.00] trainer 0 posts source 2 part 0 to rank 1\n"
			    "[ 61.00] trainer 0 is spared by rank 1\n"
			    "[ 64.00] trainer 0 signals the abort of version 1 to rank 0\n"
			    "[ 65.00] trainer 0 signals the abort of version 1 to rank 1\n"
			    "[ 65.00] rank 0 releases trainer 1, version 1, permission 2\n"
			    "[ 66.00] trainer 0 has ended version 1\n"
			    "[ 66.00] rank 1 releases trainer 1, version 1, permission 2\n";

static struct world_options options_of(uint64_t seed)
{
	/* What is given up or interrupted beside the loss of a trainer ends at timeouts: see update_world.h. */
	bool loses = seed % 8 == 5;

	return (struct world_options){
		.seed = seed,
		.versions = 4,
		.hedge = true,
		.clash = seed % 7 == 6,
		.full = seed % 31 == 30,
		.loss = seed % 6 == 1,
		.delay = seed % 5 < 2,
		.abort = seed % 9 < 2 && !loses,
		.slow_target = seed % 11 < 3,
		.small_ring = seed % 2 == 0,
		.landed = seed % 4 < 2,
		.interrupt = seed % 13 < 4 && !loses,
		.loses = loses,
		.dies = seed % 6 != 1 && seed % 17 < 4,
	};
}

/* Both have the same pieces, here: two parts for both ranks, one each for one of them. */
static void test_story__a_late_trainer_is_stood_in_for_and_spared(void **state)
{
	struct world_options options = {
		.small = true, .story = true, .hedge = true, .versions = 1, .late_ms = 60};
	struct world *world = world_new(&options);

	(void)state;
	assert_non_null(world);
	world_run(world);
	assert_null(world_finding(world));
	if (strcmp(world_story(world), story) != 0)
		fprintf(stderr, "%s", world_story(world));
	assert_string_equal(world_story(world), story);
	world_free(&world);
}

struct sum {
	uint64_t publications, steps, asks, stood, clashes, lost_shown;
};

static void run(const struct world_options *options, bool told, struct sum *sum)
{
	struct world *world = world_new(options);

	assert_non_null(world);
	world_run(world);
	if (told)
		fputs(world_story(world), stdout);
	if (world_finding(world))
		print_message("seed %llu: %s\n", (unsigned long long)options->seed,
			      world_finding(world));
	assert_null(world_finding(world));
	sum->publications += world_publications(world);
	sum->steps += world_steps(world);
	sum->asks += world_asks(world);
	sum->stood += world_stood(world);
	sum->clashes += world_clashes(world);
	sum->lost_shown += world_lost_shown(world);
	world_free(&world);
}

static uint64_t from_environment(const char *name, uint64_t otherwise)
{
	const char *value = getenv(name);

	return value ? strtoull(value, NULL, 10) : otherwise;
}

static void test_random_jobs__with_late_trainers_publish_whole_versions(void **state)
{
	bool only = getenv("WEFT_SEED") != NULL;
	uint64_t first =
		only ? from_environment("WEFT_SEED", 0) : from_environment("WEFT_FIRST", 0);
	uint64_t jobs =
		only ? 1 : from_environment("WEFT_HEDGES", getenv("WEFT_SOAK") ? 100000 : JOBS);
	struct sum sum = {0};

	(void)state;
	for (uint64_t seed = first; seed < first + jobs; seed++) {
		struct world_options options = options_of(seed);

		options.story = only;
		run(&options, only, &sum);
	}
	print_message(
		"%llu jobs, %llu publications in %llu steps; stand-ins were asked %llu times, and %llu ends counted for another "
		"trainer, %llu for a lost one; %llu times other bytes were found\n",
		(unsigned long long)jobs, (unsigned long long)sum.publications,
		(unsigned long long)sum.steps, (unsigned long long)sum.asks,
		(unsigned long long)sum.stood, (unsigned long long)sum.lost_shown,
		(unsigned long long)sum.clashes);
	if (only)
		return;
	/* it is what they are about */
	assert_true(sum.publications > jobs);
	assert_true(sum.asks > jobs);
	assert_true(sum.stood > jobs / 2);
	assert_true(sum.clashes > jobs / 100);
	assert_true(sum.lost_shown > jobs / 200);
}

static bool finds(enum world_bug bug, uint64_t seed)
{
	struct world_options options = options_of(seed);

	options.bug = bug;
	return world_finds(&options);
}

static void test_random_jobs__find_every_mistake_with_late_trainers(void **state)
{
	(void)state;
	if (getenv("WEFT_SEED") || getenv("WEFT_FIRST"))
		return;
	for (int bug = BUG_HEDGE_FIRST; bug < BUG_COUNT; bug++) {
		uint64_t seed = 0;

		while (seed < SEEDS && !finds((enum world_bug)bug, seed))
			seed++;
		if (getenv("WEFT_HEDGES") || seed == SEEDS)
			print_message("mistake %d: %llu\n", bug, (unsigned long long)seed);
		assert_true(seed < SEEDS);
	}
	assert_false(finds(BUG_NONE, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_story__a_late_trainer_is_stood_in_for_and_spared),
		cmocka_unit_test(test_random_jobs__with_late_trainers_publish_whole_versions),
		cmocka_unit_test(test_random_jobs__find_every_mistake_with_late_trainers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The twelve main stories of a job that lives (docs/living.md), whole, as transcripts that a person can read: tests/sim/stories/.
 * A line that changes here changes what somebody reads at night. WEFT_STORIES_WRITE=1 writes them anew; read the difference.
 *
 * The first is whole, but for heartbeats and what is said while workers declare. Of the others it is left out how the job began, where
 * that is not the story, and what goes over the network: what the controller and workers say and do is there.
 */
#include "base/array.h"
#include "base/memory.h"
#include "tests/support/golden.h"
#include "tests/support/simulator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SPLIT	    "world=2,pp=2" /* each trainer holds what no other does */
#define STORY_BYTES (1 << 20)

/* Two engines of two ranks: 0, 1 are trainers; 2, 3 engine 0; 4, 5 engine 1. */
static struct simulation *running(const char *train)
{
	struct simulation *s = simulation_running(&(struct simulation_options){
		.train = train, .infer = "engines=2,tp=2", .on_loss = "continue"});

	simulation_update(s, 1);
	simulation_run_for(s, 500);
	return s;
}

static void go_on(struct simulation *s, uint64_t version)
{
	simulation_update(s, version);
	simulation_run_for(s, 500);
}

static struct simulation *end(struct simulation *s)
{
	simulation_leave_all(s);
	simulation_run_for(s, 1000);
	return s;
}

static void lose_engine_1(struct simulation *s)
{
	simulation_kill(s, 5);
	simulation_drop(s, 0, 3, "its process has ended");
	simulation_run_for(s, 500);
}

static void start_engine(struct simulation *s, uint32_t first)
{
	simulation_start_rank(s, first);
	simulation_start_rank(s, first + 1);
	simulation_run_for(s, 300);
}

static uint32_t start_trainer(struct simulation *s, uint32_t rank)
{
	return simulation_start(s, &(struct simulation_worker){.role = ROLE_TRAINER, .rank = rank});
}

/* ---- the stories ---- */

static struct simulation *a_job_begins_updates_and_ends(void)
{
	struct simulation *s = running("world=2");

	go_on(s, 2);
	return end(s);
}

static struct simulation *a_rank_is_killed_and_its_engine_leaves(void)
{
	struct simulation *s = running("world=2");

	lose_engine_1(s);
	go_on(s, 2);
	return end(s);
}

static struct simulation *the_engine_comes_back_between_two_versions(void)
{
	struct simulation *s = running("world=2");

	lose_engine_1(s);
	start_engine(s, 2);
	go_on(s, 2);
	return end(s);
}

static struct simulation *the_engine_is_sent_the_last_version_while_trainers_have_nothing_new(void)
{
	struct simulation *s = running("world=2");

	lose_engine_1(s);
	start_engine(s, 2);
	simulation_repeat(s);
	simulation_run_for(s, 300);
	go_on(s, 2);
	return end(s);
}

static struct simulation *a_job_begins_with_one_engine_and_the_other_comes_later(void)
{
	struct simulation *s = simulation_new(&(struct simulation_options){
		.infer = "engines=2,tp=2", .on_loss = "continue", .engines_min = 1});

	simulation_controller_start(s);
	start_trainer(s, 0);
	start_trainer(s, 1);
	start_engine(s, 0);
	simulation_run_to(s, WORKER_RUN, 15000);
	go_on(s, 1);
	start_engine(s, 2);
	go_on(s, 2);
	return end(s);
}

static struct simulation *the_last_engine_is_lost_and_another_is_waited_for(void)
{
	struct simulation *s = running("world=2");

	lose_engine_1(s);
	simulation_kill(s, 2);
	simulation_run_for(s, 6000);
	simulation_update(s, 2);
	simulation_run_for(s, 1000);
	start_engine(s, 2);
	simulation_run_for(s, 500);
	return end(s);
}

static struct simulation *a_trainer_is_lost_in_an_update_and_others_hold_what_it_did(void)
{
	struct simulation *s = running("world=2");

	simulation_begin(s, 0, 2);
	simulation_run_for(s, 100);
	simulation_kill(s, 1);
	simulation_run_for(s, 6000);
	go_on(s, 3);
	return end(s);
}

static struct simulation *a_trainer_that_alone_held_its_part_is_replaced(void)
{
	struct simulation *s = running(SPLIT);
	uint32_t again;

	simulation_kill(s, 1);
	simulation_run_for(s, 6000);
	simulation_begin(s, 0, 2);
	simulation_run_for(s, 1000);
	again = start_trainer(s, 1);
	simulation_run_for(s, 500);
	simulation_begin(s, again, 2);
	simulation_run_for(s, 500);
	return end(s);
}

static struct simulation *all_trainers_are_replaced_and_go_on_after_the_last_version(void)
{
	struct simulation *s = running(SPLIT);
	uint32_t first, second;

	simulation_kill(s, 0);
	simulation_kill(s, 1);
	simulation_run_for(s, 7000);
	first = start_trainer(s, 0);
	second = start_trainer(s, 1);
	simulation_run_for(s, 500);
	simulation_begin(s, first, 2);
	simulation_begin(s, second, 2);
	simulation_run_for(s, 500);
	return end(s);
}

static struct simulation *nobody_replaces_the_trainer_and_the_job_ends_with_its_name(void)
{
	struct simulation *s = running(SPLIT);

	simulation_fail(s, 1, "its NIC is gone");
	simulation_run_for(s, 100);
	simulation_begin(s, 0, 2);
	simulation_run_for(s, 22000);
	return s;
}

static struct simulation *orphans(void)
{
	struct simulation *s = simulation_running(&(struct simulation_options){.orphan_ms = 60000});

	simulation_update(s, 1);
	simulation_run_for(s, 500);
	simulation_controller_kill(s);
	simulation_run_for(s, 9000);
	return s;
}

static struct simulation *the_controller_is_lost_and_another_takes_the_job_over(void)
{
	struct simulation *s = orphans();

	go_on(s, 2);
	simulation_controller_start(s);
	simulation_run_for(s, 2000);
	go_on(s, 3);
	return end(s);
}

static struct simulation *the_controller_is_lost_for_good_and_the_job_ends(void)
{
	struct simulation *s = orphans();

	go_on(s, 2);
	simulation_run_for(s, 60000);
	return s;
}

/* What of it is told. */
enum part { PART_ALL, PART_DEEDS, PART_DEEDS_AFTER_ONE };
static const struct story {
	const char *name;
	struct simulation *(*tell)(void);
	enum part part;
} stories[] = {
	{"a_job_begins_updates_and_ends", a_job_begins_updates_and_ends, PART_ALL},
	{"a_rank_is_killed_and_its_engine_leaves", a_rank_is_killed_and_its_engine_leaves,
	 PART_DEEDS_AFTER_ONE},
	{"the_engine_comes_back_between_two_versions", the_engine_comes_back_between_two_versions,
	 PART_DEEDS_AFTER_ONE},
	{"the_engine_is_sent_the_last_version_while_trainers_have_nothing_new",
	 the_engine_is_sent_the_last_version_while_trainers_have_nothing_new, PART_DEEDS_AFTER_ONE},
	{"a_job_begins_with_one_engine_and_the_other_comes_later",
	 a_job_begins_with_one_engine_and_the_other_comes_later, PART_DEEDS},
	{"the_last_engine_is_lost_and_another_is_waited_for",
	 the_last_engine_is_lost_and_another_is_waited_for, PART_DEEDS_AFTER_ONE},
	{"a_trainer_is_lost_in_an_update_and_others_hold_what_it_did",
	 a_trainer_is_lost_in_an_update_and_others_hold_what_it_did, PART_DEEDS_AFTER_ONE},
	{"a_trainer_that_alone_held_its_part_is_replaced",
	 a_trainer_that_alone_held_its_part_is_replaced, PART_DEEDS_AFTER_ONE},
	{"all_trainers_are_replaced_and_go_on_after_the_last_version",
	 all_trainers_are_replaced_and_go_on_after_the_last_version, PART_DEEDS_AFTER_ONE},
	{"nobody_replaces_the_trainer_and_the_job_ends_with_its_name",
	 nobody_replaces_the_trainer_and_the_job_ends_with_its_name, PART_DEEDS_AFTER_ONE},
	{"the_controller_is_lost_and_another_takes_the_job_over",
	 the_controller_is_lost_and_another_takes_the_job_over, PART_DEEDS_AFTER_ONE},
	{"the_controller_is_lost_for_good_and_the_job_ends",
	 the_controller_is_lost_for_good_and_the_job_ends, PART_DEEDS_AFTER_ONE},
};
#define STORIES (sizeof(stories) / sizeof(stories[0]))

/* ---- as files ---- */

static bool has(const char *line, size_t length, const char *const *words, size_t count)
{
	bool any = false;

	for (size_t i = 0; i < count; i++)
		any = any || memmem(line, length, words[i], strlen(words[i]));
	return any;
}

static bool is_told(const char *line, size_t length, enum part part)
{
	static const char *const sent[] = {" > "};
	static const char *const declared[] = {" heartbeat", " want", " declare ", " layout ",
					       " holding "};
	static const char *const states[] = {" is declare",    " is planned", " is connecting",
					     " is connected",  " is run",     " is leaving",
					     ": plan attempt "};

	if (has(line, length, sent, ARRAY_SIZE(sent)))
		return part == PART_ALL && !has(line, length, declared, ARRAY_SIZE(declared));
	return part == PART_ALL || !has(line, length, states, ARRAY_SIZE(states));
}

static void transcript_of(const struct simulation *s, enum part part, struct text *out)
{
	const char *line = simulation_transcript(s), *end = strstr(line, " begins version 1\n");

	assert_non_null(end);
	while (part == PART_DEEDS_AFTER_ONE && *end != '\n')
		end--;
	if (part == PART_DEEDS_AFTER_ONE)
		line = end + 1;
	for (; (end = strchr(line, '\n')); line = end + 1)
		if (is_told(line, (size_t)(end - line), part))
			text_format(out, "%.*s\n", (int)(end - line), line);
}

static void write_story(const char *path, const char *text)
{
	FILE *file = fopen(path, "we");

	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

static void test_story(void **state)
{
	const struct story *story = *state;
	static char was[STORY_BYTES];
	struct simulation *s = story->tell();
	struct text is = {0};
	char name[128], *path;
	FILE *file;
	size_t n;

	snprintf(name, sizeof(name), "%02zu_%s", (size_t)(story - stories) + 1, story->name);
	path = golden_path("tests/sim/stories", name, ".txt");
	transcript_of(s, story->part, &is);
	simulation_free(&s);
	if (getenv("WEFT_STORIES_WRITE"))
		write_story(path, text_string(&is));
	file = fopen(path, "re");
	if (!file)
		fail_msg("%s is missing: WEFT_STORIES_WRITE=1 writes it", path);
	n = fread(was, 1, sizeof(was) - 1, file);
	was[n] = 0;
	fclose(file);
	if (strcmp(was, text_string(&is)) != 0) {
		for (n = 0; was[n] == text_string(&is)[n];)
			n++;
		while (n && was[n - 1] != '\n')
			n--;
		fail_msg(
			"%s differs (WEFT_STORIES_WRITE=1 writes it anew), first in\n  %.*s\nwhich is now\n  %.*s",
			path, (int)strcspn(was + n, "\n"), was + n,
			(int)strcspn(text_string(&is) + n, "\n"), text_string(&is) + n);
	}
	memory_free(path);
	text_fini(&is);
}

int main(void)
{
	struct CMUnitTest tests[STORIES];

	for (size_t i = 0; i < STORIES; i++)
		tests[i] = (struct CMUnitTest){.name = stories[i].name,
					       .test_func = test_story,
					       .initial_state = (void *)(uintptr_t)&stories[i]};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

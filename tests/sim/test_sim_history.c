/* SPDX-License-Identifier: Apache-2.0
 *
 * Random histories: workers and controllers die, are cut off, interrupted, come back, come late, on a network that loses and
 * doubles. The judge (tests/support/history.h) reads what became of versions; then everything is started again, and the job
 * has to go on. WEFT_HISTORIES says how many, from WEFT_HISTORY on.
 */
#include "tests/support/history.h"
#include "tests/support/simulator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define WORLD_MAX 3u
#define RANKS_MAX 12u
#define NOBODY	  UINT32_MAX
#define HOLD_MS	  2000u

struct story {
	struct simulation *simulation;
	uint64_t seed, random;
	uint32_t trainers, engines, tp;
	uint32_t
		in[WORLD_MAX + RANKS_MAX]; /* the last process of each trainer, then of each rank */
	bool hurt[WORLD_MAX + RANKS_MAX];  /* it may count as lost by now */
	bool serves[WORLD_MAX +
		    RANKS_MAX]; /* it has a part in the job, and nothing has happened to it */
	bool orphans, misfits;	/* misfits: some newcomers need what nobody has */
	bool together;		/* ranks of an engine show versions together, */
	bool job;		/* and engines do */
};

static uint32_t dice(struct story *story, uint32_t sides)
{
	story->random ^= story->random >> 12;
	story->random ^= story->random << 25;
	story->random ^= story->random >> 27;
	return (uint32_t)((story->random * 0x2545F4914F6CDD1Du) >> 33) % sides;
}

static uint32_t places(const struct story *story)
{
	return story->trainers + story->engines * story->tp;
}

static bool lives(const struct story *story, uint32_t place)
{
	uint32_t worker = story->in[place];

	return worker != NOBODY && simulation_alive(story->simulation, worker) &&
	       simulation_state(story->simulation, worker) < WORKER_LEAVING;
}

static void start(struct story *story, uint32_t place)
{
	bool trainer = place < story->trainers;
	struct simulation_worker what = {
		.role = trainer ? ROLE_TRAINER : ROLE_INFERENCE,
		.rank = trainer ? place : place - story->trainers,
		.needs_unsourced = !trainer && story->misfits && dice(story, 12) == 0,
		.needs_less = !trainer && story->misfits && dice(story, 4) == 0,
	};

	if (story->in[place] != NOBODY) /* whatever is left of it ends */
		simulation_kill(story->simulation, story->in[place]);
	story->in[place] = simulation_start(story->simulation, &what);
	story->serves[place] = story->hurt[place] = false;
}

static void hurt(struct story *story, uint32_t place)
{
	story->hurt[place] = true;
	story->serves[place] = false;
}

static void start_dead(struct story *story, uint32_t first, uint32_t count)
{
	for (uint32_t place = first; place < first + count; place++)
		if (!lives(story, place))
			start(story, place);
}

static bool is_over(const struct story *story)
{
	return simulation_controller_over(story->simulation, NULL);
}

/* ---- what happens ---- */

static void update(struct story *story, uint32_t place)
{
	(void)place;
	simulation_update_next(story->simulation);
	simulation_run_for(story->simulation, dice(story, 300));
}

static void repeat(struct story *story, uint32_t place)
{
	(void)place;
	simulation_repeat(story->simulation);
}

static void time_passes(struct story *story, uint32_t place)
{
	(void)place;
	simulation_run_for(story->simulation, dice(story, 7000));
}

static bool runs(const struct story *story, uint32_t place)
{
	return lives(story, place) &&
	       simulation_state(story->simulation, story->in[place]) == WORKER_RUN;
}

/* Its process ends, and some trainer sees that. */
static void is_killed(struct story *story, uint32_t place)
{
	uint32_t trainer = dice(story, story->trainers);

	if (!lives(story, place))
		return;
	hurt(story, place);
	simulation_kill(story->simulation, story->in[place]);
	if (place >= story->trainers && runs(story, trainer) && dice(story, 2))
		simulation_drop(story->simulation, story->in[trainer], place - story->trainers,
				"its process has ended");
}

static void is_not_reached(struct story *story, uint32_t place)
{
	uint32_t trainer = dice(story, story->trainers);

	if (place < story->trainers || !runs(story, place) || !runs(story, trainer))
		return;
	hurt(story, place);
	simulation_drop(story->simulation, story->in[trainer], place - story->trainers,
			"its NIC does not answer");
}

static void is_interrupted(struct story *story, uint32_t place)
{
	if (!lives(story, place) || place < story->trainers)
		return;
	hurt(story, place);
	simulation_leave(story->simulation, story->in[place], false);
}

static void fails(struct story *story, uint32_t place)
{
	if (!runs(story, place))
		return;
	hurt(story, place);
	simulation_fail(story->simulation, story->in[place], "its NIC is gone");
}

static void comes_back(struct story *story, uint32_t place)
{
	uint32_t engine = (place - story->trainers) / story->tp;

	if (place < story->trainers)
		start_dead(story, place, 1);
	else if (dice(story, 4))
		start_dead(story, story->trainers + engine * story->tp, story->tp);
	else if (!lives(story, place))
		start(story, place);
}

/* It is not in its wait for a while, or fails in its next hook; a trainer gives its next version up. */
static void is_slow(struct story *story, uint32_t place)
{
	if (!runs(story, place))
		return;
	if (place < story->trainers)
		simulation_abort(story->simulation, story->in[place]);
	else if (dice(story, 3))
		simulation_hold(story->simulation, story->in[place], dice(story, HOLD_MS));
	else
		simulation_fail_hook(story->simulation, story->in[place]);
}

/* An engine leaves after one of the next versions, each of its ranks when it has that. */
static void does_its_work(struct story *story, uint32_t place)
{
	uint32_t first =
		place < story->trainers ? 0 : place - (place - story->trainers) % story->tp;
	uint64_t last = 1 + dice(story, 2);

	if (place < story->trainers || !story->together)
		return;
	for (uint32_t k = 0; k < story->tp; k++)
		if (!runs(story, first + k))
			return;
	last += simulation_version(story->simulation, story->in[first]);
	for (uint32_t k = 0; k < story->tp; k++) {
		hurt(story, first + k);
		simulation_does(story->simulation, story->in[first + k], last);
	}
}

static void is_cut_off(struct story *story, uint32_t place)
{
	/* who does not reach the next controller, and runs on, is of another job */
	if (!lives(story, place) || story->orphans)
		return;
	hurt(story, place);
	simulation_partition(story->simulation, story->in[place],
			     simulation_now(story->simulation) + dice(story, 9000));
}

static void controller_is_replaced(struct story *story, uint32_t place)
{
	(void)place;
	if (!story->orphans)
		return;
	simulation_controller_kill(story->simulation);
	simulation_run_for(story->simulation, dice(story, 9000));
	simulation_controller_start(story->simulation);
}

static const struct {
	uint32_t weight;
	void (*happens)(struct story *, uint32_t);
} events[] = {
	{36, update},	     {12, time_passes},
	{8, is_killed},	     {2, is_not_reached},
	{3, is_interrupted}, {2, fails},
	{20, comes_back},    {4, is_cut_off},
	{6, repeat},	     {4, controller_is_replaced},
	{5, is_slow},	     {4, does_its_work},
};

static void something_happens(struct story *story)
{
	uint32_t all = 0, place = dice(story, places(story)), chosen;
	size_t e = 0;

	for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
		all += events[i].weight;
	chosen = dice(story, all);
	while (chosen >= events[e].weight)
		chosen -= events[e++].weight;
	for (uint32_t i = 0; i < places(story); i++)
		story->serves[i] = lives(story, i) &&
				   (story->serves[i] || (runs(story, i) && !story->hurt[i]));
	events[e].happens(story, place);
}

/* ---- what has to hold ---- */

static void fail_with(struct story *story, const char *why)
{
	fputs(simulation_transcript(story->simulation), stderr);
	fail_msg("history %llu (WEFT_HISTORY=%llu WEFT_HISTORIES=1): %s",
		 (unsigned long long)story->seed, (unsigned long long)story->seed, why);
}

static void judge(struct story *story)
{
	char *verdict = history_judge(simulation_history(story->simulation));

	if (verdict)
		fail_with(story, verdict);
}

/* It ended for another reason than the job: before that, as one that was silent for too long, say. */
static bool had_left(const struct story *story, uint32_t place, const char *why)
{
	const struct error *error = simulation_error(story->simulation, story->in[place]);

	return simulation_state(story->simulation, story->in[place]) == WORKER_FAILED &&
	       !strstr(error->text, why);
}

/* No trainer is here, or no whole engine: who goes then may be the last one. */
static bool a_side_is_away(const struct story *story, const char *why)
{
	bool trainer = false, engine = false;

	for (uint32_t t = 0; t < story->trainers; t++)
		trainer = trainer || story->serves[t];
	for (uint32_t e = 0; e < story->engines; e++) {
		bool whole = true;

		for (uint32_t k = 0; k < story->tp; k++) {
			uint32_t place = story->trainers + e * story->tp + k;

			whole = whole && story->serves[place] && !had_left(story, place, why);
		}
		engine = engine || whole;
	}
	return !trainer || !engine;
}

/* What a job may end by, where so much goes wrong. */
static bool may_end(const struct story *story, const char *why)
{
	static const char *const reasons[] = {
		"no engine has come for",
		"no other process has come for the rank of trainer",
		"and all wait for trainer",
		"has not come, and without it: ",
		"to join; ",
		"to declare; ",
		"to join for ",
		"to declare for ",
		"to join (",
		"to declare (",
	};

	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
		if (strstr(why, reasons[i]))
			return true;
	return a_side_is_away(story, why);
}

static bool ended(struct story *story)
{
	struct error error;

	if (!simulation_controller_over(story->simulation, &error))
		return false;
	judge(story);
	if (!may_end(story, error.text))
		fail_with(story, error.text);
	return true;
}

/* Everybody runs, and shows the same version; no trainer is about to begin the next one. */
static bool all_are_together(const struct story *story)
{
	uint64_t version = simulation_version(story->simulation, story->in[0]);

	for (uint32_t place = 0; place < places(story); place++)
		if (!runs(story, place) ||
		    simulation_version(story->simulation, story->in[place]) != version ||
		    (place < story->trainers &&
		     !simulation_is_between(story->simulation, story->in[place])))
			return false;
	return version > 0;
}

/* Nothing goes wrong any more, and who is dead is started again. False: the job has ended. */
static bool recovers(struct story *story)
{
	simulation_run_for(story->simulation, 12000);
	for (uint32_t turn = 0; turn < 12; turn++) {
		if (ended(story))
			return false;
		start_dead(story, 0, places(story));
		simulation_run_for(story->simulation, 8000);
		simulation_update_next(story->simulation);
		simulation_run_for(story->simulation, 8000);
		if (all_are_together(story))
			return true;
	}
	if (!ended(story))
		fail_with(story, "the job does not get together again");
	return false;
}

/* All have left, with their work done. */
static void leaves_well(struct story *story)
{
	struct error error;

	if (!simulation_controller_over(story->simulation, &error))
		fail_with(story, "the job does not end");
	if (error.code != ERROR_NONE)
		fail_with(story, error.text);
}

/* ---- one history ---- */

static void begin(struct story *story, struct simulation_options *options, char train[64],
		  char infer[64])
{
	story->trainers = 1 + dice(story, WORLD_MAX);
	story->engines = 1 + dice(story, 4);
	story->together = dice(story, 3) != 0;
	story->job = story->together && dice(story, 3) == 0;
	story->tp = 1 + dice(story, story->together ? 3 : 2);
	story->orphans = dice(story, 3) == 0;
	if (dice(story, 3))
		snprintf(train, 64, "world=%u,source=gathered", story->trainers);
	else /* each holds what nobody else does */
		snprintf(train, 64, "world=%u,pp=%u", story->trainers, story->trainers);
	snprintf(infer, 64, "engines=%u,tp=%u", story->engines, story->tp);
	*options = (struct simulation_options){
		.anew_percent = (uint32_t)(story->seed % 3 == 0 ? 5 : 0),
		.train = train,
		.infer = infer,
		.on_loss = "continue",
		.orphan_ms = story->orphans ? 60000 : 0,
		.engines_min = dice(story, story->engines + 1),
		.seed = story->seed,
		.jitter_ms = dice(story, 50),
		.drop_percent = dice(story, 10),
		.double_percent = dice(story, 10),
		.open_ms = 1 + dice(story, 200),
		.connect_ms = 1 + dice(story, 200),
		.write_ms = 1 + dice(story, 60),
		.join_timeout_ms = dice(story, 3) ? 40000 : 9000,
		.catch_up_from = dice(story, 3) ? "engines" : "trainers",
		.commit = story->job	    ? "job"
			  : story->together ? "engine"
					    : "rank",
		.shadow = dice(story, 2),
		.words_written = dice(story, 2),
		.said_ms = dice(story, 20),
		.load_ms = dice(story, 60),
	};
	for (uint32_t place = 0; place < WORLD_MAX + RANKS_MAX; place++)
		story->in[place] = NOBODY;
}

/* True: it was well until the end. */
static bool play(uint64_t seed)
{
	struct story story = {.seed = seed, .random = seed * 0x9E3779B97F4A7C15u + 11};
	struct simulation_options options;
	char train[64], infer[64];
	uint32_t count, first;
	bool well;

	begin(&story, &options, train, infer);
	count = 6 + dice(&story, 30);
	first = options.engines_min ? options.engines_min : story.engines;
	story.simulation = simulation_new(&options);
	simulation_controller_start(story.simulation);
	start_dead(&story, 0, story.trainers + first * story.tp);
	simulation_run_for(story.simulation, 8000);
	story.misfits = !story.orphans && runs(&story, 0);
	for (uint32_t i = 0; i < count && !is_over(&story); i++)
		something_happens(&story);
	story.misfits = false;
	well = recovers(&story);
	judge(&story);
	if (well) {
		simulation_leave_all(story.simulation);
		simulation_run_for(story.simulation, 30000);
		judge(&story);
		leaves_well(&story);
	}
	simulation_free(&story.simulation);
	return well;
}

static uint64_t number(const char *name, uint64_t other)
{
	const char *value = getenv(name);

	return value && *value ? strtoull(value, NULL, 10) : other;
}

static void
test_histories__whatever_happens_each_version_is_one_trainers_and_the_job_goes_on(void **unused)
{
	uint64_t first = number("WEFT_HISTORY", 1),
		 count = number("WEFT_HISTORIES", getenv("WEFT_SOAK") ? 100000
						  : SANITIZED	      ? 120
								      : 400),
		 well = 0;

	(void)unused;
	for (uint64_t seed = first; seed < first + count; seed++)
		well += play(seed);
	print_message("%llu histories, %llu of them well to the end\n", (unsigned long long)count,
		      (unsigned long long)well);
	if (count >= 100)
		assert_true(well * 10 > count * 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_histories__whatever_happens_each_version_is_one_trainers_and_the_job_goes_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

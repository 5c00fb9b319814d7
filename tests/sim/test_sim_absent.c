/* SPDX-License-Identifier: Apache-2.0
 *
 * Stories of jobs that begin with some of their engines (--engines-min), or have none for a while: when they begin, how the
 * others come in, and what trainers wait for.
 */
#include "tests/support/simulator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void start_trainers(struct simulation *simulation)
{
	for (uint32_t rank = 0; rank < 2; rank++)
		simulation_start(simulation, &(struct simulation_worker){.rank = rank});
}

static void start_engine(struct simulation *simulation, uint32_t engine)
{
	simulation_start_rank(simulation, 2 * engine);
	simulation_start_rank(simulation, 2 * engine + 1);
}

/* Of three engines of two ranks one is enough. */
static struct simulation *begun(const struct simulation_options *more)
{
	struct simulation_options options = *more;
	struct simulation *simulation;

	options.infer = "engines=3,tp=2";
	options.on_loss = "continue";
	options.engines_min = options.engines_min ? options.engines_min : 1;
	simulation = simulation_new(&options);
	simulation_controller_start(simulation);
	start_trainers(simulation);
	return simulation;
}

/* Workers 0, 1: trainers; 2, 3: engine 0, alone. */
static struct simulation *running(const struct simulation_options *more)
{
	struct simulation *simulation = begun(more);

	start_engine(simulation, 0);
	assert_true(simulation_run_to(simulation, WORKER_RUN, 15000));
	return simulation;
}

static void test_job__begins_with_enough_engines_and_takes_the_others_in_as_they_come(void **unused)
{
	struct simulation *s = running(&(struct simulation_options){0});

	(void)unused;
	simulation_expect(s, "*controller: begins with 1 of 3 engines (--engines-min 1): *\n"
			     "*controller: all 4 workers have their peers' endpoints *\n");
	simulation_update(s, 1);
	simulation_run_for(s, 500);
	simulation_assert_all_at(s, 1);
	start_engine(s, 2);
	simulation_run_for(s, 500);
	simulation_update(s, 2);
	simulation_run_for(s, 500);
	simulation_expect(s, "*controller: engine 2 (inference 4..5) is here, and comes in *\n"
			     "*controller: 2 of 3 engines are here from version 2 on\n"
			     "*inference 4 publishes version 2\n");
	simulation_assert_all_at(s, 2);
	start_engine(s, 1);
	simulation_run_for(s, 500);
	simulation_update(s, 3);
	simulation_run_for(s, 500);
	simulation_expect(s, "*controller: 3 of 3 engines are here from version 3 on\n");
	simulation_assert_all_at(s, 3);
	simulation_leave_all(s);
	simulation_run_for(s, 1000);
	simulation_expect(s, "*controller: done: all have left\n");
	simulation_assert_done(s);
	simulation_free(&s);
}

static void test_engines__that_are_started_together_begin_together(void **unused)
{
	struct simulation *s = begun(&(struct simulation_options){0});

	(void)unused;
	start_engine(s, 0);
	simulation_run(s, 900);
	start_engine(s, 1);
	simulation_run(s, 1800);
	start_engine(s, 2);
	assert_true(simulation_run_to(s, WORKER_RUN, 2000));
	simulation_expect_not(s, "engines-min");
	simulation_free(&s);
}

/* Two ranks, of two engines, that die as soon as they have joined: there is always one that has just come. */
static void test_ranks__that_start_again_and_again_hold_nobody_up(void **unused)
{
	struct simulation *s = begun(&(struct simulation_options){0});
	uint32_t looping[2];

	(void)unused;
	start_engine(s, 0);
	simulation_run_for(s, 100);
	for (int turn = 0; turn < 24; turn++) {
		if (turn > 1)
			simulation_leave(s, looping[turn % 2], false);
		looping[turn % 2] = simulation_start_rank(s, turn % 2 ? 2 : 4);
		simulation_run_for(s, 600);
	}
	simulation_expect(s,
			  "[ 10703] controller: begins with 1 of 3 engines (--engines-min 1): *\n"
			  "*controller: all 4 workers have their peers' endpoints *\n");
	simulation_free(&s);
}

static void test_engine__of_which_a_rank_is_here_is_told_what_it_waits_for(void **unused)
{
	struct simulation *s = begun(&(struct simulation_options){.join_timeout_ms = 5000});

	(void)unused;
	start_engine(s, 0);
	simulation_start_rank(s, 4);
	simulation_run(s, 30000); /* longer than the join timeout */
	simulation_expect(
		s, "*controller: begins with 1 of 3 engines *\n"
		   "*inference 4: the job at tcp://head:29600 runs: this engine comes in *\n");
	assert_int_equal(simulation_state(s, 4), WORKER_DECLARE);
	simulation_start_rank(s, 5);
	simulation_run_for(s, 100);
	simulation_update(s, 1);
	simulation_run_for(s, 1000);
	simulation_assert_all_at(s, 1);
	simulation_free(&s);
}

static void test_job__whose_other_engines_never_come_is_done_when_all_others_are(void **unused)
{
	struct simulation *s = running(&(struct simulation_options){0});

	(void)unused;
	simulation_start_rank(s, 2);
	simulation_update(s, 1);
	simulation_run_for(s, 1000);
	for (uint32_t i = 0; i < 4; i++)
		simulation_leave(s, i, true);
	simulation_run_for(s, 1000);
	simulation_expect(s, "*controller: done: all have left\n");
	simulation_assert_done(s);
	assert_non_null(strstr(simulation_error(s, 4)->text, "nothing is left to come in for"));
	simulation_free(&s);
}

static void test_job__with_too_few_engines_is_waited_for_and_named(void **unused)
{
	struct simulation *s = begun(&(struct simulation_options){.engines_min = 2});

	(void)unused;
	start_engine(s, 0);
	simulation_start_rank(s, 3);
	simulation_run(s, 19000);
	assert_int_equal(simulation_state(s, 0), WORKER_DECLARE);
	simulation_run(s, 22000);
	simulation_expect(
		s,
		"*controller: the job fails: waiting for inference 2,4..5 of 6 to join (2 engines are enough: --engines-min)*");
	simulation_free(&s);
}

static void test_newcomer__that_needs_what_nobody_holds_is_turned_away(void **unused)
{
	struct simulation *s = running(&(struct simulation_options){0});

	(void)unused;
	for (uint32_t rank = 2; rank < 4; rank++)
		simulation_start(s, &(struct simulation_worker){.role = ROLE_INFERENCE,
								.rank = rank,
								.needs_unsourced = true});
	simulation_run_for(s, 500);
	simulation_update(s, 1);
	simulation_run_for(s, 1000);
	assert_int_equal(simulation_state(s, 4), WORKER_FAILED);
	simulation_update(s, 2);
	simulation_run_for(s, 1000);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(simulation_version(s, i), 2);
	start_engine(s, 1);
	simulation_run_for(s, 500);
	simulation_update(s, 3);
	simulation_run_for(s, 1000);
	assert_int_equal(simulation_version(s, 6), 3);
	simulation_free(&s);
}

static void test_last_engine__that_is_lost_is_waited_for_or_another_one(void **unused)
{
	(void)unused;
	for (uint32_t engine = 0; engine < 2; engine++) {
		struct simulation *s = running(&(struct simulation_options){0});

		simulation_update(s, 1);
		simulation_run_for(s, 1000);
		simulation_kill(s, 3);
		simulation_run_for(s, 8000);
		simulation_expect(s,
				  "*controller: engine 0 (inference 0..1) leaves, the job goes on "
				  "with 0 of 3: inference 1 (host a, pid 1003) was lost*\n");
		simulation_update(s, 2);
		simulation_run_for(s, 5000);
		simulation_expect(s, "*trainer 0 pauses before version 2\n"
				     "*controller: waiting for an engine, *\n");
		start_engine(s, engine);
		simulation_run_for(s, 1000);
		assert_int_equal(simulation_version(s, 0), 2);
		assert_int_equal(simulation_version(s, 4), 2);
		simulation_update(s, 3);
		simulation_run_for(s, 1000);
		assert_int_equal(simulation_version(s, 5), 3);
		simulation_leave_all(s);
		simulation_run_for(s, 1000);
		simulation_assert_done(s);
		simulation_free(&s);
	}
}

/* As torchrun starts all of its group anew when a node comes. */
static void test_engines__that_are_all_started_anew_go_on_with_more_of_them(void **unused)
{
	struct simulation *s = running(&(struct simulation_options){0});

	(void)unused;
	simulation_update(s, 1);
	simulation_run_for(s, 1000);
	simulation_leave(s, 2, false);
	simulation_leave(s, 3, false);
	start_engine(s, 0);
	start_engine(s, 1);
	simulation_run_for(s, 500);
	simulation_update(s, 2);
	simulation_run_for(s, 1000);
	for (uint32_t i = 4; i < 8; i++)
		assert_int_equal(simulation_version(s, i), 2);
	simulation_expect(s, "*controller: 2 of 3 engines are here from version 2 on\n");
	simulation_free(&s);
}

static void test_last_engine__that_is_lost_in_the_exchange_is_waited_for_again(void **unused)
{
	struct simulation *s = running(&(struct simulation_options){.open_ms = 3000});

	(void)unused;
	simulation_kill(s, 3);
	simulation_run_for(s, 8000);
	simulation_update(s, 1);
	simulation_run_for(s, 100);
	start_engine(s, 1);
	simulation_run_for(s, 1000);
	simulation_expect(s, "*inference 2 is planned\n");
	simulation_leave(s, 4, false);
	simulation_run_for(s, 3000);
	simulation_expect(s, "*inference 2 is planned\n"
			     "*controller: waiting for an engine, *\n");
	start_engine(s, 2);
	simulation_run_for(s, 8000);
	assert_int_equal(simulation_version(s, 0), 1);
	assert_int_equal(simulation_version(s, 6), 1);
	simulation_free(&s);
}

static void test_other_controller__takes_over_a_job_that_has_fewer_engines(void **unused)
{
	struct simulation *s = running(&(struct simulation_options){.orphan_ms = 60000});

	(void)unused;
	simulation_update(s, 1);
	simulation_run_for(s, 1000);
	simulation_controller_kill(s);
	simulation_run_for(s, 1000);
	simulation_controller_start(s);
	simulation_run_for(s, 12000);
	simulation_expect(s, "*controller: takes over a job that runs*\n");
	start_engine(s, 1);
	simulation_run_for(s, 500);
	simulation_update(s, 2);
	simulation_run_for(s, 1000);
	simulation_assert_all_at(s, 2);
	simulation_free(&s);
}

/* Engine 2 comes while there is no controller: the plan is without it, and so is the one that the other controller makes first. */
static void test_other_controller__knows_which_engines_the_plan_has(void **unused)
{
	struct simulation *s = running(&(struct simulation_options){.orphan_ms = 60000});

	(void)unused;
	simulation_update(s, 1);
	simulation_run_for(s, 1000);
	simulation_controller_kill(s);
	start_engine(s, 2);
	simulation_run_for(s, 1000);
	simulation_controller_start(s);
	simulation_run_for(s, 8000);
	simulation_expect(s, "*controller: takes over a job that runs*\n"
			     "*controller: engine 2 (inference 4..5) is here, and comes in *\n");
	simulation_update(s, 2);
	simulation_run_for(s, 1000);
	simulation_assert_all_at(s, 2);
	simulation_free(&s);
}

/* Engine 0 does not find the other controller in time, and all that comes there is new. */
static void
test_engine__that_runs_by_the_plan_of_a_lost_controller_is_refused_by_one_that_has_begun(
	void **unused)
{
	struct simulation *s = running(&(struct simulation_options){.orphan_ms = 60000});

	(void)unused;
	simulation_update(s, 1);
	simulation_run_for(s, 1000);
	simulation_controller_kill(s);
	for (uint32_t i = 0; i < 2; i++) {
		simulation_kill(s, i);
		simulation_partition(s, 2 + i, simulation_now(s) + 8000);
	}
	simulation_controller_start(s);
	start_trainers(s);
	start_engine(s, 1);
	simulation_run_for(s, 12000);
	simulation_expect(s,
			  "*controller: begins with 1 of 3 engines *\n"
			  "*inference 0 fails: inference 0 (host a, pid 1002) runs by a plan of a "
			  "controller that was lost, and this one has made another since*\n");
	start_engine(s, 0);
	simulation_run_for(s, 1000);
	simulation_update(s, 1);
	simulation_run_for(s, 2000);
	assert_int_equal(simulation_version(s, 6), 1);
	assert_int_equal(simulation_version(s, 8), 1);
	simulation_free(&s);
}

/* One of those that run does not find it before the others have. */
static void test_other_controller__waits_for_engines_of_the_plan_that_all_run_by(void **unused)
{
	struct simulation *s = running(&(struct simulation_options){.orphan_ms = 60000});

	(void)unused;
	start_engine(s, 1);
	simulation_run_for(s, 500);
	simulation_update(s, 1);
	simulation_run_for(s, 1000);
	simulation_controller_kill(s);
	simulation_partition(s, 4, simulation_now(s) + 16000);
	simulation_controller_start(s);
	simulation_run_for(s, 14000);
	simulation_expect_not(s, "takes over");
	simulation_run_for(s, 10000);
	simulation_expect(s, "*controller: takes over a job that runs*\n");
	simulation_update(s, 2);
	simulation_run_for(s, 1000);
	simulation_assert_all_at(s, 2);
	simulation_free(&s);
}

static void test_bad_network__engines_come_one_by_one(void **unused)
{
	(void)unused;
	for (uint64_t seed = 1; seed <= SIMULATION_SEEDS / 5; seed++) {
		struct simulation *s = running(&(struct simulation_options){
			.seed = seed, .drop_percent = 8, .double_percent = 10, .jitter_ms = 50});

		for (uint64_t version = 1; version <= 5; version++) {
			if (version == 1 + seed % 4)
				start_engine(s, 2);
			if (version == 1 + seed / 4 % 5)
				start_engine(s, 1);
			simulation_run_for(s, (seed * 37 * version) % 4000);
			simulation_update(s, version);
			simulation_run_for(s, 15000);
			for (uint32_t i = 0; i < 4; i++)
				if (simulation_version(s, i) != version)
					fail_msg("seed %llu: worker %u at version %llu\n%s",
						 (unsigned long long)seed, i,
						 (unsigned long long)version,
						 simulation_transcript(s));
		}
		simulation_update(s, 6);
		simulation_run_for(s, 15000);
		simulation_assert_all_at(s, 6);
		simulation_leave_all(s);
		simulation_run_for(s, 20000);
		simulation_assert_done(s);
		simulation_free(&s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_job__begins_with_enough_engines_and_takes_the_others_in_as_they_come),
		cmocka_unit_test(test_engines__that_are_started_together_begin_together),
		cmocka_unit_test(test_ranks__that_start_again_and_again_hold_nobody_up),
		cmocka_unit_test(test_engine__of_which_a_rank_is_here_is_told_what_it_waits_for),
		cmocka_unit_test(
			test_job__whose_other_engines_never_come_is_done_when_all_others_are),
		cmocka_unit_test(test_job__with_too_few_engines_is_waited_for_and_named),
		cmocka_unit_test(test_newcomer__that_needs_what_nobody_holds_is_turned_away),
		cmocka_unit_test(test_last_engine__that_is_lost_is_waited_for_or_another_one),
		cmocka_unit_test(test_engines__that_are_all_started_anew_go_on_with_more_of_them),
		cmocka_unit_test(
			test_last_engine__that_is_lost_in_the_exchange_is_waited_for_again),
		cmocka_unit_test(
			test_engine__that_runs_by_the_plan_of_a_lost_controller_is_refused_by_one_that_has_begun),
		cmocka_unit_test(test_other_controller__knows_which_engines_the_plan_has),
		cmocka_unit_test(test_other_controller__takes_over_a_job_that_has_fewer_engines),
		cmocka_unit_test(
			test_other_controller__waits_for_engines_of_the_plan_that_all_run_by),
		cmocka_unit_test(test_bad_network__engines_come_one_by_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

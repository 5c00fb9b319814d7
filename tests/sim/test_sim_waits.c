/* SPDX-License-Identifier: Apache-2.0
 *
 * Stories of jobs that lack an engine or a trainer when something else goes wrong: what they wait for, and what they do not take
 * for the end.
 */
#include "tests/support/simulator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static uint32_t start_trainer(struct simulation *simulation, uint32_t rank)
{
	return simulation_start(simulation, &(struct simulation_worker){.rank = rank});
}

static void start_engine(struct simulation *simulation, uint32_t engine)
{
	simulation_start_rank(simulation, 2 * engine);
	simulation_start_rank(simulation, 2 * engine + 1);
}

/* Workers 0, 1: trainers; 2, 3: engine 0, the only one of three, at version 1. */
static struct simulation *running(const struct simulation_options *more)
{
	struct simulation_options options = *more;
	struct simulation *simulation;

	options.infer = options.infer ? options.infer : "engines=3,tp=2";
	options.on_loss = "continue";
	options.engines_min = 1;
	options.join_timeout_ms = 60000;
	simulation = simulation_new(&options);
	simulation_controller_start(simulation);
	start_trainer(simulation, 0);
	start_trainer(simulation, 1);
	simulation_start_rank(simulation, 0);
	if (strstr(options.infer, "tp=2"))
		simulation_start_rank(simulation, 1);
	assert_true(simulation_run_to(simulation, WORKER_RUN, 15000));
	simulation_update(simulation, 1);
	simulation_run_for(simulation, 1000);
	return simulation;
}

static void lose_engine_0(struct simulation *simulation)
{
	simulation_leave(simulation, 2, false);
	simulation_leave(simulation, 3, false);
	simulation_run_for(simulation, 1000);
}

static void
test_trainers__that_wait_for_an_engine_do_not_go_on_without_one_that_does_not_fit(void **unused)
{
	struct simulation *s = running(&(struct simulation_options){0});

	(void)unused;
	lose_engine_0(s);
	simulation_update(s, 2);
	simulation_run_for(s, 1000);
	for (uint32_t rank = 2; rank < 4; rank++)
		simulation_start(s, &(struct simulation_worker){.role = ROLE_INFERENCE,
								.rank = rank,
								.needs_unsourced = true});
	simulation_run_for(s, 2000);
	assert_int_equal(simulation_state(s, 4), WORKER_FAILED);
	simulation_expect_not(s, "0 of 3 engines are here");
	assert_int_equal(simulation_version(s, 0), 1);
	start_engine(s, 2);
	simulation_run_for(s, 2000);
	assert_int_equal(simulation_version(s, 0), 2);
	assert_int_equal(simulation_version(s, 6), 2);
	simulation_free(&s);
}

/* Neither of the trainers has what the other holds. */
static void
test_engine__that_comes_before_the_trainer_that_is_missing_too_waits_for_it(void **unused)
{
	struct simulation *s = running(&(struct simulation_options){.train = "world=2,pp=2"});
	uint32_t again;

	(void)unused;
	simulation_kill(s, 2);
	simulation_kill(s, 3);
	simulation_run_for(s, 7000);
	simulation_begin(s, 0, 2);
	simulation_run_for(s, 1000);
	simulation_kill(s, 1);
	simulation_run_for(s, 7000);
	start_engine(s, 0);
	simulation_run_for(s, 2000);
	assert_int_equal(simulation_version(s, 0), 1);
	simulation_expect(
		s, "*controller: waiting for an engine, *\n"
		   "*controller: waiting for another process for the rank of trainer 1, *\n");
	again = start_trainer(s, 1);
	simulation_run_for(s, 2000);
	simulation_begin(s, again, 2);
	simulation_run_for(s, 2000);
	assert_int_equal(simulation_version(s, 0), 2);
	assert_int_equal(simulation_version(s, 4), 2);
	simulation_free(&s);
}

/* One who was waited for goes, and another one comes, between two heartbeats. */
static void test_engine__is_seen_when_another_newcomer_has_gone_in_the_same_moment(void **unused)
{
	(void)unused;
	for (uint32_t ms = 0; ms < 500; ms += 50) {
		struct simulation *s =
			running(&(struct simulation_options){.infer = "engines=3,tp=1"});

		simulation_leave(s, 2, false);
		simulation_run_for(s, 1000);
		simulation_begin(s, 0, 2);
		simulation_run_for(s, 200);
		simulation_kill(s, 1);
		simulation_run_for(s, 7000);
		start_trainer(s, 1);
		simulation_run_for(s, 1000 + ms);
		simulation_leave(s, 3, false);
		simulation_start_rank(s, 0);
		simulation_run_for(s, 5000);
		assert_int_equal(simulation_version(s, 0), 2);
		simulation_free(&s);
	}
}

static void
test_trainer__that_fails_after_an_engine_was_interrupted_is_the_one_to_blame(void **unused)
{
	struct simulation *s = running(&(struct simulation_options){.train = "world=2,pp=2"});

	(void)unused;
	start_engine(s, 1);
	simulation_run_for(s, 1000);
	simulation_update(s, 2);
	simulation_run_for(s, 1000);
	simulation_leave(s, 4, false);
	simulation_leave(s, 5, false);
	simulation_run_for(s, 1000);
	simulation_fail(s, 1, "its NIC is gone");
	simulation_run_for(s, 1000);
	simulation_begin(s, 0, 3);
	simulation_run_for(s, 1000);
	simulation_expect(
		s, "*controller: trainer 1 leaves, the job goes on with 1 of 2: *\n"
		   "*controller: waiting for another process for the rank of trainer 1, *\n");
	simulation_expect_not(s, "did its work and left");
	simulation_free(&s);
}

static void test_rank__of_an_engine_that_came_later_hears_why_it_left(void **unused)
{
	struct simulation *s = running(&(struct simulation_options){0});

	(void)unused;
	start_engine(s, 1);
	simulation_run_for(s, 1000);
	simulation_update(s, 2);
	simulation_run_for(s, 1000);
	simulation_partition(s, 4, simulation_now(s) + 1000);
	simulation_fail(s, 5, "its NIC is gone");
	simulation_run_for(s, 5000);
	assert_int_equal(simulation_state(s, 4), WORKER_FAILED);
	assert_non_null(strstr(simulation_error(s, 4)->text, "its NIC is gone"));
	simulation_free(&s);
}

/* The job is draining: an engine that comes then is no reason to fail it with no reason. */
static void test_job__without_a_trainer_since_a_takeover_ends_with_a_reason(void **unused)
{
	struct simulation *s = running(&(struct simulation_options){.orphan_ms = 60000});
	struct error error;

	(void)unused;
	simulation_kill(s, 0);
	simulation_run_for(s, 7000);
	simulation_update(s, 2);
	simulation_run_for(s, 2000);
	simulation_controller_kill(s);
	simulation_run_for(s, 1000);
	simulation_controller_start(s);
	simulation_run_for(s, 8000);
	simulation_leave(s, 1, true);
	simulation_run_for(s, 1000);
	start_engine(s, 1);
	simulation_run_for(s, 40000);
	assert_true(simulation_controller_over(s, &error));
	assert_int_equal(error.code, ERROR_PEER_LOST);
	simulation_free(&s);
}

/* It runs on by a plan that the others have left behind, and is the first of them that the next controller hears. */
static void test_trainer__of_an_older_plan_ends_no_takeover(void **unused)
{
	struct simulation *s = running(&(struct simulation_options){.orphan_ms = 60000});

	(void)unused;
	simulation_partition(s, 0, simulation_now(s) + 10200);
	simulation_run_for(s, 7000);
	simulation_begin(s, 1, 2);
	simulation_run_for(s, 2000);
	simulation_controller_kill(s);
	simulation_partition(s, 1, simulation_now(s) + 3000);
	simulation_run_for(s, 1000);
	simulation_controller_start(s);
	simulation_run_for(s, 20000);
	simulation_expect(
		s, "*trainer 0 fails: trainer 0 (host a, pid 1000) runs by plan attempt 1, and the "
		   "others by 2: they have gone on without it. Start it again, and it comes in\n");
	simulation_expect(s, "*controller: takes over a job that runs*\n");
	assert_int_equal(simulation_state(s, 1), WORKER_RUN);
	simulation_free(&s);
}

static void
test_newcomer__in_the_place_of_a_trainer_that_a_takeover_does_without_may_go_again(void **unused)
{
	struct simulation *s = running(&(struct simulation_options){.orphan_ms = 60000});

	(void)unused;
	simulation_kill(s, 0);
	simulation_run_for(s, 7000);
	simulation_begin(s, 1, 2);
	simulation_run_for(s, 2000);
	simulation_controller_kill(s);
	simulation_partition(s, 1, simulation_now(s) + 8000);
	simulation_run_for(s, 1000);
	simulation_controller_start(s);
	simulation_run_for(s, 2000);
	start_trainer(s, 0);
	simulation_run_for(s, 1000);
	simulation_leave(s, 4, false);
	simulation_run_for(s, 10000);
	simulation_expect(s, "*controller: takes over a job that runs*\n");
	simulation_expect_not(s, "the job fails");
	simulation_free(&s);
}

/* As torchrun starts all engines anew when a node comes, and trainers still load. */
static void
test_rank__that_goes_again_while_trainers_are_waited_for_ends_no_job_that_needs_fewer(void **unused)
{
	struct simulation *s = simulation_new(&(struct simulation_options){
		.infer = "engines=3,tp=2", .on_loss = "continue", .engines_min = 1});

	(void)unused;
	simulation_controller_start(s);
	start_trainer(s, 0);
	start_engine(s, 0);
	simulation_start_rank(s, 2);
	simulation_run_for(s, 3000);
	for (uint32_t i = 1; i < 4; i++)
		simulation_leave(s, i, false);
	simulation_run_for(s, 1000);
	start_engine(s, 0);
	start_trainer(s, 1);
	simulation_run_for(s, 3000);
	simulation_expect(s, "*controller: begins with 1 of 3 engines *\n");
	assert_int_equal(simulation_state(s, 0), WORKER_RUN);
	simulation_free(&s);
}

static void test_exchange__that_lasts_too_long_names_those_who_are_in_it(void **unused)
{
	struct simulation *s =
		simulation_new(&(struct simulation_options){.infer = "engines=3,tp=2",
							    .on_loss = "continue",
							    .engines_min = 1,
							    .open_ms = 15000});

	(void)unused;
	simulation_controller_start(s);
	start_trainer(s, 0);
	start_trainer(s, 1);
	start_engine(s, 0);
	simulation_run_for(s, 20000);
	simulation_expect(
		s,
		"*controller: the job fails: waiting for trainer 0..1 of 2, inference 0..1 of 6 to open*");
	simulation_free(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_trainers__that_wait_for_an_engine_do_not_go_on_without_one_that_does_not_fit),
		cmocka_unit_test(
			test_engine__that_comes_before_the_trainer_that_is_missing_too_waits_for_it),
		cmocka_unit_test(
			test_engine__is_seen_when_another_newcomer_has_gone_in_the_same_moment),
		cmocka_unit_test(
			test_trainer__that_fails_after_an_engine_was_interrupted_is_the_one_to_blame),
		cmocka_unit_test(test_rank__of_an_engine_that_came_later_hears_why_it_left),
		cmocka_unit_test(test_job__without_a_trainer_since_a_takeover_ends_with_a_reason),
		cmocka_unit_test(test_trainer__of_an_older_plan_ends_no_takeover),
		cmocka_unit_test(
			test_newcomer__in_the_place_of_a_trainer_that_a_takeover_does_without_may_go_again),
		cmocka_unit_test(
			test_rank__that_goes_again_while_trainers_are_waited_for_ends_no_job_that_needs_fewer),
		cmocka_unit_test(test_exchange__that_lasts_too_long_names_those_who_are_in_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

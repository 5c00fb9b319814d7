/* SPDX-License-Identifier: Apache-2.0
 *
 * Stories of a controller that takes a job over of which somebody is missing: an engine that had left before, one that nobody starts
 * again, a trainer, whoever did its work meanwhile.
 */
#include "base/array.h"
#include "tests/support/simulator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TRAINERS 2u

static struct simulation *running(const struct simulation_options *more)
{
	struct simulation_options options = *more;
	struct simulation *s;

	options.orphan_ms = 60000;
	options.infer = options.infer ? options.infer : "engines=2,tp=2";
	options.on_loss = options.on_loss ? options.on_loss : "continue";
	s = simulation_running(&options);
	simulation_update(s, 1);
	simulation_run_for(s, 1000);
	return s;
}

static void update_twice(struct simulation *s)
{
	for (int i = 0; i < 2; i++) {
		simulation_update_next(s);
		simulation_run_for(s, 3000);
	}
}

/* Trainers, and the ranks of the first engine. */
static void assert_others_at(const struct simulation *s, uint64_t version)
{
	for (uint32_t i = 0; i < TRAINERS + 2; i++) {
		assert_int_equal(simulation_state(s, i), WORKER_RUN);
		assert_int_equal(simulation_version(s, i), version);
	}
}

static void kill_engine(struct simulation *s, uint32_t engine)
{
	for (uint32_t rank = 0; rank < 2; rank++)
		simulation_kill(s, TRAINERS + 2 * engine + rank);
}

/* The controller is lost, and then that rank of the last engine and those after it, which trainers see: nobody has been told. */
static struct simulation *loses_both(const struct simulation_options *options, uint32_t victim)
{
	struct simulation *s = running(options);

	simulation_controller_kill(s);
	simulation_run_for(s, 1000);
	for (uint32_t i = victim; i < simulation_workers(s); i++) {
		simulation_kill(s, i);
		for (uint32_t t = 0; t < TRAINERS; t++)
			simulation_drop(s, t, i - TRAINERS, "its process has ended");
	}
	return s;
}

static void test_engine__that_left_before_is_not_waited_for(void **unused)
{
	static const char *const commits[] = {"rank", "engine", "job"};

	(void)unused;
	for (size_t row = 0; row < ARRAY_SIZE(commits); row++) {
		struct simulation *s =
			running(&(struct simulation_options){.commit = commits[row]});

		kill_engine(s, 1);
		while (!strstr(simulation_transcript(s), "engine 1 (inference 2..3) leaves"))
			simulation_run_for(s, 100);
		simulation_run_for(s, 100);
		simulation_controller_kill(s);
		simulation_run_for(s, 1000);
		simulation_controller_start(s);
		simulation_run_for(s, 5000);
		simulation_expect(
			s,
			"*controller: engine 1 (inference 2..3) leaves, the job goes on with 1 of 2: inference 2 had left before this controller came\n"
			"*controller: takes over a job that runs*\n");
		update_twice(s);
		assert_others_at(s, 3);
		simulation_start_rank(s, 2);
		simulation_start_rank(s, 3);
		simulation_run_for(s, 1000);
		update_twice(s);
		simulation_expect(s, "*controller: 2 of 2 engines are here from version *\n");
		simulation_assert_all_at(s, simulation_version(s, 0));
		assert_true(simulation_version(s, 0) >= 4);
		simulation_leave_all(s);
		simulation_run_for(s, 3000);
		simulation_assert_done(s);
		simulation_free(&s);
	}
}

/* Whoever comes then is sent to. */
static void test_last_engine__that_left_before_is_waited_for(void **unused)
{
	struct simulation *s = running(&(struct simulation_options){.infer = "engines=1,tp=2"});

	(void)unused;
	kill_engine(s, 0);
	simulation_run_for(s, 7000);
	simulation_expect(s, "*controller: engine 0 (inference 0..1) leaves*\n");
	simulation_controller_kill(s);
	simulation_run_for(s, 1000);
	simulation_controller_start(s);
	simulation_run_for(s, 6000);
	simulation_expect_not(s, "takes over");
	simulation_expect(s, "*controller: still waiting for inference 0..1 of 2 to join*\n");
	simulation_start_rank(s, 0);
	simulation_start_rank(s, 1);
	simulation_run_for(s, 5000);
	simulation_expect(s, "*controller: takes over a job that runs*\n");
	update_twice(s);
	simulation_assert_all_at(s, simulation_version(s, 0));
	assert_true(simulation_version(s, 0) >= 2);
	simulation_free(&s);
}

/* It died while there was no controller, so nobody has been told. One rank of it lives, or none. */
static void test_engine__that_nobody_starts_again_is_gone_on_without(void **unused)
{
	(void)unused;
	for (uint32_t alive = 0; alive < 2; alive++) {
		struct simulation *s = loses_both(
			&(struct simulation_options){.join_timeout_ms = 10000}, 4 + alive);

		simulation_run_for(s, 1000);
		simulation_controller_start(s);
		update_twice(s);
		assert_others_at(s, 3); /* nobody waits for the controller */
		simulation_expect_not(s, "takes over");
		simulation_run_for(s, 8000);
		simulation_expect(
			s,
			alive ? "*controller: engine 1 (inference 2..3) leaves, the job goes on with 1 of 2: inference 3 has not come\n"
				"*controller: takes over a job that runs*\n"
				"*inference 2 fails: inference 3 has not come\n"
			      : "*controller: engine 1 (inference 2..3) leaves, the job goes on with 1 of 2: inference 2 has not come\n"
				"*controller: takes over a job that runs*\n");
		update_twice(s);
		assert_others_at(s, 5);
		simulation_leave_all(s);
		simulation_run_for(s, 3000);
		simulation_assert_done(s);
		simulation_free(&s);
	}
}

/* Others hold what it held; or they do not, and the job ends when it has been waited for. */
static void test_trainer__that_nobody_starts_again_is_gone_on_without_where_it_can_be(void **unused)
{
	static const char *const trains[] = {"world=2,source=gathered", "world=2,pp=2"};

	(void)unused;
	for (size_t row = 0; row < ARRAY_SIZE(trains); row++) {
		struct simulation *s = running(&(struct simulation_options){
			.train = trains[row], .join_timeout_ms = 10000});
		struct error error;

		simulation_controller_kill(s);
		simulation_run_for(s, 1000);
		simulation_kill(s, 1);
		simulation_controller_start(s);
		simulation_run_for(s, 15000);
		if (row == 1) {
			assert_true(simulation_controller_over(s, &error));
			assert_int_equal(error.code, ERROR_TIMEOUT);
			assert_non_null(
				strstr(error.text, "trainer 1 has not come, and without it: "));
			simulation_free(&s);
			continue;
		}
		simulation_expect(
			s,
			"*controller: trainer 1 leaves, the job goes on with 1 of 2: trainer 1 has not come\n"
			"*controller: takes over a job that runs*\n");
		update_twice(s);
		update_twice(s);
		for (uint32_t i = 0; i < simulation_workers(s); i++)
			if (i != 1) {
				assert_int_equal(simulation_state(s, i), WORKER_RUN);
				assert_int_equal(simulation_version(s, i),
						 simulation_version(s, 0));
			}
		assert_true(simulation_version(s, 0) > 1);
		simulation_free(&s);
	}
}

/* A rank that died keeps the controller waiting, and the rest of the job is done by then. */
static void test_workers__that_do_their_work_meanwhile_leave_well(void **unused)
{
	static const char *const losses[] = {"continue", "end"};

	(void)unused;
	for (size_t row = 0; row < ARRAY_SIZE(losses); row++) {
		struct simulation *s =
			loses_both(&(struct simulation_options){.on_loss = losses[row],
								.join_timeout_ms = 30000},
				   4);

		simulation_controller_start(s);
		simulation_run_for(s, 4000);
		for (uint32_t i = 0; i < TRAINERS + 2; i++) {
			simulation_leave(s, i, true);
			simulation_run_for(s, 1000);
			assert_int_equal(simulation_state(s, i), WORKER_LEFT);
		}
		simulation_run_for(s, 8000);
		simulation_expect(
			s, "*controller: done: all who ran when this controller came have left\n");
		simulation_assert_done(s);
		simulation_free(&s);
	}
}

/* Its ranks one after the other; then nobody waits for it. */
static void test_engine__that_does_its_work_meanwhile_is_gone_on_without(void **unused)
{
	struct simulation *s =
		loses_both(&(struct simulation_options){.infer = "engines=3,tp=2"}, 6);

	(void)unused;
	simulation_controller_start(s);
	simulation_run_for(s, 4000);
	for (uint32_t rank = 2; rank < 4; rank++) {
		simulation_leave(s, TRAINERS + rank, true);
		simulation_run_for(s, 1000);
		assert_int_equal(simulation_state(s, TRAINERS + rank), WORKER_LEFT);
	}
	simulation_expect_not(s, "takes over");
	simulation_start_rank(s, 4);
	simulation_start_rank(s, 5);
	simulation_run_for(s, 3000);
	simulation_expect(
		s,
		"*controller: engine 1 (inference 2..3) leaves, the job goes on with 2 of 3: its work is done\n"
		"*controller: takes over a job that runs*\n");
	update_twice(s);
	update_twice(s);
	assert_others_at(s, simulation_version(s, 0));
	assert_true(simulation_version(s, 0) > 1);
	simulation_free(&s);
}

/* It had when its controller was lost; and a new process that has come for one of its ranks needs nobody to wait for the other. */
static void test_engine__that_had_done_its_work_is_not_waited_for(void **unused)
{
	(void)unused;
	for (uint32_t anew = 0; anew < 2; anew++) {
		struct simulation *s = running(&(struct simulation_options){.commit = "engine"});

		simulation_leave(s, TRAINERS + 2, true);
		simulation_leave(s, TRAINERS + 3, true);
		simulation_run_for(s, 1000);
		simulation_controller_kill(s);
		if (anew)
			simulation_start_rank(s, 2);
		simulation_run_for(s, 1000);
		simulation_controller_start(s);
		simulation_run_for(s, 3000);
		simulation_expect(
			s,
			"*controller: engine 1 (inference 2..3) leaves, the job goes on with 1 of 2: its work is done after version 1\n"
			"*controller: engine 1 (inference 2..3) leaves, the job goes on with 1 of 2: its work is done\n"
			"*controller: takes over a job that runs*\n");
		update_twice(s);
		assert_others_at(s, 3);
		simulation_leave_all(s);
		simulation_run_for(s, 3000);
		simulation_assert_done(s);
		simulation_free(&s);
	}
}

/* Of a job of two engines one rank is missing: the other ranks of one have done their work, and all others die. */
static void test_job__of_which_somebody_was_lost_is_not_done(void **unused)
{
	struct simulation *s =
		loses_both(&(struct simulation_options){.join_timeout_ms = 20000}, 5);
	struct error error;

	(void)unused;
	simulation_controller_start(s);
	simulation_run_for(s, 3000);
	simulation_leave(s, 2, true);
	simulation_leave(s, 3, true);
	simulation_run_for(s, 1000);
	simulation_kill(s, 0);
	simulation_kill(s, 1);
	simulation_kill(s, 4);
	simulation_run_for(s, 12000);
	assert_false(simulation_controller_over(s, &error));
	simulation_run_for(s, 12000);
	assert_true(simulation_controller_over(s, &error));
	assert_int_equal(error.code, ERROR_TIMEOUT);
	simulation_free(&s);
}

/* An engine that is lost meanwhile is, as ever, no failure of the others. */
static void test_job__that_lost_an_engine_meanwhile_is_done(void **unused)
{
	struct simulation *s =
		loses_both(&(struct simulation_options){.join_timeout_ms = 20000}, 5);

	(void)unused;
	simulation_controller_start(s);
	simulation_run_for(s, 3000);
	simulation_fail(s, 4, "its mate is gone");
	simulation_run_for(s, 1000);
	for (uint32_t i = 0; i < TRAINERS + 2; i++)
		simulation_leave(s, i, true);
	simulation_run_for(s, 7000);
	simulation_expect(s,
			  "*controller: done: all who ran when this controller came have left\n");
	simulation_assert_done(s);
	simulation_free(&s);
}

/* The deadline is over when trainers have done theirs, and ranks have yet to; or when all have, a moment before. */
static void test_workers__that_are_about_to_end_are_waited_for(void **unused)
{
	(void)unused;
	for (uint32_t late = 0; late < 2; late++) {
		struct simulation *s =
			loses_both(&(struct simulation_options){.join_timeout_ms = 10000}, 4);

		simulation_controller_start(s);
		simulation_run_for(s, 8000);
		for (uint32_t i = 0; i < TRAINERS + 2; i++) {
			simulation_leave(s, i, true);
			simulation_run_for(s, late && i == 1 ? 12000 : 100);
			assert_int_equal(simulation_state(s, i), WORKER_LEFT);
		}
		simulation_run_for(s, 8000);
		simulation_expect(
			s, "*controller: done: all who ran when this controller came have left\n");
		simulation_assert_done(s);
		simulation_free(&s);
	}
}

/* One of its ranks has done its work when the deadline is over, and the other one is about to. */
static void test_engine__that_is_about_to_end_is_waited_for(void **unused)
{
	struct simulation *s = loses_both(
		&(struct simulation_options){.infer = "engines=3,tp=2", .join_timeout_ms = 10000},
		6);

	(void)unused;
	simulation_controller_start(s);
	simulation_run_for(s, 9000);
	simulation_leave(s, TRAINERS + 2, true);
	simulation_run_for(s, 4000);
	simulation_leave(s, TRAINERS + 3, true);
	simulation_run_for(s, 1000);
	assert_int_equal(simulation_state(s, TRAINERS + 3), WORKER_LEFT);
	simulation_run_for(s, 5000);
	simulation_expect(
		s,
		"*controller: engine 1 (inference 2..3) leaves, the job goes on with 1 of 3: its work is done\n"
		"*controller: engine 2 (inference 4..5) leaves, the job goes on with 1 of 3: inference 4 has not come\n"
		"*controller: takes over a job that runs*\n");
	update_twice(s);
	assert_others_at(s, simulation_version(s, 0));
	simulation_free(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_engine__that_left_before_is_not_waited_for),
		cmocka_unit_test(test_last_engine__that_left_before_is_waited_for),
		cmocka_unit_test(test_engine__that_nobody_starts_again_is_gone_on_without),
		cmocka_unit_test(
			test_trainer__that_nobody_starts_again_is_gone_on_without_where_it_can_be),
		cmocka_unit_test(test_workers__that_do_their_work_meanwhile_leave_well),
		cmocka_unit_test(test_engine__that_had_done_its_work_is_not_waited_for),
		cmocka_unit_test(test_job__of_which_somebody_was_lost_is_not_done),
		cmocka_unit_test(test_job__that_lost_an_engine_meanwhile_is_done),
		cmocka_unit_test(test_workers__that_are_about_to_end_are_waited_for),
		cmocka_unit_test(test_engine__that_is_about_to_end_is_waited_for),
		cmocka_unit_test(test_engine__that_does_its_work_meanwhile_is_gone_on_without),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

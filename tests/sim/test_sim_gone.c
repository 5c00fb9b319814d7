/* SPDX-License-Identifier: Apache-2.0
 *
 * Stories of engines that leave a job that goes on (--on-loss continue): who is told what, and when.
 */
#include "tests/support/history.h"
#include "tests/support/simulator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* Workers 0, 1: trainers; 2, 3: engine 0; 4, 5: engine 1; 6, 7: engine 2 */
static struct simulation *running(const struct simulation_options *more)
{
	struct simulation_options options = *more;

	options.infer = "engines=3,tp=2";
	options.on_loss = "continue";
	return simulation_running(&options);
}

static void test_silent_rank__takes_its_engine_out_of_the_job(void **unused)
{
	struct simulation *s = running(&(struct simulation_options){0});

	(void)unused;
	simulation_kill(s, 4);
	simulation_run(s, 6000);
	simulation_leave_all(s);
	simulation_run(s, 7000);
	simulation_expect(
		s,
		"[    14] inference 2 is killed\n"
		"[  5500] controller: engine 1 (inference 2..3) leaves, the job goes on with 2 of 3: "
		"inference 2 (host a, pid 1004) was lost: silent for 5.5 s*\n"
		"[  5501] trainer 0: the job goes on without inference 2..3: inference 2 (host a, pid "
		"1004) was lost*\n"
		"[  5501] inference 3 fails: inference 2 (host a, pid 1004) was lost*\n");
	simulation_expect(s, "[  5501] inference 4: the job goes on without inference 2..3*\n"
			     "[  6001] controller: done: all others have left; engines that were "
			     "lost: 1 of 3\n"
			     "[  6001] controller exits 0\n");
	simulation_assert_done(s);
	simulation_free(&s);
}

static void test_dropped_rank__takes_its_engine_out_at_once(void **unused)
{
	struct simulation *s = running(&(struct simulation_options){0});

	(void)unused;
	simulation_kill(s, 6);
	simulation_drop(s, 1, 4, "its process has ended");
	simulation_drop(s, 0, 4, "its process has ended");
	simulation_run(s, 3000);
	simulation_expect(
		s,
		"[    15] controller: engine 2 (inference 4..5) leaves, the job goes on with 2 of 3: "
		"inference 4 (host a, pid 1006) is not reached by trainer 1 (host a, pid 1001) at "
		"version 0: its process has ended\n");
	simulation_expect(s, "[    16] inference 5 fails: inference 4 (host a, pid 1006) is not "
			     "reached by trainer 1*\n");
	simulation_run(s, 3100);
	simulation_drop(s, 0, 5, "its process has ended"); /* which the controller need not hear */
	simulation_run(s, 5000);
	simulation_expect_not(s, "trainer 0 > drop inference 5");
	assert_int_equal(simulation_state(s, 0), WORKER_RUN);
	assert_int_equal(simulation_state(s, 2), WORKER_RUN);
	simulation_free(&s);
}

static void test_rank__that_left_and_is_dropped_then_takes_its_engine_out_once(void **unused)
{
	struct simulation *s = running(&(struct simulation_options){0});

	(void)unused;
	simulation_leave(s, 4, false);
	simulation_run(s, 100);
	simulation_drop(s, 0, 2, "its process has ended");
	simulation_run(s, 2000);
	simulation_expect(s, "[    15] controller: engine 1 (inference 2..3) leaves, the job goes "
			     "on with 2 of 3: inference 2 (host a, pid 1004) left before*\n");
	simulation_expect_not(s, "with 1 of 3");
	assert_int_equal(simulation_state(s, 0), WORKER_RUN);
	simulation_free(&s);
}

/* Ranks of one engine do not end in the same moment, and a process that has ended is noticed before the controller's word comes. */
static void test_rank__whose_work_is_done_is_no_loss_while_the_others_leave_too(void **unused)
{
	struct simulation *s = running(&(struct simulation_options){0});

	(void)unused;
	simulation_leave(s, 4, true);
	simulation_run(s, 100);
	simulation_drop(s, 0, 2, "its process has ended");
	simulation_run(s, 3000);
	simulation_expect(
		s, "[   600] trainer 0: goes on without inference 2: its process has ended\n");
	simulation_leave(s, 5, true);
	simulation_run(s, 4000);
	simulation_expect(
		s,
		"[  3001] controller: engine 1 (inference 2..3) leaves, the job goes on with 2 of 3: its "
		"work is done after version 0\n");
	simulation_expect_not(s, "is not reached by");
	simulation_free(&s);

	s = running(&(struct simulation_options){0});
	simulation_leave(s, 4, true);
	simulation_leave(s, 5, true);
	simulation_drop(s, 0, 2, "its process has ended");
	simulation_run(s, 4000);
	simulation_expect_not(s, "goes on without inference");
	simulation_free(&s);
}

static void test_rank__whose_work_is_done_and_the_others_is_not_takes_its_engine_out(void **unused)
{
	struct simulation *s = running(&(struct simulation_options){0});

	(void)unused;
	simulation_leave(s, 4, true);
	simulation_run(s, 100);
	simulation_drop(s, 0, 2, "its process has ended");
	simulation_run(s, 8000);
	simulation_expect(
		s,
		"[  5101] controller: engine 1 (inference 2..3) leaves, the job goes on with 2 of 3: "
		"inference 2 (host a, pid 1004) is not reached by trainer 0*\n");
	simulation_free(&s);
}

static void test_gone__that_was_lost_on_its_way_is_said_again(void **unused)
{
	struct simulation *s = running(&(struct simulation_options){0});

	(void)unused;
	simulation_partition(s, 0, 4000);
	simulation_run(s, 100);
	simulation_fail(s, 4, "its NIC is gone");
	simulation_run(s, 5000);
	simulation_expect(s, "[   101] controller: engine 1 (inference 2..3) leaves*\n"
			     "[   102] trainer 1: the job goes on without inference 2..3*\n");
	assert_non_null(strstr(simulation_transcript(s),
			       "trainer 0: the job goes on without inference 2..3"));
	simulation_free(&s);
}

static void test_rank__that_is_lost_when_all_others_are_done_is_no_failure_of_theirs(void **unused)
{
	struct simulation *s = running(&(struct simulation_options){0});

	(void)unused;
	simulation_run(s, 1000);
	for (uint32_t i = 0; i < 6; i++)
		simulation_leave(s, i, true);
	simulation_kill(s, 6);
	simulation_leave(s, 7, true);
	simulation_run(s, 9000);
	simulation_expect(s, "[  6000] controller: engine 2 (inference 4..5) leaves, the job goes "
			     "on with 2 of 3*\n"
			     "[  6000] controller: done: all others have left; engines that were "
			     "lost: 1 of 3\n");
	simulation_assert_done(s);
	simulation_free(&s);
}

/* Nobody waits for it, it is no loss, and it can come back. The last one that trainers have is another thing. */
static void test_engine__that_leaves_with_its_work_done_is_gone_on_without(void **unused)
{
	struct simulation *s = running(&(struct simulation_options){0});
	struct error error;

	(void)unused;
	simulation_update(s, 1);
	simulation_run(s, 1000);
	simulation_leave(s, 4, true);
	simulation_run(s, 1200);
	simulation_expect_not(s, "goes on");
	simulation_leave(s, 5, true);
	simulation_run(s, 2000);
	simulation_expect(s, "*controller: engine 1 (inference 2..3) leaves, the job goes on with "
			     "2 of 3: its work is done after version 1\n"
			     "*controller > trainer 0: gone 1: 2 from inference 2, E0*\n"
			     "*controller > inference 5: gone 1: 2 from inference 2, E0*\n");
	simulation_expect_not(s, "the job goes on without");
	for (uint32_t rank = 2; rank < 4; rank++)
		simulation_start(s,
				 &(struct simulation_worker){.role = ROLE_INFERENCE, .rank = rank});
	simulation_run(s, 3000);
	simulation_update(s, 2);
	simulation_run(s, 6000);
	simulation_expect(s, "*controller: 3 of 3 engines are here from version 2 on*\n");
	simulation_leave_all(s);
	simulation_run(s, 9000);
	simulation_expect_not(s, "engines that were lost");
	simulation_assert_done(s);
	simulation_free(&s);

	s = running(&(struct simulation_options){0});
	for (uint32_t i = 2; i < 8; i++)
		simulation_leave(s, i, true);
	simulation_run(s, 1000);
	simulation_expect(s, "*controller: engine 0 (inference 0..1) leaves, the job goes on with "
			     "2 of 3: its work is done*\n"
			     "*controller: engine 1 (inference 2..3) leaves, the job goes on with "
			     "1 of 3: its work is done*\n");
	simulation_expect_not(s, "goes on with 0 of 3");
	simulation_fail(s, 0, "not accepted by inference 5");
	simulation_run(s, 2000);
	assert_true(simulation_controller_over(s, &error));
	assert_int_not_equal(error.code, ERROR_NONE);
	simulation_free(&s);
}

/* Engine 2 is lost after others and all trainers have done their work. */
static void test_engine__that_is_lost_when_trainers_are_done_is_no_failure_of_theirs(void **unused)
{
	struct simulation *s = running(&(struct simulation_options){0});

	(void)unused;
	simulation_run(s, 1000);
	for (uint32_t i = 2; i < 6; i++)
		simulation_leave(s, i, true);
	simulation_run(s, 1100);
	simulation_leave(s, 0, true);
	simulation_leave(s, 1, true);
	simulation_run(s, 1200);
	simulation_kill(s, 6);
	simulation_leave(s, 7, true);
	simulation_run(s, 9000);
	simulation_expect(
		s, "*controller: engine 0 (inference 0..1) leaves*\n"
		   "*controller: engine 1 (inference 2..3) leaves*\n"
		   "*controller: done: all others have left; engines that were lost: 1 of 3\n");
	simulation_assert_done(s);
	simulation_free(&s);
}

static void test_last_engine__is_waited_for_and_ends_the_job_when_no_other_comes(void **unused)
{
	struct simulation *s = running(&(struct simulation_options){0});

	(void)unused;
	simulation_fail(s, 2, "its NIC is gone");
	simulation_fail(s, 4, "its NIC is gone");
	simulation_run(s, 1000);
	simulation_expect(s, "[    15] controller: engine 1 (inference 2..3) leaves, the job goes "
			     "on with 1 of 3*\n");
	simulation_fail(s, 7, "its NIC is gone");
	simulation_run(s, 1100);
	simulation_update(s, 1);
	simulation_run(s, 2000);
	simulation_expect(
		s, "[  1001] controller: engine 2 (inference 4..5) leaves, the job goes "
		   "on with 0 of 3: inference 5 (host a, pid 1007) failed at version 0: "
		   "its NIC is gone\n"
		   "*trainer 0 pauses before version 1\n"
		   "*controller: waiting for an engine, 20.0 s at most (--join-timeout): without "
		   "it, trainers have nobody to send to\n");
	simulation_run(s, 23000);
	simulation_expect(
		s,
		"*controller: the job fails: no engine has come for 20.4 s: start one again, or raise "
		"--join-timeout. The last one has left: inference 5 (host a, pid 1007) failed at "
		"version 0: its NIC is gone\n");
	assert_int_equal(simulation_state(s, 0), WORKER_FAILED);
	simulation_free(&s);
}

static void test_last_engine__that_is_lost_when_a_trainer_is_done_ends_the_job(void **unused)
{
	struct simulation *s = running(&(struct simulation_options){0});

	(void)unused;
	simulation_fail(s, 2, "its NIC is gone");
	simulation_fail(s, 4, "its NIC is gone");
	simulation_leave(s, 0, true);
	simulation_run(s, 1000);
	simulation_fail(s, 7, "its NIC is gone");
	simulation_run(s, 2000);
	simulation_expect(s, "[  1001] controller: the job fails: inference 5 (host a, pid 1007) "
			     "failed at version 0: its NIC is gone\n");
	simulation_free(&s);
}

/* Whatever is lost, doubled or late: one engine goes, by one loss or several at once, and all others hear of it. */
static void test_bad_network__everybody_else_hears_of_it_and_goes_on(void **unused)
{
	(void)unused;
	for (uint64_t seed = 1; seed <= SIMULATION_SEEDS; seed++) {
		struct simulation *s = running(&(struct simulation_options){
			.seed = seed, .drop_percent = 20, .double_percent = 10, .jitter_ms = 50});
		uint64_t now = simulation_now(s);

		simulation_kill(s, 4 + seed % 2);
		if (seed % 3)
			simulation_drop(s, 0, 2 + seed % 2, "its process has ended");
		if (seed % 3 == 2)
			simulation_drop(s, 1, 2 + seed % 2, "its process has ended");
		simulation_run(s, now + 15000);
		for (uint32_t i = 0; i < 8; i++) {
			bool out = i == 4 || i == 5;

			if (simulation_alive(s, i) &&
			    simulation_state(s, i) != (out ? WORKER_FAILED : WORKER_RUN))
				fail_msg("seed %llu: worker %u is %s\n%s", (unsigned long long)seed,
					 i, worker_state_name(simulation_state(s, i)),
					 simulation_transcript(s));
		}
		simulation_leave_all(s);
		simulation_run(s, now + 30000);
		simulation_assert_done(s);
		simulation_free(&s);
	}
}

/* The first two engines do two versions, at the pace of each of their ranks, and the third goes on: --commit job. */
static void test_done__in_any_order_leaves_the_others_to_show_versions_together(void **unused)
{
	(void)unused;
	for (uint64_t seed = 1; seed <= SIMULATION_SEEDS; seed++) {
		struct simulation *s =
			running(&(struct simulation_options){.seed = seed,
							     .commit = "job",
							     .shadow = seed % 2,
							     .words_written = seed / 2 % 2,
							     .said_ms = (uint32_t)seed * 7 % 100,
							     .load_ms = (uint32_t)seed % 7,
							     .jitter_ms = (uint32_t)seed % 8});

		for (uint32_t i = 2; i < 6; i++)
			simulation_does(s, i, 2);
		for (uint32_t turn = 0; turn < 5000 && simulation_version(s, 7) < 4; turn++) {
			simulation_update_next(s);
			simulation_run_for(s, 1);
		}
		if (simulation_state(s, 7) != WORKER_RUN || simulation_version(s, 7) < 4)
			fail_msg("seed %llu\n%s", (unsigned long long)seed,
				 simulation_transcript(s));
		simulation_leave_all(s);
		simulation_run_for(s, 30000);
		simulation_assert_done(s);
		simulation_free(&s);
	}
}

/* Engine 1 is lost, and the first rank of engine 0 dies while it tells the others of it what is shown: some have heard it. */
static void test_leader__that_dies_while_it_shows_by_the_plan_leaves_no_two_versions(void **unused)
{
	static const struct simulation_options options = {.infer = "engines=2,tp=3",
							  .on_loss = "continue",
							  .commit = "job",
							  .shadow = true,
							  .words_written = true,
							  .said_ms = 20};
	uint32_t halves = 0;

	(void)unused;
	for (uint32_t after = 0; after < 24; after++) {
		struct simulation *s = simulation_running(&options);
		char *verdict;

		simulation_update(s, 1);
		simulation_run_for(s, 1000);
		simulation_update(s, 2);
		simulation_run_for(s, 5);
		simulation_kill(s, 5);
		simulation_drop(s, 0, 3, "its process has ended");
		for (uint32_t ms = 0; ms < 5000 && simulation_version(s, 2) < 2; ms++)
			simulation_run_for(s, 1);
		assert_int_equal(simulation_version(s, 2), 2);
		simulation_run_for(s, after);
		halves += simulation_version(s, 3) != simulation_version(s, 4);
		simulation_kill(s, 2);
		simulation_run_for(s, 8000);
		verdict = history_judge(simulation_history(s));
		if (verdict)
			fail_msg("after %u ms: %s\n%s", after, verdict, simulation_transcript(s));
		simulation_free(&s);
	}
	assert_true(halves > 0);
}

/* Another one is here before it leaves, or comes when trainers wait for somebody to send to. */
static void test_last_engine__whose_work_is_done_leaves_it_to_one_that_comes(void **unused)
{
	static const char *const commits[] = {"rank", "engine", "job"};

	(void)unused;
	for (uint32_t k = 0; k < 6; k++) {
		bool before = k % 2;
		uint32_t rank = 0;
		struct simulation *s =
			simulation_running(&(struct simulation_options){.infer = "engines=2,tp=2",
									.on_loss = "continue",
									.commit = commits[k / 2]});

		simulation_update(s, 1);
		simulation_run_for(s, 1000);
		simulation_fail(s, 4, "its NIC is gone"); /* of engine 1 */
		simulation_run_for(s, 1000);
		simulation_update(s, 2);
		simulation_run_for(s, 1000);
		if (before) {
			rank = simulation_start_rank(s, 2);
			simulation_start_rank(s, 3);
			simulation_run_for(s, 200);
		}
		simulation_leave(s, 2, true);
		simulation_run_for(s, 100);
		simulation_leave(s, 3, true);
		simulation_run_for(s, 100);
		simulation_update(s, 3);
		simulation_run_for(s, 1000);
		if (!before) {
			rank = simulation_start_rank(s, 2);
			simulation_start_rank(s, 3);
			simulation_run_for(s, 500);
			simulation_update_next(s); /* who had begun it ends it: nobody is left */
		}
		simulation_run_for(s, 5000);
		simulation_expect(s,
				  "*controller: engine 0 (inference 0..1) leaves, the job goes on "
				  "with 0 of 2: its work is done after version 2\n"
				  "*controller: 1 of 2 engines are here from version *\n");
		simulation_update_next(s);
		simulation_run_for(s, 1000);
		assert_true(simulation_version(s, rank) >= 4);
		assert_int_equal(simulation_version(s, rank), simulation_version(s, 0));
		simulation_leave_all(s);
		simulation_run_for(s, 7000);
		simulation_assert_done(s);
		simulation_free(&s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_silent_rank__takes_its_engine_out_of_the_job),
		cmocka_unit_test(test_last_engine__whose_work_is_done_leaves_it_to_one_that_comes),
		cmocka_unit_test(
			test_done__in_any_order_leaves_the_others_to_show_versions_together),
		cmocka_unit_test(
			test_leader__that_dies_while_it_shows_by_the_plan_leaves_no_two_versions),
		cmocka_unit_test(test_dropped_rank__takes_its_engine_out_at_once),
		cmocka_unit_test(
			test_rank__whose_work_is_done_is_no_loss_while_the_others_leave_too),
		cmocka_unit_test(
			test_rank__whose_work_is_done_and_the_others_is_not_takes_its_engine_out),
		cmocka_unit_test(
			test_rank__that_left_and_is_dropped_then_takes_its_engine_out_once),
		cmocka_unit_test(test_gone__that_was_lost_on_its_way_is_said_again),
		cmocka_unit_test(
			test_rank__that_is_lost_when_all_others_are_done_is_no_failure_of_theirs),
		cmocka_unit_test(test_engine__that_leaves_with_its_work_done_is_gone_on_without),
		cmocka_unit_test(
			test_engine__that_is_lost_when_trainers_are_done_is_no_failure_of_theirs),
		cmocka_unit_test(
			test_last_engine__is_waited_for_and_ends_the_job_when_no_other_comes),
		cmocka_unit_test(
			test_last_engine__that_is_lost_when_a_trainer_is_done_ends_the_job),
		cmocka_unit_test(test_bad_network__everybody_else_hears_of_it_and_goes_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Stories of a job that runs: updates, and deaths around them.
 */
#include "tests/support/simulator.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define TRAINER_1   1
#define INFERENCE_0 2

static struct simulation *running(const struct simulation_options *options)
{
	struct simulation *simulation = simulation_new(options);

	simulation_controller_start(simulation);
	simulation_start_all(simulation);
	assert_true(simulation_run_to(simulation, WORKER_RUN, 1000));
	return simulation;
}

static struct simulation *small(void)
{
	struct simulation_options options = {0};

	return running(&options);
}

static void test_update__one_update_reaches_every_rank(void **unused)
{
	struct simulation *s = small();

	(void)unused;
	simulation_update(s, 1);
	simulation_run(s, 100);
	simulation_expect(s, "[    14] trainer 0 begins version 1\n"
			     "[    24] trainer 0 ends version 1\n"
			     "[    24] trainer 1 ends version 1\n"
			     "[    25] inference 0 publishes version 1\n"
			     "[    25] inference 1 publishes version 1\n");
	simulation_free(&s);
}

static void test_update__a_death_before_an_update_is_told_to_all(void **unused)
{
	struct simulation *s = small();

	(void)unused;
	simulation_update(s, 1);
	simulation_run(s, 700);
	simulation_kill(s, TRAINER_1);
	simulation_run(s, 20000);
	simulation_expect(
		s,
		"[    24] trainer 1 ends version 1\n"
		"[   700] trainer 1 is killed\n"
		"[  6000] controller: the job fails: trainer 1 (host a, pid 1001) was lost: silent for "
		"5.5 s, last heard of at version 1 (trainers at version 1, inference ranks at version 1)\n"
		"[  6001] trainer 0 fails: trainer 1 (host a, pid 1001) was lost: silent for 5.5 s, last "
		"heard of at version 1 (trainers at version 1, inference ranks at version 1)\n"
		"[  6001] trainer 0 > leave interrupted\n"
		"[  6001] inference 1 fails: trainer 1 (host a, pid 1001) was lost: silent for 5.5 s, "
		"last heard of at version 1 (trainers at version 1, inference ranks at version 1)\n"
		"[  6002] controller exits 75\n");
	simulation_free(&s);
}

static void test_update__a_death_during_an_update_publishes_nothing_torn(void **unused)
{
	struct simulation_options options = {.infer = "engines=2,tp=2", .write_ms = 100};
	struct simulation *s = running(&options);

	(void)unused;
	simulation_update(s, 1);
	simulation_run(s, 150);
	simulation_kill(s, TRAINER_1);
	simulation_run(s, 20000);
	simulation_expect(
		s,
		"[    14] trainer 1 begins version 1\n"
		"[   115] inference 1 publishes version 1\n"
		"[   150] trainer 1 is killed\n"
		"[   214] trainer 0 ends version 1\n"
		"[   215] inference 2 publishes version 1\n"
		"[  5500] controller: the job fails: trainer 1 (host a, pid 1001) was lost: silent for "
		"5.5 s, last heard of at version 0 (trainers at version 0..1, inference ranks at version "
		"0..1)\n"
		"[  5501] inference 3 fails: trainer 1 (host a, pid 1001) was lost: silent for 5.5 s, "
		"last heard of at version 0 (trainers at version 0..1, inference ranks at version 0..1)\n"
		"[  5502] controller exits 75\n");
	simulation_expect_not(s, "inference 3 publishes");
	simulation_free(&s);
}

static void test_update__a_failed_worker_is_quoted_to_all(void **unused)
{
	struct simulation *s = small();

	(void)unused;
	simulation_fail(s, TRAINER_1, "update 3: write to inference 0 was refused");
	simulation_run(s, 1000);
	simulation_expect(
		s,
		"[    14] trainer 1 > failure E140 at version 0: update 3: write to inference 0 was "
		"refused\n"
		"[    16] inference 0 fails: trainer 1 (host a, pid 1001) failed at version 0: update 3: "
		"write to inference 0 was refused\n"
		"[    17] controller exits 75\n");
	simulation_free(&s);
}

static void test_update__an_interrupted_worker_ends_the_job(void **unused)
{
	struct simulation *s = small();

	(void)unused;
	simulation_leave(s, INFERENCE_0, false);
	simulation_run(s, 1000);
	simulation_expect(
		s,
		"[    15] controller: the job fails: inference 0 (host a, pid 1002) left before its work "
		"was done (interrupted or failed)\n"
		"[    16] inference 0 is left\n"
		"[    16] trainer 0 fails: inference 0 (host a, pid 1002) left before its work was done "
		"(interrupted or failed)\n"
		"[    17] controller exits 75\n");
	simulation_free(&s);
}

static void test_update__workers_may_leave_one_after_the_other(void **unused)
{
	struct simulation *s = small();
	struct error error;

	(void)unused;
	for (uint32_t i = 0; i < simulation_workers(s); i++) {
		simulation_leave(s, i, true);
		/* longer than lost_ms: who left is not missed */
		simulation_run(s, simulation_now(s) + 7000);
		simulation_kill(s, i);
	}
	assert_true(simulation_controller_over(s, &error));
	assert_int_equal(error.code, ERROR_NONE);
	simulation_free(&s);
}

static void test_update__a_short_silence_is_forgiven(void **unused)
{
	struct simulation *s = small();

	(void)unused;
	simulation_partition(s, TRAINER_1, 4000);
	simulation_run(s, 20000);
	for (uint32_t i = 0; i < simulation_workers(s); i++)
		assert_int_equal(simulation_state(s, i), WORKER_RUN);
	simulation_free(&s);
}

static void test_update__a_long_partition_is_noticed_on_both_sides(void **unused)
{
	struct simulation *s = small();

	(void)unused;
	simulation_partition(s, TRAINER_1, 30000);
	simulation_run(s, 20000);
	simulation_expect(
		s,
		"[    14] trainer 1 is cut off\n"
		"[  5014] trainer 1 fails: the controller at tcp://head:29600 is silent for 5.0 s (this "
		"worker at version 0); restart the whole job\n"
		"[  5501] trainer 0 fails: trainer 1 (host a, pid 1001) was lost: silent for 5.5 s, last "
		"heard of at version 0 (trainers at version 0, inference ranks at version 0)\n");
	simulation_free(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_update__one_update_reaches_every_rank),
		cmocka_unit_test(test_update__a_death_before_an_update_is_told_to_all),
		cmocka_unit_test(test_update__a_death_during_an_update_publishes_nothing_torn),
		cmocka_unit_test(test_update__a_failed_worker_is_quoted_to_all),
		cmocka_unit_test(test_update__an_interrupted_worker_ends_the_job),
		cmocka_unit_test(test_update__workers_may_leave_one_after_the_other),
		cmocka_unit_test(test_update__a_short_silence_is_forgiven),
		cmocka_unit_test(test_update__a_long_partition_is_noticed_on_both_sides),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

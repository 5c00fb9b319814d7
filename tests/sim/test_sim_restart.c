/* SPDX-License-Identifier: Apache-2.0
 *
 * Stories of restarts: of the controller, of a worker, and of a whole job.
 */
#include "tests/support/simulator.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define START(a_role, a_rank, ...) \
	simulation_start(          \
		s, &(struct simulation_worker){.role = (a_role), .rank = (a_rank), ##__VA_ARGS__})

static struct simulation *fresh(uint32_t restarts)
{
	struct simulation_options options = {.restarts = restarts};
	struct simulation *simulation = simulation_new(&options);

	simulation_controller_start(simulation);
	return simulation;
}

static void test_restart__a_controller_before_the_plan_is_joined_again(void **unused)
{
	struct simulation *s = fresh(0);

	(void)unused;
	START(ROLE_TRAINER, 0);
	START(ROLE_INFERENCE, 0);
	simulation_run(s, 100);
	simulation_controller_kill(s);
	simulation_run(s, 200);
	simulation_controller_start(s);
	START(ROLE_TRAINER, 1);
	START(ROLE_INFERENCE, 1);
	assert_true(simulation_run_to(s, WORKER_RUN, 3000));
	simulation_expect(
		s,
		"[   100] controller is killed\n"
		"[   200] controller starts\n"
		"[   503] controller > trainer 0: refuse E132: this controller (started 0.3 s ago) does "
		"not know this worker: the one it joined is gone, or gave it up\n"
		"[   504] trainer 0: the controller at tcp://head:29600 was restarted: joining again\n"
		"[   504] trainer 0 is hello\n"
		"[   505] controller: trainer 0 (host a, pid 1000) joins, 3 of 4 here\n"
		"[   517] controller: all 4 workers have their peers' endpoints after 0.0 s: go\n");
	simulation_free(&s);
}

static void test_restart__a_controller_after_the_plan_ends_the_workers(void **unused)
{
	struct simulation *s = fresh(0);

	(void)unused;
	simulation_start_all(s);
	assert_true(simulation_run_to(s, WORKER_RUN, 1000));
	simulation_controller_kill(s);
	simulation_run(s, 200);
	simulation_controller_start(s);
	simulation_run(s, 3000);
	simulation_expect(
		s,
		"[    14] controller is killed\n"
		"[   200] controller starts\n"
		"[   504] trainer 0 fails: the controller at tcp://head:29600 was restarted (incarnation "
		"000000000000c001, was 000000000000c000), so the plan of epoch 1 is gone; restart the "
		"whole job\n"
		"[   504] inference 1 fails: the controller at tcp://head:29600 was restarted "
		"(incarnation 000000000000c001, was 000000000000c000), so the plan of epoch 1 is gone; "
		"restart the whole job\n");
	assert_int_equal(simulation_error(s, 0)->code, ERROR_CONTROLLER_LOST);
	simulation_free(&s);
}

static void test_restart__a_controller_that_dies_is_missed(void **unused)
{
	struct simulation *s = fresh(0);

	(void)unused;
	simulation_start_all(s);
	assert_true(simulation_run_to(s, WORKER_RUN, 1000));
	simulation_controller_kill(s);
	simulation_run(s, 10000);
	simulation_expect(
		s, "[  5014] inference 0 fails: the controller at tcp://head:29600 is silent "
		   "for 5.0 s (this worker at version 0); restart the whole job\n");
	simulation_free(&s);
}

static void test_restart__a_worker_of_a_running_job_fails_it_by_name(void **unused)
{
	struct simulation *s = fresh(0);

	(void)unused;
	simulation_start_all(s);
	assert_true(simulation_run_to(s, WORKER_RUN, 1000));
	simulation_kill(s, 1);
	simulation_run(s, 1000);
	START(ROLE_TRAINER, 1);
	simulation_run(s, 12000);
	simulation_expect(
		s,
		"[    14] trainer 1 is killed\n"
		"[  1001] controller: trainer 1 (host a, pid 1001) is claimed by another process (host a, "
		"pid 1004): waiting for a heartbeat of the first\n"
		"[  5500] controller: the job fails: trainer 1 (host a, pid 1001) was restarted: silent "
		"for 5.5 s, and a new process claims its rank; restart the whole job\n"
		"[  5501] inference 0 fails: trainer 1 (host a, pid 1001) was restarted: silent for 5.5 s, "
		"and a new process claims its rank; restart the whole job\n"
		"[  5502] controller exits 75\n");
	simulation_free(&s);
}

static void test_restart__a_lost_job_gathers_again_as_a_new_epoch(void **unused)
{
	struct simulation *s = fresh(1);

	(void)unused;
	simulation_start_all(s);
	assert_true(simulation_run_to(s, WORKER_RUN, 1000));
	simulation_kill(s, 1);
	simulation_run(s, 1000);
	START(ROLE_TRAINER, 1);
	simulation_run(s, 5600);
	for (uint32_t i = 0; i < 4; i++) /* their launcher starts new processes */
		simulation_kill(s, i);
	START(ROLE_TRAINER, 0);
	START(ROLE_INFERENCE, 0);
	START(ROLE_INFERENCE, 1);
	assert_true(simulation_run_to(s, WORKER_RUN, 7000));
	simulation_expect(
		s,
		"[  5500] controller: gathering again as epoch 2, 0 restarts left\n"
		"[  5501] trainer 0 > leave interrupted\n"
		"[  5501] controller: trainer 1 (host a, pid 1004) joins, 1 of 4 here\n"
		"[  5503] controller: trainer 1 (host a, pid 1004) declares, known already\n"
		"[  5603] controller: plan of epoch 2 by greedy, order rotated: 6 routes, 6 pieces, 384 B, digest "
		"*\n"
		"[  5611] controller: all 4 workers have their peers' endpoints after 0.0 s: go\n");
	simulation_update(s, 1);
	simulation_run(s, 6000);
	simulation_leave_all(s);
	simulation_run(s, 8000);
	simulation_expect(s, "[  6001] controller exits 0\n");
	simulation_free(&s);
}

/* One of the failed epoch was cut off and heard nothing: it is told when it comes back. */
static void test_restart__a_worker_of_the_failed_epoch_is_told_when_it_returns(void **unused)
{
	struct simulation *s = fresh(1);

	(void)unused;
	simulation_start_all(s);
	assert_true(simulation_run_to(s, WORKER_RUN, 1000));
	simulation_fail(s, 0, "update 1: bad");
	simulation_partition(s, 1, 3000);
	simulation_run(s, 6000);
	simulation_expect(
		s,
		"[    15] controller: gathering again as epoch 2, 0 restarts left\n"
		"[  3004] trainer 1 fails: trainer 0 (host a, pid 1000) failed at version 0: update 1: "
		"bad\n");
	simulation_free(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_restart__a_controller_before_the_plan_is_joined_again),
		cmocka_unit_test(test_restart__a_controller_after_the_plan_ends_the_workers),
		cmocka_unit_test(test_restart__a_controller_that_dies_is_missed),
		cmocka_unit_test(test_restart__a_worker_of_a_running_job_fails_it_by_name),
		cmocka_unit_test(test_restart__a_lost_job_gathers_again_as_a_new_epoch),
		cmocka_unit_test(
			test_restart__a_worker_of_the_failed_epoch_is_told_when_it_returns),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

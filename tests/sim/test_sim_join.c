/* SPDX-License-Identifier: Apache-2.0
 *
 * Stories of a job that gathers. The transcript is the assertion.
 */
#include "tests/support/simulator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define START(a_role, a_rank, ...) \
	simulation_start(          \
		s, &(struct simulation_worker){.role = (a_role), .rank = (a_rank), ##__VA_ARGS__})

static struct simulation *fresh(void)
{
	struct simulation_options options = {0};
	struct simulation *simulation = simulation_new(&options);

	simulation_controller_start(simulation);
	return simulation;
}

static void test_join__a_job_joins_plans_and_connects(void **unused)
{
	struct simulation *s = fresh();

	(void)unused;
	simulation_start_all(s);
	assert_true(simulation_run_to(s, WORKER_RUN, 1000));
	simulation_expect(
		s,
		"[     0] trainer 0 > hello trainer 0 pid 1000 on a, incarnation 100\n"
		"[     1] controller: trainer 0 (host a, pid 1000) joins, 1 of 4 here\n"
		"[     1] controller > trainer 0: welcome by c000: beat every 500 ms, lost after 5000 ms\n"
		"[     1] controller: inference 1 (host a, pid 1003) joins, 4 of 4 here\n"
		"[     3] controller: trainer 0 (host a, pid 1000) declares, asked for the contents\n"
		"[     3] controller > trainer 0: want 1: 65ccf3fd\n"
		"[     3] controller: trainer 1 (host a, pid 1001) declares\n"
		"[     3] controller > trainer 1: want nothing\n"
		"[     4] trainer 0 > holding 65ccf3fd: 3 tensors, 3 boxes\n"
		"[     4] inference 0 > layout cf7a40b6: 3 tensors, 3 params, 3 pieces, 0 fills\n"
		"[     5] controller > trainer 0: plan attempt 1: 3 rows, 1 peers, greedy, rotated *\n"
		"[     5] controller > inference 1: plan attempt 1: 3 rows, 1 peers, greedy, rotated *\n"
		"[     8] trainer 0 > endpoints attempt 1: 1 records, 0 regions, 0 places in 0 copies\n"
		"[     8] inference 0 > endpoints attempt 1: 1 records, 1 regions, 3 places in 1 copies\n"
		"[     9] controller > trainer 0: peers attempt 1: 1 peers\n"
		"[    12] trainer 0 > connected attempt 1\n"
		"[    13] controller: all 4 workers have their peers' endpoints after 0.0 s: go\n"
		"[    13] controller > inference 1: go attempt 1\n"
		"[    14] inference 1 is run\n");
	/* a holding that two trainers declare travels once */
	simulation_expect_not(s, "trainer 1 > holding");
	simulation_leave_all(s);
	simulation_run(s, 2000);
	simulation_expect(s, "[    15] controller: done: all have left\n"
			     "[    15] controller exits 0\n"
			     "[    16] trainer 0 is left\n");
	simulation_free(&s);
}

static void test_join__a_trainer_with_nothing_to_send_goes_through(void **unused)
{
	struct simulation_options options = {
		.train = "world=3,source=gathered", .infer = "engines=1,tp=1", .tensors = 1};
	struct simulation *s = simulation_new(&options);

	(void)unused;
	simulation_controller_start(s);
	simulation_start_all(s);
	assert_true(simulation_run_to(s, WORKER_RUN, 1000));
	simulation_expect(
		s,
		"[     5] controller > trainer 1: plan attempt 1: 0 rows, 0 peers, greedy, rotated *\n"
		"[     8] trainer 1 > endpoints attempt 1: 0 records, 0 regions, 0 places in 0 copies\n"
		"[     9] controller > trainer 1: peers attempt 1: 0 peers\n"
		"[    14] trainer 1 is run\n");
	simulation_free(&s);
}

static void test_join__a_late_worker_is_waited_for_and_named(void **unused)
{
	struct simulation *s = fresh();

	(void)unused;
	START(ROLE_TRAINER, 0);
	START(ROLE_TRAINER, 1);
	START(ROLE_INFERENCE, 0);
	simulation_run(s, 8000);
	START(ROLE_INFERENCE, 1);
	assert_true(simulation_run_to(s, WORKER_RUN, 9000));
	simulation_expect(
		s,
		"[  5001] controller: still waiting for inference 1 of 2 to join, 5.0 of 20.0 s\n"
		"[  8001] controller: inference 1 (host a, pid 1003) joins, 4 of 4 here\n"
		"[  8013] controller: all 4 workers have their peers' endpoints after 0.0 s: go\n");
	simulation_free(&s);
}

static void test_join__a_worker_that_never_comes_is_named_to_all(void **unused)
{
	struct simulation *s = fresh();
	struct error error;

	(void)unused;
	START(ROLE_TRAINER, 0);
	START(ROLE_INFERENCE, 0);
	simulation_run(s, 30000);
	simulation_expect(
		s,
		"[ 20001] controller: the job fails: waiting for trainer 1 of 2, inference 1 of 2 to "
		"join; trainer 0 (host a, pid 1000) has given up: waiting for the plan (the controller "
		"plans when all workers have declared) at tcp://head:29600 for 20.0 s; "
		"raise --join-timeout if this is expected\n"
		"[ 20002] inference 0 fails: waiting for trainer 1 of 2, inference 1 of 2 to "
		"join; trainer 0 (host a, pid 1000) has given up: waiting for the plan (the controller "
		"plans when all workers have declared) at tcp://head:29600 for 20.0 s; "
		"raise --join-timeout if this is expected\n"
		"[ 20003] controller exits 75\n");
	assert_true(simulation_controller_over(s, &error));
	assert_int_equal(error.code, ERROR_TIMEOUT);
	simulation_free(&s);
}

static void test_join__a_worker_that_failed_before_is_told_to_all(void **unused)
{
	struct simulation *s = fresh();
	struct error error;

	(void)unused;
	START(ROLE_TRAINER, 1);
	START(ROLE_INFERENCE, 0);
	simulation_run(s, 100);
	START(ROLE_TRAINER, 0, .failure = "no such checkpoint /x");
	simulation_run(s, 1000);
	simulation_expect(
		s,
		"[   102] trainer 0 fails: no such checkpoint /x\n"
		"[   103] controller: the job fails: trainer 0 (host a, pid 1002) failed before the job "
		"ran: no such checkpoint /x\n"
		"[   104] trainer 1 fails: trainer 0 (host a, pid 1002) failed before the job ran: no "
		"such checkpoint /x\n"
		"[   104] inference 0 fails: trainer 0 (host a, pid 1002) failed before the job ran: no "
		"such checkpoint /x\n");
	assert_false(simulation_controller_over(s, &error));
	/* one that is a little behind is told too, and then all have been */
	START(ROLE_INFERENCE, 1);
	simulation_run(s, 2000);
	simulation_expect(s,
			  "[  1002] inference 1 fails: trainer 0 (host a, pid 1002) failed before "
			  "the job ran: no such checkpoint /x\n");
	assert_true(simulation_controller_over(s, &error));
	assert_int_equal(error.code, ERROR_FILE);
	simulation_free(&s);
}

static void test_join__who_is_behind_a_failure_is_waited_for_as_long_as_for_a_silence(void **unused)
{
	struct simulation *s = fresh();
	struct error error;

	(void)unused;
	START(ROLE_TRAINER, 0, .failure = "no such checkpoint /x");
	simulation_run(s, 4900);
	assert_false(simulation_controller_over(s, &error));
	simulation_run(s, 6000);
	assert_true(simulation_controller_over(s, &error));
	simulation_free(&s);
}

static void test_join__a_failure_waits_for_a_controller_that_comes_later(void **unused)
{
	struct simulation_options options = {0};
	struct simulation *s = simulation_new(&options);
	struct error error;

	(void)unused;
	START(ROLE_TRAINER, 0, .failure = "no such checkpoint /x");
	simulation_run(s, 1200);
	simulation_controller_start(s);
	simulation_run(s, 9000);
	assert_true(simulation_controller_over(s, &error));
	assert_non_null(strstr(error.text, "no such checkpoint /x"));
	simulation_free(&s);
}

static void test_join__a_controller_that_nobody_finds_ends_by_its_deadline(void **unused)
{
	struct simulation *s = fresh();

	(void)unused;
	simulation_run(s, 30000);
	simulation_expect(
		s,
		"[  5000] controller: still waiting for trainer 0..1 of 2, inference 0..1 of 2 to join, "
		"5.0 of 20.0 s\n"
		"[ 20000] controller: the job fails: waiting for trainer 0..1 of 2, inference 0..1 of 2 "
		"to join for 20.0 s; raise --join-timeout if this is expected\n"
		"[ 20000] controller exits 75\n");
	simulation_free(&s);
}

static void test_join__a_worker_without_a_controller_names_the_address(void **unused)
{
	struct simulation_options options = {0};
	struct simulation *s = simulation_new(&options);

	(void)unused;
	START(ROLE_TRAINER, 0);
	simulation_run(s, 30000);
	simulation_expect(
		s, "[  5000] trainer 0: still waiting for an answer of the controller at "
		   "tcp://head:29600, 5.0 of 20.0 s\n"
		   "[ 20000] trainer 0 fails: waiting for an answer of the controller at "
		   "tcp://head:29600 for 20.0 s: is it running, is its address right, can this "
		   "host reach it; raise --join-timeout if this is expected\n");
	simulation_free(&s);
}

static void test_join__a_rank_claimed_twice_stays_with_the_first(void **unused)
{
	struct simulation *s = fresh();

	(void)unused;
	START(ROLE_TRAINER, 0);
	simulation_run(s, 100);
	START(ROLE_TRAINER, 0, .host = "b");
	simulation_run(s, 3000);
	simulation_expect(
		s,
		"[   101] controller: trainer 0 (host a, pid 1000) is claimed by another process (host b, "
		"pid 1001): waiting for a heartbeat of the first\n"
		"[  1102] trainer 0 fails: trainer 0 (host a, pid 1000) holds its rank "
		"and is alive, so the process on host b, pid 1001 is refused; start each rank once\n");
	assert_int_equal(simulation_state(s, 0), WORKER_DECLARE);
	assert_int_equal(simulation_error(s, 1)->code, ERROR_DUPLICATE_RANK);
	simulation_free(&s);
}

static void test_join__a_restarted_worker_takes_its_place_again(void **unused)
{
	struct simulation *s = fresh();

	(void)unused;
	START(ROLE_TRAINER, 0);
	simulation_run(s, 100);
	simulation_kill(s, 0);
	simulation_run(s, 200);
	START(ROLE_TRAINER, 0);
	START(ROLE_TRAINER, 1);
	START(ROLE_INFERENCE, 0);
	START(ROLE_INFERENCE, 1);
	assert_true(simulation_run_to(s, WORKER_RUN, 8000));
	simulation_expect(
		s,
		"[   100] trainer 0 is killed\n"
		"[   201] controller: trainer 0 (host a, pid 1000) is claimed by another process (host a, "
		"pid 1001): waiting for a heartbeat of the first\n"
		"[  5201] controller: trainer 0 (host a, pid 1000) fell silent; host a, pid 1001 takes its "
		"place\n"
		"[  5203] controller: trainer 0 (host a, pid 1001) declares, known already\n");
	simulation_free(&s);
}

static void test_join__strangers_are_told_why(void **unused)
{
	struct simulation *s = fresh();

	(void)unused;
	START(ROLE_TRAINER, 0, .job = "other");
	START(ROLE_TRAINER, 1, .other_wire = true);
	START(ROLE_TRAINER, 2);
	simulation_run(s, 1500);
	simulation_expect(
		s,
		"[     2] trainer 0 fails: trainer 0 (host a, pid 1000) belongs to job 'other', and this "
		"is the controller of job 'demo': check --job and the controller's address\n"
		"[     2] trainer 1 fails: the other side speaks wire version "
		"11 and this program version 10: run the same release of weft everywhere in a job\n"
		"[     2] trainer 2 fails: there is no trainer 2 in this job (host a, pid 1002): the "
		"controller was started with --train world=2,source=gathered, which has ranks 0..1; start "
		"fewer or change the spec\n");
	assert_int_equal(simulation_error(s, 0)->code, ERROR_JOB);
	assert_int_equal(simulation_error(s, 1)->code, ERROR_WIRE_VERSION);
	assert_int_equal(simulation_error(s, 2)->code, ERROR_CONFIG);
	simulation_free(&s);
}

static void test_join__a_contradiction_names_both_parties(void **unused)
{
	struct simulation *s = fresh();

	(void)unused;
	START(ROLE_TRAINER, 0);
	START(ROLE_TRAINER, 1, .model = "big");
	START(ROLE_INFERENCE, 0, .transport = "tcp");
	simulation_run(s, 1000);
	simulation_expect(
		s,
		"[     4] trainer 1 fails: trainer 1 (host a, pid 1001) declares model 'big', and trainer "
		"0 (host a, pid 1000) declares 'tiny': all workers of a job must say the same\n"
		"[     4] inference 0 fails: inference 0 (host a, pid 1002) declares transport 'tcp', and "
		"trainer 0 (host a, pid 1000) declares 'shm': all workers of a job must say the same\n");
	assert_int_equal(simulation_state(s, 0), WORKER_DECLARE);
	simulation_free(&s);
}

static void ends_with_78(struct simulation *s, enum error_code code)
{
	struct error error;

	simulation_run(s, 3000);
	assert_true(simulation_controller_over(s, &error));
	assert_int_equal(error.code, code);
	assert_int_equal(error_exit_code(error.code), 78);
	for (uint32_t i = 0; i < simulation_workers(s); i++) {
		assert_int_equal(simulation_state(s, i), WORKER_FAILED);
		assert_int_equal(simulation_error(s, i)->code, code);
	}
}

static void test_join__a_tensor_with_two_shapes_ends_the_job(void **unused)
{
	struct simulation *s = fresh();

	(void)unused;
	START(ROLE_TRAINER, 0);
	START(ROLE_TRAINER, 1, .other_shape = true);
	START(ROLE_INFERENCE, 0);
	START(ROLE_INFERENCE, 1);
	ends_with_78(s, ERROR_CONFLICT);
	assert_non_null(strstr(simulation_error(s, 2)->text, "layer.0.weight"));
	assert_non_null(strstr(simulation_error(s, 2)->text, "trainer 1"));
	simulation_free(&s);
}

static void test_join__a_parameter_without_a_source_ends_the_job(void **unused)
{
	struct simulation *s = fresh();

	(void)unused;
	START(ROLE_TRAINER, 0);
	START(ROLE_TRAINER, 1);
	START(ROLE_INFERENCE, 0);
	START(ROLE_INFERENCE, 1, .needs_unsourced = true);
	ends_with_78(s, ERROR_UNSOURCED);
	assert_non_null(strstr(simulation_error(s, 0)->text, "'engine.3' of inference 1"));
	simulation_free(&s);
}

static void test_join__a_tensor_that_nobody_wants_is_listed(void **unused)
{
	struct simulation *s = fresh();

	(void)unused;
	START(ROLE_TRAINER, 0, .holds_unwanted = true);
	START(ROLE_TRAINER, 1);
	START(ROLE_INFERENCE, 0);
	START(ROLE_INFERENCE, 1);
	assert_true(simulation_run_to(s, WORKER_RUN, 1000));
	simulation_expect(s, "[     5] controller: 1 tensor is held by trainers and wanted by no "
			     "inference rank, and stays at home: mtp.3.weight\n");
	simulation_free(&s);
}

static void test_join__shm_between_two_hosts_is_refused(void **unused)
{
	struct simulation *s = fresh();

	(void)unused;
	START(ROLE_TRAINER, 0);
	START(ROLE_TRAINER, 1);
	START(ROLE_INFERENCE, 0);
	START(ROLE_INFERENCE, 1, .host = "b", .boot = "boot-b");
	ends_with_78(s, ERROR_UNSUPPORTED);
	simulation_expect(
		s,
		"[     5] controller: the job fails: transport shm needs one host: trainer 1 is on a "
		"(boot id boot-a), inference 1 is on b (boot id boot-b); between hosts use --transport "
		"tcp, or verbs where both have RDMA\n"
		"[     7] controller exits 78\n");
	simulation_free(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_join__a_job_joins_plans_and_connects),
		cmocka_unit_test(test_join__a_trainer_with_nothing_to_send_goes_through),
		cmocka_unit_test(test_join__a_late_worker_is_waited_for_and_named),
		cmocka_unit_test(test_join__a_worker_that_never_comes_is_named_to_all),
		cmocka_unit_test(test_join__a_worker_that_failed_before_is_told_to_all),
		cmocka_unit_test(
			test_join__who_is_behind_a_failure_is_waited_for_as_long_as_for_a_silence),
		cmocka_unit_test(test_join__a_failure_waits_for_a_controller_that_comes_later),
		cmocka_unit_test(test_join__a_controller_that_nobody_finds_ends_by_its_deadline),
		cmocka_unit_test(test_join__a_worker_without_a_controller_names_the_address),
		cmocka_unit_test(test_join__a_rank_claimed_twice_stays_with_the_first),
		cmocka_unit_test(test_join__a_restarted_worker_takes_its_place_again),
		cmocka_unit_test(test_join__strangers_are_told_why),
		cmocka_unit_test(test_join__a_contradiction_names_both_parties),
		cmocka_unit_test(test_join__a_tensor_with_two_shapes_ends_the_job),
		cmocka_unit_test(test_join__a_parameter_without_a_source_ends_the_job),
		cmocka_unit_test(test_join__a_tensor_that_nobody_wants_is_listed),
		cmocka_unit_test(test_join__shm_between_two_hosts_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

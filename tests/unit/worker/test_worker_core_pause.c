/* SPDX-License-Identifier: Apache-2.0
 *
 * A worker's control core in a job that pauses, to take an engine in.
 */
#include "tests/unit/worker/worker_core_bench.h"

static void
test_pause__is_asked_of_the_host_once_and_its_answer_said_until_there_is_a_plan(void **state)
{
	struct bench *bench = *state;

	reach_run_for_long(bench);
	receive_pause(bench, 1, 0);
	assert_true(asks_to_pause(bench));
	receive_pause(bench, 1, 0);
	assert_false(asks_to_pause(bench));
	pause_at(bench, 1, false, 5);
	assert_false(sent(bench, MESSAGE_PAUSED)->u.paused.stopped);
	receive_next_plan(bench, 2, 0); /* which nobody sends to one that has not stopped */
	assert_int_equal(state_of(bench), WORKER_RUN);
	pause_at(bench, 1, true, 5);
	assert_true(sent(bench, MESSAGE_PAUSED)->u.paused.stopped);
	tick(bench, 600);
	assert_int_equal(sent(bench, MESSAGE_PAUSED)->u.paused.next, 5);
	receive_next_plan(bench, 2, 0);
	assert_int_equal(state_of(bench), WORKER_PLANNED);
	exchange(bench, 2);
	tick(bench, 1300);
	assert_null(sent(bench, MESSAGE_PAUSED));
	receive_pause(bench, 1, 0); /* late */
	assert_false(asks_to_pause(bench));
	receive_pause(bench, 2, 0);
	assert_true(asks_to_pause(bench));
}

static void test_pause__for_a_later_version_lets_the_host_go_on_up_to_it(void **state)
{
	struct bench *bench = *state;

	reach_run_for_long(bench);
	receive_pause(bench, 1, 0);
	pause_at(bench, 1, true, 5);
	receive_pause(bench, 1, 6);
	assert_true(asks_to_pause(bench));
	pause_at(bench, 1, true, 5); /* on its way to the core when that came */
	assert_null(sent(bench, MESSAGE_PAUSED));
	receive_next_plan(bench, 2, 0);
	assert_int_equal(state_of(bench), WORKER_RUN);
	pause_at(bench, 1, true, 6);
	assert_int_equal(sent(bench, MESSAGE_PAUSED)->u.paused.next, 6);
}

/* It would stop as if all that it waits for came later, and its mates wait for it. */
static void test_pause__waits_for_who_is_gone_to_be_said(void **state)
{
	struct bench *bench = *state;
	struct message pause = from_controller(MESSAGE_PAUSE);
	struct message gone = from_controller(MESSAGE_GONE);

	reach_run_for_long(bench);
	pause.u.pause.number = 1;
	pause.u.pause.gone = 1;
	pause.u.pause.stop = true;
	receive(bench, pause);
	assert_false(asks_to_pause(bench));
	gone.u.gone.number = gone.u.gone.departures = gone.u.gone.count = 1;
	gone.u.gone.text = memory_string("lost");
	receive(bench, gone);
	receive(bench, pause);
	assert_true(asks_to_pause(bench));
}

static void test_next_plan__takes_the_place_of_one_that_is_being_exchanged(void **state)
{
	struct bench *bench = *state;
	struct message_endpoints late = {.attempt = 2};

	reach_run_for_long(bench);
	receive_pause(bench, 1, 0);
	pause_at(bench, 1, true, 5);
	receive_next_plan(bench, 2, 0);
	receive_next_plan(bench, 3, 0);
	assert_int_equal(state_of(bench), WORKER_PLANNED);
	step(bench, (struct worker_event){.type = WORKER_EVENT_ENDPOINTS, .endpoints = &late});
	assert_null(sent(bench, MESSAGE_ENDPOINTS)); /* of the one before */
	receive_next_plan(bench, 2, 0);
	exchange(bench, 3);
}

static void test_next_plan__whose_rows_are_of_a_plan_that_is_not_here_fails(void **state)
{
	struct bench *bench = *state;
	struct message message = from_controller(MESSAGE_PLAN);

	reach_run_for_long(bench);
	receive_pause(bench, 1, 0);
	pause_at(bench, 1, true, 5);
	message.u.plan = (struct message_plan){.attempt = 3, .rows_of = 2};
	message.u.plan.policy = memory_string("greedy");
	message.u.plan.order = memory_string("rotated");
	receive(bench, message);
	assert_int_equal(state_of(bench), WORKER_FAILED);
	assert_non_null(strstr(sent(bench, MESSAGE_FAILURE)->u.failure.text,
			       "that of attempt 2; this worker has the plan of attempt 1"));
}

static void test_next_plan__waits_for_who_is_gone_to_be_said(void **state)
{
	struct bench *bench = *state;
	struct message message = from_controller(MESSAGE_GONE);

	reach_run_for_long(bench);
	receive_pause(bench, 1, 0);
	pause_at(bench, 1, true, 5);
	receive_next_plan(bench, 2, 1);
	assert_int_equal(state_of(bench), WORKER_RUN);
	message.u.gone.number = message.u.gone.departures = 1;
	message.u.gone.count = 2;
	message.u.gone.text = memory_string("lost");
	receive(bench, message);
	receive_next_plan(bench, 2, 1);
	assert_int_equal(state_of(bench), WORKER_PLANNED);
	exchange(bench, 2);
	tick(bench, 600);
	assert_int_equal(sent(bench, MESSAGE_HEARTBEAT)->u.heartbeat.gone, 1);
}

static void test_worker__that_comes_to_a_job_that_runs_waits_as_long_as_it_is_answered(void **state)
{
	struct bench *bench = *state;
	struct message message = from_controller(MESSAGE_WELCOME);

	tick(bench, 0);
	message.u.welcome = (struct message_welcome){500, 5000, CONTROLLER, true, 0};
	receive(bench, message);
	for (uint64_t now = 1000; now <= 100000; now += 1000) {
		tick(bench, now);
		receive_want(bench, false);
		assert_int_equal(state_of(bench), WORKER_DECLARE);
	}
	for (uint64_t now = 101000; state_of(bench) == WORKER_DECLARE; now += 500)
		tick(bench, now);
	assert_int_equal(state_of(bench), WORKER_FAILED);
	assert_non_null(strstr(failure(bench)->text, "is silent for 5.0 s"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_pause__is_asked_of_the_host_once_and_its_answer_said_until_there_is_a_plan),
		TEST(test_pause__for_a_later_version_lets_the_host_go_on_up_to_it),
		TEST(test_pause__waits_for_who_is_gone_to_be_said),
		TEST(test_next_plan__takes_the_place_of_one_that_is_being_exchanged),
		TEST(test_next_plan__whose_rows_are_of_a_plan_that_is_not_here_fails),
		TEST(test_next_plan__waits_for_who_is_gone_to_be_said),
		TEST(test_worker__that_comes_to_a_job_that_runs_waits_as_long_as_it_is_answered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

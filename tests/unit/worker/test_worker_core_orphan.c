/* SPDX-License-Identifier: Apache-2.0
 *
 * A worker's control core whose controller is lost while updates run (--orphan).
 */
#include "tests/unit/worker/worker_core_bench.h"

static bool says(const struct bench *bench, const char *part)
{
	for (size_t i = 0; i < bench->actions.count; i++)
		if (bench->actions.items[i].type == WORKER_ACTION_LOG &&
		    strstr(bench->actions.items[i].line, part))
			return true;
	return false;
}

/* Every second up to that one; what the last of these ticks did is in the actions. */
static void tick_to(struct bench *bench, uint64_t until_ms)
{
	while (bench->now < until_ms)
		tick(bench, bench->now + 1000);
}

static void reach_run_of_orphans(struct bench *bench)
{
	tick(bench, 0);
	receive_welcome_of_orphans(bench, 60000);
	receive_next_plan(bench, 1, 0);
	exchange(bench, 1);
}

static void test_orphan__goes_on_for_its_time_and_fails_after_it(void **state)
{
	struct bench *bench = *state;

	reach_run_of_orphans(bench);
	tick_to(bench, 5000);
	assert_true(says(bench, "silent for 5.0 s (this worker at version 0): updates go on "
				"without it, for 60.0 s at most"));
	assert_int_equal(state_of(bench), WORKER_RUN);
	tick_to(bench, 6000);
	assert_false(says(bench, "updates go on"));
	assert_non_null(sent(bench, MESSAGE_HEARTBEAT)); /* it may come again */
	tick_to(bench, 64000);
	assert_int_equal(state_of(bench), WORKER_RUN);
	tick_to(bench, 65000);
	assert_int_equal(state_of(bench), WORKER_FAILED);
	assert_int_equal(failure(bench)->code, ERROR_CONTROLLER_LOST);
	assert_non_null(strstr(failure(bench)->text, "is silent for 65.0 s"));
}

static void test_orphan__whose_controller_speaks_again_is_none(void **state)
{
	struct bench *bench = *state;

	reach_run_of_orphans(bench);
	tick_to(bench, 30000);
	receive(bench, from_controller(MESSAGE_HEARTBEAT));
	assert_true(says(bench, "is heard again"));
	receive(bench, from_controller(MESSAGE_HEARTBEAT));
	assert_false(says(bench, "is heard again"));
	tick_to(bench, 34000);
	assert_false(says(bench, "updates go on"));
	tick_to(bench, 35000);
	assert_true(says(bench, "updates go on"));
	tick_to(bench, 94000);
	assert_int_equal(state_of(bench), WORKER_RUN);
}

static void test_orphan__leaves_without_an_answer(void **state)
{
	struct bench *bench = *state;

	reach_run_of_orphans(bench);
	tick_to(bench, 6000);
	step(bench, (struct worker_event){.type = WORKER_EVENT_LEAVE, .done = true});
	assert_int_equal(state_of(bench), WORKER_LEFT);
	assert_true(sent(bench, MESSAGE_LEAVE)->u.leave.done);
}

/* ---- taken over ---- */

#define OTHER 0xc0defu

/* Of the epoch that it has made. */
static struct message from_other(enum message_type type)
{
	struct message message = from_controller(type);

	message.from = OTHER;
	message.epoch = 3;
	return message;
}

/* As to a stranger's heartbeat. */
static void other_answers(struct bench *bench)
{
	struct message message = from_other(MESSAGE_REFUSE);

	message.epoch = 1;
	message.u.refuse.code = ERROR_CONTROLLER_LOST;
	message.u.refuse.text = memory_string("never saw you");
	receive(bench, message);
}

static void other_welcomes(struct bench *bench)
{
	struct message message = from_other(MESSAGE_WELCOME);

	message.u.welcome = (struct message_welcome){500, 5000, OTHER, false, 60000};
	receive(bench, message);
}

static void test_orphan__asks_another_controller_to_take_it_over_and_runs_on(void **state)
{
	struct bench *bench = *state;
	struct message message;

	reach_run_of_orphans(bench);
	tick_to(bench, 6000);
	other_answers(bench);
	assert_true(says(bench, "asking it to take the job over"));
	assert_int_equal(sent(bench, MESSAGE_HELLO)->u.hello.attempt, 1);
	other_answers(bench);
	assert_false(says(bench, "asking it"));
	tick_to(bench, 7000);
	assert_non_null(sent(bench, MESSAGE_HELLO));
	other_welcomes(bench);
	assert_int_equal(sent(bench, MESSAGE_DECLARE)->epoch, 3);
	other_welcomes(bench); /* of the second hello */
	assert_null(sent(bench, MESSAGE_DECLARE));
	message = from_other(MESSAGE_WANT);
	message.u.want.digests = memory_alloc(sizeof(struct digest));
	message.u.want.digests[0] = holding_digest(&bench->holding);
	message.u.want.digest_count = 1;
	receive(bench, message);
	assert_non_null(sent(bench, MESSAGE_HOLDING));
	receive(bench, from_controller(MESSAGE_HEARTBEAT)); /* of the old one, late */
	assert_int_equal(state_of(bench), WORKER_RUN);
	message = from_other(MESSAGE_GO);
	message.u.go.attempt = 1;
	receive(bench, message);
	assert_true(says(bench, "has taken the job over"));
	tick_to(bench, 8000);
	assert_null(sent(bench, MESSAGE_DECLARE));
	assert_int_equal(sent(bench, MESSAGE_HEARTBEAT)->epoch, 3);
	message = from_other(MESSAGE_PAUSE);
	message.u.pause.number = 1;
	message.u.pause.stop = true;
	receive(bench, message);
	pause_at(bench, 1, true, 9);
	assert_int_equal(sent(bench, MESSAGE_PAUSED)->u.paused.next, 9);
	assert_int_equal(state_of(bench), WORKER_RUN);
}

static void test_orphan__that_is_not_taken_over_fails_with_the_reason(void **state)
{
	struct bench *bench = *state;
	struct message message = from_other(MESSAGE_REFUSE);

	reach_run_of_orphans(bench);
	other_answers(bench);
	message.u.refuse.code = ERROR_DUPLICATE_RANK;
	message.u.refuse.text = memory_string("there is another one");
	receive(bench, message);
	assert_int_equal(state_of(bench), WORKER_FAILED);
	assert_string_equal(failure(bench)->text, "there is another one");
}

static void test_orphan__that_is_forgotten_meanwhile_asks_again(void **state)
{
	struct bench *bench = *state;

	reach_run_of_orphans(bench);
	other_answers(bench);
	other_welcomes(bench);
	other_answers(bench);
	assert_non_null(sent(bench, MESSAGE_HELLO));
	other_welcomes(bench);
	assert_non_null(sent(bench, MESSAGE_DECLARE));
	assert_int_equal(state_of(bench), WORKER_RUN);
}

static void test_orphan__whose_next_controller_is_lost_too_asks_the_one_after_it(void **state)
{
	struct bench *bench = *state;
	struct message message = from_other(MESSAGE_REFUSE);

	reach_run_of_orphans(bench);
	other_answers(bench);
	other_welcomes(bench);
	tick_to(bench, 5000);
	assert_true(says(bench, "updates go on without it"));
	message.from = OTHER + 1;
	message.u.refuse.code = ERROR_CONTROLLER_LOST;
	message.u.refuse.text = memory_string("never saw you");
	receive(bench, message);
	assert_int_equal(sent(bench, MESSAGE_HELLO)->u.hello.attempt, 1);
	assert_int_equal(state_of(bench), WORKER_RUN);
}

static void test_orphan__that_is_done_before_it_is_taken_over_leaves(void **state)
{
	struct bench *bench = *state;

	reach_run_of_orphans(bench);
	other_answers(bench);
	step(bench, (struct worker_event){.type = WORKER_EVENT_LEAVE, .done = true});
	assert_int_equal(state_of(bench), WORKER_LEFT);
}

static void test_other_controller__ends_a_worker_that_may_be_no_orphan(void **state)
{
	struct bench *bench = *state;

	reach_run(bench);
	other_answers(bench);
	assert_int_equal(state_of(bench), WORKER_FAILED);
	assert_non_null(strstr(failure(bench)->text, "was restarted"));
}

/* ---- in a pause ---- */

static void other_says_go(struct bench *bench, uint32_t attempt)
{
	struct message message = from_other(MESSAGE_GO);

	message.u.go.attempt = attempt;
	receive(bench, message);
}

static void other_asks_to_pause(struct bench *bench, uint32_t number, uint64_t version)
{
	struct message message = from_other(MESSAGE_PAUSE);

	message.u.pause.number = number;
	message.u.pause.stop = true;
	message.u.pause.version = version;
	receive(bench, message);
}

static void other_sends_plan(struct bench *bench, uint32_t attempt)
{
	struct message message = from_other(MESSAGE_PLAN);

	message.u.plan.attempt = attempt;
	message.u.plan.continues = true;
	receive(bench, message);
}

/* Its host has stopped before version 9. */
static void reach_pause(struct bench *bench)
{
	reach_run_of_orphans(bench);
	receive_pause(bench, 1, 0);
	pause_at(bench, 1, true, 9);
}

/* Its host was asked to, and is on its way there; another controller takes the job over. */
static void reach_another_before_the_pause(struct bench *bench)
{
	reach_run_of_orphans(bench);
	receive_pause(bench, 1, 0);
	other_answers(bench);
	assert_true(sent(bench, MESSAGE_HELLO)->u.hello.paused);
	other_welcomes(bench);
}

static void test_pause__without_a_controller_lasts_until_there_is_another(void **state)
{
	struct bench *bench = *state;

	reach_pause(bench);
	tick_to(bench, 5000);
	assert_true(says(bench, "it had paused the job, which waits for it or another one"));
	other_answers(bench);
	assert_true(says(bench, "which waits meanwhile"));
	assert_int_equal(sent(bench, MESSAGE_HELLO)->u.hello.attempt, 1);
	assert_true(sent(bench, MESSAGE_HELLO)->u.hello.paused);
	other_welcomes(bench);
	other_says_go(bench, 2);
	other_asks_to_pause(bench, 1, 9);
	assert_int_equal(sent(bench, MESSAGE_PAUSED)->u.paused.next, 9);
	assert_false(asks_to_pause(bench)); /* its host sleeps on, */
	other_asks_to_pause(bench, 1, 10);
	assert_true(asks_to_pause(bench)); /* unless others had begun another version */
	assert_null(sent(bench, MESSAGE_PAUSED));
	pause_at(bench, 1, true, 10);
	assert_int_equal(sent(bench, MESSAGE_PAUSED)->u.paused.next, 10);
}

static void test_pause__that_the_host_has_not_come_to_is_asked_for_again(void **state)
{
	struct bench *bench = *state;

	reach_another_before_the_pause(bench);
	other_asks_to_pause(bench, 1, 0); /* before its go */
	assert_false(asks_to_pause(bench));
	other_says_go(bench, 2);
	other_asks_to_pause(bench, 1, 0);
	assert_true(asks_to_pause(bench));
	pause_at(bench, 1, true, 9);
	assert_int_equal(sent(bench, MESSAGE_PAUSED)->u.paused.next, 9);
}

static void test_pause__that_the_host_comes_to_between_two_controllers_is_one(void **state)
{
	struct bench *bench = *state;

	reach_another_before_the_pause(bench);
	pause_at(bench, 1, true, 9); /* for the last one */
	assert_null(sent(bench, MESSAGE_PAUSED));
	other_says_go(bench, 2);
	other_asks_to_pause(bench, 1, 0);
	assert_false(asks_to_pause(bench));
	assert_int_equal(sent(bench, MESSAGE_PAUSED)->u.paused.next, 9);
}

static void test_pause__is_told_to_each_controller_until_there_is_a_plan(void **state)
{
	struct bench *bench = *state;

	reach_pause(bench);
	other_answers(bench);
	other_welcomes(bench);
	other_answers(bench); /* it had been forgotten */
	assert_true(sent(bench, MESSAGE_HELLO)->u.hello.paused);
}

static void test_welcome__of_a_controller_that_was_only_silent_ends_the_search(void **state)
{
	struct bench *bench = *state;

	reach_run_of_orphans(bench);
	other_answers(bench);
	receive_welcome_of_orphans(bench, 60000);
	tick_to(bench, 3000);
	assert_null(sent(bench, MESSAGE_HELLO));
	assert_null(sent(bench, MESSAGE_DECLARE));
	receive_pause(bench, 1, 0);
	assert_true(asks_to_pause(bench));
}

static void test_exchange__without_a_controller_stands_where_its_host_had_stopped(void **state)
{
	struct bench *bench = *state;

	reach_pause(bench);
	receive_next_plan(bench, 2, 0);
	tick_to(bench, 5000);
	assert_int_equal(state_of(bench), WORKER_PLANNED);
	other_answers(bench);
	assert_int_equal(sent(bench, MESSAGE_HELLO)->u.hello.attempt, 2);
	assert_true(sent(bench, MESSAGE_HELLO)->u.hello.unconnected);
	other_welcomes(bench);
	other_asks_to_pause(bench, 1, 0); /* before its go */
	assert_null(sent(bench, MESSAGE_PAUSED));
	other_says_go(bench, 3);
	assert_true(says(bench, "has taken the job over: another plan is made"));
	other_asks_to_pause(bench, 1, 0);
	assert_true(sent(bench, MESSAGE_PAUSED)->u.paused.stopped);
	assert_int_equal(sent(bench, MESSAGE_PAUSED)->u.paused.number, 1);
	assert_int_equal(sent(bench, MESSAGE_PAUSED)->u.paused.next, 9);
	tick_to(bench, 6000);
	assert_non_null(sent(bench, MESSAGE_PAUSED)); /* until there is a plan */
	other_sends_plan(bench, 4);
	assert_int_equal(state_of(bench), WORKER_PLANNED);
	tick_to(bench, 7000);
	assert_null(sent(bench, MESSAGE_PAUSED));
}

static void test_exchange__of_an_old_job_has_no_join_deadline(void **state)
{
	struct bench *bench = *state;
	struct message_endpoints endpoints = {.attempt = 2};

	reach_pause(bench);
	tick_to(bench, 40000);
	receive_next_plan(bench, 2, 0);
	step(bench, (struct worker_event){.type = WORKER_EVENT_ENDPOINTS, .endpoints = &endpoints});
	other_answers(bench);
	other_welcomes(bench);
	tick_to(bench, 43000);
	assert_null(sent(bench, MESSAGE_FAILURE));
	assert_int_equal(state_of(bench), WORKER_PLANNED);
}

static void test_exchange__that_was_over_needs_but_a_go(void **state)
{
	struct bench *bench = *state;
	struct message_endpoints endpoints = {.attempt = 2};
	struct message message = from_controller(MESSAGE_PEERS);

	reach_pause(bench);
	receive_next_plan(bench, 2, 0);
	step(bench, (struct worker_event){.type = WORKER_EVENT_ENDPOINTS, .endpoints = &endpoints});
	message.u.peers.attempt = 2;
	receive(bench, message);
	step(bench, (struct worker_event){.type = WORKER_EVENT_CONNECTED, .attempt = 2});
	assert_int_equal(state_of(bench), WORKER_CONNECTED);
	other_answers(bench);
	assert_false(sent(bench, MESSAGE_HELLO)->u.hello.unconnected);
	other_welcomes(bench);
	other_says_go(bench, 2);
	assert_int_equal(state_of(bench), WORKER_RUN);
}

static void assert_engine_left(const struct message *hello, uint32_t rank)
{
	assert_non_null(hello);
	assert_int_equal(hello->u.hello.lost_count, 1);
	assert_int_equal(hello->u.hello.lost[0].first.role, ROLE_INFERENCE);
	assert_int_equal(hello->u.hello.lost[0].first.rank, rank);
	assert_int_equal(hello->u.hello.lost[0].count, 2);
}

/* Whom the last controller said to be gone, the next one may have for alive. */
static void test_gone__is_told_to_the_next_controller(void **state)
{
	struct bench *bench = *state;
	struct message gone = from_controller(MESSAGE_GONE);

	reach_run_of_orphans(bench);
	gone.u.gone = (struct message_gone){.number = 1,
					    .departures = 1,
					    .first = {ROLE_INFERENCE, 2},
					    .count = 2,
					    .code = ERROR_PEER_LOST,
					    .text = memory_string("lost")};
	receive(bench, gone);
	other_answers(bench);
	assert_engine_left(sent(bench, MESSAGE_HELLO), 2);
	other_welcomes(bench);
	other_answers(bench); /* it had been forgotten */
	assert_engine_left(sent(bench, MESSAGE_HELLO), 2);
	other_welcomes(bench);
	other_says_go(bench, 1);
	assert_int_equal(sent(bench, MESSAGE_DROP)->u.drop.member.rank, 2);
	assert_int_equal(sent(bench, MESSAGE_DROP)->u.drop.attempt, 1);
	gone = from_other(MESSAGE_GONE);
	gone.u.gone = (struct message_gone){.number = 1,
					    .departures = 1,
					    .first = {ROLE_INFERENCE, 2},
					    .count = 2,
					    .code = ERROR_PEER_LOST,
					    .text = memory_string("lost")};
	receive(bench, gone);
	tick_to(bench, 2000);
	assert_null(sent(bench, MESSAGE_DROP));
}

static void test_pause__that_an_orphan_hears_of_late_is_answered(void **state)
{
	struct bench *bench = *state;

	reach_run_of_orphans(bench);
	tick_to(bench, 20000);
	receive_pause(bench, 1, 0);
	pause_at(bench, 1, true, 5);
	assert_true(sent(bench, MESSAGE_PAUSED)->u.paused.stopped);
	tick_to(bench, 24000);
	assert_int_equal(state_of(bench), WORKER_RUN);
}

static void test_controller__without_orphans_is_lost_as_ever(void **state)
{
	struct bench *bench = *state;

	reach_run(bench);
	tick_to(bench, 5000);
	assert_int_equal(state_of(bench), WORKER_FAILED);
}

static void test_exchange__of_the_first_plan_needs_the_controller(void **state)
{
	struct bench *bench = *state;

	tick(bench, 0);
	receive_welcome_of_orphans(bench, 60000);
	receive_next_plan(bench, 1, 0);
	tick_to(bench, 5000);
	assert_int_equal(state_of(bench), WORKER_FAILED);
	assert_int_equal(failure(bench)->code, ERROR_CONTROLLER_LOST);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_orphan__goes_on_for_its_time_and_fails_after_it),
		TEST(test_orphan__whose_controller_speaks_again_is_none),
		TEST(test_orphan__leaves_without_an_answer),
		TEST(test_orphan__asks_another_controller_to_take_it_over_and_runs_on),
		TEST(test_orphan__that_is_not_taken_over_fails_with_the_reason),
		TEST(test_orphan__that_is_forgotten_meanwhile_asks_again),
		TEST(test_orphan__whose_next_controller_is_lost_too_asks_the_one_after_it),
		TEST(test_orphan__that_is_done_before_it_is_taken_over_leaves),
		TEST(test_other_controller__ends_a_worker_that_may_be_no_orphan),
		TEST(test_pause__without_a_controller_lasts_until_there_is_another),
		TEST(test_pause__that_the_host_has_not_come_to_is_asked_for_again),
		TEST(test_pause__that_the_host_comes_to_between_two_controllers_is_one),
		TEST(test_pause__is_told_to_each_controller_until_there_is_a_plan),
		TEST(test_welcome__of_a_controller_that_was_only_silent_ends_the_search),
		TEST(test_exchange__of_an_old_job_has_no_join_deadline),
		TEST(test_exchange__without_a_controller_stands_where_its_host_had_stopped),
		TEST(test_exchange__that_was_over_needs_but_a_go),
		TEST(test_gone__is_told_to_the_next_controller),
		TEST(test_pause__that_an_orphan_hears_of_late_is_answered),
		TEST(test_controller__without_orphans_is_lost_as_ever),
		TEST(test_exchange__of_the_first_plan_needs_the_controller),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

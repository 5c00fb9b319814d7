/* SPDX-License-Identifier: Apache-2.0
 *
 * Edges of the worker's control core that a whole simulated job does not single out.
 */
#include "tests/unit/worker/worker_core_bench.h"

static void test_hello__goes_out_at_once_and_again_until_answered(void **state)
{
	struct bench *bench = *state;

	assert_int_equal(worker_core_deadline_ms(bench->core), 0);
	tick(bench, 0);
	assert_non_null(sent(bench, MESSAGE_HELLO));
	assert_int_equal(worker_core_deadline_ms(bench->core), 500);
	tick(bench, 499);
	assert_null(sent(bench, MESSAGE_HELLO));
	tick(bench, 500);
	assert_non_null(sent(bench, MESSAGE_HELLO));
}

/* How many lines or messages of the last step have the words. */
static int said(const struct bench *bench, const char *words)
{
	int count = 0;

	for (size_t i = 0; i < bench->actions.count; i++) {
		const struct action *action = &bench->actions.items[i];

		count += (action->line && strstr(action->line, words)) ||
			 strstr(action->error.text, words);
	}
	return count;
}

static void name_event(struct bench *bench, const struct error *why)
{
	assert_int_equal(
		step(bench, (struct worker_event){.type = WORKER_EVENT_UNREACHED, .error = why}),
		0);
}

static void test_name__that_does_not_resolve_is_warned_of_once_and_is_the_reason(void **state)
{
	static const char words[] = "the name head does not resolve";
	struct bench *bench = *state;
	struct error why;

	error_set(&why, ERROR_CONFIG, "%s: not known", words);
	tick(bench, 0);
	name_event(bench, &why);
	tick(bench, 900);
	assert_int_equal(said(bench, words), 0); /* it may be about to start */
	tick(bench, 1000);
	assert_int_equal(said(bench, words), 1);
	name_event(bench, &why);
	assert_int_equal(said(bench, words), 0);
	tick(bench, 5000);
	tick(bench, 20000);
	assert_int_equal(worker_core_state(bench->core), WORKER_FAILED);
	assert_int_equal(said(bench, words), 1);
}

static void test_name__that_resolves_later_is_not_the_reason(void **state)
{
	static const char words[] = "does not resolve";
	struct bench *bench = *state;
	struct error why;

	error_set(&why, ERROR_CONFIG, "the name head %s: not known", words);
	tick(bench, 0);
	name_event(bench, &why);
	name_event(bench, NULL);
	tick(bench, 5000);
	tick(bench, 20000);
	assert_int_equal(worker_core_state(bench->core), WORKER_FAILED);
	assert_int_equal(said(bench, words), 0);
	assert_int_equal(said(bench, "is it running"), 1);
}

static void test_body__is_sent_while_it_is_wanted(void **state)
{
	struct bench *bench = *state;

	tick(bench, 0);
	receive_welcome(bench);
	assert_non_null(sent(bench, MESSAGE_DECLARE));
	receive_want(bench, true);
	assert_non_null(sent(bench, MESSAGE_HOLDING));
	tick(bench, 500);
	assert_non_null(sent(bench, MESSAGE_HOLDING));
	receive_want(bench, false);
	tick(bench, 1000);
	assert_null(sent(bench, MESSAGE_HOLDING));
	assert_non_null(sent(bench, MESSAGE_DECLARE));
}

static void test_stale__messages_of_another_epoch_or_attempt_change_nothing(void **state)
{
	struct bench *bench = *state;
	struct message_endpoints endpoints = {.attempt = 1};
	struct message message;

	tick(bench, 0);
	receive_welcome(bench);
	message = from_controller(MESSAGE_PLAN);
	message.epoch = 2;
	receive(bench, message);
	assert_int_equal(state_of(bench), WORKER_DECLARE);
	receive_plan(bench);
	step(bench, (struct worker_event){.type = WORKER_EVENT_ENDPOINTS, .endpoints = &endpoints});
	message = from_controller(MESSAGE_PEERS);
	message.u.peers.attempt = 9;
	receive(bench, message);
	assert_int_equal(state_of(bench), WORKER_PLANNED);
	receive_plan(bench); /* the same plan twice */
	assert_int_equal(bench->actions.count, 0);
}

static void test_peers__that_the_plan_does_not_name_fail_the_worker(void **state)
{
	struct bench *bench = *state;
	struct message_endpoints endpoints = {.attempt = 1};
	struct message message = from_controller(MESSAGE_PEERS);

	tick(bench, 0);
	receive_welcome(bench);
	receive_plan(bench);
	step(bench, (struct worker_event){.type = WORKER_EVENT_ENDPOINTS, .endpoints = &endpoints});
	message.u.peers.attempt = 1;
	message.u.peers.peers = memory_zalloc(1, sizeof(struct peer_endpoints));
	message.u.peers.peer_count = 1;
	receive(bench, message);
	assert_non_null(failure(bench));
	assert_int_equal(failure(bench)->code, ERROR_MESSAGE);
	assert_non_null(sent(bench, MESSAGE_FAILURE));
}

static void test_failure__before_the_welcome_is_told_after_it(void **state)
{
	struct bench *bench = *state;
	struct message message = from_controller(MESSAGE_LOST);
	struct error why;

	tick(bench, 0);
	error_set(&why, ERROR_FILE, "no such checkpoint /x");
	step(bench, (struct worker_event){.type = WORKER_EVENT_FAILURE, .error = &why});
	assert_int_equal(state_of(bench), WORKER_HELLO); /* it goes on saying hello */
	assert_false(worker_core_settled(bench->core));
	receive_welcome(bench);
	assert_int_equal(state_of(bench), WORKER_FAILED);
	assert_string_equal(sent(bench, MESSAGE_FAILURE)->u.failure.text, "no such checkpoint /x");
	assert_null(sent(bench, MESSAGE_DECLARE));
	assert_false(
		worker_core_settled(bench->core)); /* until the controller says that it heard */
	message.u.lost.code = ERROR_FILE;
	message.u.lost.text = memory_string("trainer 0 failed");
	receive(bench, message);
	assert_true(worker_core_settled(bench->core));
	assert_non_null(sent(bench, MESSAGE_LEAVE));
}

static void test_refusal__ends_the_worker_with_the_message(void **state)
{
	struct bench *bench = *state;

	tick(bench, 0);
	receive_refuse(bench, ERROR_JOB, "this is job 'x'");
	assert_int_equal(state_of(bench), WORKER_FAILED);
	assert_int_equal(failure(bench)->code, ERROR_JOB);
	assert_string_equal(failure(bench)->text, "this is job 'x'");
	assert_int_equal(worker_core_deadline_ms(bench->core), UINT64_MAX);
}

static void test_refusal__of_a_forgetful_controller_means_hello_again(void **state)
{
	struct bench *bench = *state;

	tick(bench, 0);
	receive_welcome(bench);
	receive_refuse(bench, ERROR_CONTROLLER_LOST, "not known here");
	assert_int_equal(state_of(bench), WORKER_HELLO);
	assert_non_null(sent(bench, MESSAGE_HELLO));
	/* late, and doubled: nothing more happens */
	receive_refuse(bench, ERROR_CONTROLLER_LOST, "not known here");
	assert_int_equal(bench->actions.count, 0);
	receive_welcome(bench);
	assert_int_equal(state_of(bench), WORKER_DECLARE);
}

static void test_former_controller__is_not_heard_any_more(void **state)
{
	struct bench *bench = *state;
	struct message other = from_controller(MESSAGE_HEARTBEAT);

	tick(bench, 0);
	receive_welcome(bench);
	other.from = 0xbeef;
	receive(bench, other);
	assert_int_equal(state_of(bench), WORKER_HELLO);
	receive_welcome(bench); /* of the one that was given up */
	assert_int_equal(state_of(bench), WORKER_HELLO);
}

static void test_running__a_late_refusal_of_our_own_controller_is_ignored(void **state)
{
	struct bench *bench = *state;

	reach_run(bench);
	receive_refuse(bench, ERROR_CONTROLLER_LOST, "not known here");
	assert_int_equal(state_of(bench), WORKER_RUN);
}

static void test_silence__is_counted_from_the_last_word_and_not_over_our_own_sleep(void **state)
{
	struct bench *bench = *state;

	reach_run(bench);
	for (uint64_t now = 500; now <= 4500; now += 500)
		tick(bench, now);
	/* the process is stopped for a minute: the controller is not to blame */
	tick(bench, 64500);
	assert_int_equal(state_of(bench), WORKER_RUN);
	tick(bench, 65000);
	assert_int_equal(state_of(bench), WORKER_FAILED);
	assert_int_equal(failure(bench)->code, ERROR_CONTROLLER_LOST);
}

static void test_heartbeats__count_from_one_and_carry_the_version(void **state)
{
	struct bench *bench = *state;

	reach_run(bench);
	step(bench, (struct worker_event){.type = WORKER_EVENT_VERSION, .version = 12});
	step(bench, (struct worker_event){.type = WORKER_EVENT_VERSION, .version = 11});
	tick(bench, 500);
	assert_non_null(sent(bench, MESSAGE_HEARTBEAT));
	assert_int_equal(sent(bench, MESSAGE_HEARTBEAT)->u.heartbeat.sequence, 1);
	assert_int_equal(sent(bench, MESSAGE_HEARTBEAT)->u.heartbeat.version, 12);
}

static void test_failure__is_local_at_once_and_told_a_few_times(void **state)
{
	struct bench *bench = *state;
	struct error error;
	int told = 0;

	reach_run(bench);
	error_set(&error, ERROR_TRANSPORT, "write refused");
	step(bench, (struct worker_event){.type = WORKER_EVENT_FAILURE, .error = &error});
	assert_int_equal(state_of(bench), WORKER_FAILED);
	for (uint64_t now = 0; now < 10000; now += 500) {
		told += sent(bench, MESSAGE_FAILURE) != NULL;
		tick(bench, now + 500);
	}
	assert_int_equal(told, 5);
	assert_int_equal(worker_core_deadline_ms(bench->core), UINT64_MAX);
}

static void test_leaving__ends_with_the_answer_or_after_a_silence(void **state)
{
	struct bench *bench = *state;
	struct message answer = from_controller(MESSAGE_HEARTBEAT);

	reach_run(bench);
	step(bench, (struct worker_event){.type = WORKER_EVENT_LEAVE, .done = true});
	assert_true(sent(bench, MESSAGE_LEAVE)->u.leave.done);
	answer.u.heartbeat.sequence = 3; /* of an earlier heartbeat */
	receive(bench, answer);
	assert_int_equal(state_of(bench), WORKER_LEAVING);
	tick(bench, 500);
	assert_non_null(sent(bench, MESSAGE_LEAVE));
	tick(bench, 5000);
	assert_int_equal(state_of(bench), WORKER_LEFT);
}

static void test_leaving__is_told_with_the_last_version(void **state)
{
	struct bench *bench = *state;

	reach_run(bench);
	tick(bench, 500);
	step(bench, (struct worker_event){.type = WORKER_EVENT_VERSION, .version = 2});
	step(bench, (struct worker_event){.type = WORKER_EVENT_LEAVE, .done = true});
	assert_int_equal(sent(bench, MESSAGE_HEARTBEAT)->u.heartbeat.version, 2);
	assert_non_null(sent(bench, MESSAGE_LEAVE));
}

static void test_leaving__before_anyone_answered_is_immediate(void **state)
{
	struct bench *bench = *state;

	tick(bench, 0);
	step(bench, (struct worker_event){.type = WORKER_EVENT_LEAVE});
	assert_int_equal(state_of(bench), WORKER_LEFT);
	assert_null(sent(bench, MESSAGE_LEAVE));
}

static void test_broken__bytes_name_the_controller(void **state)
{
	struct bench *bench = *state;
	struct error error;

	error_set(&error, ERROR_WIRE_VERSION, "wire version 9");
	step(bench, (struct worker_event){.type = WORKER_EVENT_BROKEN, .error = &error});
	assert_int_equal(failure(bench)->code, ERROR_WIRE_VERSION);
	assert_non_null(strstr(failure(bench)->text, "tcp://head:29600"));
}

/* Every allocation of a whole life fails once; nothing leaks and nothing crashes. */
static bool live(uint64_t k)
{
	struct bench bench = {0};
	struct worker_core_options options;
	struct message_endpoints endpoints = {.attempt = 1};
	struct worker_event event = {.type = WORKER_EVENT_TICK};
	struct message messages[4];
	int rc;

	build_holding(&bench.holding);
	options = options_of(&bench);
	messages[0] = from_controller(MESSAGE_WELCOME);
	messages[0].u.welcome = (struct message_welcome){500, 5000, CONTROLLER, false, 0};
	messages[1] = from_controller(MESSAGE_WANT);
	messages[1].u.want.digests = memory_alloc(sizeof(struct digest));
	messages[1].u.want.digests[0] = options.declare.digest;
	messages[1].u.want.digest_count = 1;
	messages[2] = from_controller(MESSAGE_PLAN);
	messages[2].u.plan.policy = memory_string("greedy");
	messages[2].u.plan.order = memory_string("rotated");
	messages[3] = from_controller(MESSAGE_LOST);
	messages[3].u.lost.code = ERROR_PEER_LOST;
	messages[3].u.lost.text = memory_string("trainer 3 was lost");
	memory_fail_at(k);
	rc = worker_core_new(&bench.core, &options, 0, NULL);
	if (!rc)
		rc = step(&bench, event);
	for (size_t i = 0; !rc && i < ARRAY_SIZE(messages); i++) {
		event = (struct worker_event){.type = WORKER_EVENT_RECEIVED,
					      .message = &messages[i]};
		rc = step(&bench, event);
		if (!rc && messages[i].type != MESSAGE_LOST && i == 2)
			rc = step(&bench, (struct worker_event){.type = WORKER_EVENT_ENDPOINTS,
								.endpoints = &endpoints});
	}
	memory_fail_at(0);
	assert_true(rc == 0 || rc == -ERROR_MEMORY);
	for (size_t i = 0; i < ARRAY_SIZE(messages); i++)
		message_fini(&messages[i]);
	actions_clear(&bench.actions);
	worker_core_free(&bench.core);
	holding_fini(&bench.holding);
	return rc == 0;
}

static void test_memory__may_end_at_any_allocation(void **state)
{
	uint64_t k = 1;

	(void)state;
	while (!live(k))
		k++;
	assert_true(k > 10);
}

static void test_new__refuses_what_makes_no_worker(void **state)
{
	struct bench *bench = *state;
	struct worker_core_options options = options_of(bench);
	struct worker_core *core = NULL;

	options.holding = NULL;
	assert_int_equal(worker_core_new(&core, &options, 0, NULL), -ERROR_STATE);
	options = options_of(bench);
	options.job = "";
	assert_int_equal(worker_core_new(&core, &options, 0, NULL), -ERROR_CONFIG);
	assert_null(core);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_hello__goes_out_at_once_and_again_until_answered),
		TEST(test_name__that_does_not_resolve_is_warned_of_once_and_is_the_reason),
		TEST(test_name__that_resolves_later_is_not_the_reason),
		TEST(test_body__is_sent_while_it_is_wanted),
		TEST(test_stale__messages_of_another_epoch_or_attempt_change_nothing),
		TEST(test_peers__that_the_plan_does_not_name_fail_the_worker),
		TEST(test_failure__before_the_welcome_is_told_after_it),
		TEST(test_refusal__ends_the_worker_with_the_message),
		TEST(test_refusal__of_a_forgetful_controller_means_hello_again),
		TEST(test_former_controller__is_not_heard_any_more),
		TEST(test_running__a_late_refusal_of_our_own_controller_is_ignored),
		TEST(test_silence__is_counted_from_the_last_word_and_not_over_our_own_sleep),
		TEST(test_heartbeats__count_from_one_and_carry_the_version),
		TEST(test_failure__is_local_at_once_and_told_a_few_times),
		TEST(test_leaving__ends_with_the_answer_or_after_a_silence),
		TEST(test_leaving__is_told_with_the_last_version),
		TEST(test_leaving__before_anyone_answered_is_immediate),
		TEST(test_broken__bytes_name_the_controller),
		TEST(test_memory__may_end_at_any_allocation),
		TEST(test_new__refuses_what_makes_no_worker),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

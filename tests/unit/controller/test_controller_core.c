/* SPDX-License-Identifier: Apache-2.0
 *
 * Edges of the controller's core, driven by hand: one trainer, one inference rank.
 */
#include "tests/unit/controller/controller_bench.h"

static void test_plan__rows_name_the_same_piece_on_both_sides(void **state)
{
	struct bench *bench = *state;
	const struct message_plan *trainer, *inference;

	reach(bench, TO_PLAN);
	assert_non_null(sent(bench, T0, MESSAGE_PLAN));
	trainer = &sent(bench, T0, MESSAGE_PLAN)->u.plan;
	inference = &sent(bench, I0, MESSAGE_PLAN)->u.plan;
	assert_int_equal(trainer->row_count, 1);
	assert_int_equal(inference->row_count, 1);
	assert_int_equal(trainer->rows[0].bytes, 64);
	assert_int_equal(trainer->rows[0].path, PATH_DIRECT);
	assert_int_equal(trainer->peers[0].member.role, ROLE_INFERENCE);
	assert_int_equal(trainer->peers[0].bytes, 64);
	assert_int_equal(trainer->peers[0].pieces, 1);
	assert_string_equal(inference->peers[0].host, "a");
	assert_int_equal(trainer->update_timeout_ms, 30000);
	assert_true(digest_equal(trainer->digest, inference->digest));
}

static void test_answers__are_the_same_for_the_same_question(void **state)
{
	struct bench *bench = *state;

	reach(bench, TO_PLAN);
	tick(bench, 1);
	bench->now = 300;
	declare(bench, T0); /* its plan was lost on the way */
	assert_non_null(sent(bench, T0, MESSAGE_PLAN));
	assert_null(sent(bench, I0, MESSAGE_PLAN));
	endpoints(bench, T0);
	assert_null(sent(bench, T0, MESSAGE_PEERS));
	endpoints(bench, I0);
	assert_non_null(sent(bench, T0, MESSAGE_PEERS));
	assert_non_null(sent(bench, I0, MESSAGE_PEERS));
	endpoints(bench, T0);
	assert_non_null(sent(bench, T0, MESSAGE_PEERS));
	assert_int_equal(sent(bench, T0, MESSAGE_PEERS)->u.peers.peers[0].place_count, 1);
	connected(bench, T0);
	connected(bench, I0);
	assert_non_null(sent(bench, T0, MESSAGE_GO));
	connected(bench, T0);
	assert_non_null(sent(bench, T0, MESSAGE_GO));
	assert_null(sent(bench, I0, MESSAGE_GO));
	declare(bench, T0); /* of long ago */
	assert_int_equal(bench->actions.count, 0);
}

/* Each of its questions of a minute ago would cost a whole plan. */
static void test_plan__that_took_long_is_not_sent_again_to_who_asked_meanwhile(void **state)
{
	struct bench *bench = *state;

	reach(bench, TO_PLAN);
	bench->now = 60000; /* making and sending took that long */
	for (int i = 0; i < 120; i++) {
		declare(bench, T0);
		assert_null(sent(bench, T0, MESSAGE_PLAN));
		body(bench, I0);
		assert_null(sent(bench, I0, MESSAGE_PLAN));
	}
	bench->now += 249;
	declare(bench, T0);
	assert_null(sent(bench, T0, MESSAGE_PLAN));
	bench->now++;
	declare(bench, T0);
	assert_non_null(sent(bench, T0, MESSAGE_PLAN));
	declare(bench, T0);
	assert_null(sent(bench, T0, MESSAGE_PLAN));
}

static void test_plan__that_took_long_blames_nobody_and_leaves_the_exchange_its_time(void **state)
{
	struct bench *bench = *state;

	reach(bench, TO_PLAN);
	tick(bench, 60000);
	assert_int_equal(bench->actions.count, 0); /* no word of standing still either */
	tick(bench, 62000);
	assert_int_equal(bench->actions.count, 0);
	for (int who = T0; who <= I0; who++) {
		struct message beat = from_worker(bench, who, MESSAGE_HEARTBEAT);

		beat.u.heartbeat.sequence = 1;
		receive(bench, who, &beat);
	}
	tick(bench, 62500); /* a quarter of the exchange's time */
	assert_int_equal(bench->actions.count, 1);
	assert_true(bench->actions.items[0].warn);
	endpoints(bench, T0);
	endpoints(bench, I0);
	assert_non_null(sent(bench, T0, MESSAGE_PEERS));
}

/* Its beats of that time were answered beside the core. */
static void test_silence__before_a_plan_does_not_count_after_it(void **state)
{
	struct bench *bench = *state;

	reach(bench, TO_PLAN - 1);
	body(bench, T0);
	tick(bench, 2900);
	bench->now = 4900;
	body(bench, I0);
	assert_non_null(sent(bench, T0, MESSAGE_PLAN));
	tick(bench, 60000);
	tick(bench, 62000);
	assert_int_equal(bench->actions.count, 0);
}

static void test_plan__due_waits_for_its_step_and_is_made_once(void **state)
{
	struct bench *bench = *state;
	struct actions actions = {0};
	struct controller_event event = {.type = CONTROLLER_PLAN};
	struct error error;

	assert_int_equal(controller_step(bench->controller, &event, &actions, &error), 0);
	assert_int_equal(actions.count, 0); /* nobody is here */
	reach(bench, TO_PLAN);
	assert_non_null(sent(bench, T0, MESSAGE_PLAN));
	assert_int_equal(controller_step(bench->controller, &event, &actions, &error), 0);
	assert_int_equal(actions.count, 0);
}

static void test_endpoints__that_the_peers_could_not_use_fail_the_job(void **state)
{
	struct bench *bench = *state;
	struct message message;

	reach(bench, TO_PLAN);
	message = endpoints_of(bench, I0);
	message.u.endpoints.place_count = 0;
	send_copy(bench, I0, &message);
	assert_non_null(sent(bench, T0, MESSAGE_LOST));
	assert_non_null(strstr(sent(bench, T0, MESSAGE_LOST)->u.lost.text, "placed 0 parameters"));
	assert_int_equal(sent(bench, T0, MESSAGE_LOST)->u.lost.member.role, ROLE_INFERENCE);
}

static void test_endpoints__without_a_record_for_a_peer_name_it(void **state)
{
	struct bench *bench = *state;
	struct message message;

	reach(bench, TO_PLAN);
	message = endpoints_of(bench, T0);
	message.u.endpoints.record_count = 0;
	send_copy(bench, T0, &message);
	assert_non_null(strstr(sent(bench, I0, MESSAGE_LOST)->u.lost.text,
			       "without a record for inference 0"));
}

static void test_endpoints__of_another_attempt_are_stale(void **state)
{
	struct bench *bench = *state;
	struct message message;

	reach(bench, TO_PLAN);
	message = endpoints_of(bench, T0);
	message.u.endpoints.attempt = 7;
	send_copy(bench, T0, &message);
	assert_int_equal(bench->actions.count, 0);
}

static void test_body__asked_of_a_worker_that_goes_is_asked_of_the_next(void **state)
{
	struct bench *bench = *state;
	struct controller_options options = options_of(0);

	controller_free(&bench->controller);
	options.train.world = 2;
	assert_int_equal(controller_new(&bench->controller, &options, 0, NULL), 0);
	hello(bench, T0);
	declare(bench, T0);
	assert_int_equal(sent(bench, T0, MESSAGE_WANT)->u.want.digest_count, 1);
	/* trainer 1, the same holding */
	struct message message = from_worker(bench, T0, MESSAGE_HELLO), copy;

	for (uint64_t now = 500; now <= 4000; now += 500)
		tick(bench, now);
	message.from = 0x11;
	message.u.hello = (struct message_hello){
		.rank = 1, .incarnation = 0x11, .host = (char *)"a", .host_id = (char *)"boot"};
	assert_int_equal(message_copy(&copy, &message, NULL), 0);
	receive(bench, I0, &copy);
	bench->incarnation[I0] = 0x11; /* the second peer speaks for trainer 1 */
	message = from_worker(bench, I0, MESSAGE_DECLARE);
	message.u.declare = (struct message_declare){.model = (char *)"m",
						     .train = (char *)"t",
						     .infer = (char *)"i",
						     .transport = (char *)"shm",
						     .digest = holding_digest(&bench->holding)};
	assert_int_equal(message_copy(&copy, &message, NULL), 0);
	receive(bench, I0, &copy);
	assert_int_equal(sent(bench, I0, MESSAGE_WANT)->u.want.digest_count, 0);
	tick(bench, 4500);
	tick(bench, 5000); /* trainer 0 is given up */
	assert_non_null(sent(bench, I0, MESSAGE_WANT));
	assert_int_equal(sent(bench, I0, MESSAGE_WANT)->u.want.digest_count, 1);
}

static void test_silence__is_not_blamed_when_the_controller_slept(void **state)
{
	struct bench *bench = *state;

	reach(bench, TO_RUN);
	tick(bench, 500);
	tick(bench, 90000);
	assert_null(sent(bench, T0, MESSAGE_LOST));
	for (uint64_t now = 90500; now < 95500 && !sent(bench, T0, MESSAGE_LOST); now += 500)
		tick(bench, now);
	assert_non_null(sent(bench, T0, MESSAGE_LOST));
}

static void test_failure__is_told_again_until_the_worker_leaves(void **state)
{
	struct bench *bench = *state;
	struct message message;

	reach(bench, TO_RUN);
	message = from_worker(bench, I0, MESSAGE_FAILURE);
	message.u.failure.code = ERROR_CHECKSUM;
	message.u.failure.text = memory_string("piece 3 differs");
	receive(bench, I0, &message);
	assert_int_equal(sent(bench, T0, MESSAGE_LOST)->u.lost.code, ERROR_CHECKSUM);
	message = from_worker(bench, T0, MESSAGE_HEARTBEAT);
	receive(bench, T0, &message);
	assert_non_null(sent(bench, T0, MESSAGE_LOST));
	message = from_worker(bench, T0, MESSAGE_LEAVE);
	receive(bench, T0, &message);
	assert_null(exited(bench));
	message = from_worker(bench, I0, MESSAGE_LEAVE);
	receive(bench, I0, &message);
	assert_non_null(exited(bench));
	assert_int_equal(exited(bench)->error.code, ERROR_CHECKSUM);
}

static void test_failure__waits_for_the_deaf_no_longer_than_a_silence(void **state)
{
	struct bench *bench = *state;
	struct error error;

	reach(bench, TO_RUN);
	error_set(&error, ERROR_INTERRUPTED, "stopped by SIGTERM");
	step(bench, (struct controller_event){.type = CONTROLLER_INTERRUPT, .error = &error});
	assert_string_equal(sent(bench, I0, MESSAGE_REFUSE)->u.refuse.text, "stopped by SIGTERM");
	for (uint64_t now = 500; now < 5000; now += 500) {
		tick(bench, now);
		assert_null(exited(bench));
		/* a quarter of it was silent: now for whom, once */
		assert_int_equal(logged(bench,
					"waiting for 2 workers to hear of it and leave, the "
					"first is trainer 0 (host a, pid 1); 3.5 s more at most"),
				 now == 1500);
	}
	assert_int_equal(controller_deadline_ms(bench->controller), 5000);
	tick(bench, 5000);
	assert_int_equal(exited(bench)->error.code, ERROR_INTERRUPTED);
}

static void test_newcomer__to_a_failed_job_hears_of_the_failure(void **state)
{
	struct bench *bench = *state;
	struct error error;

	hello(bench, T0);
	error_set(&error, ERROR_INTERRUPTED, "stopped by SIGTERM");
	step(bench, (struct controller_event){.type = CONTROLLER_INTERRUPT, .error = &error});
	hello(bench, I0);
	assert_string_equal(sent(bench, I0, MESSAGE_REFUSE)->u.refuse.text, "stopped by SIGTERM");
}

/* Another process may have come in there since. */
static void test_drop__of_whom_a_plan_before_this_one_had_takes_nobody_away(void **state)
{
	struct bench *bench = *state;
	struct controller_options options = options_of(0);
	struct message drop;

	controller_free(&bench->controller);
	options.on_loss = "continue";
	assert_int_equal(controller_new(&bench->controller, &options, 0, NULL), 0);
	reach(bench, TO_RUN);
	drop = from_worker(bench, T0, MESSAGE_DROP);
	drop.u.drop = (struct message_drop){.member = {ROLE_INFERENCE, 0},
					    .code = ERROR_PEER_LOST,
					    .text = (char *)"its process has ended"};
	for (uint32_t attempt = 0; attempt < 2; attempt++) {
		drop.u.drop.attempt = attempt;
		assert_int_equal(send_copy(bench, T0, &drop), 0);
		assert_int_equal(logged(bench, "engine 0 (inference 0..0) leaves"), attempt);
	}
}

/* Whoever can break its frames would end the job. */
static void test_broken__bytes_of_a_member_of_a_running_job_are_dropped(void **state)
{
	struct bench *bench = *state;
	struct message beat;
	struct error error;

	reach(bench, TO_RUN);
	error_set(&error, ERROR_MESSAGE, "unknown key");
	for (int i = 0; i < 50; i++) {
		step(bench, (struct controller_event){
				    .type = CONTROLLER_BROKEN, .peer = "t0", .error = &error});
		assert_null(sent(bench, I0, MESSAGE_LOST));
		assert_null(sent(bench, T0, MESSAGE_REFUSE));
		assert_int_equal(logged(bench, "trainer 0"), 1);
	}
	step(bench, (struct controller_event){
			    .type = CONTROLLER_BROKEN, .peer = "nobody", .error = &error});
	assert_null(exited(bench));
	beat = from_worker(bench, T0, MESSAGE_HEARTBEAT);
	beat.u.heartbeat.sequence = 7;
	receive(bench, T0, &beat);
	assert_int_equal(sent(bench, T0, MESSAGE_HEARTBEAT)->u.heartbeat.sequence, 7);
}

static void test_broken__a_stranger_is_told_why_and_not_by_which_id(void **state)
{
	struct bench *bench = *state;
	struct error error;

	error_set(&error, ERROR_MESSAGE, "unknown key");
	step(bench, (struct controller_event){
			    .type = CONTROLLER_BROKEN, .peer = "#006b8b4567", .error = &error});
	assert_int_equal(bench->actions.count, 2);
	assert_int_equal(bench->actions.items[1].message.type, MESSAGE_REFUSE);
	assert_string_equal(bench->actions.items[1].message.u.refuse.text, "unknown key");
}

static void test_key__of_another_role_is_refused_and_speaks_for_nobody(void **state)
{
	struct bench *bench = *state;
	struct message message = from_worker(bench, T0, MESSAGE_HELLO);

	message.u.hello.host = memory_string("far");
	step(bench, (struct controller_event){.type = CONTROLLER_RECEIVED,
					      .peer = "t0",
					      .key_role = "inference",
					      .message = &message});
	message_fini(&message);
	assert_non_null(strstr(sent(bench, T0, MESSAGE_REFUSE)->u.refuse.text,
			       "came with the key of role inference"));
	assert_null(sent(bench, T0, MESSAGE_WELCOME));
	reach(bench, TO_RUN);
	message = from_worker(bench, T0, MESSAGE_LEAVE);
	step(bench, (struct controller_event){.type = CONTROLLER_RECEIVED,
					      .peer = "x",
					      .key_role = "inference",
					      .message = &message});
	assert_null(exited(bench));
	assert_int_equal(logged(bench, "left"), 0);
}

static void test_reconnected__member_is_answered_where_it_is_now(void **state)
{
	struct bench *bench = *state;
	struct message message;

	reach(bench, TO_RUN);
	message = from_worker(bench, T0, MESSAGE_HEARTBEAT);
	message.u.heartbeat.sequence = 4;
	step(bench, (struct controller_event){
			    .type = CONTROLLER_RECEIVED, .peer = "#0012", .message = &message});
	assert_int_equal(bench->actions.count, 1);
	assert_string_equal(bench->actions.items[0].peer, "#0012");
	assert_int_equal(bench->actions.items[0].message.u.heartbeat.sequence, 4);
}

static void test_line__tells_the_state(void **state)
{
	struct bench *bench = *state;
	char *line;

	hello(bench, T0);
	line = controller_line(bench->controller, 1500);
	assert_string_equal(line,
			    "job 'demo', epoch 1, gathering, up 1.5 s; absent: inference 0 of "
			    "1; joined: trainer 0 of 1; trainers at version 0, inference ranks "
			    "at version 0");
	memory_free(line);
}

static void test_new__refuses_what_cannot_work(void **state)
{
	struct controller_options options = options_of(0);
	struct controller *controller = NULL;
	struct error error;

	(void)state;
	options.policy = "best";
	assert_int_equal(controller_new(&controller, &options, 0, &error), -ERROR_USAGE);
	assert_non_null(strstr(error.text, "greedy"));
	options = options_of(0);
	options.order = "sorted";
	assert_int_equal(controller_new(&controller, &options, 0, &error), -ERROR_USAGE);
	assert_non_null(strstr(error.text, "--order sorted"));
	assert_non_null(strstr(error.text, "table, rotated, rounds"));
	options = options_of(0);
	options.sessions_max = 3;
	assert_int_equal(controller_new(&controller, &options, 0, &error), -ERROR_USAGE);
	assert_non_null(strstr(error.text, "--sessions-max 3: policy greedy"));
	options = options_of(0);
	options.lost_ms = 900;
	assert_int_equal(controller_new(&controller, &options, 0, &error), -ERROR_CONFIG);
	options = options_of(0);
	options.job = "";
	assert_int_equal(controller_new(&controller, &options, 0, &error), -ERROR_CONFIG);
	options = options_of(0);
	options.train.world = 0;
	assert_int_equal(controller_new(&controller, &options, 0, &error), -ERROR_CONFIG);
	assert_null(controller);
}

static int whole_life(struct bench *bench)
{
	struct controller_options options = options_of(1);
	struct message message;
	int rc = controller_new(&bench->controller, &options, 0, NULL);

	if (!rc)
		rc = reach(bench, TO_RUN);
	if (!rc) {
		message = from_worker(bench, T0, MESSAGE_LEAVE); /* not done: gathers again */
		rc = receive(bench, T0, &message);
	}
	if (!rc) {
		message = from_worker(bench, I0, MESSAGE_HEARTBEAT); /* of the failed epoch */
		rc = receive(bench, I0, &message);
	}
	return rc;
}

static void test_memory__may_end_at_any_allocation(void **state)
{
	uint64_t k = 1;
	int rc;

	(void)state;
	do {
		struct bench bench = {0};

		build(&bench);
		memory_fail_at(k++);
		rc = whole_life(&bench);
		memory_fail_at(0);
		assert_true(rc == 0 || rc == -ERROR_MEMORY);
		actions_clear(&bench.actions);
		controller_free(&bench.controller);
		holding_fini(&bench.holding);
		layout_fini(&bench.layout);
	} while (rc);
	assert_true(k > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_plan__rows_name_the_same_piece_on_both_sides),
		TEST(test_answers__are_the_same_for_the_same_question),
		TEST(test_plan__that_took_long_is_not_sent_again_to_who_asked_meanwhile),
		TEST(test_plan__that_took_long_blames_nobody_and_leaves_the_exchange_its_time),
		TEST(test_silence__before_a_plan_does_not_count_after_it),
		TEST(test_plan__due_waits_for_its_step_and_is_made_once),
		TEST(test_endpoints__that_the_peers_could_not_use_fail_the_job),
		TEST(test_endpoints__without_a_record_for_a_peer_name_it),
		TEST(test_endpoints__of_another_attempt_are_stale),
		TEST(test_body__asked_of_a_worker_that_goes_is_asked_of_the_next),
		TEST(test_silence__is_not_blamed_when_the_controller_slept),
		TEST(test_failure__is_told_again_until_the_worker_leaves),
		TEST(test_failure__waits_for_the_deaf_no_longer_than_a_silence),
		TEST(test_newcomer__to_a_failed_job_hears_of_the_failure),
		TEST(test_drop__of_whom_a_plan_before_this_one_had_takes_nobody_away),
		TEST(test_broken__bytes_of_a_member_of_a_running_job_are_dropped),
		TEST(test_broken__a_stranger_is_told_why_and_not_by_which_id),
		TEST(test_key__of_another_role_is_refused_and_speaks_for_nobody),
		TEST(test_reconnected__member_is_answered_where_it_is_now),
		TEST(test_line__tells_the_state),
		TEST(test_new__refuses_what_cannot_work),
		TEST(test_memory__may_end_at_any_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

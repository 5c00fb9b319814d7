/* SPDX-License-Identifier: Apache-2.0
 *
 * Who is blamed, who claims what, and what strangers and contradictions cost.
 */
#include "tests/unit/controller/controller_bench.h"

static void report(struct bench *bench, int who, enum error_code code, const char *text)
{
	struct message message = from_worker(bench, who, MESSAGE_FAILURE);

	message.u.failure.code = (int)code;
	message.u.failure.text = memory_string(text);
	receive(bench, who, &message);
}

/* The trainer dies at 0; the inference rank runs into that, and reports two heartbeats later. */
static void test_failure__at_a_silent_peer_is_the_silent_ones(void **state)
{
	struct bench *bench = *state;
	const struct message_lost *lost;

	reach(bench, TO_RUN);
	for (uint64_t now = 500; now <= 1500; now += 500) {
		tick(bench, now);
		beat_of(bench, I0);
	}
	report(bench, I0, ERROR_PEER_LOST, "its endpoint is gone");
	assert_non_null(sent(bench, I0, MESSAGE_LOST));
	lost = &sent(bench, I0, MESSAGE_LOST)->u.lost;
	assert_int_equal(lost->code, ERROR_PEER_LOST);
	assert_int_equal(lost->member.role, ROLE_TRAINER);
	assert_int_equal(lost->incarnation, bench->incarnation[T0]);
	assert_string_equal(lost->text,
			    "trainer 0 (host a, pid 1) was lost: silent for 1.5 s, last heard of "
			    "at version 0; inference 0 (host a, pid 1) says: its endpoint is gone");
	assert_null(exited(bench)); /* who reported is still to hear of it */
	struct message leave = from_worker(bench, I0, MESSAGE_LEAVE);

	receive(bench, I0, &leave);
	assert_int_equal(exited(bench)->error.code, ERROR_PEER_LOST);
}

static void test_failure__while_all_others_beat_is_the_reporters(void **state)
{
	struct bench *bench = *state;

	reach(bench, TO_RUN);
	for (uint64_t now = 500; now <= 1500; now += 500) {
		tick(bench, now);
		beat_of(bench, I0);
		beat_of(bench, T0);
	}
	report(bench, I0, ERROR_PEER_LOST, "its endpoint is gone");
	assert_int_equal(sent(bench, T0, MESSAGE_LOST)->u.lost.member.role, ROLE_INFERENCE);
}

/* What is certain of the reporter itself stays its own, whoever else is silent. */
static void test_failure__of_its_own_is_not_put_on_a_silent_one(void **state)
{
	struct bench *bench = *state;

	reach(bench, TO_RUN);
	for (uint64_t now = 500; now <= 1500; now += 500)
		tick(bench, now);
	report(bench, I0, ERROR_CHECKSUM, "piece 3 differs");
	assert_int_equal(sent(bench, T0, MESSAGE_LOST)->u.lost.member.role, ROLE_INFERENCE);
	assert_int_equal(sent(bench, T0, MESSAGE_LOST)->u.lost.code, ERROR_CHECKSUM);
}

static void leave_at(struct bench *bench, int who, uint64_t version)
{
	struct message beat = from_worker(bench, who, MESSAGE_HEARTBEAT);
	struct message leave = from_worker(bench, who, MESSAGE_LEAVE);

	beat.u.heartbeat.version = version;
	leave.u.leave.done = true;
	receive(bench, who, &beat);
	receive(bench, who, &leave);
}

static void test_failure__for_want_of_a_peer_that_left_is_the_peers(void **state)
{
	struct bench *bench = *state;

	reach(bench, TO_RUN);
	leave_at(bench, T0, 2);
	struct message beat = from_worker(bench, I0, MESSAGE_HEARTBEAT);

	beat.u.heartbeat.version = 2;
	receive(bench, I0, &beat);
	report(bench, I0, ERROR_TIMEOUT, "update 3: no signal from trainer 0");
	assert_string_equal(
		sent(bench, I0, MESSAGE_LOST)->u.lost.text,
		"trainer 0 (host a, pid 1) did its work and left after version 2, but inference 0 "
		"(host a, pid 1), which is at version 2, goes on and needs it: give all workers the "
		"same number of updates (--updates); it says: update 3: no signal from trainer 0");
}

/* Its last version is here, or will be: what is waited for is not its. */
static void test_failure__is_not_put_on_a_peer_that_did_more_and_left(void **state)
{
	struct bench *bench = *state;

	reach(bench, TO_RUN);
	leave_at(bench, T0, 2);
	report(bench, I0, ERROR_TIMEOUT, "update 1: something else");
	assert_string_equal(
		sent(bench, I0, MESSAGE_LOST)->u.lost.text,
		"inference 0 (host a, pid 1) failed at version 0: update 1: something else");
}

static void claim_by(struct bench *bench, uint64_t incarnation)
{
	uint64_t own = bench->incarnation[T0];

	bench->incarnation[T0] = incarnation;
	hello(bench, T0);
	bench->incarnation[T0] = own;
}

/* Two that claim one rank in turn must not keep each other's claim from being decided. */
static void test_claims__in_turn_are_both_refused_while_the_holder_beats(void **state)
{
	struct bench *bench = *state;
	unsigned refused = 0, logs = 0;

	hello(bench, T0);
	for (uint64_t now = 250; now <= 4000; now += 250) {
		tick(bench, now);
		if (now % 500 == 0)
			beat_of(bench, T0);
		claim_by(bench, now % 500 ? 0x51 : 0x52);
		refused += sent(bench, T0, MESSAGE_REFUSE) != NULL;
		logs += (unsigned)logged(bench, "is claimed by");
	}
	assert_true(refused >= 2);
	assert_true(logs <= refused + 1);
	/* and the holder is still who it was */
	declare(bench, T0);
	assert_non_null(sent(bench, T0, MESSAGE_WANT));
}

/* A claim that was refused long ago says nothing about a silence of today. */
static void test_claims__of_the_past_make_no_loss_a_restart(void **state)
{
	struct bench *bench = *state;

	reach(bench, TO_RUN);
	claim_by(bench, 0x51); /* and is never heard again */
	for (uint64_t now = 500; now <= 7500; now += 500) {
		tick(bench, now);
		if (now <= 2000)
			beat_of(bench, T0);
		if (!sent(bench, I0, MESSAGE_LOST))
			beat_of(bench, I0);
		else
			break;
	}
	assert_non_null(sent(bench, I0, MESSAGE_LOST));
	assert_non_null(strstr(sent(bench, I0, MESSAGE_LOST)->u.lost.text, "was lost: silent for"));
}

/* A flood: every message is answered, the log is not filled. */
static void test_strangers__do_not_fill_the_log(void **state)
{
	struct bench *bench = *state;
	struct error error;
	size_t lines = 0;

	error_set(&error, ERROR_MESSAGE, "unknown key");
	for (int i = 0; i < 5000; i++) {
		step(bench, (struct controller_event){
				    .type = CONTROLLER_BROKEN, .peer = "x", .error = &error});
		lines += logged(bench, "unknown key");
		assert_int_equal(bench->actions.items[bench->actions.count - 1].type,
				 CONTROLLER_SEND);
	}
	assert_int_equal(lines, 100);
	for (uint64_t now = 500, told = 0; !told; now += 500) {
		assert_true(now <= 10000);
		tick(bench, now);
		told = logged(bench, "4900 more like it in 10.0 s were not logged");
	}
	step(bench,
	     (struct controller_event){.type = CONTROLLER_BROKEN, .peer = "x", .error = &error});
	assert_int_equal(logged(bench, "unknown key"), 1);
}

/* Who joins, declares and falls out again and again leaves nothing that adds up: its body goes
 * with it, and whoever declares the same is asked anew. */
static void test_bodies__go_with_the_last_who_declared_them(void **state)
{
	struct bench *bench = *state;
	struct error error;

	error_set(&error, ERROR_MESSAGE, "unknown key");
	for (uint64_t i = 0; i < 500; i++) {
		bench->incarnation[T0] = 0x1000 + i;
		hello(bench, T0);
		assert_non_null(sent(bench, T0, MESSAGE_WELCOME));
		declare(bench, T0);
		assert_int_equal(sent(bench, T0, MESSAGE_WANT)->u.want.digest_count, 1);
		body(bench, T0);
		assert_int_equal(sent(bench, T0, MESSAGE_WANT)->u.want.digest_count, 0);
		for (int again = 0; again < 3; again++)
			step(bench, (struct controller_event){.type = CONTROLLER_BROKEN,
							      .peer = "t0",
							      .error = &error});
		assert_non_null(sent(bench, T0, MESSAGE_REFUSE));
	}
	bench->incarnation[T0] = 0x10;
	reach(bench, TO_RUN);
	assert_non_null(sent(bench, T0, MESSAGE_GO));
}

/* Who was asked for the contents is gone with its epoch: whoever comes next is asked anew. */
static void test_bodies__asked_of_a_failed_epoch_are_asked_of_the_next(void **state)
{
	struct bench *bench = *state;
	struct controller_options options = options_of(1);
	struct message leave = from_worker(bench, T0, MESSAGE_LEAVE), again;

	controller_free(&bench->controller);
	assert_int_equal(controller_new(&bench->controller, &options, 0, NULL), 0);
	hello(bench, T0);
	declare(bench, T0);
	assert_int_equal(sent(bench, T0, MESSAGE_WANT)->u.want.digest_count, 1);
	receive(bench, T0, &leave);
	assert_int_equal(logged(bench, "gathering again as epoch 2"), 1);
	bench->incarnation[T0] = 0x11;
	hello(bench, T0);
	again = from_worker(bench, T0, MESSAGE_DECLARE);
	again.epoch = 2;
	again.u.declare = (struct message_declare){.model = (char *)"m",
						   .train = (char *)"t",
						   .infer = (char *)"i",
						   .transport = (char *)"shm",
						   .digest = holding_digest(&bench->holding)};
	assert_int_equal(send_copy(bench, T0, &again), 0);
	assert_int_equal(sent(bench, T0, MESSAGE_WANT)->u.want.digest_count, 1);
}

static void test_declare__of_another_spec_than_the_controllers_is_refused(void **state)
{
	static const struct {
		const char *train, *infer, *words;
	} rows[] = {
		{"world=2", "i", "was started with --train world=2,source=gathered"},
		{"t", "engines=1,tp=2", "the controller with --infer engines=1:"},
		{"world=1,source=sharded", "i", "the controller with --train world=1"},
	};
	struct bench *bench = *state;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct message message = from_worker(bench, T0, MESSAGE_DECLARE), copy;

		hello(bench, T0);
		message.u.declare = (struct message_declare){.model = (char *)"m",
							     .train = (char *)rows[i].train,
							     .infer = (char *)rows[i].infer,
							     .transport = (char *)"shm"};
		assert_int_equal(message_copy(&copy, &message, NULL), 0);
		receive(bench, T0, &copy);
		assert_non_null(sent(bench, T0, MESSAGE_REFUSE));
		assert_int_equal(sent(bench, T0, MESSAGE_REFUSE)->u.refuse.code, ERROR_CONFLICT);
		if (!strstr(sent(bench, T0, MESSAGE_REFUSE)->u.refuse.text, rows[i].words))
			fail_msg("%s", sent(bench, T0, MESSAGE_REFUSE)->u.refuse.text);
	}
	tick(bench, 20000); /* there are no others that it could be started like */
	assert_int_equal(
		logged(bench, "nobody was let in, so it may be the controller that differs"), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_failure__at_a_silent_peer_is_the_silent_ones),
		TEST(test_failure__while_all_others_beat_is_the_reporters),
		TEST(test_failure__of_its_own_is_not_put_on_a_silent_one),
		TEST(test_failure__for_want_of_a_peer_that_left_is_the_peers),
		TEST(test_failure__is_not_put_on_a_peer_that_did_more_and_left),
		TEST(test_claims__in_turn_are_both_refused_while_the_holder_beats),
		TEST(test_claims__of_the_past_make_no_loss_a_restart),
		TEST(test_strangers__do_not_fill_the_log),
		TEST(test_bodies__go_with_the_last_who_declared_them),
		TEST(test_bodies__asked_of_a_failed_epoch_are_asked_of_the_next),
		TEST(test_declare__of_another_spec_than_the_controllers_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Edges of the controller's core, driven by hand: one trainer, one inference rank.
 */
#include "controller/core.h"

#include "common/array.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define JOB "demo"
#define T0  0
#define I0  1

struct bench {
	struct holding holding;
	struct layout layout;
	struct controller *controller;
	struct controller_actions actions;
	uint64_t now;
	uint64_t incarnation[2];
};

static const char *const peers[] = {"t0", "i0"};

static void build(struct bench *bench)
{
	uint64_t shape[2] = {4, 4};
	struct piece piece = {.src = box_whole(2, shape), .bytes = 64};

	holding_init(&bench->holding);
	layout_init(&bench->layout);
	assert_int_equal(holding_add_tensor(&bench->holding, "w", DTYPE_F32, 2, shape, 0, NULL), 0);
	assert_int_equal(holding_add(&bench->holding, 0, &piece.src, NULL), 0);
	assert_int_equal(holding_finish(&bench->holding, NULL), 0);
	assert_int_equal(layout_add_tensor(&bench->layout, "w", DTYPE_F32, 2, shape, NULL), 0);
	assert_int_equal(layout_add_param(&bench->layout, "p", DTYPE_F32, 2, shape, NULL), 0);
	assert_int_equal(layout_add_piece(&bench->layout, &piece, NULL), 0);
	assert_int_equal(layout_finish(&bench->layout, NULL), 0);
	bench->incarnation[T0] = 0x10;
	bench->incarnation[I0] = 0x20;
}

static struct controller_options options_of(uint32_t restarts)
{
	return (struct controller_options){.job = JOB,
					   .policy = "greedy",
					   .train = {.world = 1, .pp = 1, .fsdp = 1},
					   .infer = {.engines = 1, .tp = 1, .ep = 1, .dp = 1},
					   .heartbeat_ms = 500,
					   .lost_ms = 5000,
					   .join_timeout_ms = 20000,
					   .exchange_timeout_ms = 10000,
					   .update_timeout_ms = 30000,
					   .restarts = restarts,
					   .incarnation = 0xc0de};
}

static int set_up(void **state)
{
	struct bench *bench = memory_zalloc(1, sizeof(*bench));
	struct controller_options options = options_of(0);

	build(bench);
	assert_int_equal(controller_new(&bench->controller, &options, 0, NULL), 0);
	*state = bench;
	return 0;
}

static int tear_down(void **state)
{
	struct bench *bench = *state;

	controller_actions_clear(&bench->actions);
	controller_free(&bench->controller);
	holding_fini(&bench->holding);
	layout_fini(&bench->layout);
	memory_free(bench);
	return 0;
}

static int step(struct bench *bench, struct controller_event event)
{
	struct error error;

	controller_actions_clear(&bench->actions);
	event.now_ms = bench->now;
	return controller_step(bench->controller, &event, &bench->actions, &error);
}

static void tick(struct bench *bench, uint64_t now)
{
	bench->now = now;
	assert_int_equal(step(bench, (struct controller_event){.type = CONTROLLER_TICK}), 0);
}

static struct message from_worker(const struct bench *bench, int who, enum message_type type)
{
	struct message message = {.type = type,
				  .job = JOB,
				  .epoch = type != MESSAGE_HELLO,
				  .from = bench->incarnation[who]};

	return message;
}

/* The core may take parts out of the message; the rest is freed here. */
static int receive(struct bench *bench, int who, struct message *message)
{
	int rc = step(bench, (struct controller_event){.type = CONTROLLER_RECEIVED,
						       .peer = peers[who],
						       .message = message});

	message_fini(message);
	return rc;
}

static int hello(struct bench *bench, int who)
{
	struct message message = from_worker(bench, who, MESSAGE_HELLO);
	struct message copy;

	message.u.hello = (struct message_hello){.role = who == T0 ? ROLE_TRAINER : ROLE_INFERENCE,
						 .incarnation = bench->incarnation[who],
						 .host = (char *)"a",
						 .host_id = (char *)"boot",
						 .pid = 1};
	return message_copy(&copy, &message, NULL) ? -ERROR_MEMORY : receive(bench, who, &copy);
}

static int declare(struct bench *bench, int who)
{
	struct message message = from_worker(bench, who, MESSAGE_DECLARE);
	struct message copy;

	message.u.declare =
		(struct message_declare){.model = (char *)"m",
					 .train = (char *)"t",
					 .infer = (char *)"i",
					 .transport = (char *)"shm",
					 .mapped = true,
					 .registered = true,
					 .digest = who == T0 ? holding_digest(&bench->holding)
							     : layout_digest(&bench->layout)};
	return message_copy(&copy, &message, NULL) ? -ERROR_MEMORY : receive(bench, who, &copy);
}

static int body(struct bench *bench, int who)
{
	struct message message =
		from_worker(bench, who, who == T0 ? MESSAGE_HOLDING : MESSAGE_LAYOUT);
	struct message copy;

	if (who == T0) {
		message.u.holding.digest = holding_digest(&bench->holding);
		message.u.holding.holding = bench->holding;
	} else {
		message.u.layout.digest = layout_digest(&bench->layout);
		message.u.layout.layout = bench->layout;
	}
	return message_copy(&copy, &message, NULL) ? -ERROR_MEMORY : receive(bench, who, &copy);
}

static struct message endpoints_of(const struct bench *bench, int who)
{
	static struct endpoint_record record;
	static struct param_place place;
	struct message message = from_worker(bench, who, MESSAGE_ENDPOINTS);

	record = (struct endpoint_record){.peer = {who == T0 ? ROLE_INFERENCE : ROLE_TRAINER, 0},
					  .bytes = (unsigned char *)"record",
					  .length = 6};
	message.u.endpoints.attempt = 1;
	message.u.endpoints.records = &record;
	message.u.endpoints.record_count = 1;
	if (who == I0) {
		message.u.endpoints.copies = 1;
		message.u.endpoints.places = &place;
		message.u.endpoints.place_count = 1;
	}
	return message;
}

static int send_copy(struct bench *bench, int who, const struct message *message)
{
	struct message copy;

	return message_copy(&copy, message, NULL) ? -ERROR_MEMORY : receive(bench, who, &copy);
}

static int endpoints(struct bench *bench, int who)
{
	struct message message = endpoints_of(bench, who);

	return send_copy(bench, who, &message);
}

static int connected(struct bench *bench, int who)
{
	struct message message = from_worker(bench, who, MESSAGE_CONNECTED);

	message.u.connected.attempt = 1;
	return receive(bench, who, &message);
}

static int (*const life[])(struct bench *, int) = {hello, declare, body, endpoints, connected};

static int reach(struct bench *bench, size_t steps)
{
	int rc = 0;

	for (size_t i = 0; !rc && i < steps; i++) {
		rc = life[i](bench, T0);
		if (!rc)
			rc = life[i](bench, I0);
	}
	return rc;
}

#define TO_PLAN 3
#define TO_RUN	5

static const struct message *sent(const struct bench *bench, int who, enum message_type type)
{
	for (size_t i = 0; i < bench->actions.count; i++) {
		const struct controller_action *action = &bench->actions.items[i];

		if (action->type == CONTROLLER_SEND && action->message.type == type &&
		    strcmp(action->peer, peers[who]) == 0)
			return &action->message;
	}
	return NULL;
}

static const struct controller_action *exited(const struct bench *bench)
{
	for (size_t i = 0; i < bench->actions.count; i++)
		if (bench->actions.items[i].type == CONTROLLER_EXIT)
			return &bench->actions.items[i];
	return NULL;
}

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
	assert_int_equal(trainer->rows[0].how, HOW_DIRECT);
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

static void test_broken__bytes_of_a_member_of_a_running_job_end_it(void **state)
{
	struct bench *bench = *state;
	struct error error;

	reach(bench, TO_RUN);
	error_set(&error, ERROR_MESSAGE, "unknown key");
	step(bench,
	     (struct controller_event){.type = CONTROLLER_BROKEN, .peer = "t0", .error = &error});
	assert_non_null(strstr(sent(bench, I0, MESSAGE_LOST)->u.lost.text, "trainer 0"));
	step(bench, (struct controller_event){
			    .type = CONTROLLER_BROKEN, .peer = "nobody", .error = &error});
	assert_null(exited(bench));
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

static size_t logged(const struct bench *bench, const char *words)
{
	size_t count = 0;

	for (size_t i = 0; i < bench->actions.count; i++)
		if (bench->actions.items[i].type == CONTROLLER_LOG &&
		    strstr(bench->actions.items[i].line, words))
			count++;
	return count;
}

static void beat_of(struct bench *bench, int who)
{
	struct message message = from_worker(bench, who, MESSAGE_HEARTBEAT);

	receive(bench, who, &message);
}

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
		step(bench, (struct controller_event){
				    .type = CONTROLLER_BROKEN, .peer = "t0", .error = &error});
	}
	bench->incarnation[T0] = 0x10;
	reach(bench, TO_RUN);
	assert_non_null(sent(bench, T0, MESSAGE_GO));
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
	assert_int_equal(controller_new(&controller, &options, 0, &error), -ERROR_CONFIG);
	assert_non_null(strstr(error.text, "greedy"));
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
		controller_actions_clear(&bench.actions);
		controller_free(&bench.controller);
		holding_fini(&bench.holding);
		layout_fini(&bench.layout);
	} while (rc);
	assert_true(k > 100);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_plan__rows_name_the_same_piece_on_both_sides),
		TEST(test_answers__are_the_same_for_the_same_question),
		TEST(test_endpoints__that_the_peers_could_not_use_fail_the_job),
		TEST(test_endpoints__without_a_record_for_a_peer_name_it),
		TEST(test_endpoints__of_another_attempt_are_stale),
		TEST(test_body__asked_of_a_worker_that_goes_is_asked_of_the_next),
		TEST(test_silence__is_not_blamed_when_the_controller_slept),
		TEST(test_failure__is_told_again_until_the_worker_leaves),
		TEST(test_failure__waits_for_the_deaf_no_longer_than_a_silence),
		TEST(test_newcomer__to_a_failed_job_hears_of_the_failure),
		TEST(test_broken__bytes_of_a_member_of_a_running_job_end_it),
		TEST(test_reconnected__member_is_answered_where_it_is_now),
		TEST(test_failure__at_a_silent_peer_is_the_silent_ones),
		TEST(test_failure__while_all_others_beat_is_the_reporters),
		TEST(test_failure__of_its_own_is_not_put_on_a_silent_one),
		TEST(test_claims__in_turn_are_both_refused_while_the_holder_beats),
		TEST(test_claims__of_the_past_make_no_loss_a_restart),
		TEST(test_strangers__do_not_fill_the_log),
		TEST(test_bodies__go_with_the_last_who_declared_them),
		TEST(test_declare__of_another_spec_than_the_controllers_is_refused),
		TEST(test_line__tells_the_state),
		TEST(test_new__refuses_what_cannot_work),
		TEST(test_memory__may_end_at_any_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

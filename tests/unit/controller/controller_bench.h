/* SPDX-License-Identifier: Apache-2.0
 *
 * controller_bench.h -- the controller's core driven by hand: one trainer, one inference rank.
 */
#ifndef TESTS_CONTROLLER_BENCH_H
#define TESTS_CONTROLLER_BENCH_H

#include "controller/core.h"

#include "base/array.h"

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
	struct actions actions;
	uint64_t now;
	uint64_t incarnation[2];
};

static const char *const peers[] = {"t0", "i0"};

static inline void build(struct bench *bench)
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

static inline struct controller_options options_of(uint32_t restarts)
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

static inline int set_up(void **state)
{
	struct bench *bench = memory_zalloc(1, sizeof(*bench));
	struct controller_options options = options_of(0);

	build(bench);
	assert_int_equal(controller_new(&bench->controller, &options, 0, NULL), 0);
	*state = bench;
	return 0;
}

static inline int tear_down(void **state)
{
	struct bench *bench = *state;

	actions_clear(&bench->actions);
	controller_free(&bench->controller);
	holding_fini(&bench->holding);
	layout_fini(&bench->layout);
	memory_free(bench);
	return 0;
}

static inline int step(struct bench *bench, struct controller_event event)
{
	struct error error;
	bool due = false;
	int rc;

	actions_clear(&bench->actions);
	event.now_ms = bench->now;
	rc = controller_step(bench->controller, &event, &bench->actions, &error);
	for (size_t i = 0; i < bench->actions.count; i++)
		due |= bench->actions.items[i].type == CONTROLLER_PLAN_DUE;
	if (rc || !due)
		return rc;
	event = (struct controller_event){.type = CONTROLLER_PLAN, .now_ms = bench->now};
	return controller_step(bench->controller, &event, &bench->actions, &error);
}

static inline void tick(struct bench *bench, uint64_t now)
{
	bench->now = now;
	assert_int_equal(step(bench, (struct controller_event){.type = CONTROLLER_TICK}), 0);
}

static inline struct message from_worker(const struct bench *bench, int who, enum message_type type)
{
	struct message message = {.type = type,
				  .job = JOB,
				  .epoch = type != MESSAGE_HELLO,
				  .from = bench->incarnation[who]};

	return message;
}

/* The core may take parts out of the message; the rest is freed here. */
static inline int receive(struct bench *bench, int who, struct message *message)
{
	int rc = step(bench, (struct controller_event){.type = CONTROLLER_RECEIVED,
						       .peer = peers[who],
						       .message = message});

	message_fini(message);
	return rc;
}

static inline int hello(struct bench *bench, int who)
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

static inline int declare(struct bench *bench, int who)
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

static inline int body(struct bench *bench, int who)
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

static inline struct message endpoints_of(const struct bench *bench, int who)
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

static inline int send_copy(struct bench *bench, int who, const struct message *message)
{
	struct message copy;

	return message_copy(&copy, message, NULL) ? -ERROR_MEMORY : receive(bench, who, &copy);
}

static inline int endpoints(struct bench *bench, int who)
{
	struct message message = endpoints_of(bench, who);

	return send_copy(bench, who, &message);
}

static inline int connected(struct bench *bench, int who)
{
	struct message message = from_worker(bench, who, MESSAGE_CONNECTED);

	message.u.connected.attempt = 1;
	return receive(bench, who, &message);
}

static int (*const life[])(struct bench *, int) = {hello, declare, body, endpoints, connected};

static inline int reach(struct bench *bench, size_t steps)
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

static inline const struct message *sent(const struct bench *bench, int who, enum message_type type)
{
	for (size_t i = 0; i < bench->actions.count; i++) {
		const struct action *action = &bench->actions.items[i];

		if (action->type == CONTROLLER_SEND && action->message.type == type &&
		    strcmp(action->peer, peers[who]) == 0)
			return &action->message;
	}
	return NULL;
}

static inline const struct action *exited(const struct bench *bench)
{
	for (size_t i = 0; i < bench->actions.count; i++)
		if (bench->actions.items[i].type == CONTROLLER_EXIT)
			return &bench->actions.items[i];
	return NULL;
}

static inline size_t logged(const struct bench *bench, const char *words)
{
	size_t count = 0;

	for (size_t i = 0; i < bench->actions.count; i++)
		if (bench->actions.items[i].type == CONTROLLER_LOG &&
		    strstr(bench->actions.items[i].line, words))
			count++;
	return count;
}

static inline void beat_of(struct bench *bench, int who)
{
	struct message message = from_worker(bench, who, MESSAGE_HEARTBEAT);

	receive(bench, who, &message);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

#endif

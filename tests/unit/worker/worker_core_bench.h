/* SPDX-License-Identifier: Apache-2.0
 *
 * worker_core_bench.h -- a worker's control core by itself, a trainer's, and a controller's words to it.
 */
#ifndef TESTS_UNIT_WORKER_WORKER_CORE_BENCH_H
#define TESTS_UNIT_WORKER_WORKER_CORE_BENCH_H

#include "worker/control/core.h"

#include "base/array.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define JOB	   "demo"
#define CONTROLLER 0xc0deu

struct bench {
	struct holding holding;
	struct worker_core *core;
	struct actions actions;
	uint64_t now;
};

static inline void build_holding(struct holding *holding)
{
	uint64_t shape[2] = {4, 4};
	struct box box = box_whole(2, shape);

	holding_init(holding);
	assert_int_equal(holding_add_tensor(holding, "w", DTYPE_F32, 2, shape, 0, NULL), 0);
	assert_int_equal(holding_add(holding, 0, &box, NULL), 0);
	assert_int_equal(holding_finish(holding, NULL), 0);
}

static inline struct worker_core_options options_of(const struct bench *bench)
{
	return (struct worker_core_options){.job = JOB,
					    .controller = "tcp://head:29600",
					    .hello = {.role = ROLE_TRAINER,
						      .incarnation = 7,
						      .host = (char *)"a",
						      .host_id = (char *)"boot",
						      .pid = 11},
					    .declare = {.model = (char *)"m",
							.train = (char *)"t",
							.infer = (char *)"i",
							.transport = (char *)"shm",
							.digest = holding_digest(&bench->holding)},
					    .holding = &bench->holding,
					    .join_timeout_ms = 20000};
}

static inline int set_up(void **state)
{
	struct bench *bench = memory_zalloc(1, sizeof(*bench));
	struct worker_core_options options;

	build_holding(&bench->holding);
	options = options_of(bench);
	assert_int_equal(worker_core_new(&bench->core, &options, 0, NULL), 0);
	*state = bench;
	return 0;
}

static inline int tear_down(void **state)
{
	struct bench *bench = *state;

	actions_clear(&bench->actions);
	worker_core_free(&bench->core);
	holding_fini(&bench->holding);
	memory_free(bench);
	return 0;
}

static inline int step(struct bench *bench, struct worker_event event)
{
	struct error error;

	actions_clear(&bench->actions);
	event.now_ms = bench->now;
	return worker_core_step(bench->core, &event, &bench->actions, &error);
}

static inline void tick(struct bench *bench, uint64_t now)
{
	bench->now = now;
	assert_int_equal(step(bench, (struct worker_event){.type = WORKER_EVENT_TICK}), 0);
}

/* As the controller would send it; epoch 1. */
static inline struct message from_controller(enum message_type type)
{
	struct message message = {.type = type, .job = JOB, .epoch = 1, .from = CONTROLLER};

	return message;
}

static inline void receive(struct bench *bench, struct message message)
{
	assert_int_equal(step(bench, (struct worker_event){.type = WORKER_EVENT_RECEIVED,
							   .message = &message}),
			 0);
	message_fini(&message);
}

static inline void receive_welcome(struct bench *bench)
{
	struct message message = from_controller(MESSAGE_WELCOME);

	message.u.welcome = (struct message_welcome){500, 5000, CONTROLLER, false, 0};
	receive(bench, message);
}

/* Updates go on for so long when the controller is lost. */
static inline void receive_welcome_of_orphans(struct bench *bench, uint32_t orphan_ms)
{
	struct message message = from_controller(MESSAGE_WELCOME);

	message.u.welcome = (struct message_welcome){500, 5000, CONTROLLER, false, orphan_ms};
	receive(bench, message);
}

static inline void receive_want(struct bench *bench, bool ours)
{
	struct message message = from_controller(MESSAGE_WANT);

	if (ours) {
		message.u.want.digests = memory_alloc(sizeof(struct digest));
		message.u.want.digests[0] = holding_digest(&bench->holding);
		message.u.want.digest_count = 1;
	}
	receive(bench, message);
}

static inline void receive_plan(struct bench *bench)
{
	struct message message = from_controller(MESSAGE_PLAN);

	message.u.plan.attempt = 1;
	message.u.plan.policy = memory_string("greedy");
	message.u.plan.order = memory_string("rotated");
	receive(bench, message);
}

static inline void receive_next_plan(struct bench *bench, uint32_t attempt, uint32_t gone)
{
	struct message message = from_controller(MESSAGE_PLAN);

	message.u.plan.attempt = attempt;
	message.u.plan.continues = true;
	message.u.plan.gone = gone;
	receive(bench, message);
}

static inline void receive_pause(struct bench *bench, uint32_t number, uint64_t version)
{
	struct message message = from_controller(MESSAGE_PAUSE);

	message.u.pause.number = number;
	message.u.pause.stop = true;
	message.u.pause.version = version;
	receive(bench, message);
}

static inline void receive_refuse(struct bench *bench, enum error_code code, const char *text)
{
	struct message message = from_controller(MESSAGE_REFUSE);

	message.u.refuse.code = (int)code;
	message.u.refuse.text = memory_string(text);
	receive(bench, message);
}

static inline const struct message *sent(const struct bench *bench, enum message_type type)
{
	for (size_t i = 0; i < bench->actions.count; i++)
		if (bench->actions.items[i].type == WORKER_ACTION_SEND &&
		    bench->actions.items[i].message.type == type)
			return &bench->actions.items[i].message;
	return NULL;
}

static inline bool asks_to_pause(const struct bench *bench)
{
	for (size_t i = 0; i < bench->actions.count; i++)
		if (bench->actions.items[i].type == WORKER_ACTION_PAUSE)
			return true;
	return false;
}

static inline enum worker_state state_of(const struct bench *bench)
{
	return worker_core_state(bench->core);
}

static inline const struct error *failure(const struct bench *bench)
{
	for (size_t i = 0; i < bench->actions.count; i++)
		if (bench->actions.items[i].type == WORKER_ACTION_STATE &&
		    bench->actions.items[i].state == WORKER_FAILED)
			return &bench->actions.items[i].error;
	return NULL;
}

static inline void exchange(struct bench *bench, uint32_t attempt)
{
	struct message_endpoints endpoints = {.attempt = attempt};
	struct message message;

	step(bench, (struct worker_event){.type = WORKER_EVENT_ENDPOINTS, .endpoints = &endpoints});
	message = from_controller(MESSAGE_PEERS);
	message.u.peers.attempt = attempt;
	receive(bench, message);
	step(bench, (struct worker_event){.type = WORKER_EVENT_CONNECTED, .attempt = attempt});
	message = from_controller(MESSAGE_GO);
	message.u.go.attempt = attempt;
	receive(bench, message);
	assert_int_equal(state_of(bench), WORKER_RUN);
}

static inline void reach_run(struct bench *bench)
{
	tick(bench, 0);
	receive_welcome(bench);
	receive_plan(bench);
	exchange(bench, 1);
}

/* Of a job that goes on when an engine is lost. */
static inline void reach_run_for_long(struct bench *bench)
{
	tick(bench, 0);
	receive_welcome(bench);
	receive_next_plan(bench, 1, 0);
	exchange(bench, 1);
}

static inline void pause_at(struct bench *bench, uint32_t number, bool stopped, uint64_t next)
{
	step(bench, (struct worker_event){.type = WORKER_EVENT_PAUSED,
					  .number = number,
					  .done = stopped,
					  .next = next,
					  .version = next - 1});
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/control/core_state.h"

#include <stdio.h>

/* Sends a copy of a message whose body may be borrowed; the head is filled in here. */
void say_copy(struct worker_core *core, struct message *message)
{
	struct action *action = action_push(core->actions, WORKER_ACTION_SEND);

	WEFT_ASSERT_OP(message->type, <=, MESSAGE_HEARTBEAT); /* the others are the controller's */
	WEFT_ASSERT(message->type == MESSAGE_HELLO || core->controller);
	snprintf(message->job, sizeof(message->job), "%s", core->options.job);
	message->epoch = core->epoch;
	message->from = core->options.hello.incarnation;
	if (message_copy(&action->message, message, NULL))
		core->actions->failed = true;
}

static void send_hello(struct worker_core *core)
{
	struct message message = {.type = MESSAGE_HELLO, .u.hello = core->options.hello};

	if (core->adoption == ADOPTION_HELLO) {
		message.u.hello.attempt = core->plan.u.plan.attempt;
		message.u.hello.plan = core->plan.u.plan.digest;
		message.u.hello.follows = core->plan.u.plan.follows;
		message.u.hello.paused = core->state == WORKER_RUN && core->halts;
		message.u.hello.unconnected = core->state < WORKER_CONNECTED;
		message.u.hello.away = core->plan.u.plan.away;
		message.u.hello.away_count = core->plan.u.plan.away_count;
		message.u.hello.lost = core->engines_lost.items;
		message.u.hello.lost_count = core->engines_lost.count;
		message.u.hello.done = core->engines_done.items;
		message.u.hello.done_count = core->engines_done.count;
	}
	say_copy(core, &message);
}

static void send_declare(struct worker_core *core)
{
	struct message message = {.type = MESSAGE_DECLARE, .u.declare = core->options.declare};

	if (core->wanted && core->options.layout) {
		message.type = MESSAGE_LAYOUT;
		message.u.layout.digest = core->options.declare.digest;
		message.u.layout.layout = *core->options.layout;
	} else if (core->wanted) {
		message.type = MESSAGE_HOLDING;
		message.u.holding.digest = core->options.declare.digest;
		message.u.holding.holding = *core->options.holding;
	}
	say_copy(core, &message);
}

static void send_endpoints(struct worker_core *core)
{
	WEFT_ASSERT(have_plan(core));
	if (core->endpoints_ready)
		say_copy(core, &core->endpoints);
}

static void send_connected(struct worker_core *core)
{
	struct message message = {.type = MESSAGE_CONNECTED,
				  .u.connected.attempt = core->plan.u.plan.attempt};

	WEFT_ASSERT(have_peers(core));
	say_copy(core, &message);
}

void say_leave(struct worker_core *core)
{
	struct message message = {.type = MESSAGE_LEAVE, .u.leave.done = core->done};

	say_copy(core, &message);
}

void say_failure(struct worker_core *core)
{
	struct message message = {
		.type = MESSAGE_FAILURE,
		.u.failure = {(int)core->failure.code, core->failure.text, core->version}};

	if (!core->failure_sends)
		return;
	WEFT_ASSERT_OP(core->failure.code, !=, ERROR_NONE);
	core->failure_sends--;
	say_copy(core, &message);
}

static void send_paused(struct worker_core *core)
{
	struct message message = {.type = MESSAGE_PAUSED, .u.paused = core->paused};

	if (core->paused.number)
		say_copy(core, &message);
}

/* The controller says in a moment what became of that peer: lost, or done with its work. In its silence this worker does. */
static void say_drop(struct worker_core *core, struct drop *drop)
{
	if (drop->said || core->now_ms < drop->since_ms + core->options.resend_ms)
		return;
	drop->said = true;
	say(core, true, "goes on without %s %u: %s",
	    drop->member.role == ROLE_TRAINER ? "trainer" : "inference", drop->member.rank,
	    drop->why.text);
}

static void send_drops(struct worker_core *core)
{
	for (size_t i = 0; i < core->drops.count; i++) {
		struct drop *drop = &core->drops.items[i];
		struct message message = {.type = MESSAGE_DROP,
					  .u.drop = {core->plan.u.plan.attempt, drop->member,
						     (int)drop->why.code, drop->why.text,
						     drop->version}};

		say_drop(core, drop);
		say_copy(core, &message);
	}
}

/* The latest unanswered message of each state. */
static void (*const resends[WORKER_STATE_COUNT])(struct worker_core *) = {
	[WORKER_HELLO] = send_hello,	   [WORKER_DECLARE] = send_declare,
	[WORKER_PLANNED] = send_endpoints, [WORKER_CONNECTED] = send_connected,
	[WORKER_RUN] = send_paused,	   [WORKER_LEAVING] = say_leave,
	[WORKER_FAILED] = say_failure,
};

/* To a controller that takes the job over: as to one that begins it. */
static void (*const adopted[])(struct worker_core *) = {
	[ADOPTION_HELLO] = send_hello,
	[ADOPTION_DECLARE] = send_declare,
};

void say_latest(struct worker_core *core)
{
	core->resend_ms = core->now_ms + core->options.resend_ms;
	if (core->adoption != ADOPTION_NONE && core->state <= WORKER_RUN)
		adopted[core->adoption](core);
	else if (core->paused.number && core->state <= WORKER_RUN)
		send_paused(core);
	else if (resends[core->state])
		resends[core->state](core);
	if (goes_on(core) && core->adoption == ADOPTION_NONE)
		send_drops(core);
}

bool say_resends(const struct worker_core *core)
{
	return resends[core->state] || core->adoption != ADOPTION_NONE || core->paused.number ||
	       core->drops.count;
}

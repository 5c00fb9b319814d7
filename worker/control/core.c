/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/control/core.h"

#include "base/array.h"
#include "base/assert.h"
#include "base/memory.h"
#include <stdio.h>
#include <string.h>

#define RESEND_MS     500
#define FAILURE_SENDS 5	   /* a worker that failed has no time to wait for an answer */
#define EXPIRED_MS    1000 /* how long a joined worker waits to hear who is missing */
#define FORMER_COUNT  8	   /* controllers given up that are still recognised */
#define UNREACHED_MS  1000 /* a controller that starts beside us is no news before */
#define SILENT_MS     5000 /* until a welcome says how long a controller may be silent */

struct worker_core {
	struct worker_core_options options;
	enum worker_state state;
	uint64_t controller; /* incarnation; 0 before the welcome */
	uint64_t former[FORMER_COUNT];
	uint32_t former_count;
	uint64_t epoch, version, sequence;
	uint32_t heartbeat_ms, lost_ms;
	struct patience joining;
	uint64_t heard_ms, beat_ms, resend_ms, stepped_ms, leaving_ms;
	uint64_t expired_ms;		/* when the join deadline passed; 0: it has not */
	bool unreached, said_unreached; /* something stands between the controller and us */
	struct error unreached_why;
	bool wanted; /* the controller asked for the body */
	bool endpoints_ready, done;
	uint32_t failure_sends; /* still to go */
	struct error failure;
	struct message plan, peers, endpoints; /* kept for life; zeroed until they are here */
	/* of the running step */
	struct actions *actions;
	uint64_t now_ms;
};

static const char *const state_names[] = {
	[WORKER_HELLO] = "hello",	  [WORKER_DECLARE] = "declare",
	[WORKER_PLANNED] = "planned",	  [WORKER_CONNECTING] = "connecting",
	[WORKER_CONNECTED] = "connected", [WORKER_RUN] = "run",
	[WORKER_LEAVING] = "leaving",	  [WORKER_LEFT] = "left",
	[WORKER_FAILED] = "failed",
};
_Static_assert(ARRAY_SIZE(state_names) == WORKER_STATE_COUNT, "a name for every state");

/* What a worker in that state waits for, in error messages about deadlines. */
static const char *const waits[] = {
	[WORKER_HELLO] = "an answer of the controller",
	[WORKER_DECLARE] = "the plan (the controller plans when all workers have declared)",
	[WORKER_PLANNED] = "the endpoints of all peers",
	[WORKER_CONNECTING] = "the connections to all peers",
	[WORKER_CONNECTED] = "the other workers to connect",
};

const char *worker_state_name(enum worker_state state)
{
	return (unsigned)state < WORKER_STATE_COUNT ? state_names[state] : "unknown";
}

static int memory_is_out(struct error *error)
{
	return error_set(error, ERROR_MEMORY, "the control channel is out of memory");
}

#define say(core, warn, ...) action_log((core)->actions, warn, __VA_ARGS__)

static bool have_plan(const struct worker_core *core)
{
	return core->plan.type == MESSAGE_PLAN;
}

static bool have_peers(const struct worker_core *core)
{
	return core->peers.type == MESSAGE_PEERS;
}

/* All that follows fails in one way, out of memory, and marks it in the actions: the step goes on as
 * far as it can and fails at its end. */

/* Sends a copy of a message whose body may be borrowed; the head is filled in here. */
static void send_copy(struct worker_core *core, struct message *message)
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

	send_copy(core, &message);
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
	send_copy(core, &message);
}

static void send_endpoints(struct worker_core *core)
{
	WEFT_ASSERT(have_plan(core));
	if (core->endpoints_ready)
		send_copy(core, &core->endpoints);
}

static void send_connected(struct worker_core *core)
{
	struct message message = {.type = MESSAGE_CONNECTED,
				  .u.connected.attempt = core->plan.u.plan.attempt};

	WEFT_ASSERT(have_peers(core));
	send_copy(core, &message);
}

static void send_leave(struct worker_core *core)
{
	struct message message = {.type = MESSAGE_LEAVE, .u.leave.done = core->done};

	send_copy(core, &message);
}

static void send_failure(struct worker_core *core)
{
	struct message message = {
		.type = MESSAGE_FAILURE,
		.u.failure = {(int)core->failure.code, core->failure.text, core->version}};

	if (!core->failure_sends)
		return;
	WEFT_ASSERT_OP(core->failure.code, !=, ERROR_NONE);
	core->failure_sends--;
	send_copy(core, &message);
}

/* The latest unanswered message of each state. */
static void (*const resends[WORKER_STATE_COUNT])(struct worker_core *) = {
	[WORKER_HELLO] = send_hello,	   [WORKER_DECLARE] = send_declare,
	[WORKER_PLANNED] = send_endpoints, [WORKER_CONNECTED] = send_connected,
	[WORKER_LEAVING] = send_leave,	   [WORKER_FAILED] = send_failure,
};

static void send_latest(struct worker_core *core)
{
	core->resend_ms = core->now_ms + core->options.resend_ms;
	if (resends[core->state])
		resends[core->state](core);
}

#define TO(state) (1u << WORKER_##state)
/* state -> the states that may follow; each state of the way to RUN once, in its order */
static const unsigned follows[WORKER_STATE_COUNT] = {
	[WORKER_HELLO] = TO(HELLO) | TO(DECLARE) | TO(LEAVING) | TO(LEFT) | TO(FAILED),
	[WORKER_DECLARE] = TO(HELLO) | TO(PLANNED) | TO(LEAVING) | TO(FAILED),
	[WORKER_PLANNED] = TO(CONNECTING) | TO(LEAVING) | TO(FAILED),
	[WORKER_CONNECTING] = TO(CONNECTED) | TO(LEAVING) | TO(FAILED),
	[WORKER_CONNECTED] = TO(RUN) | TO(LEAVING) | TO(FAILED),
	[WORKER_RUN] = TO(LEAVING) | TO(FAILED),
	[WORKER_LEAVING] = TO(LEFT) | TO(FAILED),
};

static void enter(struct worker_core *core, enum worker_state state)
{
	struct action *action = action_push(core->actions, WORKER_ACTION_STATE);

	WEFT_ASSERT(follows[core->state] & 1u << state);
	core->state = state;
	action->state = state;
	if (state == WORKER_FAILED)
		action->error = core->failure;
	send_latest(core);
}

/* `told`: how many times the controller is to hear it; 0 when it said so itself. */
static void fail(struct worker_core *core, const struct error *why, uint32_t told)
{
	WEFT_ASSERT_OP(why->code, !=, ERROR_NONE);
	if (core->state >= WORKER_LEFT)
		return;
	core->failure = *why;
	core->failure_sends = core->controller ? told : 0;
	enter(core, WORKER_FAILED);
}

/* The controller told the job's end. One leave lets it go without waiting for us. */
static void told_the_end(struct worker_core *core, int code, const char *text)
{
	struct error why;

	core->failure_sends = 0;
	if (core->state == WORKER_LEAVING)
		enter(core, WORKER_LEFT);
	if (core->state == WORKER_LEFT)
		return;
	error_set(&why, error_known(code) ? (enum error_code)code : ERROR_INTERNAL, "%s", text);
	fail(core, &why, 0);
	if (core->controller)
		send_leave(core);
}

static bool is_former(const struct worker_core *core, uint64_t controller)
{
	for (uint32_t i = 0; i < FORMER_COUNT; i++)
		if (core->former[i] == controller)
			return true;
	return false;
}

/* The address answers, but it is another controller (other != 0) or one that forgot us. */
static void start_over(struct worker_core *core, uint64_t other)
{
	struct error why;

	if (core->state == WORKER_LEAVING)
		enter(core, WORKER_LEFT);
	if (core->state >= WORKER_LEFT)
		return;
	if (core->state >= WORKER_PLANNED) {
		error_set(
			&why, ERROR_CONTROLLER_LOST,
			"the controller at %s was restarted (incarnation %016llx, was %016llx), so "
			"the plan of epoch %llu is gone; restart the whole job",
			core->options.controller, (unsigned long long)other,
			(unsigned long long)core->controller, (unsigned long long)core->epoch);
		fail(core, &why, 0);
		return;
	}
	say(core, true, "the controller at %s %s: joining again", core->options.controller,
	    other ? "was restarted" : "does not know this worker");
	WEFT_ASSERT(core->controller);
	if (other) {
		core->former[core->former_count++ % FORMER_COUNT] = core->controller;
		core->controller = 0;
	}
	core->epoch = 0;
	core->wanted = false;
	enter(core, WORKER_HELLO);
}

static void on_welcome(struct worker_core *core, struct message *message)
{
	if (core->state != WORKER_HELLO)
		return;
	core->controller = message->u.welcome.controller;
	core->epoch = message->epoch;
	core->heartbeat_ms = message->u.welcome.heartbeat_ms;
	core->lost_ms = message->u.welcome.lost_ms;
	core->heard_ms = core->now_ms;
	core->beat_ms = core->now_ms + core->heartbeat_ms;
	enter(core, WORKER_DECLARE);
}

static void on_refuse(struct worker_core *core, struct message *message)
{
	const struct message_refuse *refuse = &message->u.refuse;

	if (refuse->code != ERROR_CONTROLLER_LOST)
		told_the_end(core, refuse->code, refuse->text);
	/* "never saw you": a late answer, unless this is the controller that we joined */
	else if (core->state == WORKER_DECLARE)
		start_over(core, 0);
}

static void on_want(struct worker_core *core, struct message *message)
{
	bool ours = false;

	if (core->state != WORKER_DECLARE)
		return;
	for (size_t i = 0; i < message->u.want.digest_count; i++)
		ours |= digest_equal(message->u.want.digests[i], core->options.declare.digest);
	if (ours && !core->wanted) {
		core->wanted = true;
		send_latest(core);
	}
	core->wanted = ours;
}

static void on_plan(struct worker_core *core, struct message *message)
{
	if (core->state != WORKER_DECLARE)
		return;
	WEFT_ASSERT(!have_plan(core));
	core->plan = *message;
	*message = (struct message){0};
	say(core, false, "plan attempt %u: %zu rows, %zu peers", core->plan.u.plan.attempt,
	    core->plan.u.plan.row_count, core->plan.u.plan.peer_count);
	enter(core, WORKER_PLANNED);
	action_push(core->actions, WORKER_ACTION_OPEN)->plan = &core->plan.u.plan;
}

static bool peers_match(const struct message_plan *plan, const struct message_peers *peers)
{
	if (plan->peer_count != peers->peer_count)
		return false;
	for (size_t i = 0; i < plan->peer_count; i++)
		if (plan->peers[i].member.role != peers->peers[i].member.role ||
		    plan->peers[i].member.rank != peers->peers[i].member.rank)
			return false;
	return true;
}

static void on_peers(struct worker_core *core, struct message *message)
{
	struct error why;

	if (core->state != WORKER_PLANNED || !core->endpoints_ready ||
	    message->u.peers.attempt != core->plan.u.plan.attempt)
		return;
	if (!peers_match(&core->plan.u.plan, &message->u.peers)) {
		error_set(&why, ERROR_MESSAGE,
			  "the controller at %s sent endpoints of other peers "
			  "than its plan names",
			  core->options.controller);
		fail(core, &why, FAILURE_SENDS);
		return;
	}
	WEFT_ASSERT(!have_peers(core));
	core->peers = *message;
	*message = (struct message){0};
	enter(core, WORKER_CONNECTING);
	action_push(core->actions, WORKER_ACTION_CONNECT)->peers = &core->peers.u.peers;
}

static void on_go(struct worker_core *core, struct message *message)
{
	if (core->state == WORKER_CONNECTED && message->u.go.attempt == core->plan.u.plan.attempt)
		enter(core, WORKER_RUN);
}

static void on_heartbeat(struct worker_core *core, struct message *message)
{
	if (core->state == WORKER_LEAVING && message->u.heartbeat.sequence == 0)
		enter(core, WORKER_LEFT);
}

static void on_lost(struct worker_core *core, struct message *message)
{
	told_the_end(core, message->u.lost.code, message->u.lost.text);
}

typedef void (*handler)(struct worker_core *, struct message *);
static const handler handlers[MESSAGE_TYPE_COUNT] = {
	[MESSAGE_WELCOME] = on_welcome, [MESSAGE_REFUSE] = on_refuse,
	[MESSAGE_WANT] = on_want,	[MESSAGE_PLAN] = on_plan,
	[MESSAGE_PEERS] = on_peers,	[MESSAGE_GO] = on_go,
	[MESSAGE_LOST] = on_lost,	[MESSAGE_HEARTBEAT] = on_heartbeat,
};

static void received(struct worker_core *core, struct message *message)
{
	bool refuse = message->type == MESSAGE_REFUSE;
	bool opens = refuse || message->type == MESSAGE_WELCOME;

	if ((unsigned)message->type >= MESSAGE_TYPE_COUNT || !handlers[message->type] ||
	    is_former(core, message->from))
		return;
	/* before the welcome there is only the welcome, or a refusal, even by another job's */
	if (core->controller == 0 || (core->state == WORKER_HELLO && refuse)) {
		if (opens)
			handlers[message->type](core, message);
	} else if (strcmp(message->job, core->options.job) != 0) {
		return;
	} else if (message->from != core->controller) {
		start_over(core, message->from);
	} else if (opens || message->epoch == core->epoch) { /* else stale: of another plan */
		core->heard_ms = core->now_ms;
		handlers[message->type](core, message);
	}
}

static void broken(struct worker_core *core, const struct error *what)
{
	struct error why = *what;

	error_wrap(&why, "the controller at %s sent what cannot be read", core->options.controller);
	fail(core, &why, FAILURE_SENDS);
}

static void take_endpoints(struct worker_core *core, const struct message_endpoints *endpoints)
{
	struct message borrowed = {.type = MESSAGE_ENDPOINTS, .u.endpoints = *endpoints};

	if (core->state != WORKER_PLANNED || core->endpoints_ready)
		return;
	borrowed.u.endpoints.attempt = core->plan.u.plan.attempt;
	if (message_copy(&core->endpoints, &borrowed, NULL)) {
		core->actions->failed = true;
		return;
	}
	core->endpoints_ready = true;
	send_latest(core);
}

static void leave(struct worker_core *core, bool done)
{
	/* it failed, said so, and ends before the answer: the controller need not wait for it */
	if (core->state == WORKER_FAILED && core->failure_sends) {
		core->failure_sends = 0;
		send_leave(core);
	}
	if (core->state >= WORKER_LEAVING)
		return;
	core->done = done;
	core->leaving_ms = core->now_ms;
	enter(core, core->controller ? WORKER_LEAVING : WORKER_LEFT);
}

static void beat(struct worker_core *core)
{
	struct message message = {.type = MESSAGE_HEARTBEAT, .u.heartbeat.version = core->version};

	if (!core->controller || core->state < WORKER_DECLARE || core->state > WORKER_RUN ||
	    core->now_ms < core->beat_ms)
		return;
	core->beat_ms = core->now_ms + core->heartbeat_ms;
	message.u.heartbeat.sequence = ++core->sequence;
	send_copy(core, &message);
}

static void check_silence(struct worker_core *core)
{
	struct error why;

	if (core->state == WORKER_LEAVING && core->now_ms >= core->leaving_ms + core->lost_ms)
		enter(core, WORKER_LEFT);
	if (core->state < WORKER_DECLARE || core->state > WORKER_RUN ||
	    core->now_ms < core->heard_ms + core->lost_ms)
		return;
	error_set(&why, ERROR_CONTROLLER_LOST,
		  "the controller at %s is silent for %.1f s (this worker at version %llu); "
		  "restart the whole job",
		  core->options.controller, (double)(core->now_ms - core->heard_ms) / 1000.0,
		  (unsigned long long)core->version);
	fail(core, &why, 0);
}

/* A name may come to mean something later: DNS of a pod that is being started. */
static void take_unreached(struct worker_core *core, const struct error *why)
{
	core->unreached = why && core->state == WORKER_HELLO;
	if (!core->unreached)
		return;
	core->unreached_why = *why;
}

static void say_unreached(struct worker_core *core)
{
	if (!core->unreached || core->said_unreached || core->state != WORKER_HELLO ||
	    core->now_ms < core->joining.since_ms + UNREACHED_MS)
		return;
	core->said_unreached = true;
	say(core, true, "controller %s: %.600s; trying on until the join deadline",
	    core->options.controller, core->unreached_why.text);
}

static void late_text(const struct worker_core *core, uint64_t waited, struct error *why)
{
	const char *hint = "";

	if (core->state == WORKER_HELLO)
		hint = core->unreached
			       ? core->unreached_why.text
			       : "is it running, is its address right, can this host reach it";
	error_set(why, ERROR_TIMEOUT,
		  "waiting for %s at %s for %.1f s%s%.600s; raise --join-timeout if this is "
		  "expected",
		  waits[core->state], core->options.controller, (double)waited / 1000.0,
		  *hint ? ": " : "", hint);
}

/* It asks the controller once, which knows who is missing: its answer is the better error
 * message. */
static void late(struct worker_core *core, uint64_t waited)
{
	struct error why;

	if (core->now_ms < core->expired_ms + EXPIRED_MS)
		return;
	late_text(core, waited, &why);
	if (core->expired_ms || core->state == WORKER_HELLO) {
		fail(core, &why, FAILURE_SENDS);
		return;
	}
	core->expired_ms = core->now_ms;
	core->failure = why;
	core->failure_sends = 1;
	send_failure(core);
}

static void check_join(struct worker_core *core)
{
	uint64_t waited = core->now_ms - core->joining.since_ms;
	uint64_t limit = core->options.join_timeout_ms;

	if (core->state > WORKER_CONNECTED)
		return;
	say_unreached(core);
	switch (patience_look(&core->joining, core->now_ms, limit)) {
	case PATIENCE_ENDS:
		late(core, waited);
		break;
	case PATIENCE_WARNS:
		say(core, true, "still waiting for %s at %s, %.1f of %.1f s", waits[core->state],
		    core->options.controller, (double)waited / 1000.0, (double)limit / 1000.0);
		break;
	case PATIENCE_WAITS:
		break;
	}
}

/* A process that stood still itself has not listened: the controller is not to blame. */
static void forgive_own_sleep(struct worker_core *core)
{
	uint64_t gap = core->now_ms - core->stepped_ms;

	core->stepped_ms = core->now_ms;
	if (core->controller && core_stood_still(gap, core->heartbeat_ms, core->lost_ms))
		core->heard_ms += gap;
}

static void tick(struct worker_core *core)
{
	check_silence(core);
	check_join(core);
	beat(core);
	if (core->now_ms >= core->resend_ms)
		send_latest(core);
}

static void take(struct worker_core *core, const struct worker_event *event)
{
	switch (event->type) {
	case WORKER_EVENT_RECEIVED:
		received(core, event->message);
		break;
	case WORKER_EVENT_BROKEN:
		broken(core, event->error);
		break;
	case WORKER_EVENT_TICK:
		tick(core);
		break;
	case WORKER_EVENT_ENDPOINTS:
		take_endpoints(core, event->endpoints);
		break;
	case WORKER_EVENT_CONNECTED:
		if (core->state == WORKER_CONNECTING)
			enter(core, WORKER_CONNECTED);
		break;
	case WORKER_EVENT_FAILURE:
		fail(core, event->error, FAILURE_SENDS);
		break;
	case WORKER_EVENT_LEAVE:
		leave(core, event->done);
		break;
	case WORKER_EVENT_VERSION:
		core->version = event->version > core->version ? event->version : core->version;
		break;
	case WORKER_EVENT_UNREACHED:
		take_unreached(core, event->error);
		break;
	}
}

/* What holds between two steps, whatever came. */
static void check(const struct worker_core *core, const struct worker_event *event)
{
	enum worker_state state = core->state;
	bool alive = state <= WORKER_RUN;

	if (!WEFT_ASSERTS)
		return;
	WEFT_ASSERT_OP(core->heard_ms, <=, core->now_ms);
	WEFT_ASSERT_OP(core->joining.since_ms, <=, core->now_ms);
	WEFT_ASSERT_OP(core->failure_sends, <=, FAILURE_SENDS);
	WEFT_ASSERT((state == WORKER_FAILED) <= (core->failure.code != ERROR_NONE));
	/* who is known and what is here grows on the way to RUN */
	WEFT_ASSERT(state == WORKER_HELLO || state >= WORKER_LEFT || core->controller);
	WEFT_ASSERT(state != WORKER_HELLO || (!core->epoch && !core->wanted));
	WEFT_ASSERT(!alive || have_plan(core) == (state >= WORKER_PLANNED));
	WEFT_ASSERT(!alive || have_peers(core) == (state >= WORKER_CONNECTING));
	WEFT_ASSERT(!have_peers(core) || core->endpoints_ready);
	WEFT_ASSERT(!core->endpoints_ready || have_plan(core));
	WEFT_ASSERT(!have_peers(core) || core->peers.u.peers.attempt == core->plan.u.plan.attempt);
	/* a tick has handled all that was due */
	WEFT_ASSERT(event->type != WORKER_EVENT_TICK ||
		    worker_core_deadline_ms(core) >= core->now_ms);
}

int worker_core_step(struct worker_core *core, const struct worker_event *event,
		     struct actions *actions, struct error *error)
{
	core->actions = actions;
	core->now_ms = event->now_ms;
	forgive_own_sleep(core);
	take(core, event);
	if (actions->failed) {
		if (core->state < WORKER_LEFT) { /* half done: it bears nothing but a good-bye */
			memory_is_out(&core->failure);
			core->failure_sends = core->controller ? FAILURE_SENDS : 0;
			core->state = WORKER_FAILED;
		}
		return memory_is_out(error);
	}
	check(core, event);
	return 0;
}

static void sooner(uint64_t *deadline, uint64_t other)
{
	if (other < *deadline)
		*deadline = other;
}

uint64_t worker_core_deadline_ms(const struct worker_core *core)
{
	uint64_t limit = core->options.join_timeout_ms, deadline = UINT64_MAX;

	if (core->state == WORKER_LEFT || (core->state == WORKER_FAILED && !core->failure_sends))
		return deadline;
	if (resends[core->state])
		sooner(&deadline, core->resend_ms);
	if (core->state <= WORKER_CONNECTED)
		sooner(&deadline, core->expired_ms ? core->expired_ms + EXPIRED_MS
						   : patience_next_ms(&core->joining, limit));
	if (core->state >= WORKER_DECLARE && core->state <= WORKER_RUN) {
		sooner(&deadline, core->beat_ms);
		sooner(&deadline, core->heard_ms + core->lost_ms);
	}
	if (core->state == WORKER_LEAVING)
		sooner(&deadline, core->leaving_ms + core->lost_ms);
	return deadline;
}

int worker_core_new(struct worker_core **out, const struct worker_core_options *options,
		    uint64_t now_ms, struct error *error)
{
	struct worker_core *core;

	int rc = core_check_job(options->job, error);

	if (rc)
		return rc;
	if (!options->layout == !options->holding)
		return error_set(error, ERROR_STATE, "a worker declares a layout or a holding");
	core = memory_zalloc(1, sizeof(*core));
	if (!core)
		return memory_is_out(error);
	core->options = *options;
	if (!core->options.resend_ms)
		core->options.resend_ms = RESEND_MS;
	core->lost_ms = SILENT_MS;
	patience_begin(&core->joining, now_ms);
	core->stepped_ms = core->heard_ms = now_ms;
	core->resend_ms = now_ms; /* hello goes out with the first tick */
	*out = core;
	return 0;
}

void worker_core_free(struct worker_core **out)
{
	struct worker_core *core = *out;

	if (!core)
		return;
	message_fini(&core->plan);
	message_fini(&core->peers);
	message_fini(&core->endpoints);
	memory_free(core);
	*out = NULL;
}

enum worker_state worker_core_state(const struct worker_core *core)
{
	return core->state;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/control/core_state.h"

#include "base/memory.h"
#include <stdio.h>

#define RESEND_MS    500
#define EXPIRED_MS   1000 /* how long a joined worker waits to hear who is missing */
#define UNREACHED_MS 1000 /* a controller that starts beside us is no news before */
#define SILENT_MS    5000 /* until a welcome says how long a controller may be silent */

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

#define TO(state) (1u << WORKER_##state)
/* state -> the states that may follow; with another plan the way to RUN begins anew */
static const unsigned follows[WORKER_STATE_COUNT] = {
	[WORKER_HELLO] = TO(HELLO) | TO(DECLARE) | TO(LEAVING) | TO(LEFT) | TO(FAILED),
	[WORKER_DECLARE] = TO(HELLO) | TO(PLANNED) | TO(LEAVING) | TO(FAILED),
	[WORKER_PLANNED] = TO(PLANNED) | TO(CONNECTING) | TO(LEAVING) | TO(FAILED),
	[WORKER_CONNECTING] = TO(PLANNED) | TO(CONNECTED) | TO(LEAVING) | TO(FAILED),
	[WORKER_CONNECTED] = TO(PLANNED) | TO(RUN) | TO(LEAVING) | TO(FAILED),
	[WORKER_RUN] = TO(PLANNED) | TO(LEAVING) | TO(FAILED),
	[WORKER_LEAVING] = TO(LEFT) | TO(FAILED),
};

void core_enter(struct worker_core *core, enum worker_state state)
{
	struct action *action = action_push(core->actions, WORKER_ACTION_STATE);

	WEFT_ASSERT(follows[core->state] & 1u << state);
	core->state = state;
	action->state = state;
	if (state == WORKER_FAILED)
		action->error = core->failure;
	say_latest(core);
}

bool core_is_taken_in(const struct worker_core *core)
{
	return core->state >= WORKER_DECLARE && (core->runs || core->paused_over ||
						 core->former_plans.count || core->stopped.number);
}

void core_fail(struct worker_core *core, const struct error *why, uint32_t told)
{
	WEFT_ASSERT_OP(why->code, !=, ERROR_NONE);
	if (core->state >= WORKER_LEFT)
		return;
	core->failure = *why;
	core->failure_sends = core->controller ? told : 0;
	core_enter(core, WORKER_FAILED);
}

/* One leave lets the controller go without waiting for us. */
void core_told_the_end(struct worker_core *core, int code, const char *text)
{
	struct error why;

	core->failure_sends = 0;
	if (core->state == WORKER_LEAVING)
		core_enter(core, WORKER_LEFT);
	if (core->state == WORKER_LEFT)
		return;
	error_set(&why, error_known(code) ? (enum error_code)code : ERROR_INTERNAL, "%s", text);
	core_fail(core, &why, 0);
	if (core->controller)
		say_leave(core);
}

/* Before the welcome nobody can be told: it goes on saying hello, and tells then. */
static void host_failed(struct worker_core *core, const struct error *why)
{
	if (core->state == WORKER_HELLO)
		core->owed = *why;
	else
		core_fail(core, why, FAILURE_SENDS);
}

static void broken(struct worker_core *core, const struct error *what)
{
	struct error why = *what;

	error_wrap(&why, "the controller at %s sent what cannot be read", core->options.controller);
	core_fail(core, &why, FAILURE_SENDS);
}

/* The host has let go of them. */
static void keep_peers(struct worker_core *core)
{
	message_fini(&core->peers_before);
	for (size_t i = 0; i < core->former_plans.count; i++) {
		struct message *former = &core->former_plans.items[i];

		if (former->type != MESSAGE_PEERS)
			continue;
		message_fini(&core->peers_before);
		core->peers_before = *former;
		*former = (struct message){0};
	}
}

static void take_endpoints(struct worker_core *core, const struct message_endpoints *endpoints)
{
	struct message borrowed = {.type = MESSAGE_ENDPOINTS, .u.endpoints = *endpoints};

	if (core->state != WORKER_PLANNED || core->endpoints_ready ||
	    endpoints->attempt != core->plan.u.plan.attempt)
		return;
	if (message_copy(&core->endpoints, &borrowed, NULL)) {
		core->actions->failed = true;
		return;
	}
	core->endpoints_ready = true;
	keep_peers(core);
	core_forget_plans(core);
	say_latest(core);
}

static void beat(struct worker_core *core)
{
	struct message message = {.type = MESSAGE_HEARTBEAT, .u.heartbeat.version = core->version};

	if (!core->controller || core->state < WORKER_DECLARE || core->state > WORKER_RUN)
		return;
	core->beat_ms = core->now_ms + core->heartbeat_ms;
	message.u.heartbeat.sequence = ++core->sequence;
	message.u.heartbeat.gone = heard_gone(core);
	say_copy(core, &message);
}

/* Its own to say until the controller has: see on_gone. */
static void take_drop(struct worker_core *core, const struct worker_event *event)
{
	struct drop drop = {event->member, *event->error, event->version, core->now_ms, false};

	if (!goes_on(core) || hear_is_gone(core, drop.member) ||
	    event->attempt != core->plan.u.plan.attempt)
		return;
	if (!array_add(&core->drops, drop))
		core->actions->failed = true;
	say_latest(core);
}

/* Of the pause that was asked for last. Or the host has stopped for the controller before this one, and sleeps. */
static void take_paused(struct worker_core *core, const struct worker_event *event)
{
	const struct message_paused said = {.number = event->number,
					    .stopped = event->done,
					    .next = event->next,
					    .version = event->version,
					    .repeats = event->repeats,
					    .between = event->between,
					    .anew = event->anew,
					    .promised = event->promised};

	if (core->state == WORKER_RUN && core->halts && !core->pause.number && event->done)
		core->stopped = said;
	if (core->state != WORKER_RUN || event->number != core->pause.number ||
	    event->number <= core->paused_over ||
	    (event->done && event->next && event->next < core->pause.version) ||
	    (event->done && event->promised && event->promised == core->pause.shows))
		return; /* asked for more since, or told to show what it has promised: it goes on */
	core->paused = said;
	say_latest(core);
}

void core_forget_plans(struct worker_core *core)
{
	for (size_t i = 0; i < core->former_plans.count; i++)
		message_fini(&core->former_plans.items[i]);
	core->former_plans.count = 0;
}

/* With a last heartbeat: who goes on and needs it is told up to which version it came. */
static void leave(struct worker_core *core, bool done)
{
	/* it failed, said so, and ends before the answer: the controller need not wait for it */
	if (core->state == WORKER_FAILED && core->failure_sends) {
		core->failure_sends = 0;
		say_leave(core);
	}
	if (core->state >= WORKER_LEAVING)
		return;
	core->done = done;
	core->leaving_ms = core->now_ms;
	beat(core);
	core_enter(core, core->controller ? WORKER_LEAVING : WORKER_LEFT);
	if (core->orphaned || core->adoption == ADOPTION_HELLO)
		core_enter(core, WORKER_LEFT); /* nobody answers */
}

/* How long the controller may be silent. Whoever runs needs it for nothing but what it is told of others. */
static uint64_t silence_ms(const struct worker_core *core)
{
	return core->lost_ms + (survives(core) ? (uint64_t)core->orphan_ms : 0);
}

static void go_on_alone(struct worker_core *core)
{
	core->orphaned = true;
	say(core, true,
	    "the controller at %s is silent for %.1f s (this worker at version %llu): %s, for %.1f s "
	    "at most (weft-controller --orphan)",
	    core->options.controller, (double)(core->now_ms - core->heard_ms) / 1000.0,
	    (unsigned long long)core->version,
	    core->halts || core->state != WORKER_RUN
		    ? "it had paused the job, which waits for it or another one"
		    : "updates go on without it",
	    core->orphan_ms / 1000.0);
}

static void check_silence(struct worker_core *core)
{
	struct error why;

	if (core->state == WORKER_LEAVING && core->now_ms >= core->leaving_ms + core->lost_ms)
		core_enter(core, WORKER_LEFT);
	if (core->state < WORKER_DECLARE || core->state > WORKER_RUN ||
	    core->now_ms < core->heard_ms + core->lost_ms)
		return;
	if (core->now_ms < core->heard_ms + silence_ms(core)) {
		if (!core->orphaned)
			go_on_alone(core);
		return;
	}
	error_set(&why, ERROR_CONTROLLER_LOST,
		  "the controller at %s is silent for %.1f s (this worker at version %llu); "
		  "restart the whole job",
		  core->options.controller, (double)(core->now_ms - core->heard_ms) / 1000.0,
		  (unsigned long long)core->version);
	core_fail(core, &why, 0);
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
		core_fail(core, &why, FAILURE_SENDS);
		return;
	}
	core->expired_ms = core->now_ms;
	core->failure = why;
	core->failure_sends = 1;
	say_failure(core);
}

static void check_join(struct worker_core *core)
{
	uint64_t waited = core->now_ms - core->joining.since_ms;
	uint64_t limit = core->options.join_timeout_ms;

	if (core->state > WORKER_CONNECTED || core_is_taken_in(core))
		return;
	if (core->owed.code == ERROR_NONE)
		say_unreached(core);
	switch (patience_look(&core->joining, core->now_ms, limit)) {
	case PATIENCE_ENDS:
		late(core, waited);
		break;
	case PATIENCE_WARNS:
		if (core->owed.code != ERROR_NONE)
			break; /* its host does not wait for the job */
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
	if (core->now_ms >= core->beat_ms)
		beat(core);
	if (core->now_ms >= core->resend_ms)
		say_latest(core);
}

static void take(struct worker_core *core, const struct worker_event *event)
{
	switch (event->type) {
	case WORKER_EVENT_RECEIVED:
		hear_message(core, event->message);
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
		if (core->state == WORKER_CONNECTING && event->attempt == core->plan.u.plan.attempt)
			core_enter(core, WORKER_CONNECTED);
		break;
	case WORKER_EVENT_PAUSED:
		take_paused(core, event);
		break;
	case WORKER_EVENT_FAILURE:
		host_failed(core, event->error);
		break;
	case WORKER_EVENT_DROP:
		take_drop(core, event);
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

static bool says_no_more(const struct worker_core *core)
{
	return core->state == WORKER_LEFT || (core->state == WORKER_FAILED && !core->failure_sends);
}

uint64_t worker_core_deadline_ms(const struct worker_core *core)
{
	uint64_t limit = core->options.join_timeout_ms, deadline = UINT64_MAX;

	if (says_no_more(core))
		return deadline;
	if (say_resends(core))
		sooner(&deadline, core->resend_ms);
	if (core->state <= WORKER_CONNECTED && !core_is_taken_in(core))
		sooner(&deadline, core->expired_ms ? core->expired_ms + EXPIRED_MS
						   : patience_next_ms(&core->joining, limit));
	if (core->state >= WORKER_DECLARE && core->state <= WORKER_RUN) {
		sooner(&deadline, core->beat_ms);
		sooner(&deadline,
		       core->heard_ms + (core->orphaned ? silence_ms(core) : core->lost_ms));
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
	if (options->failure.code == ERROR_NONE && !options->layout == !options->holding)
		return error_set(error, ERROR_STATE, "a worker declares a layout or a holding");
	core = memory_zalloc(1, sizeof(*core));
	if (!core)
		return memory_is_out(error);
	core->options = *options;
	core->owed = options->failure;
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
	message_fini(&core->peers_before);
	core_forget_plans(core);
	array_free(&core->former_plans);
	array_free(&core->drops);
	array_free(&core->left);
	array_free(&core->engines_lost);
	array_free(&core->engines_done);
	memory_free(core);
	*out = NULL;
}

struct members worker_core_blamed(const struct worker_core *core)
{
	return core->blamed;
}

bool worker_core_settled(const struct worker_core *core)
{
	return says_no_more(core) && core->controller;
}

enum worker_state worker_core_state(const struct worker_core *core)
{
	return core->state;
}

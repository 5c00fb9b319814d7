/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/control/core_state.h"

#include <stdio.h>
#include <string.h>

static bool is_former(const struct worker_core *core, uint64_t controller)
{
	for (uint32_t i = 0; i < FORMER_COUNT; i++)
		if (core->former[i] == controller)
			return true;
	return false;
}

/* What it still says is known for its. */
static void give_up_controller(struct worker_core *core)
{
	core->former[core->former_count++ % FORMER_COUNT] = core->controller;
}

/* It asks that one to take the job over. */
static bool asks_other(struct worker_core *core, uint64_t other)
{
	if (!survives(core))
		return false;
	if (core->adoption == ADOPTION_HELLO && core->candidate == other)
		return true;
	core->candidate = other;
	core->adoption = ADOPTION_HELLO;
	say(core, true,
	    "another controller answers at %s (incarnation %016llx, was %016llx): asking it to take "
	    "the job over, which %s meanwhile",
	    core->options.controller, (unsigned long long)other,
	    (unsigned long long)core->controller,
	    core->state == WORKER_RUN && !core->halts ? "runs on" : "waits");
	say_latest(core);
	return true;
}

/* All of so many, from that one on. */
static bool are_among(const struct members *all, size_t all_count, struct member first,
		      uint32_t count)
{
	for (size_t i = 0; i < all_count; i++) {
		struct members some = all[i];

		if (member_within(first, some.first, some.count))
			return count <= some.count - (first.rank - some.first.rank);
	}
	return false;
}

static bool is_away(const struct message_plan *plan, struct member first, uint32_t count)
{
	return are_among(plan->away, plan->away_count, first, count);
}

/* Who was told by the last one to be gone is told to the next one, which may have them for alive. */
static void drop_who_left(struct worker_core *core)
{
	for (size_t i = 0; i < core->left.count; i++) {
		struct drop drop = {.member = core->left.items[i].first,
				    .version = core->version,
				    .since_ms = core->now_ms,
				    .said = true};

		error_set(&drop.why, ERROR_PEER_LOST,
			  "the controller before this one had said that it is gone");
		if (drop.member.role != core->options.hello.role &&
		    !is_away(&core->plan.u.plan, drop.member, 1) && !array_add(&core->drops, drop))
			core->actions->failed = true;
	}
	core->left.count = 0;
}

/* Nothing of the other one's is known to it: who has left is told anew. */
static void on_adoption(struct worker_core *core, const struct message *message)
{
	if (core->controller != message->u.welcome.controller)
		give_up_controller(core);
	core->controller = message->u.welcome.controller;
	core->epoch = message->epoch;
	core->adoption = ADOPTION_DECLARE;
	core->orphaned = core->wanted = false;
	drop_who_left(core);
	core->left_before = 0;
	if (core->paused.stopped)
		core->stopped = core->paused;
	core->anew = false;
	core->pause = (struct message_pause){0};
	core->paused = (struct message_paused){0};
	core->paused_over = 0;
}

/* It has forgotten this worker, which was silent to it for too long. */
static void ask_again(struct worker_core *core)
{
	core->candidate = core->controller;
	core->adoption = ADOPTION_HELLO;
	say_latest(core);
}

static void take_times(struct worker_core *core, const struct message_welcome *welcome)
{
	core->heartbeat_ms = welcome->heartbeat_ms;
	core->lost_ms = welcome->lost_ms;
	core->orphan_ms = welcome->orphan_ms;
	core->heard_ms = core->now_ms;
	core->beat_ms = core->now_ms + core->heartbeat_ms;
}

/* The address answers, but it is another controller (other != 0) or one that forgot us. */
static void start_over(struct worker_core *core, uint64_t other)
{
	struct error why;

	if (core->state == WORKER_LEAVING)
		core_enter(core, WORKER_LEFT);
	if (core->state >= WORKER_LEFT || (other && asks_other(core, other)))
		return;
	if (core->state >= WORKER_PLANNED) {
		error_set(
			&why, ERROR_CONTROLLER_LOST,
			"the controller at %s was restarted (incarnation %016llx, was %016llx), so "
			"the plan of epoch %llu is gone; restart the whole job",
			core->options.controller, (unsigned long long)other,
			(unsigned long long)core->controller, (unsigned long long)core->epoch);
		core_fail(core, &why, 0);
		return;
	}
	say(core, true, "the controller at %s %s: joining again", core->options.controller,
	    other ? "was restarted" : "does not know this worker");
	WEFT_ASSERT(core->controller);
	if (other) {
		give_up_controller(core);
		core->controller = 0;
	}
	core->epoch = 0;
	core->wanted = core->runs = false;
	core_enter(core, WORKER_HELLO);
}

static void say_waits(struct worker_core *core)
{
	bool trainer = core->options.holding != NULL;

	say(core, true,
	    "the job at %s runs: this %s comes in when %s and trainers begin their next "
	    "update",
	    core->options.controller, trainer ? "trainer" : "engine",
	    trainer ? "ranks have what the one before it ended" : "all its ranks are here");
}

static void on_welcome(struct worker_core *core, struct message *message)
{
	if (core->adoption == ADOPTION_HELLO && message->from == core->controller &&
	    core->candidate != core->controller) { /* it was silent, and is not lost */
		core->adoption = ADOPTION_NONE;
		say_latest(core);
		return;
	}
	if (core->adoption == ADOPTION_HELLO) {
		on_adoption(core, message);
		take_times(core, &message->u.welcome);
		say_latest(core);
	}
	if (core->state == WORKER_DECLARE && message->u.welcome.runs && !core->runs) {
		core->runs = true; /* it began without us */
		say_waits(core);
	}
	if (core->state != WORKER_HELLO)
		return;
	core->controller = message->u.welcome.controller;
	core->runs = message->u.welcome.runs;
	core->epoch = message->epoch;
	take_times(core, &message->u.welcome);
	if (core->owed.code != ERROR_NONE) {
		core_fail(core, &core->owed, FAILURE_SENDS);
		return;
	}
	core_enter(core, WORKER_DECLARE);
	if (core->runs)
		say_waits(core);
}

static void on_refuse(struct worker_core *core, struct message *message)
{
	const struct message_refuse *refuse = &message->u.refuse;

	if (refuse->code != ERROR_CONTROLLER_LOST)
		core_told_the_end(core, refuse->code, refuse->text);
	/* "never saw you": a late answer, unless this is the controller that we joined */
	else if (core->state == WORKER_DECLARE)
		start_over(core, 0);
	else if (core->adoption == ADOPTION_DECLARE)
		ask_again(core);
}

static void on_want(struct worker_core *core, struct message *message)
{
	bool ours = false;

	if (core->state != WORKER_DECLARE && core->adoption != ADOPTION_DECLARE)
		return;
	for (size_t i = 0; i < message->u.want.digest_count; i++)
		ours |= digest_equal(message->u.want.digests[i], core->options.declare.digest);
	if (ours && !core->wanted) {
		core->wanted = true;
		say_latest(core);
	}
	core->wanted = ours;
}

/* Another one, after a pause; or in the place of one that is being exchanged. Who is gone of the last one is heard first. */
static bool is_next_plan(const struct worker_core *core, const struct message_plan *plan)
{
	return goes_on(core) && core->adoption == ADOPTION_NONE &&
	       plan->attempt > core->plan.u.plan.attempt &&
	       (core->state != WORKER_RUN || core->paused.stopped) &&
	       plan->gone == heard_gone(core);
}

static void keep_former(struct worker_core *core, struct message *message)
{
	if (!array_add(&core->former_plans, *message)) {
		core->actions->failed = true;
		message_fini(message);
	}
	*message = (struct message){0};
}

/* What becomes of a version that it has promised, in what it says to another controller. */
static void settle(struct message_paused *stopped, const struct message_plan *plan)
{
	if (stopped->promised && stopped->promised == plan->shows)
		stopped->version = stopped->promised;
	else if (stopped->promised)
		stopped->repeats = false;
	stopped->promised = 0;
}

static void on_plan(struct worker_core *core, struct message *message)
{
	struct error why;

	if (core->state != WORKER_DECLARE && !is_next_plan(core, &message->u.plan))
		return;
	WEFT_ASSERT_OP(core->state == WORKER_DECLARE, ==, !have_plan(core));
	if (message->u.plan.rows_of &&
	    message_plan_complete(&message->u.plan, &core->plan.u.plan, &why)) {
		core_fail(core, &why, FAILURE_SENDS);
		return;
	}
	if (have_plan(core)) {
		keep_former(core, &core->plan);
		keep_former(core, &core->peers);
		message_fini(&core->endpoints);
		core->endpoints_ready = false;
		core->paused_over = core->pause.number;
		if (core->paused.stopped)
			core->stopped = core->paused;
		settle(&core->stopped, &message->u.plan);
		core->anew = core->halts = false;
		core->paused = (struct message_paused){0};
		core->drops.count = 0;
	}
	core->left_before = message->u.plan.gone;
	core->left.count = core->engines_lost.count = core->engines_done.count = 0;
	core->plan = *message;
	*message = (struct message){0};
	say(core, false, "plan attempt %u: %zu rows, %zu peers", core->plan.u.plan.attempt,
	    core->plan.u.plan.row_count, core->plan.u.plan.peer_count);
	core_enter(core, WORKER_PLANNED);
	action_push(core->actions, WORKER_ACTION_OPEN)->plan = &core->plan.u.plan;
}

static void on_peers(struct worker_core *core, struct message *message)
{
	struct error why;

	if (core->state != WORKER_PLANNED || !core->endpoints_ready ||
	    message->u.peers.attempt != core->plan.u.plan.attempt)
		return;
	if (message_peers_complete(&message->u.peers, &core->plan.u.plan,
				   &core->peers_before.u.peers, &why)) {
		error_wrap(&why,
			   "the controller at %s sent endpoints of other peers than its plan names",
			   core->options.controller);
		core_fail(core, &why, FAILURE_SENDS);
		return;
	}
	WEFT_ASSERT(!have_peers(core));
	core->peers = *message;
	*message = (struct message){0};
	core_enter(core, WORKER_CONNECTING);
	action_push(core->actions, WORKER_ACTION_CONNECT)->peers = &core->peers.u.peers;
}

/* A plan of another attempt is none that it runs by: then it is asked to stop, where it has, and sent another one. */
static void is_adopted(struct worker_core *core, bool runs)
{
	core->adoption = ADOPTION_NONE;
	core->anew = !runs;
	say(core, true, "the controller at %s has taken the job over: %s", core->options.controller,
	    runs ? "the plan is what it was" : "another plan is made");
	say_latest(core);
}

static void on_go(struct worker_core *core, struct message *message)
{
	bool ours = have_plan(core) && message->u.go.attempt == core->plan.u.plan.attempt;

	if (ours && core->state == WORKER_CONNECTED) {
		core->stopped = (struct message_paused){0};
		core_enter(core, WORKER_RUN);
	}
	if (core->adoption == ADOPTION_DECLARE && have_plan(core) &&
	    message->u.go.attempt >= core->plan.u.plan.attempt)
		is_adopted(core, ours);
}

static void on_heartbeat(struct worker_core *core, struct message *message)
{
	if (core->state == WORKER_LEAVING && message->u.heartbeat.sequence == 0)
		core_enter(core, WORKER_LEFT);
}

static void on_lost(struct worker_core *core, struct message *message)
{
	if (core->state < WORKER_LEFT)
		core->blamed = (struct members){message->u.lost.member, 1};
	core_told_the_end(core, message->u.lost.code, message->u.lost.text);
}

bool hear_is_gone(const struct worker_core *core, struct member member)
{
	for (size_t i = 0; i < core->left.count; i++)
		if (member_within(member, core->left.items[i].first, core->left.items[i].count))
			return true;
	return false;
}

static void say_gone(struct worker_core *core, const struct message_gone *gone)
{
	uint32_t rank = gone->first.rank;

	if (!gone->code)
		return;
	if (gone->first.role == ROLE_TRAINER)
		say(core, true, "the job goes on without trainer %u: %s", rank, gone->text);
	else
		say(core, true, "the job goes on without inference %u..%u: %s", rank,
		    rank + gone->count - 1, gone->text);
}

/* For the next controller, if this one is lost. Another one may have told it before. */
static void note_engine(struct worker_core *core, const struct message_gone *gone)
{
	struct members engine = {gone->first, gone->count};
	bool known = are_among(core->engines_lost.items, core->engines_lost.count, gone->first,
			       gone->count) ||
		     are_among(core->engines_done.items, core->engines_done.count, gone->first,
			       gone->count);

	if (known || gone->first.role != ROLE_INFERENCE)
		return;
	if (gone->code ? !array_add(&core->engines_lost, engine)
		       : !array_add(&core->engines_done, engine))
		core->actions->failed = true;
}

/* One that was missed comes again: heartbeats say how many were heard. */
static void on_gone(struct worker_core *core, struct message *message)
{
	const struct message_gone *gone = &message->u.gone;
	struct action *action;
	size_t kept = 0;

	if (!goes_on(core) || gone->number - gone->departures != heard_gone(core))
		return;
	if (!array_add(&core->left, (struct left){gone->first, gone->count, gone->number})) {
		core->actions->failed = true;
		return;
	}
	if (is_away(&core->plan.u.plan, gone->first, gone->count))
		return; /* another controller tells of all */
	note_engine(core, gone);
	for (size_t i = 0; i < core->drops.count; i++)
		if (!hear_is_gone(core, core->drops.items[i].member))
			core->drops.items[kept++] = core->drops.items[i];
	core->drops.count = kept;
	say_gone(core, gone);
	action = action_push(core->actions, WORKER_ACTION_GONE);
	action->message.u.gone = (struct message_gone){
		.number = gone->number, .first = gone->first, .count = gone->count};
	action->error.code = (enum error_code)gone->code;
	snprintf(action->error.text, sizeof(action->error.text), "%s", gone->text);
}

/* It has stopped where it is to: a trainer before that version, a rank when it has that. */
static bool stopped_there(const struct worker_core *core, const struct message_pause *pause)
{
	/* with a promise that it is told to keep now */
	if (core->state == WORKER_RUN && core->stopped.promised &&
	    core->stopped.promised == pause->shows)
		return false;
	return core->state != WORKER_RUN || core->stopped.next > pause->version ||
	       (core->options.holding && core->stopped.next == pause->version);
}

/* Asked again until it is answered; and anew, for a later version, by a controller whose trainers were not before one. */
static void on_pause(struct worker_core *core, struct message *message)
{
	const struct message_pause *pause = &message->u.pause;
	bool anew = pause->number != core->pause.number || pause->version != core->pause.version ||
		    pause->stop != core->pause.stop || pause->shows != core->pause.shows;

	/* before its go a controller does not know where this worker is: it asks again; and one that has not heard of a trainer
	   that is gone would stop as if all that it waits for came later, and its mates wait for it */
	if (heard_gone(core) < pause->gone || core->adoption != ADOPTION_NONE ||
	    (core->state != WORKER_RUN && !stands(core)) || pause->number <= core->paused_over ||
	    pause->number < core->pause.number)
		return;
	core->pause = *pause;
	if (!anew)
		return;
	core->paused = (struct message_paused){0};
	if (stands(core) && !pause->stop)
		return;
	if (stands(core) && stopped_there(core, pause)) {
		core->paused = core->stopped;
		core->paused.number = pause->number;
		say_latest(core);
		return;
	}
	core->stopped = (struct message_paused){0};
	core->halts = core->halts || pause->stop;
	action_push(core->actions, WORKER_ACTION_PAUSE)->message.u.pause = *pause;
}

typedef void (*handler)(struct worker_core *, struct message *);
static const handler handlers[MESSAGE_TYPE_COUNT] = {
	[MESSAGE_WELCOME] = on_welcome, [MESSAGE_REFUSE] = on_refuse,
	[MESSAGE_WANT] = on_want,	[MESSAGE_PLAN] = on_plan,
	[MESSAGE_PEERS] = on_peers,	[MESSAGE_GO] = on_go,
	[MESSAGE_LOST] = on_lost,	[MESSAGE_HEARTBEAT] = on_heartbeat,
	[MESSAGE_GONE] = on_gone,	[MESSAGE_PAUSE] = on_pause,
};

void hear_message(struct worker_core *core, struct message *message)
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
	} else if (core->adoption == ADOPTION_HELLO && opens && message->from == core->candidate &&
		   (!refuse || message->u.refuse.code != ERROR_CONTROLLER_LOST)) {
		handlers[message->type](core, message);
	} else if (message->from != core->controller) {
		start_over(core, message->from);
	} else if (opens || message->epoch == core->epoch) { /* else stale: of another plan */
		core->heard_ms = core->now_ms;
		if (core->orphaned)
			say(core, true, "the controller at %s is heard again",
			    core->options.controller);
		core->orphaned = false;
		handlers[message->type](core, message);
	}
}

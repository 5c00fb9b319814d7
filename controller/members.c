/* SPDX-License-Identifier: Apache-2.0
 *
 * members.c -- who joins, who claims whose place, who shows that it lives, who leaves.
 */
#include "controller/state.h"

#include <stdio.h>

void members_welcome(struct controller *controller, const struct slot *slot)
{
	struct message *message = send_to(controller, slot->peer, MESSAGE_WELCOME);

	message->u.welcome.heartbeat_ms = controller->options.heartbeat_ms;
	message->u.welcome.lost_ms = controller->options.lost_ms;
	message->u.welcome.controller = controller->options.incarnation;
	message->u.welcome.runs = controller->epoch && !exchange_has(controller, slot);
	message->u.welcome.orphan_ms = controller->options.orphan_ms;
}

static void join(struct controller *controller, struct slot *slot, const char *peer,
		 struct message *message)
{
	struct membership *members = &controller->members;
	bool first = members->in[PRESENCE_ABSENT] == members->count;
	char who[WORKER_TEXT_BYTES];

	WEFT_ASSERT_OP(controller->state, <=, CONTROLLER_RUN);
	if (membership_join(members, slot, peer, &message->u.hello, controller->now_ms)) {
		no_memory(controller);
		return;
	}
	absent_came(controller);
	if (first && controller->state == CONTROLLER_GATHER) /* the wait starts with it */
		patience_begin(&controller->patience, controller->now_ms);
	say(controller, false, "%s joins, %u of %u here", slot_text(slot, who),
	    members->count - members->in[PRESENCE_ABSENT] - members->in[PRESENCE_LOST],
	    members->count);
	members_welcome(controller, slot);
}

static void out_of_range(struct controller *controller, const char *peer,
			 const struct message *message, uint32_t world)
{
	const struct message_hello *hello = &message->u.hello;
	char spec[PARALLEL_TEXT_BYTES], name[MEMBER_TEXT_BYTES];
	bool trainer = hello->role == ROLE_TRAINER;
	struct error why;

	if (trainer)
		train_spec_text(&controller->options.train, spec);
	else
		infer_spec_text(&controller->options.infer, spec);
	error_set(&why, ERROR_CONFIG,
		  "there is no %s in this job (host %s, pid %llu): the controller was started "
		  "with --%s %.300s, which has ranks 0..%u; start fewer or change the spec",
		  member_text((struct member){hello->role, hello->rank}, name), hello->host,
		  (unsigned long long)hello->pid, trainer ? "train" : "infer", spec, world - 1);
	say_refused(controller, peer, message->epoch, &why);
}

/* Several processes may claim one rank in turn: the holder has to show itself once for all of
 * them, and not once more after each. A claim that it outlived long ago is over. */
static bool claim_begins(const struct controller *controller, const struct slot *slot)
{
	uint64_t fresh = 2 * (uint64_t)controller->options.heartbeat_ms;

	if (!slot->claim)
		return true;
	return !slot_claim_open(slot, controller->options.heartbeat_ms) &&
	       controller->now_ms >= slot->heard_ms + fresh;
}

/* Another incarnation wants a rank that is held. Who is right shows within a heartbeat or
 * lost_ms; until then the claim is not answered, and the newcomer says hello again. */
static void claim(struct controller *controller, struct slot *slot, const char *peer,
		  struct message *message)
{
	const struct message_hello *hello = &message->u.hello;
	char who[WORKER_TEXT_BYTES];
	struct error why;

	WEFT_ASSERT_OP(slot->worker->hello.incarnation, !=, hello->incarnation);
	if (gone_makes_room(controller, slot)) {
		join(controller, slot, peer, message);
		return;
	}
	if (slot->presence == PRESENCE_LEFT) {
		error_set(&why, ERROR_DUPLICATE_RANK,
			  "%s has done its work and left this job; the process on host %s, pid "
			  "%llu comes too late",
			  slot_text(slot, who), hello->host, (unsigned long long)hello->pid);
		say_refused(controller, peer, message->epoch, &why);
		return;
	}
	/* that one was stopped while this one came in its place, and their controller is lost */
	if (controller->state == CONTROLLER_GATHER && slot->worker->hello.attempt &&
	    hello->attempt > slot->worker->hello.attempt) {
		error_set(
			&why, ERROR_CONFLICT,
			"%s runs by plan attempt %u, and the process on host %s, pid %llu by %u: it "
			"has taken its place",
			slot_text(slot, who), slot->worker->hello.attempt, hello->host,
			(unsigned long long)hello->pid, hello->attempt);
		declarations_turn_away(controller, slot, &why);
		join(controller, slot, peer, message);
		return;
	}
	if (slot->claim != hello->incarnation) {
		bool anew = claim_begins(controller, slot);

		slot->claim = hello->incarnation;
		if (anew) {
			slot->claim_ms = controller->now_ms;
			say_noise(controller,
				  "%s is claimed by another process (host %s, pid %llu): waiting "
				  "for a heartbeat of the first",
				  slot_text(slot, who), hello->host,
				  (unsigned long long)hello->pid);
		}
	}
	if (!slot_claim_open(slot, controller->options.heartbeat_ms)) {
		error_set(&why, ERROR_DUPLICATE_RANK,
			  "%s holds its rank and is alive, so the process on host %s, pid %llu is "
			  "refused; start each rank once",
			  slot_text(slot, who), hello->host, (unsigned long long)hello->pid);
		slot->claim = 0;
		say_refused(controller, peer, message->epoch, &why);
	} else if (controller->now_ms < slot->heard_ms + controller->options.lost_ms) {
		return;
	} else if (exchange_has(controller, slot)) {
		losses_restarted(&why, controller, slot);
		losses_end(controller, slot, &why);
	} else {
		say(controller, true, "%s fell silent; host %s, pid %llu takes its place",
		    slot_text(slot, who), hello->host, (unsigned long long)hello->pid);
		declarations_drop(controller, slot);
		join(controller, slot, peer, message);
	}
}

/* It ran on without its controller, and comes when this one has begun with others. */
static void of_another_job(struct controller *controller, const char *peer,
			   const struct message *message)
{
	const struct message_hello *hello = &message->u.hello;
	char name[MEMBER_TEXT_BYTES];
	struct error why;

	error_set(
		&why, ERROR_CONFLICT,
		"%s (host %s, pid %llu) runs by a plan of a controller that was lost, and this one "
		"has made another since, without it: start it again, and it comes in",
		member_text((struct member){hello->role, hello->rank}, name), hello->host,
		(unsigned long long)hello->pid);
	say_refused(controller, peer, message->epoch, &why);
}

void members_hello(struct controller *controller, const char *peer, struct message *message)
{
	const struct message_hello *hello = &message->u.hello;
	struct membership *members = &controller->members;
	struct slot *slot = membership_slot(members, hello->role, hello->rank);

	if (!slot) {
		out_of_range(controller, peer, message, membership_world(members, hello->role));
	} else if (slot->worker && slot->worker->hello.incarnation == hello->incarnation) {
		membership_heard(slot, peer, controller->now_ms);
		if (controller->state == CONTROLLER_FAILED)
			ending_answer(controller, slot, message);
		else
			members_welcome(controller, slot);
	} else if (controller->state == CONTROLLER_FAILED) {
		ending_answer_late(controller, slot, peer, message);
	} else if (controller->epoch && hello->attempt) {
		of_another_job(controller, peer, message);
	} else if (slot->presence == PRESENCE_ABSENT) {
		join(controller, slot, peer, message);
	} else {
		claim(controller, slot, peer, message);
	}
}

static void beat(struct controller *controller, const struct slot *slot, uint64_t sequence)
{
	send_to(controller, slot->peer, MESSAGE_HEARTBEAT)->u.heartbeat.sequence = sequence;
}

void members_heartbeat(struct controller *controller, struct slot *slot, struct message *message)
{
	if (message->u.heartbeat.version > slot->version) {
		slot->version = message->u.heartbeat.version;
		status_version(controller, slot);
	}
	beat(controller, slot, message->u.heartbeat.sequence);
	if (exchange_has(controller, slot)) {
		gone_tell(controller, slot, message->u.heartbeat.gone);
		returns_remind(controller, slot);
		settle_look(controller);
		if (controller->exchanges_again)
			exchange_replay_plan(controller, slot);
	}
	declarations_maybe_plan(controller);
}

/* Who has yet to come in is not. */
static uint32_t still_here(const struct controller *controller)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < controller->members.count; i++) {
		const struct slot *slot = &controller->members.slots[i];

		count += exchange_serves(controller, slot);
	}
	return count;
}

void members_send_home(struct controller *controller)
{
	struct error why;

	error_set(&why, ERROR_DUPLICATE_RANK,
		  "the job is done: all its workers have left, and nothing is left to come in for");
	for (uint32_t i = 0; i < controller->members.count; i++) {
		const struct slot *slot = &controller->members.slots[i];

		if (slot_serves(slot))
			say_refused(controller, slot->peer, controller->number, &why);
	}
}

void members_maybe_done(struct controller *controller)
{
	uint32_t lost = gone_lost(controller, ROLE_INFERENCE),
		 trainers = gone_lost(controller, ROLE_TRAINER);
	char more[48] = "";

	if (still_here(controller))
		return;
	members_send_home(controller);
	if (trainers)
		snprintf(more, sizeof(more), ", trainers: %u of %u", trainers,
			 controller->members.trainers);
	if (lost || trainers)
		say(controller, true,
		    "done: all others have left; engines that were lost: %u of %u%s", lost,
		    controller->options.infer.engines, more);
	else
		say(controller, false, "done: all have left");
	controller_exit(controller, NULL);
}

void members_leave(struct controller *controller, struct slot *slot, struct message *message)
{
	struct membership *members = &controller->members;
	char who[WORKER_TEXT_BYTES];
	struct error why;

	beat(controller, slot, 0);
	if (slot->presence == PRESENCE_LEFT)
		return;
	if (controller->state == CONTROLLER_GATHER && message->u.leave.done &&
	    slot->worker->hello.attempt) {
		takeover_done(controller, slot);
		return;
	}
	if ((controller->state >= CONTROLLER_EXCHANGE && !exchange_has(controller, slot)) ||
	    (!message->u.leave.done &&
	     (takeover_can_do_without(controller, slot) || takeover_may_come(controller)))) {
		say(controller, true, "%s gives up before it has come in: its place is free again",
		    slot_text(slot, who));
		declarations_drop(controller, slot);
		return;
	}
	membership_gone(members, slot, PRESENCE_LEFT);
	slot->done = message->u.leave.done;
	if (!message->u.leave.done || controller->state != CONTROLLER_RUN) {
		error_set(&why, ERROR_PEER_LOST, "%s left %s", slot_text(slot, who),
			  message->u.leave.done
				  ? "before the job ran"
				  : "before its work was done (interrupted or failed)");
		losses_end(controller, slot, &why);
		return;
	}
	say(controller, false, "%s leaves, its work done, %u of %u still here",
	    slot_text(slot, who), still_here(controller), members->count);
	gone_done(controller, slot);
	returns_look(controller);
	members_maybe_done(controller);
}

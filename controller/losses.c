/* SPDX-License-Identifier: Apache-2.0
 *
 * losses.c -- workers that fall silent, failures that workers report, and whom to blame for them.
 */
#include "controller/state.h"

#include <stdio.h>

void losses_end(struct controller *controller, const struct slot *blamed, const struct error *why)
{
	if (gone_may(controller, blamed))
		gone_leave(controller, blamed, why);
	else
		ending_fail(controller, blamed, why);
}

static double silent_for(const struct controller *controller, const struct slot *slot)
{
	return (double)(controller->now_ms - slot->heard_ms) / 1000.0;
}

void losses_restarted(struct error *why, const struct controller *controller,
		      const struct slot *slot)
{
	char who[WORKER_TEXT_BYTES];

	error_set(why, ERROR_PEER_LOST,
		  "%s was restarted: silent for %.1f s, and a new process claims its rank%s",
		  slot_text(slot, who), silent_for(controller, slot),
		  controller->continues ? "" : "; restart the whole job");
}

/* What a worker only saw at a peer or a clock: the cause may be elsewhere. */
static bool is_symptom(int code)
{
	return code == ERROR_PEER_LOST || code == ERROR_TRANSPORT || code == ERROR_TIMEOUT;
}

/* A peer of the reporter, by the plan, that left and did no version that the reporter has not: who goes on waits for
 * it in vain. NULL: nobody is, and what the reporter waits for is another's. */
static const struct slot *left_early(const struct controller *controller,
				     const struct slot *reporter)
{
	const struct membership *members = &controller->members;
	const struct party *party = &controller->epoch->parties[reporter - members->slots];
	const struct slot *first = NULL;

	for (size_t i = 0; i < party->peer_count; i++) {
		const struct slot *slot = &members->slots[party->peers[i]];

		/* who was sent a copy, or sent one, is waited for no more */
		if (epoch_copy_of(party, &controller->epoch->parties[party->peers[i]]) != COPY_NONE)
			continue;
		if (slot->presence == PRESENCE_LEFT && slot->done && !gone_is(controller, slot) &&
		    slot->version <= reporter->version &&
		    (!first || slot->version < first->version))
			first = slot;
	}
	return first;
}

static void left_early_text(struct error *why, const struct slot *early,
			    const struct slot *reporter, const char *text)
{
	char who[WORKER_TEXT_BYTES], whom[WORKER_TEXT_BYTES];

	error_set(
		why, ERROR_PEER_LOST,
		"%s did its work and left after version %llu, but %s, which is at version %llu, goes "
		"on and needs it: give all workers the same number of updates (--updates); it says: %.400s",
		slot_text(early, who), (unsigned long long)early->version,
		slot_text(reporter, whom), (unsigned long long)reporter->version, text);
}

/* The job fails because of the silent one, and not of the worker that ran into it. */
static void blame_silent(struct controller *controller, struct slot *silent,
			 const struct slot *reporter, const char *text)
{
	char who[WORKER_TEXT_BYTES], whom[WORKER_TEXT_BYTES];
	struct error why;

	WEFT_ASSERT(silent != reporter);
	error_set(&why, ERROR_PEER_LOST,
		  "%s was lost: silent for %.1f s, last heard of at version %llu; %s says: %.500s",
		  slot_text(silent, who), silent_for(controller, silent),
		  (unsigned long long)silent->version, slot_text(reporter, whom), text);
	membership_gone(&controller->members, silent, PRESENCE_LOST);
	losses_end(controller, silent, &why);
}

/* With its own words. That its host interrupted it is, for the others, the loss of a worker. */
static void failed_text(struct error *why, const struct slot *slot, bool running,
			const struct message_failure *failure)
{
	enum error_code code =
		error_known(failure->code) ? (enum error_code)failure->code : ERROR_INTERNAL;
	char who[WORKER_TEXT_BYTES], when[48] = "before the job ran";

	if (running)
		snprintf(when, sizeof(when), "at version %llu", (unsigned long long)slot->version);
	error_set(why, code == ERROR_INTERRUPTED ? ERROR_PEER_LOST : code, "%s failed %s: %.700s",
		  slot_text(slot, who), when, failure->text);
}

void losses_report(struct controller *controller, struct slot *slot, struct message *message)
{
	const struct message_failure *failure = &message->u.failure;
	bool running = controller->state == CONTROLLER_RUN;
	char who[WORKER_TEXT_BYTES];
	char refused[ERROR_TEXT_BYTES] = "";
	struct text missing = {0};
	const struct slot *early = NULL;
	struct slot *silent = NULL;
	struct error why;

	WEFT_ASSERT_OP(controller->state, <=, CONTROLLER_RUN);
	if ((controller->epoch && !exchange_has(controller, slot)) ||
	    takeover_can_do_without(controller, slot)) {
		failed_text(&why, slot, false, failure);
		declarations_turn_away(controller, slot, &why);
		return;
	}
	if (failure->version > slot->version)
		slot->version = failure->version;
	/* workers report a symptom only after two heartbeats, so a dead peer shows here long before
	   its silence alone would end the job */
	if (controller->state != CONTROLLER_GATHER && is_symptom(failure->code))
		silent = membership_most_silent(&controller->members, slot, controller->now_ms,
						2 * (uint64_t)controller->options.heartbeat_ms);
	if (silent && exchange_has(controller, silent)) {
		blame_silent(controller, silent, slot, failure->text);
		return;
	}
	/* who did all its updates and left is no loss; who still needs it is told so */
	if (running && is_symptom(failure->code))
		early = left_early(controller, slot);
	if (!running && failure->code == ERROR_TIMEOUT)
		view_missing(controller, &missing); /* which the worker could not know */
	if (missing.bytes)
		view_refused(controller, refused, sizeof(refused));
	if (early)
		left_early_text(&why, early, slot, failure->text);
	else if (missing.bytes)
		error_set(&why, ERROR_TIMEOUT, "waiting for %.300s%.400s; %s has given up: %.400s",
			  text_string(&missing), refused, slot_text(slot, who), failure->text);
	else
		failed_text(&why, slot, running, failure);
	text_fini(&missing);
	losses_end(controller, early ? early : slot, &why);
}

static void lost(struct controller *controller, struct slot *slot)
{
	char who[WORKER_TEXT_BYTES];
	struct text versions = {0};
	struct error why;

	WEFT_ASSERT_OP(controller->now_ms, >=, slot->heard_ms + controller->options.lost_ms);
	if (!exchange_has(controller, slot)) {
		say(controller, true, "%s is silent for %.1f s: its place is free again",
		    slot_text(slot, who), silent_for(controller, slot));
		declarations_drop(controller, slot);
		return;
	}
	membership_versions(&controller->members, &versions);
	if (slot_claim_open(slot, controller->options.heartbeat_ms))
		losses_restarted(&why, controller, slot);
	else
		error_set(&why, ERROR_PEER_LOST,
			  "%s was lost: silent for %.1f s, last heard of at version %llu (%s)",
			  slot_text(slot, who), silent_for(controller, slot),
			  (unsigned long long)slot->version, text_string(&versions));
	text_fini(&versions);
	membership_gone(&controller->members, slot, PRESENCE_LOST);
	losses_end(controller, slot, &why);
}

/* Another process may have come for that rank since: whom a plan before this one had is nobody that the sender misses. A plan that
 * was adopted is nobody's: what both ran by counts. */
static bool is_of_this_plan(const struct controller *controller, const struct message_drop *drop,
			    const struct slot *slot, const struct slot *target)
{
	const struct epoch *epoch = controller->epoch;

	return drop->attempt == epoch->attempt ||
	       (epoch->adopted && target->worker && drop->attempt == slot->worker->hello.attempt &&
		drop->attempt == target->worker->hello.attempt);
}

void losses_drop(struct controller *controller, struct slot *slot, struct message *message)
{
	const struct message_drop *drop = &message->u.drop;
	const struct slot *target =
		membership_slot(&controller->members, drop->member.role, drop->member.rank);
	char who[WORKER_TEXT_BYTES], whom[WORKER_TEXT_BYTES];
	struct error why;

	/* ranks of two engines are peers where they show versions together */
	if (!target || !controller->continues ||
	    (slot->who.role == target->who.role &&
	     (slot->who.role == ROLE_TRAINER || controller->rules.commit != COMMIT_JOB))) {
		say_noise(controller,
			  "not taken: %s goes on without a worker, in a job where none does",
			  slot_text(slot, who));
		return;
	}
	if (!exchange_has(controller, slot) || !is_of_this_plan(controller, drop, slot, target))
		return;
	if (drop->version > slot->version)
		slot->version = drop->version;
	/* it will hear it with its next heartbeat, too */
	if (gone_is(controller, target) || !exchange_has(controller, target))
		return;
	if (gone_may_be_done(controller, target))
		return;
	if (target->who.role == ROLE_TRAINER && target->presence == PRESENCE_LEFT) {
		left_early_text(&why, target, slot, drop->text);
		ending_fail(controller, target, &why);
		return;
	}
	error_set(&why, error_known(drop->code) ? (enum error_code)drop->code : ERROR_PEER_LOST,
		  "%s is not reached by %s at version %llu: %.600s", slot_text(target, whom),
		  slot_text(slot, who), (unsigned long long)slot->version, drop->text);
	losses_end(controller, target, &why);
}

void losses_silence(struct controller *controller)
{
	uint64_t limit = controller->options.lost_ms;

	for (uint32_t i = 0; i < controller->members.count; i++) {
		struct slot *slot = &controller->members.slots[i];

		if (controller->state > CONTROLLER_RUN)
			return;
		if (slot_serves(slot) && controller->now_ms >= slot->heard_ms + limit)
			lost(controller, slot);
	}
}

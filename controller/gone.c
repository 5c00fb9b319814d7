/* SPDX-License-Identifier: Apache-2.0
 *
 * gone.c -- an engine leaves a job that goes on (--on-loss continue): one of its ranks was lost or failed, or a trainer
 * does not reach it; or all of its ranks have left, their work done. An engine is whole or it is nothing, so its other
 * ranks are told that their job is over, and everybody else is told to go on without them.
 *
 *   rank 2 lost ──► lost ──► rank 3, of its engine        gone 1: ranks 2..3 ──► trainers, ranks of other engines
 *
 * The plan stays what it is: what was to go to these ranks goes nowhere. Every heartbeat says how many of these messages its
 * sender has heard, so one that was lost with a connection is said again.
 */
#include "controller/state.h"

#include <stdio.h>

static uint32_t engine_first(const struct controller *controller, const struct slot *slot)
{
	uint32_t ranks = controller->options.infer.tp;

	return slot->who.rank / ranks * ranks;
}

static bool is_of_engine(const struct controller *controller, const struct slot *slot,
			 uint32_t first)
{
	return slot->who.role == ROLE_INFERENCE && engine_first(controller, slot) == first;
}

static bool has_left(const struct controller *controller, uint32_t first)
{
	for (size_t i = 0; i < controller->departures.count; i++)
		if (controller->departures.items[i].first == first &&
		    !controller->departures.items[i].back)
			return true;
	return false;
}

/* Its ranks have, their work done. */
static bool all_have_left(const struct controller *controller, uint32_t first)
{
	const struct membership *members = &controller->members;

	for (uint32_t i = members->trainers; i < members->count; i++)
		if (is_of_engine(controller, &members->slots[i], first) &&
		    members->slots[i].presence != PRESENCE_LEFT)
			return false;
	return true;
}

bool gone_is(const struct controller *controller, const struct slot *slot)
{
	return slot->who.role == ROLE_INFERENCE &&
	       has_left(controller, engine_first(controller, slot));
}

static bool trainer_is_here(const struct controller *controller)
{
	for (uint32_t t = 0; t < controller->members.trainers; t++)
		if (slot_serves(&controller->members.slots[t]))
			return true;
	return false;
}

static bool engine_is_done(const struct controller *controller)
{
	for (size_t i = 0; i < controller->departures.count; i++)
		if (controller->departures.items[i].why.code == ERROR_NONE)
			return true;
	return false;
}

bool gone_may(const struct controller *controller, const struct slot *slot)
{
	const struct membership *members = &controller->members;

	if (!controller->continues || !slot ||
	    (controller->state != CONTROLLER_RUN && !controller->exchanges_again) ||
	    slot->who.role != ROLE_INFERENCE || gone_is(controller, slot))
		return false;
	for (uint32_t i = members->trainers; i < members->count; i++) {
		uint32_t first = engine_first(controller, &members->slots[i]);

		if (first != engine_first(controller, slot) && !has_left(controller, first))
			return true;
	}
	return !trainer_is_here(controller) && engine_is_done(controller);
}

static void tell(struct controller *controller, const struct slot *slot, uint32_t number)
{
	const struct departure *departure = &controller->departures.items[number - 1];
	struct message *message = send_to(controller, slot->peer, MESSAGE_GONE);

	message->u.gone.number = number;
	message->u.gone.first = departure->first;
	message->u.gone.count = controller->options.infer.tp;
	message->u.gone.code = (int)departure->why.code;
	message->u.gone.text = action_string(controller->actions, departure->why.text);
}

void gone_tell(struct controller *controller, const struct slot *slot, uint32_t heard)
{
	for (uint32_t n = heard; n < controller->departures.count; n++)
		tell(controller, slot, n + 1);
}

/* One of its ranks hears that its job is over. */
static void dismiss(struct controller *controller, const struct slot *slot,
		    const struct departure *departure)
{
	struct message *message = send_to(controller, slot->peer, MESSAGE_LOST);

	message->u.lost.code = (int)departure->why.code;
	message->u.lost.member = departure->blamed;
	message->u.lost.incarnation = departure->blamed_incarnation;
	message->u.lost.text = action_string(controller->actions, departure->why.text);
}

void gone_answer(struct controller *controller, const struct slot *slot,
		 const struct message *message)
{
	for (size_t i = 0; i < controller->departures.count; i++)
		if (is_of_engine(controller, slot, controller->departures.items[i].first) &&
		    message->type != MESSAGE_LEAVE)
			dismiss(controller, slot, &controller->departures.items[i]);
	if (message->type == MESSAGE_LEAVE)
		send_to(controller, slot->peer, MESSAGE_HEARTBEAT);
}

bool gone_answer_former(struct controller *controller, const char *peer,
			const struct message *message)
{
	struct slot unknown = {0};

	for (size_t i = 0; i < controller->dismissed.count; i++) {
		const struct dismissed *dismissed = &controller->dismissed.items[i];

		if (dismissed->incarnation != message->from)
			continue;
		snprintf(unknown.peer, sizeof(unknown.peer), "%s", peer);
		if (message->type == MESSAGE_LEAVE)
			send_to(controller, peer, MESSAGE_HEARTBEAT);
		else
			dismiss(controller, &unknown,
				&controller->departures.items[dismissed->departure]);
		return true;
	}
	return false;
}

bool gone_makes_room(struct controller *controller, struct slot *slot)
{
	size_t n = controller->departures.count;

	if (slot_serves(slot) || controller->state > CONTROLLER_RUN || !gone_is(controller, slot))
		return false;
	while (controller->departures.items[n - 1].first != engine_first(controller, slot))
		n--;
	if (!array_add(&controller->dismissed,
		       (struct dismissed){slot->worker->hello.incarnation, n - 1}))
		no_memory(controller);
	membership_clear(&controller->members, slot);
	return true;
}

int gone_away(const struct controller *controller, struct message_plan *plan)
{
	plan->away = memory_zalloc(controller->departures.count, sizeof(*plan->away));
	if (!plan->away)
		return -ERROR_MEMORY;
	for (size_t i = 0; i < controller->departures.count; i++)
		if (!controller->departures.items[i].back)
			plan->away[plan->away_count++].first =
				controller->departures.items[i].first;
	return 0;
}

uint32_t gone_engines_lost(const struct controller *controller)
{
	uint32_t lost = 0;

	for (size_t i = 0; i < controller->departures.count; i++) {
		const struct departure *departure = &controller->departures.items[i];

		lost += !departure->back && departure->why.code != ERROR_NONE;
	}
	return lost;
}

uint32_t gone_engines_here(const struct controller *controller)
{
	uint32_t here = controller->options.infer.engines;

	for (size_t i = 0; i < controller->departures.count; i++)
		here -= !controller->departures.items[i].back;
	return here;
}

static struct departure departure_of(const struct controller *controller, const struct slot *blamed,
				     const struct error *why)
{
	return (struct departure){.first = engine_first(controller, blamed),
				  .blamed = blamed->who,
				  .blamed_incarnation = blamed->worker->hello.incarnation,
				  .why = *why};
}

/* Everybody goes on without that engine. */
static void depart(struct controller *controller, const struct departure *departure)
{
	struct membership *members = &controller->members;

	if (!array_add(&controller->departures, *departure)) {
		no_memory(controller);
		return;
	}
	say(controller, departure->why.code != ERROR_NONE,
	    "engine %u (inference %u..%u) leaves, the job goes on with %u of %u: %s",
	    departure->first / controller->options.infer.tp, departure->first,
	    departure->first + controller->options.infer.tp - 1, gone_engines_here(controller),
	    controller->options.infer.engines, departure->why.text);
	for (uint32_t i = 0; i < members->count; i++) {
		const struct slot *slot = &members->slots[i];

		if (!is_of_engine(controller, slot, departure->first) && slot_serves(slot) &&
		    exchange_has(controller, slot))
			tell(controller, slot, (uint32_t)controller->departures.count);
	}
}

void gone_leave(struct controller *controller, const struct slot *blamed, const struct error *why)
{
	struct membership *members = &controller->members;
	struct departure departure = departure_of(controller, blamed, why);

	WEFT_ASSERT(gone_may(controller, blamed));
	depart(controller, &departure);
	for (uint32_t i = members->trainers; i < members->count; i++) {
		struct slot *slot = &members->slots[i];

		if (!is_of_engine(controller, slot, departure.first) || !slot_serves(slot))
			continue;
		if (slot != blamed)
			dismiss(controller, slot, &departure);
		membership_gone(members, slot, PRESENCE_LOST);
	}
	members_maybe_done(controller);
	returns_look(controller);
}

void gone_meanwhile(struct controller *controller, const struct slot *slot, const struct error *why)
{
	struct departure departure = departure_of(controller, slot, why);

	depart(controller, &departure);
}

void gone_done(struct controller *controller, const struct slot *slot)
{
	struct departure departure;
	struct error done = {.code = ERROR_NONE};

	if (!trainer_is_here(controller) || !gone_may(controller, slot) ||
	    !all_have_left(controller, engine_first(controller, slot)))
		return;
	snprintf(done.text, sizeof(done.text), "its work is done after version %llu",
		 (unsigned long long)slot->version);
	departure = departure_of(controller, slot, &done);
	depart(controller, &departure);
}

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
 *
 * A trainer leaves alone, and is told of in the same way. What it was to send nobody does, so the job pauses for another
 * plan (returns.c). So it does when the last engine has left, until another one is here; and where engines show versions together,
 * when any has (settle.c).
 */
#include "controller/state.h"

#include "base/compare.h"

#include <stdio.h>

uint32_t gone_count(const struct controller *controller, struct member first)
{
	return first.role == ROLE_TRAINER ? 1 : controller->options.infer.tp;
}

/* Who leaves together with it begins with this one. */
struct member gone_first(const struct controller *controller, const struct slot *slot)
{
	struct member who = slot->who;

	who.rank -= who.rank % gone_count(controller, who);
	return who;
}

static bool is_of(const struct controller *controller, const struct slot *slot, struct member first)
{
	return member_within(slot->who, first, gone_count(controller, first));
}

static bool has_left(const struct controller *controller, struct member first)
{
	for (size_t i = 0; i < controller->departures.count; i++)
		if (member_within(controller->departures.items[i].first, first, 1) &&
		    !controller->departures.items[i].back)
			return true;
	return false;
}

/* Its ranks have, their work done. */
static bool all_have_left(const struct controller *controller, struct member first)
{
	const struct membership *members = &controller->members;

	for (uint32_t i = members->trainers; i < members->count; i++)
		if (is_of(controller, &members->slots[i], first) &&
		    members->slots[i].presence != PRESENCE_LEFT)
			return false;
	return true;
}

bool gone_is(const struct controller *controller, const struct slot *slot)
{
	return has_left(controller, gone_first(controller, slot));
}

bool gone_may_be_done(const struct controller *controller, const struct slot *slot)
{
	return slot->who.role == ROLE_INFERENCE && slot->presence == PRESENCE_LEFT &&
	       controller->now_ms < slot->heard_ms + controller->options.lost_ms;
}

const struct departure *gone_trainer(const struct controller *controller)
{
	for (size_t i = 0; i < controller->departures.count; i++) {
		const struct departure *departure = &controller->departures.items[i];

		if (departure->first.role == ROLE_TRAINER && !departure->back)
			return departure;
	}
	return NULL;
}

static bool trainer_is_here(const struct controller *controller)
{
	for (uint32_t t = 0; t < controller->members.trainers; t++)
		if (exchange_serves(controller, &controller->members.slots[t]))
			return true;
	return false;
}

static bool engine_is_done(const struct controller *controller)
{
	for (size_t i = 0; i < controller->departures.count; i++)
		if (controller->departures.items[i].why.code == ERROR_NONE &&
		    !controller->departures.items[i].back)
			return true;
	return false;
}

/* Its work done: so nobody is left who can do all of what others have to do. */
static bool trainer_has_left(const struct controller *controller)
{
	for (uint32_t t = 0; t < controller->members.trainers; t++)
		if (controller->members.slots[t].presence == PRESENCE_LEFT)
			return true;
	return false;
}

/* Another trainer may take its place as long as all have work to do: some engine waits, or a trainer for one, and no trainer is
 * through. */
static bool trainer_may(const struct controller *controller, const struct slot *slot)
{
	const struct membership *members = &controller->members;
	bool wait = !gone_here(controller, ROLE_INFERENCE) && !engine_is_done(controller);
	bool any = false;

	if (trainer_has_left(controller))
		return false;
	for (uint32_t i = wait ? 0 : members->trainers; i < members->count; i++)
		any = any || (&members->slots[i] != slot &&
			      exchange_serves(controller, &members->slots[i]));
	return any;
}

bool gone_may(const struct controller *controller, const struct slot *slot)
{
	const struct membership *members = &controller->members;

	if (!controller->continues || !slot ||
	    (controller->state != CONTROLLER_RUN && !controller->exchanges_again) ||
	    gone_is(controller, slot))
		return false;
	if (slot->who.role == ROLE_TRAINER)
		return trainer_may(controller, slot);
	for (uint32_t i = members->trainers; i < members->count; i++) {
		struct member first = gone_first(controller, &members->slots[i]);

		if (!is_of(controller, slot, first) && !has_left(controller, first))
			return true;
	}
	if (!trainer_is_here(controller))
		return !gone_trainer(controller) && engine_is_done(controller);
	/* where the last engine has done its work the job goes on if another one comes */
	return (!slot->done || returns_engine_comes(controller)) && !trainer_has_left(controller);
}

/* How many are told of at once, from that one on: engines in a row that have yet to come may be thousands, and a worker that is told
 * of each by itself hears of the last one after many heartbeats. */
static uint32_t in_a_row(const struct controller *controller, uint32_t from)
{
	const struct departure *first = &controller->departures.items[from];
	uint32_t n = 1, ranks = gone_count(controller, first->first);

	while (from + n < controller->departures.count) {
		const struct departure *next = &first[n];

		if (!first->absent || !next->absent || first->back || next->back ||
		    next->first.role != first->first.role ||
		    next->first.rank != first->first.rank + n * ranks)
			break;
		n++;
	}
	return n;
}

/* Of `count` departures, the first of which is that one. */
static void tell(struct controller *controller, const struct slot *slot, uint32_t from,
		 uint32_t count)
{
	const struct departure *departure = &controller->departures.items[from];
	struct message *message = send_to(controller, slot->peer, MESSAGE_GONE);

	message->u.gone.number = from + count;
	message->u.gone.departures = count;
	message->u.gone.first = departure->first;
	message->u.gone.count = count * gone_count(controller, departure->first);
	message->u.gone.code = (int)departure->why.code;
	message->u.gone.text = action_string(controller->actions, departure->why.text);
}

void gone_tell(struct controller *controller, const struct slot *slot, uint32_t heard)
{
	for (uint32_t n = heard, row; n < controller->departures.count; n += row) {
		row = in_a_row(controller, n);
		tell(controller, slot, n, row);
	}
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
	size_t n = controller->departures.count;

	if (message->type == MESSAGE_LEAVE) {
		send_to(controller, slot->peer, MESSAGE_HEARTBEAT);
		return;
	}
	while (n && !is_of(controller, slot, controller->departures.items[n - 1].first))
		n--;
	if (n)
		dismiss(controller, slot, &controller->departures.items[n - 1]);
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

/* Another process may have its place; and it is told again. */
static bool forget(struct controller *controller, const struct slot *slot,
		   const struct departure *departure)
{
	size_t index = (size_t)(departure - controller->departures.items);

	if (array_add(&controller->dismissed,
		      (struct dismissed){slot->worker->hello.incarnation, index}))
		return true;
	no_memory(controller);
	return false;
}

bool gone_makes_room(struct controller *controller, struct slot *slot)
{
	size_t n = controller->departures.count;

	if (slot_serves(slot) || controller->state > CONTROLLER_RUN || !gone_is(controller, slot))
		return false;
	while (!is_of(controller, slot, controller->departures.items[n - 1].first))
		n--;
	forget(controller, slot, &controller->departures.items[n - 1]);
	membership_clear(&controller->members, slot);
	return true;
}

static int compare_members(const void *a, const void *b)
{
	return member_compare(&((const struct members *)a)->first,
			      &((const struct members *)b)->first);
}

/* Those that follow each other are one item: of all that may come some day most have not. */
static size_t join(struct members *away, size_t count)
{
	size_t last = 0;

	for (size_t i = 1; i < count; i++) {
		if (away[i].first.role == away[last].first.role &&
		    away[i].first.rank == away[last].first.rank + away[last].count)
			away[last].count += away[i].count;
		else
			away[++last] = away[i];
	}
	return count ? last + 1 : 0;
}

int gone_away(const struct controller *controller, struct message_plan *plan)
{
	plan->away = memory_zalloc(controller->departures.count, sizeof(*plan->away));
	if (!plan->away)
		return -ERROR_MEMORY;
	for (size_t i = 0; i < controller->departures.count; i++) {
		struct member first = controller->departures.items[i].first;

		if (!controller->departures.items[i].back)
			plan->away[plan->away_count++] =
				(struct members){first, gone_count(controller, first)};
	}
	sort_items(plan->away, plan->away_count, compare_members);
	plan->away_count = join(plan->away, plan->away_count);
	return 0;
}

uint32_t gone_lost(const struct controller *controller, enum role role)
{
	uint32_t lost = 0;

	for (size_t i = 0; i < controller->departures.count; i++) {
		const struct departure *departure = &controller->departures.items[i];

		lost += departure->first.role == role && !departure->back && !departure->absent &&
			departure->why.code != ERROR_NONE;
	}
	return lost;
}

uint32_t gone_here(const struct controller *controller, enum role role)
{
	uint32_t here = role == ROLE_TRAINER ? controller->members.trainers
					     : controller->options.infer.engines;

	for (size_t i = 0; i < controller->departures.count; i++)
		here -= controller->departures.items[i].first.role == role &&
			!controller->departures.items[i].back;
	return here;
}

static struct departure departure_of(const struct controller *controller, const struct slot *blamed,
				     const struct error *why)
{
	return (struct departure){.first = gone_first(controller, blamed),
				  .blamed = blamed->who,
				  .blamed_incarnation = blamed->worker->hello.incarnation,
				  .why = *why};
}

static void say_departure(struct controller *controller, const struct departure *departure)
{
	uint32_t rank = departure->first.rank, tp = controller->options.infer.tp;

	if (departure->first.role == ROLE_TRAINER)
		say(controller, true, "trainer %u leaves, the job goes on with %u of %u: %s", rank,
		    gone_here(controller, ROLE_TRAINER), controller->members.trainers,
		    departure->why.text);
	else
		say(controller, departure->why.code != ERROR_NONE,
		    "engine %u (inference %u..%u) leaves, the job goes on with %u of %u: %s",
		    rank / tp, rank, rank + tp - 1, gone_here(controller, ROLE_INFERENCE),
		    controller->options.infer.engines, departure->why.text);
}

/* Everybody goes on without them. */
static void depart(struct controller *controller, const struct departure *departure)
{
	struct membership *members = &controller->members;

	if (!array_add(&controller->departures, *departure)) {
		no_memory(controller);
		return;
	}
	say_departure(controller, departure);
	for (uint32_t i = 0; i < members->count; i++) {
		const struct slot *slot = &members->slots[i];

		if (!is_of(controller, slot, departure->first) && exchange_serves(controller, slot))
			gone_tell(controller, slot, (uint32_t)controller->departures.count - 1);
	}
}

void gone_leave(struct controller *controller, const struct slot *blamed, const struct error *why)
{
	struct membership *members = &controller->members;
	struct departure departure = departure_of(controller, blamed, why);

	WEFT_ASSERT(gone_may(controller, blamed));
	codes_count(&controller->losses[blamed->who.role], why->code);
	status_note(controller, blamed, why);
	depart(controller, &departure);
	for (uint32_t i = 0; i < members->count; i++) {
		struct slot *slot = &members->slots[i];

		if (!is_of(controller, slot, departure.first) || !slot_serves(slot))
			continue;
		if (slot != blamed)
			dismiss(controller, slot, &departure);
		membership_gone(members, slot, PRESENCE_LOST);
	}
	members_maybe_done(controller);
	returns_look(controller);
	if (departure.first.role == ROLE_TRAINER || !gone_here(controller, ROLE_INFERENCE) ||
	    settle_lacks_engine(controller))
		returns_begin(controller);
}

/* They ran with one that died, or as one that others went on without. */
static void dismiss_who_run(struct controller *controller, const struct departure *departure)
{
	struct slot *slots =
		membership_slot(&controller->members, departure->first.role, departure->first.rank);

	for (uint32_t k = 0; k < gone_count(controller, departure->first); k++) {
		if (!slot_serves(&slots[k]) || !slots[k].worker->hello.attempt)
			continue;
		dismiss(controller, &slots[k], departure);
		/* of who is in the plan what it declared is needed */
		if (!departure->missing)
			membership_gone(&controller->members, &slots[k], PRESENCE_LOST);
		else if (forget(controller, &slots[k], departure))
			declarations_drop(controller, &slots[k]);
	}
}

void gone_meanwhile(struct controller *controller, const struct slot *slot, const struct error *why)
{
	struct departure departure = departure_of(controller, slot, why);

	depart(controller, &departure);
	dismiss_who_run(controller, &departure);
}

void gone_dismiss(struct controller *controller)
{
	for (size_t i = 0; i < controller->departures.count; i++) {
		if (!controller->departures.items[i].missing)
			continue;
		say_departure(controller, &controller->departures.items[i]);
		dismiss_who_run(controller, &controller->departures.items[i]);
	}
}

void gone_done(struct controller *controller, const struct slot *slot)
{
	struct departure departure;
	struct error done = {.code = ERROR_NONE};

	if ((!trainer_is_here(controller) && !gone_trainer(controller)) ||
	    !gone_may(controller, slot) || !all_have_left(controller, gone_first(controller, slot)))
		return;
	snprintf(done.text, sizeof(done.text), "its work is done after version %llu",
		 (unsigned long long)slot->version);
	departure = departure_of(controller, slot, &done);
	depart(controller, &departure);
	if (!gone_here(controller, ROLE_INFERENCE) || settle_lacks_engine(controller))
		returns_begin(controller);
}

void gone_all_done(struct controller *controller)
{
	struct membership *members = &controller->members;

	for (uint32_t i = members->trainers; i < members->count; i += controller->options.infer.tp)
		if (members->slots[i].presence == PRESENCE_LEFT && members->slots[i].done)
			gone_done(controller, &members->slots[i]);
}

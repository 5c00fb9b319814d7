/* SPDX-License-Identifier: Apache-2.0
 *
 * absent.c -- a job that begins with some of its engines (--engines-min): all trainers are here, so many engines are whole, and
 * nobody else has come for a moment. The others count as engines that have left: there is nothing for them in the plan, and each
 * comes in as one that comes back does (returns.c), any time later or never.
 *
 *   trainers ──┐
 *   engine 0 ──┼─ LAST_CALL_MS ─► plan ─ .. ─ go ── 1 ── 2 ──┐ pause ┌── 3 ..
 *   engine 1   hello ──────────────────────────── declare ───┘       └── with engine 1, the plan of all who are here
 *   engine 2   (never)
 *
 * A plan is made for those who are here, so trainers' loads are balanced over the engines that are. A controller that takes a job
 * over makes the plan that it runs by once more (takeover.c), so there those are absent who were when it was made.
 */
#include "controller/state.h"

#include <stdio.h>

#define LAST_CALL_MS	 1000u /* engines that are started together come a moment after each other; */
#define LAST_CALL_MS_MAX 10000u /* of one that starts again and again there is no end */

static struct member engine(const struct controller *controller, uint32_t index)
{
	return (struct member){ROLE_INFERENCE, index * controller->options.infer.tp};
}

/* What those who run by the plan know of one: it is in it, .. */
enum part {
	PART_IN,
	PART_LEFT, /* has left since it was made, */
	PART_AWAY, /* or had before */
	PART_COUNT
};

static enum part part(const struct controller *controller, const struct slot *first,
		      const struct slot *slot)
{
	if (takeover_is_without(controller, first, slot))
		return PART_AWAY;
	return takeover_has_left(controller, first, slot) ? PART_LEFT : PART_IN;
}

/* Of a job that is taken over all are needed who are in its plan, or others in the place of those that died since: until somebody has
 * been waited for for too long. One that runs, and is not gone on without, is there. */
static bool may_take_over(const struct controller *controller, const struct slot *first)
{
	bool here[ROLE_COUNT] = {false, false}, runs = false;

	for (uint32_t i = 0; i < controller->members.count; i++) {
		const struct slot *slot = &controller->members.slots[i];
		bool left = part(controller, first, slot) != PART_IN;

		if (returns_whole(controller, gone_first(controller, slot))) {
			here[slot->who.role] = true;
			runs = runs || (!left && slot->worker->hello.attempt);
		} else if (!controller->goes_without && !left) {
			return false;
		}
	}
	return here[ROLE_TRAINER] && here[ROLE_INFERENCE] && runs;
}

static bool enough(const struct controller *controller)
{
	uint32_t whole = 0;

	for (uint32_t t = 0; t < controller->members.trainers; t++)
		if (!returns_whole(controller, (struct member){ROLE_TRAINER, t}))
			return false;
	for (uint32_t e = 0; e < controller->options.infer.engines; e++)
		whole += returns_whole(controller, engine(controller, e));
	return whole >= controller->options.engines_min;
}

bool absent_may_begin(const struct controller *controller)
{
	const struct slot *runs = takeover_first(controller);

	if (runs)
		return may_take_over(controller, runs);
	/* who runs by the plan of a controller that was lost takes a moment to say so */
	return controller->options.engines_min && enough(controller) &&
	       controller->now_ms >= controller->came_ms + (controller->options.orphan_ms
								    ? controller->options.lost_ms
								    : LAST_CALL_MS);
}

void absent_came(struct controller *controller)
{
	bool is_enough = controller->options.engines_min && enough(controller);

	if (!is_enough || !controller->enough_ms)
		controller->enough_ms = is_enough ? controller->now_ms : 0;
	if (!is_enough || controller->now_ms < controller->enough_ms + LAST_CALL_MS_MAX)
		controller->came_ms = controller->now_ms;
}

bool absent_is(const struct controller *controller, const struct slot *slot)
{
	for (size_t i = 0; i < controller->departures.count; i++) {
		const struct departure *departure = &controller->departures.items[i];

		if ((departure->absent || departure->missing) && !departure->back &&
		    member_within(slot->who, departure->first,
				  gone_count(controller, departure->first)))
			return true;
	}
	return false;
}

static void leave_out(struct controller *controller, struct departure departure, const char *why)
{
	char who[MEMBER_TEXT_BYTES];

	if (!departure.why.text[0])
		error_set(&departure.why, ERROR_PEER_LOST, "%s %s",
			  member_text(departure.blamed, who), why);
	if (!array_add(&controller->departures, departure))
		no_memory(controller);
}

/* The first of these that an engine which is here has. */
static enum part first_part(const struct controller *controller, const struct slot *first)
{
	enum part best = PART_COUNT;

	for (uint32_t i = controller->members.trainers; i < controller->members.count; i++) {
		const struct slot *slot = &controller->members.slots[i];
		enum part it = part(controller, first, slot);

		if (it < best && returns_whole(controller, gone_first(controller, slot)))
			best = it;
	}
	return best;
}

/* The first of it who is not here, if one is not. */
static const struct slot *lacking(const struct controller *controller, struct member group)
{
	const struct slot *slots = membership_slot(&controller->members, group.role, group.rank);

	for (uint32_t k = 0; k < gone_count(controller, group); k++)
		if (slots[k].presence != PRESENCE_DECLARED && slots[k].ran != RAN_DONE)
			return &slots[k];
	return slots;
}

/* Who has come in the place of one that has left comes in afterwards, unless there would be nobody to send to. */
static void take_over_without(struct controller *controller, const struct slot *first)
{
	enum part last[ROLE_COUNT] = {
		[ROLE_TRAINER] = PART_IN, [ROLE_INFERENCE] = first_part(controller, first)};

	for (uint32_t i = 0; i < controller->members.count; i++) {
		const struct slot *slot = &controller->members.slots[i], *lacks;
		struct departure departure = {.first = gone_first(controller, slot)};
		enum part it = part(controller, first, slot);

		if (gone_is(controller, slot) ||
		    (returns_whole(controller, departure.first) && it <= last[slot->who.role]))
			continue;
		lacks = lacking(controller, departure.first);
		departure.absent = it == PART_AWAY;
		departure.missing = it != PART_AWAY;
		departure.blamed = lacks->who;
		if (takeover_did_its_work(controller, first, slot))
			snprintf(departure.why.text, sizeof(departure.why.text),
				 "its work is done");
		leave_out(controller, departure,
			  it == PART_LEFT	   ? "had left before this controller came"
			  : lacks->ran == RAN_DONE ? "has left, its work done"
						   : "has not come");
	}
}

void absent_leave_out(struct controller *controller)
{
	uint32_t engines = controller->options.infer.engines, absent = 0;
	const struct slot *runs = takeover_first(controller);

	if (runs) {
		take_over_without(controller, runs);
		gone_dismiss(controller);
		return;
	}
	for (uint32_t e = 0; e < engines; e++) {
		struct member first = engine(controller, e);

		if (returns_whole(controller, first))
			continue;
		leave_out(controller,
			  (struct departure){.first = first, .blamed = first, .absent = true},
			  "has not come");
		absent++;
	}
	if (absent)
		say(controller, false,
		    "begins with %u of %u engines (--engines-min %u): each of the others comes in when "
		    "it is here",
		    engines - absent, engines, controller->options.engines_min);
}

struct worker *absent_worker(const struct slot *slot)
{
	struct message_hello hello = {
		.role = slot->who.role, .rank = slot->who.rank, .incarnation = UINT64_MAX};

	return worker_new(&hello);
}

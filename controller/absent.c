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
 * Which layout an absent engine will have nobody knows, so it is not in the plan at all, and trainers' loads are balanced over
 * the engines that are here.
 */
#include "controller/state.h"

#include <stdio.h>

#define LAST_CALL_MS 1000u /* engines that are started together come a moment after each other */

static struct member engine(const struct controller *controller, uint32_t index)
{
	return (struct member){ROLE_INFERENCE, index * controller->options.infer.tp};
}

static bool trainers_are_here(const struct controller *controller)
{
	for (uint32_t t = 0; t < controller->members.trainers; t++)
		if (!returns_whole(controller, (struct member){ROLE_TRAINER, t}))
			return false;
	return true;
}

bool absent_may_begin(const struct controller *controller)
{
	uint32_t whole = 0;

	if (!controller->options.engines_min || !trainers_are_here(controller) ||
	    !controller->came_ms || controller->now_ms < controller->came_ms + LAST_CALL_MS)
		return false;
	for (uint32_t e = 0; e < controller->options.infer.engines; e++)
		whole += returns_whole(controller, engine(controller, e));
	return whole >= controller->options.engines_min;
}

bool absent_is(const struct controller *controller, const struct slot *slot)
{
	for (size_t i = 0; i < controller->departures.count; i++) {
		const struct departure *departure = &controller->departures.items[i];

		if (departure->absent && !departure->back &&
		    member_within(slot->who, departure->first, controller->options.infer.tp))
			return true;
	}
	return false;
}

static void leave_out(struct controller *controller, struct member first)
{
	struct departure departure = {.first = first, .blamed = first, .absent = true};

	snprintf(departure.why.text, sizeof(departure.why.text), "it has not come yet");
	if (!array_add(&controller->departures, departure))
		no_memory(controller);
}

void absent_leave_out(struct controller *controller)
{
	uint32_t engines = controller->options.infer.engines, absent = 0;

	for (uint32_t e = 0; e < engines; e++) {
		struct member first = engine(controller, e);

		if (returns_whole(controller, first))
			continue;
		leave_out(controller, first);
		absent++;
	}
	if (absent)
		say(controller, false,
		    "begins with %u of %u engines (--engines-min %u): each of the others comes in when "
		    "it is here",
		    engines - absent, engines, controller->options.engines_min);
}

bool absent_wait_for(struct controller *controller)
{
	size_t kept = 0;

	for (size_t i = 0; i < controller->departures.count; i++)
		if (!controller->departures.items[i].absent)
			controller->departures.items[kept++] = controller->departures.items[i];
	if (kept == controller->departures.count)
		return false;
	controller->departures.count = kept;
	controller->came_ms = 0;
	say(controller, false,
	    "those who run have a plan with more engines than are here, or with other options: "
	    "waiting for more engines");
	return true;
}

struct worker *absent_worker(const struct slot *slot)
{
	struct message_hello hello = {
		.role = slot->who.role, .rank = slot->who.rank, .incarnation = UINT64_MAX};

	return worker_new(&hello);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * settle.c -- a job that goes on, and whose engines show versions together (--commit job). When one of them leaves, the ranks that
 * decide for others lack somebody, and what is on its way is shown by nobody's word but the next plan's: so the job pauses for one.
 *
 *   rank 0, of the engine that is lost      decides 8, and tells rank 2, but not rank 4
 *   rank 2      shows 8 ─────────────────── paused: shows 8 ────────────┐
 *   rank 4      has promised 8, and waits ─ paused: shows 7, promised 8 ┴─ plan: 8 is shown ── shows 8
 *
 * What one of them shows all had promised, so all who live can show it. Where nobody does, all show it if all have promised it, and
 * else nobody. That is decided once in a pause, with the first plan that is sent, when all have stopped: who has says no more of it
 * to others, and hears nothing of them, and the dead show nothing.
 *
 * Trainers may come to that pause late, or never, their work done. So who has promised a version says so before it stops, and from
 * then on hears nothing of others either: as soon as all have, or show it, they are told to show it.
 *
 *   rank 2, 4   paused: not stopped, promised 8 ──► all have ──► pause: 8 is shown ── show 8
 *
 * And no plan comes for an engine of which some ranks show it, and have left, their work done: the others are told to show it, too.
 *
 *   rank 2      shows 8 ── leaves
 *   rank 3      paused: shows 7, promised 8 ──► pause: 8 is shown ── shows 8 ── leaves
 */
#include "controller/state.h"

static bool together(const struct controller *controller)
{
	return controller->continues && controller->rules.commit == COMMIT_JOB;
}

bool settle_lacks_engine(const struct controller *controller)
{
	const struct epoch *epoch = controller->epoch;

	for (size_t i = 0; epoch && together(controller) && i < controller->departures.count; i++) {
		const struct departure *departure = &controller->departures.items[i];
		uint32_t party = epoch->trainers + departure->first.rank;

		if (departure->first.role == ROLE_INFERENCE && !departure->back &&
		    (!epoch->parties[party].away || (epoch->adopted && !departure->absent)))
			return true;
	}
	return false;
}

/* A rank that was here when the pause began, and is in the plan that is made. */
static bool takes_part(const struct controller *controller, uint32_t i)
{
	return controller->members.slots[i].who.role == ROLE_INFERENCE &&
	       exchange_has(controller, &controller->members.slots[i]) &&
	       !controller->pause.slots[i].fresh;
}

static uint64_t choose(const struct controller *controller)
{
	uint64_t shown = 0, held = UINT64_MAX;

	for (uint32_t i = 0; i < controller->members.count; i++) {
		const struct paused *paused = &controller->pause.slots[i];
		uint64_t own = paused->promised ? paused->promised : paused->version;

		if (!takes_part(controller, i))
			continue;
		shown = paused->version > shown ? paused->version : shown;
		held = own < held ? own : held;
	}
	/* what trainers are to begin they send anew */
	shown = held > shown && held < controller->pause.next ? held : shown;
	return controller->pause.shows > shown ? controller->pause.shows : shown;
}

void settle_choose(struct controller *controller)
{
	struct pause *pause = &controller->pause;

	if (!together(controller) || pause->settled)
		return;
	pause->settled = true;
	pause->shows = choose(controller);
	for (uint32_t i = 0; i < controller->members.count; i++) {
		struct paused *paused = &pause->slots[i];

		if (!takes_part(controller, i) || !paused->promised)
			continue;
		if (paused->promised == pause->shows)
			paused->version = pause->shows;
		else
			paused->repeats = false; /* its memory holds another one */
	}
}

/* Some trainer who goes on, or has done its work, has ended it, so none sends it anew. */
static bool is_ended(const struct controller *controller, uint64_t version)
{
	for (uint32_t t = 0; t < controller->members.trainers; t++) {
		const struct slot *slot = &controller->members.slots[t];

		if (slot->version >= version &&
		    (slot->presence == PRESENCE_LEFT || exchange_serves(controller, slot)))
			return true;
	}
	return false;
}

/* The version that all who are here have promised, but for those that show it; 0: there is none. */
static uint64_t find_promised(const struct controller *controller)
{
	uint64_t promised = 0;

	for (uint32_t i = controller->members.trainers; i < controller->members.count; i++)
		if (controller->pause.slots[i].promised > promised &&
		    exchange_serves(controller, &controller->members.slots[i]))
			promised = controller->pause.slots[i].promised;
	for (uint32_t i = controller->members.trainers; i < controller->members.count; i++) {
		const struct slot *slot = &controller->members.slots[i];

		if (exchange_serves(controller, slot) && slot->version < promised &&
		    controller->pause.slots[i].promised != promised)
			return 0;
	}
	return promised;
}

void settle_look(struct controller *controller)
{
	struct pause *pause = &controller->pause;
	uint64_t version;

	if (!together(controller) || controller->state != CONTROLLER_RUN ||
	    pause->phase != PAUSE_TRAINERS)
		return;
	version = find_promised(controller);
	if (version <= pause->shows || !is_ended(controller, version))
		return;
	pause->shows = version;
	returns_tell_ranks(controller);
}

bool settle_hears(struct controller *controller, const struct slot *slot,
		  const struct message_paused *said)
{
	struct paused *paused = &controller->pause.slots[slot - controller->members.slots];

	if (slot->who.role != ROLE_INFERENCE || said->stopped)
		return false;
	if (controller->state == CONTROLLER_RUN && !paused->stopped) {
		paused->promised = said->promised;
		settle_look(controller);
	}
	return true;
}

/* The last version of those of its engine that have left, their work done; 0: none has. */
static uint64_t left_with(const struct controller *controller, const struct slot *slot)
{
	struct member first = gone_first(controller, slot);
	const struct slot *slots = membership_slot(&controller->members, first.role, first.rank);
	uint64_t version = 0;

	for (uint32_t k = 0; k < gone_count(controller, first); k++)
		if (slots[k].presence == PRESENCE_LEFT && slots[k].version > version)
			version = slots[k].version;
	return version;
}

bool settle_lets_go(struct controller *controller)
{
	struct pause *pause = &controller->pause;
	bool any = false;

	for (uint32_t i = controller->members.trainers;
	     together(controller) && i < controller->members.count; i++) {
		const struct slot *slot = &controller->members.slots[i];
		uint64_t promised = pause->slots[i].promised;

		if (!promised || !exchange_serves(controller, slot) ||
		    promised != left_with(controller, slot))
			continue;
		pause->shows = promised;
		pause->since_ms = controller->now_ms; /* whoever was slow before */
		returns_ask(controller, slot, pause->slots[i].asked);
		any = true;
	}
	return any;
}

/* Who lacks the last version and is sent it shows it without waiting for those that have it. */
static bool is_shown_elsewhere(const struct controller *controller)
{
	for (uint32_t i = 0; i < controller->members.count; i++)
		if (takes_part(controller, i) &&
		    !returns_lacks_last(controller, &controller->members.slots[i]))
			return true;
	return false;
}

void settle_fill(const struct controller *controller, const struct slot *slot,
		 struct message_plan *plan)
{
	const struct pause *pause = &controller->pause;
	uint64_t sent = pause->copy ? pause->copy : pause->repeat;

	if (!together(controller) || slot->who.role != ROLE_INFERENCE)
		return;
	plan->together = controller->options.infer.tp;
	plan->shows = pause->shows;
	if (sent && returns_lacks_last(controller, slot) && is_shown_elsewhere(controller))
		plan->alone = sent;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * view.c -- the job in words, and in numbers: who is missing for what, the line that SIGUSR1 asks for, figures for metrics. A rank is
 * somewhere in the membership and, once planned, somewhere in the epoch; people see one phase.
 */
#include "controller/figures.h"
#include "controller/state.h"

#include <stdio.h>

#define RANGES_SHOWN 8

/* A presence, or past those a leg. */
#define PHASE(leg) (PRESENCE_COUNT + (leg))

static const struct {
	int phase;
	const char *name;
	const char *owes; /* what the others wait for */
} phases[] = {
	{PRESENCE_ABSENT, "absent", "to join"},
	{PRESENCE_JOINED, "joined", "to declare"},
	{PRESENCE_DECLARED, "declared", "to send their contents"},
	{PHASE(LEG_PLANNED), "planned", "to open endpoints"},
	{PHASE(LEG_OPENED), "opened", "to connect"},
	{PHASE(LEG_CONNECTED), "connected", NULL},
	{PRESENCE_LEFT, "left", NULL},
	{PRESENCE_LOST, "lost", NULL},
};
_Static_assert(ARRAY_SIZE(phases) == PHASE(LEG_COUNT), "a row for every phase");

static const char *const state_names[] = {
	[CONTROLLER_GATHER] = "gathering", [CONTROLLER_EXCHANGE] = "exchanging endpoints",
	[CONTROLLER_RUN] = "running",	   [CONTROLLER_FAILED] = "failed",
	[CONTROLLER_DONE] = "done",
};
_Static_assert(ARRAY_SIZE(state_names) == CONTROLLER_STATE_COUNT, "a name for every state");
_Static_assert(FIGURES_PHASES == ARRAY_SIZE(phases), "a figure for every phase");
_Static_assert(FIGURES_STATES == CONTROLLER_STATE_COUNT, "and for every state");

static int phase_of(const struct controller *controller, const struct slot *slot)
{
	if (slot->presence != PRESENCE_DECLARED || !exchange_has(controller, slot))
		return slot->presence;
	return PHASE(controller->epoch->parties[slot - controller->members.slots].leg);
}

/* Where there is a plan, those who have no part in it owe nothing; nor do those who have left a job that is taken over. */
static bool is_in(const struct controller *controller, const struct slot *slot, int phase,
		  bool owing)
{
	return phase_of(controller, slot) == phase &&
	       (!owing || !controller->epoch || exchange_has(controller, slot)) &&
	       !(owing && takeover_needs_not(controller, slot));
}

static bool ranges(const struct controller *controller, enum role role, int phase, bool owing,
		   struct text *text, bool first)
{
	const struct membership *members = &controller->members;
	const struct slot *slots = membership_slot(members, role, 0);
	uint32_t world = membership_world(members, role);
	uint32_t shown = 0, skipped = 0;

	for (uint32_t rank = 0; rank < world; rank++) {
		uint32_t end = rank;

		if (!is_in(controller, &slots[rank], phase, owing))
			continue;
		while (end + 1 < world && is_in(controller, &slots[end + 1], phase, owing))
			end++;
		if (shown == RANGES_SHOWN) {
			skipped += end - rank + 1;
		} else {
			if (shown == 0)
				text_format(text, "%s%s ", first ? "" : ", ", role_name(role));
			text_format(text, "%s%u", shown ? "," : "", rank);
			if (end > rank)
				text_format(text, "..%u", end);
			shown++;
		}
		rank = end;
	}
	if (skipped)
		text_format(text, " and %u more", skipped);
	if (shown)
		text_format(text, " of %u", world);
	return shown != 0;
}

/* Appends "trainer 2 of 4, inference 0..3 of 8" for those in one phase; false if none. */
static bool ranks_in(const struct controller *controller, int phase, bool owing, struct text *text)
{
	bool trainers = ranges(controller, ROLE_TRAINER, phase, owing, text, true);

	return ranges(controller, ROLE_INFERENCE, phase, owing, text, !trainers) || trainers;
}

void view_missing(const struct controller *controller, struct text *text)
{
	bool any = false;

	for (size_t i = 0; i < ARRAY_SIZE(phases); i++) {
		struct text list = {0};

		/* a declared worker is only waited for while its body is not here */
		if (!phases[i].owes ||
		    (phases[i].phase == PRESENCE_DECLARED && !controller->members.bodies.missing))
			continue;
		if (ranks_in(controller, phases[i].phase, true, &list)) {
			text_format(text, "%s%s %s", any ? "; " : "", text_string(&list),
				    phases[i].owes);
			any = true;
		}
		text_fini(&list);
	}
	if (controller->state == CONTROLLER_GATHER && controller->options.engines_min)
		text_format(text, " (%u engines are enough: --engines-min)",
			    controller->options.engines_min);
}

void view_refused(const struct controller *controller, char *out, size_t bytes)
{
	char name[MEMBER_TEXT_BYTES];

	*out = 0;
	for (uint32_t i = 0; !*out && i < controller->members.count; i++) {
		const struct slot *slot = &controller->members.slots[i];

		if (slot->presence == PRESENCE_ABSENT && slot->refused && !controller->epoch)
			snprintf(out, bytes, "; %s was refused: %s", member_text(slot->who, name),
				 slot->refused);
	}
}

char *controller_line(const struct controller *controller, uint64_t now_ms)
{
	struct text text = {0};

	text_format(&text, "job '%s', epoch %llu, %s, up %.1f s", controller->job,
		    (unsigned long long)controller->number, state_names[controller->state],
		    (double)(now_ms - controller->started_ms) / 1000.0);
	for (size_t i = 0; i < ARRAY_SIZE(phases); i++) {
		struct text list = {0};

		if (ranks_in(controller, phases[i].phase, false, &list))
			text_format(&text, "; %s: %s", phases[i].name, text_string(&list));
		text_fini(&list);
	}
	text_add(&text, "; ");
	membership_versions(&controller->members, &text);
	if (!text_ok(&text)) {
		text_fini(&text);
		return NULL;
	}
	return text.data;
}

const char *figures_phase(uint32_t phase)
{
	return phases[phase].name;
}

const char *figures_state(uint32_t state)
{
	return state == CONTROLLER_EXCHANGE ? "exchanging" : state_names[state];
}

uint32_t figures_state_of(const struct controller *controller)
{
	return controller->failed ? CONTROLLER_FAILED : controller->state;
}

static uint32_t place_of(int phase)
{
	uint32_t i = 0;

	while (phases[i].phase != phase)
		i++;
	return i;
}

const char *figures_phase_of(const struct controller *controller, const struct slot *slot)
{
	return phases[place_of(phase_of(controller, slot))].name;
}

void controller_figures(const struct controller *controller, struct controller_figures *figures)
{
	const struct membership *members = &controller->members;

	*figures = (struct controller_figures){.state = figures_state_of(controller),
					       .epoch = controller->number,
					       .plans = controller->plans,
					       .failures = controller->failures};
	for (int role = 0; role < ROLE_COUNT; role++)
		figures->of[role].losses = controller->losses[role];
	for (uint32_t i = 0; i < members->count; i++) {
		const struct slot *slot = &members->slots[i];
		__typeof__(&figures->of[0]) of = &figures->of[slot->who.role];
		bool first = !of->heard_ms;
		uint64_t took;

		of->in[place_of(phase_of(controller, slot))]++;
		if (!slot_serves(slot))
			continue;
		took = status_last_us(controller, slot);
		if (took > of->slowest_us)
			of->slowest_us = took;
		if (first || slot->version < of->oldest)
			of->oldest = slot->version;
		if (slot->version > of->newest)
			of->newest = slot->version;
		if (first || slot->heard_ms < of->heard_ms)
			of->heard_ms = slot->heard_ms;
	}
}

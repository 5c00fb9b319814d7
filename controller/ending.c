/* SPDX-License-Identifier: Apache-2.0
 *
 * ending.c -- how a job fails: once, with one sentence that names somebody, told to everyone.
 *
 * Then either the controller gathers again (restarts left; everyone of the failed epoch is
 * told so whenever it speaks), or it waits until all who live have heard, at most lost_ms, and
 * exits with the code of the failure.
 */
#include "controller/state.h"

#include <stdio.h>
#include <string.h>

static const struct {
	enum phase phase;
	const char *verb;
} waits[] = {
	{PHASE_ABSENT, "to join"},
	{PHASE_JOINED, "to declare"},
	{PHASE_DECLARED, "to send their contents"},
	{PHASE_PLANNED, "to open endpoints"},
	{PHASE_OPENED, "to connect"},
};

/* LOST when one worker is to blame, REFUSE when it is the job as a whole. */
static int tell(struct controller *controller, const char *peer, uint64_t epoch,
		struct error *error)
{
	struct message *message;

	if (!controller->blamed_someone)
		return action_refuse(controller, peer, epoch, &controller->failure, error);
	message = action_send(controller, peer, MESSAGE_LOST);
	if (!message)
		return no_memory(error);
	message->epoch = epoch;
	message->u.lost.code = (int)controller->failure.code;
	message->u.lost.member = controller->blamed;
	message->u.lost.incarnation = controller->blamed_incarnation;
	message->u.lost.text = memory_string(controller->failure.text);
	return message->u.lost.text ? 0 : no_memory(error);
}

static bool present(const struct slot *slot)
{
	return slot->phase != PHASE_ABSENT && slot->phase != PHASE_LEFT;
}

static bool may_restart(const struct controller *controller, const struct error *why)
{
	return controller->restarts_left > 0 && error_exit_code(why->code) != 78;
}

static int gather_again(struct controller *controller, struct error *error)
{
	for (uint32_t i = 0; i < controller->slot_count; i++) {
		struct slot *slot = &controller->slots[i];
		struct former *former;

		if (present(slot)) {
			former = array_push(&controller->formers);
			if (!former)
				return no_memory(error);
			former->incarnation = slot->hello.incarnation;
			former->epoch = controller->epoch;
		}
		if (slot->body && !slot->body->known && slot->body->asked) {
			slot->body->asked = NULL;
			controller->bodies_missing--;
		}
		slot_clear(controller, slot);
	}
	book_free(&controller->book);
	controller->epoch++;
	controller->restarts_left--;
	controller->state = CONTROLLER_GATHER;
	controller->since_ms = controller->now_ms;
	controller->warned = false;
	if (action_log(controller, true, "gathering again as epoch %llu, %u restarts left",
		       (unsigned long long)controller->epoch, controller->restarts_left))
		return no_memory(error);
	return 0;
}

/* Everyone who can be told has been. */
static int maybe_exit(struct controller *controller, struct error *error)
{
	uint32_t gone = controller->phases[PHASE_ABSENT] + controller->phases[PHASE_LEFT] +
			controller->phases[PHASE_LOST];

	if (gone < controller->slot_count)
		return 0;
	return action_exit(controller, &controller->failure, error);
}

int ending_fail(struct controller *controller, const struct slot *blamed, const struct error *why,
		struct error *error)
{
	int rc = 0;

	controller->failure = *why;
	controller->blamed_someone = blamed != NULL;
	if (blamed) {
		controller->blamed = blamed->who;
		controller->blamed_incarnation = blamed->hello.incarnation;
	}
	if (action_log(controller, true, "the job fails: %s", why->text))
		return no_memory(error);
	for (uint32_t i = 0; !rc && i < controller->slot_count; i++)
		if (present(&controller->slots[i]))
			rc = tell(controller, controller->slots[i].peer, controller->epoch, error);
	if (rc)
		return rc;
	if (may_restart(controller, why))
		return gather_again(controller, error);
	controller->state = CONTROLLER_FAILED;
	controller->grace_ms = controller->now_ms + controller->options.lost_ms;
	return maybe_exit(controller, error);
}

int ending_answer(struct controller *controller, struct slot *slot, struct message *message,
		  struct error *error)
{
	if (message->type != MESSAGE_LEAVE)
		return tell(controller, slot->peer, message->epoch, error);
	slot_phase(controller, slot, PHASE_LEFT);
	return maybe_exit(controller, error);
}

int ending_answer_former(struct controller *controller, const char *peer,
			 const struct message *message, bool *was, struct error *error)
{
	for (size_t i = 0; i < controller->formers.count; i++) {
		const struct former *former = &controller->formers.items[i];

		if (former->incarnation != message->from || former->epoch != message->epoch)
			continue;
		*was = true;
		return tell(controller, peer, message->epoch, error);
	}
	return 0;
}

void ending_missing(const struct controller *controller, struct text *text)
{
	bool any = false;

	for (size_t i = 0; i < ARRAY_SIZE(waits); i++) {
		struct text list = {0};

		/* a declared worker is only waited for while its body is not here */
		if (waits[i].phase == PHASE_DECLARED && !controller->bodies_missing)
			continue;
		if (members_in_phase(controller, waits[i].phase, &list)) {
			text_format(text, "%s%s %s", any ? "; " : "", text_string(&list),
				    waits[i].verb);
			any = true;
		}
		text_fini(&list);
	}
}

void ending_refused(const struct controller *controller, char *out, size_t bytes)
{
	char name[MEMBER_TEXT_BYTES];

	*out = 0;
	for (uint32_t i = 0; !*out && i < controller->slot_count; i++) {
		const struct slot *slot = &controller->slots[i];

		if (slot->phase == PHASE_ABSENT && slot->refused)
			snprintf(out, bytes, "; %s was refused: %s", member_text(slot->who, name),
				 slot->refused);
	}
}

static uint64_t limit_ms(const struct controller *controller)
{
	return controller->state == CONTROLLER_GATHER ? controller->options.join_timeout_ms
						      : controller->options.exchange_timeout_ms;
}

static int late(struct controller *controller, uint64_t waited, struct error *error)
{
	bool gathering = controller->state == CONTROLLER_GATHER;
	const struct slot *first = NULL;
	char refused[ERROR_TEXT_BYTES];
	struct text text = {0};
	struct error why;

	ending_refused(controller, refused, sizeof(refused));
	ending_missing(controller, &text);
	if (*refused)
		error_set(&why, ERROR_TIMEOUT,
			  "waiting for %.200s for %.1f s%.700s; start it like the others",
			  text_string(&text), (double)waited / 1000.0, refused);
	else
		error_set(&why, ERROR_TIMEOUT,
			  "waiting for %.800s for %.1f s; raise --%s-timeout if this is expected",
			  text_string(&text), (double)waited / 1000.0,
			  gathering ? "join" : "exchange");
	text_fini(&text);
	if (gathering) {
		controller->restarts_left = 0; /* nothing was lost that could come back */
	} else {
		for (uint32_t i = 0; !first && i < controller->slot_count; i++)
			if (controller->slots[i].phase < PHASE_CONNECTED)
				first = &controller->slots[i];
	}
	return ending_fail(controller, first, &why, error);
}

int ending_deadlines(struct controller *controller, struct error *error)
{
	uint64_t waited = controller->now_ms - controller->since_ms;
	uint64_t limit = limit_ms(controller);
	struct text text = {0};
	int rc;

	if (controller->state == CONTROLLER_FAILED && controller->now_ms >= controller->grace_ms)
		return action_exit(controller, &controller->failure, error);
	if (controller->state != CONTROLLER_GATHER && controller->state != CONTROLLER_EXCHANGE)
		return 0;
	if (waited >= limit)
		return late(controller, waited, error);
	if (controller->warned || waited < limit / 4)
		return 0;
	controller->warned = true;
	ending_missing(controller, &text);
	rc = action_log(controller, true, "still waiting for %s, %.1f of %.1f s",
			text_string(&text), (double)waited / 1000.0, (double)limit / 1000.0);
	text_fini(&text);
	return rc ? no_memory(error) : 0;
}

uint64_t ending_next_ms(const struct controller *controller)
{
	uint64_t limit = limit_ms(controller);

	if (controller->state == CONTROLLER_FAILED)
		return controller->grace_ms;
	if (controller->state != CONTROLLER_GATHER && controller->state != CONTROLLER_EXCHANGE)
		return UINT64_MAX;
	return controller->since_ms + (controller->warned ? limit : limit / 4);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * ending.c -- how a job fails: once, with one error message that names somebody, told to everyone.
 *
 * Then either the controller gathers again (restarts left; everyone of the failed epoch is
 * told so whenever it speaks), or it waits until all who live have heard, at most lost_ms, and
 * exits with the code of the failure. When a worker failed while others were still to join, those
 * count as living: they are told when they come, and need not find nobody.
 */
#include "controller/state.h"

/* LOST when one worker is to blame, REFUSE when it is the job as a whole. */
static void tell(struct controller *controller, const char *peer, uint64_t epoch)
{
	struct message *message;

	WEFT_ASSERT_OP(controller->failure.code, !=, ERROR_NONE);
	if (!controller->blamed_someone) {
		send_refuse(controller, peer, epoch, &controller->failure);
		return;
	}
	message = send_to(controller, peer, MESSAGE_LOST);
	message->epoch = epoch;
	message->u.lost.code = (int)controller->failure.code;
	message->u.lost.member = controller->blamed;
	message->u.lost.incarnation = controller->blamed_incarnation;
	message->u.lost.text = action_string(controller->actions, controller->failure.text);
}

static bool may_restart(const struct controller *controller, const struct error *why)
{
	return controller->restarts_left > 0 && error_exit_code(why->code) != 78;
}

static void gather_again(struct controller *controller)
{
	struct membership *members = &controller->members;

	epoch_free(&controller->epoch);
	controller->departures.count = controller->dismissed.count = 0;
	controller->pause.phase = PAUSE_NONE;
	controller->pause.next = controller->pause.missing_ms = 0;
	controller->exchanges_again = controller->goes_without = false;
	controller->done_ms = controller->postponed_ms = 0;
	for (uint32_t i = 0; i < members->count; i++) {
		struct slot *slot = &members->slots[i];

		if (slot_present(slot) &&
		    !array_add(
			    &controller->formers,
			    (struct former){slot->worker->hello.incarnation, controller->number}))
			no_memory(controller);
		if (slot->worker && slot->worker->body)
			bodies_stop_asking(&members->bodies, slot->worker->body);
		membership_clear(members, slot);
		slot->ran = RAN_NONE;
	}
	WEFT_ASSERT_OP(members->in[PRESENCE_ABSENT], ==, members->count);
	WEFT_ASSERT_OP(members->bodies.missing, ==, 0);
	WEFT_ASSERT_OP(controller->restarts_left, >, 0);
	controller->number++;
	controller->restarts_left--;
	controller_enter(controller, CONTROLLER_GATHER);
	patience_begin(&controller->patience, controller->now_ms);
	say(controller, true, "gathering again as epoch %llu, %u restarts left",
	    (unsigned long long)controller->number, controller->restarts_left);
}

static bool to_be_told(const struct controller *controller, const struct slot *slot)
{
	if (slot->presence == PRESENCE_ABSENT)
		return controller->latecomers && !slot->told;
	return slot->presence != PRESENCE_LEFT && slot->presence != PRESENCE_LOST;
}

/* Everyone who can be told has been. */
static void maybe_exit(struct controller *controller)
{
	WEFT_ASSERT_OP(controller->state, ==, CONTROLLER_FAILED);
	for (uint32_t i = 0; i < controller->members.count; i++)
		if (to_be_told(controller, &controller->members.slots[i]))
			return;
	controller_exit(controller, &controller->failure);
}

void ending_fail(struct controller *controller, const struct slot *blamed, const struct error *why)
{
	const struct membership *members = &controller->members;

	WEFT_ASSERT_OP(controller->state, <=, CONTROLLER_RUN);
	WEFT_ASSERT_OP(why->code, !=, ERROR_NONE);
	controller->failure = *why;
	codes_count(&controller->failures, why->code);
	status_note(controller, blamed, why);
	if (blamed)
		codes_count(&controller->losses[blamed->who.role], why->code);
	controller->blamed_someone = blamed != NULL;
	if (blamed) {
		WEFT_ASSERT(blamed->worker);
		controller->blamed = blamed->who;
		controller->blamed_incarnation = blamed->worker->hello.incarnation;
	}
	say(controller, true, "the job fails: %s", why->text);
	for (uint32_t i = 0; i < members->count; i++)
		if (slot_present(&members->slots[i]))
			tell(controller, members->slots[i].peer, controller->number);
	if (may_restart(controller, why)) {
		gather_again(controller);
		return;
	}
	/* after a deadline they have been waited for */
	controller->latecomers = blamed && !controller->epoch && why->code != ERROR_TIMEOUT;
	controller->exchanges_again = false;
	controller_enter(controller, CONTROLLER_FAILED);
	controller->grace_ms = controller->now_ms + controller->options.lost_ms;
	maybe_exit(controller);
}

void ending_answer(struct controller *controller, struct slot *slot, struct message *message)
{
	WEFT_ASSERT_OP(controller->state, ==, CONTROLLER_FAILED);
	if (message->type != MESSAGE_LEAVE) {
		tell(controller, slot->peer, message->epoch);
		return;
	}
	if (slot->presence != PRESENCE_LEFT)
		membership_gone(&controller->members, slot, PRESENCE_LEFT);
	maybe_exit(controller);
}

void ending_answer_late(struct controller *controller, struct slot *slot, const char *peer,
			const struct message *message)
{
	WEFT_ASSERT_OP(controller->state, ==, CONTROLLER_FAILED);
	say_refused(controller, peer, message->epoch, &controller->failure);
	slot->told = true;
	maybe_exit(controller);
}

bool ending_answer_former(struct controller *controller, const char *peer,
			  const struct message *message)
{
	for (size_t i = 0; i < controller->formers.count; i++) {
		const struct former *former = &controller->formers.items[i];

		if (former->incarnation == message->from && former->epoch == message->epoch) {
			tell(controller, peer, message->epoch);
			return true;
		}
	}
	return false;
}

/* Of an exchange that is over, for want of a trainer, another deadline is kept: returns.c. */
static bool is_waited_for(const struct controller *controller)
{
	return (controller->state == CONTROLLER_GATHER ||
		controller->state == CONTROLLER_EXCHANGE) &&
	       !controller->pause.missing_ms;
}

static uint64_t limit_ms(const struct controller *controller)
{
	return controller->state == CONTROLLER_GATHER ? controller->options.join_timeout_ms
						      : controller->options.exchange_timeout_ms;
}

static void late(struct controller *controller, uint64_t waited)
{
	bool gathering = controller->state == CONTROLLER_GATHER;
	const struct slot *first = NULL;
	int leg = LEG_COUNT;
	const struct epoch *epoch = controller->epoch;
	char refused[ERROR_TEXT_BYTES];
	struct text text = {0};
	struct error why;

	if (takeover_is_late(controller))
		return;
	view_refused(controller, refused, sizeof(refused));
	view_missing(controller, &text);
	if (*refused)
		error_set(&why, ERROR_TIMEOUT, "waiting for %.200s for %.1f s%.700s; %s",
			  text_string(&text), (double)waited / 1000.0, refused,
			  controller->members.in[PRESENCE_ABSENT] < controller->members.count
				  ? "start it like the others"
				  : "nobody was let in, so it may be the controller that differs");
	else
		error_set(&why, ERROR_TIMEOUT,
			  "waiting for %.800s for %.1f s; raise --%s-timeout if this is expected",
			  text_string(&text), (double)waited / 1000.0,
			  gathering ? "join" : "exchange");
	text_fini(&text);
	if (gathering)
		controller->restarts_left = 0; /* nothing was lost that could come back */
	for (uint32_t i = 0; epoch && i < epoch->count; i++) {
		const struct slot *slot = &controller->members.slots[i];

		if (epoch->parties[i].leg == LEG_CONNECTED || gone_is(controller, slot))
			continue;
		/* who is farthest behind keeps the others; of two the rank, where the job has run before, and can do without */
		if ((int)epoch->parties[i].leg < leg ||
		    (controller->exchanges_again && (int)epoch->parties[i].leg == leg &&
		     first->who.role == ROLE_TRAINER && slot->who.role == ROLE_INFERENCE)) {
			first = slot;
			leg = (int)epoch->parties[i].leg;
		}
	}
	losses_end(controller, first, &why);
}

static void still_waiting(struct controller *controller)
{
	uint64_t waited = controller->now_ms - controller->patience.since_ms;
	struct text text = {0};

	view_missing(controller, &text);
	say(controller, true, "still waiting for %s, %.1f of %.1f s", text_string(&text),
	    (double)waited / 1000.0, (double)limit_ms(controller) / 1000.0);
	text_fini(&text);
}

static uint64_t telling_ms(const struct controller *controller)
{
	uint64_t quiet = controller->options.lost_ms / 4;

	return controller->said_telling
		       ? UINT64_MAX
		       : controller->grace_ms - controller->options.lost_ms + quiet;
}

/* Who does not answer has gone, perhaps, without a word. */
static void still_telling(struct controller *controller)
{
	char first[WORKER_TEXT_BYTES] = "";
	uint32_t count = 0;

	controller->said_telling = true;
	for (uint32_t i = 0; i < controller->members.count; i++) {
		const struct slot *slot = &controller->members.slots[i];

		if (!to_be_told(controller, slot))
			continue;
		if (!count++ && slot->worker)
			slot_text(slot, first);
		else if (count == 1)
			member_text(slot->who, first);
	}
	say(controller, true,
	    "waiting for %u worker%s to hear of it and leave, the first is %s; %.1f s more at most",
	    count, count == 1 ? "" : "s", first,
	    (double)(controller->grace_ms - controller->now_ms) / 1000.0);
}

void ending_deadlines(struct controller *controller)
{
	if (controller->state == CONTROLLER_FAILED && controller->now_ms < controller->grace_ms &&
	    controller->now_ms >= telling_ms(controller))
		still_telling(controller);
	if (controller->state == CONTROLLER_FAILED && controller->now_ms >= controller->grace_ms)
		controller_exit(controller, &controller->failure);
	if (!is_waited_for(controller))
		return;
	switch (patience_look(&controller->patience, controller->now_ms, limit_ms(controller))) {
	case PATIENCE_ENDS:
		late(controller, controller->now_ms - controller->patience.since_ms);
		break;
	case PATIENCE_WARNS:
		still_waiting(controller);
		break;
	case PATIENCE_WAITS:
		break;
	}
}

uint64_t ending_next_ms(const struct controller *controller)
{
	if (controller->state == CONTROLLER_FAILED)
		return telling_ms(controller) < controller->grace_ms ? telling_ms(controller)
								     : controller->grace_ms;
	if (!is_waited_for(controller))
		return UINT64_MAX;
	return patience_next_ms(&controller->patience, limit_ms(controller));
}

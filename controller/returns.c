/* SPDX-License-Identifier: Apache-2.0
 *
 * returns.c -- an engine comes in where one has left (gone.c), while the job runs. Its processes join and declare as at the
 * start. When all of them have, everybody pauses between two versions, and a plan is made and exchanged as the first one was,
 * for all who are here by then:
 *
 *   trainer     .. end 7 ── begin 8: paused ──────────────────┐
 *   rank        .. shows 7 ── wait 8:  asked ── paused ───────┤   plan ─ endpoints ─ peers ─ connected ─ go ── 8 ..
 *   newcomer    hello ── declare ─────────────────────────────┘
 *
 * Trainers first, all before the same version, the first that none of them has begun. Then nothing is on its way but
 * what ranks put in place of the last one, so they pause when they have. Nobody lets go of what others still use: a worker
 * opens its memory and endpoints anew only with the plan, and that is sent when all have paused.
 *
 * Once a pause has begun it ends in a plan, whatever becomes of the newcomers: without them it is one for those who are here.
 */
#include "controller/state.h"

#define UPDATE_TIMEOUT_MS 60000u /* what workers take where nothing is said */

static uint64_t update_timeout_ms(const struct controller *controller)
{
	return controller->options.update_timeout_ms ? controller->options.update_timeout_ms
						     : UPDATE_TIMEOUT_MS;
}

static struct paused *paused_of(const struct controller *controller, const struct slot *slot)
{
	return &controller->pause.slots[slot - controller->members.slots];
}

static bool is_asked(const struct controller *controller, const struct slot *slot)
{
	enum pause_phase phase = controller->pause.phase;

	return controller->state == CONTROLLER_RUN && slot_serves(slot) &&
	       exchange_has(controller, slot) &&
	       (slot->who.role == ROLE_TRAINER ? phase == PAUSE_TRAINERS : phase == PAUSE_RANKS);
}

/* Of who is waited for: the first; NULL: all have paused. */
static struct slot *first_missing(const struct controller *controller)
{
	for (uint32_t i = 0; i < controller->members.count; i++) {
		struct slot *slot = &controller->members.slots[i];

		if (is_asked(controller, slot) && !paused_of(controller, slot)->stopped)
			return slot;
	}
	return NULL;
}

static void ask(struct controller *controller, const struct slot *slot)
{
	struct message *message = send_to(controller, slot->peer, MESSAGE_PAUSE);

	message->u.pause.number = controller->pause.number;
	message->u.pause.version = paused_of(controller, slot)->asked;
}

static void ask_all(struct controller *controller, enum pause_phase phase, uint64_t version)
{
	controller->pause.phase = phase;
	for (uint32_t i = 0; i < controller->members.count; i++) {
		const struct slot *slot = &controller->members.slots[i];

		if (!is_asked(controller, slot))
			continue;
		*paused_of(controller, slot) = (struct paused){.asked = version};
		ask(controller, slot);
	}
}

/* ---- who is here ---- */

static bool is_whole(const struct controller *controller, uint32_t first)
{
	for (uint32_t rank = first; rank < first + controller->options.infer.tp; rank++) {
		const struct slot *slot =
			membership_slot(&controller->members, ROLE_INFERENCE, rank);

		if (slot->presence != PRESENCE_DECLARED || !slot->worker->body->known ||
		    slot_claim_open(slot, controller->options.heartbeat_ms))
			return false;
	}
	return true;
}

/* All of its ranks are here again: its departure; NULL: of no engine they are. */
static struct departure *find_whole(const struct controller *controller)
{
	for (size_t i = 0; i < controller->departures.count; i++) {
		struct departure *departure = &controller->departures.items[i];

		if (!departure->back && is_whole(controller, departure->first))
			return departure;
	}
	return NULL;
}

static void say_engine(struct controller *controller, uint32_t first, const char *what)
{
	uint32_t tp = controller->options.infer.tp;

	say(controller, false, "engine %u (inference %u..%u) %s", first / tp, first, first + tp - 1,
	    what);
}

void returns_maybe_begin(struct controller *controller)
{
	const struct departure *departure;

	if (controller->state != CONTROLLER_RUN || controller->pause.phase != PAUSE_NONE ||
	    !(departure = find_whole(controller)))
		return;
	say_engine(controller, departure->first,
		   "is here, and comes in when all trainers begin their next update");
	controller->pause.number++;
	controller->pause.since_ms = controller->pause.next = 0;
	ask_all(controller, PAUSE_TRAINERS, 0);
}

/* ---- the pause ---- */

void returns_remind(struct controller *controller, const struct slot *slot)
{
	if (is_asked(controller, slot) && !paused_of(controller, slot)->stopped)
		ask(controller, slot);
}

/* Somebody goes on and needs who has left: as without a pause, but nobody would find out. */
static bool somebody_left(struct controller *controller)
{
	char who[WORKER_TEXT_BYTES];
	struct error why;

	for (uint32_t i = 0; i < controller->members.count; i++) {
		const struct slot *slot = &controller->members.slots[i];

		if (slot->presence != PRESENCE_LEFT || gone_is(controller, slot))
			continue;
		error_set(
			&why, ERROR_PEER_LOST,
			"%s did its work and left after version %llu, but all trainers who are here are "
			"about to begin version %llu: give all workers the same number of updates "
			"(--updates)",
			slot_text(slot, who), (unsigned long long)slot->version,
			(unsigned long long)controller->pause.next);
		ending_fail(controller, slot, &why);
		return true;
	}
	return false;
}

/* Trainers stop before one version, the first that none of them has begun: who stopped before an earlier one goes on up to it,
 * for without his part of that nobody else can. */
static void meet(struct controller *controller)
{
	struct pause *pause = &controller->pause;
	uint64_t version = 0;
	bool any = false, all = true;

	for (uint32_t t = 0; t < controller->members.trainers; t++)
		pause->next =
			pause->slots[t].next > pause->next ? pause->slots[t].next : pause->next;
	for (uint32_t t = 0; t < controller->members.trainers; t++) {
		struct paused *trainer = &pause->slots[t];

		if (!slot_serves(&controller->members.slots[t]))
			continue;
		any = true;
		version = trainer->version > version ? trainer->version : version;
		if (trainer->stopped && trainer->next < pause->next) {
			*trainer = (struct paused){.asked = pause->next, .next = trainer->next};
			ask(controller, &controller->members.slots[t]);
		}
		all = all && trainer->stopped;
	}
	if (!any || !all || somebody_left(controller))
		return;
	pause->since_ms = controller->now_ms;
	ask_all(controller, PAUSE_RANKS, version);
}

void returns_look(struct controller *controller)
{
	if (controller->state > CONTROLLER_RUN)
		return;
	if (controller->exchanges_again) { /* one of its engines has gone */
		controller->pause.phase = PAUSE_OVER;
		action_push(controller->actions, CONTROLLER_PLAN_DUE);
		return;
	}
	if (controller->pause.phase == PAUSE_TRAINERS)
		meet(controller);
	if (controller->pause.phase != PAUSE_RANKS || controller->state != CONTROLLER_RUN ||
	    first_missing(controller))
		return;
	controller->pause.phase = PAUSE_OVER;
	action_push(controller->actions, CONTROLLER_PLAN_DUE);
}

void returns_paused(struct controller *controller, struct slot *slot, struct message *message)
{
	const struct message_paused *said = &message->u.paused;
	struct paused *paused = paused_of(controller, slot);

	if (said->stopped && said->version > slot->version)
		slot->version = said->version;
	if (!exchange_has(controller, slot) || said->number != controller->pause.number)
		return;
	if (controller->state == CONTROLLER_EXCHANGE) { /* it has not heard the plan */
		exchange_replay_plan(controller, slot);
		return;
	}
	if (!is_asked(controller, slot) || paused->stopped)
		return;
	paused->stopped =
		said->stopped && (slot->who.role == ROLE_INFERENCE || said->next >= paused->asked);
	paused->next = said->next;
	paused->version = said->version;
	if (!controller->pause.since_ms && paused->stopped)
		controller->pause.since_ms = controller->now_ms;
	returns_look(controller);
}

void returns_missing(const struct controller *controller, struct text *text)
{
	char who[WORKER_TEXT_BYTES];
	const char *what = controller->pause.phase == PAUSE_TRAINERS
				   ? "to begin an update (weft_update_begin)"
				   : "to wait for one (weft_update_wait)";
	uint32_t count = 0;

	for (uint32_t i = 0; i < controller->members.count; i++)
		count += is_asked(controller, &controller->members.slots[i]) &&
			 !paused_of(controller, &controller->members.slots[i])->stopped;
	if (count)
		text_format(text, "%s %s", slot_text(first_missing(controller), who), what);
	if (count > 1)
		text_format(text, ", and %u more", count - 1);
}

static void late(struct controller *controller, uint64_t waited_ms)
{
	struct slot *slot = first_missing(controller);
	struct text missing = {0};
	struct error why;

	returns_missing(controller, &missing);
	error_set(&why, ERROR_TIMEOUT,
		  "an engine is to come in, and all wait for %.400s for %.1f s; raise "
		  "--update-timeout if this is expected",
		  text_string(&missing), (double)waited_ms / 1000.0);
	text_fini(&missing);
	losses_end(controller, slot, &why);
}

/* An engine that keeps all others waiting is gone on without in half of their time, as in an update. */
void returns_deadlines(struct controller *controller)
{
	const struct pause *pause = &controller->pause;
	uint64_t limit = update_timeout_ms(controller),
		 waited = controller->now_ms - pause->since_ms;

	if (controller->state != CONTROLLER_RUN || !pause->since_ms)
		return;
	if (pause->phase == PAUSE_RANKS)
		limit /= 2;
	else if (pause->phase != PAUSE_TRAINERS)
		return;
	if (waited >= limit && first_missing(controller))
		late(controller, waited);
}

/* ---- the plan ---- */

void returns_come_in(struct controller *controller)
{
	struct departure *departure;

	while ((departure = find_whole(controller)))
		departure->back = true;
}

/* Those of whom no plan was made yet. */
static bool is_new(const struct controller *controller, const struct slot *slot)
{
	return controller->epoch && slot->presence == PRESENCE_DECLARED &&
	       !exchange_has(controller, slot);
}

bool returns_stay_out(struct controller *controller, const struct error *why)
{
	uint32_t tp = controller->options.infer.tp;
	bool any = false;

	for (size_t i = 0; i < controller->departures.count; i++) {
		struct departure *departure = &controller->departures.items[i];
		struct slot *slots =
			membership_slot(&controller->members, ROLE_INFERENCE, departure->first);

		if (!departure->back || !is_new(controller, slots))
			continue;
		departure->back = false;
		any = true;
		for (uint32_t k = 0; k < tp; k++)
			declarations_turn_away(controller, &slots[k], why);
	}
	return any;
}

void returns_over(struct controller *controller)
{
	if (!controller->exchanges_again)
		return;
	controller->exchanges_again = false;
	say(controller, false, "%u of %u engines are here from version %llu on",
	    gone_engines_here(controller), controller->options.infer.engines,
	    (unsigned long long)controller->pause.next);
}

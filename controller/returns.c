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
 * closes and opens endpoints only with the plan, and that is sent when all have paused; pairs that stay keep theirs (epoch_keep.c).
 *
 * Once a pause has begun it ends in a plan, whatever becomes of the newcomers: without them it is one for those who are here.
 *
 * When the last engine leaves the pause begins at once, and ends when one is here.
 * When a trainer leaves, it does too: ranks give up the version that it was sending (receive.h). Where all that it
 * held others hold too, the plan is made without it. Else another process has to come for its rank, and is waited for.
 */
#include "controller/state.h"

#include <stdio.h>

#define UPDATE_TIMEOUT_MS 60000u /* what workers take where nothing is said */

uint64_t returns_update_timeout_ms(const struct controller *controller)
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

	return controller->state == CONTROLLER_RUN && exchange_serves(controller, slot) &&
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

/* To stop, or how far trainers have begun; and what is shown. */
static void tell(struct controller *controller, const struct slot *slot, bool stop)
{
	struct message *message = send_to(controller, slot->peer, MESSAGE_PAUSE);

	message->u.pause.number = controller->pause.number;
	message->u.pause.gone = (uint32_t)controller->departures.count;
	message->u.pause.stop = stop;
	message->u.pause.version =
		stop ? paused_of(controller, slot)->asked : controller->pause.told;
	if (slot->who.role == ROLE_INFERENCE)
		message->u.pause.shows = controller->pause.shows;
	paused_of(controller, slot)->told = message->u.pause.shows;
}

void returns_ask(struct controller *controller, const struct slot *slot, uint64_t version)
{
	struct paused *paused = paused_of(controller, slot);

	*paused = (struct paused){.asked = version, .next = paused->next};
	tell(controller, slot, true);
}

void returns_tell_ranks(struct controller *controller)
{
	for (uint32_t i = controller->members.trainers; i < controller->members.count; i++)
		if (exchange_serves(controller, &controller->members.slots[i]))
			tell(controller, &controller->members.slots[i], false);
}

static void ask_all(struct controller *controller, enum pause_phase phase, uint64_t version)
{
	controller->pause.phase = phase;
	for (uint32_t i = 0; i < controller->members.count; i++) {
		const struct slot *slot = &controller->members.slots[i];

		if (is_asked(controller, slot))
			returns_ask(controller, slot, version);
	}
}

/* ---- who is here ---- */

bool returns_whole(const struct controller *controller, struct member first)
{
	const struct slot *slots = membership_slot(&controller->members, first.role, first.rank);

	for (uint32_t k = 0; k < gone_count(controller, first); k++) {
		const struct slot *slot = &slots[k];

		if (slot->presence != PRESENCE_DECLARED || !slot->worker->body->known ||
		    slot_claim_open(slot, controller->options.heartbeat_ms) ||
		    /* it runs by a plan that is not ours */
		    (controller->epoch && slot->worker->hello.attempt &&
		     !exchange_has(controller, slot)))
			return false;
	}
	return true;
}

/* All of its ranks are here again: its departure; NULL: of nobody who has left they are. */
static struct departure *find_whole(const struct controller *controller)
{
	for (size_t i = 0; i < controller->departures.count; i++) {
		struct departure *departure = &controller->departures.items[i];

		if (!departure->back && returns_whole(controller, departure->first))
			return departure;
	}
	return NULL;
}

static uint32_t count_whole(const struct controller *controller)
{
	uint32_t count = 0;

	for (size_t i = 0; i < controller->departures.count; i++)
		count += !controller->departures.items[i].back &&
			 returns_whole(controller, controller->departures.items[i].first);
	return count;
}

bool returns_engine_comes(const struct controller *controller)
{
	for (size_t i = 0; i < controller->departures.count; i++) {
		const struct departure *departure = &controller->departures.items[i];

		if (departure->first.role == ROLE_INFERENCE && !departure->back &&
		    returns_whole(controller, departure->first))
			return true;
	}
	return false;
}

/* The first trainer that has left and is not here again. */
static const struct departure *missing_trainer(const struct controller *controller)
{
	for (size_t i = 0; i < controller->departures.count; i++) {
		const struct departure *departure = &controller->departures.items[i];

		if (departure->first.role == ROLE_TRAINER && !departure->back &&
		    !returns_whole(controller, departure->first))
			return departure;
	}
	return NULL;
}

static void say_is_here(struct controller *controller, struct member first)
{
	uint32_t tp = controller->options.infer.tp;
	char who[64];

	if (first.role == ROLE_TRAINER)
		snprintf(who, sizeof(who), "trainer %u", first.rank);
	else
		snprintf(who, sizeof(who), "engine %u (inference %u..%u)", first.rank / tp,
			 first.rank, first.rank + tp - 1);
	say(controller, false, "%s is here, and comes in when all trainers begin their next update",
	    who);
}

void returns_begin(struct controller *controller)
{
	struct pause *pause = &controller->pause;

	if (controller->state != CONTROLLER_RUN || pause->phase != PAUSE_NONE)
		return;
	pause->number++;
	pause->since_ms = pause->next = pause->told = pause->shows = 0;
	pause->settled = false;
	for (uint32_t i = 0; i < controller->members.count; i++)
		pause->slots[i] = (struct paused){0};
	ask_all(controller, PAUSE_TRAINERS, 0);
	if (settle_lacks_engine(controller))
		returns_tell_ranks(controller);
	returns_look(controller);
}

void returns_maybe_begin(struct controller *controller)
{
	struct pause *pause = &controller->pause;
	const struct departure *departure =
		controller->state <= CONTROLLER_RUN ? find_whole(controller) : NULL;
	uint32_t before = pause->whole;

	if (pause->missing_ms)
		pause->whole = count_whole(controller);
	if (pause->missing_ms && pause->whole > before) {
		action_push(controller->actions, CONTROLLER_PLAN_DUE);
	} else if (!pause->missing_ms && departure && controller->state == CONTROLLER_RUN &&
		   pause->phase == PAUSE_NONE) {
		gone_all_done(controller);
		say_is_here(controller, departure->first);
		returns_begin(controller);
	}
}

void returns_recount(struct controller *controller)
{
	uint32_t whole = controller->pause.missing_ms ? count_whole(controller) : 0;

	if (whole < controller->pause.whole)
		controller->pause.whole = whole;
}

/* ---- the pause ---- */

void returns_remind(struct controller *controller, const struct slot *slot)
{
	if (is_asked(controller, slot) && !paused_of(controller, slot)->stopped)
		tell(controller, slot, true);
	else if (controller->state == CONTROLLER_RUN && slot->who.role == ROLE_INFERENCE &&
		 controller->pause.phase == PAUSE_TRAINERS &&
		 (controller->pause.told || settle_lacks_engine(controller)))
		tell(controller, slot, false);
}

/* Others of its engine have not stopped, and may leave as it did. */
static bool engine_may_leave(const struct controller *controller, const struct slot *slot)
{
	struct member first = gone_first(controller, slot);
	const struct slot *slots = membership_slot(&controller->members, first.role, first.rank);

	for (uint32_t k = 0; first.role == ROLE_INFERENCE && k < gone_count(controller, first); k++)
		if (exchange_serves(controller, &slots[k]) &&
		    !paused_of(controller, &slots[k])->stopped)
			return true;
	return false;
}

/* Somebody goes on and needs who has left: as without a pause, but nobody would find out. */
bool returns_somebody_left(struct controller *controller)
{
	char who[WORKER_TEXT_BYTES];
	struct error why;

	for (uint32_t i = 0; i < controller->members.count; i++) {
		const struct slot *slot = &controller->members.slots[i];

		if (slot->presence != PRESENCE_LEFT || gone_is(controller, slot) ||
		    (controller->continues && engine_may_leave(controller, slot)))
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

/* No trainer is here, and one of those that are not has done its work: nobody can do without it what is left to do. */
static bool all_that_live_left(struct controller *controller)
{
	for (uint32_t t = 0; t < controller->members.trainers; t++) {
		if (controller->members.slots[t].presence != PRESENCE_LEFT)
			continue;
		ending_fail(controller, NULL, &gone_trainer(controller)->why);
		return true;
	}
	return false;
}

/* Some trainer waits in its next update. */
static bool trainer_waits(const struct controller *controller)
{
	for (uint32_t t = 0; t < controller->members.trainers; t++)
		if (exchange_serves(controller, &controller->members.slots[t]) &&
		    controller->pause.slots[t].stopped)
			return true;
	return false;
}

/* A rank that has nothing of a version, all of whose trainers are gone, would wait for it until the pause, and its engine with
 * it, for which a trainer that has begun the next one waits. And one that waits for all engines to be there, of which one is gone,
 * would not let trainers write. So ranks are told how far trainers have begun. */
static void tell_all_begun(struct controller *controller)
{
	struct pause *pause = &controller->pause;

	for (uint32_t t = 0; t < controller->members.trainers; t++)
		if (is_asked(controller, &controller->members.slots[t]) && !pause->slots[t].firm)
			return;
	if ((!gone_trainer(controller) && !settle_lacks_engine(controller)) ||
	    pause->next <= pause->told + 1)
		return;
	pause->told = pause->next - 1;
	returns_tell_ranks(controller);
}

/* One has left since the plan was made. */
static bool lacks_trainer(const struct controller *controller)
{
	for (size_t i = 0; i < controller->departures.count; i++) {
		const struct departure *departure = &controller->departures.items[i];

		if (departure->first.role == ROLE_TRAINER && !departure->back &&
		    (controller->epoch->adopted ||
		     !controller->epoch->parties[departure->first.rank].away))
			return true;
	}
	return false;
}

/* Trainers stop before one version, the first that none of them has begun: who stopped before an earlier one goes on up to it,
 * for without his part of that nobody else can. Where none is left, ranks know what comes next. */
static void meet(struct controller *controller)
{
	struct pause *pause = &controller->pause;
	uint64_t version = 0;
	bool any = false, all = true;

	pause->next = 0;
	for (uint32_t t = 0; t < controller->members.trainers; t++) {
		const struct slot *slot = &controller->members.slots[t];

		if (pause->slots[t].firm && pause->slots[t].next > pause->next)
			pause->next = pause->slots[t].next;
		/* who has done its work has begun all of it */
		if (slot->presence == PRESENCE_LEFT && slot->version >= pause->next)
			pause->next = slot->version + 1;
	}
	for (uint32_t t = 0; t < controller->members.trainers; t++) {
		struct paused *trainer = &pause->slots[t];

		if (!exchange_serves(controller, &controller->members.slots[t]))
			continue;
		any = true;
		version = trainer->version > version ? trainer->version : version;
		if (trainer->stopped && trainer->next < pause->next)
			returns_ask(controller, &controller->members.slots[t], pause->next);
		all = all && trainer->stopped;
	}
	if (any)
		tell_all_begun(controller);
	if (any ? !all : !lacks_trainer(controller))
		return;
	if (any ? returns_somebody_left(controller) : all_that_live_left(controller))
		return;
	pause->since_ms = controller->now_ms;
	ask_all(controller, PAUSE_RANKS, version);
}

/* A trainer that had lost the controller, and not its ranks, may have sent a version that the trainers who are here have yet to
 * begin. Who shows that cannot take it again, and its bytes are no others'. */
static bool somebody_is_ahead(struct controller *controller)
{
	const struct pause *pause = &controller->pause;
	char who[WORKER_TEXT_BYTES];
	struct error why;

	for (uint32_t i = controller->members.trainers; i < controller->members.count; i++) {
		const struct slot *slot = &controller->members.slots[i];

		if (!exchange_serves(controller, slot) || pause->slots[i].version < pause->next)
			continue;
		error_set(
			&why, ERROR_VERSION,
			"%s shows version %llu of a trainer that is lost, and the trainers who are "
			"here are about to begin version %llu: start its engine again",
			slot_text(slot, who), (unsigned long long)pause->slots[i].version,
			(unsigned long long)pause->next);
		losses_end(controller, slot, &why);
		return true;
	}
	return false;
}

static void over(struct controller *controller)
{
	struct pause *pause = &controller->pause;

	if (trainer_waits(controller) && somebody_is_ahead(controller))
		return; /* looked at again without it */
	if (!trainer_waits(controller))
		for (uint32_t i = 0; i < controller->members.count; i++)
			pause->next = pause->slots[i].next > pause->next ? pause->slots[i].next
									 : pause->next;
	pause->phase = PAUSE_OVER;
	action_push(controller->actions, CONTROLLER_PLAN_DUE);
}

void returns_look(struct controller *controller)
{
	if (controller->state > CONTROLLER_RUN)
		return;
	settle_look(controller);
	if (controller->exchanges_again) { /* one of those in it has gone */
		controller->pause.phase = PAUSE_OVER;
		action_push(controller->actions, CONTROLLER_PLAN_DUE);
		return;
	}
	if (controller->pause.phase == PAUSE_TRAINERS)
		meet(controller);
	if (controller->pause.phase != PAUSE_RANKS || controller->state != CONTROLLER_RUN ||
	    first_missing(controller) || settle_lets_go(controller))
		return;
	over(controller);
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
	if (controller->state == CONTROLLER_RUN && said->stopped && said->anew)
		paused->anew = true; /* it may have broken since */
	if (settle_hears(controller, slot, said) || !is_asked(controller, slot) ||
	    paused->stopped || (said->promised && said->promised == paused->told))
		return; /* told: it had not heard yet that it shows it */
	paused->firm = said->stopped || said->next == paused->next;
	paused->stopped =
		said->stopped && (slot->who.role == ROLE_INFERENCE || said->next >= paused->asked);
	paused->next = said->next;
	paused->version = said->version;
	paused->promised = said->promised;
	paused->repeats = said->repeats;
	paused->between = said->between;
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
		  "the job pauses for another plan, and all wait for %.400s for %.1f s; raise "
		  "--update-timeout if this is expected",
		  text_string(&missing), (double)waited_ms / 1000.0);
	text_fini(&missing);
	/* a slow trainer is not lost, and may hold what nobody else does */
	if (slot->who.role == ROLE_TRAINER)
		ending_fail(controller, slot, &why);
	else
		losses_end(controller, slot, &why);
}

/* The last of those that have left; some engine has. */
static const struct departure *last_engine(const struct controller *controller)
{
	size_t n = controller->departures.count;

	while (controller->departures.items[n - 1].first.role != ROLE_INFERENCE)
		n--;
	return &controller->departures.items[n - 1];
}

/* For the rank of a trainer that left, or for any of an engine. */
static void nobody_came(struct controller *controller)
{
	const struct departure *gone = missing_trainer(controller);
	struct pause *pause = &controller->pause;
	double waited = (double)(controller->now_ms - pause->missing_ms) / 1000.0;
	struct error why;

	if (!gone_here(controller, ROLE_INFERENCE) && !returns_engine_comes(controller))
		error_set(
			&why, ERROR_PEER_LOST,
			"no engine has come for %.1f s: start one again, or raise --join-timeout. "
			"The last one has left: %.700s",
			waited, last_engine(controller)->why.text);
	else if (gone)
		error_set(&why, ERROR_PEER_LOST,
			  "no other process has come for the rank of trainer %u for %.1f s, and "
			  "without it there is no plan (%.300s); start it again, or raise "
			  "--join-timeout. %.500s",
			  gone->first.rank, waited, pause->missing.text, gone->why.text);
	else { /* all have come, in the place of one another */
		action_push(controller->actions, CONTROLLER_PLAN_DUE);
		return;
	}
	pause->missing_ms = 0;
	ending_fail(controller, NULL, &why);
}

/* An engine that keeps all others waiting is gone on without in half of their time, as in an update. Where all trainers are
 * new, nobody waits in one. */
void returns_deadlines(struct controller *controller)
{
	const struct pause *pause = &controller->pause;
	uint64_t limit = returns_update_timeout_ms(controller),
		 waited = controller->now_ms - pause->since_ms;

	if (pause->missing_ms && controller->state <= CONTROLLER_RUN &&
	    controller->now_ms >= pause->missing_ms + controller->options.join_timeout_ms)
		nobody_came(controller);
	if (controller->state != CONTROLLER_RUN || !pause->since_ms)
		return;
	if (pause->phase == PAUSE_RANKS && !trainer_waits(controller))
		limit = controller->options.join_timeout_ms;
	else if (pause->phase == PAUSE_RANKS)
		limit = pause->copy ? limit
				    : limit / 2; /* who still sends one stops when it is there */
	else if (pause->phase != PAUSE_TRAINERS)
		return;
	if (waited >= limit && first_missing(controller))
		late(controller, waited);
}

/* ---- the plan ---- */

static void set_fresh(struct controller *controller, struct member first, bool fresh)
{
	struct slot *slots = membership_slot(&controller->members, first.role, first.rank);

	for (uint32_t k = 0; k < gone_count(controller, first); k++)
		paused_of(controller, &slots[k])->fresh = fresh;
}

void returns_come_in(struct controller *controller)
{
	struct departure *departure;

	for (size_t i = 0; i < controller->departures.count; i++)
		controller->departures.items[i].coming = false;
	while ((departure = find_whole(controller))) {
		departure->back = departure->coming = true;
		set_fresh(controller, departure->first, true);
	}
}

bool returns_lacks_last(const struct controller *controller, const struct slot *slot)
{
	const struct paused *paused = paused_of(controller, slot);

	return slot->who.role == ROLE_INFERENCE &&
	       (paused->fresh || paused->version + 1 < controller->pause.next);
}

bool returns_is_sent(const struct controller *controller, const struct slot *slot)
{
	return controller->pause.repeat && returns_lacks_last(controller, slot);
}

/* Where all trainers would, and somebody lacks it and is not sent it by ranks: the last version. */
uint64_t returns_repeat(const struct controller *controller)
{
	const struct pause *pause = &controller->pause;
	bool any = false;

	for (uint32_t i = 0; i < controller->members.count; i++) {
		const struct slot *slot = &controller->members.slots[i];
		const struct paused *paused = &pause->slots[i];

		if (!exchange_has(controller, slot))
			continue;
		if (returns_lacks_last(controller, slot))
			any = true;
		else if (paused->fresh || paused->version + 1 != pause->next ||
			 (slot->who.role == ROLE_TRAINER && !paused->repeats))
			return 0;
	}
	return any && !pause->copy ? pause->next - 1 : 0;
}

/* One wait with one deadline, whatever becomes of why. */
static void wait_for(struct controller *controller, const char *whom, const struct error *why)
{
	struct pause *pause = &controller->pause;
	bool anew = !pause->missing_ms || pause->missing.code != why->code;
	uint64_t until;

	pause->missing = *why;
	pause->whole = count_whole(controller);
	if (!pause->missing_ms)
		pause->missing_ms = controller->now_ms;
	until = pause->missing_ms + controller->options.join_timeout_ms;
	if (anew && until >= controller->now_ms)
		say(controller, true,
		    "waiting for %s, %.1f s at most (--join-timeout): without it, %.500s", whom,
		    (double)(until - controller->now_ms) / 1000.0, why->text);
}

bool returns_wait_for_engine(struct controller *controller)
{
	struct error why = {.code = ERROR_PEER_LOST, .text = "trainers have nobody to send to"};

	if (!controller->epoch || gone_here(controller, ROLE_INFERENCE))
		return false;
	returns_stay_out(controller);
	wait_for(controller, "an engine", &why);
	return true;
}

bool returns_wait(struct controller *controller, const struct error *why)
{
	const struct departure *gone = missing_trainer(controller);
	char whom[64];

	if (!gone)
		return false;
	snprintf(whom, sizeof(whom), "another process for the rank of trainer %u",
		 gone->first.rank);
	wait_for(controller, whom, why);
	return true;
}

bool returns_stay_out(struct controller *controller)
{
	bool any = false;

	for (size_t i = 0; i < controller->departures.count; i++) {
		struct departure *departure = &controller->departures.items[i];

		if (!departure->coming)
			continue;
		departure->back = departure->coming = false;
		set_fresh(controller, departure->first, false);
		any = true;
	}
	return any;
}

void returns_turn_away(struct controller *controller, const struct error *why)
{
	struct departure *departure;

	while ((departure = find_whole(controller)))
		for (uint32_t k = 0; k < gone_count(controller, departure->first); k++)
			declarations_turn_away(controller,
					       membership_slot(&controller->members,
							       departure->first.role,
							       departure->first.rank + k),
					       why);
}

void returns_over(struct controller *controller)
{
	char trainers[48] = "", lacking[96] = "";
	uint64_t repeat = controller->pause.repeat;
	uint32_t here = gone_here(controller, ROLE_TRAINER), world = controller->members.trainers;

	if (!controller->exchanges_again)
		return;
	controller->exchanges_again = false;
	if (here < world)
		snprintf(trainers, sizeof(trainers), " and %u of %u trainers", here, world);
	if (repeat)
		snprintf(lacking, sizeof(lacking),
			 "; who lacks version %llu is sent it before, once more",
			 (unsigned long long)repeat);
	if (controller->pause.copy)
		snprintf(lacking, sizeof(lacking),
			 "; who lacks version %llu is sent it by engines that show it",
			 (unsigned long long)controller->pause.copy);
	say(controller, false, "%u of %u engines%s are here from version %llu on%s",
	    gone_here(controller, ROLE_INFERENCE), controller->options.infer.engines, trainers,
	    (unsigned long long)controller->pause.next, lacking);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * takeover.c -- a controller that is started in the place of one that was lost, while the job runs on (--orphan). It knows
 * nothing, and is told everything: each worker says hello with the plan that it runs by, and declares as at the start.
 *
 *   orphans    hello, runs by plan 4ac1.. ── declare ──┐
 *                                                      ├─ the same plan? ── go
 *   newcomers  hello ── declare ───────────────────────┘  (who died meanwhile, and was started again)
 *
 * What workers declare and the options of this controller make the plan, so it is made again, and must be theirs, bit for bit:
 * then nothing is sent but `go`, and the job runs as it did. A plan that follows another one (routing/plan/keep.h) nobody can make
 * again, so that job pauses for a new one at once. A trainer that does not run, and an engine of which not all ranks do, count as
 * lost: their new processes come in as others do that come back (returns.c). Of a host that took its controller with it that is so.
 *
 * With --on-loss continue nobody is waited for who is not needed: an engine that others know to have left, or that did its work. Who
 * else is missing is, until --join-timeout ends; then the job goes on without, where trainers and an engine are here. The plan
 * cannot be made again then, so it pauses for another one.
 *
 * Where the controller was lost while the job paused for a plan, or exchanged it, the plan made here is none of theirs, and the job
 * pauses for another one. Who had stopped stands there; all others go on up to that pause, but where some have let go of the plan
 * before and cannot run by theirs: then nobody runs.
 */
#include "controller/state.h"

static const struct message_hello *hello_of(const struct slot *slot)
{
	return slot->worker ? &slot->worker->hello : NULL;
}

static bool runs(const struct slot *slot)
{
	const struct message_hello *hello = hello_of(slot);

	return hello && hello->attempt;
}

static bool knows_more(const struct message_hello *one, const struct message_hello *other)
{
	if (one->attempt != other->attempt)
		return one->attempt > other->attempt;
	return one->lost_count + one->done_count > other->lost_count + other->done_count;
}

const struct slot *takeover_first(const struct controller *controller)
{
	const struct slot *first = NULL;

	for (uint32_t i = 0; i < controller->members.count && !controller->epoch; i++) {
		const struct slot *slot = &controller->members.slots[i];

		if (runs(slot) && (!first || knows_more(hello_of(slot), hello_of(first))))
			first = slot;
	}
	return first;
}

/* It runs by an older plan than others have. They have gone on without it; or they paused for one that it was not sent. */
static bool is_behind(const struct slot *first, const struct slot *slot)
{
	return runs(slot) && hello_of(slot)->attempt < hello_of(first)->attempt;
}

/* Where the newest plan is not everybody's, nobody runs by it. Else some do, and who was asked to stop is told by nobody else to
 * go on. */
static enum takeover what_they_do(const struct controller *controller, const struct slot *first)
{
	enum takeover how = TAKEOVER_SAME;

	for (uint32_t i = 0; i < controller->members.count; i++) {
		const struct slot *slot = &controller->members.slots[i];

		if (!runs(slot))
			continue;
		if (hello_of(slot)->unconnected || is_behind(first, slot))
			return TAKEOVER_EXCHANGE;
		if (hello_of(slot)->paused)
			how = TAKEOVER_PAUSED;
	}
	return how;
}

void takeover_refuse_stale(struct controller *controller)
{
	const struct slot *first = takeover_first(controller);

	for (uint32_t i = 0; first && i < controller->members.count; i++) {
		struct slot *slot = &controller->members.slots[i];
		char who[WORKER_TEXT_BYTES];
		struct error why;

		if (!is_behind(first, slot) || !takeover_is_without(controller, first, slot))
			continue;
		error_set(
			&why, ERROR_CONFLICT,
			"%s runs by plan attempt %u, and the others by %u: they have gone on without "
			"it. Start it again, and it comes in",
			slot_text(slot, who), hello_of(slot)->attempt, hello_of(first)->attempt);
		declarations_turn_away(controller, slot, &why);
	}
}

static bool is_among(const struct members *all, size_t count, struct member who)
{
	for (size_t i = 0; i < count; i++)
		if (member_within(who, all[i].first, all[i].count))
			return true;
	return false;
}

bool takeover_is_without(const struct controller *controller, const struct slot *first,
			 const struct slot *slot)
{
	return is_among(hello_of(first)->away, hello_of(first)->away_count, slot->who);
}

bool takeover_did_its_work(const struct controller *controller, const struct slot *first,
			   const struct slot *slot)
{
	const struct message_hello *hello = hello_of(first);
	struct member group = gone_first(controller, slot);
	const struct slot *slots = membership_slot(&controller->members, group.role, group.rank);

	if (!controller->continues || group.role == ROLE_TRAINER)
		return false; /* the others end by what it has sent them */
	if (is_among(hello->done, hello->done_count, slot->who))
		return true;
	for (uint32_t k = 0; k < gone_count(controller, group); k++)
		if (slots[k].ran != RAN_DONE)
			return false;
	return true;
}

bool takeover_has_left(const struct controller *controller, const struct slot *first,
		       const struct slot *slot)
{
	const struct message_hello *hello = hello_of(first);

	return controller->continues && (is_among(hello->lost, hello->lost_count, slot->who) ||
					 takeover_did_its_work(controller, first, slot));
}

static uint32_t ranks_of(const struct members *all, size_t count)
{
	uint32_t ranks = 0;

	for (size_t i = 0; i < count; i++)
		ranks += all[i].first.role == ROLE_INFERENCE ? all[i].count : 0;
	return ranks;
}

/* In the plan, and has not left. */
static bool another_engine_is_in(const struct controller *controller, const struct slot *first)
{
	const struct message_hello *hello = hello_of(first);

	return ranks_of(hello->away, hello->away_count) + ranks_of(hello->lost, hello->lost_count) +
		       ranks_of(hello->done, hello->done_count) <
	       controller->members.count - controller->members.trainers;
}

bool takeover_needs_not(const struct controller *controller, const struct slot *slot)
{
	const struct slot *first = takeover_first(controller);

	return first && !runs(slot) && another_engine_is_in(controller, first) &&
	       (takeover_is_without(controller, first, slot) ||
		takeover_has_left(controller, first, slot));
}

/* What is decided at the deadline would be another thing in a moment: a rank is claimed, a trainer has done its work, so that all
 * others are about to, or a rank has, and others of its engine. */
static bool somebody_is_about_to_end(const struct controller *controller)
{
	const struct membership *members = &controller->members;

	if (membership_claimed(members, controller->options.heartbeat_ms))
		return true;
	for (uint32_t i = 0; i < members->count; i++) {
		const struct slot *slot = &members->slots[i];
		struct member group = gone_first(controller, slot);
		const struct slot *slots = membership_slot(members, group.role, group.rank);

		if (slot->ran != RAN_DONE)
			continue;
		if (group.role == ROLE_TRAINER)
			return true;
		for (uint32_t k = 0; k < gone_count(controller, group); k++)
			if (runs(&slots[k]))
				return true;
	}
	return false;
}

/* One more --lost-after; in all as long as an update may take. */
static bool postpone(struct controller *controller)
{
	const struct controller_options *options = &controller->options;
	uint64_t now = controller->now_ms, most = returns_update_timeout_ms(controller);

	if (!controller->postponed_ms)
		controller->postponed_ms = now;
	if (!somebody_is_about_to_end(controller) || now >= controller->postponed_ms + most)
		return false;
	patience_begin(&controller->patience, now);
	controller->patience.warned = true;
	controller->patience.since_ms -= options->join_timeout_ms > options->lost_ms
						 ? options->join_timeout_ms - options->lost_ms
						 : 0;
	return true;
}

bool takeover_is_late(struct controller *controller)
{
	if (takeover_maybe_done(controller, true))
		return true;
	if (controller->state != CONTROLLER_GATHER || !takeover_first(controller))
		return false;
	if (postpone(controller))
		return true;
	controller->goes_without = controller->continues; /* with which enough may be here */
	controller->goes_without = controller->goes_without && declarations_complete(controller);
	if (!controller->goes_without)
		return false;
	patience_begin(&controller->patience, controller->now_ms);
	action_push(controller->actions, CONTROLLER_PLAN_DUE);
	return true;
}

void takeover_done(struct controller *controller, struct slot *slot)
{
	char who[WORKER_TEXT_BYTES];

	say(controller, false, "%s leaves, its work done, before all are here",
	    slot_text(slot, who));
	declarations_drop(controller, slot);
	slot->ran = RAN_DONE;
	controller->done_ms = controller->now_ms;
	declarations_maybe_plan(controller);
}

/* Others may be about to say that they run: they have heard this controller by then. */
bool takeover_maybe_done(struct controller *controller, bool late)
{
	const struct membership *members = &controller->members;
	bool all = true;

	if (controller->state != CONTROLLER_GATHER || !controller->done_ms ||
	    takeover_first(controller))
		return false;
	for (uint32_t i = 0; i < members->count; i++) {
		bool trainer = i < members->trainers;

		/* an engine that is lost ends nobody else's work */
		if (members->slots[i].ran == RAN_LOST && (trainer || !controller->continues))
			return false;
		all = all && (!trainer || members->slots[i].ran == RAN_DONE);
	}
	if (!late &&
	    (!all || controller->now_ms < controller->done_ms + controller->options.lost_ms))
		return false;
	members_send_home(controller);
	say(controller, false, "done: all who ran when this controller came have left");
	controller_exit(controller, NULL);
	return true;
}

bool takeover_can_do_without(const struct controller *controller, const struct slot *slot)
{
	const struct slot *first = takeover_first(controller);

	if (controller->state != CONTROLLER_GATHER || !controller->continues)
		return false;
	return first || (slot->who.role == ROLE_INFERENCE && controller->options.engines_min);
}

bool takeover_may_come(const struct controller *controller)
{
	return controller->state == CONTROLLER_GATHER && controller->continues &&
	       controller->options.orphan_ms;
}

/* They are at one attempt: it has to be one plan. */
static int check_runners(const struct controller *controller, const struct slot *first,
			 struct error *why)
{
	const struct message_hello *plan = hello_of(first);
	char who[WORKER_TEXT_BYTES], whom[WORKER_TEXT_BYTES];

	for (uint32_t i = 0; i < controller->members.count; i++) {
		const struct slot *slot = &controller->members.slots[i];
		char theirs[DIGEST_TEXT_BYTES], its[DIGEST_TEXT_BYTES];

		if (!absent_is(controller, slot) && runs(slot) &&
		    !digest_equal(hello_of(slot)->plan, plan->plan))
			return error_set(
				why, ERROR_CONFLICT,
				"%s runs by plan %s, and %s by %s: they are of two jobs; restart the "
				"whole job",
				slot_text(first, whom), digest_text(plan->plan, theirs),
				slot_text(slot, who), digest_text(hello_of(slot)->plan, its));
	}
	return 0;
}

int takeover_prepare(struct controller *controller, const struct slot *first, enum takeover *how,
		     struct error *why)
{
	int rc;

	*how = what_they_do(controller, first);
	rc = *how == TAKEOVER_SAME ? check_runners(controller, first, why) : 0;

	for (uint32_t i = 0; !rc && i < controller->members.count; i++) {
		const struct slot *slot = &controller->members.slots[i];
		char who[WORKER_TEXT_BYTES];
		struct error lost;

		if (runs(slot) || gone_is(controller, slot))
			continue;
		error_set(&lost, ERROR_PEER_LOST,
			  "%s was started anew while the job had no controller",
			  slot_text(slot, who));
		if (controller->continues)
			gone_meanwhile(controller, slot, &lost);
		else
			rc = error_set(
				why, ERROR_CONFLICT,
				"%s, and the job ends where a worker is lost (--on-loss end); "
				"restart the whole job",
				lost.text);
	}
	controller->attempts = hello_of(first)->attempt - (*how == TAKEOVER_SAME);
	return rc;
}

static bool somebody_is_missing(const struct controller *controller)
{
	for (size_t i = 0; i < controller->departures.count; i++)
		if (controller->departures.items[i].missing)
			return true;
	return false;
}

enum takeover takeover_compare(const struct controller *controller, const struct slot *first,
			       const struct epoch *epoch, struct error *why)
{
	char theirs[DIGEST_TEXT_BYTES], ours[DIGEST_TEXT_BYTES], who[WORKER_TEXT_BYTES];

	if (somebody_is_missing(controller))
		return TAKEOVER_WITHOUT;
	if (digest_equal(hello_of(first)->plan, epoch->table->digest))
		return TAKEOVER_SAME;
	if (hello_of(first)->follows)
		return TAKEOVER_FOLLOWS;
	error_set(
		why, ERROR_CONFLICT,
		"%s and the others run by plan %s, and what they declare makes %s here: start this "
		"controller with the options of the one that was lost (--train, --infer, --policy, "
		"--order, --topology, --sessions-max, --commit), and engines that died meanwhile in the "
		"layouts that they had, or restart the whole job",
		slot_text(first, who), digest_text(hello_of(first)->plan, theirs),
		digest_text(epoch->table->digest, ours));
	return TAKEOVER_DIFFERS;
}

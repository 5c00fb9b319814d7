/* SPDX-License-Identifier: Apache-2.0
 *
 * wait_together.c -- an inference rank of a job that goes on, and whose engines show versions together (--commit job). When one of
 * them leaves, those who decide lack somebody, or are lost themselves. So nobody waits for another one any more:
 *
 *   OPEN      only for a version that trainers have begun, who wait for this rank; else it stops for the next plan here
 *   CLOSE     at once
 *   PUBLISH   all is here, verified and loaded: the controller is told. It says that it is shown, as soon as all others have all
 *             of it, too; or the next plan says whether it is, for which this rank stops here
 *
 * Who is waited for at CLOSE or PUBLISH for half of the update timeout is gone on without, and yet may only wait for a trainer that
 * writes to it and not here: whoever lacks something of a trainer says so (LATER), four times in that time, to who decides for it,
 * and that one says it further.
 *
 * (controller/settle.c.) Who had promised before it heard of the loss is let go, if that was decided, until it stops.
 *
 * And an engine that lacks a version that others show, and is sent it, shows that one by itself.
 */
#include "worker/update/wait.h"

#include "base/clock.h"
#include "base/log.h"
#include "worker/update/update.h"

#define EXCUSES 4 /* in the time after which who says nothing is late */

static bool is_of_own_engine(const struct epoch *epoch, const struct peer *mate)
{
	return !epoch_is_of_other_engine(epoch, mate);
}

bool waiter_shares_word(const struct waiter *waiter, const struct peer *mate)
{
	return is_of_own_engine(waiter->epoch, mate);
}

void waiter_choose_mates(struct waiter *waiter)
{
	const struct epoch *epoch = waiter->epoch;
	size_t first = 0, end = epoch->mate_count;

	waiter->by_plan = waiter->holds = false;
	waiter->news = 0;
	waiter->said = waiter->settled = 0;
	waiter->alone = epoch->plan->alone;
	/* who decides for the first rank of an engine comes before those that this one decides for, and others behind them */
	while (waiter->alone && first < end && !is_of_own_engine(epoch, &epoch->mates[first]))
		first++;
	while (waiter->alone && end > first && !is_of_own_engine(epoch, &epoch->mates[end - 1]))
		end--;
	waiter->mates_from = first;
	waiter->mates_count = end - first;
}

/* Its own engine's ranks have heard no more turns of it than it has had. */
void waiter_meet_all(struct waiter *waiter, uint64_t version)
{
	const struct epoch *epoch = waiter->epoch;
	uint64_t alone = waiter->alone;

	if (!alone || waiter->copies ||
	    (version <= alone && waiter->receiver.past < alone && waiter->mates_past < alone &&
	     waiter->versions->prepared < alone && versions_published(waiter->versions) < alone))
		return;
	if (waiter->committer.phase != COMMIT_IDLE)
		waiter_cannot(waiter, alone, "it waits for another version");
	waiter->alone = 0;
	waiter->mates_from = 0;
	waiter->mates_count = epoch->mate_count;
	waiter->committer.links = waiter->mates;
	waiter->committer.link_count = (uint32_t)epoch->mate_count;
	waiter->committer.decided_for = epoch_decider(epoch) != NULL;
	if (epoch->mate_count)
		receiver_meets(&waiter->receiver, epoch->options.params->landing);
}

bool waiter_is_by_plan(struct waiter *waiter)
{
	const struct member any = {ROLE_INFERENCE, 0};

	if (!waiter->epoch->plan->together || waiter->alone || !waiter->receiver.meets)
		return false;
	waiter->by_plan =
		waiter->by_plan || control_have_left(waiter->health->control, any, UINT32_MAX);
	return waiter->by_plan;
}

bool waiter_may_be_let_go(const struct waiter *waiter)
{
	const struct committer *committer = &waiter->committer;

	return !waiter->holds && committer->round == MEET_PUBLISH &&
	       (committer->phase == COMMIT_MEETING || committer->phase == COMMIT_LETTING_GO);
}

bool waiter_loses_mate(struct waiter *waiter, struct peer *mate, const struct error *why)
{
	struct control *control = waiter->health->control;

	if (!waiter->epoch->plan->together || !control || is_of_own_engine(waiter->epoch, mate) ||
	    !peer_explains(why->code))
		return false;
	waiter->by_plan = true;
	if (mate->gone)
		return true;
	mate->gone = true;
	log_warn("%s: what is shown the next plan says, since %s is not reached: %s",
		 waiter->epoch->options.name, mate->name, why->text);
	control_drop(control, mate->plan->member, why, versions_published(waiter->versions));
	return true;
}

static uint64_t half_ns(const struct waiter *waiter)
{
	return waiter->epoch->wait_ms * 1000000ull / 2;
}

/* Since this rank arrived, or since the mate said last that it waits for a trainer. */
static bool is_late(const struct waiter *waiter, uint32_t m)
{
	uint64_t since_ns = waiter->mates_later[waiter->mates_from + m];

	since_ns = since_ns > waiter->arrived_ns ? since_ns : waiter->arrived_ns;
	return clock_ns() >= since_ns + half_ns(waiter);
}

/* Of its own, or of one that it decides for and that has said so since this rank did. */
static bool waits_for_a_trainer(const struct waiter *waiter)
{
	const struct committer *committer = &waiter->committer;

	if (waiter->receiver.phase == RECEIVE_COUNTING)
		return true;
	for (uint32_t m = 0; m < waiter->mates_count && committer->round != MEET_OPEN; m++)
		if (commit_lacks(committer, m) &&
		    waiter->mates_later[waiter->mates_from + m] > waiter->excused_ns)
			return true;
	return false;
}

void waiter_excuse(struct waiter *waiter)
{
	const struct update_later later = {.turn = waiter->committer.turn};
	uint64_t since_ns = waiter->receiver.began_ns, now_ns = clock_ns(), done;
	struct transport_endpoint *decider;
	struct error error;

	if (!waiter->epoch->plan->together || waiter->alone || waiter->by_plan ||
	    !waiter->mates_count || !waiter->committer.decided_for)
		return;
	decider = waiter->epoch->mates[waiter->mates_from].endpoint;
	if (waiter->excused_ns > since_ns) {
		since_ns = waiter->excused_ns;
		transport_progress(decider, &done, &error); /* what it said last is on its way */
	}
	if (now_ns < since_ns + half_ns(waiter) / EXCUSES || !waits_for_a_trainer(waiter))
		return;
	/* nobody waits for who is slow to hear it; and what is wrong with him is found where he has to hear something */
	if (transport_signal_post(decider, UPDATE_LATER, &later, sizeof(later), &error) == 0)
		waiter->excused_ns = now_ns;
}

void waiter_drop_late(struct waiter *waiter)
{
	const struct epoch *epoch = waiter->epoch;
	struct error late;

	if (!epoch->plan->together || waiter->alone || waiter->committer.round == MEET_OPEN)
		return;
	for (uint32_t m = 0; m < waiter->mates_count; m++) {
		struct peer *mate = &epoch->mates[m];

		if (mate->gone || !commit_lacks(&waiter->committer, m) || !is_late(waiter, m))
			continue;
		error_set(&late, ERROR_TIMEOUT, "it has not loaded its version for %.1f s",
			  (double)half_ns(waiter) / 1e9);
		waiter_loses_mate(waiter, mate, &late);
	}
}

bool waiter_has_begun(struct waiter *waiter, uint64_t version)
{
	uint64_t begun, shows;

	return control_settles(waiter->health->control, &begun, &shows) && version <= begun;
}

bool waiter_promises(struct waiter *waiter, uint64_t version)
{
	struct control *control = waiter->health->control;
	uint32_t news = control_news(control), number;
	uint64_t begun, shows;

	number = control_settles(control, &begun, &shows);
	if (!number)
		return false;
	waiter->holds = true; /* nothing that it hears of others may change what it says now */
	if (waiter->news != news || waiter->said != version)
		control_promises(control, number, versions_published(waiter->versions), version);
	waiter->news = news;
	waiter->said = version;
	return versions_published(waiter->versions) == version ||
	       (shows == version && waiter_shows(waiter, version));
}

bool waiter_sees_promised(const struct waiter *waiter)
{
	uint64_t version = receive_promised(&waiter->receiver);

	return version && versions_published(waiter->versions) == version;
}

bool waiter_is_to_show(const struct waiter *waiter)
{
	uint64_t version = receive_promised(&waiter->receiver), begun, shows;

	return waiter_sees_promised(waiter) ||
	       (version && control_settles(waiter->health->control, &begun, &shows) &&
		shows == version);
}

/* And who decides has not shown it. */
static bool waits_for_decider(const struct waiter *waiter)
{
	return waiter->holds && !waiter->versions->by_host && waiter_leader(waiter) &&
	       waiter_is_to_show(waiter);
}

void waiter_missing(struct waiter *waiter, struct text *text)
{
	if (!waiter_is_by_plan(waiter))
		commit_missing(&waiter->committer, text);
	else if (waits_for_decider(waiter))
		text_format(text, "%s, which decides for this rank, has not shown it",
			    waiter->epoch->mates[0].name);
	else
		text_add(text, "an engine has left, and the next plan has not come, which says "
			       "what is shown");
}

void waiter_tell_device(const struct waiter *waiter, uint64_t version)
{
	const struct device *device = waiter->epoch->options.params->device;

	if (device && !atomic_load(&waiter->versions->hidden))
		device_publish(device, version);
}

void waiter_unhides(struct waiter *waiter)
{
	if (!atomic_load(&waiter->versions->hidden))
		return;
	versions_hide(waiter->versions, false);
	waiter_tell_device(waiter, atomic_load(&waiter->versions->published));
	watch_tell(waiter->watch);
}

uint64_t waiter_promised(const struct waiter *waiter)
{
	uint64_t version = waiter->epoch ? receive_promised(&waiter->receiver) : 0;

	return version > versions_published(waiter->versions) ? version : 0;
}

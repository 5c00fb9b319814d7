/* SPDX-License-Identifier: Apache-2.0
 *
 * status_waits.c -- who is waited for. A waits for B who waits for C: C alone is named.
 *
 * What workers say is of different moments, up to a heartbeat old. So a wait counts only if nothing says that it is over, it has lasted
 * for WAIT_MS, and both looks say so. A host program that computes, or serves, while others wait is normal: a note. It is a fault where
 * its equals have been past what it has yet to do for WAIT_MS.
 */
#include "cli/shown.h"
#include "cli/status_looking.h"

#include <stdio.h>
#include <string.h>

#define WAIT_MS 1000
#define HOST_MS 5000 /* a host's scheduler may take its time to show what is prepared */

typedef struct report_member one_of;

static uint32_t engine_of(const struct message_report *report, const one_of *rank)
{
	return rank->who.rank / (report->engine_ranks ? report->engine_ranks : 1);
}

static bool is_one(struct member a, struct member b)
{
	return a.role == b.role && a.rank == b.rank;
}

/* ---- waits that count ---- */

static uint64_t version_of(const one_of *waiter)
{
	return waiter->activity.version ? waiter->activity.version : waiter->version + 1;
}

/* More than it has named: whoever has yet to begin is among them. */
static bool may_name(const one_of *waiter, const one_of *one, uint64_t version)
{
	return waiter->activity.waits_more && one->who.role != waiter->who.role && one->known &&
	       one->activity.what == ACTIVITY_BETWEEN && one->version < version;
}

static bool lists(const one_of *waiter, const one_of *one)
{
	for (size_t i = 0; i < waiter->activity.wait_count; i++)
		if (is_one(waiter->activity.waits[i], one->who))
			return true;
	return false;
}

/* It has done since what that one waits for. */
static bool is_over(const one_of *waiter, const one_of *one, uint64_t version)
{
	const struct message_activity *does = &one->activity;

	if (one->version >= version)
		return true;
	if (!one->known || one->who.role == ROLE_TRAINER || does->version < version)
		return false;
	if (waiter->who.role == ROLE_INFERENCE)
		return does->what == ACTIVITY_MEETS;
	/* a rank that waits for the version accepts it, once its mates have met it there; since before that trainer asked: its host does
	 * not call any more */
	return does->what >= ACTIVITY_RECEIVES && does->what != ACTIVITY_MEETS &&
	       does->since_ms < waiter->activity.since_ms;
}

static bool waits(const struct message_report *report, const one_of *waiter, const one_of *one)
{
	uint64_t version = version_of(waiter);

	if (waiter == one || !waiter->known || !looking_is_here(waiter) || !looking_is_here(one) ||
	    looking_is_silent(report, waiter) || waiter->age_ms > looking_stale_ms(report))
		return false;
	return (lists(waiter, one) || may_name(waiter, one, version)) &&
	       !is_over(waiter, one, version);
}

static bool waits_for_any(const struct message_report *report, const one_of *waiter)
{
	for (size_t i = 0; i < report->member_count; i++)
		if (waits(report, waiter, &report->members[i]))
			return true;
	return false;
}

struct waited {
	const one_of *longest; /* who waits, */
	uint64_t ms, version;  /* for so long, for that version */
	uint32_t count;
};

static struct waited waited_for(const struct message_report *report, const one_of *one)
{
	struct waited waited = {0};

	for (size_t i = 0; i < report->member_count; i++) {
		const one_of *waiter = &report->members[i];

		if (!waits(report, waiter, one))
			continue;
		waited.count++;
		if (waited.longest && waiter->activity.since_ms <= waited.ms)
			continue;
		waited.longest = waiter;
		waited.ms = waiter->activity.since_ms;
		waited.version = version_of(waiter);
	}
	return waited;
}

/* The end of a chain. Who has stopped for another plan is in nobody's way. */
static bool is_end(const struct message_report *report, const one_of *one, struct waited *waited)
{
	if (!looking_is_here(one) || (one->known && one->activity.what == ACTIVITY_PAUSED) ||
	    waits_for_any(report, one))
		return false;
	*waited = waited_for(report, one);
	return waited->count != 0;
}

/* ---- what it does there ---- */

/* Of a trainer, in an update. */
static int step_of(enum activity what)
{
	return what == ACTIVITY_BEGINS				     ? 1
	       : what == ACTIVITY_OPEN || what == ACTIVITY_WRITES    ? 2
	       : what == ACTIVITY_ENDS || what == ACTIVITY_STANDS_BY ? 3
								     : 0;
}

static bool is_past(const one_of *other, const one_of *one, uint64_t version)
{
	const struct message_activity *does = &other->activity;

	if (other->version >= version)
		return other->version_ms >= WAIT_MS;
	if (does->version < version || does->since_ms < WAIT_MS)
		return false;
	return one->who.role == ROLE_TRAINER ? step_of(does->what) > step_of(one->activity.what)
					     : does->what >= ACTIVITY_RECEIVES;
}

/* An equal of it: of a trainer the others, of a rank those of its engine. */
static bool others_are_past(const struct message_report *report, const one_of *one,
			    uint64_t version)
{
	for (size_t i = 0; i < report->member_count; i++) {
		const one_of *other = &report->members[i];

		if (other == one || other->who.role != one->who.role || !other->known ||
		    !looking_is_here(other) ||
		    (one->who.role == ROLE_INFERENCE &&
		     engine_of(report, other) != engine_of(report, one)))
			continue;
		if (is_past(other, one, version))
			return true;
	}
	return false;
}

static void sends(struct text *text, const one_of *one)
{
	text_format(text, "sends update %llu for %.1f s", (unsigned long long)one->activity.version,
		    (double)one->activity.since_ms / 1e3);
	if (one->bytes_per_second)
		text_format(text, ", %s/s now", BYTES_TEXT(one->bytes_per_second));
}

/* In words; true: it is at fault. */
static bool say_why(struct text *text, const struct message_report *report, const one_of *one,
		    const struct waited *waited)
{
	const struct message_activity *does = &one->activity;
	unsigned long long version = does->version ? does->version : waited->version;
	double seconds = (double)does->since_ms / 1e3;
	bool past = others_are_past(report, one, waited->version);

	switch (does->what) {
	case ACTIVITY_BETWEEN:
		text_format(
			text,
			one->who.role == ROLE_TRAINER
				? "has not begun update %llu: its host program computes, or hangs, for %.1f s"
				: "is not in weft_update_wait for update %llu: its host program serves, or "
				  "hangs, for %.1f s",
			(unsigned long long)waited->version, seconds);
		return past;
	case ACTIVITY_OPEN:
		text_format(
			text,
			"has begun update %llu %.1f s ago, and its host program has yet to write all "
			"tensors, or to end it",
			version, seconds);
		return past;
	case ACTIVITY_WRITES:
	case ACTIVITY_ENDS:
		sends(text, one);
		return past;
	case ACTIVITY_BEGINS:
	case ACTIVITY_RECEIVES:
		text_format(
			text,
			"was at update %llu when its host program called last, %.1f s after it had begun "
			"to: it calls weft_update_try_%s rarely, or hangs",
			version, seconds, does->what == ACTIVITY_BEGINS ? "begin" : "wait");
		return does->what == ACTIVITY_RECEIVES;
	case ACTIVITY_LOADS:
		text_format(
			text,
			"loads update %llu for %.1f s: its post-load hook, or the copy of what was staged",
			version, seconds);
		return true;
	case ACTIVITY_PREPARED:
		text_format(
			text,
			"has update %llu prepared for %.1f s, and its host has not called weft_commit_at",
			version, seconds);
		return does->since_ms >= HOST_MS;
	default:
		text_format(text, "is at '%s' of update %llu for %.1f s", activity_name(does->what),
			    version, seconds);
		return false;
	}
}

static void name_end(struct looking *looking, const one_of *one, const struct waited *waited)
{
	struct text text = {0};
	char who[STATUS_WHO_BYTES];
	bool fault = true;

	text_format(&text, "%s ", status_who(one, who));
	if (one->known)
		fault = say_why(&text, looking->now, one, waited);
	else
		text_add(&text, "has said nothing of what it does");
	text_format(&text, "; %s ", status_who(waited->longest, who));
	if (waited->count > 1)
		text_format(&text, "and %u other%s wait", waited->count - 1,
			    waited->count > 2 ? "s" : "");
	else
		text_add(&text, "waits");
	text_format(&text, " for it, for %.1f s", (double)waited->ms / 1e3);
	looking_name(looking, fault, one, &text);
	text_fini(&text);
}

static bool is_pausing(const struct message_report *report)
{
	return strcmp(report->state, "pausing") == 0;
}

void looking_waits(struct looking *looking)
{
	const struct message_report *now = looking->now;

	for (size_t i = 0; i < now->member_count && !is_pausing(now); i++) {
		const one_of *one = &now->members[i], *was;
		struct waited waited, waited_before;

		if (looking->named[i] || !is_end(now, one, &waited) || waited.ms < WAIT_MS)
			continue;
		was = looking->before ? status_find(looking->before, one->who) : NULL;
		if (!looking->before || (was && is_end(looking->before, was, &waited_before)))
			name_end(looking, one, &waited);
	}
}

/* ---- a pause for another plan ---- */

/* Trainers stop first, where they begin their next update; ranks when they have. */
void looking_pause(struct looking *looking)
{
	const struct message_report *now = looking->now;
	bool any = false;
	char who[STATUS_WHO_BYTES];

	for (size_t i = 0; i < now->member_count && is_pausing(now); i++) {
		const one_of *one = &now->members[i];

		if (!looking_is_phase(one, "connected") || !one->known || looking->named[i] ||
		    one->activity.what == ACTIVITY_PAUSED ||
		    (any && one->who.role == ROLE_INFERENCE))
			continue;
		any = any || one->who.role == ROLE_TRAINER;
		NAME(looking, false, one,
		     "the pause for another plan waits for %s, which is at '%s' for %.1f s",
		     status_who(one, who), activity_name(one->activity.what),
		     (double)one->activity.since_ms / 1e3);
	}
}

/* ---- a circle ---- */

/* Everybody waits for somebody, and nobody is at the end of it: the circle is all there is to say. */
void looking_circle(struct looking *looking)
{
	const struct message_report *now = looking->now;
	const one_of *longest = NULL;
	char who[STATUS_WHO_BYTES], name_of[MEMBER_TEXT_BYTES];

	for (size_t i = 0; i < now->member_count; i++) {
		const one_of *one = &now->members[i];

		if (waits_for_any(now, one) && one->activity.since_ms >= 5 * WAIT_MS &&
		    (!longest || one->activity.since_ms > longest->activity.since_ms))
			longest = one;
	}
	if (longest && !looking->out->count)
		NAME(looking, false, longest,
		     "%s waits for %s for %.1f s, which waits for others in its turn",
		     status_who(longest, who), member_text(longest->activity.waits[0], name_of),
		     (double)longest->activity.since_ms / 1e3);
}

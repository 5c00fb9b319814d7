/* SPDX-License-Identifier: Apache-2.0
 *
 * status_why.c -- who is at fault, by what the controller and the workers say. A table of rules, each of which looks at one thing:
 *
 *   silent        a worker is not heard: its process is stopped, its host hangs, its network is cut
 *   lost          it is no part of the job any more, and why
 *   gathers       the job has not begun, and who is missing
 *   waited for    others wait, directly or through others, for one who waits for nobody (status_waits.c)
 *   slow          a NIC carries far less while it is busy than the others do
 *   trouble       something of a process that harms no other one: a disk that is full
 */
#include "cli/status_looking.h"

#include "base/text.h"
#include "cli/shown.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUSY_MS	   50	/* a NIC was busy so long before its rate means something */
#define SIGNALS	   1000 /* who carries less than one in so many of the most carries signals alone */
#define SLOW_PARTS 4	/* a rate of less than one in so many of the median is slow */

char *status_who(const struct report_member *member, char out[STATUS_WHO_BYTES])
{
	char name[MEMBER_TEXT_BYTES];

	if (*member->host)
		snprintf(out, STATUS_WHO_BYTES, "%s (host %.100s, pid %llu)",
			 member_text(member->who, name), shown(member->host),
			 (unsigned long long)member->pid);
	else
		snprintf(out, STATUS_WHO_BYTES, "%s", member_text(member->who, name));
	return out;
}

const struct report_member *status_find(const struct message_report *report, struct member who)
{
	size_t at = (who.role == ROLE_TRAINER ? 0 : report->trainers) + (size_t)who.rank;
	const struct report_member *member = &report->members[at];

	return at < report->member_count && member->who.role == who.role &&
			       member->who.rank == who.rank
		       ? member
		       : NULL;
}

bool looking_is_phase(const struct report_member *member, const char *phase)
{
	return strcmp(member->phase, phase) == 0;
}

bool looking_is_here(const struct report_member *member)
{
	return !looking_is_phase(member, "absent") && !looking_is_phase(member, "left") &&
	       !looking_is_phase(member, "lost");
}

uint64_t looking_stale_ms(const struct message_report *report)
{
	return BEATS_MISSED * (uint64_t)report->heartbeat_ms + 200;
}

bool looking_is_silent(const struct message_report *report, const struct report_member *member)
{
	return looking_is_here(member) && member->heard_ms > looking_stale_ms(report);
}

void looking_name(struct looking *looking, bool fault, const struct report_member *who,
		  const struct text *text)
{
	struct finding finding = {.fault = fault, .who = {ROLE_TRAINER, UINT32_MAX}};

	if (who) {
		looking->named[who - looking->now->members] = true;
		finding.who = who->who;
	}
	finding.text = text_ok(text) ? memory_string(text_string(text)) : NULL;
	if (!finding.text || !array_add(looking->out, finding)) {
		memory_free(finding.text);
		looking->failed = true;
	}
}

/* ---- silent, lost ---- */

/* Nobody of all: it is not they. */
static bool all_are(struct looking *looking)
{
	const struct message_report *now = looking->now;
	uint64_t least = UINT64_MAX;
	uint32_t here = 0;

	for (size_t i = 0; i < now->member_count; i++) {
		if (!looking_is_here(&now->members[i]))
			continue;
		here++;
		least = now->members[i].heard_ms < least ? now->members[i].heard_ms : least;
	}
	if (here < 2 || least <= looking_stale_ms(now))
		return false;
	NAME(looking, true, NULL,
	     "the controller has heard none of %u workers for %.1f s: it stood still itself, or its host's "
	     "network is cut",
	     here, (double)least / 1e3);
	return true;
}

static void silent(struct looking *looking)
{
	const struct message_report *now = looking->now;
	char who[STATUS_WHO_BYTES];

	if (all_are(looking))
		return;
	for (size_t i = 0; i < now->member_count; i++)
		if (looking_is_silent(now, &now->members[i]))
			NAME(looking, true, &now->members[i],
			     "%s is silent for %.1f s: its process is stopped, its host stands still "
			     "or its network is cut; it counts as lost after %.1f s (--lost-after)",
			     status_who(&now->members[i], who),
			     (double)now->members[i].heard_ms / 1e3, now->lost_ms / 1e3);
}

static uint32_t first_of(const struct message_report *report, struct member who)
{
	uint32_t ranks = report->engine_ranks ? report->engine_ranks : 1;

	return who.role == ROLE_TRAINER ? who.rank : who.rank - who.rank % ranks;
}

/* Of the engine that it left with: the one to blame is in the event. */
static const struct report_event *event_of(const struct message_report *report, struct member who)
{
	for (size_t i = report->event_count; i--;) {
		const struct report_event *event = &report->events[i];

		if (event->who.rank != UINT32_MAX && event->who.role == who.role &&
		    first_of(report, event->who) == first_of(report, who))
			return event;
	}
	return NULL;
}

static void lost(struct looking *looking)
{
	const struct message_report *now = looking->now;
	char who[STATUS_WHO_BYTES];

	for (size_t i = 0; i < now->member_count; i++) {
		const struct report_member *member = &now->members[i];
		const struct report_event *event;

		if (!looking_is_phase(member, "lost"))
			continue;
		event = event_of(now, member->who);
		if (event && event->who.rank != member->who.rank) {
			/* the one to blame is named; the others left with it */
			const struct report_member *blamed = status_find(now, event->who);

			if (blamed && looking_is_phase(blamed, "lost"))
				continue;
		}
		if (event)
			NAME(looking, true, member, "%s is lost for %.1f s: WEFT-E%d: %s",
			     status_who(member, who), (double)event->age_ms / 1e3, event->code,
			     shown(event->text));
		else
			NAME(looking, true, member, "%s is lost", status_who(member, who));
	}
}

static void failed_job(struct looking *looking)
{
	const struct message_report *now = looking->now;
	const struct report_event *last =
		now->event_count ? &now->events[now->event_count - 1] : NULL;

	if (strcmp(now->state, "failed") == 0 && last)
		NAME(looking, true, NULL, "the job has failed %.1f s ago: WEFT-E%d: %s",
		     (double)last->age_ms / 1e3, last->code, shown(last->text));
}

static void gathers(struct looking *looking)
{
	if (*looking->now->missing)
		NAME(looking, false, NULL, "the job is %s, and waits for: %s",
		     shown(looking->now->state), shown(looking->now->missing));
}

/* ---- slow ---- */

static const struct nic_traffic *same_nic(const struct report_member *before,
					  const struct nic_traffic *nic)
{
	for (size_t i = 0; before && i < before->activity.nic_count; i++)
		if (strcmp(before->activity.nics[i].name, nic->name) == 0)
			return &before->activity.nics[i];
	return NULL;
}

static uint64_t rate(uint64_t bytes, uint64_t ms)
{
	return ms < BUSY_MS ? 0 : (uint64_t)((double)bytes * 1000.0 / (double)ms) + 1;
}

/* Between the two looks; 0: it was hardly busy. */
static uint64_t rate_now(const struct report_member *before, const struct nic_traffic *nic)
{
	const struct nic_traffic *was = same_nic(before, nic);

	return was && nic->busy_ms >= was->busy_ms && nic->bytes >= was->bytes
		       ? rate(nic->bytes - was->bytes, nic->busy_ms - was->busy_ms)
		       : 0;
}

uint64_t status_nic_rate(const struct report_member *before, const struct nic_traffic *nic)
{
	uint64_t now = rate_now(before, nic);

	return now ? now : rate(nic->bytes, nic->busy_ms);
}

static int compare(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return (a > b) - (a < b);
}

static const struct report_member *was(const struct looking *looking,
				       const struct report_member *one)
{
	return looking->before ? status_find(looking->before, one->who) : NULL;
}

static uint64_t most_carried(const struct message_report *report)
{
	uint64_t most = 0;

	for (size_t i = 0; i < report->member_count; i++)
		for (size_t n = 0; n < report->members[i].activity.nic_count; n++)
			if (report->members[i].activity.nics[n].bytes > most)
				most = report->members[i].activity.nics[n].bytes;
	return most;
}

/* Signals are small, and so is their rate. All who carry weights carry their share of each update, however slow they are. */
static uint64_t rate_of(struct looking *looking, const struct report_member *one,
			const struct nic_traffic *nic, uint64_t most)
{
	return !looking_is_here(one) || nic->bytes < most / SIGNALS
		       ? 0
		       : status_nic_rate(was(looking, one), nic);
}

/* The median of the rates that are known; 0: there are not two. */
static uint64_t median(struct looking *looking, uint64_t most)
{
	const struct message_report *now = looking->now;
	ARRAY(uint64_t) rates = {0};
	uint64_t middle = 0;

	for (size_t i = 0; i < now->member_count; i++) {
		const struct report_member *one = &now->members[i];

		for (size_t n = 0; n < one->activity.nic_count; n++) {
			uint64_t of = rate_of(looking, one, &one->activity.nics[n], most);

			if (of && !array_add(&rates, of))
				looking->failed = true;
		}
	}
	if (rates.count > 1) {
		qsort(rates.items, rates.count, sizeof(*rates.items), compare);
		middle = rates.items[rates.count / 2]; /* of two the faster one */
	}
	array_free(&rates);
	return middle;
}

static void slow(struct looking *looking)
{
	const struct message_report *now = looking->now;
	uint64_t most = most_carried(now), middle = median(looking, most);
	char who[STATUS_WHO_BYTES];

	for (size_t i = 0; middle && i < now->member_count; i++) {
		const struct report_member *one = &now->members[i];

		for (size_t n = 0; n < one->activity.nic_count; n++) {
			const struct nic_traffic *nic = &one->activity.nics[n];
			uint64_t of = rate_of(looking, one, nic, most);

			/* others may have nothing to do while it does, and are known by what was before; it is not judged by that */
			if (looking->before && !rate_now(was(looking, one), nic))
				continue;
			if (of && of < middle / SLOW_PARTS)
				NAME(looking, looking->before != NULL, one,
				     "NIC %s of %s carries %s/s while it is busy, others %s/s (the "
				     "median): look at its cable, its port and its counters",
				     shown(nic->name), status_who(one, who), BYTES_TEXT(of),
				     BYTES_TEXT(middle));
		}
	}
}

/* ---- trouble ---- */

static void trouble(struct looking *looking)
{
	const struct message_report *now = looking->now;
	char who[STATUS_WHO_BYTES];

	for (size_t i = 0; i < now->member_count; i++)
		if (now->members[i].known && looking_is_here(&now->members[i]) &&
		    *now->members[i].activity.trouble)
			NAME(looking, true, &now->members[i], "%s: %s (its updates go on)",
			     status_who(&now->members[i], who),
			     shown(now->members[i].activity.trouble));
	if (*now->trouble)
		NAME(looking, true, NULL, "the controller: %s (the job goes on)",
		     shown(now->trouble));
}

static void (*const rules[])(struct looking *) = {
	failed_job,    silent,	      lost,    gathers,	       slow,
	looking_pause, looking_waits, trouble, looking_circle,
};

static int faults_first(const void *left, const void *right)
{
	const struct finding *a = left, *b = right;

	return (int)b->fault - (int)a->fault;
}

/* qsort need not be stable, and the rules are in the order of what matters. */
static void sort(findings *out)
{
	for (size_t i = 1; i < out->count; i++)
		for (size_t k = i; k > 0 && faults_first(&out->items[k - 1], &out->items[k]) > 0;
		     k--) {
			struct finding moved = out->items[k];

			out->items[k] = out->items[k - 1];
			out->items[k - 1] = moved;
		}
}

bool status_why(const struct message_report *before, const struct message_report *now,
		findings *out)
{
	struct looking looking = {.before = before, .now = now, .out = out};

	looking.named = memory_zalloc(now->member_count + 1, sizeof(bool));
	if (!looking.named)
		return false;
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
		rules[i](&looking);
	memory_free(looking.named);
	sort(out);
	return !looking.failed;
}

void findings_free(findings *found)
{
	for (size_t i = 0; i < found->count; i++)
		memory_free(found->items[i].text);
	array_free(found);
}

bool findings_fault(const findings *found)
{
	for (size_t i = 0; i < found->count; i++)
		if (found->items[i].fault)
			return true;
	return false;
}

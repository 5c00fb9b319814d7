/* SPDX-License-Identifier: Apache-2.0
 *
 * status.c -- the answer to `weft status`: what the controller knows, and what each worker said last of itself, as wire/status.h
 * draws it. It judges nothing, and changes nothing: whoever is let in may ask.
 */
#include "controller/figures.h"
#include "controller/state.h"

#include "base/trouble.h"
#include "routing/report/certificate.h"
#include "routing/report/summary.h"

#include <string.h>

/* A report is 1, one with links, for which all routes are walked, as many as so: */
#define COST_OF_LINKS 5
#define COST_OF_ONE   20
#define COST_A_SECOND 200

bool status_init(struct controller *controller)
{
	controller->status.seen = memory_zalloc(controller->members.count, sizeof(struct seen));
	return controller->status.seen != NULL;
}

static void forget_plan(struct status *status)
{
	for (int role = 0; role < ROLE_COUNT; role++) {
		memory_free(status->bytes[role]);
		status->bytes[role] = NULL;
	}
	status->planned = false;
}

void status_fini(struct controller *controller)
{
	struct status *status = &controller->status;

	for (uint32_t i = 0; status->seen && i < controller->members.count; i++)
		message_activity_fini(&status->seen[i].activity);
	memory_free(status->seen);
	array_free(&status->events);
	forget_plan(status);
}

/* ---- what comes ---- */

static struct seen *seen_of(const struct controller *controller, const struct slot *slot)
{
	return &controller->status.seen[slot - controller->members.slots];
}

static bool is_of(const struct seen *seen, const struct slot *slot)
{
	return slot->worker && seen->incarnation == slot->worker->hello.incarnation;
}

void status_activity(struct controller *controller, struct slot *slot, struct message *message)
{
	struct seen *seen = seen_of(controller, slot);
	uint64_t before = is_of(seen, slot) ? seen->activity.bytes : 0;
	uint64_t since = is_of(seen, slot) ? controller->now_ms - seen->said_ms : 0;
	uint64_t bytes = message->u.activity.bytes;

	message_activity_fini(&seen->activity);
	seen->activity = message->u.activity;
	message->u.activity = (struct message_activity){0};
	seen->incarnation = slot->worker->hello.incarnation;
	seen->said_ms = controller->now_ms;
	/* an inference rank's bytes move by a whole update at its end */
	seen->bytes_per_second =
		slot->who.role == ROLE_TRAINER && since && bytes > before
			? (uint64_t)((double)(bytes - before) * 1000.0 / (double)since)
			: 0;
}

uint64_t status_last_us(const struct controller *controller, const struct slot *slot)
{
	const struct seen *seen = seen_of(controller, slot);
	const struct update_clocks *last = &seen->activity.last;

	if (!is_of(seen, slot))
		return 0;
	if (slot->who.role == ROLE_INFERENCE)
		return last->update_us;
	return last->update_us > last->wait_us ? last->update_us - last->wait_us : 0;
}

void status_version(struct controller *controller, const struct slot *slot)
{
	seen_of(controller, slot)->version_ms = controller->now_ms;
}

void status_note(struct controller *controller, const struct slot *slot, const struct error *why)
{
	struct status *status = &controller->status;
	struct status_event event = {controller->now_ms, {ROLE_TRAINER, UINT32_MAX}, *why};

	if (slot)
		event.who = slot->who;
	if (status->events.count == LIMIT_EVENTS)
		memmove(status->events.items, status->events.items + 1,
			--status->events.count * sizeof(event));
	if (!array_add(&status->events, event))
		status->events.count = 0;
}

/* ---- the plan's figures, once a plan ---- */

static bool take_bytes(struct status *status, enum role role, const uint64_t *from, uint32_t count)
{
	status->count[role] = count;
	status->bytes[role] = memory_zalloc(count, sizeof(uint64_t));
	if (status->bytes[role])
		memcpy(status->bytes[role], from, count * sizeof(uint64_t));
	return status->bytes[role] != NULL;
}

static void sum_plan(struct controller *controller)
{
	const struct table *table = controller->epoch->table;
	struct status *status = &controller->status;
	struct certificate certificate;
	struct summary summary;

	if (summary_of(&summary, table, NULL))
		return;
	status->largest_bytes = summary.makespan_bytes;
	status->bound_bytes = summary.lower_bound_bytes;
	status->predicted_us = status->bound_us = 0;
	status->planned = take_bytes(status, ROLE_TRAINER, summary.trainer_bytes,
				     table->problem->trainer_count) &&
			  take_bytes(status, ROLE_INFERENCE, summary.inference_bytes,
				     table->problem->inference_count);
	summary_fini(&summary);
	if (!table->topology || table->topology->flat || certificate_of(&certificate, table, NULL))
		return;
	status->predicted_us = (uint64_t)(certificate.makespan_seconds * 1e6);
	status->bound_us = (uint64_t)(certificate.bound_seconds * 1e6);
}

void status_plan(struct controller *controller)
{
	struct status *status = &controller->status;
	uint32_t attempt =
		controller->epoch && controller->epoch->table ? controller->epoch->attempt : 0;

	if (attempt == status->attempt)
		return;
	forget_plan(status);
	status->attempt = attempt;
	if (attempt)
		sum_plan(controller);
}

/* ---- the report ---- */

static char *string(const char *text, bool *ok)
{
	char *copy = memory_string(text);

	*ok = *ok && copy;
	return copy;
}

static uint64_t ago(const struct controller *controller, uint64_t at_ms)
{
	return at_ms && controller->now_ms > at_ms ? controller->now_ms - at_ms : 0;
}

static void put_member(const struct controller *controller, const struct slot *slot,
		       struct report_member *out, bool *ok)
{
	const struct seen *seen = seen_of(controller, slot);
	const struct status *status = &controller->status;
	const struct worker *worker = slot->worker;

	*out = (struct report_member){
		.who = slot->who,
		.host = string(worker ? worker->hello.host : "", ok),
		.pid = worker ? worker->hello.pid : 0,
		.phase = string(figures_phase_of(controller, slot), ok),
		.heard_ms = ago(controller, slot->heard_ms),
		.version = slot->version,
		.version_ms = is_of(seen, slot) ? ago(controller, seen->version_ms) : 0,
	};
	if (status->planned && controller->epoch && slot->who.rank < status->count[slot->who.role])
		out->plan_bytes = status->bytes[slot->who.role][slot->who.rank];
	if (!is_of(seen, slot))
		return;
	out->known = true;
	out->age_ms = ago(controller, seen->said_ms);
	out->bytes_per_second = seen->bytes_per_second;
	*ok = *ok && !message_activity_copy(&out->activity, &seen->activity);
}

static void put_members(const struct controller *controller, struct message_report *report,
			bool *ok)
{
	const struct membership *members = &controller->members;

	report->members = memory_zalloc(members->count, sizeof(*report->members));
	*ok = *ok && report->members;
	for (uint32_t i = 0; *ok && i < members->count; i++) {
		put_member(controller, &members->slots[i], &report->members[i], ok);
		report->member_count++;
	}
}

static void put_events(const struct controller *controller, struct message_report *report, bool *ok)
{
	const struct status *status = &controller->status;

	if (!status->events.count)
		return;
	report->events = memory_zalloc(status->events.count, sizeof(*report->events));
	*ok = *ok && report->events;
	for (size_t i = 0; *ok && i < status->events.count; i++) {
		const struct status_event *event = &status->events.items[i];

		report->events[i] =
			(struct report_event){ago(controller, event->at_ms), event->who,
					      (int)event->why.code, string(event->why.text, ok)};
		report->event_count++;
	}
}

/* By pair, in the order of trainers: routes come one by one. */
static void add_links(const struct controller *controller, uint32_t trainer, uint64_t *by_rank,
		      struct message_report *report, bool *ok)
{
	const struct epoch *epoch = controller->epoch;
	uint32_t ranks = epoch->count - epoch->trainers;
	const struct send_order *of = &epoch->of[ROLE_TRAINER];

	memset(by_rank, 0, ranks * sizeof(*by_rank));
	for (size_t i = of->first[trainer]; i < of->first[trainer + 1]; i++) {
		const struct route *route = &epoch->table->routes[of->routes[i]];

		by_rank[route->inference] += route->bytes;
	}
	for (uint32_t rank = 0; *ok && rank < ranks; rank++) {
		if (!by_rank[rank])
			continue;
		if (report->link_count == LIMIT_LINKS) {
			report->links_left_out++;
			continue;
		}
		report->links[report->link_count++] = (struct report_link){
			trainer, rank, by_rank[rank],
			string(epoch_pair_transport(epoch, (struct member){ROLE_TRAINER, trainer},
						    (struct member){ROLE_INFERENCE, rank}),
			       ok)};
	}
}

static void put_links(const struct controller *controller, struct message_report *report, bool *ok)
{
	const struct epoch *epoch = controller->epoch;
	uint64_t pairs, *by_rank;

	if (!epoch || !epoch->table || !epoch->of[ROLE_TRAINER].first)
		return;
	pairs = (uint64_t)epoch->trainers * (epoch->count - epoch->trainers);
	report->links =
		memory_zalloc(pairs < LIMIT_LINKS ? pairs : LIMIT_LINKS, sizeof(*report->links));
	by_rank = memory_zalloc(epoch->count - epoch->trainers, sizeof(*by_rank));
	*ok = *ok && report->links && by_rank;
	for (uint32_t trainer = 0; *ok && trainer < epoch->trainers; trainer++)
		add_links(controller, trainer, by_rank, report, ok);
	memory_free(by_rank);
}

static void put_job(const struct controller *controller, struct message_report *report, bool *ok)
{
	const struct controller_options *options = &controller->options;
	const struct status *status = &controller->status;
	uint32_t state = figures_state_of(controller);
	char trouble[TROUBLE_TEXT_BYTES];
	struct text missing = {0};

	if (state == CONTROLLER_GATHER || state == CONTROLLER_EXCHANGE)
		view_missing(controller, &missing);
	trouble_text(trouble);
	*report = (struct message_report){
		.state = string(controller->pause.phase != PAUSE_NONE && state == CONTROLLER_RUN
					? "pausing"
					: figures_state(state),
				ok),
		.attempt = controller->epoch ? status->attempt : 0,
		.plans = controller->plans,
		.up_ms = controller->now_ms - controller->started_ms,
		.heartbeat_ms = options->heartbeat_ms,
		.lost_ms = options->lost_ms,
		.update_timeout_ms = options->update_timeout_ms,
		.trainers = options->train.world,
		.engines = options->infer.engines,
		.engine_ranks = infer_ranks(&options->infer) / options->infer.engines,
		.policy = string(options->policy, ok),
		.commit = string(options->commit, ok),
		.continues = controller->continues,
		.missing = string(text_string(&missing), ok),
		.trouble = string(trouble, ok),
	};
	if (status->planned && controller->epoch) {
		report->largest_bytes = status->largest_bytes;
		report->bound_bytes = status->bound_bytes;
		report->predicted_us = status->predicted_us;
		report->bound_us = status->bound_us;
	}
	text_fini(&missing);
}

/* Who asks without end is to keep neither the job from its controller nor others from an answer. Who is not answered asks again. */
static bool is_too_much(struct controller *controller, const char *peer, uint32_t cost)
{
	struct status *status = &controller->status;
	uint32_t hash = 0;

	if (controller->now_ms >= status->second_ms + 1000) {
		status->second_ms = controller->now_ms;
		status->cost = 0;
		memset(status->cost_of, 0, sizeof(status->cost_of));
	}
	while (*peer)
		hash = hash * 31 + (unsigned char)*peer++;
	hash %= STATUS_ASKERS;
	if (status->cost + cost > COST_A_SECOND || status->cost_of[hash] + cost > COST_OF_ONE)
		return true;
	status->cost += cost;
	status->cost_of[hash] += cost;
	return false;
}

/* Of a report that has no memory nothing is said, and the job goes on. */
static void send_report(struct controller *controller, const char *peer, struct message *answer)
{
	bool failed = controller->actions->failed;
	struct message *out = send_to(controller, peer, MESSAGE_REPORT);

	if (!failed && controller->actions->failed) {
		controller->actions->failed = false;
		message_fini(answer);
		return;
	}
	out->u.report = answer->u.report;
}

void status_answer(struct controller *controller, const char *peer, const struct message *message)
{
	struct message answer = {.type = MESSAGE_REPORT};
	struct message_report *report = &answer.u.report;
	bool ok = true, links = message->u.ask.links;

	if (is_too_much(controller, peer, links ? COST_OF_LINKS : 1))
		return;
	put_job(controller, report, &ok);
	put_members(controller, report, &ok);
	put_events(controller, report, &ok);
	if (links)
		put_links(controller, report, &ok);
	if (ok)
		send_report(controller, peer, &answer);
	else
		message_fini(&answer);
}

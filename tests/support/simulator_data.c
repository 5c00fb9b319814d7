/* SPDX-License-Identifier: Apache-2.0
 *
 * simulator_data.c -- the shadow of the data plane: what workers send each other, and what becomes of versions.
 */
#include "tests/support/simulator_wait.h"

struct fact *worker_note(struct simulation *simulation, const struct worker *worker,
			 enum fact_kind kind, uint64_t version)
{
	struct fact *fact = array_push(&simulation->history.facts);

	assert_non_null(fact);
	*fact = (struct fact){.kind = kind,
			      .at_ms = simulation->now,
			      .who = {worker->what.role, worker->what.rank},
			      .process = worker->what.incarnation,
			      .version = version};
	return fact;
}

void worker_planned(struct simulation *simulation, const struct worker *worker)
{
	struct fact *fact = worker_note(simulation, worker, FACT_PLANNED, 0);

	fact->digest = worker->plan->digest;
	for (size_t p = 0; p < worker->plan->peer_count; p++)
		if (worker->plan->peers[p].member.role == ROLE_TRAINER)
			fact->trainers |= 1ull << worker->plan->peers[p].member.rank;
}

/* Of what all others have begun a rank has nothing, and who was to send it is gone. */
void worker_gives_up(struct simulation *simulation, uint32_t index, uint64_t version)
{
	struct worker *worker = simulation->workers.items[index];

	if (worker->arrived || !worker->gone || version <= worker->version ||
	    version <= worker->past || worker->copies)
		return;
	for (size_t p = 0; p < worker->plan->peer_count; p++)
		if (worker->plan->peers[p].member.role == ROLE_TRAINER &&
		    !(worker->gone >> worker->plan->peers[p].member.rank & 1))
			return;
	worker->past = version;
	worker_note(simulation, worker, FACT_PASSES, version);
	simulation_line(simulation, "%s has nothing of version %llu", worker->name,
			(unsigned long long)version);
}

/* What is asked of a host that has nothing under way: trainers stop where they begin an update, ranks where they have the last
 * one. */
void worker_pauses(struct simulation *simulation, uint32_t index)
{
	struct worker *worker = simulation->workers.items[index];
	bool trainer = worker->what.role == ROLE_TRAINER;
	uint64_t done = worker->past > worker->version ? worker->past : worker->version;
	uint64_t at = trainer ? worker->begins : done;
	struct worker_event event = {.type = WORKER_EVENT_PAUSED,
				     .number = worker->pause.number,
				     .done = true,
				     .next = trainer ? worker->begins : at + 1,
				     .version = worker->version,
				     .repeats = (trainer ? worker->repeats : !worker->arrived) &&
						worker->version,
				     .between = worker->repeats};

	if (worker->waiting) {
		wait_acts(simulation, index);
		return;
	}
	if (worker->sending && send_pauses(simulation, index)) {
		worker->begins = worker->begun;
		worker_pauses(simulation, index);
		return;
	}
	if (worker->pause.number && !trainer && worker->gone && done < worker->pause.version) {
		worker_gives_up(simulation, index, worker->pause.version);
		at = worker->past > at ? worker->past : at;
		event.next = at + 1;
	}
	if (!worker->pause.number || worker->sends ||
	    (trainer ? !at || at < worker->pause.version : at < worker->pause.version))
		return;
	worker->stopped = !trainer;
	worker->arrived = 0; /* parts of a version that those who live have not begun */
	worker_does(simulation, index, &event);
}

static void ended(struct simulation *simulation, uint32_t index, uint64_t version)
{
	struct worker_event event = {.type = WORKER_EVENT_VERSION, .version = version};
	struct worker *worker = simulation->workers.items[index];

	worker->version = version;
	worker->repeating = 0;
	if (worker->what.role == ROLE_INFERENCE)
		worker_note(simulation, worker, FACT_SHOWS, version);
	simulation_line(simulation, "%s %s version %llu", worker->name,
			worker->what.role == ROLE_TRAINER ? "ends" : "publishes",
			(unsigned long long)version);
	worker_does(simulation, index, &event);
	if (worker->what.role == ROLE_INFERENCE)
		worker_pauses(simulation, index);
}

void worker_sent(struct simulation *simulation, uint32_t index, uint64_t version, bool aborted)
{
	struct worker *worker = simulation->workers.items[index];

	if (!aborted) {
		ended(simulation, index, version);
		return;
	}
	worker->given_up = version;
	worker->repeating = 0;
	simulation_line(simulation, "%s gives up version %llu", worker->name,
			(unsigned long long)version);
}

bool worker_runs(const struct worker *worker)
{
	return worker->alive && worker_core_state(worker->core) == WORKER_RUN;
}

static void schedule_write(struct simulation *simulation, uint32_t index, uint32_t peer,
			   uint64_t version)
{
	struct happening *event = simulation_later(
		simulation, simulation->now + simulation->options.write_ms, EVENT_WRITE);

	event->to = index;
	event->peer = peer;
	event->version = version;
}

void worker_begins(struct simulation *simulation, uint32_t index, uint64_t version)
{
	struct worker *worker = simulation->workers.items[index];

	if (worker->pause.number && version >= worker->pause.version) {
		simulation_line(simulation, "%s pauses before version %llu", worker->name,
				(unsigned long long)version);
		worker->begins = version;
		worker_pauses(simulation, index);
		return;
	}
	simulation_line(simulation, "%s begins version %llu", worker->name,
			(unsigned long long)version);
	worker->begun = version;
	if (worker->sending) {
		send_begins(simulation, index, version);
		return;
	}
	worker_note(simulation, worker, FACT_BEGINS, version);
	if (worker->plan->peer_count)
		schedule_write(simulation, index, 0, version);
	else
		ended(simulation, index, version);
}

void worker_sends_again(struct simulation *simulation, uint32_t index, uint64_t version)
{
	struct worker *worker = simulation->workers.items[index];

	simulation_line(simulation, "%s sends version %llu once more", worker->name,
			(unsigned long long)version);
	assert_int_equal(version, worker->version);
	worker->repeating = version;
	if (worker->sending) {
		send_begins(simulation, index, version);
		return;
	}
	worker_note(simulation, worker, FACT_BEGINS, version)->again = true;
	if (worker->plan->peer_count)
		schedule_write(simulation, index, 0, version);
	else
		ended(simulation, index, version);
}

/* Its host has ended what it has begun. */
static bool has_nothing_under_way(const struct worker *worker)
{
	return worker_runs(worker) && !worker->begins && !worker->repeating &&
	       (worker->begun == worker->version || worker->begun == worker->given_up);
}

bool simulation_is_between(const struct simulation *simulation, uint32_t trainer)
{
	return has_nothing_under_way(simulation->workers.items[trainer]);
}

static uint64_t next_version(const struct worker *worker)
{
	if (!worker->begun && worker->plan->next)
		return worker->plan->next; /* it came in then */
	return worker->begun + 1;
}

void simulation_update_next(struct simulation *simulation)
{
	uint64_t version = UINT64_MAX;

	for (uint32_t i = 0; i < simulation->workers.count; i++) {
		const struct worker *worker = simulation->workers.items[i];

		if (worker->what.role == ROLE_TRAINER && worker_runs(worker) &&
		    next_version(worker) < version)
			version = next_version(worker);
	}
	for (uint32_t i = 0; i < simulation->workers.count; i++) {
		const struct worker *worker = simulation->workers.items[i];

		if (worker->what.role == ROLE_TRAINER && has_nothing_under_way(worker) &&
		    next_version(worker) == version)
			worker_begins(simulation, i, version);
	}
}

void simulation_repeat_one(struct simulation *simulation, uint32_t trainer)
{
	struct worker *worker = simulation->workers.items[trainer];
	uint64_t next;

	if (!has_nothing_under_way(worker) || !worker->pause.number)
		return;
	next = next_version(worker);
	if (next < worker->pause.version)
		return;
	simulation_line(simulation, "%s pauses after version %llu", worker->name,
			(unsigned long long)worker->version);
	worker->repeats = true;
	worker->begins = next;
	worker_pauses(simulation, trainer);
}

void simulation_repeat(struct simulation *simulation)
{
	for (uint32_t i = 0; i < simulation->workers.count; i++)
		if (simulation->workers.items[i]->what.role == ROLE_TRAINER)
			simulation_repeat_one(simulation, i);
}

void simulation_begin(struct simulation *simulation, uint32_t trainer, uint64_t version)
{
	if (worker_runs(simulation->workers.items[trainer]) &&
	    !simulation->workers.items[trainer]->begins)
		worker_begins(simulation, trainer, version);
}

void simulation_update(struct simulation *simulation, uint64_t version)
{
	for (uint32_t i = 0; i < simulation->workers.count; i++)
		if (simulation->workers.items[i]->what.role == ROLE_TRAINER)
			simulation_begin(simulation, i, version);
}

static uint32_t find_running(struct simulation *simulation, struct member who)
{
	for (uint32_t i = 0; i < simulation->workers.count; i++) {
		struct worker *worker = simulation->workers.items[i];

		if (worker->what.role == who.role && worker->what.rank == who.rank &&
		    worker_runs(worker))
			return i;
	}
	return CONTROLLER;
}

/* It has not heard yet that the job runs, and so does not accept. */
static bool is_on_its_way(struct simulation *simulation, struct member who)
{
	for (uint32_t i = 0; i < simulation->workers.count; i++) {
		const struct worker *worker = simulation->workers.items[i];
		enum worker_state state = worker_core_state(worker->core);

		if (worker->what.role == who.role && worker->what.rank == who.rank &&
		    worker->alive && state >= WORKER_PLANNED && state <= WORKER_CONNECTED)
			return true;
	}
	return false;
}

/* It has not accepted that version yet. */
static bool has_another(struct simulation *simulation, uint32_t index, uint64_t version)
{
	const struct worker *worker = simulation->workers.items[index];

	return worker->stopped || worker->copies || worker->sends ||
	       (worker->arrived && worker->arriving != version);
}

static void next_write(struct simulation *simulation, const struct happening *event)
{
	if (event->peer + 1 < simulation->workers.items[event->to]->plan->peer_count)
		schedule_write(simulation, event->to, event->peer + 1, event->version);
	else
		ended(simulation, event->to, event->version);
}

void worker_writes(struct simulation *simulation, const struct happening *event)
{
	struct worker *worker = simulation->workers.items[event->to];
	struct happening *signal;
	uint32_t target;

	if (!worker_runs(worker))
		return;
	if ((worker->repeating && !worker->plan->peers[event->peer].lacks) ||
	    worker->gone_ranks >> worker->plan->peers[event->peer].member.rank & 1) {
		next_write(simulation, event);
		return;
	}
	target = find_running(simulation, worker->plan->peers[event->peer].member);
	if ((target == CONTROLLER &&
	     is_on_its_way(simulation, worker->plan->peers[event->peer].member)) ||
	    (target != CONTROLLER && has_another(simulation, target, event->version))) {
		schedule_write(simulation, event->to, event->peer, event->version);
		return;
	}
	if (target != CONTROLLER) {
		signal = simulation_later(simulation, simulation->now + 1, EVENT_SIGNAL);
		signal->to = target;
		signal->from = event->to;
		signal->version = event->version;
		signal->digest = worker->plan->digest;
		signal->peer = worker->plan->attempt;
	}
	next_write(simulation, event);
}

/* All that comes is here: it is the version, or is given up. */
void worker_counts(struct simulation *simulation, uint32_t index)
{
	struct worker *worker = simulation->workers.items[index];
	uint64_t all = 0, version = worker->arriving;

	for (size_t p = 0; worker->plan && p < worker->plan->peer_count; p++)
		if (worker->plan->peers[p].member.role == ROLE_TRAINER)
			all |= 1ull << worker->plan->peers[p].member.rank;
	if (worker->waiting) {
		wait_acts(simulation, index);
		return;
	}
	if (!worker->arrived || (all & ~(worker->arrived | worker->gone)))
		return;
	if (worker->arrived == all) {
		worker->arrived = 0;
		ended(simulation, index, version);
		return;
	}
	worker->arrived = 0;
	worker->past = version;
	worker_note(simulation, worker, FACT_PASSES, version);
	simulation_line(simulation, "%s gives up version %llu", worker->name,
			(unsigned long long)version);
	worker_pauses(simulation, index);
}

void worker_signalled(struct simulation *simulation, const struct happening *event)
{
	struct worker *worker = simulation->workers.items[event->to];
	const struct worker *from = simulation->workers.items[event->from];
	struct fact *fact;

	if (!worker_runs(worker))
		return;
	/* of one that was stopped, whose path is closed; or that was told to be gone, and is not: that was given up */
	if (worker->stopped || event->peer != worker->plan->attempt ||
	    (event->version <= worker->past && worker->gone >> from->what.rank & 1))
		return;
	if (worker->arriving != event->version) {
		assert_int_equal(worker->arrived, 0);
		assert_true(event->version > worker->version && event->version > worker->past);
		worker->arriving = event->version;
	}
	worker->arrived |= 1ull << from->what.rank;
	fact = worker_note(simulation, worker, FACT_ARRIVES, event->version);
	fact->from = (struct member){ROLE_TRAINER, from->what.rank};
	fact->from_process = from->what.incarnation;
	fact->digest = event->digest;
	worker_counts(simulation, event->to);
}

/* ---- copies ---- */

#define SENDS_MS 22500u /* three quarters of the update timeout */

static void schedule_copy(struct simulation *simulation, uint32_t index, uint32_t peer)
{
	struct happening *event = simulation_later(
		simulation, simulation->now + simulation->options.write_ms, EVENT_COPY);

	event->to = index;
	event->peer = peer;
	event->attempt = simulation->workers.items[index]->plan->attempt;
}

void worker_copies(struct simulation *simulation, uint32_t index)
{
	struct worker *worker = simulation->workers.items[index];

	worker->copies = 0;
	worker->sends = 0;
	worker->sends_until = simulation->now + SENDS_MS;
	for (uint32_t p = 0; p < worker->plan->peer_count; p++) {
		if (worker->plan->peers[p].copy == COPY_FROM)
			worker->copies = worker->plan->copy;
		if (worker->plan->peers[p].copy != COPY_TO)
			continue;
		worker->sends++;
		schedule_copy(simulation, index, p);
	}
}

/* It goes on to trainers' next version. */
static void gives_copy_up(struct simulation *simulation, uint32_t index)
{
	struct worker *worker = simulation->workers.items[index];

	worker->past = worker->copies;
	worker->copies = 0;
	worker_note(simulation, worker, FACT_PASSES, worker->past);
	simulation_line(simulation, "%s is not sent version %llu: who shows it is gone",
			worker->name, (unsigned long long)worker->past);
	worker_pauses(simulation, index);
}

void worker_hears_gone(struct simulation *simulation, uint32_t index)
{
	const struct worker *worker = simulation->workers.items[index];

	if (worker->waiting)
		return;
	for (uint32_t p = 0; worker->copies && p < worker->plan->peer_count; p++)
		if (worker->plan->peers[p].copy == COPY_FROM &&
		    worker->gone_ranks >> worker->plan->peers[p].member.rank & 1)
			gives_copy_up(simulation, index);
}

static void takes_copy(struct simulation *simulation, uint32_t index, const struct worker *from,
		       uint64_t version)
{
	struct worker *worker = simulation->workers.items[index];
	struct fact *fact;

	if (worker->copies != version)
		return;
	worker->copies = 0;
	fact = worker_note(simulation, worker, FACT_COPIES, version);
	fact->from = (struct member){ROLE_INFERENCE, from->what.rank};
	fact->from_process = from->what.incarnation;
	simulation_line(simulation, "%s sends version %llu to %s", from->name,
			(unsigned long long)version, worker->name);
	ended(simulation, index, version);
}

/* The same, where the other one says when, and for as long as this one waits for that. */
static void copies_by_permission(struct simulation *simulation, const struct happening *event)
{
	struct worker *worker = simulation->workers.items[event->to];
	struct waiting *waiting = worker->waiting;
	uint64_t version = worker->plan->copy;
	uint32_t p = event->peer, rank = worker->plan->peers[p].member.rank;
	enum permission permission = pairs_permission(worker, p, version);
	bool gone = worker->gone_ranks >> rank & 1 || pairs_sees_end(simulation, worker, p);

	if (!gone && permission == PERMISSION_LATER && simulation->now < worker->sends_until) {
		schedule_copy(simulation, event->to, p);
		return;
	}
	worker->ends->used[p] = worker->ends->accept[p].opening;
	if (!gone && permission == PERMISSION_GIVEN &&
	    versions_whole(&waiting->versions, version) >= 0)
		pairs_end(simulation, event->to, p, worker->ends->used[p], version);
	else if (!gone)
		pairs_say(simulation, event->to, p, &(struct said){.tag = UPDATE_ABORT});
	if (!--worker->sends)
		wait_acts(simulation, event->to);
}

void worker_copied(struct simulation *simulation, const struct happening *event)
{
	struct worker *worker = simulation->workers.items[event->to];
	struct member who;
	uint32_t target;

	if (!worker_runs(worker) || worker->plan->attempt != event->attempt)
		return;
	if (worker->waiting) {
		copies_by_permission(simulation, event);
		return;
	}
	who = worker->plan->peers[event->peer].member;
	target = find_running(simulation, who);
	if (!(worker->gone_ranks >> who.rank & 1) && target == CONTROLLER &&
	    is_on_its_way(simulation, who)) {
		schedule_copy(simulation, event->to, event->peer);
		return;
	}
	worker->sends--;
	if (target != CONTROLLER &&
	    simulation->workers.items[target]->plan->attempt == event->attempt)
		takes_copy(simulation, target, worker, worker->plan->copy);
	if (!worker->sends)
		worker_pauses(simulation, event->to);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * simulator_wait.c -- the waits of an inference rank, one after the other: what worker/update/wait.c does for a host that waits for
 * the next version, on the simulator's clock.
 */
#include "tests/support/simulator_wait.h"

uint64_t wait_now_ns(const struct simulation *simulation)
{
	return (simulation->now + 1) * MS; /* 0 is no time */
}

void wait_looks_at(struct simulation *simulation, uint32_t index, uint64_t at)
{
	simulation_later(simulation, at, EVENT_LOOKS)->to = index;
}

/* ---- what is heard ---- */

static bool read_signal(struct simulation *simulation, const struct worker *worker, uint32_t s,
			struct receive_event *event)
{
	struct waiting *waiting = worker->waiting;
	uint32_t p = waiting->first + s;

	(void)simulation;
	if (waiting->gone[p] || !worker->ends->unread[p])
		return false;
	worker->ends->unread[p] = false;
	if (worker->copies)
		waiting->copy_used = true;
	if (worker->copies && worker->ends->said[p].tag == UPDATE_ABORT) {
		waiting->gone[p] = true;
		*event = (struct receive_event){.kind = RECEIVE_GONE, .peer = s};
		return true;
	}
	assert_int_equal(worker->ends->said[p].u.end.opening, waiting->links[p].opening);
	*event = (struct receive_event){.kind = RECEIVE_SIGNAL,
					.peer = s,
					.word = (enum update_tag)worker->ends->said[p].tag,
					.end = &worker->ends->said[p].u.end,
					.gone = &worker->ends->said[p].u.abort};
	return true;
}

static bool find_gone(struct simulation *simulation, uint32_t index, struct receive_event *event)
{
	const struct worker *worker = simulation->workers.items[index];
	struct waiting *waiting = worker->waiting;

	for (uint32_t s = 0; s < waiting->count; s++) {
		uint32_t p = waiting->first + s;

		if (waiting->links[p].gone || !wait_misses(simulation, index, p))
			continue;
		*event = (struct receive_event){.kind = RECEIVE_GONE, .peer = s};
		return true;
	}
	return false;
}

static bool only_pauses(struct waiting *waiting, struct receive_event *event)
{
	uint64_t *version = &waiting->committer.given_up.version;

	if (event->kind != RECEIVE_FAILED || event->broken || *version != GIVE_UP_PAUSES)
		return false;
	*version = 0;
	waiting->started_over = waiting->again = true;
	receive_start_over(&waiting->receiver);
	*event = (struct receive_event){.kind = RECEIVE_ASKS};
	return true;
}

static bool listen(struct simulation *simulation, uint32_t index, struct error *error,
		   struct receive_event *event)
{
	const struct worker *worker = simulation->workers.items[index];
	struct waiting *waiting = worker->waiting;

	for (uint32_t s = 0; s < waiting->count; s++)
		if (read_signal(simulation, worker, s, event))
			return true;
	return find_gone(simulation, index, event) ||
	       (meet_hears(simulation, index, error, event) && !only_pauses(waiting, event));
}

/* ---- what is done ---- */

/* What was given up here is written in vain. */
static uint64_t min_version(const struct worker *worker)
{
	const struct receiver *receiver = &worker->waiting->receiver;
	uint64_t next = versions_published(&worker->waiting->versions) + 1;

	if (worker->gone)
		return 1;
	return next > receiver->min_version ? receiver->min_version : next;
}

static void accept(struct simulation *simulation, uint32_t index, uint32_t s)
{
	const struct worker *worker = simulation->workers.items[index];
	const struct waiting *waiting = worker->waiting;
	uint32_t p = waiting->first + s;
	struct said said = {.tag = UPDATE_ACCEPT};

	said.u.accept = (struct update_accept){.opening = waiting->links[p].opening,
					       .min_version = min_version(worker),
					       .max_version = waiting->receiver.max_version};
	pairs_say(simulation, index, p, &said);
}

static void taint(struct waiting *waiting)
{
	versions_fail(&waiting->versions, waiting->copy);
}

static bool lacks_peer(struct simulation *simulation, uint32_t index)
{
	const struct waiting *waiting = simulation->workers.items[index]->waiting;
	bool any = false;

	for (uint32_t s = 0; s < waiting->count; s++)
		any = any || wait_misses(simulation, index, waiting->first + s);
	return any;
}

static bool pauses(const struct worker *worker)
{
	const struct waiting *waiting = worker->waiting;
	uint64_t done = versions_published(&waiting->versions);

	if (!worker->pause.number)
		return false;
	if (waiting->receiver.phase > RECEIVE_COUNTING)
		return waiting->receiver.phase == RECEIVE_PREPARED && together_is_by_plan(worker) &&
		       !together_is_to_show(worker);
	done = waiting->receiver.past > done ? waiting->receiver.past : done;
	if (waiting->mates_past > done && waiting->mates_past <= worker->over)
		done = waiting->mates_past;
	return done >= worker->pause.version;
}

static void stop(struct simulation *simulation, uint32_t index)
{
	struct worker *worker = simulation->workers.items[index];
	struct waiting *waiting = worker->waiting;
	uint64_t shown = versions_published(&waiting->versions), past = waiting->receiver.past;
	uint64_t next = (past > shown ? past : shown) + 1, ended = worker->pause.version;
	struct worker_event event = {.type = WORKER_EVENT_PAUSED,
				     .number = worker->pause.number,
				     .done = true,
				     .next = next > ended ? next : ended + 1,
				     .version = shown,
				     .promised = together_promised(waiting)};
	bool by_plan = together_is_by_plan(worker);

	if (event.promised)
		event.next = event.promised < event.next ? event.next : event.promised + 1;
	waiting->holds = by_plan && waiting->receiver.phase == RECEIVE_PREPARED;
	if (worker->gone && !waiting->holds) {
		if (!by_plan)
			meet_cannot(simulation, index, GIVE_UP_PAUSES,
				    "a trainer has left the job");
		if (waiting->opened && waiting->receiver.phase != RECEIVE_JOINING &&
		    lacks_peer(simulation, index))
			taint(waiting);
	}
	event.repeats = event.promised ||
			(versions_whole(&waiting->versions, shown) >= 0 &&
			 (waiting->versions.copies > 1 || !lacks_peer(simulation, index)));
	waiting->waits = false;
	worker->stopped = true;
	worker_does(simulation, index, &event);
}

void wait_publishes(struct simulation *simulation, uint32_t index, uint64_t version)
{
	struct worker *worker = simulation->workers.items[index];
	struct waiting *waiting = worker->waiting;
	struct worker_event event = {.type = WORKER_EVENT_VERSION, .version = version};

	waiting->opened = waiting->waits = false;
	versions_publish(&waiting->versions, waiting->copy, version);
	meet_notes(simulation);
	worker->version = version;
	simulation_line(simulation, "%s publishes version %llu", worker->name,
			(unsigned long long)version);
	worker_does(simulation, index, &event);
}

static void give_up(struct simulation *simulation, uint32_t index, const struct receive_step *step)
{
	struct worker *worker = simulation->workers.items[index];
	struct waiting *waiting = worker->waiting;
	struct error error = waiting->receiver.error;
	uint64_t gave_up = waiting->committer.given_up.version;

	waiting->waits = false;
	simulation_line(simulation, "%s: %s", worker->name, error.text);
	if (!step->broken && error.code == ERROR_ABORTED && gave_up != GIVE_UP_PAUSES &&
	    gave_up > waiting->mates_past)
		waiting->mates_past = gave_up;
	if (waiting->receiver.phase == RECEIVE_PREPARED && !step->broken)
		return;
	if (!step->broken && error.code != ERROR_TIMEOUT && error.code != ERROR_INTERRUPTED)
		meet_cannot(simulation, index, waiting->receiver.past, error.text);
	if (waiting->opened)
		taint(waiting);
	if (step->broken)
		worker_does(simulation, index,
			    &(struct worker_event){.type = WORKER_EVENT_FAILURE, .error = &error});
}

static void open_memory(struct waiting *waiting)
{
	waiting->copy = versions_spare(&waiting->versions);
	waiting->opened = true;
	versions_open(&waiting->versions, waiting->copy);
}

/* An engine is gone: what trainers have begun is waited for, whoever is there, and shown if the next plan says so. */
static bool meet_nobody(struct simulation *simulation, const struct worker *worker,
			const struct receive_step *step, bool shown, struct receive_event *event)
{
	struct waiting *waiting = worker->waiting;
	const struct receiver *receiver = &waiting->receiver;

	if ((step->round == MEET_PUBLISH && !shown) ||
	    (step->round == MEET_OPEN && !together_has_begun(worker, receiver->min_version)))
		return false;
	*event = (struct receive_event){.kind = RECEIVE_MET,
					.min_version = receiver->min_version,
					.max_version = receiver->max_version,
					.now_ns = wait_now_ns(simulation)};
	if (step->round == MEET_OPEN)
		open_memory(waiting);
	return true;
}

static bool meet(struct simulation *simulation, uint32_t index, const struct receive_step *step,
		 struct error *error, struct receive_event *event)
{
	const struct worker *worker = simulation->workers.items[index];
	struct waiting *waiting = worker->waiting;
	bool by_plan = together_is_by_plan(worker), shown;

	if (step->round == MEET_PUBLISH)
		versions_prepare(&waiting->versions, waiting->copy, step->version);
	shown = by_plan && step->round == MEET_PUBLISH &&
		together_promises(simulation, index, step->version);
	if (by_plan && !together_may_be_let_go(waiting))
		return meet_nobody(simulation, worker, step, shown, event) ||
		       (step->round == MEET_PUBLISH &&
			meet_loses_leader(simulation, index, error, event));
	if (step->round != MEET_OPEN && waiting->committer.phase == COMMIT_IDLE) {
		*error = waiting->committer.error;
		*event = (struct receive_event){.kind = RECEIVE_FAILED, .error = error};
		return true;
	}
	if (!meet_looks(simulation, index, step, error, event) || only_pauses(waiting, event))
		return false;
	if (event->kind == RECEIVE_MET && step->round == MEET_OPEN) {
		waiting->started_over = false;
		open_memory(waiting);
	}
	return true;
}

/* All who were to send this version here are gone, or what they had ended is forgotten, and the others are past it; of a copy,
 * who was to send it. */
static bool never_comes(struct simulation *simulation, const struct worker *worker,
			struct error *error, struct receive_event *event)
{
	struct waiting *waiting = worker->waiting;
	struct receiver *receiver = &waiting->receiver;
	uint64_t version = worker->copies ? worker->copies : receiver->min_version;
	bool alone = receive_is_alone(receiver);

	if (worker->copies ? !alone && simulation->now < waiting->copy_until
			   : version > worker->over || !(waiting->started_over || alone))
		return false;
	receiver->past = version > receiver->past ? version : receiver->past;
	error_set(error, ERROR_ABORTED,
		  "update %llu was given up: who was to send it has left the job",
		  (unsigned long long)version);
	*event = (struct receive_event){.kind = RECEIVE_FAILED, .error = error};
	return true;
}

static void load(struct simulation *simulation, uint32_t index)
{
	struct waiting *waiting = simulation->workers.items[index]->waiting;

	waiting->loading = true;
	waiting->loaded_at =
		simulation->now + simulation_dice(simulation, simulation->options.load_ms + 1);
	wait_looks_at(simulation, index, waiting->loaded_at);
}

static void note_past(struct simulation *simulation, const struct worker *worker)
{
	struct waiting *waiting = worker->waiting;

	if (waiting->receiver.past <= waiting->seen_past)
		return;
	waiting->seen_past = waiting->receiver.past;
	worker_note(simulation, worker, FACT_PASSES, waiting->seen_past);
	simulation_line(simulation, "%s gives up version %llu", worker->name,
			(unsigned long long)waiting->seen_past);
}

/* What comes of a step that waits. False: nothing yet. */
static bool waits_for(struct simulation *simulation, uint32_t index,
		      const struct receive_step *step, struct error *error,
		      struct receive_event *event)
{
	const struct worker *worker = simulation->workers.items[index];
	const struct waiting *waiting = worker->waiting;
	bool meets = step->kind == RECEIVE_MEET;

	if (meets && waiting->started_over && !worker->copies &&
	    never_comes(simulation, worker, error, event))
		return true;
	if (meets ? meet(simulation, index, step, error, event)
		  : listen(simulation, index, error, event))
		return true;
	if (!meets && !pauses(worker) && never_comes(simulation, worker, error, event))
		return true;
	if (wait_now_ns(simulation) < step->until_ns || (!meets && pauses(worker)))
		return false;
	if (!meets) {
		event->now_ns = wait_now_ns(simulation);
		return true;
	}
	error_set(error, ERROR_TIMEOUT, "not all are there at meeting %d", step->round);
	*event = (struct receive_event){.kind = RECEIVE_FAILED, .error = error};
	return true;
}

/* To the end, or to where it would sleep. */
static void run(struct simulation *simulation, uint32_t index, struct receive_event event)
{
	struct worker *worker = simulation->workers.items[index];
	struct waiting *waiting = worker->waiting;
	struct error error;

	while (waiting->waits && worker_runs(worker)) {
		struct receive_step step = receive_next(&waiting->receiver, &event);

		event = (struct receive_event){.kind = RECEIVE_ASKS};
		note_past(simulation, worker);
		if (step.kind == RECEIVE_FAIL) {
			give_up(simulation, index, &step);
		} else if (step.kind == RECEIVE_PUBLISH) {
			wait_publishes(simulation, index, step.version);
		} else if (step.kind == RECEIVE_ACCEPT) {
			accept(simulation, index, step.peer);
		} else if (step.kind == RECEIVE_LOAD) {
			load(simulation, index);
			return;
		} else if (step.kind == RECEIVE_WAIT || step.kind == RECEIVE_MEET) {
			if (step.kind == RECEIVE_MEET && pauses(worker))
				stop(simulation, index);
			else if (waits_for(simulation, index, &step, &error, &event))
				continue;
			else if (step.kind == RECEIVE_WAIT && pauses(worker))
				stop(simulation, index);
			else {
				together_excuses(simulation, index);
				return;
			}
		} else {
			assert_int_equal(step.kind, RECEIVE_VERIFY);
		}
	}
}

/* ---- waits ---- */

/* weft_update_wait for the next version begins. False: not now. */
static bool begin(struct simulation *simulation, uint32_t index, struct receive_event *event)
{
	const struct worker *worker = simulation->workers.items[index];
	struct waiting *waiting = worker->waiting;
	uint64_t deadline = simulation->now + UPDATE_TIMEOUT_MS;

	if (waiting->last && worker->version >= waiting->last) {
		simulation_leave(simulation, index, true);
		return false;
	}
	if (!wait_begins_copy(simulation, index))
		return false;
	together_meets_all(simulation, index);
	waiting->waits = true;
	if (meet_is_shown(waiting) ||
	    (together_is_by_plan(worker) && receive_promised(&waiting->receiver) &&
	     versions_published(&waiting->versions) == receive_promised(&waiting->receiver))) {
		*event = (struct receive_event){.kind = RECEIVE_MET};
		return true;
	}
	if (waiting->receiver.phase == RECEIVE_CLOSED && pauses(worker)) {
		stop(simulation, index);
		return false;
	}
	waiting->asks_anew = true;
	waiting->started_over = false;
	if (!waiting->receiver.meets)
		open_memory(waiting);
	waiting->began_at = simulation->now;
	for (uint64_t at = simulation->now; worker->plan->together && at < deadline;)
		wait_looks_at(simulation, index, at += UPDATE_TIMEOUT_MS / 2 / EXCUSES);
	wait_looks_at(simulation, index, deadline);
	*event = (struct receive_event){.kind = RECEIVE_OPENS,
					.published = versions_published(&waiting->versions),
					.now_ns = wait_now_ns(simulation),
					.deadline_ns = deadline * MS};
	return true;
}

/* The hook has returned. */
static struct receive_event loaded(struct waiting *waiting, struct error *error)
{
	struct receive_event event = {.kind = RECEIVE_ASKS};

	waiting->loading = false;
	if (!waiting->fails)
		return event;
	waiting->fails = false;
	error_set(error, ERROR_POST_LOAD, "the post-load hook returned 1");
	return (struct receive_event){.kind = RECEIVE_FAILED, .error = error};
}

static bool is_there(const struct simulation *simulation, const struct worker *worker)
{
	const struct waiting *waiting = worker->waiting;

	return worker_runs(worker) && !worker->stopped && !worker->sends &&
	       (waiting->waits || simulation->now >= waiting->away_until) &&
	       !(waiting->loading && simulation->now < waiting->loaded_at);
}

void wait_is_left(struct simulation *simulation, uint32_t index, uint64_t until)
{
	struct waiting *waiting = simulation->workers.items[index]->waiting;
	struct error error;

	waiting->away_until = until;
	wait_looks_at(simulation, index, until);
	if (!waiting->waits || waiting->loading)
		return;
	error_set(&error, ERROR_INTERRUPTED, "the host was interrupted");
	run(simulation, index, (struct receive_event){.kind = RECEIVE_FAILED, .error = &error});
}

void wait_acts(struct simulation *simulation, uint32_t index)
{
	const struct worker *worker = simulation->workers.items[index];
	struct waiting *waiting = worker->waiting;
	struct error error;

	waiting->again = true;
	if (waiting->acting)
		return;
	waiting->acting = true;
	if (worker_runs(worker)) /* also who first sends what it shows */
		meet_runs(waiting);
	while (waiting->again && is_there(simulation, worker)) {
		struct receive_event event = {.kind = RECEIVE_ASKS};

		waiting->again = false;
		if (waiting->loading)
			event = loaded(waiting, &error);
		if (!waiting->waits && !begin(simulation, index, &event))
			break;
		run(simulation, index, event);
		waiting->again = waiting->again || !waiting->waits;
	}
	waiting->acting = false;
}

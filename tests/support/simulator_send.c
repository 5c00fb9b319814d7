/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/simulator_send.h"

#define PART_BYTES 64u
#define PARTS	   2u

/* ---- a plan ---- */

static void make_plan(struct sending *sending, const struct message_plan *plan)
{
	uint32_t peers = (uint32_t)plan->peer_count;

	sending->source = (struct send_source){.scales = NO_TENSOR,
					       .row_count = peers,
					       .parts = PARTS,
					       .follower = NO_SOURCE,
					       .scheduled = true,
					       .group_max = 1,
					       .part_bytes = PART_BYTES};
	sending->source.pack.bytes = (uint64_t)PARTS * PART_BYTES;
	for (uint32_t p = 0; p < peers; p++) {
		sending->rows[p] = (struct send_row){.peer = p, .ordinal = p, .path = PATH_DIRECT};
		sending->source_rows[p] = sending->tensor_rows[p] = p;
		member_text(plan->peers[p].member, sending->name_of[p]);
		sending->names[p] = sending->name_of[p];
	}
	sending->tensor_first[0] = 0;
	sending->tensor_first[1] = peers;
	sending->plan = (struct send_plan){.rows = sending->rows,
					   .row_count = peers,
					   .sources = &sending->source,
					   .source_count = peers != 0,
					   .block_count = PARTS,
					   .source_rows = sending->source_rows,
					   .tensor_first = sending->tensor_first,
					   .tensor_rows = sending->tensor_rows,
					   .tensor_count = 1,
					   .peer_count = peers,
					   .posts = true,
					   .scheduled = true};
}

void send_new(struct worker *worker)
{
	worker->sending = memory_zalloc(1, sizeof(*worker->sending));
	assert_non_null(worker->sending);
}

void send_closes(struct worker *worker)
{
	struct sending *sending = worker->sending;

	if (!sending->open)
		return;
	sending->last_version = sending->schedule.last_version;
	schedule_close(&sending->schedule);
	sending->open = false;
	sending->now = SENDS_NOTHING;
}

void send_opens(struct worker *worker)
{
	static const char *const tensors[] = {"tensor"};
	struct sending *sending = worker->sending;
	const struct message_plan *plan = worker->plan;
	struct error error;

	send_closes(worker);
	make_plan(sending, plan);
	if (schedule_open(&sending->schedule,
			  &(struct schedule_options){.plan = &sending->plan,
						     .peer_names = sending->names,
						     .tensor_names = tensors,
						     .drops = true,
						     .begin_ns = UPDATE_TIMEOUT_MS * MS,
						     .wait_ns = UPDATE_TIMEOUT_MS / 2 * MS},
			  &error))
		fail_msg("%s: %s", worker->name, error.text);
	sending->open = true;
	sending->schedule.last_version = sending->last_version;
	sending->schedule.repeat = plan->repeat;
	for (uint32_t p = 0; p < plan->peer_count; p++)
		sending->schedule.links[p].lacks = plan->peers[p].lacks;
	memset(sending->writes, 0, sizeof(sending->writes));
	memset(sending->land_at, 0, sizeof(sending->land_at));
}

/* ---- who is gone ---- */

static void go_without(struct sending *sending, uint32_t peer)
{
	schedule_note(&sending->schedule, NULL, &(struct event){.kind = EVENT_GONE, .peer = peer});
}

static void drop(struct simulation *simulation, uint32_t index, uint32_t peer, const char *why)
{
	struct worker *worker = simulation->workers.items[index];
	struct error error;
	struct worker_event event = {.type = WORKER_EVENT_DROP,
				     .error = &error,
				     .member = worker->plan->peers[peer].member,
				     .attempt = worker->plan->attempt,
				     .version = worker->version};

	if (worker->sending->schedule.links[peer].gone)
		return;
	go_without(worker->sending, peer);
	error_set(&error, ERROR_TRANSPORT, "%s", why);
	worker_does(simulation, index, &event);
}

void send_drops(struct simulation *simulation, uint32_t index, uint32_t rank)
{
	const struct worker *worker = simulation->workers.items[index];

	for (uint32_t p = 0; worker->sending->open && p < worker->plan->peer_count; p++)
		if (worker->plan->peers[p].member.rank == rank)
			go_without(worker->sending, p);
}

static void hear_gone(struct simulation *simulation, uint32_t index)
{
	const struct worker *worker = simulation->workers.items[index];
	struct sending *sending = worker->sending;

	for (uint32_t p = 0; p < worker->plan->peer_count; p++) {
		if (sending->schedule.links[p].gone)
			continue;
		if (worker->gone_ranks >> worker->plan->peers[p].member.rank & 1)
			go_without(sending, p);
		else if (pairs_sees_end(simulation, worker, p))
			drop(simulation, index, p, "its process has ended");
	}
}

/* Until it counts as late that not all have accepted; who is sent a copy first has longer. */
static uint64_t late_ms(const struct worker *worker)
{
	const struct message_plan *plan = worker->plan;

	return plan->copy && worker->sending->version == plan->copy + 1 ? 2 * LATE_MS : LATE_MS;
}

/* Who has not accepted in that time, where others have. */
static void drop_late(struct simulation *simulation, uint32_t index)
{
	const struct worker *worker = simulation->workers.items[index];
	struct sending *sending = worker->sending;
	uint32_t accepted = sending->version == sending->schedule.repeat;

	for (uint32_t p = 0; p < worker->plan->peer_count; p++)
		accepted += !sending->schedule.links[p].gone &&
			    schedule_accepts(&sending->schedule, p, sending->version);
	for (uint32_t p = 0; p < worker->plan->peer_count && accepted; p++)
		if (!schedule_accepts(&sending->schedule, p, sending->version))
			drop(simulation, index, p, "it does not accept");
}

/* ---- calls ---- */

static void call(struct simulation *simulation, struct sending *sending, enum call_kind kind)
{
	uint64_t until = simulation->now + UPDATE_TIMEOUT_MS * 2;

	call_init(&sending->call, kind, until * MS, &sending->error);
	task_init(&sending->task, &sending->call);
	sending->event = (struct event){.kind = EVENT_ASK};
}

void send_begins(struct simulation *simulation, uint32_t index, uint64_t version)
{
	struct worker *worker = simulation->workers.items[index];
	struct sending *sending = worker->sending;
	struct error error;

	if (schedule_check_begin(&sending->schedule, version, &error))
		fail_msg("%s: %s", worker->name, error.text);
	schedule_rest(&sending->schedule, version);
	sending->now = SENDS_BEGIN;
	sending->version = version;
	sending->began_at = simulation->now;
	call(simulation, sending, CALL_BEGIN);
	sending->call.version = version;
	wait_looks_at(simulation, index, simulation->now + late_ms(worker));
	wait_looks_at(simulation, index, simulation->now + GRACE_MS);
	send_acts(simulation, index);
}

bool send_pauses(struct simulation *simulation, uint32_t index)
{
	struct worker *worker = simulation->workers.items[index];
	struct sending *sending = worker->sending;

	if (sending->now != SENDS_BEGIN || !worker->pause.number ||
	    sending->version < worker->pause.version ||
	    sending->version == sending->schedule.repeat)
		return false;
	sending->now = SENDS_NOTHING;
	return true;
}

static void begun(struct simulation *simulation, uint32_t index)
{
	struct worker *worker = simulation->workers.items[index];
	struct sending *sending = worker->sending;

	worker_note(simulation, worker, FACT_BEGINS, sending->version)->again =
		worker->repeating == sending->version;
	if (sending->plan.peer_count)
		schedule_submit(&sending->schedule, 0);
	sending->now = SENDS_ROWS;
	call(simulation, sending, CALL_WRITE);
	sending->call.count = sending->plan.row_count;
	sending->schedule.writers++;
}

static void written(struct simulation *simulation, struct worker *worker)
{
	struct sending *sending = worker->sending;
	struct error error;

	sending->schedule.writers--;
	if (schedule_check_end(&sending->schedule, "a test", &error) ||
	    schedule_check_whole(&sending->schedule, &error))
		fail_msg("%s: %s", worker->name, error.text);
	sending->schedule.state = UPDATE_ENDING;
	sending->now = SENDS_END;
	call(simulation, sending, sending->aborts ? CALL_ABORT : CALL_END);
}

void send_aborts(struct worker *worker)
{
	worker->sending->aborts = true;
}

/* The call is out. */
static void done(struct simulation *simulation, uint32_t index)
{
	struct worker *worker = simulation->workers.items[index];
	struct sending *sending = worker->sending;

	if (sending->now == SENDS_BEGIN) {
		begun(simulation, index);
	} else if (sending->now == SENDS_ROWS) {
		written(simulation, worker);
	} else {
		sending->now = SENDS_NOTHING;
		worker_sent(simulation, index, sending->version, sending->aborts);
		sending->aborts = false;
	}
}

static bool all_did_their_work(const struct simulation *simulation)
{
	bool any = false;

	for (uint32_t i = 0; i < simulation->workers.count; i++) {
		const struct worker *worker = simulation->workers.items[i];

		if (worker->waiting && worker_runs(worker))
			return false;
		any = any || (worker->waiting && worker->waiting->last);
	}
	return any;
}

/* Ranks wait for trainers that are gone, and for so long no controller has lived that would say so; or the last engine has done
 * its work, and they have not. */
static bool is_late(struct simulation *simulation, uint32_t index)
{
	const struct worker *worker = simulation->workers.items[index];
	struct sending *sending = worker->sending;

	if (sending->now != SENDS_BEGIN || sending->error.code != ERROR_TIMEOUT ||
	    (!simulation->options.orphan_ms && !all_did_their_work(simulation)))
		return false;
	sending->now = SENDS_NOTHING;
	worker_does(simulation, index,
		    &(struct worker_event){.type = WORKER_EVENT_FAILURE, .error = &sending->error});
	return true;
}

/* A begin that is refused: that may be since a trainer is gone, which this one has yet to hear of. False: it is waited for. */
static bool is_excused(const struct simulation *simulation, const struct worker *worker)
{
	struct sending *sending = worker->sending;

	if (sending->now != SENDS_BEGIN || sending->error.code != ERROR_VERSION ||
	    (!worker->gone && simulation->now >= sending->began_at + GRACE_MS))
		fail_msg("history %llu: %s, version %llu: %s",
			 (unsigned long long)simulation->options.seed, worker->name,
			 (unsigned long long)sending->version, sending->error.text);
	sending->call.lacks_trainer = worker->gone != 0;
	sending->event = (struct event){.kind = EVENT_ASK};
	return worker->gone != 0;
}

/* ---- steps ---- */

static void hear_accepts(const struct worker *worker)
{
	struct sending *sending = worker->sending;

	for (uint32_t p = 0; p < worker->plan->peer_count; p++) {
		if (!worker->ends->unread[p])
			continue;
		worker->ends->unread[p] = false;
		schedule_next(&sending->schedule, &sending->task,
			      &(struct event){.kind = EVENT_ACCEPTED,
					      .peer = p,
					      .accept = &worker->ends->accept[p]});
	}
}

static void signals(struct simulation *simulation, uint32_t index, const struct step *step)
{
	struct worker *worker = simulation->workers.items[index];
	struct sending *sending = worker->sending;
	uint64_t opening = sending->schedule.links[step->peer].used_opening;
	struct said said = {.tag = UPDATE_ABORT};

	sending->event = (struct event){.kind = EVENT_SIGNALLED, .peer = step->peer};
	said.u.abort = (struct update_abort){
		.opening = opening, .version = sending->version, .why = "a test"};
	if (step->abort)
		pairs_say(simulation, index, step->peer, &said);
	else
		pairs_end(simulation, index, step->peer, opening, sending->version);
}

static void takes(struct simulation *simulation, uint32_t index, uint64_t until)
{
	simulation->workers.items[index]->sending->busy_until = until;
	if (until > simulation->now)
		wait_looks_at(simulation, index, until);
}

/* False: until something is heard. */
static bool does(struct simulation *simulation, uint32_t index, const struct step *step)
{
	struct worker *worker = simulation->workers.items[index];
	struct sending *sending = worker->sending;
	uint32_t p = step->peer, post_ms = simulation->options.write_ms / PARTS;

	if (schedule_for_nobody(&sending->schedule, step, &sending->event))
		return true;
	switch (step->kind) {
	case STEP_POST:
		takes(simulation, index, simulation->now + post_ms);
		sending->land_at[p] = sending->busy_until + 1 +
				      simulation_dice(simulation, simulation->options.said_ms);
		sending->event = (struct event){
			.kind = EVENT_POSTED, .peer = p, .write = ++sending->writes[p]};
		return true;
	case STEP_SIGNAL:
		signals(simulation, index, step);
		return true;
	case STEP_WAIT:
		if (step->wait != WAIT_WRITE && step->wait != WAIT_FLUSH)
			return false;
		takes(simulation, index, sending->land_at[p]);
		sending->event = (struct event){
			.kind = EVENT_COMPLETED, .peer = p, .write = sending->writes[p]};
		return true;
	case STEP_DONE:
		done(simulation, index);
		return true;
	case STEP_FAIL:
		return !is_late(simulation, index) && is_excused(simulation, worker);
	case STEP_PACK:
	case STEP_DROP:
		break;
	}
	fail_msg("%s: a step that this plan has no use for", worker->name);
	return false;
}

static void go(struct simulation *simulation, uint32_t index)
{
	struct worker *worker = simulation->workers.items[index];
	struct sending *sending = worker->sending;
	bool goes = true;

	while (goes && worker_runs(worker) && sending->now != SENDS_NOTHING &&
	       simulation->now >= sending->busy_until) {
		struct step step;

		hear_gone(simulation, index);
		if (sending->now == SENDS_BEGIN)
			hear_accepts(worker);
		if (sending->now == SENDS_BEGIN &&
		    simulation->now >= sending->began_at + late_ms(worker))
			drop_late(simulation, index);
		sending->event.now_ns = wait_now_ns(simulation);
		step = schedule_next(&sending->schedule, &sending->task, &sending->event);
		sending->event = (struct event){.kind = EVENT_ASK};
		goes = does(simulation, index, &step);
	}
}

void send_acts(struct simulation *simulation, uint32_t index)
{
	struct sending *sending = simulation->workers.items[index]->sending;

	sending->again = true;
	if (sending->acting)
		return;
	sending->acting = true;
	while (sending->again) {
		sending->again = false;
		go(simulation, index);
	}
	sending->acting = false;
}

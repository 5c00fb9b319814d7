/* SPDX-License-Identifier: Apache-2.0
 *
 * send.c -- begin, write, drain, end, abort, replay: what is asked before, and what a failure means.
 */
#include "worker/update/send.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/copy.h"
#include "base/memory.h"
#include "worker/update/traced.h"
#include "worker/update/update_payload.h"

#include <stdio.h>
#include <string.h>

#define LARGE_BYTES (4ull << 20) /* from which on a tensor is worth waking other threads */

/* A transfer that failed broke its endpoint: the job cannot go on with it. */
static int failed(struct sender *sender, struct error *error)
{
	uint64_t version = sender->schedule.version;

	error_wrap(error, "update %llu", (unsigned long long)version);
	pthread_mutex_lock(&sender->lock);
	sender->schedule.state = UPDATE_CLOSED;
	pthread_mutex_unlock(&sender->lock);
	return health_fail(sender->health, error, version);
}

/* The host's interrupt, which it may take back, and not a transfer that was cut by it or by the job's
 * end: every endpoint is as it was. */
static bool only_interrupted(struct sender *sender, const struct error *error)
{
	bool whole = error->code == ERROR_INTERRUPTED && !control_failed(sender->health->control);
	struct error why;
	uint64_t done;

	for (uint32_t p = 0; p < sender->epoch->peer_count && whole; p++) {
		pthread_mutex_t *wire = executor_wire(sender, p);

		if (sender->epoch->peers[p].gone)
			continue;
		pthread_mutex_lock(wire);
		whole = !transport_progress(sender->epoch->peers[p].endpoint, &done, &why);
		pthread_mutex_unlock(wire);
	}
	return whole;
}

/* What was in the middle of being written can only be given up. reopen: what was being ended is open
 * again. */
static int cut(struct sender *sender, bool reopen, const char *what, struct error *error)
{
	error_set(error, ERROR_INTERRUPTED,
		  "update %llu was interrupted by the host program %s (weft_interrupt_clear)",
		  (unsigned long long)sender->schedule.version, what);
	pthread_mutex_lock(&sender->lock);
	if (reopen)
		sender->schedule.state = UPDATE_OPEN;
	if (sender->schedule.failed)
		sender->schedule.error = *error;
	pthread_mutex_unlock(&sender->lock);
	return -(int)ERROR_INTERRUPTED;
}

/* ---- begin ---- */

/* Of a version that is late here: this trainer begins it all the same, or hands the permission back. */
static bool takes_late(struct sender *sender, uint32_t p, uint64_t version,
		       const struct update_accept *accept)
{
	struct send_link *link = &sender->schedule.links[p];

	if (accept->opening <= link->used_opening)
		return false;
	if (accept->kind != ACCEPT_STAND_IN && accept->max_version == version)
		return true;
	link->used_opening = link->accept.opening = sender->unused[p] = accept->opening;
	return false;
}

void sender_hand_back(struct sender *sender)
{
	struct update_abort abort = {.version = 1,
				     .why = "this trainer has no use for that permission"};
	struct error error;

	for (uint32_t p = 0; sender->epoch->plan->hedge_ms && p < sender->epoch->peer_count; p++) {
		pthread_mutex_t *wire = executor_wire(sender, p);

		abort.opening = sender->unused[p];
		sender->unused[p] = 0;
		if (!abort.opening || sender->epoch->peers[p].gone)
			continue;
		/* if it is not reached, that is found out by who writes there next */
		pthread_mutex_lock(wire);
		transport_signal(sender->epoch->peers[p].endpoint, UPDATE_ABORT, &abort,
				 sizeof(abort), clock_deadline_ns(executor_wait_ms(sender)),
				 &error);
		pthread_mutex_unlock(wire);
	}
}

/* Latest ACCEPT of the peer: 1 when a new one came. */
static int read_accept(struct sender *sender, uint32_t p, uint64_t version,
		       struct update_accept *accept, struct error *error)
{
	const struct peer *peer = &sender->epoch->peers[p];
	const struct update_pair pair = {peer->name, sender->epoch->plan->digest,
					 sender->schedule.links[p].accept.opening,
					 peer->theirs->copies};
	struct transport_signal signal;
	int rc;

	if (transport_signal_read(peer->endpoint, &signal) != 0 ||
	    signal.sequence == sender->seen[p])
		return 0;
	if (signal.tag == UPDATE_TAKEN) { /* of the update before */
		sender->seen[p] = signal.sequence;
		return 0;
	}
	rc = update_read_accept(&signal, &pair, accept, error);
	if (rc)
		return rc;
	sender->seen[p] = signal.sequence;
	return accept->kind == ACCEPT_WRITES || takes_late(sender, p, version, accept);
}

static uint32_t accept_ms(const struct sender *sender, uint64_t version)
{
	return executor_is_patient(sender, version) ? sender->epoch->wait_ms
						    : executor_wait_ms(sender);
}

/* Who has not accepted in time is gone on without, if somebody has, and the plan allows it. */
static void drop_late(struct sender *sender, const struct call *call)
{
	uint32_t accepted = 0, peers = (uint32_t)sender->epoch->peer_count;
	struct error late;

	for (uint32_t p = 0; p < peers; p++)
		accepted += !sender->epoch->peers[p].gone &&
			    schedule_accepts(&sender->schedule, p, call->version);
	/* who has the version that is sent once more needs nothing of this trainer meanwhile */
	if (call->version == sender->schedule.repeat)
		accepted++;
	for (uint32_t p = 0; p < peers && accepted; p++) {
		if (schedule_accepts(&sender->schedule, p, call->version))
			continue;
		error_set(&late, ERROR_TIMEOUT, "update %llu: not accepted by %s for %.1f s",
			  (unsigned long long)call->version, sender->epoch->peers[p].name,
			  accept_ms(sender, call->version) / 1000.0);
		executor_drop(sender, p, &late);
	}
}

/* What that target has said, told to the schedule. With the lock held. */
static int ask_peer(struct sender *sender, struct task *task, uint32_t p, struct error *error)
{
	struct update_accept accept;
	int rc = read_accept(sender, p, task->own->version, &accept, error);

	if (rc > 0)
		schedule_next(
			&sender->schedule, task,
			&(struct event){.kind = EVENT_ACCEPTED, .peer = p, .accept = &accept});
	if (rc >= 0 && !schedule_accepts(&sender->schedule, p, task->own->version))
		rc = peer_check_alive(&sender->epoch->peers[p], error);
	return rc < 0 && !executor_drop(sender, p, error) ? rc : 0;
}

/* What the targets have said, and who of them is gone, told to the schedule; then what is next. */
static int ask_begin(struct sender *sender, struct task *task, struct step *step,
		     struct error *error)
{
	struct event event = {.kind = EVENT_ASK, .now_ns = clock_ns()};
	int rc = 0;

	pthread_mutex_lock(&sender->lock);
	executor_hear_gone(sender);
	for (uint32_t p = 0; p < sender->epoch->peer_count && !rc; p++)
		if (executor_serves(sender, p))
			rc = ask_peer(sender, task, p, error);
	if (!rc && event.now_ns >= sender->attempt.begin_ns +
					   accept_ms(sender, task->own->version) * 1000000ull)
		drop_late(sender, task->own);
	if (!rc)
		*step = schedule_next(&sender->schedule, task, &event);
	pthread_mutex_unlock(&sender->lock);
	sender_hand_back(sender);
	return rc;
}

/* A rank goes on without a trainer: another one, which this one has yet to hear of, or this one, which was stopped. */
static bool hears_of_another(struct sender *sender)
{
	struct health *health = sender->health;
	uint64_t deadline = clock_deadline_ns(control_grace_ms(health->control));

	while (!control_lacks_trainer(health->control)) {
		if (control_failed(health->control) || health->interrupted ||
		    clock_ns() >= deadline)
			return false;
		clock_sleep_ms(5);
	}
	return !control_failed(health->control);
}

/* 0, an error, SENDER_PAUSES, or 1: not yet, and *until_ns is when to look again at the latest. */
static int look(struct sender *sender, struct task *task, uint64_t *until_ns, struct error *error)
{
	uint64_t version = task->own->version;
	struct step step;
	int rc = health_check(sender->health, error);
	uint64_t from;

	if (rc)
		return rc;
	if (sender->health->control) {
		control_begins(sender->health->control, version);
		/* who came in with the plan before waits for what is sent once more, and stops with it */
		if (control_pause(sender->health->control, &from) && version >= from &&
		    version != sender->schedule.repeat)
			return SENDER_PAUSES;
	}
	rc = ask_begin(sender, task, &step, error);
	if (!rc && step.kind == STEP_DONE)
		return 0;
	if (!rc && step.kind == STEP_FAIL && !sender->schedule.failed) {
		if (error->code == ERROR_VERSION && sender->epoch->plan->continues) {
			task->own->lacks_trainer = hears_of_another(sender);
			if (task->own->lacks_trainer) /* then it is refused by nobody */
				return look(sender, task, until_ns, error);
			if (control_failed(sender->health->control))
				control_error(sender->health->control, error);
		}
		return -(int)error->code;
	}
	if (rc || step.kind == STEP_FAIL)
		return health_fail(sender->health, error, version);
	*until_ns = step.until_ns;
	return 1;
}

static void start_attempt(struct sender *sender, uint64_t version)
{
	uint64_t now = clock_ns(), wait_ms = sender->epoch->wait_ms;

	wait_ms *= executor_is_patient(sender, version) ? 2 : 1;
	sender->attempt = (struct attempt){true, version, now, now + wait_ms * 1000000u};
	watch_deadline(sender->watch, sender->attempt.deadline_ns);
}

static int finish_begin(struct sender *sender, int rc)
{
	uint64_t begin = sender->stopped_ns ? sender->stopped_ns : sender->attempt.begin_ns;

	sender->attempt.open = false;
	sender->stopped_ns = 0;
	sender->unfinished = rc != 0;
	watch_deadline(sender->watch, 0);
	if (rc)
		return rc;
	executor_let_go(sender);
	activity_is(&sender->health->activity, ACTIVITY_OPEN, sender->schedule.version);
	pthread_mutex_lock(&sender->lock);
	memset(sender->data, 0, sender->epoch->send.tensor_count * sizeof(*sender->data));
	send_device_begin(sender);
	if (sender->schedule.options.sent)
		sent_begin(&sender->sent, sender->schedule.version, sender->schedule.ended_version);
	sender->drained = false;
	sender->begin_ns = begin;
	sender->stats.wait_ns = clock_ns() - begin;
	sender->stats.copy_ns = 0;
	traced_sending(sender, "accept", begin, 0);
	pthread_mutex_unlock(&sender->lock);
	return 0;
}

int sender_begin(struct sender *sender, uint64_t version, bool block, struct error *error)
{
	uint64_t seen = 0, until = 0;
	struct call call;
	struct task task;
	int rc;

	watch_drain(sender->watch);
	if (block || !sender->attempt.open || sender->attempt.version != version)
		start_attempt(sender, version);
	pthread_mutex_lock(&sender->lock);
	rc = schedule_check_begin(&sender->schedule, version, error);
	if (!rc)
		schedule_rest(&sender->schedule, version);
	pthread_mutex_unlock(&sender->lock);
	call_init(&call, CALL_BEGIN, sender->attempt.deadline_ns, error);
	call.version = version;
	task_init(&task, &call);
	while (!rc && (rc = look(sender, &task, &until, error)) == 1) {
		uint64_t slice = clock_deadline_ns(WAIT_SLICE_MS);

		executor_show_whom(sender, version);
		if (!block)
			break;
		seen = transport_signal_wait(sender->epoch->options.domain, seen,
					     slice < until ? slice : until);
		rc = 0;
	}
	if (rc == SENDER_PAUSES) {
		if (!sender->stopped_ns)
			sender->stopped_ns = sender->attempt.begin_ns;
		sender->attempt.open = false;
		sender->unfinished = true;
		watch_deadline(sender->watch, 0);
		return rc;
	}
	/* a try that the host interrupts goes on with its clock */
	if (rc <= 0 && (block || rc != -(int)ERROR_INTERRUPTED || sender->health->failed))
		return finish_begin(sender, rc);
	sender->unfinished = true; /* who closes now has not done his work */
	return rc < 0 ? rc : WEFT_AGAIN;
}

bool sender_drop(struct sender *sender, uint32_t peer, const struct error *why)
{
	bool dropped;

	pthread_mutex_lock(&sender->lock);
	dropped = executor_drop(sender, peer, why);
	pthread_mutex_unlock(&sender->lock);
	return dropped;
}

/* ---- inside an update ---- */

/* Takes the lock: a call that writes is inside from enter to leave. */
static int enter(struct sender *sender, const char *call, struct error *error)
{
	int rc;

	pthread_mutex_lock(&sender->lock);
	rc = schedule_check_open(&sender->schedule, call, error);
	if (rc) {
		pthread_mutex_unlock(&sender->lock);
		return rc;
	}
	if (!sender->schedule.writers++) {
		sender->writing_since_ns = clock_ns();
		activity_writes(&sender->health->activity, sender->writing_since_ns);
	}
	return 0;
}

static int leave(struct sender *sender, int rc, struct error *error)
{
	struct schedule *schedule = &sender->schedule;
	bool broken = rc && schedule->failed;
	bool replay = schedule->state == UPDATE_ENDING; /* nobody else can write or end it */

	if (broken) /* by this call or by one beside it */
		*error = schedule->error;
	if (!--schedule->writers) {
		sender->stats.copy_ns +=
			activity_wrote(&sender->health->activity, sender->writing_since_ns);
		traced_sending(sender, "write", sender->writing_since_ns, 0);
		pthread_cond_broadcast(&sender->changed);
	}
	/* whoever learns of a failure may free his tensors, which the others may be reading */
	while (broken && schedule->writers)
		executor_pause(sender);
	pthread_mutex_unlock(&sender->lock);
	if (broken && only_interrupted(sender, error))
		return cut(sender, replay,
			   "while it was written: take that back and call weft_update_abort",
			   error);
	return broken ? failed(sender, error) : rc;
}

int sender_check_tensor(const struct sender *sender, uint32_t id, const void *data,
			struct error *error)
{
	const struct epoch_options *options = &sender->epoch->options;
	const struct epoch *stand_in = sender->epoch->stand_in;
	bool direct = sender->epoch->send.direct[id] || (stand_in && stand_in->send.direct[id]);

	if (sender->schedule.submitted[id])
		return error_set(error, ERROR_USAGE, "update %llu: tensor %s is written twice",
				 (unsigned long long)sender->schedule.version,
				 send_plan_name(sender->epoch, id));
	/* the plan counts on what was registered before join, and nothing is copied behind its back */
	if (options->full || !options->ranges->count || !direct ||
	    ranges_find(options->ranges, data, options->locals->items[id].bytes))
		return 0;
	return error_set(
		error, ERROR_USAGE,
		"update %llu: tensor %s (%llu bytes at %p) does not lie whole in one range "
		"of weft_source_register; register its memory before weft_join, or none",
		(unsigned long long)sender->schedule.version, send_plan_name(sender->epoch, id),
		(unsigned long long)options->locals->items[id].bytes, data);
}

/* Unless nobody wants it. What this trainer sends only in another one's place is remembered for that. */
static void submit(struct sender *sender, uint32_t id, const void *data)
{
	sender->data[id] = data;
	if (send_plan_wants(&sender->epoch->send, id))
		schedule_submit(&sender->schedule, id);
}

static int run_rows(struct sender *sender, const uint32_t *rows, size_t count, bool shared,
		    bool replay, struct error *error)
{
	struct call call;

	call_init(&call, CALL_WRITE, 0, error);
	call.rows = rows;
	call.count = count;
	call.shared = shared;
	call.replay = replay;
	return executor_run(sender, &call);
}

/* Tensors that were submitted, and the rows that read them (NULL: all): those that a GPU stores, then the others. */
int sender_send_rows(struct sender *sender, const uint32_t *ids, size_t id_count,
		     const uint32_t *rows, size_t count, bool shared, struct error *error)
{
	const struct send_plan *plan = &sender->epoch->send;
	int rc = plan->device ? send_device_write(sender, ids, id_count, error) : 0;

	return rc || !plan->scheduled ? rc : run_rows(sender, rows, count, shared, false, error);
}

static int write_tensor(struct sender *sender, uint32_t id, const void *data, uint64_t bytes,
			struct error *error)
{
	const struct epoch_options *options = &sender->epoch->options;
	const struct send_plan *plan = &sender->epoch->send;
	int rc;

	if (id >= options->locals->count)
		return error_set(error, ERROR_USAGE, "tensor %u; %zu are declared", id,
				 options->locals->count);
	if (!data || bytes != options->locals->items[id].bytes)
		return error_set(error, ERROR_USAGE,
				 "update %llu: tensor %s has %llu bytes here, given %llu%s",
				 (unsigned long long)sender->schedule.version,
				 send_plan_name(sender->epoch, id),
				 (unsigned long long)options->locals->items[id].bytes,
				 (unsigned long long)bytes, data ? "" : " at NULL");
	if (!epoch_wants(sender->epoch, id))
		return 0;
	rc = sender_check_tensor(sender, id, data, error);
	if (rc)
		return rc;
	submit(sender, id, data);
	return sender_send_rows(sender, &id, 1, plan->tensor_rows + plan->tensor_first[id],
				plan->tensor_first[id + 1] - plan->tensor_first[id],
				bytes > LARGE_BYTES, error);
}

int sender_write(struct sender *sender, uint32_t id, const void *data, uint64_t bytes,
		 struct error *error)
{
	int rc = enter(sender, "weft_update_write", error);

	return rc ? rc : leave(sender, write_tensor(sender, id, data, bytes, error), error);
}

static int write_all(struct sender *sender, const void *const *data, struct error *error)
{
	const struct send_plan *plan = &sender->epoch->send;
	size_t count = 0;

	for (uint32_t t = 0; t < plan->tensor_count; t++) {
		int rc = 0;

		if (!epoch_wants(sender->epoch, t))
			continue;
		if (data[t])
			rc = sender_check_tensor(sender, t, data[t], error);
		else if (send_plan_wants(plan, t) && !sender->schedule.submitted[t])
			rc = error_set(error, ERROR_USAGE,
				       "update %llu: tensor %s is wanted by an "
				       "inference rank, but its data is NULL",
				       (unsigned long long)sender->schedule.version,
				       send_plan_name(sender->epoch, t));
		if (rc)
			return rc;
	}
	for (uint32_t t = 0; t < plan->tensor_count; t++)
		if (data[t]) {
			submit(sender, t, data[t]);
			if (sender->ids)
				sender->ids[count++] = t;
		}
	return sender_send_rows(sender, sender->ids, count, NULL, plan->row_count, true, error);
}

int sender_write_all(struct sender *sender, const void *const *data, struct error *error)
{
	int rc = enter(sender, "weft_update_write_all", error);

	return rc ? rc : leave(sender, write_all(sender, data, error), error);
}

static int write_bucket(struct sender *sender, const struct bucket_slice *slices, size_t count,
			struct error *error)
{
	uint32_t *ids, *rows = NULL;
	size_t row_count = 0;
	int rc;

	if (!count)
		return 0;
	ids = memory_zalloc(2 * count, sizeof(*ids));
	if (!ids)
		return memory_error(error, "writing a bucket", 2 * count * sizeof(*ids));
	rc = bucket_check(sender, slices, count, ids, error);
	if (!rc)
		rows = bucket_rows(&sender->epoch->send, ids, count, &row_count);
	if (!rc && !rows)
		rc = memory_error(error, "writing a bucket", count * sizeof(*rows));
	for (size_t i = 0; i < count && !rc; i++)
		submit(sender, ids[i], slices[i].memory.pointer);
	if (!rc)
		rc = sender_send_rows(sender, ids, count, rows, row_count, true, error);
	memory_free(rows);
	memory_free(ids);
	return rc;
}

int sender_write_bucket(struct sender *sender, const struct bucket_slice *slices, size_t count,
			struct error *error)
{
	int rc = enter(sender, "weft_update_write_bucket", error);

	return rc ? rc : leave(sender, write_bucket(sender, slices, count, error), error);
}

int sender_run_version(struct sender *sender, enum call_kind kind, struct error *error)
{
	struct call call;

	call_init(&call, kind, clock_deadline_ns(executor_wait_ms(sender)), error);
	return executor_run(sender, &call);
}

int sender_drain(struct sender *sender, struct error *error)
{
	int rc = enter(sender, "weft_update_drain", error);

	if (rc)
		return rc;
	rc = schedule_check_halves(&sender->schedule, error);
	if (!rc)
		rc = send_device_settle(sender, error);
	if (!rc)
		rc = sender_run_version(sender, CALL_DRAIN, error);
	sender->drained = true;
	return leave(sender, rc, error);
}

/* ---- end, abort, replay ---- */

/* With the lock held: nobody else writes from here on. */
static int close_writing(struct sender *sender, enum call_kind kind, const char *call,
			 struct error *error)
{
	struct schedule *schedule = &sender->schedule;
	int rc;

	/* cut by an interrupt that was taken back: it can be given up */
	sender->cut = kind == CALL_ABORT && schedule->failed && schedule->state == UPDATE_OPEN &&
		      schedule->error.code == ERROR_INTERRUPTED;
	if (sender->cut)
		sender->failed = schedule->failed = false;
	rc = schedule_check_end(schedule, call, error);
	if (!rc && kind == CALL_END)
		rc = schedule_check_whole(schedule, error);
	if (!rc)
		sender->schedule.state = UPDATE_ENDING;
	return rc;
}

/* With the lock held, which it gives back. */
static int finish(struct sender *sender, struct error *error)
{
	uint64_t version = sender->schedule.version, since = clock_ns();
	bool broken;
	int rc;

	activity_is(&sender->health->activity, ACTIVITY_ENDS, version);
	copy_fence();
	rc = send_device_settle(sender, error);
	if (!rc)
		rc = send_device_sums(sender, error);
	if (!rc)
		rc = sender_run_version(sender, CALL_END, error);
	if (!rc) {
		sender->ended = version;
		sender->stats.updates++;
		sender->stats.update_ns = clock_ns() - sender->begin_ns;
		traced_ended(sender, since);
	}
	broken = sender->schedule.failed;
	pthread_mutex_unlock(&sender->lock);
	if (rc && !broken)
		return cut(sender, true,
			   "before it ended: take that back and call weft_update_end again, "
			   "or weft_update_abort",
			   error);
	if (rc)
		return failed(sender, error);
	control_version(sender->health->control, version);
	return 0;
}

int sender_end(struct sender *sender, struct error *error)
{
	int rc;

	pthread_mutex_lock(&sender->lock);
	rc = close_writing(sender, CALL_END, "weft_update_end", error);
	if (!rc)
		return finish(sender, error);
	pthread_mutex_unlock(&sender->lock);
	return rc;
}

int sender_abort(struct sender *sender, const char *why, struct error *error)
{
	bool broken;
	int rc;

	pthread_mutex_lock(&sender->lock);
	rc = close_writing(sender, CALL_ABORT, "weft_update_abort", error);
	if (rc) {
		pthread_mutex_unlock(&sender->lock);
		return rc;
	}
	snprintf(sender->why, sizeof(sender->why), "%s", why && *why ? why : "no reason given");
	sender->unfinished = true;
	copy_fence();
	/* what was posted must have landed before a target opens its memory again */
	rc = send_device_settle(sender, error);
	if (!rc)
		rc = sender_run_version(sender, CALL_ABORT, error);
	broken = sender->schedule.failed;
	if (!rc)
		traced_sending(sender, "update given up", sender->begin_ns, 0);
	if (rc && !broken && sender->cut) /* and so it stays */
		sender->failed = sender->schedule.failed = true;
	pthread_mutex_unlock(&sender->lock);
	if (rc && !broken)
		return cut(sender, true,
			   "before it was given up: take that back and call "
			   "weft_update_abort again",
			   error);
	return rc ? failed(sender, error) : 0;
}

int sender_check_between(struct sender *sender, const char *call, struct error *error)
{
	int rc = 0;

	pthread_mutex_lock(&sender->lock);
	if (sender->epoch && sender->schedule.state != UPDATE_CLOSED)
		rc = error_set(error, ERROR_STATE, "%s: update %llu is open; end or abort it first",
			       call, (unsigned long long)sender->schedule.version);
	pthread_mutex_unlock(&sender->lock);
	return rc;
}

int sender_replay(struct sender *sender, uint64_t version, struct error *error)
{
	struct schedule *schedule = &sender->schedule;
	int rc = 0;

	pthread_mutex_lock(&sender->lock);
	if (schedule->state == UPDATE_CLOSED)
		rc = schedule_check_replay(schedule, error);
	pthread_mutex_unlock(&sender->lock);
	if (!rc)
		rc = sender_begin(sender, version, true, error);
	if (rc)
		return rc;
	pthread_mutex_lock(&sender->lock);
	schedule->writers++;
	sender->writing_since_ns = clock_ns();
	schedule->unsubmitted = 0;
	memset(schedule->submitted, true, sender->epoch->send.tensor_count);
	schedule->state = UPDATE_ENDING; /* nobody else writes */
	rc = run_rows(sender, NULL, sender->epoch->send.row_count, true, true, error);
	rc = leave(sender, rc, error);
	if (rc)
		return rc;
	pthread_mutex_lock(&sender->lock);
	return finish(sender, error);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * update_trainer.c -- the trainer's side of an update: begin, write, end, abort.
 *
 *   begin ─► OPEN ─► write, write_all, write_bucket, drain: any thread, many at once
 *              └───► end or abort, when none of them is inside ─► ENDING ─► CLOSED
 */
#include "worker/api/worker.h"

#include "base/clock.h"
#include "base/copy.h"
#include "base/text.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#define SPINS_BEFORE_SLEEP 1000
#define NAMED_MAX	   4		/* missing tensors named in a sentence */
#define LARGE_BYTES	   (4ull << 20) /* from which on a tensor is worth waking other threads */

/* ---- inside an update ---- */

/* A transfer that failed broke its endpoint: the job cannot go on with it. */
int update_failed(struct weft_worker *worker, struct error *error)
{
	struct trainer *trainer = &worker->trainer;

	error_wrap(error, "update %llu", (unsigned long long)trainer->version);
	pthread_mutex_lock(&trainer->lock);
	engine_break(trainer, error);
	trainer->state = UPDATE_CLOSED;
	pthread_mutex_unlock(&trainer->lock);
	return worker_fail(worker, error, trainer->version);
}

/* The host's interrupt, which it may take back, and not a transfer that was cut by it or by the job's
 * end: every endpoint is as it was. */
static bool only_interrupted(struct weft_worker *worker, const struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	bool whole = error->code == ERROR_INTERRUPTED && !control_failed(worker->control);
	struct error why;
	uint64_t done;

	for (size_t i = 0; i < worker->peer_count && whole; i++) {
		pthread_mutex_lock(&trainer->wire);
		whole = !transport_progress(worker->peers[i].endpoint, &done, &why);
		pthread_mutex_unlock(&trainer->wire);
	}
	return whole;
}

/* The update stays open; what was in the middle of being written can only be given up. */
static int stay_open(struct weft_worker *worker, const char *what, struct error *error)
{
	struct trainer *trainer = &worker->trainer;

	error_set(error, ERROR_INTERRUPTED,
		  "update %llu was interrupted by the host program %s (weft_interrupt_clear)",
		  (unsigned long long)trainer->version, what);
	pthread_mutex_lock(&trainer->lock);
	if (trainer->broken)
		trainer->error = *error;
	trainer->state = UPDATE_OPEN;
	pthread_mutex_unlock(&trainer->lock);
	return -(int)ERROR_INTERRUPTED;
}

/* A failure closes the update, a moment before the worker is known to have failed. */
static int check_open(struct weft_worker *worker, const char *call, bool giving_up,
		      struct error *error)
{
	const struct trainer *trainer = &worker->trainer;
	int rc = engine_check(worker, error);

	if (rc && giving_up && trainer->broken && trainer->state == UPDATE_OPEN)
		rc = worker_check(worker, error);
	if (rc)
		return rc;
	if (trainer->state == UPDATE_OPEN)
		return 0;
	if (trainer->state == UPDATE_ENDING)
		return error_set(error, ERROR_STATE, "%s: update %llu is being ended", call,
				 (unsigned long long)trainer->version);
	return error_set(error, ERROR_STATE,
			 "%s: no update is open; call weft_update_begin "
			 "first",
			 call);
}

int update_enter(struct weft_worker *worker, const char *call, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	int rc;

	pthread_mutex_lock(&trainer->lock);
	rc = check_open(worker, call, false, error);
	if (rc) {
		pthread_mutex_unlock(&trainer->lock);
		return rc;
	}
	if (!trainer->writers++)
		trainer->writing_since_ns = clock_ns();
	return 0;
}

int update_leave(struct weft_worker *worker, int rc, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	bool broken = rc && trainer->broken;

	if (broken) /* by this call or by one beside it */
		*error = trainer->error;
	if (!--trainer->writers) {
		worker->stats.copy_ns += clock_ns() - trainer->writing_since_ns;
		pthread_cond_broadcast(&trainer->changed);
	}
	/* whoever learns of a failure may free his tensors, which the others may be reading */
	while (broken && trainer->writers)
		engine_pause(trainer);
	pthread_mutex_unlock(&trainer->lock);
	if (broken && only_interrupted(worker, error))
		return stay_open(worker,
				 "while it was written: take that back and call "
				 "weft_update_abort",
				 error);
	return broken ? update_failed(worker, error) : rc;
}

/* Nobody else writes from here on. */
static int close_writing(struct weft_worker *worker, const char *call, bool giving_up,
			 struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	int rc;

	pthread_mutex_lock(&trainer->lock);
	rc = check_open(worker, call, giving_up, error);
	if (!rc && trainer->writers)
		rc = error_set(error, ERROR_STATE,
			       "%s: %u calls are still writing update %llu; end it when they have "
			       "returned",
			       call, trainer->writers, (unsigned long long)trainer->version);
	if (!rc)
		trainer->state = UPDATE_ENDING;
	pthread_mutex_unlock(&trainer->lock);
	return rc;
}

static void set_state(struct trainer *trainer, enum update_state state)
{
	pthread_mutex_lock(&trainer->lock);
	trainer->state = state;
	pthread_mutex_unlock(&trainer->lock);
}

/* ---- write ---- */

/* The plan counts on what was registered before join, and nothing is copied behind its back. */
static int check_registered(const struct weft_worker *worker, uint32_t id, const void *data,
			    struct error *error)
{
	if (worker->full || !worker->ranges.count || !worker->trainer.direct[id] ||
	    sources_find(worker, data, worker->held[id].bytes))
		return 0;
	return error_set(
		error, ERROR_USAGE,
		"update %llu: tensor %s (%llu bytes at %p) does not lie whole in one range "
		"of weft_source_register; register its memory before weft_join, or none",
		(unsigned long long)worker->trainer.version, worker->holding.tensors[id].name,
		(unsigned long long)worker->held[id].bytes, data);
}

bool update_wanted(const struct weft_worker *worker, uint32_t id)
{
	return worker->trainer.tensor_first[id] != worker->trainer.tensor_first[id + 1];
}

int update_check_tensor(struct weft_worker *worker, uint32_t id, const void *data,
			struct error *error)
{
	if (worker->trainer.given[id])
		return error_set(error, ERROR_USAGE, "update %llu: tensor %s is written twice",
				 (unsigned long long)worker->trainer.version,
				 worker->holding.tensors[id].name);
	return check_registered(worker, id, data, error);
}

void update_give(struct weft_worker *worker, uint32_t id, const void *data)
{
	worker->trainer.given[id] = data;
	worker->trainer.unwritten--;
}

static int write_tensor(struct weft_worker *worker, uint32_t id, const void *data, uint64_t bytes,
			struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	struct write_job job = {0};
	int rc;

	if (id >= worker->holding.tensor_count)
		return error_set(error, ERROR_USAGE, "tensor %u; %zu are declared", id,
				 worker->holding.tensor_count);
	if (!data || bytes != worker->held[id].bytes)
		return error_set(error, ERROR_USAGE,
				 "update %llu: tensor %s has %llu bytes here, "
				 "given %llu%s",
				 (unsigned long long)trainer->version,
				 worker->holding.tensors[id].name,
				 (unsigned long long)worker->held[id].bytes,
				 (unsigned long long)bytes, data ? "" : " at NULL");
	if (!update_wanted(worker, id))
		return 0;
	rc = update_check_tensor(worker, id, data, error);
	if (rc)
		return rc;
	update_give(worker, id, data);
	job.rows = trainer->tensor_rows + trainer->tensor_first[id];
	job.count = trainer->tensor_first[id + 1] - trainer->tensor_first[id];
	return job_run(worker, &job, bytes > LARGE_BYTES, error);
}

int update_write_tensor(struct weft_worker *worker, uint32_t id, const void *data, uint64_t bytes,
			struct error *error)
{
	int rc = update_enter(worker, "weft_update_write", error);

	return rc ? rc : update_leave(worker, write_tensor(worker, id, data, bytes, error), error);
}

static int write_all(struct weft_worker *worker, const void *const *data, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	struct write_job job = {.count = trainer->row_count};

	for (uint32_t t = 0; t < worker->holding.tensor_count; t++) {
		int rc = 0;

		if (!update_wanted(worker, t))
			continue;
		if (data[t])
			rc = update_check_tensor(worker, t, data[t], error);
		else if (!trainer->given[t])
			rc = error_set(error, ERROR_USAGE,
				       "update %llu: tensor %s is wanted by an "
				       "inference rank, but its data is NULL",
				       (unsigned long long)trainer->version,
				       worker->holding.tensors[t].name);
		if (rc)
			return rc;
	}
	for (uint32_t t = 0; t < worker->holding.tensor_count; t++)
		if (update_wanted(worker, t) && data[t])
			update_give(worker, t, data[t]);
	return job_run(worker, &job, true, error);
}

int update_write_all(struct weft_worker *worker, const void *const *data, struct error *error)
{
	int rc = update_enter(worker, "weft_update_write_all", error);

	return rc ? rc : update_leave(worker, write_all(worker, data, error), error);
}

/* ---- end ---- */

/* Until what was posted to the peer by now is complete: others may go on posting. In slices, so that
 * a lost job ends the wait. */
static int settle_peer(struct weft_worker *worker, struct peer *peer, uint64_t deadline_ns,
		       struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	_Atomic uint64_t *done = &trainer->done[peer - worker->peers];
	uint64_t wanted, now;
	bool late;

	pthread_mutex_lock(&trainer->wire);
	wanted = peer->writes;
	pthread_mutex_unlock(&trainer->wire);
	for (unsigned spins = 0;; spins++) {
		int rc = worker_check(worker, error);

		if (rc)
			return rc;
		pthread_mutex_lock(&trainer->wire);
		rc = transport_progress(peer->endpoint, &now, error);
		atomic_store(done, now);
		if (!rc && now < wanted)
			rc = peer_check_alive(peer, error);
		late = clock_ns() >= deadline_ns;
		if (!rc && now < wanted && late) /* says what is missing, and breaks the endpoint */
			rc = transport_flush(peer->endpoint, deadline_ns, error);
		pthread_mutex_unlock(&trainer->wire);
		if (rc || now >= wanted || late)
			return rc;
		if (spins >= SPINS_BEFORE_SLEEP)
			clock_sleep_ms(1);
		else
			sched_yield();
	}
}

int update_settle(struct weft_worker *worker, uint64_t deadline_ns, struct error *error)
{
	int rc = 0;

	for (size_t i = 0; i < worker->peer_count && !rc; i++)
		rc = settle_peer(worker, &worker->peers[i], deadline_ns, error);
	return rc;
}

/* The same, and seen at the targets; nobody writes any more. A provider may break the endpoint at
 * a deadline, so the flush comes when there is nothing left to wait for. */
static int flush(struct weft_worker *worker, uint64_t deadline_ns, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	int rc = update_settle(worker, deadline_ns, error);

	for (size_t i = 0; i < worker->peer_count && !rc; i++) {
		pthread_mutex_lock(&trainer->wire);
		rc = transport_flush(worker->peers[i].endpoint, deadline_ns, error);
		pthread_mutex_unlock(&trainer->wire);
	}
	return rc;
}

static int send_sums(struct weft_worker *worker, struct peer *peer, struct error *error)
{
	const struct update_accept *accept = &peer->accept;
	struct target target = {.offset = accept->sums_offset};
	uint64_t write;

	if (!worker->sums || !peer->plan->pieces)
		return 0;
	for (size_t r = 0; r < peer->theirs->region_count; r++)
		if (peer->theirs->regions[r].region == accept->sums_region)
			target.remote = peer->remotes[r];
	if (!target.remote)
		return error_set(error, ERROR_MESSAGE,
				 "%s wants checksums in region %u, which it "
				 "did not send",
				 peer->name, accept->sums_region);
	return engine_post(worker, (uint32_t)(peer - worker->peers),
			   worker->trainer.sums + peer->sums_first, worker->trainer.sums_region,
			   &target, 0, peer->plan->pieces * sizeof(uint64_t), &write, error);
}

static int signal_end(struct weft_worker *worker, struct peer *peer, uint64_t deadline_ns,
		      struct error *error)
{
	struct update_end end = {
		.opening = peer->used_opening,
		.version = worker->trainer.version,
		.plan = worker->plan->digest,
		.bytes = peer->plan->bytes,
		.pieces = peer->plan->pieces,
		.sums = worker->sums ? peer->plan->pieces : 0,
	};

	return transport_signal(peer->endpoint, UPDATE_END, &end, sizeof(end), deadline_ns, error);
}

/* Nobody is told before everything arrived everywhere: an endpoint that breaks here leaves all
 * targets on their last version, not some of them. */
static int finish_writes(struct weft_worker *worker, bool *told, struct error *error)
{
	uint64_t deadline = worker_deadline_ns(worker->wait_ms);
	int rc = 0;

	*told = false;

	copy_fence();
	for (size_t i = 0; i < worker->peer_count && !rc; i++)
		rc = send_sums(worker, &worker->peers[i], error);
	if (!rc)
		rc = flush(worker, deadline, error);
	*told = !rc;
	for (size_t i = 0; i < worker->peer_count && !rc; i++)
		rc = signal_end(worker, &worker->peers[i], deadline, error);
	return rc;
}

static int check_missing(struct weft_worker *worker, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	struct text names = {0};
	size_t named = 0;
	int rc;

	if (!trainer->unwritten)
		return 0;
	for (uint32_t t = 0; t < worker->holding.tensor_count && named < NAMED_MAX; t++)
		if (update_wanted(worker, t) && !trainer->given[t])
			text_format(&names, "%s%s", named++ ? ", " : "",
				    worker->holding.tensors[t].name);
	rc = error_set(error, ERROR_STATE,
		       "update %llu cannot end: tensor%s %.700s%s not written (%zu missing)",
		       (unsigned long long)trainer->version, trainer->unwritten > 1 ? "s" : "",
		       text_string(&names),
		       trainer->unwritten > named ? " and others were"
		       : named > 1		  ? " were"
						  : " was",
		       trainer->unwritten);
	text_fini(&names);
	return rc;
}

int update_finish(struct weft_worker *worker, struct error *error)
{
	struct trainer *trainer = &worker->trainer;
	int rc = check_missing(worker, error);
	bool told;

	if (rc) {
		set_state(trainer, UPDATE_OPEN);
		return rc;
	}
	rc = finish_writes(worker, &told, error);
	if (rc && !told && only_interrupted(worker, error))
		return stay_open(worker,
				 "before it ended: take that back and call weft_update_end again, "
				 "or weft_update_abort",
				 error);
	if (rc)
		return update_failed(worker, error);
	pthread_mutex_lock(&trainer->lock);
	if (worker->full)
		trainer->whole_version = trainer->version;
	trainer->state = UPDATE_CLOSED;
	worker->stats.updates++;
	worker->stats.update_ns = clock_ns() - trainer->begin_ns;
	pthread_mutex_unlock(&trainer->lock);
	control_version(worker->control, trainer->version);
	return 0;
}

int update_end(struct weft_worker *worker, struct error *error)
{
	int rc = close_writing(worker, "weft_update_end", false, error);

	return rc ? rc : update_finish(worker, error);
}

/* ---- abort ---- */

static int give_up(struct weft_worker *worker, const char *why, struct error *error)
{
	uint64_t deadline = worker_deadline_ns(worker->wait_ms);
	struct update_abort gone = {.version = worker->trainer.version};
	int rc;

	snprintf(gone.why, sizeof(gone.why), "%s", why && *why ? why : "no reason given");
	worker->unfinished = true;
	copy_fence();
	/* what was posted must have landed before a target opens its memory again */
	rc = flush(worker, deadline, error);
	if (rc && only_interrupted(worker, error))
		return stay_open(worker,
				 "before it was given up: take that back and call "
				 "weft_update_abort again",
				 error);
	for (size_t i = 0; i < worker->peer_count && !rc; i++) {
		gone.opening = worker->peers[i].used_opening;
		rc = transport_signal(worker->peers[i].endpoint, UPDATE_ABORT, &gone, sizeof(gone),
				      deadline, error);
	}
	if (rc)
		return update_failed(worker, error);
	pthread_mutex_lock(&worker->trainer.lock);
	worker->trainer.broken = false; /* by an interrupt; begin starts anew */
	worker->trainer.state = UPDATE_CLOSED;
	pthread_mutex_unlock(&worker->trainer.lock);
	return 0;
}

int update_abort(struct weft_worker *worker, const char *why, struct error *error)
{
	int rc = close_writing(worker, "weft_update_abort", true, error);

	return rc ? rc : give_up(worker, why, error);
}

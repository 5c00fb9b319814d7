/* SPDX-License-Identifier: Apache-2.0
 *
 * state.c -- whether a worker can go on, and what every call asks before it does anything.
 */
#include "worker/api/abi.h"
#include "worker/api/worker.h"

#include "base/clock.h"
#include "base/log.h"

#include <string.h>
#include <unistd.h>

int worker_result(int rc, const struct error *inner, weft_error *error)
{
	weft_error out = WEFT_ERROR_INIT;
	struct error why;

	if (rc >= 0 || !error)
		return rc;
	/* nothing may be written into it, and what failed must not be lost */
	if (abi_check_out(ABI_ERROR, "a call that failed", error, &why)) {
		log_error("%s (WEFT_ERROR_INIT). What failed: %s", why.text, inner->text);
		return rc;
	}
	out.code = (int)inner->code;
	memcpy(out.text, inner->text, sizeof(out.text));
	abi_give(ABI_ERROR, &out, error);
	return rc;
}

uint64_t worker_deadline_ns(uint32_t timeout_ms)
{
	return clock_ns() + (uint64_t)timeout_ms * 1000000u;
}

int worker_check(struct weft_worker *worker, struct error *error)
{
	int rc = 0;

	if (worker->failed || (worker->control && control_failed(worker->control))) {
		pthread_mutex_lock(&worker->failure_lock);
		if (!worker->failed)
			control_error(worker->control, &worker->failure);
		worker->failed = true;
		rc = error_set(error, worker->failure.code, "%s", worker->failure.text);
		pthread_mutex_unlock(&worker->failure_lock);
		return rc;
	}
	if (atomic_load(&worker->interrupted))
		return error_set(error, ERROR_INTERRUPTED, "%s was interrupted by its host program",
				 worker->self_name);
	return 0;
}

/* True when the control channel named the cause of what was seen at a peer. */
static bool hear_cause(struct weft_worker *worker, struct error *failure)
{
	uint64_t deadline = worker_deadline_ns(control_grace_ms(worker->control));

	while (!control_failed(worker->control)) {
		if (clock_ns() >= deadline || atomic_load(&worker->interrupted))
			return false;
		clock_sleep_ms(5);
	}
	control_error(worker->control, failure);
	return true;
}

int worker_fail(struct weft_worker *worker, struct error *failure, uint64_t version)
{
	bool heard = false, first, host_did = atomic_load(&worker->interrupted);

	if (worker->failed)
		return -(int)failure->code;
	/* a peer that closed its side has left the job, for this worker */
	if (failure->code == ERROR_ABORTED)
		failure->code = ERROR_PEER_LOST;
	if (failure->code == ERROR_PEER_LOST || failure->code == ERROR_TRANSPORT ||
	    failure->code == ERROR_TIMEOUT ||
	    /* the control thread wakes a blocked transport call when the job fails */
	    (failure->code == ERROR_INTERRUPTED && !host_did))
		heard = hear_cause(worker, failure);
	pthread_mutex_lock(&worker->failure_lock);
	first = !worker->failed;
	if (first)
		worker->failure = *failure;
	worker->failed = true;
	pthread_mutex_unlock(&worker->failure_lock);
	watch_tell(&worker->watch);
	if (first && !heard)
		control_failure(worker->control, failure, version);
	return -(int)failure->code;
}

int worker_stage(const struct weft_worker *worker, enum worker_stage stage, const char *call,
		 struct error *error)
{
	static const char *const needed[] = {
		[STAGE_OPEN] = "before weft_join",
		[STAGE_JOINING] = "during weft_join",
		[STAGE_JOINED] = "after weft_join returned 0 and before weft_leave",
		[STAGE_LEFT] = "after weft_leave",
	};

	if (!worker)
		return error_set(error, ERROR_USAGE, "%s: worker is NULL", call);
	log_as(worker->log_name);
	if (getpid() != worker->pid)
		return error_set(error, ERROR_STATE,
				 "%s: the worker was opened by process %d; this is its forked "
				 "child %d, which can only close it",
				 call, (int)worker->pid, (int)getpid());
	if (worker->stage == stage)
		return 0;
	return error_set(error, ERROR_STATE, "%s is possible only %s", call, needed[stage]);
}

int worker_role(const struct weft_worker *worker, enum role role, const char *call,
		struct error *error)
{
	if (worker->self.role == role)
		return 0;
	return error_set(error, ERROR_STATE, "%s is for %s; this worker is %s", call,
			 role == ROLE_TRAINER ? "trainers" : "inference ranks", worker->self_name);
}

int worker_may_update(struct weft_worker *worker, enum role role, const char *call,
		      struct error *error)
{
	int rc;

	if (!worker)
		return error_set(error, ERROR_USAGE, "%s: worker is NULL", call);
	log_as(worker->log_name);
	rc = worker_check(worker, error);
	if (!rc)
		rc = worker_role(worker, role, call, error);
	if (!rc)
		rc = worker_stage(worker, STAGE_JOINED, call, error);
	return rc;
}

void attempt_begin(struct weft_worker *worker, uint64_t version, uint32_t timeout_ms)
{
	uint64_t now = clock_ns();

	worker->attempt = (struct attempt){.open = true,
					   .version = version,
					   .begin_ns = now,
					   .deadline_ns = now + (uint64_t)timeout_ms * 1000000u,
					   .timeout_ms = timeout_ms};
	watch_deadline(&worker->watch, worker->attempt.deadline_ns);
}

void attempt_end(struct weft_worker *worker)
{
	worker->attempt.open = false;
	watch_deadline(&worker->watch, 0);
}

bool attempt_open(const struct weft_worker *worker, uint64_t version)
{
	return worker->attempt.open && worker->attempt.version == version;
}

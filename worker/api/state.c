/* SPDX-License-Identifier: Apache-2.0
 *
 * state.c -- what every call asks before it does anything.
 */
#include "worker/api/abi.h"
#include "worker/api/metrics.h"
#include "worker/api/worker.h"

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
		log_error_of(inner->code, "%s (WEFT_ERROR_INIT). What failed: %s", why.text,
			     inner->text);
		return rc;
	}
	out.code = (int)inner->code;
	memcpy(out.text, inner->text, sizeof(out.text));
	abi_give(ABI_ERROR, &out, error);
	return rc;
}

/* An interrupt is told as one; and a host whose memory is not its own yet goes on with other memory. */
bool worker_ends_by(enum error_code code)
{
	return code != ERROR_INTERRUPTED && code != ERROR_UNSAFE;
}

int worker_answer(weft_worker *worker, int rc, const struct error *inner, weft_error *error)
{
	if (worker && rc >= 0) {
		/* many threads write at once: nothing is stored unless there is something to take back */
		if (atomic_load_explicit(&worker->is_unhandled, memory_order_relaxed))
			atomic_store(&worker->is_unhandled, false);
	} else if (worker && worker_ends_by(inner->code) && worker->pid == getpid()) {
		pthread_mutex_lock(&worker->health.lock);
		worker->unhandled = *inner;
		atomic_store(&worker->is_unhandled, true);
		pthread_mutex_unlock(&worker->health.lock);
	}
	if (worker && rc < 0 && worker->pid == getpid())
		metrics_failure(worker, inner->code);
	return worker_result(rc, inner, error);
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

int worker_may_declare(const struct weft_worker *worker, enum role role, const char *call,
		       struct error *error)
{
	int rc = worker_stage(worker, STAGE_OPEN, call, error);

	return rc ? rc : worker_role(worker, role, call, error);
}

int worker_check_id(const char *call, const char *what, uint32_t id, size_t count,
		    struct error *error)
{
	if (id < count)
		return 0;
	return error_set(error, ERROR_USAGE, "%s: %s %u; %zu are declared", call, what, id, count);
}

int worker_may_update(struct weft_worker *worker, enum role role, const char *call,
		      struct error *error)
{
	int rc;

	if (!worker)
		return error_set(error, ERROR_USAGE, "%s: worker is NULL", call);
	log_as(worker->log_name);
	rc = health_check(&worker->health, error);
	if (!rc)
		rc = worker_role(worker, role, call, error);
	if (!rc)
		rc = worker_stage(worker, STAGE_JOINED, call, error);
	return rc;
}

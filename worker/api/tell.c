/* SPDX-License-Identifier: Apache-2.0
 *
 * tell.c -- how a failure of this worker reaches the others: by the control thread when it runs, else
 * one is started that joins for this alone. Whoever tells waits until the controller has heard, for his
 * program may end at once.
 */
#include "worker/api/worker.h"

#include "base/log.h"

/* SHORT: to whoever was asked for the job and has not answered; by a host that did not say that it failed, and may
 * only have looked at a layout. */
#define TELL_MS	      2000u
#define TELL_SHORT_MS 300u

struct message_hello worker_hello(struct weft_worker *worker)
{
	return (struct message_hello){
		.role = worker->self.role,
		.rank = worker->self.rank,
		.incarnation = worker->incarnation,
		.host = worker->host,
		.host_id = worker->host_id,
		.pid = (uint64_t)worker->pid,
	};
}

/* Joins as one that has failed. */
static int start(struct weft_worker *worker, const struct error *why, uint32_t wait_ms,
		 struct error *error)
{
	const struct worker_core_options options = {
		.job = worker->job,
		.controller = worker->controller,
		.hello = worker_hello(worker),
		.failure = *why,
		.join_timeout_ms = wait_ms,
	};

	return control_start(worker->control, &options, error);
}

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

int worker_tell(struct weft_worker *worker, const struct error *why, uint32_t most_ms,
		struct error *error)
{
	uint32_t wait_ms = least(most_ms, TELL_MS);
	struct health *health = &worker->health;
	int rc = 0;

	if (!worker->control || !health_end(health, why))
		return 0; /* nobody to tell; or the job is over, and that was told */
	if (control_running(worker->control) && !control_welcomed(worker->control))
		wait_ms = least(wait_ms, TELL_SHORT_MS);
	if (control_running(worker->control))
		control_failure(worker->control, why, versions_published(&worker->versions));
	else
		rc = start(worker, why, wait_ms, error);
	if (!rc && !control_settle(worker->control, wait_ms))
		rc = error_set(error, ERROR_CONTROLLER_LOST,
			       "the controller at %s could not be told of it within %.1f s",
			       worker->controller, wait_ms / 1000.0);
	if (rc)
		log_info("%s: %s", worker->self_name, error->text);
	return rc;
}

void worker_tell_unhandled(struct weft_worker *worker)
{
	struct error untold;

	if (!control_running(worker->control))
		worker_tell(worker, &worker->unhandled,
			    least(worker->join_timeout_ms, TELL_SHORT_MS), &untold);
	else if (health_end(&worker->health, &worker->unhandled)) /* leaving waits for it */
		control_failure(worker->control, &worker->unhandled,
				versions_published(&worker->versions));
}

int weft_fail(weft_worker *worker, int code, const char *text, weft_error *error)
{
	struct error why, inner;
	int rc = worker ? worker_stage(worker, worker->stage, "weft_fail", &inner)
			: error_set(&inner, ERROR_USAGE, "weft_fail: worker is NULL");

	if (rc)
		return worker_result(rc, &inner, error);
	error_set(&why, error_known(code) ? (enum error_code)code : ERROR_HOST, "%s",
		  text && *text ? text : "its program gave up and did not say why");
	rc = worker_tell(worker, &why, TELL_MS, &inner);
	join_let_go(worker, true);
	return worker_result(rc, &inner, error);
}

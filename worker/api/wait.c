/* SPDX-License-Identifier: Apache-2.0
 *
 * wait.c -- an inference rank's calls of an update, and the hook inside.
 */
#include "worker/api/metrics.h"
#include "worker/api/worker.h"

/* Where no trainer is left that knows, ranks say what comes next. */
static int pause(struct weft_worker *worker, struct error *error)
{
	uint64_t ended = 0, next = waiter_next(&worker->waiter);
	struct stop stop = {.version = versions_published(&worker->versions),
			    .promised = waiter_promised(&worker->waiter)};
	/* in place a trainer that is gone may have written what the others have not begun */
	bool whole = versions_whole(&worker->versions, stop.version) >= 0 &&
		     (worker->params.copies > 1 || !waiter_lacks_peer(&worker->waiter));

	control_pause(worker->control, &ended);
	next = next > ended ? next : ended + 1;
	stop.next = stop.promised < next ? next : stop.promised + 1;
	stop.where = whole || stop.promised ? STOPPED_REPEATS : STOPPED_IN_UPDATE;
	return join_pause(worker, &stop, error);
}

static int wait(weft_worker *worker, const char *call, uint64_t version, uint32_t timeout_ms,
		bool block, uint64_t *published, weft_error *error)
{
	struct error inner;
	bool begun;
	int rc;

	join_call_begins(worker);
	rc = worker_may_update(worker, ROLE_INFERENCE, call, &inner);
	if (!rc)
		rc = post_load_outside(&worker->waiter.post_load, call, &inner);
	begun = !rc && (!version || version > versions_published(&worker->versions));
	if (begun)
		metrics_starts(worker);
	while (!rc) {
		if (worker->pausing) {
			rc = join_again(worker, block, &inner);
			if (!rc)
				rc = waiter_check_past(&worker->waiter, version, &inner);
		}
		/* before what it shows may change */
		if (!rc && (!version || version != versions_published(&worker->versions)))
			rc = donor_run(&worker->donor, timeout_ms, block, &inner);
		if (!rc)
			rc = waiter_wait(&worker->waiter, version, timeout_ms, block, published,
					 &inner);
		if (rc != WAITER_PAUSES)
			break;
		rc = pause(worker, &inner);
	}
	if (worker && worker->health.failed)
		waiter_lost(&worker->waiter);
	if (begun && rc < 0)
		metrics_fails(worker, inner.code);
	else if (begun && !rc)
		metrics_ends(worker, SYNC_OK);
	if (begun && rc <= 0)
		worker_is_between(worker, !rc);
	rc = worker_answer(worker, rc, &inner, error);
	join_call_ends(worker);
	return rc;
}

int weft_update_wait(weft_worker *worker, uint64_t version, uint32_t timeout_ms,
		     uint64_t *published, weft_error *error)
{
	return wait(worker, "weft_update_wait", version, timeout_ms, true, published, error);
}

int weft_update_try_wait(weft_worker *worker, uint64_t version, uint32_t timeout_ms,
			 uint64_t *published, weft_error *error)
{
	return wait(worker, "weft_update_try_wait", version, timeout_ms, false, published, error);
}

/* Whatever has become of the job: what is prepared is whole. */
int weft_commit_at(weft_worker *worker, uint64_t version, weft_error *error)
{
	struct error inner;
	int rc = worker ? worker_role(worker, ROLE_INFERENCE, "weft_commit_at", &inner)
			: error_set(&inner, ERROR_USAGE, "weft_commit_at: worker is NULL");

	if (!rc && !worker->versions.by_host)
		rc = error_set(
			&inner, ERROR_STATE,
			"weft_commit_at: weft_update_wait shows versions here; open the worker with "
			"weft_options.commit_by_host, on all ranks of the engine");
	if (!rc)
		rc = worker_stage(worker, STAGE_JOINED, "weft_commit_at", &inner);
	if (!rc)
		rc = post_load_outside(&worker->waiter.post_load, "weft_commit_at", &inner);
	if (!rc)
		rc = waiter_commit(&worker->waiter, version, &inner);
	if (!rc) {
		metrics_look(worker);
		worker_is_between(worker, false);
	}
	return worker_result(rc, &inner, error);
}

uint64_t weft_published(const weft_worker *worker)
{
	return worker ? versions_published(&worker->versions) : 0;
}

uint64_t weft_next_version(const weft_worker *worker)
{
	return worker ? atomic_load(&worker->next) : 0;
}

int weft_tainted(const weft_worker *worker)
{
	return worker ? atomic_load(&worker->versions.tainted) : 0;
}

int weft_set_post_load(weft_worker *worker, weft_post_load *hook, void *context, weft_error *error)
{
	struct error inner;
	int rc = worker ? worker_role(worker, ROLE_INFERENCE, "weft_set_post_load", &inner)
			: error_set(&inner, ERROR_USAGE, "weft_set_post_load: worker is NULL");

	if (!rc)
		rc = post_load_outside(&worker->waiter.post_load, "weft_set_post_load", &inner);
	if (!rc) {
		worker->waiter.post_load.hook = hook;
		worker->waiter.post_load.context = context;
	}
	return worker_result(rc, &inner, error);
}

const void *weft_loaded_memory(const weft_worker *worker, uint32_t id)
{
	if (!worker || !worker->waiter.post_load.running || id >= worker->layout.param_count)
		return NULL;
	return params_memory(&worker->params, worker->waiter.copy, id);
}

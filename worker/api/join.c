/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/api/worker.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>

#define FENCE_MS 5000u

static int start(struct weft_worker *worker, uint32_t timeout_ms, struct error *error)
{
	struct worker_core_options options = {
		.job = worker->job,
		.controller = worker->controller,
		.join_timeout_ms = timeout_ms,
	};
	struct params_options params = {
		.copies = worker->shadow ? 2 : 1,
		.host = worker->own_memory ? worker->host_memory.items : NULL,
		.hosted = worker->host_memory.count,
		.device = worker->device,
	};
	int rc = worker_choose_landing(worker, error);

	params.landing = worker->landing;
	if (!rc)
		rc = declare_finish(worker, &options.declare, error);
	if (rc)
		return rc;
	if (worker->self.role == ROLE_INFERENCE) {
		options.layout = &worker->layout;
		rc = params_open(&worker->params, worker->domain, &worker->layout, &params, error);
		if (rc == -(int)ERROR_MEMORY && worker_land_on_host(worker)) {
			params_close(&worker->params);
			params.landing = worker->landing;
			rc = declare_finish(worker, &options.declare, error);
			if (!rc)
				rc = params_open(&worker->params, worker->domain, &worker->layout,
						 &params, error);
		}
		if (rc) {
			params_close(&worker->params);
			return rc;
		}
	} else {
		options.holding = &worker->holding;
	}
	options.hello = worker_hello(worker);
	rc = control_start(worker->control, &options, error);
	if (rc)
		params_close(&worker->params);
	return rc;
}

void join_undo(struct weft_worker *worker)
{
	/* a driver leaves undefined what comes of freeing what a peer has open */
	if ((worker->own_memory || worker->device) && worker->self.role == ROLE_INFERENCE &&
	    worker->epoch)
		epoch_fence(worker->epoch, FENCE_MS);
	sender_close(&worker->sender);
	waiter_close(&worker->waiter);
	epoch_release(&worker->epoch);
}

int join_open(struct weft_worker *worker, const struct message_plan *plan,
	      struct message_endpoints *endpoints, struct error *error)
{
	uint64_t shown;
	const struct epoch_options options = {
		.self = worker->self,
		.name = worker->self_name,
		.log_name = worker->log_name,
		.domain = worker->domain,
		.health = &worker->health,
		.holding = &worker->holding,
		.locals = &worker->locals,
		.ranges = &worker->ranges,
		.ring_bytes = worker->ring_bytes,
		.full = worker->full,
		.host_ring = worker->host_ring,
		.device = worker->device,
		.layout = &worker->layout,
		.params = &worker->params,
		.landing_bytes = worker->landing_bytes,
		.update_timeout_ms = worker->update_timeout_ms,
		.shown = versions_begin(&worker->versions, &shown) ? shown : 0,
	};
	int rc;

	join_undo(worker);
	/* the plan before this one is over, but perhaps not for all who wrote for it */
	rc = declare_check_memory(worker, error);
	return rc ? rc : epoch_open(&worker->epoch, &options, plan, endpoints, error);
}

int join_connected(struct weft_worker *worker, struct error *error)
{
	return worker->self.role == ROLE_TRAINER
		       ? sender_open(&worker->sender, worker->epoch, worker->pack_threads, error)
		       : waiter_open(&worker->waiter, worker->epoch, &worker->health,
				     &worker->versions, &worker->watch, error);
}

static int open_endpoints(struct weft_worker *worker, const struct message_plan *plan,
			  struct error *error)
{
	struct message_endpoints endpoints;
	int rc = join_open(worker, plan, &endpoints, error);

	if (!rc)
		rc = control_endpoints(worker->control, &endpoints, error);
	return rc;
}

static int connect_endpoints(struct weft_worker *worker, const struct message_peers *peers,
			     uint64_t deadline_ns, struct error *error)
{
	int rc = epoch_connect(worker->epoch, peers, deadline_ns, error);

	if (!rc)
		rc = join_connected(worker, error);
	if (!rc)
		rc = control_connected(worker->control, error);
	return rc;
}

/* Does what the control core asks for until the job runs or cannot. That it runs means that every
 * worker has connected: only now can a path be probed, and nobody posts before its own are. The core keeps the deadline
 * and knows who is missing. */
static int follow(struct weft_worker *worker, uint64_t deadline_ns, struct error *error)
{
	for (;;) {
		const struct message_plan *plan = NULL;
		const struct message_peers *peers = NULL;
		int rc = health_check(&worker->health, error);

		if (rc)
			return rc;
		switch (control_next(worker->control, WAIT_SLICE_MS, &plan, &peers)) {
		case CONTROL_OPEN:
			rc = open_endpoints(worker, plan, error);
			break;
		case CONTROL_CONNECT:
			rc = connect_endpoints(worker, peers, deadline_ns, error);
			break;
		case CONTROL_RUN:
			rc = epoch_probe(worker->epoch, deadline_ns, error);
			/* an interrupt between two probes has cut none: join goes on there */
			return rc && rc != -(int)ERROR_INTERRUPTED
				       ? health_fail(&worker->health, error, 0)
				       : rc;
		case CONTROL_FAILED: /* health_check says why */
		case CONTROL_NOTHING:
			break;
		}
		if (rc)
			return health_fail(&worker->health, error, 0);
	}
}

static void log_plan(const struct weft_worker *worker)
{
	const struct message_plan *plan = worker->epoch->plan;
	char digest[DIGEST_TEXT_BYTES];
	size_t paths[PATH_COUNT] = {0};

	for (size_t i = 0; i < plan->row_count; i++)
		paths[plan->rows[i].path]++;
	log_info(
		"%s: plan %s by %s, order %s: %zu pieces, %zu peers; direct %zu, mapped %zu, replica %zu, landed %zu",
		worker->self_name, digest_text(plan->digest, digest), plan->policy, plan->order,
		plan->row_count, worker->epoch->peer_count, paths[PATH_DIRECT], paths[PATH_MAPPED],
		paths[PATH_REPLICA], paths[PATH_LANDED]);
}

int join_run(struct weft_worker *worker, uint32_t timeout_ms, struct error *error)
{
	struct error untold;
	int rc;

	if (!timeout_ms)
		timeout_ms = worker->join_timeout_ms;
	if (worker->stage == STAGE_OPEN) {
		rc = start(worker, timeout_ms, error);
		if (rc && worker_ends_by(error->code)) /* nobody shall wait for it */
			worker_tell(worker, error, timeout_ms, &untold);
		if (rc)
			return rc;
		worker->stage = STAGE_JOINING;
	}
	rc = follow(worker, clock_deadline_ns(timeout_ms), error);
	if (rc)
		return rc;
	worker->stage = STAGE_JOINED;
	log_plan(worker);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/api/worker.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define DEFAULT_UPDATE_MS 60000u

static uint64_t new_incarnation(void)
{
	uint64_t value = 0;

	if (getrandom(&value, sizeof(value), 0) != sizeof(value))
		value = clock_ns() ^ (uint64_t)getpid() << 40;
	return value ? value : 1;
}

static int start(struct weft_worker *worker, uint32_t timeout_ms, struct error *error)
{
	struct worker_core_options options = {
		.job = worker->job,
		.controller = worker->controller,
		.join_timeout_ms = timeout_ms,
	};
	int rc = declare_finish(worker, &options.declare, error);

	if (rc)
		return rc;
	if (worker->self.role == ROLE_INFERENCE) {
		options.layout = &worker->layout;
		rc = params_open(worker, error);
		if (rc) {
			params_close(worker);
			return rc;
		}
	} else {
		options.holding = &worker->holding;
	}
	options.hello = (struct message_hello){
		.role = worker->self.role,
		.rank = worker->self.rank,
		.incarnation = new_incarnation(),
		.host = worker->host,
		.host_id = worker->host_id,
		.pid = (uint64_t)getpid(),
	};
	rc = control_start(worker->control, &options, error);
	if (rc)
		params_close(worker);
	return rc;
}

static int open_endpoints(struct weft_worker *worker, const struct message_plan *plan,
			  struct error *error)
{
	struct message_endpoints endpoints;
	int rc = peers_open(worker, plan, &endpoints, error);

	if (!rc)
		rc = control_endpoints(worker->control, &endpoints, error);
	return rc;
}

static int connect_endpoints(struct weft_worker *worker, const struct message_peers *peers,
			     uint64_t deadline_ns, struct error *error)
{
	int rc = peers_connect(worker, peers, deadline_ns, error);

	if (!rc)
		rc = worker->self.role == ROLE_TRAINER ? send_plan_open(worker, error)
						       : pairs_open(worker, error);
	if (!rc)
		rc = control_connected(worker->control, error);
	return rc;
}

/* Does what the control core asks for until the job runs or cannot. That it runs means that every
 * worker has connected: only now can a path be proved, and nobody posts before its own are. The core keeps the deadline
 * and knows who is missing. */
static int follow(struct weft_worker *worker, uint64_t deadline_ns, struct error *error)
{
	for (;;) {
		const struct message_plan *plan = NULL;
		const struct message_peers *peers = NULL;
		int rc = worker_check(worker, error);

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
			rc = peers_prove(worker, deadline_ns, error);
			return rc ? worker_fail(worker, error, 0) : 0;
		case CONTROL_FAILED: /* worker_check says why */
		case CONTROL_NOTHING:
			break;
		}
		if (rc)
			return worker_fail(worker, error, 0);
	}
}

static void log_plan(const struct weft_worker *worker)
{
	char digest[DIGEST_TEXT_BYTES];
	size_t ways[HOW_COUNT] = {0};

	for (size_t i = 0; i < worker->plan->row_count; i++)
		ways[worker->plan->rows[i].how]++;
	log_info(
		"%s: plan %s by %s, order %s: %zu pieces, %zu peers; direct %zu, mapped %zu, replica %zu",
		worker->self_name, digest_text(worker->plan->digest, digest), worker->plan->policy,
		worker->plan->order, worker->plan->row_count, worker->peer_count, ways[HOW_DIRECT],
		ways[HOW_MAPPED], ways[HOW_REPLICA]);
}

int join_run(struct weft_worker *worker, uint32_t timeout_ms, struct error *error)
{
	int rc;

	if (!timeout_ms)
		timeout_ms = worker->join_timeout_ms;
	if (worker->stage == STAGE_OPEN) {
		rc = start(worker, timeout_ms, error);
		if (rc)
			return rc; /* still open: declare more and retry */
		worker->stage = STAGE_JOINING;
	}
	rc = follow(worker, worker_deadline_ns(timeout_ms), error);
	if (rc)
		return rc;
	worker->wait_ms = worker->update_timeout_ms	    ? worker->update_timeout_ms
			  : worker->plan->update_timeout_ms ? worker->plan->update_timeout_ms
							    : DEFAULT_UPDATE_MS;
	worker->stage = STAGE_JOINED;
	log_plan(worker);
	return 0;
}

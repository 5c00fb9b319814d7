/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/api/metrics.h"
#include "worker/api/worker.h"

#include "base/clock.h"
#include "base/log.h"
#include "trace/trace.h"

#include <stdio.h>
#include <unistd.h>

#define FENCE_MS   5000u
#define LET_GO_MS  2000u
#define CONNECT_MS 10000u /* where a job goes on, of an engine that may be gone again */

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

static void close_sides(struct weft_worker *worker)
{
	/* a driver leaves undefined what comes of freeing what a peer has open */
	if ((worker->own_memory || worker->device) && worker->self.role == ROLE_INFERENCE &&
	    worker->epoch)
		epoch_fence(worker->epoch, FENCE_MS);
	stand_in_sender_close(&worker->stand_in);
	sender_close(&worker->sender);
	donor_close(&worker->donor);
	waiter_close(&worker->waiter);
}

void join_undo(struct weft_worker *worker)
{
	close_sides(worker);
	epoch_release(&worker->epoch);
}

static bool has_failed(struct weft_worker *worker)
{
	struct error error;

	health_check(&worker->health, &error); /* or everybody has, as the controller says */
	return worker->health.failed;
}

void join_let_go(struct weft_worker *worker, bool at_once)
{
	bool trainer = worker->self.role == ROLE_TRAINER;

	/* a call that comes from here on is refused before it looks at what goes */
	if (!has_failed(worker) || atomic_load(&worker->calls) ||
	    atomic_exchange(&worker->has_let_go, true) ||
	    (trainer ? !worker->epoch : !worker->donor.count))
		return;
	if (!at_once && control_welcomed(worker->control))
		control_settle(worker->control, LET_GO_MS);
	if (!trainer)
		donor_let_go(&worker->donor);
	/* what a device that is stuck may touch stays until weft_close has another look */
	if (!trainer || (worker->device && !device_quiet(worker->device)))
		return;
	transport_domain_keep_mapped(worker->domain, false);
	join_undo(worker);
}

void join_call_begins(struct weft_worker *worker)
{
	if (worker)
		atomic_fetch_add(&worker->calls, 1);
}

void join_call_ends(struct weft_worker *worker)
{
	if (!worker || worker->pid != getpid())
		return;
	atomic_fetch_sub(&worker->calls, 1);
	join_let_go(worker, false);
}

/* What the full replica holds can be sent again under the plan that comes, if that sends the same: who connects looks (homes lie by
 * parameter and checksums by piece, whatever the order is that rows are sent in). */
static void keep_replica(struct weft_worker *worker)
{
	if (worker->epoch && !worker->kept.version)
		send_plan_keep(worker->epoch, sender_whole(&worker->sender), &worker->kept);
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
		.kept = &worker->kept,
		.host_ring = worker->host_ring,
		.device = worker->device,
		.layout = &worker->layout,
		.params = &worker->params,
		.beside = &worker->beside,
		.landing_bytes = worker->landing_bytes,
		.update_timeout_ms = worker->update_timeout_ms,
		.trace = worker->trace,
		.shown = atomic_load(&worker->versions.hidden)	     ? 0
			 : worker->waiter.settled		     ? worker->waiter.settled
			 : versions_begin(&worker->versions, &shown) ? shown
								     : 0,
	};
	struct kept_links links = {0};
	int rc;

	rc = worker->self.role == ROLE_INFERENCE
		     ? waiter_fence_gone(&worker->waiter, FENCE_MS, error)
		     : 0;
	worker->stop.number = 0;
	transport_domain_keep_mapped(worker->domain, true); /* join_connected ends it */
	keep_replica(worker);
	if (!rc)
		epoch_mark_kept(worker->epoch, plan);
	close_sides(worker);
	if (!rc)
		rc = epoch_take_kept(worker->epoch, &links, error);
	epoch_release(&worker->epoch);
	/* the plan before this one is over, but perhaps not for all who wrote for it */
	if (!rc)
		rc = declare_check_memory(worker, error);
	if (!rc)
		rc = epoch_open(&worker->epoch, &options, plan, &links, endpoints, error);
	links_close(&links, worker->device, FENCE_MS); /* what is left after a failure */
	return rc;
}

int join_connected(struct weft_worker *worker, struct error *error)
{
	int rc;

	transport_domain_keep_mapped(worker->domain, false);
	if (worker->self.role == ROLE_TRAINER) {
		rc = sender_open(&worker->sender, worker->epoch, worker->pack_threads, error);
		return rc ? rc : stand_in_sender_open(&worker->stand_in, &worker->sender, error);
	}
	rc = waiter_open(&worker->waiter, worker->epoch, &worker->health, &worker->versions,
			 &worker->watch, error);
	return rc ? rc
		  : donor_open(&worker->donor, worker->epoch, &worker->health, &worker->versions,
			       &worker->watch, error);
}

static int open_endpoints(struct weft_worker *worker, const struct message_plan *plan,
			  struct error *error)
{
	struct message_endpoints endpoints;
	int rc;

	if (worker->self.role == ROLE_INFERENCE)
		waiter_settle(&worker->waiter, plan);
	rc = join_open(worker, plan, &endpoints, error);
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
		rc = control_connected(worker->control, peers->attempt, error);
	return rc;
}

/* There is a plan that runs. What host programs prepare they prepare once, before they hear of another plan: where one may come,
 * without a trainer that was lost or with an engine that is back, all that is held may be wanted. */
static int take_plan(struct weft_worker *worker, struct error *error)
{
	size_t count = worker->locals.count;
	int rc;

	atomic_store(&worker->next, worker->epoch->plan->next);
	metrics_look(worker);
	if (worker->self.role != ROLE_TRAINER)
		return 0;
	rc = send_plan_map_targets(&worker->epoch->send, worker->epoch, error);
	if (rc)
		return rc;
	if (!worker->wanted)
		worker->wanted = pool_array(&worker->texts, count + 1, sizeof(*worker->wanted));
	if (!worker->wanted)
		return memory_error(error, "listing what is wanted", count);
	for (uint32_t id = 0; id < count; id++)
		worker->wanted[id] =
			worker->epoch->plan->continues || epoch_wants(worker->epoch, id);
	return 0;
}

/* Does what the control core asks for. That the job runs means that every worker has connected: only now can a path be
 * probed, and nobody posts before its own are. */
static int follow(struct weft_worker *worker, uint32_t wait_ms, uint64_t deadline_ns,
		  enum control_request *request, struct error *error)
{
	struct message_plan plan;
	struct message_peers peers;

	switch (*request = control_next(worker->control, wait_ms, &plan, &peers)) {
	case CONTROL_OPEN:
		return open_endpoints(worker, &plan, error);
	case CONTROL_CONNECT:
		return connect_endpoints(worker, &peers, deadline_ns, error);
	case CONTROL_RUN:
		return epoch_probe(worker->epoch, deadline_ns, error);
	case CONTROL_FAILED: /* health_check says why */
	case CONTROL_NOTHING:
		break;
	}
	return 0;
}

/* The core keeps the deadline and knows who is missing; one that comes to a job that runs may have to wait for long. */
static uint64_t connecting(uint64_t deadline_ns)
{
	uint64_t least = clock_deadline_ns(CONNECT_MS);

	return clock_ns() < deadline_ns ? deadline_ns : least;
}

static int follow_to_run(struct weft_worker *worker, uint64_t deadline_ns, struct error *error)
{
	enum control_request request;

	do {
		int rc = health_check(&worker->health, error);

		if (rc)
			return rc;
		rc = follow(worker, WAIT_SLICE_MS, connecting(deadline_ns), &request, error);
		/* an interrupt between two probes has cut none: join goes on there */
		if (rc == -(int)ERROR_INTERRUPTED && request == CONTROL_RUN)
			return rc;
		if (rc)
			return health_fail(&worker->health, error, 0);
	} while (request != CONTROL_RUN);
	return take_plan(worker, error);
}

/* Until now: what the next updates are made by is there. */
static void trace_join(const struct weft_worker *worker, const char *name, uint64_t begin_ns)
{
	const struct message_plan *plan = worker->epoch->plan;
	struct trace_event event = {
		.name = name, .begin_ns = begin_ns, .end_ns = clock_ns(), .lane = LANE_JOB};
	char digest[DIGEST_TEXT_BYTES], text[TRACE_TEXT_BYTES];

	snprintf(text, sizeof(text), "plan %s by %s", digest_text(plan->digest, digest),
		 plan->policy);
	trace_text(&event, text);
	trace_add(worker->trace, &event, "job");
}

static void log_plan(const struct weft_worker *worker)
{
	const struct message_plan *plan = worker->epoch->plan;
	char digest[DIGEST_TEXT_BYTES];
	size_t paths[PATH_COUNT] = {0};

	for (size_t i = 0; i < plan->row_count; i++)
		paths[plan->rows[i].path]++;
	log_info(
		"%s: plan %s by %s, order %s: %zu pieces, %zu peers; direct %zu, mapped %zu, replica %zu, landed %zu; "
		"%zu of %zu endpoints kept",
		worker->self_name, digest_text(plan->digest, digest), plan->policy, plan->order,
		plan->row_count, worker->epoch->peer_count, paths[PATH_DIRECT], paths[PATH_MAPPED],
		paths[PATH_REPLICA], paths[PATH_LANDED], worker->epoch->kept_count,
		worker->epoch->all_count);
}

int join_run(struct weft_worker *worker, uint32_t timeout_ms, struct error *error)
{
	uint64_t begin = clock_ns();
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
	rc = follow_to_run(worker, clock_deadline_ns(timeout_ms), error);
	if (rc)
		return rc;
	worker->stage = STAGE_JOINED;
	worker_is_between(worker, false);
	log_plan(worker);
	trace_join(worker, "join", begin);
	return 0;
}

/* ---- a pause ---- */

static uint64_t version_of(const struct weft_worker *worker)
{
	return worker->self.role == ROLE_TRAINER ? worker->sender.ended
						 : versions_published(&worker->versions);
}

/* Of what can be the fault of one that is gone again a worker goes on without it: true. In a plan that is being exchanged the
 * next one is waited for. */
static bool goes_on_without(struct weft_worker *worker, enum control_request request,
			    const struct error *why)
{
	struct epoch *epoch = worker->epoch;
	struct peer *peer;

	if (!epoch || epoch->at >= epoch->all_count || !peer_explains(why->code))
		return false;
	peer = &epoch->peers[epoch->at];
	if (epoch->at >= epoch->peer_count && !epoch_is_of_other_engine(epoch, peer))
		return false;
	if (request == CONTROL_RUN && epoch->at >= epoch->peer_count)
		return waiter_loses_mate(&worker->waiter, peer, why);
	if (request == CONTROL_RUN)
		return worker->self.role == ROLE_TRAINER
			       ? sender_drop(&worker->sender, (uint32_t)epoch->at, why)
			       : !waiter_fails_by(&worker->waiter, peer, why);
	if (request != CONTROL_CONNECT)
		return false;
	log_warn("%s: %s does not come in: %s", worker->self_name, peer->name, why->text);
	control_drop(worker->control, peer->plan->member, why, version_of(worker));
	return true;
}

int join_pause(struct weft_worker *worker, const struct stop *stop, struct error *error)
{
	struct stop numbered = *stop;
	uint64_t from;
	int rc = 0;

	numbered.number = control_pause(worker->control, &from);
	numbered.anew = numbered.number && !epoch_is_whole(worker->epoch);
	worker->stop = numbered;
	if (numbered.number)
		rc = control_paused(worker->control, &numbered, error);
	worker->pausing = !rc;
	worker->paused_ns = clock_ns();
	activity_is(&worker->health.activity, ACTIVITY_PAUSED, stop->next);
	return rc;
}

/* A pause may last: what breaks meanwhile cannot be kept, and who has said that it can says otherwise. */
static int look_again(struct weft_worker *worker, struct error *error)
{
	if (!worker->stop.number || worker->stop.anew || epoch_is_whole(worker->epoch))
		return 0;
	worker->stop.anew = true;
	return control_paused(worker->control, &worker->stop, error);
}

int join_again(struct weft_worker *worker, bool block, struct error *error)
{
	enum control_request request;

	do {
		int rc = health_check(&worker->health, error);

		if (!rc)
			rc = look_again(worker, error);
		if (rc)
			return rc;
		rc = follow(worker, block ? WAIT_SLICE_MS : 0, clock_deadline_ns(CONNECT_MS),
			    &request, error);
		if (rc == -(int)ERROR_INTERRUPTED && request == CONTROL_RUN)
			return rc;
		if (rc && !goes_on_without(worker, request, error))
			return health_fail(&worker->health, error, version_of(worker));
		if (rc && request == CONTROL_RUN)
			request = CONTROL_NOTHING; /* its other paths are still to be tried */
		if (request == CONTROL_NOTHING && !block)
			return WEFT_AGAIN;
	} while (request != CONTROL_RUN);
	worker->pausing = false;
	if (worker->self.role == ROLE_INFERENCE)
		waiter_unhides(&worker->waiter);
	worker_is_between(worker, false);
	if (!worker->stop.number) { /* else it goes on by the one that it has */
		log_plan(worker);
		trace_join(worker, "pause for a plan", worker->paused_ns);
	}
	return take_plan(worker, error);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * poll.c -- completions of send queues, judged against the rings.
 *
 *   wr_id = lane << 56 | position        ring  head ....... done ....... tail
 *                                              to report    in flight
 *
 * A completion is believed only if it names a request of ours that is in flight, was signalled
 * and is the oldest such one of its lane. Of one that failed nothing is read but wr_id, status,
 * queue pair and vendor code: devices leave the rest as it was.
 */
#include "transport/verbs/verbs.h"

#include "base/clock.h"
#include "base/log.h"

#define POLL_BATCH   32
#define POSITION     ((UINT64_C(1) << 56) - 1)
#define EVENTS_EVERY 64u /* polls that found nothing, to one look at async events */
#define EVENT_LAG_NS UINT64_C(200000000)

static int strange(const struct verbs_nic *nic, const struct ibv_wc *wc, const char *what,
		   struct error *error)
{
	return error_set(error, ERROR_TRANSPORT,
			 "device %s reported %s (request %#llx of queue pair %#x, status %s): its "
			 "completions cannot be relied on",
			 nic->limits.name, what, (unsigned long long)wc->wr_id, wc->qp_num,
			 verbs_status_name((int)wc->status));
}

/* ---- failures ---- */

static enum verbs_port_trouble trouble_told(const struct verbs_nic *nic)
{
	verbs_events(nic->domain);
	if (atomic_load(&nic->down))
		return VERBS_PORT_DOWN;
	return atomic_load(&nic->gid_gone) ? VERBS_PORT_NO_ADDRESS : VERBS_PORT_FINE;
}

/* A port without a link or an address: some devices retry for a while, some refuse requests at
 * once, as a local error. Those say what is wrong with the port a moment after the completion,
 * and whether the lane or the endpoint is lost hangs on it. */
static enum verbs_port_trouble port_trouble(struct verbs_lane *lane, const struct ibv_wc *wc)
{
	enum verbs_port_trouble trouble;
	uint64_t end;

	if (wc->status != IBV_WC_LOC_QP_OP_ERR && wc->status != IBV_WC_LOC_PROT_ERR &&
	    wc->status != IBV_WC_RETRY_EXC_ERR && wc->status != IBV_WC_RESP_TIMEOUT_ERR)
		return VERBS_PORT_FINE;
	end = clock_ns() + (wc->status == IBV_WC_LOC_QP_OP_ERR ? EVENT_LAG_NS : 0);
	while (!(trouble = trouble_told(lane->nic)) && !atomic_load(&lane->nic->lost) &&
	       clock_ns() < end)
		clock_sleep_ms(1);
	return trouble;
}

struct verbs_failure verbs_lane_failure(const struct verbs_lane *lane, const struct ibv_wc *wc,
					const struct verbs_entry *entry)
{
	const struct verbs_settings *settings = &lane->endpoint->domain->settings;

	return (struct verbs_failure){
		.status = (int)wc->status,
		.vendor_error = wc->vendor_err,
		.kind = (enum verbs_kind)entry->kind,
		.bytes = entry->bytes,
		.local = lane->local,
		.remote = lane->remote,
		.waited_ns = clock_ns() - entry->posted_ns,
		.timeout = settings->timeout,
		.retry = settings->retry,
		.rnr_retry = settings->rnr_retry,
		.path_mtu = lane->path_mtu,
		.peer_known_dead = verbs_peer_dead(lane->endpoint->shared),
	};
}

static const char *closed_why(const struct verbs_lane *lane)
{
	if (atomic_load(&lane->nic->lost))
		return "its device failed";
	if (atomic_load(&lane->closed_by_signal))
		return "the peer gave it up";
	if (atomic_load(&lane->closed_by_event))
		return "the device reported an error of its queue pair";
	return NULL;
}

/* The path failed, not the request: another lane can do what this one could not. */
static const char *path_why(struct verbs_lane *lane, const struct ibv_wc *wc,
			    enum verbs_port_trouble trouble)
{
	if (wc->status == IBV_WC_RETRY_EXC_ERR)
		return "no answer from the peer's side";
	if (trouble)
		return trouble == VERBS_PORT_DOWN ? "its port has no link"
						  : "its port has lost its address";
	if (wc->status == IBV_WC_WR_FLUSH_ERR && !closed_why(lane))
		verbs_events(lane->endpoint->domain); /* what moved the queue pair to ERR? */
	return closed_why(lane);
}

static int on_failure(struct verbs_lane *lane, const struct ibv_wc *wc, uint64_t position,
		      struct error *error)
{
	const struct verbs_entry *entry = verbs_entry_at(lane, position);
	int rc = 0;

	if (lane->state == VERBS_LANE_READY) {
		enum verbs_port_trouble trouble = port_trouble(lane, wc);
		const char *why = path_why(lane, wc, trouble);

		if (!why || !verbs_lane_has_other(lane) || entry->kind == VERBS_PROBE_BYTE ||
		    entry->kind == VERBS_PROBE_PACKET) {
			struct verbs_failure failure = verbs_lane_failure(lane, wc, entry);

			failure.port_trouble = trouble;
			verbs_failure_error(&failure, error);
			rc = error_wrap(error, "%s", lane->endpoint->shared->name);
		} else {
			verbs_lane_die(lane, why);
		}
	}
	lane->flushed = position + 1;
	return rc;
}

/* ---- successes ---- */

static int on_success(struct verbs_lane *lane, const struct ibv_wc *wc, uint64_t position,
		      struct error *error)
{
	uint64_t bytes = verbs_entry_at(lane, position)->bytes;

	if (!verbs_entry_at(lane, position)->signalled)
		return strange(lane->nic, wc, "a completion that was not asked for", error);
	for (uint64_t at = lane->done; at < position; at++) {
		if (verbs_entry_at(lane, at)->signalled)
			return strange(lane->nic, wc, "completions out of order", error);
		bytes += verbs_entry_at(lane, at)->bytes;
	}
	lane->done = position + 1;
	traffic_past(lane->nic->traffic, bytes, true);
	return 0;
}

static int take(struct verbs_endpoint *endpoint, const struct verbs_nic *nic,
		const struct ibv_wc *wc, struct error *error)
{
	uint64_t index = wc->wr_id >> 56, position = wc->wr_id & POSITION;
	struct verbs_lane *lane = &endpoint->lanes[index % VERBS_LANES_MAX];

	if (index >= endpoint->lane_count || !lane->qp || lane->nic != nic ||
	    lane->local.qpn != wc->qp_num)
		return strange(nic, wc, "a completion of a lane that is not there", error);
	if (lane->state == VERBS_LANE_DEAD)
		return 0; /* flushed after all; others have the work */
	if (position >= lane->tail)
		return strange(nic, wc, "a completion of a request that was never posted", error);
	if (position < lane->done || position < lane->flushed)
		return strange(nic, wc, "the same request complete twice", error);
	if (wc->status != IBV_WC_SUCCESS)
		return on_failure(lane, wc, position, error);
	if (lane->state == VERBS_LANE_DYING && lane->flushed > lane->done)
		return strange(nic, wc, "a success after a failure", error);
	return on_success(lane, wc, position, error);
}

/* Complete, whatever its status: nobody asks for it any more. */
static void account(struct verbs_endpoint *endpoint, const struct ibv_wc *wc)
{
	uint64_t index = wc->wr_id >> 56, position = wc->wr_id & POSITION;
	struct verbs_lane *lane = &endpoint->lanes[index % VERBS_LANES_MAX];

	if (index < endpoint->lane_count && position >= lane->done && position < lane->tail &&
	    position >= lane->flushed)
		lane->flushed = position + 1;
}

static int poll_nic(struct verbs_endpoint *endpoint, uint32_t index, int *found,
		    struct error *error)
{
	struct verbs_nic *nic = &endpoint->domain->nics[index];
	struct ibv_wc wcs[POLL_BATCH];
	int n = endpoint->domain->calls->poll_cq(endpoint->send_cqs[index], POLL_BATCH, wcs);

	*found = n > 0 ? n : 0;
	if (n < 0 && atomic_load(&nic->lost))
		return 0; /* its lanes are closed; what they had goes to others */
	if (n < 0)
		return verbs_step_error(error, VERBS_STEP_POLL, nic->limits.name, verbs_errno(n),
					"polling completions of writes to %s",
					endpoint->shared->name);
	if (n > POLL_BATCH)
		return error_set(error, ERROR_TRANSPORT,
				 "device %s reported %d completions where %d fit", nic->limits.name,
				 n, POLL_BATCH);
	for (int i = 0; i < n; i++) {
		int rc = take(endpoint, nic, &wcs[i], error);

		if (!rc)
			continue;
		/* the endpoint breaks; that these are complete must be known when it is drained */
		while (++i < n)
			account(endpoint, &wcs[i]);
		return rc;
	}
	return 0;
}

/* ---- reporting ---- */

/* The signal is complete when it is on every lane it named; an older round counts for nothing. */
static bool signal_done(struct verbs_endpoint *endpoint, const struct verbs_lane *lane,
			const struct verbs_entry *entry)
{
	if (!endpoint->signal_active || entry->offset != endpoint->signal_round)
		return false;
	endpoint->signal_lanes &= ~(1u << lane->wire_index);
	if (endpoint->signal_lanes || endpoint->replay_signal)
		return false;
	endpoint->signal_active = false;
	return true;
}

static int report_lane(struct verbs_endpoint *endpoint, struct verbs_lane *lane,
		       struct provider_completion *out, int room)
{
	int n = 0;

	while (lane->head < lane->done && n < room) {
		const struct verbs_entry *entry = verbs_entry_at(lane, lane->head++);

		if (entry->kind == VERBS_SIGNAL ? signal_done(endpoint, lane, entry)
						: entry->kind == VERBS_WRITE && entry->last)
			out[n++] = (struct provider_completion){.id = entry->id};
	}
	return n;
}

static int report(struct verbs_endpoint *endpoint, struct provider_completion *out, int max)
{
	int n = 0;

	verbs_each_lane(lane, endpoint) {
		if (lane->head < lane->done)
			n += report_lane(endpoint, lane, out + n, max - n);
	}
	return n;
}

/* ---- what other threads have found ---- */

static int check_broken(const struct verbs_endpoint *endpoint, struct error *error)
{
	if (atomic_load_explicit(&endpoint->domain->is_broken, memory_order_acquire))
		return error_copy(error, &endpoint->domain->broken);
	if (atomic_load_explicit(&endpoint->receive_broken, memory_order_acquire))
		return error_copy(error, &endpoint->receive_error);
	return 0;
}

static int close_lanes(struct verbs_endpoint *endpoint, struct error *error)
{
	verbs_each_lane(lane, endpoint) {
		char text[VERBS_LANE_TEXT_BYTES];

		if (lane->state != VERBS_LANE_READY || verbs_lane_lives(lane))
			continue;
		if (!verbs_lane_has_other(lane))
			return error_set(error, ERROR_TRANSPORT,
					 "the last path to %s is lost, %s: %s",
					 endpoint->shared->name, verbs_lane_text(lane, text),
					 closed_why(lane));
		verbs_lane_die(lane, closed_why(lane));
	}
	return 0;
}

static bool waits(const struct verbs_endpoint *endpoint)
{
	for (uint32_t i = 0; i < endpoint->lane_count; i++)
		if (endpoint->lanes[i].done < endpoint->lanes[i].tail)
			return true;
	return endpoint->dying || endpoint->replay_count || endpoint->replay_signal;
}

/* A device need not report what it could not send without a link: soft RoCE was seen to keep it for ever. Its tries end after
 * four times their least time (InfiniBand specification 9.7.6.1.3); while a port is up, its lanes have the work. */
static int check_ports(const struct verbs_endpoint *endpoint, struct error *error)
{
	const struct verbs_settings *settings = &endpoint->domain->settings;
	uint64_t tries_ns = verbs_retry_ns(settings->timeout, settings->retry), now = clock_ns(),
		 shortest = UINT64_MAX;
	const struct verbs_lane *last = NULL;
	char text[VERBS_LANE_TEXT_BYTES];

	for (uint32_t i = 0; i < endpoint->lane_count; i++) {
		const struct verbs_lane *lane = &endpoint->lanes[i];
		uint64_t down_ns;

		if (!verbs_lane_lives(lane))
			continue;
		if (!atomic_load(&lane->nic->down))
			return 0;
		down_ns = now - atomic_load(&lane->nic->down_since_ns);
		shortest = down_ns < shortest ? down_ns : shortest;
		last = lane;
	}
	if (!last || shortest / 4 < tries_ns || !waits(endpoint))
		return 0;
	return error_set(
		error, ERROR_TRANSPORT,
		"%s: the sending port has no link, nor has any other path, for %.1f s, and the "
		"device reports nothing (timeout %u, %u retries: %.1f s at most): %s; look at its "
		"cable, its switch port and 'ip link'",
		endpoint->shared->name, (double)shortest / 1e9, settings->timeout, settings->retry,
		4 * (double)tries_ns / 1e9, verbs_lane_text(last, text));
}

static int look_around(struct verbs_endpoint *endpoint, int found, struct error *error)
{
	int rc = 0;

	if (!found && ++endpoint->idle_polls % EVENTS_EVERY == 0) {
		verbs_events(endpoint->domain);
		rc = check_ports(endpoint, error);
	}
	if (!rc && atomic_load_explicit(&endpoint->attention, memory_order_relaxed)) {
		atomic_store(&endpoint->attention, false);
		rc = close_lanes(endpoint, error);
	}
	if (!rc && (endpoint->dying || endpoint->replay_count || endpoint->replay_signal))
		rc = verbs_replay(endpoint, error);
	return rc;
}

int verbs_poll(struct transport_endpoint *shared, struct provider_completion *out, int max,
	       struct error *error)
{
	struct verbs_endpoint *endpoint = shared->state;
	int found = 0, rc = check_broken(endpoint, error);

	for (uint32_t i = 0; i < endpoint->domain->nic_count && !rc; i++) {
		int n = 0;

		if (endpoint->send_cqs[i])
			rc = poll_nic(endpoint, i, &n, error);
		found += n;
	}
	if (!rc)
		rc = look_around(endpoint, found, error);
	return rc ? rc : report(endpoint, out, max);
}

/* ---- the end of a lane ---- */

/* False when the device cannot tell. */
static bool drain_once(struct verbs_lane *lane)
{
	struct verbs_endpoint *endpoint = lane->endpoint;
	struct ibv_wc wcs[POLL_BATCH];
	int n = endpoint->domain->calls->poll_cq(endpoint->send_cqs[lane->nic->index], POLL_BATCH,
						 wcs);

	if (n < 0 || n > POLL_BATCH)
		return false;
	for (int i = 0; i < n; i++)
		account(endpoint, &wcs[i]);
	return true;
}

static uint64_t unflushed(const struct verbs_lane *lane)
{
	return lane->tail - (lane->flushed > lane->done ? lane->flushed : lane->done);
}

void verbs_lane_drain(struct verbs_lane *lane, uint64_t deadline_ns)
{
	/* a lost device flushes nothing */
	while (unflushed(lane) && lane->state != VERBS_LANE_DEAD &&
	       !atomic_load(&lane->nic->lost) && drain_once(lane) && unflushed(lane)) {
		if (clock_ns() >= deadline_ns) {
			log_warn("%s: %llu requests to %s were not flushed in time",
				 lane->nic->limits.name, (unsigned long long)unflushed(lane),
				 lane->endpoint->shared->name);
			return;
		}
		sched_yield();
	}
}

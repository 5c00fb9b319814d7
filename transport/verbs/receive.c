/* SPDX-License-Identifier: Apache-2.0
 *
 * receive.c -- counting immediates: which signals have arrived.
 *
 *   lane 0  seen 7 {0,1,2}     lane 1  seen 7 {0,1,2}    lane 2  seen 6 {0,1,2}
 *           signal 7 waits for lane 2; 6 is the newest complete one
 *   lane 2 dies at the sender; 7 comes once more on lanes 0 and 1 and names only them:
 *           lane 2 is closed here, 7 waits for {0,1} to be seen on both
 *
 * Completions come from all NICs in any order, but those of one lane in theirs, and every live
 * lane carries every signal. So the newest signal of each lane says all.
 */
#include "transport/verbs/verbs.h"

#include "base/compare.h"
#include "base/log.h"
#include <endian.h>
#include <stdio.h>

#define RECEIVE_BATCH 32

/* ---- the table of lanes ---- */

static int lane_order(const struct verbs_lane *lane, uint32_t nic, uint32_t qpn)
{
	if (lane->nic->index != nic)
		return lane->nic->index < nic ? -1 : 1;
	return lane->local.qpn < qpn ? -1 : lane->local.qpn > qpn;
}

/* Position of the first lane that is not before (nic, qpn). */
static size_t lane_position(const struct verbs_domain *domain, uint32_t nic, uint32_t qpn)
{
	return search_first(at, 0, domain->lanes.count,
			    lane_order(domain->lanes.items[at], nic, qpn) >= 0);
}

int verbs_receive_add(struct verbs_domain *domain, struct verbs_lane *lane, struct error *error)
{
	struct verbs_lane **items;
	size_t at;

	pthread_mutex_lock(&domain->receive_lock);
	at = lane_position(domain, lane->nic->index, lane->local.qpn);
	if (!array_push(&domain->lanes)) {
		pthread_mutex_unlock(&domain->receive_lock);
		return memory_error(error, "opening a lane", sizeof(*domain->lanes.items));
	}
	items = domain->lanes.items;
	memmove(&items[at + 1], &items[at], (domain->lanes.count - 1 - at) * sizeof(*items));
	items[at] = lane;
	lane->seen = 0;
	lane->seen_lanes = 0;
	pthread_mutex_unlock(&domain->receive_lock);
	return 0;
}

void verbs_receive_remove(struct verbs_domain *domain, const struct verbs_endpoint *endpoint)
{
	size_t kept = 0;

	pthread_mutex_lock(&domain->receive_lock);
	for (size_t i = 0; i < domain->lanes.count; i++)
		if (domain->lanes.items[i]->endpoint != endpoint)
			domain->lanes.items[kept++] = domain->lanes.items[i];
	domain->lanes.count = kept;
	pthread_mutex_unlock(&domain->receive_lock);
}

static struct verbs_lane *lane_find(const struct verbs_domain *domain, uint32_t nic, uint32_t qpn)
{
	size_t at = lane_position(domain, nic, qpn);

	if (at < domain->lanes.count && !lane_order(domain->lanes.items[at], nic, qpn))
		return domain->lanes.items[at];
	return NULL;
}

/* ---- receives ---- */

int verbs_receive_refill(struct verbs_nic *nic, struct error *error)
{
	struct ibv_recv_wr wrs[RECEIVE_BATCH], *bad = NULL;

	while (nic->receives_posted < nic->receive_depth) {
		uint32_t left = nic->receive_depth - nic->receives_posted;
		uint32_t n = left < RECEIVE_BATCH ? left : RECEIVE_BATCH;
		int rc;

		for (uint32_t i = 0; i < n; i++)
			wrs[i] = (struct ibv_recv_wr){.wr_id = nic->index,
						      .next = i + 1 < n ? &wrs[i + 1] : NULL};
		rc = nic->domain->calls->post_srq_recv(nic->srq, wrs, &bad);
		if (rc)
			return verbs_step_error(
				error, VERBS_STEP_RECEIVE, nic->limits.name, verbs_errno(rc),
				"posting receives for signals (%u of %u are posted)",
				nic->receives_posted, nic->receive_depth);
		nic->receives_posted += n;
	}
	return 0;
}

/* ---- what an immediate says ---- */

static void stray(struct verbs_domain *domain, const struct verbs_nic *nic, uint32_t qpn,
		  uint32_t immediate, const char *what)
{
	if (atomic_fetch_add(&domain->stray_receives, 1) == 0)
		log_warn("%s: immediate %#x on queue pair %#x: %s; it is dropped, and more like it "
			 "are without a word",
			 nic->limits.name, immediate, qpn, what);
}

/* What the peer sent cannot be: its owner's next call on the endpoint fails, and the peer's
 * writes do too. */
static void receive_break(struct verbs_endpoint *endpoint, const char *what)
{
	if (atomic_load(&endpoint->receive_broken))
		return;
	error_set(&endpoint->receive_error, ERROR_TRANSPORT, "receiving signals of %s: %s",
		  endpoint->shared->name, what);
	atomic_store_explicit(&endpoint->receive_broken, true, memory_order_release);
	log_error("%s", endpoint->receive_error.text);
	for (uint32_t i = 0; i < endpoint->lane_count; i++)
		if (endpoint->lanes[i].state == VERBS_LANE_READY)
			verbs_lane_stop(&endpoint->lanes[i]);
}

static uint32_t lanes_in_use(const struct verbs_endpoint *endpoint)
{
	uint32_t lanes = 0;

	for (uint32_t i = 0; i < endpoint->lane_count; i++)
		if (atomic_load(&endpoint->lanes[i].state) != VERBS_LANE_UNUSED)
			lanes |= 1u << endpoint->lanes[i].wire_index;
	return lanes;
}

/* A lane could not be closed, or its device has failed: it may place a write of it later, or lose
 * what it acknowledged, and the sender knows neither. Signals are safe, since each names its
 * signal, so only where weights can be written is this the end. */
static void unreliable(struct verbs_lane *lane)
{
	struct verbs_endpoint *endpoint = lane->endpoint;
	char what[256];

	if (endpoint->shared->domain->options.self.role != ROLE_INFERENCE)
		return;
	snprintf(what, sizeof(what),
		 "%s has failed or does not close a lane, so it is not known whether all it "
		 "acknowledged is in memory",
		 lane->nic->limits.name);
	receive_break(endpoint, what);
}

void verbs_receive_lost(struct verbs_nic *nic)
{
	struct verbs_domain *domain = nic->domain;

	for (size_t i = 0; i < domain->lanes.count; i++) {
		struct verbs_lane *lane = domain->lanes.items[i];

		if (lane->nic != nic)
			continue;
		atomic_store(&lane->endpoint->attention, true);
		if (!atomic_load(&lane->closed_by_signal))
			unreliable(lane);
	}
}

/* The sender has given these lanes up. What it wrote there may still be under way, and must not
 * land in what comes after: they are closed before anybody is told. */
static void close_unnamed(struct verbs_endpoint *endpoint, uint32_t named)
{
	verbs_each_lane(lane, endpoint) {
		if (lane->state == VERBS_LANE_UNUSED || named & 1u << lane->wire_index ||
		    atomic_exchange(&lane->closed_by_signal, true))
			continue;
		if (!verbs_lane_stop(lane) || atomic_load(&lane->nic->lost))
			unreliable(lane);
		atomic_store(&endpoint->attention, true);
	}
}

/* The newest signal that every lane named has delivered. A lane that has seen the signal at
 * which lanes were lost only in its older form has not delivered it. */
static uint64_t complete_now(const struct verbs_endpoint *endpoint)
{
	uint64_t complete = UINT64_MAX;

	verbs_each_lane(lane, endpoint) {
		uint64_t seen = lane->seen;

		if (lane->state == VERBS_LANE_UNUSED ||
		    !(endpoint->lanes_named & 1u << lane->wire_index))
			continue;
		if (lane->seen_lanes != endpoint->lanes_named && seen >= endpoint->lanes_named_at)
			seen = endpoint->lanes_named_at - 1;
		if (seen < complete)
			complete = seen;
	}
	return complete == UINT64_MAX ? endpoint->received : complete;
}

/* Shows signal `sequence` to readers: a copy, which no peer overwrites while they look. When its
 * bank holds a later signal already, that one's notices are on the way too, and it will be shown
 * instead. */
static void publish(struct verbs_endpoint *endpoint, uint64_t sequence)
{
	struct mailbox_slot *mailbox = &endpoint->slot->mailbox;
	uint64_t written =
		atomic_load_explicit(&mailbox->bank[sequence & 1].sequence, memory_order_acquire);
	struct transport_signal signal;
	char what[128];

	endpoint->received = sequence;
	if (written < sequence || (written - sequence) & 1) {
		snprintf(what, sizeof(what), "signal %llu arrived, but its slot holds number %llu",
			 (unsigned long long)sequence, (unsigned long long)written);
		receive_break(endpoint, what);
		return;
	}
	atomic_store_explicit(&mailbox->latest, sequence, memory_order_relaxed);
	if (written == sequence && mailbox_load(mailbox, &signal) == 0) {
		pthread_mutex_lock(&endpoint->domain->shown_lock);
		endpoint->shown = signal;
		pthread_mutex_unlock(&endpoint->domain->shown_lock);
	}
	doorbell_ring(&endpoint->domain->doorbell);
}

/* The signals after the one this lane delivered last: the next one with the same lanes or fewer,
 * or the same one with fewer. */
static bool follows(const struct verbs_lane *lane, uint16_t step, uint32_t lanes, uint32_t in_use)
{
	uint32_t before = lane->seen ? lane->seen_lanes : in_use;

	if (!(lanes & 1u << lane->wire_index) || lanes & ~before)
		return false;
	return step == 1 || (step == 0 && lane->seen && lanes != before);
}

static void count(struct verbs_lane *lane, uint32_t immediate)
{
	struct verbs_endpoint *endpoint = lane->endpoint;
	uint32_t lanes = verbs_immediate_lanes(immediate), in_use = lanes_in_use(endpoint);
	uint16_t step = (uint16_t)(verbs_immediate_sequence(immediate) - lane->seen);
	uint32_t named = endpoint->lanes_named ? endpoint->lanes_named : in_use;
	uint64_t complete;

	if (atomic_load(&endpoint->receive_broken))
		return;
	if (!follows(lane, step, lanes, in_use)) {
		stray(endpoint->domain, lane->nic, lane->local.qpn, immediate,
		      "not the next signal of this lane");
		return;
	}
	if (lanes & ~named && named & ~lanes) {
		receive_break(endpoint, "two signals contradict each other about the lanes in use");
		return;
	}
	lane->seen += step;
	lane->seen_lanes = lanes;
	if (!endpoint->lanes_named || (lanes != named && !(lanes & ~named))) {
		endpoint->lanes_named = lanes;
		endpoint->lanes_named_at = lane->seen;
		close_unnamed(endpoint, lanes);
		if (atomic_load(&endpoint->receive_broken))
			return;
	}
	complete = complete_now(endpoint);
	if (complete > endpoint->received)
		publish(endpoint, complete);
}

static void receive_one(struct verbs_nic *nic, const struct ibv_wc *wc)
{
	struct verbs_domain *domain = nic->domain;
	struct verbs_lane *lane = lane_find(domain, nic->index, wc->qp_num);
	char what[128];

	if (!lane) {
		stray(domain, nic, wc->qp_num,
		      wc->status == IBV_WC_SUCCESS ? be32toh(wc->imm_data) : 0,
		      "no endpoint has this queue pair");
		return;
	}
	if (wc->status == IBV_WC_WR_FLUSH_ERR)
		return; /* taken for a message that was cut off when the lane was closed */
	if (wc->status != IBV_WC_SUCCESS || !(wc->wc_flags & IBV_WC_WITH_IMM)) {
		snprintf(what, sizeof(what), "%s reported a receive that is no signal (%s)",
			 nic->limits.name, verbs_status_name((int)wc->status));
		receive_break(lane->endpoint, what);
		return;
	}
	count(lane, be32toh(wc->imm_data));
}

/* ---- taking what is there ---- */

static int receive_nic(struct verbs_nic *nic, struct error *error)
{
	struct ibv_wc wcs[RECEIVE_BATCH];
	int n;

	do {
		n = nic->domain->calls->poll_cq(nic->receive_cq, RECEIVE_BATCH, wcs);
		if (n < 0 && atomic_load(&nic->lost))
			return 0; /* what it delivered before is counted, no more comes */
		if (n < 0 || n > RECEIVE_BATCH)
			return verbs_step_error(error, VERBS_STEP_POLL, nic->limits.name,
						verbs_errno(n < 0 ? n : 0), "polling for signals");
		for (int i = 0; i < n; i++)
			receive_one(nic, &wcs[i]);
		nic->receives_posted -=
			(uint32_t)n < nic->receives_posted ? (uint32_t)n : nic->receives_posted;
	} while (n == RECEIVE_BATCH);
	if (atomic_load(&nic->lost))
		return 0;
	if (nic->receive_depth - nic->receives_posted < RECEIVE_BATCH &&
	    nic->receives_posted > nic->receive_depth / 2)
		return 0;
	return verbs_receive_refill(nic, error);
}

/* Under receive_lock, which it gives back. */
static void receive_all(struct verbs_domain *domain)
{
	struct error error = {0};
	int rc = 0;

	for (uint32_t i = 0; i < domain->nic_count && !rc; i++)
		rc = receive_nic(&domain->nics[i], &error);
	pthread_mutex_unlock(&domain->receive_lock);
	if (rc)
		verbs_domain_break(domain, &error);
}

void verbs_receive(struct verbs_domain *domain)
{
	if (atomic_load_explicit(&domain->is_broken, memory_order_acquire))
		return;
	pthread_mutex_lock(&domain->receive_lock);
	receive_all(domain);
}

/* While another thread counts, what it has shown so far is the answer. */
int verbs_signal_read(const struct transport_endpoint *shared, struct transport_signal *signal)
{
	const struct verbs_endpoint *endpoint = shared->state;
	struct verbs_domain *domain = endpoint->domain;
	bool none;

	if (!atomic_load_explicit(&domain->is_broken, memory_order_acquire) &&
	    pthread_mutex_trylock(&domain->receive_lock) == 0)
		receive_all(domain);
	pthread_mutex_lock(&domain->shown_lock);
	if (endpoint->shown.sequence)
		*signal = endpoint->shown;
	none = !endpoint->shown.sequence;
	pthread_mutex_unlock(&domain->shown_lock);
	return none;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * probe.c -- every lane is used once before anybody relies on it: a write of one byte, then one
 * of a whole packet, to memory of the peer that anybody may overwrite.
 *
 *   byte   packet
 *   ok     ok       the path works
 *   fails  -        no answer: told as any failure of a write would be
 *   ok     fails    something between the two sides carries smaller packets than both ends do,
 *                   which without this would be a first update that never ends
 */
#include "transport/verbs/verbs.h"

#include "base/clock.h"
#include "base/text.h"
#include <inttypes.h>
#include <stdio.h>

#define PROBES_PER_LANE 2
#define POLL_BATCH	8
#define HEADER_BYTES	104 /* what an Ethernet MTU must hold beside the packet's payload */

/* What became of one lane's probes. */
struct probe {
	uint32_t left;
	bool byte_passed;
	struct verbs_failure failure; /* of the first that failed; status 0: none */
};

struct probing {
	struct transport_endpoint *endpoint;
	struct verbs_endpoint *verbs;
	struct probe probes[VERBS_LANES_MAX];
	uint32_t left;
	uint64_t begin_ns;
};

static int post_probe(struct verbs_lane *lane, enum verbs_kind kind, uint32_t bytes,
		      struct error *error)
{
	const struct verbs_endpoint *verbs = lane->endpoint;
	const struct verbs_block *block = verbs->place.block;
	struct verbs_request request = {
		.entry = {.kind = (uint8_t)kind, .bytes = bytes, .posted_ns = clock_ns()},
		.local_address = (uintptr_t)block->memory,
		.lkey = block->mrs[lane->nic->index]->lkey,
		.remote_address = verbs->peer.probe_address,
		.rkey = verbs->peer.nics[lane->peer_nic].slot_rkey,
	};
	uint32_t posted;

	return verbs_lane_post(lane, &request, 1, &posted, error);
}

static int post_probes(struct probing *probing, struct error *error)
{
	verbs_each_lane(lane, probing->verbs) {
		int rc;

		if (!verbs_lane_lives(lane))
			continue;
		rc = post_probe(lane, VERBS_PROBE_BYTE, 1, error);
		if (!rc)
			rc = post_probe(lane, VERBS_PROBE_PACKET, lane->path_mtu, error);
		if (rc)
			return rc;
		probing->probes[lane->index].left = PROBES_PER_LANE;
		probing->left += PROBES_PER_LANE;
	}
	return 0;
}

/* Probes are all signalled and complete in order. */
static int take(struct probing *probing, const struct verbs_nic *nic, const struct ibv_wc *wc,
		struct error *error)
{
	uint64_t at = wc->wr_id >> 56;
	struct verbs_lane *lane = &probing->verbs->lanes[at % VERBS_LANES_MAX];
	struct probe *probe = &probing->probes[at % VERBS_LANES_MAX];
	const struct verbs_entry *entry;

	if (at >= probing->verbs->lane_count || lane->nic != nic || !probe->left ||
	    lane->head == lane->tail)
		return error_set(error, ERROR_TRANSPORT,
				 "device %s reported a completion of request 0x%" PRIx64
				 ", which is not in flight",
				 nic->limits.name, wc->wr_id);
	entry = verbs_entry_at(lane, lane->head++);
	lane->done = lane->head;
	traffic_past(lane->nic->traffic, entry->bytes, wc->status == IBV_WC_SUCCESS);
	probe->left--;
	probing->left--;
	if (wc->status == IBV_WC_SUCCESS) {
		probe->byte_passed = true;
	} else if (!probe->failure.status) {
		probe->failure = verbs_lane_failure(lane, wc, entry);
	}
	return 0;
}

static int poll_once(struct probing *probing, struct error *error)
{
	const struct verbs_domain *domain = probing->verbs->domain;
	struct ibv_wc done[POLL_BATCH];

	verbs_each_nic(nic, domain) {
		int n = domain->calls->poll_cq(probing->verbs->send_cqs[nic->index], POLL_BATCH,
					       done);

		if (n < 0 || n > POLL_BATCH)
			return verbs_step_error(error, VERBS_STEP_POLL, nic->limits.name,
						verbs_errno(n < 0 ? n : 0),
						"polling completions of probes");
		for (int k = 0; k < n; k++) {
			int rc = take(probing, nic, &done[k], error);

			if (rc)
				return rc;
		}
	}
	return 0;
}

static int packet_lost(const struct verbs_lane *lane, const char *why, uint64_t waited_ns,
		       struct error *error)
{
	char path[VERBS_LANE_TEXT_BYTES], took[TEXT_SHORT_BYTES];

	return error_set(
		error, ERROR_TRANSPORT,
		"%s: a write of 1 byte passes and one of %u bytes does not (%s after %s): "
		"something between carries smaller packets than both ends, unless the peer "
		"has just ended. Give every switch port on the way an MTU of at least %u, "
		"or set WEFT_MTU to less than %u on both sides",
		verbs_lane_text(lane, path), lane->path_mtu, why, seconds_text(waited_ns, took),
		lane->path_mtu + HEADER_BYTES, lane->path_mtu);
}

/* Of several lanes the one whose small write passed tells most. */
static int judge(const struct probing *probing, struct error *error)
{
	const struct verbs_failure *failed = NULL;

	verbs_each_lane(lane, probing->verbs) {
		const struct probe *probe = &probing->probes[lane->index];
		const struct verbs_failure *failure = &probe->failure;

		if (!failure->status)
			continue;
		if (probe->byte_passed && failure->status == IBV_WC_RETRY_EXC_ERR &&
		    !failure->peer_known_dead)
			return packet_lost(lane, verbs_status_name(failure->status),
					   failure->waited_ns, error);
		if (!failed || failed->status == IBV_WC_WR_FLUSH_ERR)
			failed = failure;
	}
	return failed ? verbs_failure_error(failed, error) : 0;
}

/* The wait ended first. *error says by what; the lanes that are missing are added. */
static int judge_missing(const struct probing *probing, struct error *error)
{
	char path[VERBS_LANE_TEXT_BYTES];
	int rc = judge(probing, error);

	if (rc)
		return rc;
	verbs_each_lane(lane, probing->verbs) {
		const struct probe *probe = &probing->probes[lane->index];

		if (!probe->left)
			continue;
		if (probe->byte_passed)
			return packet_lost(lane, "no answer", clock_ns() - probing->begin_ns,
					   error);
		return error_wrap(error, "%s: no answer to a write of 1 byte",
				  verbs_lane_text(lane, path));
	}
	return -ERROR_TIMEOUT;
}

/* All tries, twice over since devices may wait longer than they are told, and a little. */
static uint64_t own_bound(const struct verbs_settings *settings)
{
	return 2 * verbs_retry_ns(settings->timeout, settings->retry) + UINT64_C(2000000000);
}

static int wait_all(struct probing *probing, uint64_t deadline_ns, struct error *error)
{
	uint64_t bound = probing->begin_ns + own_bound(&probing->verbs->domain->settings);
	struct transport_wait wait;
	struct error why = {0};
	int rc;

	wait_begin(&wait, probing->endpoint->domain, deadline_ns < bound ? deadline_ns : bound);
	for (;;) {
		rc = poll_once(probing, error);
		if (rc)
			return rc;
		if (!probing->left)
			return judge(probing, error);
		rc = endpoint_check_peer(probing->endpoint, false, error);
		if (rc)
			return rc;
		rc = wait_turn(&wait, &why);
		if (!rc)
			continue;
		error_copy(error, &why);
		return rc == -ERROR_INTERRUPTED ? rc : judge_missing(probing, error);
	}
}

int verbs_endpoint_probe(struct transport_endpoint *endpoint, uint64_t deadline_ns,
			 struct error *error)
{
	struct probing probing = {.endpoint = endpoint, .verbs = endpoint->state};
	char path[VERBS_LANE_TEXT_BYTES];
	struct transport_wait wait;
	int rc;

	/* probes are told apart from other requests by being alone */
	wait_begin(&wait, endpoint->domain, deadline_ns);
	rc = endpoint_drain(endpoint, "waiting for writes before probing the path to", &wait,
			    error);
	if (rc)
		return rc;
	probing.begin_ns = clock_ns();
	rc = post_probes(&probing, error);
	if (!rc)
		rc = wait_all(&probing, deadline_ns, error);
	if (!rc)
		snprintf(endpoint->path, sizeof(endpoint->path), "verbs, %s%s",
			 verbs_lane_text(&probing.verbs->lanes[0], path),
			 probing.verbs->lane_count > 1 ? ", .." : "");
	return rc;
}

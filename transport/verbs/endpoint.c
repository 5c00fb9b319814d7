/* SPDX-License-Identifier: Apache-2.0
 *
 * endpoint.c -- the life of an endpoint, but for its connection (connect.c, probe.c).
 *
 *   open    slot, a send completion queue per NIC, queue pairs to INIT       fresh numbers each time
 *   fence   queue pairs to ERR, flushed, destroyed                           nothing can land after
 *   close   queue pairs ─► completion queues ─► slot                         each needs the one after
 */
#include "transport/verbs/verbs.h"

#include "base/clock.h"
#include "base/log.h"
#include <unistd.h>

/* Room for every completion that the lanes of one NIC can have at once: a queue that overflows
 * loses some without a word on some devices. */
static int make_cqs(struct verbs_endpoint *verbs, struct error *error)
{
	const struct verbs_domain *domain = verbs->domain;
	int entries = (int)(domain->settings.qps * domain->settings.depth + 1);

	for (uint32_t i = 0; i < domain->nic_count; i++) {
		const struct verbs_nic *nic = &domain->nics[i];

		verbs->send_cqs[i] = domain->calls->create_cq(nic->context, entries, NULL, NULL);
		if (!verbs->send_cqs[i])
			return verbs_step_error(
				error, VERBS_STEP_CQ, nic->limits.name, verbs_errno(-1),
				"creating a completion queue of %d entries", entries);
	}
	return 0;
}

static int make_lanes(struct verbs_endpoint *verbs, struct error *error)
{
	struct verbs_domain *domain = verbs->domain;

	for (uint32_t i = 0; i < domain->lane_count; i++) {
		struct verbs_lane *lane = &verbs->lanes[i];
		uint32_t psn = 0;
		int rc = identity_random(&psn, sizeof(psn), "verbs", error);

		if (rc)
			return rc;
		lane->endpoint = verbs;
		lane->nic = &domain->nics[i / domain->settings.qps];
		lane->index = i;
		lane->psn = psn & 0xffffff;
		rc = verbs_lane_create(lane, error);
		if (rc)
			return rc;
		verbs->lane_count++;
	}
	return verbs_replay_reserve(verbs, error);
}

static void stop_lanes(struct verbs_endpoint *verbs)
{
	verbs_each_lane(lane, verbs)
		if (lane->qp)
			verbs_lane_stop(lane);
}

/* No queue pair of this endpoint takes a packet after this. What was in flight has come back or
 * never does, so its memory is the owner's again. */
static void destroy_lanes(struct verbs_endpoint *verbs, uint64_t deadline_ns)
{
	uint64_t bound = clock_ns() + VERBS_DRAIN_NS;

	verbs_receive_remove(verbs->domain, verbs);
	stop_lanes(verbs);
	verbs_each_lane(lane, verbs) {
		if (!lane->qp)
			continue;
		verbs_lane_drain(lane, deadline_ns < bound ? deadline_ns : bound);
		verbs_lane_destroy(lane);
	}
}

static void destroy_cqs(struct verbs_endpoint *verbs)
{
	const struct verbs_domain *domain = verbs->domain;

	for (uint32_t i = 0; i < domain->nic_count; i++) {
		if (verbs->send_cqs[i] && domain->calls->destroy_cq(verbs->send_cqs[i]))
			log_warn("verbs: %s does not let go of a completion queue",
				 domain->nics[i].limits.name);
		verbs->send_cqs[i] = NULL;
	}
}

/* A forked child frees its copies of our memory only: the devices' objects are its parent's. */
static void destroy(struct verbs_endpoint *verbs, bool own)
{
	if (own) {
		destroy_lanes(verbs, UINT64_MAX);
		destroy_cqs(verbs);
		verbs_slot_give(verbs->place);
	}
	verbs_each_lane(lane, verbs)
		memory_free(lane->ring);
	if (verbs->pidfd >= 0)
		close(verbs->pidfd);
	memory_free(verbs->replay);
	memory_free(verbs);
}

int verbs_endpoint_open(struct transport_endpoint *endpoint, struct error *error)
{
	struct verbs_domain *domain = endpoint->domain->state;
	struct verbs_endpoint *verbs;
	int rc;

	if (atomic_load(&domain->is_broken))
		return error_copy(error, &domain->broken);
	verbs = memory_zalloc(1, sizeof(*verbs));
	if (!verbs)
		return memory_error(error, "opening an endpoint", sizeof(*verbs));
	verbs->shared = endpoint;
	verbs->domain = domain;
	verbs->pidfd = -1;
	verbs->attempt = ++domain->attempts;
	rc = verbs_slot_take(domain, &verbs->place, error);
	if (rc) {
		memory_free(verbs);
		return rc;
	}
	verbs->slot = verbs_slot_at(verbs->place);
	endpoint->state = verbs;
	rc = make_cqs(verbs, error);
	if (!rc)
		rc = make_lanes(verbs, error);
	if (rc) {
		endpoint->state = NULL;
		destroy(verbs, true);
	}
	return rc;
}

static void record_nic(const struct verbs_endpoint *verbs, uint32_t index,
		       struct verbs_nic_record *out)
{
	const struct verbs_domain *domain = verbs->domain;
	const struct verbs_nic *nic = &domain->nics[index];
	const struct verbs_block *block = verbs->place.block;
	uint32_t most = domain->settings.mtu; /* both sides must come to the same path MTU */

	*out = (struct verbs_nic_record){
		.port = nic->port,
		.link = nic->link,
		.lid = nic->lid,
		.gid_index = (int32_t)nic->gid.index,
		.gid_type = nic->gid.type,
		.gid_prefix_bits = nic->gid.prefix_bits,
		.mtu = most && most < nic->mtu ? most : nic->mtu,
		.netdev_mtu = nic->netdev_mtu,
		.slot_rkey = block->mrs[index]->rkey,
		.max_read = nic->limits.max_read > 0xffff ? 0xffff : nic->limits.max_read,
	};
	/* cut names are for messages only; nothing is found by them */
	memcpy(out->device, nic->limits.name, strnlen(nic->limits.name, sizeof(out->device) - 1));
	memcpy(out->gid, nic->gid.raw, sizeof(out->gid));
	for (uint32_t q = 0; q < domain->settings.qps; q++) {
		const struct verbs_lane *lane = &verbs->lanes[index * domain->settings.qps + q];

		out->lanes[q] = (struct verbs_lane_record){lane->qp->qp_num, lane->psn};
	}
}

void verbs_endpoint_describe(const struct verbs_endpoint *verbs,
			     struct verbs_endpoint_record *record)
{
	const struct verbs_domain *domain = verbs->domain;
	const struct verbs_settings *settings = &domain->settings;

	*record = (struct verbs_endpoint_record){
		.identity = domain->self,
		.nonce = domain->nonce,
		.attempt = verbs->attempt,
		.slot_address = (uintptr_t)verbs->slot,
		.probe_address = (uintptr_t)verbs->place.block->memory,
		.timeout = settings->timeout,
		.retry = settings->retry,
		.traffic_class = domain->nics[0].traffic_class,
		.service_level = settings->service_level,
		.pkey = domain->nics[0].pkey,
		.qps = settings->qps,
		.nic_count = domain->nic_count,
	};
	for (uint32_t i = 0; i < domain->nic_count; i++)
		record_nic(verbs, i, &record->nics[i]);
}

int verbs_endpoint_record(const struct transport_endpoint *endpoint, struct record_writer *writer,
			  struct error *error)
{
	const struct verbs_endpoint *verbs = endpoint->state;
	struct verbs_endpoint_record record;

	for (uint32_t i = 0; i < verbs->lane_count; i++)
		if (!verbs->lanes[i].qp)
			return error_set(error, ERROR_STATE,
					 "the endpoint to %s was fenced: only close is left",
					 endpoint->name);
	verbs_endpoint_describe(verbs, &record);
	verbs_endpoint_record_put(writer, &record);
	return 0;
}

void verbs_endpoint_abort(struct transport_endpoint *endpoint)
{
	struct verbs_endpoint *verbs = endpoint->state;

	if (getpid() == endpoint->domain->pid)
		stop_lanes(verbs);
}

/* Needs nobody: what holds the peer's packets back is that their queue pair is gone. */
int verbs_endpoint_fence(struct transport_endpoint *endpoint, uint64_t deadline_ns,
			 struct error *error)
{
	struct verbs_endpoint *verbs = endpoint->state;
	int rc = domain_check_process(endpoint->domain, error);

	if (rc)
		return rc;
	verbs_receive(verbs->domain); /* what has arrived has arrived */
	destroy_lanes(verbs, deadline_ns);
	for (uint32_t i = 0; i < verbs->lane_count; i++)
		if (verbs->lanes[i].qp)
			return error_set(
				error, ERROR_TRANSPORT,
				"%s does not destroy queue pair %#x, so the peer may still "
				"write: end this process",
				verbs->lanes[i].nic->limits.name, verbs->lanes[i].local.qpn);
	return 0;
}

void verbs_endpoint_close(struct transport_endpoint *endpoint)
{
	destroy(endpoint->state, getpid() == endpoint->domain->pid);
}

/* Another host's processes are not to be seen from here: the controller tells of their end. */
bool verbs_peer_dead(const struct transport_endpoint *endpoint)
{
	const struct verbs_endpoint *verbs = endpoint->state;
	const struct verbs_domain *domain = verbs->domain;

	if (!verbs->connected || domain->no_identity ||
	    !identity_comparable(&verbs->peer.identity, &domain->self))
		return false;
	if (verbs->pidfd >= 0)
		return process_fd_dead(verbs->pidfd);
	return process_dead(verbs->peer.identity.pid, verbs->peer.identity.start);
}

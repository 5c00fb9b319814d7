/* SPDX-License-Identifier: Apache-2.0
 *
 * post.c -- the hot path: writes that the target counts, the signal behind them, the owner's poll.
 */
#include "transport/ofi/way.h"

#include "base/clock.h"
#include <rdma/fi_errno.h>

static struct ofi_op *take_op(struct ofi_lane *lane, enum ofi_op_kind kind, uint64_t id)
{
	struct ofi_endpoint *endpoint = lane->endpoint;
	struct ofi_op *op;

	pthread_mutex_lock(&endpoint->domain->lock);
	op = endpoint->free_ops;
	if (op) {
		endpoint->free_ops = op->next;
		lane->in_flight++;
		*op = (struct ofi_op){.lane = lane, .kind = kind, .id = id};
	}
	pthread_mutex_unlock(&endpoint->domain->lock);
	return op;
}

static void give_op(struct ofi_op *op)
{
	struct ofi_endpoint *endpoint = op->lane->endpoint;

	pthread_mutex_lock(&endpoint->domain->lock);
	op->lane->in_flight--;
	op->next = endpoint->free_ops;
	endpoint->free_ops = op;
	pthread_mutex_unlock(&endpoint->domain->lock);
}

uint32_t ofi_credit(const struct transport_endpoint *endpoint, uint32_t rail)
{
	const struct ofi_endpoint *ofi = endpoint->state;
	const struct ofi_lane *lane = &ofi->lanes[rail];
	uint32_t depth = ofi->domain->settings.depth, used;

	if (atomic_load_explicit(&lane->state, memory_order_relaxed) != OFI_LANE_READY)
		return 0;
	used = atomic_load_explicit(&lane->in_flight, memory_order_relaxed);
	return used < depth ? depth - used : 0;
}

/* One RMA write. -FI_EAGAIN: the lane is full. */
static ssize_t write_data(struct ofi_lane *lane, const void *source, uint64_t bytes, void *desc,
			  uint64_t address, uint64_t key, struct ofi_op *op)
{
	uint64_t flags = lane->endpoint->domain->way->write_flags;
	uint32_t data = lane->endpoint->peer.data + lane->index;
	struct iovec part = {.iov_base = (void *)(uintptr_t)source, .iov_len = bytes};
	struct fi_rma_iov there = {.addr = address, .len = bytes, .key = key};
	struct fi_msg_rma msg = {.msg_iov = &part,
				 .desc = &desc,
				 .iov_count = 1,
				 .addr = lane->address,
				 .rma_iov = &there,
				 .rma_iov_count = 1,
				 .context = op,
				 .data = data};

	if (!flags)
		return fi_writedata(lane->ep, source, bytes, desc, data, lane->address, address,
				    key, op);
	return fi_writemsg(lane->ep, &msg, flags | FI_COMPLETION | FI_REMOTE_CQ_DATA);
}

static ssize_t post_one(struct ofi_lane *lane, const struct provider_write *write)
{
	const struct ofi_region *region = write->region ? write->region->state : NULL;
	const struct ofi_region_record *target = write->remote->state;
	const struct ofi_key *key = &target->keys[lane->peer_rail];
	struct ofi_op *op = take_op(lane, OFI_OP_WRITE, write->id);
	ssize_t rc;

	if (!op)
		return -FI_EAGAIN;
	rc = write_data(lane, write->source, write->bytes,
			region ? region->descs[lane->rail->index] : NULL, key->base + write->offset,
			key->key, op);
	if (rc) {
		give_op(op);
		return rc;
	}
	lane->writes++;
	lane->used = true;
	return 0;
}

int ofi_post_write(struct transport_endpoint *endpoint, uint32_t rail,
		   const struct provider_write *writes, uint32_t count, uint32_t *posted,
		   struct error *error)
{
	struct ofi_endpoint *ofi = endpoint->state;
	struct ofi_lane *lane = &ofi->lanes[rail];

	*posted = 0;
	while (*posted < count) {
		ssize_t rc = atomic_load(&lane->state) == OFI_LANE_READY
				     ? post_one(lane, &writes[*posted])
				     : -FI_EAGAIN; /* the poll tells why */

		if (rc == -FI_EAGAIN)
			break;
		if (rc)
			return ofi_lane_error(error, lane, (int)-rc);
		++*posted;
	}
	return 0;
}

/* ---- messages ---- */

/* On one lane; complete when the peer has it. 1: the lane is full. */
static int send_message(struct ofi_lane *lane, const struct ofi_message *message,
			enum ofi_op_kind kind, uint64_t id, struct error *error)
{
	struct ofi_op *op = &lane->send;
	struct iovec part = {.iov_base = op->message, .iov_len = sizeof(*op->message)};
	void *desc = lane->endpoint->message_descs[lane->rail->index];
	struct fi_msg msg = {.msg_iov = &part,
			     .desc = &desc,
			     .iov_count = 1,
			     .addr = lane->address,
			     .context = op};
	ssize_t rc;

	*op->message = *message;
	op->kind = kind;
	op->id = id;
	rc = fi_sendmsg(lane->ep, &msg, FI_COMPLETION | FI_DELIVERY_COMPLETE);
	if (rc == -FI_EAGAIN)
		return 1;
	return rc ? ofi_lane_error(error, lane, (int)-rc) : 0;
}

static void count_signals(struct ofi_endpoint *endpoint, int change)
{
	pthread_mutex_lock(&endpoint->domain->lock);
	endpoint->signals_left += (uint32_t)change;
	pthread_mutex_unlock(&endpoint->domain->lock);
}

static int lane_ready(const struct ofi_lane *lane, struct error *error)
{
	struct ofi_domain *domain = lane->endpoint->domain;
	int rc = 0;

	if (atomic_load(&lane->state) == OFI_LANE_READY)
		return 0;
	pthread_mutex_lock(&domain->lock);
	rc = ofi_lane_error(error, lane, lane->lost_errnum);
	pthread_mutex_unlock(&domain->lock);
	return rc;
}

/* Those that carried writes since the last signal; one that lives where none did. */
static uint32_t carriers(const struct ofi_endpoint *ofi)
{
	uint32_t used = ofi_lanes_used(ofi), all = 0, live = 0;

	for (uint32_t i = used; i-- > 0;) {
		if (ofi->lanes[i].used)
			all |= 1u << i;
		if (ofi->lanes[i].state == OFI_LANE_READY)
			live = 1u << i;
	}
	return all ? all : live ? live : 1;
}

/* 1: a lane is full; the shared layer polls and asks again, and it goes on there. */
static int post_signals(struct ofi_endpoint *ofi, const struct ofi_message *message, uint64_t id,
			struct error *error)
{
	for (; ofi->signal_lane < message->lanes; ofi->signal_lane++) {
		struct ofi_lane *lane = &ofi->lanes[ofi->signal_lane];
		int rc;

		if (!(message->carriers & 1u << ofi->signal_lane))
			continue;
		rc = lane_ready(lane, error);
		if (rc)
			return rc;
		count_signals(ofi, 1);
		rc = send_message(lane, message, OFI_OP_SIGNAL, id, error);
		if (rc) {
			count_signals(ofi, -1);
			return rc;
		}
		lane->used = false;
	}
	return 0;
}

static void begin_signal(struct ofi_endpoint *ofi)
{
	if (ofi->signalling)
		return;
	ofi->signalling = true;
	ofi->signal_lane = 0;
	ofi->signal_carriers = carriers(ofi);
	/* one more, so that it is not complete while it is still being posted */
	count_signals(ofi, 1);
}

int ofi_post_signal(struct transport_endpoint *endpoint, uint64_t id,
		    const struct transport_signal *signal, struct error *error)
{
	struct ofi_endpoint *ofi = endpoint->state;
	struct ofi_message message = {.kind = OFI_MESSAGE_SIGNAL,
				      .tag = signal->tag,
				      .length = signal->length,
				      .lanes = ofi_lanes_used(ofi),
				      .sequence = signal->sequence};
	int rc;

	begin_signal(ofi);
	message.carriers = ofi->signal_carriers;
	memcpy(message.payload, signal->payload, sizeof(message.payload));
	for (uint32_t i = 0; i < message.lanes; i++)
		message.writes[i] = ofi->lanes[i].writes;
	rc = post_signals(ofi, &message, id, error);
	if (rc)
		return rc;
	ofi->signalling = false;
	pthread_mutex_lock(&ofi->domain->lock);
	if (--ofi->signals_left == 0) {
		/* all of them were quicker than this thread */
		uint32_t at = (ofi->done_head + ofi->done_count++) % ofi->done_capacity;

		ofi->done[at].id = id;
		ofi->done[at].rc = 0;
	}
	pthread_mutex_unlock(&ofi->domain->lock);
	return 0;
}

/* As long a write as packets get. 1: the lane is full. */
static int write_probe(struct ofi_lane *lane, struct error *error)
{
	struct ofi_rail *rail = lane->rail;
	const struct ofi_rail_record *peer = ofi_lane_peer(lane);
	struct ofi_op *op = take_op(lane, OFI_OP_PROBE, 0);
	ssize_t rc;

	if (!op)
		return error_set(error, ERROR_STATE, "the endpoint to %s has writes in flight",
				 lane->endpoint->shared->name);
	rc = write_data(lane, rail->domain->probe.memory, OFI_PROBE_BYTES,
			ofi_rail_needs_local(rail) ? fi_mr_desc(rail->probe_mr) : NULL,
			peer->probe_base + OFI_PROBE_BYTES, peer->probe_key, op);
	if (rc)
		give_op(op);
	else
		lane->writes++;
	if (rc == -FI_EAGAIN)
		return 1;
	return rc ? ofi_lane_error(error, lane, (int)-rc) : 0;
}

/* A long write and a message behind it: a path that loses large packets alone is found here, not in
 * the first update. */
int ofi_lane_probe(struct ofi_lane *lane, struct error *error)
{
	const struct ofi_message message = {.kind = OFI_MESSAGE_PROBE};
	int rc = 0;

	if (lane->probe != OFI_PROBE_POSTED)
		rc = lane_ready(lane, error);
	if (!rc && lane->probe == OFI_PROBE_TO_WRITE) {
		rc = write_probe(lane, error);
		if (!rc)
			lane->probe = OFI_PROBE_TO_SEND;
	}
	if (!rc && lane->probe == OFI_PROBE_TO_SEND) {
		rc = send_message(lane, &message, OFI_OP_PROBE, 0, error);
		if (!rc)
			lane->probe = OFI_PROBE_POSTED;
	}
	return rc < 0 ? rc : 0;
}

/* ---- poll ---- */

/* What has completed is told first; a failure after it, and when no lane is left to post on. */
static int failure(const struct ofi_endpoint *ofi, struct error *error)
{
	uint32_t used = ofi_lanes_used(ofi);

	if (ofi->failure.code)
		return error_copy(error, &ofi->failure);
	for (uint32_t i = 0; i < used; i++)
		if (ofi->lanes[i].state != OFI_LANE_DEAD)
			return 0;
	return used ? ofi_lane_error(error, &ofi->lanes[0], ofi->lanes[0].lost_errnum) : 0;
}

int ofi_poll(struct transport_endpoint *endpoint, struct provider_completion *out, int max,
	     struct error *error)
{
	struct ofi_endpoint *ofi = endpoint->state;
	struct ofi_domain *domain = ofi->domain;
	int n = 0, rc = 0;

	for (uint32_t i = 0; i < ofi->lane_count; i++)
		if (ofi->lanes[i].rail)
			ofi_rail_progress(ofi->lanes[i].rail);
	pthread_mutex_lock(&domain->lock);
	while (n < max && ofi->done_count && !ofi->done[ofi->done_head].rc) {
		out[n++] = (struct provider_completion){
			.id = ofi->done[ofi->done_head].id,
		};
		ofi->done_head = (ofi->done_head + 1) % ofi->done_capacity;
		ofi->done_count--;
	}
	if (!n)
		rc = failure(ofi, error);
	pthread_mutex_unlock(&domain->lock);
	return rc ? rc : n;
}

int ofi_signal_read(const struct transport_endpoint *endpoint, struct transport_signal *signal)
{
	struct ofi_endpoint *ofi = endpoint->state;

	return mailbox_load(&ofi->slot, signal);
}

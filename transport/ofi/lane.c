/* SPDX-License-Identifier: Apache-2.0
 *
 * lane.c -- the fid_ep of one lane: opened with its receives, closed so that nothing of it is left.
 */
#include "transport/ofi/way.h"

#include "base/log.h"
#include <rdma/fi_errno.h>

static int bind_queues(struct ofi_lane *lane, struct error *error)
{
	struct ofi_rail *rail = lane->rail;
	struct fid *other = rail->eq ? &rail->eq->fid : &rail->av->fid;
	int rc = fi_ep_bind(lane->ep, &rail->cq->fid, FI_TRANSMIT | FI_RECV);

	if (!rc)
		rc = fi_ep_bind(lane->ep, other, 0);
	if (!rc)
		rc = fi_enable(lane->ep);
	return rc ? ofi_error(error, rail->domain, -rc, "setting up a stream on %s",
			      rail->interface.name)
		  : 0;
}

static struct ofi_message *message_at(const struct ofi_lane *lane, uint32_t which)
{
	struct ofi_message *all = lane->endpoint->messages.memory;

	return &all[lane->index * OFI_MESSAGES + which];
}

int ofi_lane_receive(struct ofi_lane *lane, struct ofi_op *op)
{
	ssize_t rc = fi_recv(lane->ep, op->message, sizeof(*op->message),
			     lane->endpoint->message_descs[lane->rail->index], FI_ADDR_UNSPEC, op);

	if (rc)
		ofi_lane_lost(lane, (int)-rc);
	return (int)rc;
}

static int post_receives(struct ofi_lane *lane, struct error *error)
{
	for (uint32_t i = 0; i < OFI_RECEIVES; i++) {
		struct ofi_op *op = &lane->receives[i];
		ssize_t rc;

		*op = (struct ofi_op){
			.lane = lane, .kind = OFI_OP_RECEIVE, .message = message_at(lane, 2 + i)};
		rc = fi_recv(lane->ep, op->message, sizeof(*op->message),
			     lane->endpoint->message_descs[lane->rail->index], FI_ADDR_UNSPEC, op);
		if (rc)
			return ofi_error(error, lane->rail->domain, (int)-rc, "receiving on %s",
					 lane->rail->interface.name);
	}
	lane->send = (struct ofi_op){.lane = lane, .message = message_at(lane, 0)};
	lane->tell =
		(struct ofi_op){.lane = lane, .kind = OFI_OP_LOST, .message = message_at(lane, 1)};
	return 0;
}

int ofi_lane_open(struct ofi_lane *lane, struct fi_info *info, struct error *error)
{
	struct ofi_rail *rail = lane->rail;
	int rc = fi_endpoint(rail->access, info, &lane->ep, lane);

	if (rc) {
		lane->ep = NULL;
		return ofi_error(error, rail->domain, -rc, "a stream on %s", rail->interface.name);
	}
	rc = bind_queues(lane, error);
	if (!rc)
		rc = post_receives(lane, error);
	if (rc) {
		fi_close(&lane->ep->fid);
		lane->ep = NULL;
	}
	return rc;
}

/* What closing leaves in the queue of completions is taken out while nobody else reads it. */
static void close_lane(struct ofi_lane *lane)
{
	struct ofi_rail *rail = lane->rail;

	pthread_mutex_lock(&rail->lock);
	ofi_lane_lost(lane, FI_ESHUTDOWN);
	if (lane->ep && fi_close(&lane->ep->fid))
		log_warn("%s: %s does not let go of a stream", rail->domain->name,
			 rail->interface.name);
	lane->ep = NULL;
	rail->domain->way->forget(lane);
	ofi_rail_drain(rail);
	pthread_mutex_unlock(&rail->lock);
}

void ofi_lanes_close(struct ofi_endpoint *endpoint)
{
	struct ofi_domain *domain = endpoint->domain;

	pthread_mutex_lock(&domain->lock);
	if (!endpoint->closing && !endpoint->failure.code)
		error_set(&endpoint->failure, ERROR_STATE,
			  "the streams to %s were closed on this side", endpoint->shared->name);
	endpoint->closing = true; /* no thread takes a lane after this */
	pthread_mutex_unlock(&domain->lock);
	ofi_each_lane(lane, endpoint)
		if (lane->rail)
			close_lane(lane);
	pthread_mutex_lock(&domain->lock);
	ofi_each_lane(lane, endpoint)
		if (lane->rail)
			ofi_lane_forgets(lane);
	pthread_mutex_unlock(&domain->lock);
}

uint32_t ofi_lanes_used(const struct ofi_endpoint *endpoint)
{
	uint32_t theirs = endpoint->peer.rail_count;

	return endpoint->lane_count < theirs ? endpoint->lane_count : theirs;
}

const struct ofi_rail_record *ofi_lane_peer(const struct ofi_lane *lane)
{
	return &lane->endpoint->peer.rails[lane->peer_rail];
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * lost.c -- a lane is lost: its end here is closed and the peer is told, each by who holds the lock of the
 * rail it is on. So it needs no call of the host's, on either side.
 *
 *   READY ─► DEAD ─ closed here, its queue read to the end: nothing of it lands, `arrived` is final
 *                └► told by a lane that lives, by another one if that is lost too
 *                     the peer's word of its end may come before or after, and makes the lane DEAD too
 */
#include "transport/ofi/way.h"

#include "base/log.h"
#include <rdma/fi_errno.h>

void ofi_mend_wanted(struct ofi_domain *domain)
{
	ofi_each_rail(rail, domain) {
		atomic_store(&rail->mend, true);
		ofi_thread_wake(rail);
	}
}

/* Lets go of domain->lock meanwhile; the endpoint stays, since who closes it comes by rail->lock. */
static void close_lost(struct ofi_lane *lane)
{
	struct ofi_endpoint *endpoint = lane->endpoint;
	struct ofi_domain *domain = endpoint->domain;
	struct ofi_rail *rail = lane->rail;

	if (atomic_load(&lane->posting)) {
		atomic_store(&rail->mend, true); /* the owner is about to notice: soon */
		return;
	}
	pthread_mutex_unlock(&domain->lock);
	if (lane->ep && fi_close(&lane->ep->fid))
		log_warn("%s: %s does not let go of a stream", domain->name, rail->interface.name);
	lane->ep = NULL;
	domain->way->forget(lane);
	ofi_rail_drain(rail);
	pthread_mutex_lock(&domain->lock);
	ofi_lane_returned(lane);
	lane->closed = true;
	endpoint->gone |= 1u << lane->index;
	ofi_mend_wanted(domain);
}

static void tell(struct ofi_lane *lane)
{
	struct ofi_endpoint *endpoint = lane->endpoint;
	struct ofi_op *op = &lane->tell;
	struct iovec part = {.iov_base = op->message, .iov_len = sizeof(*op->message)};
	void *desc = endpoint->message_descs[lane->rail->index];
	struct fi_msg msg = {.msg_iov = &part,
			     .desc = &desc,
			     .iov_count = 1,
			     .addr = lane->address,
			     .context = op};
	ssize_t rc;

	*op->message = endpoint->complete;
	op->message->kind = OFI_MESSAGE_LOST;
	op->message->lanes = ofi_lanes_used(endpoint);
	op->message->carriers = endpoint->gone;
	op->message->complete = endpoint->complete.sequence;
	op->message->sequence = endpoint->shown;
	ofi_each_lane(other, endpoint)
		op->message->writes[other->index] = other->arrived;
	op->posted = true;
	endpoint->gone_telling = endpoint->gone;
	rc = fi_sendmsg(lane->ep, &msg, FI_COMPLETION | FI_DELIVERY_COMPLETE);
	if (!rc)
		return;
	op->posted = false;
	endpoint->gone_telling = 0;
	if (rc == -FI_EAGAIN)
		atomic_store(&lane->rail->mend, true);
	else
		ofi_lane_lost_locked(lane, (int)-rc);
}

static void mend_lane(struct ofi_lane *lane)
{
	struct ofi_endpoint *endpoint = lane->endpoint;

	if (lane->state == OFI_LANE_DEAD && !lane->closed)
		close_lost(lane);
	else if (lane->state == OFI_LANE_READY && !endpoint->gone_telling &&
		 endpoint->gone & ~endpoint->gone_told)
		tell(lane);
}

void ofi_rail_mend(struct ofi_rail *rail)
{
	struct ofi_domain *domain = rail->domain;

	atomic_store(&rail->mend, false);
	pthread_mutex_lock(&domain->lock);
	for (size_t i = 0; i < domain->endpoints.count; i++) {
		struct ofi_endpoint *endpoint = domain->endpoints.items[i];

		for (uint32_t l = 0; endpoint && l < endpoint->lane_count; l++)
			if (endpoint->connected && !endpoint->closing &&
			    endpoint->lanes[l].rail == rail)
				mend_lane(&endpoint->lanes[l]);
	}
	pthread_mutex_unlock(&domain->lock);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * replay.c -- what a lost lane had not brought there goes out again; the owner does it in its polls.
 *
 *   lane 1  told .. [ done | W4 W5 W6 ] .. writes      both ends closed, the peer has counted 4:
 *                            │  └──┴── posted on lanes that live     settled; signals say 4 of it
 *                            └── was there
 *   signal  in flight meanwhile: another round of it, once these are posted and the last round is over
 */
#include "transport/ofi/way.h"

#include "base/log.h"
#include "base/text.h"
#include <rdma/fi_errno.h>

struct moved {
	uint32_t count;
	uint64_t bytes;
};

/* Whether its count for this lane, or its message by it, may never be there. On a stream a message that was taken
 * is there; without an order closing the lane may have taken what would have told of it. */
static bool needs_anew(const struct ofi_lane *lane)
{
	const struct ofi_endpoint *endpoint = lane->endpoint;

	return endpoint->signalling && endpoint->signal.sequence > lane->peer_shown &&
	       (!endpoint->domain->stream || lane->peer_counted != lane->writes);
}

/* In order they have counted the first ones; else it is not known which, unless all were. */
static void settle_writes(struct ofi_lane *lane, struct moved *moved)
{
	uint32_t counted = lane->peer_counted;

	if (lane->endpoint->domain->stream || counted == lane->writes)
		ofi_lane_told(lane, counted);
	for (uint32_t at = lane->told; at != lane->writes; at++) {
		const struct ofi_op *op = ofi_lane_op(lane, at);

		moved->count += !op->told;
		moved->bytes += op->told ? 0 : op->write.bytes;
	}
	if (needs_anew(lane))
		lane->endpoint->replay_signal = true;
}

static void settle(struct ofi_lane *lane)
{
	struct ofi_endpoint *endpoint = lane->endpoint;
	struct moved moved = {0};
	char bytes[TEXT_SHORT_BYTES];

	if (!lane->given_up)
		lane->peer_counted = lane->writes; /* all are told of */
	/* a stream's word was given for what was counted */
	if (lane->writes - lane->peer_counted >
	    (endpoint->domain->stream ? lane->writes - lane->told : INT32_MAX)) {
		error_set(&endpoint->failure, ERROR_MESSAGE,
			  "%s says that it has counted %u writes of stream %u, of which %u were "
			  "posted and %u known to be there: it is no peer of this version",
			  endpoint->shared->name, lane->peer_counted, lane->index, lane->writes,
			  lane->told);
		return;
	}
	settle_writes(lane, &moved);
	lane->settled = true;
	lane->used = false;
	log_warn(
		"stream %u to %s (%s) is lost: %s; %u of its writes (%s) go out again on the other "
		"streams",
		lane->index, endpoint->shared->name, lane->path, ofi_strerror(lane->lost_errnum),
		moved.count, bytes_text(moved.bytes, bytes));
}

/* On a stream what is told of is counted. */
static bool nothing_left(const struct ofi_lane *lane)
{
	return lane->endpoint->domain->stream && lane->told == lane->writes;
}

/* Lanes whose end is known on both sides, or with nothing on them. False: there are others yet. */
static bool settle_all(struct ofi_endpoint *endpoint)
{
	bool all = true;

	pthread_mutex_lock(&endpoint->domain->lock);
	ofi_each_lane(lane, endpoint) {
		if (lane->state != OFI_LANE_DEAD || lane->settled)
			continue;
		if (lane->closed && (lane->given_up || nothing_left(lane)))
			settle(lane);
		all = all && lane->settled;
	}
	pthread_mutex_unlock(&endpoint->domain->lock);
	return all;
}

static bool post_anywhere(struct ofi_endpoint *endpoint, const struct provider_write *write)
{
	struct ofi_lane *best = NULL;

	ofi_each_lane(lane, endpoint) {
		uint32_t credit = ofi_lane_credit(lane);

		if (credit && (!best || credit > ofi_lane_credit(best)))
			best = lane;
	}
	return best && ofi_lane_write(best, write);
}

/* False: not all of them yet. */
static bool post_again(struct ofi_lane *lane)
{
	struct ofi_endpoint *endpoint = lane->endpoint;

	for (; lane->told != lane->writes; lane->told++) {
		const struct ofi_op *op = ofi_lane_op(lane, lane->told);

		if (op->told)
			continue;
		if (!post_anywhere(endpoint, &op->write))
			return false;
		endpoint->quiet = 0;
		pthread_mutex_lock(&endpoint->domain->lock);
		endpoint->writes_left--; /* it is left on its new lane */
		traffic_past(lane->rail->traffic, op->write.bytes, false);
		pthread_mutex_unlock(&endpoint->domain->lock);
	}
	return true;
}

static bool signal_is_over(struct ofi_endpoint *endpoint, bool *again)
{
	bool over;

	pthread_mutex_lock(&endpoint->domain->lock);
	ofi_signal_finish(endpoint); /* it may have waited for nothing but that lanes are settled */
	*again = endpoint->signalling && endpoint->replay_signal;
	over = !endpoint->signal_to_post && !endpoint->signals_left;
	pthread_mutex_unlock(&endpoint->domain->lock);
	return over;
}

void ofi_replay(struct ofi_endpoint *endpoint)
{
	bool all, over, again;

	/* before looking: a lane that is lost meanwhile sets it again */
	atomic_store(&endpoint->mending, false);
	all = settle_all(endpoint);
	ofi_each_lane(lane, endpoint)
		if (lane->settled)
			all = post_again(lane) && all;
	over = signal_is_over(endpoint, &again);
	if (all && over && again)
		ofi_signal_round(endpoint);
	else if (!all || again)
		atomic_store(&endpoint->mending, true);
}

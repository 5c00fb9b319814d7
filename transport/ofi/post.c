/* SPDX-License-Identifier: Apache-2.0
 *
 * post.c -- the hot path: writes that the target counts, the signal behind them, the owner's poll.
 */
#include "transport/ofi/way.h"

#include <rdma/fi_errno.h>

#define COVERS_OF_DEPTH 2 /* in so many parts of the depth one write asks for the peer's word */
#define ASK_AFTER	2 /* polls that found nothing */

/* The next place of the lane's ring, whose number is the write's. NULL: none is free, or it is lost. */
static struct ofi_op *take_op(struct ofi_lane *lane, enum ofi_op_kind kind,
			      const struct provider_write *write, bool covers)
{
	struct ofi_endpoint *endpoint = lane->endpoint;
	struct ofi_op *op = ofi_lane_op(lane, lane->writes);

	pthread_mutex_lock(&endpoint->domain->lock);
	if (lane->state != OFI_LANE_READY || op->posted ||
	    lane->writes - lane->told >= endpoint->op_count) {
		op = NULL;
	} else {
		*op = (struct ofi_op){.lane = lane,
				      .kind = kind,
				      .is_write = true,
				      .posted = true,
				      .covers = covers,
				      .upto = ++lane->writes};
		if (write)
			op->write = *write;
		lane->in_flight++;
		endpoint->writes_left += kind == OFI_OP_WRITE;
		traffic_posts(lane->rail->traffic, op->write.bytes);
		atomic_store(&lane->posting, true);
	}
	pthread_mutex_unlock(&endpoint->domain->lock);
	return op;
}

/* It was not posted, so nothing is behind it. */
static void give_op(struct ofi_op *op)
{
	struct ofi_lane *lane = op->lane;
	struct ofi_endpoint *endpoint = lane->endpoint;

	pthread_mutex_lock(&endpoint->domain->lock);
	op->posted = false;
	lane->writes--;
	lane->in_flight--;
	endpoint->writes_left -= op->kind == OFI_OP_WRITE;
	traffic_past(lane->rail->traffic, op->write.bytes, false);
	atomic_store(&lane->posting, false);
	pthread_mutex_unlock(&endpoint->domain->lock);
}

uint32_t ofi_lane_credit(const struct ofi_lane *lane)
{
	const struct ofi_endpoint *endpoint = lane->endpoint;
	uint32_t depth = endpoint->domain->settings.depth, used, held;

	if (atomic_load_explicit(&lane->state, memory_order_relaxed) != OFI_LANE_READY)
		return 0;
	used = atomic_load_explicit(&lane->in_flight, memory_order_relaxed);
	held = lane->writes - atomic_load_explicit(&lane->told, memory_order_relaxed);
	if (used >= depth || held >= endpoint->op_count)
		return 0;
	return depth - used < endpoint->op_count - held ? depth - used : endpoint->op_count - held;
}

uint32_t ofi_credit(const struct transport_endpoint *endpoint, uint32_t rail)
{
	const struct ofi_endpoint *ofi = endpoint->state;

	return ofi_lane_credit(&ofi->lanes[rail]);
}

/* One RMA write. -FI_EAGAIN: the lane is full. */
static ssize_t write_data(struct ofi_lane *lane, const void *source, uint64_t bytes, void *desc,
			  uint64_t address, uint64_t key, struct ofi_op *op)
{
	uint64_t flags = op->covers ? FI_DELIVERY_COMPLETE : 0;
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

/* Whether its completion is to be the peer's word that it is there: on a stream one in several, for all before
 * it. Else each for itself: a signal counts writes without knowing which, so none of the next signal's may be
 * under way before all of its own are there. */
static bool must_cover(const struct ofi_lane *lane)
{
	const struct ofi_domain *domain = lane->endpoint->domain;

	return !domain->stream ||
	       lane->writes + 1 - lane->covered >= domain->settings.depth / COVERS_OF_DEPTH;
}

/* After a call that posts on the lane: 0, or what libfabric said. */
static bool posted_on(struct ofi_lane *lane, ssize_t rc, uint32_t covered)
{
	atomic_store(&lane->posting, false);
	if (!rc)
		lane->covered = covered;
	else if (rc != -FI_EAGAIN)
		ofi_lane_lost(lane, (int)-rc);
	return !rc;
}

bool ofi_lane_write(struct ofi_lane *lane, const struct provider_write *write)
{
	const struct ofi_region *region = write->region ? write->region->state : NULL;
	const struct ofi_region_record *target = write->remote->state;
	const struct ofi_key *key = &target->keys[lane->peer_rail];
	struct ofi_op *op = take_op(lane, OFI_OP_WRITE, write, must_cover(lane));
	bool covers;
	ssize_t rc;

	if (!op)
		return false;
	covers = op->covers;
	rc = write_data(lane, write->source, write->bytes,
			region ? region->descs[lane->rail->index] : NULL, key->base + write->offset,
			key->key, op);
	if (rc)
		give_op(op);
	else
		lane->used = true;
	return posted_on(lane, rc, covers ? lane->writes : lane->covered);
}

int ofi_post_write(struct transport_endpoint *endpoint, uint32_t rail,
		   const struct provider_write *writes, uint32_t count, uint32_t *posted,
		   struct error *error)
{
	struct ofi_endpoint *ofi = endpoint->state;

	(void)error; /* a lane that takes nothing any more is the poll's to tell */
	*posted = 0;
	while (*posted < count && ofi_lane_write(&ofi->lanes[rail], &writes[*posted]))
		++*posted;
	if (*posted)
		ofi->quiet = 0;
	return 0;
}

/* ---- messages ---- */

static bool take_send(struct ofi_lane *lane, enum ofi_op_kind kind)
{
	struct ofi_endpoint *endpoint = lane->endpoint;
	struct ofi_op *op = &lane->send;
	bool taken;

	pthread_mutex_lock(&endpoint->domain->lock);
	taken = lane->state == OFI_LANE_READY && !op->posted;
	if (taken) {
		op->kind = kind;
		op->posted = op->covers = true;
		op->upto = lane->writes;
		endpoint->signals_left += kind == OFI_OP_SIGNAL;
		atomic_store(&lane->posting, true);
	}
	pthread_mutex_unlock(&endpoint->domain->lock);
	return taken;
}

static void give_send(struct ofi_lane *lane)
{
	struct ofi_endpoint *endpoint = lane->endpoint;

	pthread_mutex_lock(&endpoint->domain->lock);
	lane->send.posted = false;
	endpoint->signals_left -= lane->send.kind == OFI_OP_SIGNAL;
	pthread_mutex_unlock(&endpoint->domain->lock);
}

/* Complete when the peer has it. False: the lane does not take it now, or is lost. */
static bool send_message(struct ofi_lane *lane, const struct ofi_message *message,
			 enum ofi_op_kind kind)
{
	struct ofi_op *op = &lane->send;
	struct iovec part = {.iov_base = op->message, .iov_len = sizeof(*op->message)};
	struct fi_msg msg = {.msg_iov = &part, .iov_count = 1, .context = op};
	void *desc;
	ssize_t rc;

	if (!take_send(lane, kind))
		return false;
	/* the lane's own only from here on: who closes a lost one forgets its address */
	desc = lane->endpoint->message_descs[lane->rail->index];
	msg.desc = &desc;
	msg.addr = lane->address;
	*op->message = *message;
	rc = fi_sendmsg(lane->ep, &msg, FI_COMPLETION | FI_DELIVERY_COMPLETE);
	if (rc)
		give_send(lane);
	return posted_on(lane, rc, lane->writes);
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

static bool is_lost(const struct ofi_lane *lane)
{
	return atomic_load(&lane->state) == OFI_LANE_DEAD;
}

/* What a lane does not take now it takes at a later poll. */
static void post_signals(struct ofi_endpoint *ofi)
{
	for (uint32_t i = 0; i < ofi->signal.lanes; i++) {
		struct ofi_lane *lane = &ofi->lanes[i];
		bool sent;

		if (!(ofi->signal_to_post & 1u << i))
			continue;
		sent = send_message(lane, &ofi->signal, OFI_OP_SIGNAL);
		if (!sent && !is_lost(lane))
			continue;
		pthread_mutex_lock(&ofi->domain->lock);
		ofi->signal_to_post &= ~(1u << i);
		if (sent)
			lane->used = false;
		else
			ofi_signal_fails(ofi);
		ofi_signal_finish(ofi); /* all of it may have been quicker than this thread */
		pthread_mutex_unlock(&ofi->domain->lock);
	}
}

void ofi_signal_round(struct ofi_endpoint *ofi)
{
	struct ofi_message *message = &ofi->signal;

	pthread_mutex_lock(&ofi->domain->lock);
	message->round++;
	message->lanes = ofi_lanes_used(ofi);
	message->carriers = ofi->signal_to_post = carriers(ofi);
	for (uint32_t i = 0; i < message->lanes; i++)
		message->writes[i] =
			ofi->lanes[i].settled ? ofi->lanes[i].peer_counted : ofi->lanes[i].writes;
	ofi->signalling = true;
	ofi->replay_signal = false;
	pthread_mutex_unlock(&ofi->domain->lock);
	post_signals(ofi);
}

int ofi_post_signal(struct transport_endpoint *endpoint, uint64_t id,
		    const struct transport_signal *signal, struct error *error)
{
	struct ofi_endpoint *ofi = endpoint->state;
	bool busy;

	(void)error;
	pthread_mutex_lock(&ofi->domain->lock);
	busy = ofi->signalling || atomic_load(&ofi->mending);
	pthread_mutex_unlock(&ofi->domain->lock);
	if (busy)
		return 1; /* writes before it, or the last signal, have to go out again first */
	ofi->signal = (struct ofi_message){.kind = OFI_MESSAGE_SIGNAL,
					   .tag = signal->tag,
					   .length = signal->length,
					   .sequence = signal->sequence};
	memcpy(ofi->signal.payload, signal->payload, sizeof(ofi->signal.payload));
	ofi->signal_id = id;
	ofi_signal_round(ofi);
	return 0;
}

/* Everything is sent and nothing asks for the peer's word: somebody waits for it. */
static void ask(struct ofi_endpoint *ofi)
{
	const struct ofi_message message = {.kind = OFI_MESSAGE_PROBE};

	ofi_each_lane(lane, ofi)
		if (lane->covered != lane->writes && !atomic_load(&lane->in_flight) &&
		    !is_lost(lane))
			send_message(lane, &message, OFI_OP_ASK);
}

/* As long a write as packets get. 1: the lane is full. */
static int write_probe(struct ofi_lane *lane, struct error *error)
{
	struct ofi_rail *rail = lane->rail;
	const struct ofi_rail_record *peer = ofi_lane_peer(lane);
	struct ofi_op *op = take_op(lane, OFI_OP_PROBE, NULL, !rail->domain->stream);
	ssize_t rc;

	if (!op)
		return is_lost(lane) ? ofi_lane_error(error, lane, lane->lost_errnum) : 1;
	rc = write_data(lane, rail->domain->probe.memory, OFI_PROBE_BYTES,
			ofi_rail_needs_local(rail) ? fi_mr_desc(rail->probe_mr) : NULL,
			peer->probe_base + OFI_PROBE_BYTES, peer->probe_key, op);
	if (rc)
		give_op(op);
	posted_on(lane, rc, lane->covered);
	if (rc == -FI_EAGAIN)
		return 1;
	return rc ? ofi_lane_error(error, lane, (int)-rc) : 0;
}

static int lane_ready(const struct ofi_lane *lane, struct error *error)
{
	return atomic_load(&lane->state) == OFI_LANE_READY
		       ? 0
		       : ofi_lane_error(error, lane, lane->lost_errnum);
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
		if (send_message(lane, &message, OFI_OP_PROBE))
			lane->probe = OFI_PROBE_POSTED;
		else
			rc = lane_ready(lane, error);
	}
	return rc < 0 ? rc : 0;
}

/* ---- poll ---- */

/* What has completed is told first; a failure after it, and when no lane is left to post on. */
static int failure(const struct ofi_endpoint *ofi, struct error *error)
{
	const struct ofi_lane *last = &ofi->lanes[ofi->lost_last];
	uint32_t used = ofi_lanes_used(ofi);

	if (ofi->failure.code)
		return error_copy(error, &ofi->failure);
	for (uint32_t i = 0; i < used; i++)
		if (ofi->lanes[i].state != OFI_LANE_DEAD)
			return 0;
	return used ? ofi_lane_error(error, last, last->lost_errnum) : 0;
}

static int take_done(struct ofi_endpoint *ofi, struct provider_completion *out, int max)
{
	int n = 0;

	while (n < max && ofi->done_count) {
		out[n++] = (struct provider_completion){.id = ofi->done[ofi->done_head]};
		ofi->done_head = (ofi->done_head + 1) % ofi->done_capacity;
		ofi->done_count--;
	}
	return n;
}

int ofi_poll(struct transport_endpoint *endpoint, struct provider_completion *out, int max,
	     struct error *error)
{
	struct ofi_endpoint *ofi = endpoint->state;
	struct ofi_domain *domain = ofi->domain;
	int n, rc = 0;

	for (uint32_t i = 0; i < ofi->lane_count; i++)
		if (ofi->lanes[i].rail)
			ofi_rail_progress(ofi->lanes[i].rail);
	if (atomic_load_explicit(&ofi->mending, memory_order_relaxed))
		ofi_replay(ofi);
	if (ofi->signal_to_post)
		post_signals(ofi);
	pthread_mutex_lock(&domain->lock);
	n = take_done(ofi, out, max);
	if (!n)
		rc = failure(ofi, error);
	ofi->quiet = n || !ofi->writes_left || ofi->signalling ? 0 : ofi->quiet + 1;
	pthread_mutex_unlock(&domain->lock);
	if (!rc && ofi->quiet >= ASK_AFTER)
		ask(ofi);
	return rc ? rc : n;
}

int ofi_signal_read(const struct transport_endpoint *endpoint, struct transport_signal *signal)
{
	struct ofi_endpoint *ofi = endpoint->state;

	return mailbox_load(&ofi->slot, signal);
}

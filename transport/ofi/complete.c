/* SPDX-License-Identifier: Apache-2.0
 *
 * complete.c -- what a completion means: one of ours is done, a write of the peer's has landed, a
 * message has come. Everything here is under domain->lock, for moments.
 */
#include "transport/ofi/way.h"

#include "base/log.h"
#include <rdma/fi_errno.h>

/* ---- for the owner's poll ---- */

static void done(struct ofi_endpoint *endpoint, uint64_t id)
{
	uint32_t at = (endpoint->done_head + endpoint->done_count) % endpoint->done_capacity;

	endpoint->done[at] = id;
	endpoint->done_count++; /* as many places as there can be posts */
}

void ofi_lane_lost_locked(struct ofi_lane *lane, int errnum)
{
	struct ofi_endpoint *endpoint = lane->endpoint;

	if (lane->state == OFI_LANE_DEAD)
		return;
	lane->lost_errnum = errnum;
	lane->state = OFI_LANE_DEAD;
	endpoint->lost_last = lane->index;
	atomic_store(&endpoint->shared->impaired, true);
	if (!endpoint->connected || endpoint->closing)
		return;
	atomic_store(&endpoint->mending, true);
	ofi_mend_wanted(endpoint->domain);
}

/* Where other lanes cannot help. */
static void fail(struct ofi_lane *lane)
{
	struct ofi_endpoint *endpoint = lane->endpoint;

	if (!endpoint->failure.code && !endpoint->closing)
		ofi_lane_error(&endpoint->failure, lane, lane->lost_errnum);
}

void ofi_lane_lost(struct ofi_lane *lane, int errnum)
{
	struct ofi_domain *domain = lane->endpoint->domain;

	pthread_mutex_lock(&domain->lock);
	ofi_lane_lost_locked(lane, errnum);
	pthread_mutex_unlock(&domain->lock);
}

void ofi_rail_failed(struct ofi_rail *rail, int errnum)
{
	struct ofi_domain *domain = rail->domain;

	pthread_mutex_lock(&domain->lock);
	array_each(at, &domain->endpoints) {
		for (uint32_t i = 0; *at && i < (*at)->lane_count; i++) {
			if ((*at)->lanes[i].rail != rail)
				continue;
			ofi_lane_lost_locked(&(*at)->lanes[i], errnum);
			fail(&(*at)->lanes[i]);
		}
	}
	pthread_mutex_unlock(&domain->lock);
}

/* ---- signals ---- */

/* Every write that the signal is behind has landed, and every message that brings it has come. */
static bool all_here(const struct ofi_endpoint *endpoint, const struct ofi_waiting *waiting)
{
	const struct ofi_message *message = &waiting->message;

	if (waiting->seen != message->carriers)
		return false;
	for (uint32_t i = 0; i < message->lanes; i++)
		if ((int32_t)(endpoint->lanes[i].arrived - message->writes[i]) < 0)
			return false;
	return true;
}

static void show(struct ofi_endpoint *endpoint, const struct ofi_message *message,
		 uint64_t sequence)
{
	struct transport_signal signal = {
		.tag = message->tag, .length = message->length, .sequence = sequence};

	memcpy(signal.payload, message->payload, sizeof(signal.payload));
	mailbox_store(&endpoint->slot, &signal);
	endpoint->shown = sequence;
	doorbell_ring(&endpoint->domain->doorbell);
}

/* The waiting ones, oldest first, as far as they are whole. */
static void show_waiting(struct ofi_endpoint *endpoint)
{
	for (uint32_t i = 0; i < endpoint->waiting_count;) {
		struct ofi_waiting *waiting = &endpoint->waiting[i];
		bool news = waiting->message.sequence > endpoint->shown;

		if (news && !all_here(endpoint, waiting)) {
			i++;
			continue;
		}
		if (news)
			show(endpoint, &waiting->message, waiting->message.sequence);
		memmove(waiting, waiting + 1, (--endpoint->waiting_count - i) * sizeof(*waiting));
	}
}

/* A later round of a signal has the counts that are right since a lane is lost. */
static void same_signal(struct ofi_waiting *waiting, const struct ofi_message *message,
			uint32_t lane)
{
	if (message->round == waiting->message.round)
		waiting->seen |= 1u << lane;
	else if (message->round > waiting->message.round)
		*waiting = (struct ofi_waiting){.message = *message, .seen = 1u << lane};
}

/* In the order of sequences, however they came. A full list drops its oldest: a slot keeps the latest
 * signal alone. */
static void wait_for_rest(struct ofi_endpoint *endpoint, const struct ofi_message *message,
			  uint32_t lane)
{
	struct ofi_waiting *all = endpoint->waiting;
	uint32_t at = endpoint->waiting_count;

	while (at && all[at - 1].message.sequence > message->sequence)
		at--;
	if (at && all[at - 1].message.sequence == message->sequence) {
		same_signal(&all[at - 1], message, lane);
		return;
	}
	if (endpoint->waiting_count == ARRAY_SIZE(endpoint->waiting)) {
		if (!at)
			return;
		memmove(&all[0], &all[1], --at * sizeof(*all));
	} else {
		memmove(&all[at + 1], &all[at], (endpoint->waiting_count - at) * sizeof(*all));
		endpoint->waiting_count++;
	}
	all[at] = (struct ofi_waiting){.message = *message, .seen = 1u << lane};
}

/* The peer is of this job, but its memory may be anything: what it says is checked as a record is. */
static bool makes_sense(const struct ofi_endpoint *endpoint, const struct ofi_message *message,
			size_t bytes)
{
	if (bytes != sizeof(*message) || message->lanes > endpoint->lane_count)
		return false;
	if (message->kind == OFI_MESSAGE_PROBE)
		return true;
	if (!message->carriers)
		return false;
	if (message->length > TRANSPORT_PAYLOAD_BYTES)
		return false;
	if (message->kind == OFI_MESSAGE_LOST)
		return !(message->carriers >> endpoint->lane_count);
	return message->kind == OFI_MESSAGE_SIGNAL && message->sequence;
}

/* The peer has closed its end of these lanes, and tells what it has counted of each. Of a signal that is complete
 * there, everything had come, and yet it may not all be counted: closing a lane without an order takes what would
 * have told of it. Its sender asks for nothing any more, so this is the word that it is whole. */
static void given_up(struct ofi_endpoint *endpoint, const struct ofi_message *message)
{
	ofi_each_lane(lane, endpoint) {
		if (!(message->carriers & 1u << lane->index) || lane->given_up)
			continue;
		ofi_lane_lost_locked(lane, FI_ECONNRESET);
		lane->given_up = true;
		lane->peer_counted = message->writes[lane->index];
		lane->peer_shown = message->sequence;
	}
	if (message->complete > endpoint->shown) {
		show(endpoint, message, message->complete);
		show_waiting(endpoint);
	}
}

static void received(struct ofi_lane *lane, const struct ofi_message *message, size_t bytes)
{
	struct ofi_endpoint *endpoint = lane->endpoint;

	if (!makes_sense(endpoint, message, bytes)) {
		if (!endpoint->failure.code)
			error_set(&endpoint->failure, ERROR_MESSAGE,
				  "stream %u to %s (%s) brought a message of %zu bytes that no "
				  "peer of this version sends",
				  lane->index, endpoint->shared->name, lane->path, bytes);
		ofi_lane_lost_locked(lane, FI_EIO);
		return;
	}
	if (message->kind == OFI_MESSAGE_LOST)
		given_up(endpoint, message);
	if (message->kind != OFI_MESSAGE_SIGNAL || message->sequence <= endpoint->shown)
		return;
	wait_for_rest(endpoint, message, lane->index);
	show_waiting(endpoint);
}

/* ---- by kind ---- */

/* data names an endpoint by index and generation, and a lane of it. What names none is of an endpoint
 * that is closed. */
static void landed(struct ofi_domain *domain, uint32_t data)
{
	uint32_t index = data >> 16, lane = data & (OFI_RAILS_MAX - 1);
	struct ofi_endpoint *endpoint;

	if (index >= domain->endpoints.count)
		return;
	endpoint = domain->endpoints.items[index];
	if (!endpoint || endpoint->data != data - lane || lane >= endpoint->lane_count ||
	    endpoint->lanes[lane].closed)
		return;
	endpoint->lanes[lane].arrived++;
	if (endpoint->waiting_count)
		show_waiting(endpoint);
}

static void write_done(struct ofi_op *op)
{
	struct ofi_endpoint *endpoint = op->lane->endpoint;

	if (op->told)
		return;
	op->told = true;
	if (op->kind == OFI_OP_PROBE) {
		endpoint->probes_left--;
		return;
	}
	done(endpoint, op->write.id);
	endpoint->writes_left--;
	traffic_past(op->lane->rail->traffic, op->write.bytes, true);
}

void ofi_lane_forgets(struct ofi_lane *lane)
{
	for (uint32_t at = lane->told; at != lane->writes; at++) {
		struct ofi_op *op = ofi_lane_op(lane, at);

		if (!op->told)
			traffic_past(lane->rail->traffic, op->write.bytes, false);
		op->write.bytes = 0; /* it may be asked to once more */
	}
}

void ofi_lane_told(struct ofi_lane *lane, uint32_t upto)
{
	for (; (int32_t)(upto - lane->told) > 0; lane->told++)
		write_done(ofi_lane_op(lane, lane->told));
}

/* Without an order each tells of itself. */
static void told_of(struct ofi_op *op)
{
	struct ofi_lane *lane = op->lane;

	write_done(op);
	while (lane->told != lane->writes && ofi_lane_op(lane, lane->told)->told)
		lane->told++;
}

void ofi_signal_fails(struct ofi_endpoint *endpoint)
{
	endpoint->replay_signal = true;
	atomic_store(&endpoint->mending, true); /* also where the lane was settled before */
}

/* On a stream what was taken is counted. Else a signal that is complete before a lane's loss is told is vouched for
 * with that (lost.c), and a later one waits until it is known what the peer has counted. */
static bool unsettled(struct ofi_endpoint *endpoint)
{
	if (endpoint->domain->stream)
		return false;
	ofi_each_lane(lane, endpoint)
		if (lane->state == OFI_LANE_DEAD && !lane->settled)
			return true;
	return false;
}

void ofi_signal_finish(struct ofi_endpoint *endpoint)
{
	if (!endpoint->signalling || endpoint->signal_to_post || endpoint->signals_left ||
	    endpoint->replay_signal || endpoint->writes_left || unsettled(endpoint))
		return;
	endpoint->signalling = false;
	endpoint->complete = endpoint->signal;
	done(endpoint, endpoint->signal_id);
}

static void message_returned(struct ofi_op *op, bool delivered)
{
	struct ofi_endpoint *endpoint = op->lane->endpoint;

	switch (op->kind) {
	case OFI_OP_SIGNAL:
		endpoint->signals_left--;
		if (!delivered)
			ofi_signal_fails(endpoint);
		break;
	case OFI_OP_PROBE:
		endpoint->probes_left -= delivered;
		break;
	case OFI_OP_LOST:
		if (delivered)
			endpoint->gone_told |= endpoint->gone_telling;
		endpoint->gone_telling = 0;
		if (endpoint->gone & ~endpoint->gone_told) /* by another lane, or of another */
			ofi_mend_wanted(endpoint->domain);
		break;
	default:
		break;
	}
}

static void returned(struct ofi_op *op, bool well)
{
	struct ofi_lane *lane = op->lane;

	if (!op->posted)
		return;
	op->posted = false;
	if (op->is_write)
		lane->in_flight--;
	else
		message_returned(op, well);
	if (well && op->covers && lane->endpoint->domain->stream)
		ofi_lane_told(lane, op->upto);
	else if (well && op->covers && op->is_write)
		told_of(op);
	ofi_signal_finish(lane->endpoint);
}

void ofi_lane_returned(struct ofi_lane *lane)
{
	for (uint32_t i = 0; i < lane->endpoint->op_count; i++)
		returned(&lane->ops[i], false);
	returned(&lane->send, false);
	returned(&lane->tell, false);
}

void ofi_complete(struct ofi_rail *rail, const struct fi_cq_data_entry *entry)
{
	struct ofi_domain *domain = rail->domain;
	struct ofi_op *op = entry->op_context;
	bool again = false;

	pthread_mutex_lock(&domain->lock);
	if (entry->flags & FI_REMOTE_WRITE) {
		landed(domain, (uint32_t)entry->data);
	} else if (op && op->kind == OFI_OP_RECEIVE) {
		received(op->lane, op->message, entry->len);
		again = op->lane->state != OFI_LANE_DEAD && !op->lane->endpoint->closing;
	} else if (op) {
		returned(op, true);
	}
	pthread_mutex_unlock(&domain->lock);
	if (again)
		ofi_lane_receive(op->lane, op);
}

/* What was cancelled says nothing of why: the connection's event does, and has come or comes. */
void ofi_complete_error(struct ofi_rail *rail, const struct fi_cq_err_entry *entry)
{
	struct ofi_domain *domain = rail->domain;
	struct ofi_op *op = entry->op_context;

	if (!op) {
		log_debug("%s: %s reported an error without a context: %s (errno %d)", domain->name,
			  rail->interface.name, ofi_strerror(entry->err), entry->err);
		return;
	}
	pthread_mutex_lock(&domain->lock);
	ofi_lane_lost_locked(op->lane, entry->err == FI_ECANCELED ? FI_ESHUTDOWN : entry->err);
	if (op->kind == OFI_OP_PROBE)
		fail(op->lane); /* every lane has to work when it begins */
	returned(op, false);
	pthread_mutex_unlock(&domain->lock);
}

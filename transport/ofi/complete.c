/* SPDX-License-Identifier: Apache-2.0
 *
 * complete.c -- what a completion means: one of ours is done, a write of the peer's has landed, a
 * message has come. Everything here is under domain->lock, for moments.
 */
#include "transport/ofi/way.h"

#include "base/log.h"
#include <rdma/fi_errno.h>

/* ---- for the owner's poll ---- */

static void done(struct ofi_endpoint *endpoint, uint64_t id, int rc)
{
	uint32_t at = (endpoint->done_head + endpoint->done_count) % endpoint->done_capacity;

	endpoint->done[at].id = id;
	endpoint->done[at].rc = rc;
	endpoint->done_count++; /* as many places as there can be posts */
}

/* A peer that has all it was sent may go: a lane that is lost with nothing of ours on it is no failure. */
static void lost(struct ofi_lane *lane, int errnum)
{
	if (lane->state == OFI_LANE_DEAD)
		return;
	lane->lost_errnum = errnum;
	lane->state = OFI_LANE_DEAD;
}

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
	lost(lane, errnum);
	pthread_mutex_unlock(&domain->lock);
}

void ofi_lane_failed(struct ofi_lane *lane, int errnum)
{
	struct ofi_domain *domain = lane->endpoint->domain;

	pthread_mutex_lock(&domain->lock);
	lost(lane, errnum);
	fail(lane);
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
			lost(&(*at)->lanes[i], errnum);
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

static void show(struct ofi_endpoint *endpoint, const struct ofi_message *message)
{
	struct transport_signal signal = {
		.tag = message->tag, .length = message->length, .sequence = message->sequence};

	memcpy(signal.payload, message->payload, sizeof(signal.payload));
	mailbox_store(&endpoint->slot, &signal);
	endpoint->shown = message->sequence;
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
			show(endpoint, &waiting->message);
		memmove(waiting, waiting + 1, (--endpoint->waiting_count - i) * sizeof(*waiting));
	}
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
		all[at - 1].seen |= 1u << lane;
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
	return message->kind == OFI_MESSAGE_SIGNAL && message->sequence && message->carriers &&
	       message->length <= TRANSPORT_PAYLOAD_BYTES;
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
		lost(lane, FI_EIO);
		return;
	}
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
	if (!endpoint || endpoint->data != data - lane || lane >= endpoint->lane_count)
		return;
	endpoint->lanes[lane].arrived++;
	if (endpoint->waiting_count)
		show_waiting(endpoint);
}

static void free_op(struct ofi_op *op)
{
	struct ofi_endpoint *endpoint = op->lane->endpoint;

	op->lane->in_flight--;
	op->next = endpoint->free_ops;
	endpoint->free_ops = op;
}

static void op_done(struct ofi_op *op, int rc)
{
	struct ofi_lane *lane = op->lane;
	struct ofi_endpoint *endpoint = lane->endpoint;

	switch (op->kind) {
	case OFI_OP_WRITE:
		done(endpoint, op->id, rc);
		free_op(op);
		break;
	case OFI_OP_SIGNAL:
		if (--endpoint->signals_left == 0)
			done(endpoint, op->id, rc);
		break;
	case OFI_OP_PROBE:
		endpoint->probes_left--;
		if (op != &lane->send)
			free_op(op);
		break;
	case OFI_OP_RECEIVE:
		break;
	}
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
		op_done(op, 0);
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
	lost(op->lane, entry->err == FI_ECANCELED ? FI_ESHUTDOWN : entry->err);
	if (op->kind != OFI_OP_RECEIVE)
		fail(op->lane);
	op_done(op, -ERROR_TRANSPORT);
	pthread_mutex_unlock(&domain->lock);
}

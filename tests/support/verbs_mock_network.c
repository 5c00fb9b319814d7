/* SPDX-License-Identifier: Apache-2.0
 *
 * One step of the network: a random queue pair does one random thing that it may do now.
 *
 *   transmit   the oldest request that was not sent: its bytes are copied
 *   deliver    the oldest sent one reaches the responder: keys are checked, or there is no receive
 *   place      any piece of any accepted request
 *   receive    the oldest immediate whose earlier requests are all placed
 *   answer     the oldest accepted request completes at its sender; a broken one is flushed
 *
 * Moods make one of these wait long, which plain chance would hardly ever do.
 */
#include "tests/support/verbs_mock_parts.h"

#include <stdlib.h>
#include <string.h>

enum mood {
	MOOD_EVEN,
	MOOD_ANSWERS_FIRST,
	MOOD_PLACES_LAST,
	MOOD_PLACES_FIRST,
	MOOD_NEWEST,
	MOODS
};

/* ---- requests ---- */

struct mock_request *mock_request_new(struct mock_qp *qp)
{
	struct mock_request *request;

	(void)qp;
	if (!mock_fabric.spare.count)
		return mock_memory(sizeof(*request));
	request = mock_fabric.spare.items[--mock_fabric.spare.count];
	memset(request, 0, offsetof(struct mock_request, small));
	request->relaxed = false;
	return request;
}

void mock_request_free(struct mock_request *request)
{
	struct mock_request **place = array_push(&mock_fabric.spare);

	if (!place)
		abort();
	if (request->copy != request->small)
		free(request->copy);
	if (request->piece_done != &request->small_done)
		free(request->piece_done);
	request->copy = NULL;
	request->piece_done = NULL;
	*place = request;
}

struct mock_request *mock_request_at(const struct mock_qp *qp, uint64_t index)
{
	return qp->ring[index & (qp->ring_size - 1)];
}

void mock_active_add(struct mock_qp *qp)
{
	struct mock_qp **place;

	if (qp->listed)
		return;
	qp->listed = true;
	qp->active_at = mock_fabric.active.count;
	place = array_push(&mock_fabric.active);
	if (!place)
		abort();
	*place = qp;
}

/* Forgets what is done on both sides, from the oldest. */
static void retire(struct mock_qp *qp)
{
	while (qp->base < qp->tail && qp->base < qp->acked && qp->base < qp->delivered &&
	       qp->base < qp->received && qp->base < qp->placed_low)
		mock_request_free(mock_request_at(qp, qp->base++));
	if (qp->base == qp->tail && qp->listed) {
		struct mock_qp *last = mock_fabric.active.items[--mock_fabric.active.count];

		mock_fabric.active.items[qp->active_at] = last;
		last->active_at = qp->active_at;
		qp->listed = false;
	}
}

/* ---- paths ---- */

static struct mock_qp *peer_of(const struct mock_qp *qp)
{
	uint32_t index = qp->attr.dest_qp_num - mock_fabric.qpn_base;
	struct mock_qp *peer;

	if (index >= mock_fabric.qps.count)
		return NULL;
	peer = mock_fabric.qps.items[index];
	return peer->head.alive && !peer->head.device->dead ? peer : NULL;
}

static bool hears(const struct mock_qp *peer)
{
	enum ibv_qp_state state = peer->ibv.qp_base.state;

	return state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQE;
}

static bool link_up(const struct mock_qp *qp)
{
	const struct mock_device *device = qp->head.device;

	return device->link && !device->dead && device->active[qp->attr.port_num - 1];
}

/* Once per connection: both sides must have been told the same. */
static bool path_right(struct mock_qp *qp, struct mock_qp *peer)
{
	if (qp->path_checked)
		return true;
	if (peer->attr.dest_qp_num != qp->ibv.qp_base.qp_num)
		return false; /* it talks to somebody else: nothing is answered */
	if (peer->attr.rq_psn != qp->attr.sq_psn)
		mock_violation("qp 0x%x starts at PSN %u and its peer expects %u",
			       qp->ibv.qp_base.qp_num, qp->attr.sq_psn, peer->attr.rq_psn);
	if (peer->attr.path_mtu != qp->attr.path_mtu)
		mock_violation("qp 0x%x has path MTU code %d and its peer %d",
			       qp->ibv.qp_base.qp_num, (int)qp->attr.path_mtu,
			       (int)peer->attr.path_mtu);
	qp->path_checked = true;
	return true;
}

/* ---- breaking ---- */

static void qp_event(struct mock_qp *qp, enum ibv_event_type type)
{
	struct ibv_async_event event = {.event_type = type, .element.qp = &qp->ibv.qp_base};

	mock_event_push(MOCK_OF(context, qp->ibv.qp_base.context), &event);
}

void mock_qp_break(struct mock_qp *qp, int status)
{
	uint64_t keep = qp->sent;

	if (qp->broken)
		return;
	qp->broken = true;
	qp->first_status = status;
	qp->good_until = status == IBV_WC_RNR_RETRY_EXC_ERR && qp->good_until > qp->delivered
				 ? qp->delivered
				 : qp->acked;
	/* what is in the network stays there, or is lost from some packet on */
	if (qp->sent > qp->delivered && !mock_fabric.late && mock_random(2))
		keep = qp->delivered + mock_random(qp->sent - qp->delivered + 1);
	for (uint64_t i = keep; i < qp->tail; i++)
		mock_request_at(qp, i)->dead = true;
	qp->sent = qp->tail;
	qp->ibv.qp_base.state = IBV_QPS_ERR;
	mock_active_add(qp);
}

static void pieces_settle(struct mock_qp *from, struct mock_request *request, bool keep);

static void receive_back(struct mock_qp *target, struct mock_request *request, bool gone)
{
	struct mock_srq *srq = MOCK_OF(srq, target->ibv.qp_base.srq);
	struct mock_wc entry = {.qp = target, .took_receive = true};

	if (!request->took_receive || !srq)
		return;
	request->took_receive = false;
	if (gone) {
		uint64_t *place = array_push(&srq->wr_ids);

		if (!place)
			abort();
		*place = request->receive_wr_id;
		return;
	}
	entry.wc.status = IBV_WC_WR_FLUSH_ERR;
	entry.wc.wr_id = request->receive_wr_id;
	entry.wc.qp_num = target->ibv.qp_base.qp_num;
	mock_cq_push(MOCK_OF(cq, target->ibv.qp_base.recv_cq), &entry);
}

/* Answers may be under way: what is below good_until was acknowledged and is placed, whether its
 * sender knows yet or not; what is not never will be. */
void mock_qp_deafen(struct mock_qp *qp, bool gone)
{
	bool heard = hears(qp);

	qp->epoch++;
	for (size_t at = 0; at < mock_fabric.active.count; at++) {
		struct mock_qp *from = mock_fabric.active.items[at];

		if (peer_of(from) == qp && !from->broken)
			from->good_until = from->acked +
					   mock_random(from->delivered > from->acked
							       ? from->delivered - from->acked + 1
							       : 1);
		for (uint64_t i = from->base; i < from->tail; i++) {
			struct mock_request *request = mock_request_at(from, i);

			if (request->target != qp || !request->accepted)
				continue;
			pieces_settle(from, request, i < from->good_until);
			if (i >= from->received && (gone || i >= from->good_until))
				receive_back(qp, request, gone);
		}
	}
	if (heard && !gone && qp->ibv.qp_base.srq)
		qp_event(qp, IBV_EVENT_QP_LAST_WQE_REACHED);
}

/* ---- the things to do ---- */

static void fetch(const struct mock_mr *mr, struct mock_request *request)
{
	uint64_t at = request->local - (uintptr_t)mr->ibv.addr;

	if (mr->device)
		mock_fabric.options.gpu->read(mr->device + at, request->copy, request->bytes);
	else
		memcpy(request->copy, (const void *)(uintptr_t)request->local, request->bytes);
}

static bool transmit(struct mock_qp *qp)
{
	struct mock_request *request;
	struct mock_mr *mr = NULL;

	if (qp->broken || qp->sent == qp->tail || qp->ibv.qp_base.state != IBV_QPS_RTS ||
	    !link_up(qp))
		return false;
	request = mock_request_at(qp, qp->sent);
	if (request->bytes && !request->inlined) {
		mr = mock_mr_find(request->lkey);
		if (!mr || mr->ibv.lkey != request->lkey || mr->ibv.pd != qp->ibv.qp_base.pd ||
		    request->local < (uintptr_t)mr->ibv.addr || request->bytes > mr->ibv.length ||
		    request->local - (uintptr_t)mr->ibv.addr > mr->ibv.length - request->bytes) {
			if (qp->acked < qp->sent)
				return false;
			mock_violation("a request of %u bytes lies outside its local key",
				       request->bytes);
			mock_qp_break(qp, IBV_WC_LOC_PROT_ERR);
			return true;
		}
	}
	if (mock_fabric.options.max_msg_sz && request->bytes > mock_fabric.options.max_msg_sz) {
		if (qp->acked < qp->sent)
			return false;
		mock_violation("a request of %u bytes is larger than max_msg_sz", request->bytes);
		mock_qp_break(qp, IBV_WC_LOC_LEN_ERR);
		return true;
	}
	if (!request->inlined) {
		request->copy = request->bytes <= sizeof(request->small)
					? request->small
					: mock_memory(request->bytes);
		if (request->bytes)
			fetch(mr, request);
	} else {
		request->copy = request->small;
	}
	request->target = peer_of(qp);
	request->target_epoch = request->target ? request->target->epoch : 0;
	qp->sent++;
	return true;
}

static int access_check(const struct mock_qp *peer, struct mock_request *request)
{
	const struct mock_mr *mr;

	if (!(peer->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE))
		return IBV_WC_REM_INV_REQ_ERR;
	if (!request->bytes)
		return IBV_WC_SUCCESS;
	mr = mock_mr_find(request->rkey);
	if (!mr || mr->ibv.rkey != request->rkey || mr->ibv.pd != peer->ibv.qp_base.pd ||
	    !(mr->access & IBV_ACCESS_REMOTE_WRITE) || request->address < (uintptr_t)mr->ibv.addr ||
	    request->bytes > mr->ibv.length ||
	    request->address - (uintptr_t)mr->ibv.addr > mr->ibv.length - request->bytes)
		return IBV_WC_REM_ACCESS_ERR;
	request->relaxed = mr->access & IBV_ACCESS_RELAXED_ORDERING;
	request->device =
		mr->device ? mr->device + (request->address - (uintptr_t)mr->ibv.addr) : 0;
	return IBV_WC_SUCCESS;
}

static void pieces_cut(struct mock_request *request)
{
	uint32_t words;

	request->piece_bytes = request->relaxed ? 64u << mock_random(3) : request->bytes;
	request->pieces =
		request->bytes ? (request->bytes + request->piece_bytes - 1) / request->piece_bytes
			       : 0;
	request->pieces_left = request->pieces;
	request->placed = request->pieces == 0;
	words = (request->pieces + 63) / 64;
	request->piece_done = words <= 1 ? &request->small_done
					 : mock_memory(words * sizeof(request->piece_done[0]));
	request->small_done = 0;
}

static bool receive_taken(struct mock_qp *qp, struct mock_qp *peer, struct mock_request *request)
{
	struct mock_srq *srq = MOCK_OF(srq, peer->ibv.qp_base.srq);

	if (!request->with_imm)
		return true;
	if (mock_fabric.hide_receives || !srq || srq->first == srq->wr_ids.count) {
		if (qp->attr.rnr_retry != 7 && !qp->broken &&
		    qp->rnr_tries++ >= qp->attr.rnr_retry * 8u)
			mock_qp_break(qp, IBV_WC_RNR_RETRY_EXC_ERR);
		return false;
	}
	qp->rnr_tries = 0;
	request->took_receive = true;
	request->receive_wr_id = srq->wr_ids.items[srq->first++];
	if (srq->first == srq->wr_ids.count)
		srq->first = srq->wr_ids.count = 0;
	return true;
}

static void settle_low(struct mock_qp *qp)
{
	while (qp->placed_low < qp->delivered && mock_request_at(qp, qp->placed_low)->placed)
		qp->placed_low++;
}

/* The request is over on the responder's side without ever having been there. */
static void vanish(struct mock_request *request)
{
	request->dead = true;
	request->placed = true;
}

static bool deliver(struct mock_qp *qp)
{
	struct mock_request *request;
	struct mock_qp *peer;
	uint32_t packet;
	bool stray;
	int status;

	if (qp->delivered == qp->sent)
		return false;
	request = mock_request_at(qp, qp->delivered);
	peer = request->target;
	stray = qp->broken || !qp->head.alive || qp->delivered < qp->stray_below;
	if (request->dead ||
	    (stray && (!peer || peer->epoch != request->target_epoch || !path_right(qp, peer)))) {
		vanish(request);
		qp->delivered++;
		settle_low(qp);
		return true;
	}
	if (!peer || !peer->head.alive || peer->head.device->dead || !hears(peer) ||
	    peer->epoch != request->target_epoch || !path_right(qp, peer))
		return false;
	if (!mock_fabric.late && (!link_up(peer) || !link_up(qp)))
		return false;
	packet = 128u << qp->attr.path_mtu;
	packet = request->bytes < packet ? request->bytes : packet;
	if (mock_fabric.options.packet_max && packet > mock_fabric.options.packet_max) {
		request->dead = stray;
		return stray;
	}
	status = access_check(peer, request);
	if (status != IBV_WC_SUCCESS) {
		vanish(request);
		qp->delivered++;
		settle_low(qp);
		if (!stray) {
			/* a refusal answers everything before it too */
			mock_qp_break(qp, status);
			qp->good_until = qp->delivered - 1;
		}
		mock_qp_deafen(peer, false);
		mock_qp_break(peer, IBV_WC_WR_FLUSH_ERR);
		qp_event(peer, IBV_EVENT_QP_ACCESS_ERR);
		return true;
	}
	if (!receive_taken(qp, peer, request)) {
		if (stray) {
			vanish(request);
			qp->delivered++;
			settle_low(qp);
		}
		return true;
	}
	pieces_cut(request);
	request->accepted = true;
	qp->delivered++;
	settle_low(qp);
	return true;
}

/* Small writes go word by word through atomics: slots are read while they are written. */
static void put(unsigned char *to, const unsigned char *from, uint32_t bytes)
{
	if (bytes > 256 || ((uintptr_t)to | bytes) & 7) {
		memcpy(to, from, bytes);
		return;
	}
	for (uint32_t i = 0; i < bytes; i += 8) {
		uint64_t word;

		memcpy(&word, from + i, sizeof(word));
		__atomic_store_n((uint64_t *)(void *)(to + i), word, __ATOMIC_RELAXED);
	}
}

static void piece_place(struct mock_request *request, uint32_t piece, bool really)
{
	uint64_t at = (uint64_t)piece * request->piece_bytes;
	uint32_t bytes = request->bytes - at < request->piece_bytes
				 ? (uint32_t)(request->bytes - at)
				 : request->piece_bytes;

	request->piece_done[piece / 64] |= UINT64_C(1) << piece % 64;
	request->pieces_left--;
	request->placed = request->pieces_left == 0;
	if (really && request->device)
		mock_fabric.options.gpu->write(request->device + at, request->copy + at, bytes);
	else if (really)
		put((unsigned char *)(uintptr_t)(request->address + at), request->copy + at, bytes);
}

static bool piece_is_done(const struct mock_request *request, uint32_t piece)
{
	return request->piece_done[piece / 64] >> piece % 64 & 1;
}

/* Place or drop the rest, at random, now. What the sender was told is done is never dropped. */
static void pieces_settle(struct mock_qp *from, struct mock_request *request, bool keep)
{
	uint64_t chance = keep ? 2 : mock_random(3);

	for (uint32_t piece = 0; piece < request->pieces; piece++)
		if (!piece_is_done(request, piece))
			piece_place(request, piece, mock_random(2) < chance);
	settle_low(from);
}

void mock_mr_settle(const struct mock_mr *mr)
{
	for (size_t at = 0; at < mock_fabric.active.count; at++) {
		struct mock_qp *from = mock_fabric.active.items[at];

		for (uint64_t i = from->base; i < from->delivered; i++) {
			struct mock_request *request = mock_request_at(from, i);

			if (request->accepted && !request->placed && request->rkey == mr->ibv.rkey)
				pieces_settle(from, request, false);
		}
	}
}

/* What it has acknowledged and not placed yet may be gone, whatever the sender was told. */
void mock_device_dies(const struct mock_device *device)
{
	for (size_t at = 0; at < mock_fabric.active.count; at++) {
		struct mock_qp *from = mock_fabric.active.items[at];

		for (uint64_t i = from->base; i < from->delivered; i++) {
			struct mock_request *request = mock_request_at(from, i);

			if (request->accepted && !request->placed &&
			    request->target->head.device == device)
				pieces_settle(from, request, false);
		}
	}
}

static uint64_t place_choice(const struct mock_qp *qp)
{
	uint64_t span = qp->delivered - qp->placed_low;

	if (mock_fabric.options.strict_placement) {
		/* it may pass only writes that allow it */
		uint64_t last = qp->placed_low;

		while (last + 1 < qp->delivered && mock_request_at(qp, last)->relaxed)
			last++;
		last = qp->placed_low + mock_random(last - qp->placed_low + 1);
		return mock_request_at(qp, last)->placed ? qp->placed_low : last;
	}
	return qp->mood == MOOD_NEWEST ? qp->delivered - 1 : qp->placed_low + mock_random(span);
}

/* Devices place writes of one queue pair in order where relaxed ordering was not asked for. The mock
 * keeps only this of it, unless strict_placement: of two writes to the same bytes the later stays. */
static uint64_t place_under(const struct mock_qp *qp, uint64_t index)
{
	const struct mock_request *request = mock_request_at(qp, index);

	for (uint64_t i = qp->placed_low; i < index && !request->relaxed; i++) {
		const struct mock_request *earlier = mock_request_at(qp, i);

		if (!earlier->placed && !earlier->relaxed &&
		    earlier->address < request->address + request->bytes &&
		    request->address < earlier->address + earlier->bytes)
			return i;
	}
	return index;
}

static bool place(struct mock_qp *qp)
{
	struct mock_request *request;
	uint64_t index;
	uint32_t piece;

	if (qp->placed_low == qp->delivered)
		return false;
	index = place_choice(qp);
	while (mock_request_at(qp, index)->placed)
		index = index + 1 == qp->delivered ? qp->placed_low : index + 1;
	request = mock_request_at(qp, place_under(qp, index));
	piece = (uint32_t)mock_random(request->pieces);
	while (piece_is_done(request, piece))
		piece = (piece + 1) % request->pieces;
	piece_place(request, piece, true);
	settle_low(qp);
	return true;
}

static bool receive(struct mock_qp *qp)
{
	struct mock_wc entry = {.took_receive = true};
	struct mock_request *request;

	while (qp->received < qp->delivered && (!mock_request_at(qp, qp->received)->with_imm ||
						!mock_request_at(qp, qp->received)->took_receive))
		qp->received++;
	if (qp->received == qp->delivered)
		return false;
	request = mock_request_at(qp, qp->received);
	if (qp->placed_low <= qp->received &&
	    !(mock_fabric.options.imm_overtakes && request->placed))
		return false;
	qp->received++;
	request->took_receive = false;
	entry.qp = request->target;
	entry.wc.wr_id = request->receive_wr_id;
	entry.wc.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
	entry.wc.imm_data = request->imm;
	entry.wc.wc_flags = IBV_WC_WITH_IMM;
	entry.wc.byte_len = request->bytes;
	entry.wc.qp_num = request->target->ibv.qp_base.qp_num;
	entry.wc.src_qp = (uint32_t)mock_random(1 << 24);
	mock_cq_push(MOCK_OF(cq, request->target->ibv.qp_base.recv_cq), &entry);
	return true;
}

static bool answer(struct mock_qp *qp)
{
	struct mock_wc entry = {.qp = qp};
	struct mock_request *request;

	if (qp->acked == qp->tail || !qp->head.alive)
		return false;
	request = mock_request_at(qp, qp->acked);
	if (qp->broken && qp->acked >= qp->good_until) {
		entry.wc.status = (enum ibv_wc_status)qp->first_status;
		entry.wc.vendor_err = 0x81;
		qp->first_status = IBV_WC_WR_FLUSH_ERR;
	} else if (!qp->broken &&
		   (qp->acked == qp->delivered || !request->accepted ||
		    qp->acked >= qp->good_until || !link_up(qp) || !link_up(request->target))) {
		return false;
	}
	qp->acked++;
	if (!request->signalled && entry.wc.status == IBV_WC_SUCCESS)
		return true;
	entry.wc.wr_id = request->wr_id;
	entry.wc.opcode = IBV_WC_RDMA_WRITE;
	entry.wc.qp_num = qp->ibv.qp_base.qp_num;
	entry.retires = qp->acked;
	mock_cq_push(MOCK_OF(cq, qp->ibv.qp_base.send_cq), &entry);
	return true;
}

/* Nothing can be done, though something should: after its tries it gives up. */
static void stall(struct mock_qp *qp)
{
	uint64_t patience = mock_fabric.options.patience;

	if (qp->broken || qp->acked == qp->tail || qp->ibv.qp_base.state != IBV_QPS_RTS ||
	    qp->head.device->dead)
		return;
	if (!qp->stalled_since)
		qp->stalled_since = mock_fabric.steps;
	else if (mock_fabric.steps - qp->stalled_since > patience && qp->attr.retry_cnt != 7)
		mock_qp_break(qp, IBV_WC_RETRY_EXC_ERR);
}

static bool (*const things[])(struct mock_qp *qp) = {transmit, deliver, place, receive, answer};
#define THINGS ARRAY_SIZE(things)

/* What a mood tries first; the rest follows in a random order. */
static size_t first_thing(const struct mock_qp *qp)
{
	switch (qp->mood) {
	case MOOD_ANSWERS_FIRST:
		return 4;
	case MOOD_PLACES_FIRST:
		return 2;
	default:
		return mock_random(THINGS);
	}
}

static bool qp_step(struct mock_qp *qp)
{
	size_t at;

	if (mock_random(24) == 0)
		qp->mood = (uint32_t)mock_random(MOODS);
	at = first_thing(qp);
	/* a place that is put off comes last of all */
	for (size_t i = 0; i < THINGS; i++, at = (at + 1) % THINGS) {
		if (qp->mood == MOOD_PLACES_LAST && things[at] == place)
			continue;
		if (things[at](qp)) {
			qp->stalled_since = 0;
			return true;
		}
	}
	if (qp->mood == MOOD_PLACES_LAST && place(qp)) {
		qp->stalled_since = 0;
		return true;
	}
	stall(qp);
	return false;
}

bool mock_step(void)
{
	struct mock_fabric *fabric = &mock_fabric;
	size_t count = fabric->active.count;
	struct mock_qp *qp;

	fabric->steps++;
	if (!count)
		return false;
	qp = fabric->active.items[mock_random(count)];
	if (!qp_step(qp)) {
		/* not this one: any other */
		size_t from = mock_random(count);

		for (size_t i = 0; i < count; i++) {
			qp = fabric->active.items[(from + i) % count];
			if (qp_step(qp))
				break;
		}
	}
	retire(qp);
	return true;
}

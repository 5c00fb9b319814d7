/* SPDX-License-Identifier: Apache-2.0
 *
 * ofi_mock_network.c -- what happens to a post until both sides have been told, one random step at a time.
 */
#include "tests/support/ofi_mock_parts.h"

#include <stdlib.h>
#include <string.h>

#define PATIENCE    8 /* turns until a target that is not there is told to the sender */
#define LAGGARDS_IN 6 /* one post in so many takes a long way round */

/* What EFA's provider makes of its device's answers. */
#define ERR_NOBODY FI_ENOTCONN /* no such queue pair */
#define ERR_KEY	   FI_EINVAL   /* no such key, or not for that */

static void enqueue(struct om_op *op)
{
	if (om.op_count == om.op_capacity) {
		om.op_capacity = om.op_capacity ? om.op_capacity * 2 : 64;
		om.ops = realloc(om.ops, om.op_capacity * sizeof(*om.ops));
		if (!om.ops)
			abort();
	}
	op->patience = PATIENCE;
	op->lags = om_random(LAGGARDS_IN) == 0;
	op->tells = 1;
	op->number = om.posts++;
	om.ops[om.op_count++] = op;
}

/* It does not arrive, and its sender believes that it has. */
static void reflect(struct om_op *op)
{
	struct om_op *back;
	unsigned char *changed = om_memory(op->bytes);

	memcpy(changed, op->local, op->bytes);
	if (!om.options.reflect(changed, op->bytes)) {
		free(changed);
		return;
	}
	back = om_memory(sizeof(*back));
	*back = (struct om_op){.message = true,
			       .completed = true,
			       .sent = true,
			       .to = op->source->address,
			       .local = changed,
			       .bytes = op->bytes,
			       .copy = changed,
			       .link = UINT64_MAX};
	enqueue(back);
	op->accepted = op->told = true;
	op->pieces_left = 0;
}

void om_post(struct om_op *op)
{
	enqueue(op);
	op->link = op->source->address.unique;
	op->source->posted++;
	if (om.options.reflect && op->message)
		reflect(op);
	if (!om.cut_times || --om.cut_at)
		return;
	om.cut_times--;
	om.cut_at = om.cut_every;
	om_cut(op->source);
}

/* ---- the sender is told ---- */

static void complete(struct om_op *op, int errnum)
{
	struct fi_cq_err_entry entry = {.op_context = op->context,
					.flags = op->message ? FI_SEND | FI_MSG : FI_WRITE | FI_RMA,
					.err = errnum};
	int fault;

	op->completed = true;
	if (!op->source)
		return;
	op->source->posted--;
	fault = om_fault(OFI_MOCK_completion);
	if (fault)
		entry.err = -fault;
	om_push(op->source->cq, &entry);
}

static void finish(struct om_op *op)
{
	op->told = true;
	op->pieces_left = 0;
	op->accepted = true;
}

/* It does not arrive. */
static void fail(struct om_op *op, int errnum)
{
	finish(op);
	if (!op->completed)
		complete(op, errnum);
}

/* ---- accepted ---- */

static struct om_ep *target_of(const struct om_op *op)
{
	struct om_ep *ep = op->to.unique < om.unique ? om.eps[op->to.unique] : NULL;

	return ep && ep->enabled ? ep : NULL;
}

static const struct om_mr *region_of(const struct om_op *op, const struct om_ep *target)
{
	const struct om_mr *mr = op->key < om.key ? om.mrs[op->key] : NULL;

	if (!mr || mr->domain != target->domain || !(mr->access & FI_REMOTE_WRITE) ||
	    op->address < (uintptr_t)mr->memory || op->bytes > mr->bytes ||
	    op->address - (uintptr_t)mr->memory > mr->bytes - op->bytes)
		return NULL;
	return mr;
}

static void take_bytes(struct om_op *op)
{
	if (op->copy)
		return;
	op->copy = om_memory(op->bytes);
	memcpy(op->copy, op->local, op->bytes);
}

static void take_copy(struct om_op *op)
{
	take_bytes(op);
	op->pieces = op->pieces_left = 1 + (uint32_t)om_random(OFI_MOCK_PIECES);
	if (op->pieces > op->bytes)
		op->pieces = op->pieces_left = (uint32_t)op->bytes;
	op->accepted = true;
	if (om.options.rewrite)
		om.options.rewrite(op->copy, op->bytes, op->message ? NULL : &op->data);
}

/* False: nobody listens there now, so another turn may find it. */
static bool accept_message(struct om_op *op)
{
	struct om_ep *target = op->target;

	if (!target->receive_count)
		return false;
	op->receive = target->receives[target->receive_first];
	if (op->receive.bytes < op->bytes) {
		fail(op, FI_EMSGSIZE);
		return true;
	}
	target->receive_first = (target->receive_first + 1) % OFI_MOCK_RECEIVES;
	target->receive_count--;
	op->receive.mr->receives--;
	op->landing = op->receive.memory;
	take_copy(op);
	return true;
}

static void accept_write(struct om_op *op)
{
	op->target_mr = region_of(op, op->target);
	if (!op->target_mr) {
		fail(op, ERR_KEY);
		return;
	}
	op->landing = (unsigned char *)(uintptr_t)op->address;
	take_copy(op);
}

static void lose(struct om_op *op)
{
	om.writes += !op->message;
	om.messages += op->message;
	if (om.options.wrong == OFI_MOCK_LOST_AND_TWICE && !op->message) {
		if (om.lost_on && om.lost_on != op->source) {
			op->tells = 2;
			om.lost_on = NULL;
		} else if (!om.lost_on && om.writes % 10 == 9) {
			op->lost = true;
			om.lost_on = op->source;
		}
	}
	/* of four lanes, both sides' probes are the first eight */
	if (om.options.wrong == OFI_MOCK_MESSAGE_LOST && op->message)
		op->lost = om.messages > 8;
}

static bool accept(struct om_op *op)
{
	op->target = target_of(op);
	if (!op->target) {
		if (op->patience && --op->patience)
			return true;
		fail(op, ERR_NOBODY);
		return true;
	}
	if (op->message && !op->target->receive_count)
		return false;
	lose(op);
	if (op->lost) {
		finish(op);
		return true;
	}
	if (op->message)
		return accept_message(op);
	accept_write(op);
	return true;
}

/* ---- placed, told ---- */

static void place(struct om_op *op, uint32_t piece)
{
	size_t from = op->bytes * piece / op->pieces, to = op->bytes * (piece + 1) / op->pieces;
	const struct om_mr *mr = op->message ? op->receive.mr : op->target_mr;

	op->placed[piece] = true;
	op->pieces_left--;
	if (mr->head.alive)
		memcpy(op->landing + from, op->copy + from, to - from);
	else if (op->message)
		om_violation("a receive's memory has lost its registration");
}

static void place_any(struct om_op *op)
{
	uint32_t piece = (uint32_t)om_random(op->pieces);

	while (op->placed[piece])
		piece = (piece + 1) % op->pieces;
	place(op, piece);
}

static void tell(struct om_op *op)
{
	struct fi_cq_err_entry entry = {.flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA,
					.len = op->bytes,
					.data = op->data};

	if (op->message)
		entry = (struct fi_cq_err_entry){.op_context = op->receive.context,
						 .flags = FI_RECV | FI_MSG,
						 .len = op->bytes};
	om_push(op->target->cq, &entry);
	op->told = --op->tells == 0;
}

static bool may_tell(const struct om_op *op)
{
	return !op->told && op->accepted && op->target->head.alive &&
	       (!op->pieces_left || (om.options.wrong == OFI_MOCK_DATA_EARLY && !op->message));
}

/* Of a message "delivered" is that it waits in the target's queue: the next one is behind it. */
static bool may_complete(const struct om_op *op)
{
	if (op->completed || !op->accepted)
		return false;
	if (op->delivery && (op->message || om.options.stream))
		return op->told || om.options.wrong == OFI_MOCK_DELIVERY_EARLY;
	return !op->delivery || !op->pieces_left || om.options.wrong == OFI_MOCK_DELIVERY_EARLY;
}

/* Of a stream, nothing happens to what is behind another. */
static bool is_next(const struct om_op *op, bool to_send)
{
	for (size_t i = 0; i < om.op_count; i++) {
		const struct om_op *other = om.ops[i];
		bool over = to_send ? other->sent || other->completed
				    : other->accepted && !other->pieces_left && other->told;

		if (other->link == op->link && other->number < op->number && !over)
			return false;
	}
	return true;
}

/* Into the socket. */
static bool send(struct om_op *op)
{
	if (!is_next(op, true))
		return false;
	take_bytes(op);
	op->sent = true;
	if (!op->delivery || om.options.wrong == OFI_MOCK_DELIVERY_EARLY)
		complete(op, 0);
	return true;
}

/* One thing of those that may happen to it; false: none. */
static bool turn(struct om_op *op)
{
	uint32_t first = (uint32_t)om_random(3);

	if (op->late) {
		op->late--;
		return true;
	}
	if (om.options.stream && !op->sent && !op->told)
		return send(op);
	if (om.options.stream && !op->told && !is_next(op, false))
		return false;
	if (!op->accepted)
		return accept(op);
	for (uint32_t i = 0; i < 3; i++) {
		uint32_t what = (first + i) % 3;

		if (what == 0 && op->pieces_left)
			return place_any(op), true;
		if (what == 1 && may_tell(op))
			return tell(op), true;
		if (what == 2 && may_complete(op))
			return complete(op, 0), true;
	}
	return false;
}

static bool is_over(const struct om_op *op)
{
	return op->accepted && !op->pieces_left && op->completed && op->told;
}

static void remove_at(size_t at)
{
	free(om.ops[at]->copy);
	free(om.ops[at]);
	om.ops[at] = om.ops[--om.op_count];
}

static bool step(void)
{
	size_t first, count = om.op_count;

	if (!count)
		return false;
	first = om_random(count);
	for (size_t i = 0; i < count; i++) {
		size_t at = (first + i) % count;
		bool moved = om.ops[at]->lags && om_random(om.options.lag) ? i + 1 == count
									   : turn(om.ops[at]);

		if (is_over(om.ops[at])) {
			remove_at(at);
			return true;
		}
		if (moved)
			return true;
	}
	return false;
}

bool om_step(void)
{
	bool moved = step();

	if (moved && om.options.watch)
		om.options.watch();
	return moved;
}

/* ---- something is cut ---- */

/* Of what is not there: lost, or late. Of a stream the front is late and the rest lost. */
static void cut_one(struct om_op *op, bool stays)
{
	bool under_way = op->accepted || om.options.stream || !op->message;

	op->late = (uint32_t)om_random(om.cut_lag + 1);
	if (!op->completed)
		complete(op, FI_ECONNRESET);
	if (op->accepted && op->told && !op->pieces_left)
		return;
	op->sent = true;
	if (stays && under_way)
		take_bytes(op);
	else
		finish(op);
}

void om_cut(struct om_ep *ep)
{
	uint64_t last = om.posts, stays = last - om_random(8);

	om.cuts++;
	ep->cut = true;
	for (size_t i = 0; i < om.op_count; i++) {
		struct om_op *op = om.ops[i];

		if (op->source != ep)
			continue;
		cut_one(op, om.options.stream ? op->number < stays : om_random(2));
		op->source = NULL;
	}
}

/* ---- something is closed ---- */

/* The device has it: some of it lands now, nothing later. */
static void settle(struct om_op *op)
{
	while (op->pieces_left && om_random(2))
		place_any(op);
	fail(op, ERR_NOBODY);
}

static void source_gone(struct om_op *op)
{
	op->source = NULL;
	op->completed = true;
	if (!op->accepted && !op->sent)
		finish(op);
}

void om_ep_gone(struct om_ep *ep)
{
	for (uint32_t i = 0; i < ep->receive_count; i++)
		ep->receives[(ep->receive_first + i) % OFI_MOCK_RECEIVES].mr->receives--;
	om.eps[ep->address.unique] = NULL;
	for (size_t i = 0; i < om.op_count; i++) {
		struct om_op *op = om.ops[i];

		if (op->source == ep)
			source_gone(op);
		if (op->target != ep || !op->accepted)
			continue;
		if (om.options.wrong == OFI_MOCK_LATE_LANDS && !op->message)
			op->told = true;
		else
			settle(op);
	}
}

void om_mr_gone(const struct om_mr *mr)
{
	om.mrs[mr->fid.key] = NULL;
	for (size_t i = 0; i < om.op_count; i++) {
		struct om_op *op = om.ops[i];

		if (!op->accepted && op->local_mr == mr && op->source)
			om_violation("memory is unregistered while a post reads it");
		if (op->target_mr == mr && op->pieces_left && !op->message) {
			if (om.options.wrong == OFI_MOCK_LATE_LANDS)
				continue;
			settle(op);
		}
	}
	if (mr->receives)
		om_violation("memory is unregistered while a receive waits in it");
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * post.c -- the hot path: chunks become requests, requests become work of one queue pair.
 *
 *   provider_write ──► parts at borders of registrations ──► verbs_request[] ──► ring + doorbell
 *
 * Nothing here allocates, locks or logs, and the clock is read once a batch. Who posts owns all
 * credit: some devices take more than their queue holds and lose the rest without a word.
 */
#include "transport/verbs/verbs.h"

#include "base/clock.h"
#include <endian.h>
#include <stddef.h>

#define BATCH		 32u	      /* requests to one doorbell */
#define SIGNAL_ALL_BYTES (256u << 10) /* a completion for every request this long */

/* ---- one lane ---- */

static uint64_t wr_id_of(const struct verbs_lane *lane, uint64_t position)
{
	return (uint64_t)lane->index << 56 | position;
}

/* The slots of a batch. Large requests are all signalled: exact progress costs nothing there.
 * Of small ones the last of a batch is, and one in every quarter of the queue. */
static void enter(struct verbs_lane *lane, const struct verbs_request *requests, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		struct verbs_entry *entry = verbs_entry_at(lane, lane->tail + i);

		*entry = requests[i].entry;
		entry->signalled = entry->bytes >= SIGNAL_ALL_BYTES || entry->kind != VERBS_WRITE ||
				   i + 1 == count || lane->unsignalled + 1 >= lane->depth / 4;
		lane->unsignalled = entry->signalled ? 0 : lane->unsignalled + 1;
	}
}

/* All or nothing. A data setter is called for empty requests too: devices end a request there. */
static int post_new(struct verbs_lane *lane, const struct verbs_request *requests, uint32_t count,
		    uint32_t *posted)
{
	const struct verbs_calls *calls = lane->endpoint->domain->calls;
	struct ibv_qp_ex *qp = lane->qp_ex;
	int rc;

	calls->wr_start(qp);
	for (uint32_t i = 0; i < count; i++) {
		const struct verbs_request *request = &requests[i];

		qp->wr_id = wr_id_of(lane, lane->tail + i);
		qp->wr_flags =
			verbs_entry_at(lane, lane->tail + i)->signalled ? IBV_SEND_SIGNALED : 0;
		if (request->immediate)
			calls->wr_rdma_write_imm(qp, request->rkey, request->remote_address,
						 htobe32(request->immediate_value));
		else
			calls->wr_rdma_write(qp, request->rkey, request->remote_address);
		calls->wr_set_sge(qp, request->lkey, request->local_address, request->entry.bytes);
	}
	rc = calls->wr_complete(qp);
	*posted = rc ? 0 : count;
	return rc;
}

/* What stands before the request that was refused is posted. */
static int post_old(struct verbs_lane *lane, const struct verbs_request *requests, uint32_t count,
		    uint32_t *posted)
{
	struct ibv_send_wr wrs[BATCH], *bad = NULL;
	struct ibv_sge sges[BATCH];
	int rc;

	for (uint32_t i = 0; i < count; i++) {
		const struct verbs_request *request = &requests[i];
		struct ibv_send_wr *wr = &wrs[i];

		sges[i] = (struct ibv_sge){request->local_address, request->entry.bytes,
					   request->lkey};
		wr->wr_id = wr_id_of(lane, lane->tail + i);
		wr->next = i + 1 < count ? wr + 1 : NULL;
		wr->sg_list = &sges[i];
		wr->num_sge = request->entry.bytes ? 1 : 0;
		wr->opcode = request->immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
		wr->send_flags =
			verbs_entry_at(lane, lane->tail + i)->signalled ? IBV_SEND_SIGNALED : 0;
		wr->imm_data = htobe32(request->immediate_value);
		wr->wr.rdma.remote_addr = request->remote_address;
		wr->wr.rdma.rkey = request->rkey;
	}
	rc = lane->endpoint->domain->calls->post_send(lane->qp, wrs, &bad);
	*posted = !rc ? count : bad >= wrs && bad < wrs + count ? (uint32_t)(bad - wrs) : 0;
	return rc;
}

static int post_some(struct verbs_lane *lane, const struct verbs_request *requests, uint32_t count,
		     uint32_t *posted, struct error *error)
{
	uint64_t bytes = 0;
	int rc;

	enter(lane, requests, count);
	rc = lane->qp_ex ? post_new(lane, requests, count, posted)
			 : post_old(lane, requests, count, posted);
	lane->tail += *posted;
	for (uint32_t i = 0; i < *posted; i++)
		bytes += requests[i].entry.bytes;
	traffic_posts(lane->nic->traffic, bytes);
	if (!rc)
		return 0;
	return verbs_step_error(error, VERBS_STEP_POST, lane->nic->limits.name, verbs_errno(rc),
				"posting %u requests on queue pair %#x to %s (%u of %u slots in "
				"use): %u were taken",
				count, lane->local.qpn, lane->endpoint->shared->name,
				lane->depth - verbs_lane_free(lane), lane->depth, *posted);
}

int verbs_lane_post(struct verbs_lane *lane, const struct verbs_request *requests, uint32_t count,
		    uint32_t *posted, struct error *error)
{
	cpu_set_t allowed;
	bool moved;
	int rc = 0;

	*posted = 0;
	if (count > verbs_lane_free(lane))
		return error_set(error, ERROR_INTERNAL, "%u requests for %u free slots on %s",
				 count, verbs_lane_free(lane), lane->nic->limits.name);
	moved = verbs_processor_enter(lane, &allowed);
	while (*posted < count && !rc) {
		uint32_t left = count - *posted, taken;

		rc = post_some(lane, requests + *posted, left < BATCH ? left : BATCH, &taken,
			       error);
		*posted += taken;
	}
	if (moved)
		verbs_processor_leave(&allowed);
	return rc;
}

/* ---- chunks ---- */

/* The registration that a place lies in. Nearly all regions are one. */
static uint64_t piece_of(uint32_t count, uint64_t piece_bytes, uint64_t at)
{
	return count == 1 ? 0 : at / piece_bytes;
}

static uint64_t local_at(const struct verbs_entry *entry)
{
	return (uint64_t)(entry->source - (const unsigned char *)entry->region->memory);
}

void verbs_request_fill(const struct verbs_lane *lane, struct verbs_request *request)
{
	const struct verbs_entry *entry = &request->entry;
	const struct verbs_region *local = entry->region->state;
	const struct verbs_region_record *record = entry->remote->state;
	uint64_t here = piece_of(local->piece_count, local->piece_bytes, local_at(entry));
	uint64_t there = piece_of(record->piece_count, record->piece_bytes, entry->offset);

	request->local_address = (uintptr_t)entry->source;
	request->lkey =
		local->mrs[here * lane->endpoint->domain->nic_count + lane->nic->index]->lkey;
	request->remote_address = record->base + entry->offset;
	request->rkey = record->rkeys[there * record->nic_count + lane->peer_nic];
	request->immediate = false;
	request->immediate_value = 0;
}

static uint64_t to_border(uint32_t count, uint64_t piece_bytes, uint64_t at, uint64_t bytes)
{
	uint64_t room;

	if (count == 1)
		return bytes;
	room = piece_bytes - at % piece_bytes;
	return room < bytes ? room : bytes;
}

/* Bytes of the write from `from` on that one request can carry. */
static uint64_t part_bytes(const struct provider_write *write, uint64_t from)
{
	const struct verbs_region *local = write->region->state;
	const struct verbs_region_record *record = write->remote->state;
	uint64_t at = (uint64_t)(write->source - (const unsigned char *)write->region->memory);
	uint64_t bytes =
		to_border(local->piece_count, local->piece_bytes, at + from, write->bytes - from);

	return to_border(record->piece_count, record->piece_bytes, write->offset + from, bytes);
}

static uint32_t part_count(const struct provider_write *write)
{
	uint32_t count = 0;

	for (uint64_t from = 0; from < write->bytes; count++)
		from += part_bytes(write, from);
	return count;
}

struct batch {
	struct verbs_lane *lane;
	uint64_t now_ns;
	uint32_t count, *posted; /* posted: whole writes */
	struct verbs_request requests[BATCH];
};

static int batch_flush(struct batch *batch, struct error *error)
{
	uint32_t taken;
	int rc = verbs_lane_post(batch->lane, batch->requests, batch->count, &taken, error);

	for (uint32_t i = 0; i < taken; i++)
		*batch->posted += batch->requests[i].entry.last;
	batch->count = 0;
	return rc;
}

static int batch_add(struct batch *batch, const struct provider_write *write, struct error *error)
{
	for (uint64_t from = 0, bytes; from < write->bytes; from += bytes) {
		struct verbs_request *request = &batch->requests[batch->count];

		bytes = part_bytes(write, from);
		request->entry = (struct verbs_entry){
			.id = write->id,
			.source = write->source + from,
			.region = write->region,
			.remote = write->remote,
			.offset = write->offset + from,
			.bytes = (uint32_t)bytes,
			.kind = VERBS_WRITE,
			.last = from + bytes == write->bytes,
			.posted_ns = batch->now_ns,
		};
		verbs_request_fill(batch->lane, request);
		if (++batch->count == BATCH) {
			int rc = batch_flush(batch, error);

			if (rc)
				return rc;
		}
	}
	return 0;
}

static int post_writes(struct batch *batch, const struct provider_write *writes, uint32_t count,
		       struct error *error)
{
	uint32_t room = verbs_lane_room(batch->lane);
	uint32_t most = batch->lane->depth - VERBS_SIGNAL_SLOTS;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t parts = part_count(&writes[i]);
		int rc;

		if (parts > most)
			return error_set(
				error, ERROR_LIMIT,
				"a chunk of %llu bytes crosses %u borders of registrations, "
				"a queue holds %u requests: use smaller chunks",
				(unsigned long long)writes[i].bytes, parts - 1, most);
		if (parts > room)
			break;
		room -= parts;
		rc = batch_add(batch, &writes[i], error);
		if (rc)
			return rc;
	}
	return batch->count ? batch_flush(batch, error) : 0;
}

/* The device may have failed a moment ago, and its event not be read yet. */
bool verbs_lane_refused(struct verbs_lane *lane)
{
	if (verbs_lane_lives(lane))
		verbs_events(lane->endpoint->domain);
	if (verbs_lane_lives(lane) || !verbs_lane_has_other(lane))
		return false;
	atomic_store(&lane->endpoint->attention, true);
	return true;
}

/* The first parts of a write whose last ones were refused. All of it will be offered anew, under
 * the same id, so these must not go out by yet another lane: nobody would wait for them there, and
 * the source may change. */
static void withdraw(struct verbs_lane *lane)
{
	for (uint64_t at = lane->tail; at > lane->done; at--) {
		struct verbs_entry *entry = verbs_entry_at(lane, at - 1);

		if (entry->last || entry->kind != VERBS_WRITE)
			break;
		entry->withdrawn = true;
	}
}

int verbs_post_write(struct transport_endpoint *shared, uint32_t rail,
		     const struct provider_write *writes, uint32_t count, uint32_t *posted,
		     struct error *error)
{
	struct verbs_endpoint *endpoint = shared->state;
	struct batch batch;
	int rc;

	*posted = 0;
	batch.lane = &endpoint->lanes[rail];
	batch.count = 0;
	batch.posted = posted;
	if (!verbs_lane_room(batch.lane))
		return 0;
	batch.now_ns = clock_ns();
	rc = post_writes(&batch, writes, count, error);
	for (uint32_t i = 0; i < *posted; i++)
		verbs_run_took(endpoint, rail, writes[i].bytes);
	if (!rc || !verbs_lane_refused(batch.lane))
		return rc;
	withdraw(batch.lane);
	return 0;
}

/* A lane whose port is down may come back: it is left alone while another can work. */
static bool other_is_up(const struct verbs_endpoint *endpoint)
{
	for (uint32_t i = 0; i < endpoint->lane_count; i++)
		if (verbs_lane_lives(&endpoint->lanes[i]) &&
		    !atomic_load_explicit(&endpoint->lanes[i].nic->down, memory_order_relaxed))
			return true;
	return false;
}

uint32_t verbs_credit(const struct transport_endpoint *shared, uint32_t rail)
{
	const struct verbs_endpoint *endpoint = shared->state;
	const struct verbs_lane *lane = &endpoint->lanes[rail];

	/* what a lane left behind goes first */
	if (rail >= endpoint->lane_count || endpoint->dying || endpoint->replay_count ||
	    endpoint->replay_signal || !lane->qp || !verbs_lane_lives(lane))
		return 0;
	if (atomic_load_explicit(&lane->nic->down, memory_order_relaxed) && other_is_up(endpoint))
		return 0;
	return verbs_run_elsewhere(endpoint, rail) ? 0 : verbs_lane_room(lane);
}

/* ---- signals ---- */

/* `payload`: this lane carries the bank; the others carry only the notice that it is there. */
static void fill_signal(const struct verbs_lane *lane, uint32_t lanes, bool payload,
			uint64_t now_ns, struct verbs_request *request)
{
	struct verbs_endpoint *endpoint = lane->endpoint;
	const struct verbs_block *block = endpoint->place.block;
	size_t bank = endpoint->signal_sequence & 1;

	*request = (struct verbs_request){
		.entry = {.id = endpoint->signal_id,
			  .offset = endpoint->signal_round,
			  .bytes = payload ? sizeof(endpoint->slot->out) : 0,
			  .kind = VERBS_SIGNAL,
			  .last = true,
			  .posted_ns = now_ns},
		.local_address = (uintptr_t)&endpoint->slot->out,
		.remote_address = endpoint->peer.slot_address +
				  offsetof(struct verbs_slot, mailbox.bank) +
				  bank * sizeof(struct mailbox_bank),
		.lkey = block->mrs[lane->nic->index]->lkey,
		.rkey = endpoint->peer.nics[lane->peer_nic].slot_rkey,
		.immediate = true,
		.immediate_value = verbs_immediate(endpoint->signal_sequence, lanes),
	};
}

int verbs_signal_send(struct verbs_endpoint *endpoint, struct error *error)
{
	uint64_t now = clock_ns();
	uint32_t lanes = 0, posted;
	bool payload = true;

	verbs_each_lane(lane, endpoint) {
		/* closed by another thread just now: what it had comes first */
		if (lane->state == VERBS_LANE_READY && !verbs_lane_lives(lane)) {
			atomic_store(&endpoint->attention, true);
			return 1;
		}
		if (!verbs_lane_lives(lane))
			continue;
		if (!verbs_lane_free(lane))
			return 1;
		lanes |= 1u << lane->wire_index;
	}
	if (!lanes)
		return 1;
	endpoint->signal_round++;
	endpoint->signal_lanes = lanes;
	endpoint->signal_active = true;
	verbs_each_lane(lane, endpoint) {
		struct verbs_request request;
		int rc;

		if (!(lanes & 1u << lane->wire_index) || lane->state != VERBS_LANE_READY)
			continue;
		fill_signal(lane, lanes, payload, now, &request);
		payload = false;
		rc = verbs_lane_post(lane, &request, 1, &posted, error);
		if (!rc)
			continue;
		if (!verbs_lane_refused(lane))
			return rc;
		/* the target must not wait for this lane: all of it once more, without */
		endpoint->replay_signal = true;
		return 0;
	}
	return 0;
}

int verbs_post_signal(struct transport_endpoint *shared, uint64_t id,
		      const struct transport_signal *signal, struct error *error)
{
	struct verbs_endpoint *endpoint = shared->state;
	struct mailbox_bank *out = &endpoint->slot->out;
	uint64_t words[TRANSPORT_PAYLOAD_BYTES / 8];

	if (endpoint->dying || endpoint->replay_count || endpoint->signal_active ||
	    atomic_load(&endpoint->attention))
		return 1;
	memcpy(words, signal->payload, sizeof(words));
	atomic_store_explicit(&out->sequence, signal->sequence, memory_order_relaxed);
	atomic_store_explicit(&out->head, signal->tag | (uint64_t)signal->length << 32,
			      memory_order_relaxed);
	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		atomic_store_explicit(&out->payload[i], words[i], memory_order_release);
	endpoint->signal_id = id;
	endpoint->signal_sequence = signal->sequence;
	return verbs_signal_send(endpoint, error);
}

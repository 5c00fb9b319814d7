/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/update/traced.h"

#include "worker/update/donor.h"
#include "worker/update/executor.h"
#include "worker/update/wait.h"

#include <stdio.h>

/* Lanes of an inference rank to, and from, ranks of other engines: behind all trainers. */
#define LANE_FROM_ENGINES (1u << 20)
#define LANE_TO_ENGINES	  (2u << 20)

/* ---- a trainer ---- */

static void add_to_peer(const struct sender *sender, uint32_t peer, struct trace_event *event)
{
	const struct peer *to = &sender->epoch->peers[peer];
	char lane[PEER_NAME_BYTES + 4];

	snprintf(lane, sizeof(lane), "to %s", to->name);
	event->lane = LANE_PEERS + to->plan->member.rank;
	event->version = sender->schedule.version;
	trace_add(sender->epoch->options.trace, event, lane);
}

static void name_piece(const struct sender *sender, uint32_t row, uint32_t part,
		       struct trace_event *event)
{
	const struct send_row *at = &sender->epoch->send.rows[row];

	event->piece = at->ordinal + 1;
	event->part = part;
	event->path = at->landed ? route_path_name(PATH_LANDED) : route_path_name(at->path);
	trace_text(event,
		   send_plan_name(sender->epoch, sender->epoch->send.sources[at->source].tensor));
}

/* Pieces that packing has stored in the peers' memory, which is all of their way. */
static void add_stores(const struct sender *sender, uint32_t index, uint32_t part,
		       uint64_t begin_ns, uint64_t end_ns)
{
	const struct send_plan *plan = &sender->epoch->send;
	const struct send_source *source = &plan->sources[index];
	uint64_t from, bytes = source_part(source, part, &from);

	for (uint32_t i = 0; i < source->row_count; i++) {
		uint32_t row = plan->source_rows[source->first_row + i];
		struct trace_event event = {.name = "write",
					    .begin_ns = begin_ns,
					    .end_ns = end_ns,
					    .bytes = bytes,
					    .by_thread = true};

		if (!plan->rows[row].stored || !executor_serves(sender, plan->rows[row].peer))
			continue;
		name_piece(sender, row, part, &event);
		add_to_peer(sender, plan->rows[row].peer, &event);
	}
}

void traced_pack(const struct sender *sender, const struct step *step, uint64_t begin_ns)
{
	uint32_t count = step->group ? step->group : 1;
	uint32_t first = step->group ? step->group_first : step->source;
	struct trace_event event = {.name = "pack",
				    .begin_ns = begin_ns,
				    .version = sender->schedule.version,
				    .lane = LANE_PACK,
				    .by_thread = true};

	if (!begin_ns)
		return;
	event.end_ns = clock_ns();
	for (uint32_t i = 0; i < count; i++) {
		uint64_t from;

		event.bytes +=
			source_part(&sender->epoch->send.sources[first + i], step->part, &from);
	}
	trace_text(&event,
		   send_plan_name(sender->epoch, sender->epoch->send.sources[step->source].tensor));
	trace_add(sender->epoch->options.trace, &event, "pack");
	for (uint32_t i = 0; i < count && !step->fresh; i++)
		add_stores(sender, first + i, step->part, begin_ns, event.end_ns);
}

void traced_post(const struct sender *sender, const struct step *step, const struct doing *doing,
		 uint64_t begin_ns)
{
	struct trace_event event = {.name = step->sums ? "sums" : "write",
				    .begin_ns = begin_ns,
				    .bytes = doing->bytes,
				    .by_thread = true};

	if (!begin_ns)
		return;
	event.end_ns = clock_ns();
	if (!step->sums)
		name_piece(sender, step->row, step->part, &event);
	add_to_peer(sender, step->peer, &event);
}

void traced_wire(const struct sender *sender, const struct step *step, uint64_t begin_ns)
{
	struct trace_event event = {.begin_ns = begin_ns, .by_thread = true};

	if (!begin_ns)
		return;
	if (step->kind == STEP_SIGNAL)
		event.name = step->tells ? "landed" : step->abort ? "abort" : "end";
	else if (step->wait == WAIT_FLUSH)
		event.name = "flush";
	else
		return;
	event.end_ns = clock_ns();
	add_to_peer(sender, step->peer, &event);
}

void traced_sending(const struct sender *sender, const char *name, uint64_t begin_ns,
		    uint64_t bytes)
{
	const struct trace_event event = {.name = name,
					  .begin_ns = begin_ns,
					  .end_ns = traced_now(sender->epoch),
					  .version = sender->schedule.version,
					  .bytes = bytes,
					  .lane = LANE_UPDATE};

	if (event.end_ns)
		trace_add(sender->epoch->options.trace, &event, "update");
}

void traced_ended(const struct sender *sender, uint64_t end_begin_ns)
{
	traced_sending(sender, "end", end_begin_ns, 0);
	traced_sending(sender, "update", sender->begin_ns, 0);
}

/* ---- an inference rank ---- */

static void add_part(const struct waiter *waiter, const char *name, uint64_t version,
		     uint64_t begin_ns, uint64_t end_ns)
{
	const struct trace_event event = {.name = name,
					  .begin_ns = begin_ns,
					  .end_ns = end_ns,
					  .version = version,
					  .lane = LANE_UPDATE};

	trace_add(waiter->epoch->options.trace, &event, "update");
}

void traced_receiving(const struct waiter *waiter, const char *name, uint64_t version,
		      uint64_t begin_ns)
{
	if (waiter->epoch->options.trace)
		add_part(waiter, name, version, begin_ns, clock_ns());
}

void traced_word(const struct waiter *waiter, uint32_t p, const char *name, uint64_t version,
		 uint64_t bytes)
{
	const struct peer *from = &waiter->now->from[p];
	struct trace_event event = {.name = name, .version = version, .bytes = bytes};
	char lane[PEER_NAME_BYTES + 8];

	event.begin_ns = traced_now(waiter->epoch);
	if (!event.begin_ns)
		return;
	snprintf(lane, sizeof(lane), "from %s", from->name);
	event.lane = LANE_PEERS + from->plan->member.rank +
		     (from->plan->member.role == ROLE_INFERENCE ? LANE_FROM_ENGINES : 0);
	trace_add(waiter->epoch->options.trace, &event, lane);
}

void traced_published(const struct waiter *waiter, uint64_t version)
{
	uint64_t now = traced_now(waiter->epoch), began = waiter->receiver.began_ns;
	uint64_t verified = waiter->installs_ns + waiter->stats.verify_ns;
	struct trace_event pause = {.name = "pause",
				    .begin_ns = waiter->paused_ns,
				    .end_ns = now,
				    .version = version,
				    .lane = LANE_READERS};

	if (!now)
		return;
	add_part(waiter, "update", version, began, now);
	add_part(waiter, "write", version, began, waiter->installs_ns);
	if (waiter->stats.verify_ns)
		add_part(waiter, "verify", version, waiter->installs_ns, verified);
	add_part(waiter, "commit", version, verified, now);
	if (waiter->epoch->options.params->copies == 1)
		trace_add(waiter->epoch->options.trace, &pause, "readers");
}

void traced_given_up(const struct waiter *waiter, const char *why)
{
	struct trace_event event = {.name = "update given up",
				    .begin_ns = waiter->receiver.began_ns,
				    .end_ns = traced_now(waiter->epoch),
				    .version = waiter->receiver.wanted,
				    .lane = LANE_UPDATE};

	if (!event.end_ns)
		return;
	trace_text(&event, why);
	trace_add(waiter->epoch->options.trace, &event, "update");
}

void traced_copied(const struct donor *donor, const struct donation *donation, const char *why)
{
	const struct peer *to = donation->peer;
	struct trace_event event = {.name = why ? "copy given up" : "copy",
				    .begin_ns = donation->began_ns,
				    .end_ns = traced_now(donor->epoch),
				    .version = donor->version,
				    .bytes = donation->bytes};
	char lane[PEER_NAME_BYTES + 4];

	if (!event.end_ns || !event.begin_ns)
		return;
	snprintf(lane, sizeof(lane), "to %s", to->name);
	event.lane = LANE_PEERS + to->plan->member.rank + LANE_TO_ENGINES;
	if (why)
		trace_text(&event, why);
	trace_add(donor->epoch->options.trace, &event, lane);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * update_world_steps.c -- what a thread does that was told a step: it packs, posts, signals or waits, each of
 * which takes its time.
 */
#include "tests/support/update_world_parts.h"

#include "base/assert.h"

#include <inttypes.h>

/* ---- a trainer's memory ---- */

static tag *place_of(struct world_trainer *trainer, uint32_t source, uint32_t part)
{
	const struct send_source *from = &trainer->sources[source];
	uint64_t offset = (uint64_t)part * from->part_bytes;
	tag *slot;

	if (trainer->plan.full)
		return &trainer->ring[(trainer->plan.homes.places[source].at + offset) / 8];
	slot = from->slots ? replica_find(&trainer->schedule.replica, from->first_block + part)
			   : NULL;
	return slot;
}

static void store_mapped(struct world *world, uint32_t t, uint32_t source, uint32_t part,
			 uint64_t version)
{
	struct world_trainer *trainer = &world->trainers[t];
	const struct send_source *from = &trainer->sources[source];

	for (uint32_t i = 0; i < from->row_count; i++) {
		uint32_t row = trainer->source_rows[from->first_row + i];

		if (!trainer->rows[row].stored ||
		    link_out(&trainer->schedule.links[trainer->rows[row].peer]))
			continue;
		if (!world->ranks[trainer->rows[row].peer].links[trainer->wire].outstanding)
			world_find(world, "%s stored row %u where nothing is accepted",
				   world->senders[t], row);
		world_check_write(world, trainer->wire, trainer->rows[row].peer, version);
		world->ranks[trainer->rows[row].peer].cells[trainer->owner][row][part] =
			world_content(world, t, version, source, part);
	}
}

/* Slots and homes are wrong from the first byte to the last. */
static void pack_begins(struct world *world, uint32_t t, const struct step *step)
{
	struct world_trainer *trainer = &world->trainers[t];

	for (uint32_t i = 0; i < (step->group ? step->group : 1) && !step->replay; i++) {
		uint32_t source = step->group ? step->group_first + i : step->source;
		tag *place = place_of(trainer, source, step->part);

		if (place)
			*place = 0;
	}
}

/* What differs of the part, in a few runs; or it is sent whole. */
static void differ(struct world *world, struct world_trainer *trainer, uint32_t source,
		   uint32_t part)
{
	const struct send_source *from = &trainer->sources[source];
	struct sent_block *block = &trainer->sent_blocks[from->first_block + part];
	uint64_t begin, left = source_part(from, part, &begin);

	block->runs = 0;
	for (uint32_t runs = (uint32_t)world_random(world, WORLD_RUNS + 1);
	     left && block->runs < runs;) {
		uint64_t span = block->runs + 1 == runs ? left : 1 + world_random(world, left);

		trainer->sent_runs[block->first_run + block->runs++] =
			(struct sent_run){.from = begin,
					  .span = (uint32_t)span,
					  .bytes = (uint32_t)(8 * (1 + world_random(world, 8)))};
		begin += span;
		left -= span;
	}
	WEFT_ASSERT(!block->runs || !left);
	trainer->sent_sources[source].element_bytes = 2;
	trainer->sent_sources[source].version =
		trainer->schedule.ended_version; /* that it differs from */
}

void world_pack_ends(struct world *world, uint32_t t, const struct step *step)
{
	struct world_trainer *trainer = &world->trainers[t];
	uint64_t version = trainer->schedule.version;

	for (uint32_t i = 0; i < (step->group ? step->group : 1); i++) {
		uint32_t source = step->group ? step->group_first + i : step->source;
		tag *place = place_of(trainer, source, step->part);

		if (place) /* a replay: the same bytes, of a new version */
			*place = world_content(world, t, version, source, step->part);
		if (!step->fresh)
			store_mapped(world, t, source, step->part, version);
		if (world->options.deltas && step->group)
			differ(world, trainer, source, step->part);
		else if (world->options.deltas && step->replay)
			trainer->sent_blocks[trainer->sources[source].first_block + step->part]
				.runs = 0;
	}
}

static void later(struct world *world, struct world_thread *thread, struct event event)
{
	thread->state = THREAD_READY;
	thread->event = event;
	thread->at = world->now + world_takes(world);
}

static void fails(struct world *world, struct world_thread *thread, const char *what)
{
	error_set(&thread->error, ERROR_TRANSPORT, "%s", what);
	thread->event = (struct event){.kind = EVENT_FAILED, .error = &thread->error};
	thread->state = THREAD_READY;
	thread->at = world->now;
}

/* ---- steps ---- */

void world_post_ends(struct world *world, uint32_t t, struct world_thread *thread)
{
	if (thread->event.write || thread->step.merges || thread->for_nobody)
		return;
	thread->event.write =
		world_post(world, t, thread->step.peer, &thread->flight)
			? world->links[world->trainers[t].wire][thread->step.peer].posted
			: 0;
	if (thread->event.write)
		return;
	world_tell(world, "%s loses rank %u", world->senders[t], thread->step.peer);
	fails(world, thread, "the link broke");
}

static void do_post(struct world *world, uint32_t t, struct world_thread *thread)
{
	struct world_trainer *trainer = &world->trainers[t];
	const struct step *step = &thread->step;
	const struct send_source *source = &trainer->sources[step->source];
	struct flight flight = {.row = UINT32_MAX, .sums = true};
	bool released;

	if (world_is_spared(world, t, step->peer, &released)) {
		later(world, thread,
		      (struct event){
			      .kind = EVENT_SPARED, .peer = step->peer, .released = released});
		return;
	}
	flight.wanted = world_content(world, t, trainer->schedule.version, 0, 0);
	if (!step->sums) {
		flight =
			(struct flight){.row = step->row,
					.part = step->part,
					.wanted = world_content(world, t, trainer->schedule.version,
								step->source, step->part)};
		if (!step->run &&
		    (trainer->plan.full ||
		     (source->slots && trainer->rows[step->row].path == PATH_REPLICA)))
			flight.from = place_of(trainer, step->source, step->part);
		if (step->lands) {
			flight.at = step->at;
			flight.bytes = step->bytes;
		}
	}
	if (step->lands && world->options.interrupt && world_chance(world, 10)) {
		later(world, thread, (struct event){.kind = EVENT_ASK});
		return;
	}
	thread->flight = flight;
	for (uint64_t byte = 0; step->merges && byte < (step->run ? step->run->bytes : step->bytes);
	     byte += 8)
		trainer->merged[step->peer][(step->merge_at + byte) / 8] =
			flight.from ? *flight.from : flight.wanted;
	later(world, thread,
	      (struct event){.kind = EVENT_POSTED,
			     .peer = step->peer,
			     .write = step->merges ? world->links[trainer->wire][step->peer].posted
						   : 0});
	if (world->options.small)
		world_post_ends(world, t, thread);
}

/* What is merged is read when its write completes. */
static bool post_merged(struct world *world, uint32_t t, uint32_t peer, uint64_t number)
{
	const struct send_window *window = &world->trainers[t].schedule.windows[peer];
	const struct window_entry *entry = &window->entries[number % WINDOW_ENTRIES];
	const struct send_entry *state = &window->states[number % WINDOW_ENTRIES];
	const tag *from = &world->trainers[t].merged[peer][state->merge_at / 8];

	return !state->merge_id || world_post(world, t, peer,
					      &(struct flight){.row = entry->ordinal,
							       .at = entry->at,
							       .bytes = window_entry_bytes(entry),
							       .from = from,
							       .wanted = *from});
}

/* What is merged, then the entries: writes, which the signal stays behind. */
static void do_tell(struct world *world, uint32_t t, struct world_thread *thread)
{
	const struct step *step = &thread->step;
	struct world_trainer *trainer = &world->trainers[t];
	struct world_link *link = &world->links[trainer->wire][step->peer];
	struct world_window *window = &world->ranks[step->peer].windows[trainer->wire];
	uint64_t at = world->now + world_takes(world);
	bool posted = true;

	if (world->options.interrupt &&
	    world_chance(world, 10)) { /* and taken back: it is not done */
		later(world, thread, (struct event){.kind = EVENT_ASK});
		return;
	}
	for (uint64_t n = step->told; n < step->entries && posted; n++) {
		window->entries[n % WINDOW_ENTRIES] =
			trainer->schedule.windows[step->peer].entries[n % WINDOW_ENTRIES];
		posted = post_merged(world, t, step->peer, n);
	}
	if (!posted || !world_post(world, t, step->peer, &(struct flight){.row = UINT32_MAX})) {
		fails(world, thread, "the link broke");
		return;
	}
	link->to_rank = (struct world_signal){
		.there = true,
		.at = at > link->last_at ? at : link->last_at,
		.word = UPDATE_LANDED,
		.landed = {trainer->schedule.links[step->peer].used_opening, step->entries}};
	thread->event = (struct event){.kind = EVENT_TOLD,
				       .peer = step->peer,
				       .write = link->posted,
				       .entries = step->entries};
	thread->state = THREAD_READY;
	thread->at = link->to_rank.at + (world->options.small ? 0 : world_takes(world));
}

/* By mistake, writes to that peer are not waited for. */
static bool unsettled(const struct world *world, const struct world_trainer *trainer, uint32_t peer)
{
	return world->options.bug == BUG_NO_SETTLE ||
	       (world->options.bug == BUG_SPARED_WRITES_ON && trainer->schedule.links[peer].spared);
}

static void do_signal(struct world *world, uint32_t t, struct world_thread *thread)
{
	struct world_trainer *trainer = &world->trainers[t];
	const struct step *step = &thread->step;
	struct world_link *link = &world->links[trainer->wire][step->peer];
	const struct receive_peer *peer = &world->ranks[step->peer].peers[trainer->owner];
	uint64_t opening = trainer->schedule.links[step->peer].used_opening;
	uint64_t at = world->now + world_takes(world);

	if (link->broken) {
		fails(world, thread, "the link broke");
		return;
	}
	link->to_rank = (struct world_signal){
		.there = true,
		.at = at > link->last_at || unsettled(world, trainer, step->peer) ? at
										  : link->last_at,
		.word = step->abort ? UPDATE_ABORT : UPDATE_END,
		.end = {.opening = opening,
			.version = trainer->schedule.version,
			.bytes = peer->bytes,
			.pieces = peer->pieces,
			.sums = peer->pieces,
			.landed = step->entries,
			.beside_bytes = step->beside_bytes},
		.gone = {
			.opening = opening, .version = trainer->schedule.version, .why = "a test"}};
	thread->event = (struct event){.kind = EVENT_SIGNALLED, .peer = step->peer};
	thread->state = THREAD_READY;
	thread->at = link->to_rank.at;
}

static void do_wait(struct world *world, uint32_t t, struct world_thread *thread)
{
	const struct step *step = &thread->step;
	const struct world_trainer *trainer = &world->trainers[t];
	struct world_link *link = &world->links[trainer->wire][step->peer];

	switch (step->wait) {
	case WAIT_CHANGE:
		thread->state = THREAD_CHANGE;
		thread->at = NEVER;
		break;
	case WAIT_WORK:
		thread->state = THREAD_WORK;
		thread->at = NEVER;
		break;
	case WAIT_ACCEPT: /* in slices, at whose ends it looks for who is gone */
		thread->state = THREAD_ACCEPT;
		thread->at = world->dead ? world->now + MS : step->until_ns;
		break;
	case WAIT_TAKEN:
		thread->event = (struct event){.kind = EVENT_ASK};
		thread->state = link->to_trainer.there ? THREAD_READY : THREAD_TAKEN;
		thread->at = link->to_trainer.there ? link->to_trainer.at
			     : world->dead	    ? world->now + MS
						    : step->until_ns;
		break;
	case WAIT_WRITE:
	case WAIT_FLUSH:
		if (link->broken) {
			fails(world, thread, "the link broke");
			break;
		}
		/* a write is asked for again and again; a flush comes back when all are complete */
		thread->event = (struct event){
			.kind = EVENT_COMPLETED, .peer = step->peer, .write = link->posted};
		thread->state = THREAD_READY;
		thread->at = link->last_at > world->now && !unsettled(world, trainer, step->peer)
				     ? link->last_at
				     : world->now;
		if (step->wait == WAIT_WRITE && world_chance(world, 50)) {
			thread->event.write = link->completed;
			thread->at = world->now + world_takes(world);
		}
		break;
	}
}

void world_do_step(struct world *world, uint32_t t, struct world_thread *thread)
{
	struct world_trainer *trainer = &world->trainers[t];

	thread->for_nobody = schedule_for_nobody(&trainer->schedule, &thread->step, &thread->event);
	if (thread->for_nobody) {
		thread->state = THREAD_READY;
		thread->at = world->now;
		return;
	}
	switch (thread->step.kind) {
	case STEP_PACK:
		world_tell(world, "%s packs source %u part %u%s", world->senders[t],
			   thread->step.source, thread->step.part,
			   thread->step.fresh ? " once more" : "");
		pack_begins(world, t, &thread->step);
		later(world, thread, (struct event){.kind = EVENT_PACKED});
		if (world->options.small)
			thread->at += MS;
		if (world->options.slow_pack && !thread->step.source && !thread->step.part)
			thread->at = world->now + world->options.slow_pack * (uint64_t)MS;
		break;
	case STEP_POST:
		if (thread->step.sums)
			world_tell(world, "%s posts checksums to rank %u", world->senders[t],
				   thread->step.peer);
		else if (thread->step.lands)
			world_tell(world,
				   "%s %s source %u bytes %" PRIu64 "..%" PRIu64
				   " into the window of rank %u",
				   world->senders[t], thread->step.merges ? "merges" : "posts",
				   thread->step.source, thread->step.from,
				   thread->step.from + thread->step.bytes, thread->step.peer);
		else
			world_tell(world, "%s posts source %u part %u to rank %u",
				   world->senders[t], thread->step.source, thread->step.part,
				   thread->step.peer);
		do_post(world, t, thread);
		break;
	case STEP_SIGNAL:
		if (thread->step.tells) {
			world_tell(world, "%s tells rank %u of %" PRIu64 " entries",
				   world->senders[t], thread->step.peer, thread->step.entries);
			do_tell(world, t, thread);
			break;
		}
		world_tell(world, "%s signals %s of version %" PRIu64 " to rank %u",
			   world->senders[t], thread->step.abort ? "the abort" : "the end",
			   trainer->schedule.version, thread->step.peer);
		do_signal(world, t, thread);
		break;
	case STEP_WAIT:
		do_wait(world, t, thread);
		break;
	case STEP_DROP: /* here peers are gone in maybe_hear_of_death */
	case STEP_DONE:
	case STEP_FAIL:
		thread->state = THREAD_OUT;
		thread->at = NEVER;
		world_host_heard(world, trainer, thread, thread->step.kind == STEP_DONE);
		break;
	}
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule_land.c -- pieces that are not written where they belong: into a window beside the peer's memory, which
 * the peer empties.
 *
 *   part   |....|....|....|        a chunk is one entry of the window, of a quarter of its ring at most
 *            └─► ring takes ─► POST ─► told (LANDED) ─► taken (TAKEN): its place is free again
 *
 *   small parts           each is copied to the next place of what is merged; places that follow each other in it and in the
 *   |.| |..| |.| ─► |.|..|.|     window are one write, which is posted when they are told
 *
 * Where the peer has the version before, and what differs is less, that is what lands: runs of it (sent.h), each an entry, copied to what
 * is merged whatever the row's way is.
 *
 * A task tells when a quarter of the window is untold, so that the peer copies while more is on its
 * way, and whenever it finds no room. Who finds none waits for what was told to be taken.
 */
#include "worker/update/schedule.h"

#include "base/assert.h"
#include "base/memory.h"
#include "worker/update/path.h"

#include <string.h>

#define SHARE	    4u /* of a window, that is told, and that a chunk takes at most */
#define CHUNK_BYTES (UINT64_C(1) << 30) /* an entry counts its bytes in 32 bits */

/* ---- windows ---- */

static int no_window(const struct schedule *schedule, uint32_t peer, struct error *error)
{
	return error_set(error, ERROR_MESSAGE,
			 "%s opened no window, and the plan says that its pieces land in one",
			 schedule->options.peer_names[peer]);
}

static int open_ring(struct ring *ring, uint64_t bytes, struct error *error)
{
	int rc = 0;

	if (ring->bytes != bytes / RING_ALIGN * RING_ALIGN) {
		ring_close(ring);
		rc = ring_open(ring, bytes, WINDOW_ENTRIES, error);
	}
	if (!rc && ring->bytes)
		ring_reset(ring);
	return rc;
}

static int open_window(struct schedule *schedule, uint32_t peer, struct error *error)
{
	struct send_window *window = &schedule->windows[peer];
	const struct update_accept *accept = &schedule->links[peer].accept;
	const struct send_merge *merges = schedule->options.plan->merges;
	uint64_t bytes = accept->window_bytes ? accept->window_bytes - WINDOW_HEAD_BYTES : 0;
	int rc;

	if (!bytes && schedule->options.plan->lands[peer])
		return no_window(schedule, peer, error);
	rc = open_ring(&window->ring, bytes, error);
	if (!rc)
		rc = open_ring(&window->merge, merges ? merges[peer].bytes : 0, error);
	if (rc)
		return rc;
	window->first_id = window->ring.next;
	window->taken = window->told = window->posted = 0;
	window->untold_bytes = window->unmerged_bytes = window->beside_bytes = 0;
	window->telling = 0;
	schedule->links[peer].deltas = bytes && send_plan_deltas(schedule->options.plan, peer) &&
				       accept->base && accept->base == schedule->ended_version;
	memset(window->states, 0, WINDOW_ENTRIES * sizeof(*window->states));
	return 0;
}

static bool has_window(const struct send_plan *plan, size_t peer)
{
	return (plan->lands && plan->lands[peer]) || send_plan_deltas(plan, peer);
}

int schedule_open_windows(struct schedule *schedule, struct error *error)
{
	const struct send_plan *plan = schedule->options.plan;
	int rc = 0;

	for (uint32_t p = 0; p < plan->peer_count && !rc; p++) {
		schedule->links[p].deltas = false;
		if (has_window(plan, p) && !link_out(&schedule->links[p]))
			rc = open_window(schedule, p, error);
	}
	return rc;
}

int schedule_make_windows(struct schedule *schedule, struct error *error)
{
	const struct send_plan *plan = schedule->options.plan;
	struct pool *pool = &schedule->pool;

	schedule->windows = pool_array(pool, plan->peer_count, sizeof(*schedule->windows));
	for (size_t p = 0; p < plan->peer_count && schedule->windows; p++) {
		struct send_window *window = &schedule->windows[p];

		if (!has_window(plan, p))
			continue;
		window->entries = schedule->options.entries + p * WINDOW_ENTRIES;
		window->states = pool_array(pool, WINDOW_ENTRIES, sizeof(*window->states));
	}
	return pool_ok(pool) ? 0
			     : memory_error(error, "preparing windows",
					    plan->peer_count * sizeof(*schedule->windows));
}

void schedule_close_windows(struct schedule *schedule)
{
	for (size_t p = 0; schedule->windows && p < schedule->options.plan->peer_count; p++) {
		ring_close(&schedule->windows[p].ring);
		ring_close(&schedule->windows[p].merge);
	}
}

/* ---- what happened ---- */

/* Entries may be posted in any order by several tasks; posted is what is there without a gap. */
bool schedule_landed(struct schedule *schedule, struct task *task, uint32_t peer)
{
	const struct send_source *source = &schedule->options.plan->sources[task->source];
	struct send_window *window = &schedule->windows[peer];
	const struct window_entry *entry = &window->entries[task->entry % WINDOW_ENTRIES];
	uint64_t from;

	task->placed = false;
	task->deadline_ns = 0;
	task->landed += entry->bytes;
	if (entry->coded) {
		task->run++;
		/* of a run that may be less than none, of a part it is not */
		schedule->counts.saved_bytes += (uint64_t)entry->bytes - entry->coded;
	}
	window->states[task->entry % WINDOW_ENTRIES].written = true;
	while (window->first_id + window->posted < window->ring.next &&
	       window->states[window->posted % WINDOW_ENTRIES].written) {
		uint64_t place = window->posted++ % WINDOW_ENTRIES;

		window->states[place].written = false;
		window->untold_bytes += window_entry_bytes(&window->entries[place]);
		if (window->states[place].merge_id)
			window->unmerged_bytes += window_entry_bytes(&window->entries[place]);
	}
	schedule->changed = true;
	return task->landed == source_part(source, task->part, &from);
}

void schedule_told(struct schedule *schedule, struct task *task, uint32_t peer, uint64_t entries)
{
	struct send_window *window = &schedule->windows[peer];

	task->tells = 0;
	WEFT_ASSERT_OP(entries, ==, window->telling);
	window->told = entries;
	window->telling = 0;
	schedule->changed = true;
}

/* Who was told may be faster than who has told it. */
void schedule_taken(struct schedule *schedule, uint32_t peer, uint64_t entries)
{
	struct send_window *window = &schedule->windows[peer];
	uint64_t told = window->telling ? window->telling : window->told;
	struct error error;

	if (entries > told) {
		error_set(&error, ERROR_MESSAGE,
			  "%s has taken %llu entries of its window, and was told of %llu",
			  schedule->options.peer_names[peer], (unsigned long long)entries,
			  (unsigned long long)told);
		schedule_fail(schedule, &error);
		return;
	}
	for (; window->taken < entries; window->taken++) {
		const struct send_entry *state = &window->states[window->taken % WINDOW_ENTRIES];

		if (state->merge_id)
			ring_give_back(&window->merge, state->merge_id);
		ring_give_back(&window->ring, window->first_id + window->taken);
	}
	schedule->changed = true;
}

/* ---- what is next ---- */

bool schedule_tell(struct schedule *schedule, struct task *task, uint32_t peer, uint64_t until_ns,
		   struct step *step)
{
	struct send_window *window = &schedule->windows[peer];

	/* a step that was not done comes again as it was */
	if (task->tells != peer + 1) {
		if (window->telling || window->posted == window->told)
			return false;
		window->telling = window->posted;
		window->untold_bytes = window->unmerged_bytes = 0;
		task->tells = peer + 1;
	}
	*step = (struct step){.kind = STEP_SIGNAL,
			      .peer = peer,
			      .tells = true,
			      .told = window->told,
			      .entries = window->telling,
			      .until_ns = until_ns};
	return true;
}

void schedule_untell(struct schedule *schedule)
{
	for (size_t p = 0; p < schedule->options.plan->peer_count; p++)
		schedule->windows[p].telling = 0;
}

/* What was told is not taken by the deadline: the peer is not there to do so. */
static struct step wait_taken(struct schedule *schedule, struct task *task, uint32_t peer,
			      uint64_t now_ns)
{
	const struct send_window *window = &schedule->windows[peer];
	struct text path = {0};
	struct error late;

	if (!task->deadline_ns || task->late_peer != peer || task->late_write != window->taken) {
		task->deadline_ns = now_ns + schedule->options.wait_ns;
		task->late_peer = peer;
		task->late_write = window->taken;
	}
	if (now_ns >= task->deadline_ns) {
		if (schedule->options.peer_paths)
			path_add(&path, schedule->options.peer_paths[peer]);
		error_set(
			&late, ERROR_TIMEOUT,
			"%s has taken nothing out of its window of %llu bytes for %.1f s: it is "
			"not in weft_update_wait, or its GPU is held up; raise the update timeout "
			"(--update-timeout) if this is expected%s",
			schedule->options.peer_names[peer], (unsigned long long)window->ring.bytes,
			(double)schedule->options.wait_ns / 1e9, text_string(&path));
		text_fini(&path);
		return schedule_late(schedule, peer, &late);
	}
	return (struct step){
		.kind = STEP_WAIT, .wait = WAIT_TAKEN, .peer = peer, .until_ns = task->deadline_ns};
}

static struct step put(const struct task *task, const struct send_window *window, uint32_t row,
		       uint32_t peer, const struct sent_run *run)
{
	const struct window_entry *entry = &window->entries[task->entry % WINDOW_ENTRIES];
	const struct send_entry *state = &window->states[task->entry % WINDOW_ENTRIES];

	return (struct step){.kind = STEP_POST,
			     .row = row,
			     .source = task->source,
			     .part = task->part,
			     .peer = peer,
			     .lands = true,
			     .at = entry->at,
			     .from = entry->from,
			     .bytes = entry->bytes,
			     .merges = state->merge_id != 0,
			     .merge_at = state->merge_at,
			     .run = entry->coded ? run : NULL};
}

static bool much_untold(const struct send_window *window)
{
	return window->untold_bytes >= window->ring.bytes / SHARE ||
	       (window->unmerged_bytes && window->unmerged_bytes >= window->merge.bytes / 2) ||
	       window->posted - window->told >= WINDOW_ENTRIES / SHARE;
}

/* A place in the peer's window for the next chunk, and one among what is merged if it is small. */
static bool find_place(struct schedule *schedule, struct task *task, uint32_t row,
		       struct window_entry *entry)
{
	const struct send_plan *plan = schedule->options.plan;
	struct send_window *window = &schedule->windows[plan->rows[row].peer];
	struct send_entry state = {.merge_id = 0};
	uint64_t bytes = window_entry_bytes(entry), id;
	bool took;

	/* asked first: a place that is given back comes free in its turn alone */
	if (!ring_fits(&window->ring, bytes))
		return false;
	if (entry->coded || (window->merge.bytes && bytes < MERGE_BYTES &&
			     send_plan_merges(plan, &plan->rows[row]))) {
		if (!ring_take(&window->merge, bytes, &state.merge_id))
			return false;
		state.merge_at = ring_offset(&window->merge, state.merge_id);
	}
	took = ring_take(&window->ring, bytes, &id);
	WEFT_ASSERT(took);
	entry->at = ring_offset(&window->ring, id);
	task->entry = id - window->first_id;
	task->placed = true;
	window->entries[task->entry % WINDOW_ENTRIES] = *entry;
	window->states[task->entry % WINDOW_ENTRIES] = state;
	return true;
}

const struct sent_block *schedule_delta(const struct schedule *schedule, const struct task *task,
					uint32_t row)
{
	const struct send_plan *plan = schedule->options.plan;
	uint32_t number = plan->sources[task->source].first_block + task->part;
	const struct sent_block *block =
		schedule->options.sent ? &schedule->options.sent->blocks[number] : NULL;

	return block && schedule->links[plan->rows[row].peer].deltas &&
			       schedule->blocks[number] == BLOCK_PACKED && block->runs
		       ? block
		       : NULL;
}

bool schedule_land(struct schedule *schedule, struct task *task, uint32_t row, uint64_t now_ns,
		   struct step *step)
{
	const struct send_plan *plan = schedule->options.plan;
	uint32_t peer = plan->rows[row].peer;
	struct send_window *window = &schedule->windows[peer];
	uint64_t until = now_ns + schedule->options.wait_ns, most = window->ring.bytes / SHARE;
	uint64_t begin, left = source_part(&plan->sources[task->source], task->part, &begin);
	const struct sent_block *delta = schedule_delta(schedule, task, row);
	const struct sent_run *run =
		delta ? &schedule->options.sent->runs[delta->first_run + task->run] : NULL;
	struct window_entry entry = {.from = begin + task->landed,
				     .ordinal = plan->rows[row].ordinal};

	if (task->placed) { /* and not posted: the step comes again */
		*step = put(task, window, row, peer, run);
		return true;
	}
	if ((task->tells || much_untold(window)) &&
	    schedule_tell(schedule, task, peer, until, step))
		return true;
	if (task->landed == left)
		return false;
	left -= task->landed;
	most = most < CHUNK_BYTES ? most : CHUNK_BYTES;
	entry.bytes = (uint32_t)(left < most ? left : most);
	if (run) {
		WEFT_ASSERT_OP(run->from, ==, entry.from);
		entry.bytes = run->span;
		entry.coded = run->bytes;
		entry.element_bytes = schedule->options.sent->sources[task->source].element_bytes;
	}
	if (find_place(schedule, task, row, &entry)) {
		if (!plan->rows[row].landed)
			window->beside_bytes += entry.bytes;
		*step = put(task, window, row, peer, run);
		return true;
	}
	if (schedule_tell(schedule, task, peer, until, step))
		return true;
	*step = window->told > window->taken
			? wait_taken(schedule, task, peer, now_ns)
			: (struct step){.kind = STEP_WAIT, .wait = WAIT_CHANGE};
	return true;
}

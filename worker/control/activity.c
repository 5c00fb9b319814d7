/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/control/activity.h"

#include "base/clock.h"

#include <string.h>

void activity_init(struct activity_board *board)
{
	pthread_mutex_init(&board->lock, NULL);
	board->since_ns = clock_ns();
}

void activity_fini(struct activity_board *board)
{
	pthread_mutex_destroy(&board->lock);
}

void activity_is(struct activity_board *board, enum activity what, uint64_t version)
{
	pthread_mutex_lock(&board->lock);
	if (board->what != what || board->version != version) {
		board->what = what;
		board->version = version;
		board->since_ns = board->waits_ns = clock_ns();
		board->wait_count = board->waits_more = 0;
		atomic_store_explicit(&board->at, 0, memory_order_relaxed);
	}
	pthread_mutex_unlock(&board->lock);
}

void activity_ends(struct activity_board *board, const struct update_clocks *last, bool went_well)
{
	pthread_mutex_lock(&board->lock);
	if (went_well) {
		board->last = *last;
		board->last.bytes -= board->bytes_before;
	}
	board->bytes_before = last->bytes;
	pthread_mutex_unlock(&board->lock);
}

bool activity_due(struct activity_board *board)
{
	uint64_t now = clock_ns();
	bool due;

	pthread_mutex_lock(&board->lock);
	due = now - board->waits_ns >= ACTIVITY_SLICE_MS * 1000000u;
	if (due)
		board->waits_ns = now;
	pthread_mutex_unlock(&board->lock);
	return due;
}

void activity_waits(struct activity_board *board, const struct member *waits, size_t count)
{
	size_t shown = count < LIMIT_WAITS ? count : LIMIT_WAITS;

	pthread_mutex_lock(&board->lock);
	memcpy(board->waits, waits, shown * sizeof(*waits));
	board->wait_count = shown;
	board->waits_more = (uint32_t)(count - shown);
	pthread_mutex_unlock(&board->lock);
}

static uint64_t ms_since(uint64_t ns, uint64_t now)
{
	return now > ns ? (now - ns) / 1000000u : 0;
}

/* Who has been at one peer since the last look, and has done nothing else, waits for it. */
static void take_stuck(struct activity_board *board, struct message_activity *out)
{
	uint64_t moves = atomic_load_explicit(&board->moves, memory_order_relaxed);
	uint64_t at = atomic_load_explicit(&board->at, memory_order_relaxed);

	if (at && moves == board->moves_seen && !out->wait_count) {
		out->waits[0] = (struct member){(enum role)(at >> 32), (uint32_t)at - 1};
		out->wait_count = 1;
	}
	board->moves_seen = moves;
}

void activity_take(struct activity_board *board, struct member *waits, struct message_activity *out)
{
	uint64_t writing = atomic_load_explicit(&board->writing_ns, memory_order_relaxed);
	uint64_t busy = atomic_load_explicit(&board->busy_ns, memory_order_relaxed);
	uint64_t now = clock_ns();

	pthread_mutex_lock(&board->lock);
	memcpy(waits, board->waits, sizeof(board->waits));
	*out = (struct message_activity){
		.what = board->what,
		.version = board->version,
		.since_ms = ms_since(board->since_ns, now),
		.bytes = atomic_load_explicit(&board->bytes, memory_order_relaxed),
		.busy_ms = busy / 1000000u + (writing ? ms_since(writing, now) : 0),
		.waits = waits,
		.wait_count = board->wait_count,
		.waits_more = board->waits_more,
		.last = board->last,
	};
	take_stuck(board, out);
	pthread_mutex_unlock(&board->lock);
	if (out->what != ACTIVITY_OPEN || !writing)
		return;
	out->what = ACTIVITY_WRITES;
	out->since_ms = ms_since(writing, now);
}

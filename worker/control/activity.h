/* SPDX-License-Identifier: Apache-2.0
 *
 * activity.h -- what this worker does, for how long, and whom it waits for, so that people can see it (wire/status.h):
 *
 *   host's calls ── activity_is, activity_waits, .. ──► struct activity ──► control thread, with each heartbeat
 *
 * Costs a lock that nobody else holds for long at the steps of an update, of which there are about ten, and relaxed stores
 * in between. Whoever waits says for whom every ACTIVITY_SLICE_MS at most.
 */
#ifndef WORKER_CONTROL_ACTIVITY_H
#define WORKER_CONTROL_ACTIVITY_H

#include "base/clock.h"
#include "wire/status.h"
#include <pthread.h>
#include <stdatomic.h>

#define ACTIVITY_SLICE_MS 50u

struct activity_board {
	_Atomic uint64_t bytes;       /* message_activity.bytes */
	_Atomic uint64_t writing_ns;  /* trainer: since when calls have been writing; 0: none is */
	_Atomic uint64_t busy_ns;     /* and so long before that */
	_Atomic uint64_t at;          /* whom a write or a signal goes to right now: role << 32 | rank + 1; 0: to nobody */
	_Atomic uint64_t moves;       /* counts those that went on */
	pthread_mutex_t lock;
	/* under it */
	enum activity what;
	uint64_t version, since_ns, waits_ns;
	struct member waits[LIMIT_WAITS];
	size_t wait_count;
	uint32_t waits_more;
	struct update_clocks last;
	uint64_t moves_seen;          /* by activity_take */
	uint64_t bytes_before;        /* the last update that went well */
};

void activity_init(struct activity_board *board);
void activity_fini(struct activity_board *board);
/* From now on, and waiting for nobody. The same once more changes nothing. */
void activity_is(struct activity_board *board, enum activity what, uint64_t version);
/* An update is over. last->bytes: of all that went well so far, which becomes of it alone. */
void activity_ends(struct activity_board *board, const struct update_clocks *last, bool went_well);
/* Whether it is time to say whom this worker waits for: true once a slice. */
bool activity_due(struct activity_board *board);
/* So: `waits` are the first of `count`. */
void activity_waits(struct activity_board *board, const struct member *waits, size_t count);
/* [any thread] Calls write from then on (clock_ns); and no more: for so long they did. */
static inline void activity_writes(struct activity_board *board, uint64_t since_ns)
{
	atomic_store_explicit(&board->writing_ns, since_ns, memory_order_relaxed);
}
static inline uint64_t activity_wrote(struct activity_board *board, uint64_t since_ns)
{
	uint64_t took = clock_ns() - since_ns;

	atomic_fetch_add_explicit(&board->busy_ns, took, memory_order_relaxed);
	atomic_store_explicit(&board->at, 0, memory_order_relaxed);
	atomic_store_explicit(&board->writing_ns, 0, memory_order_relaxed);
	return took;
}
/* [any thread] A call that may last goes to that one; it went on, or not. */
static inline void activity_at(struct activity_board *board, struct member who)
{
	atomic_store_explicit(&board->at, (uint64_t)who.role << 32 | (who.rank + 1u), memory_order_relaxed);
}
static inline void activity_past(struct activity_board *board, bool moved)
{
	if (!moved)
		return;
	atomic_store_explicit(&board->at, 0, memory_order_relaxed);
	atomic_fetch_add_explicit(&board->moves, 1, memory_order_relaxed);
}
/* The control thread: as of now, without traffic and trouble. waits has room for LIMIT_WAITS, and is borrowed by `out`. */
void activity_take(struct activity_board *board, struct member *waits, struct message_activity *out);

#endif

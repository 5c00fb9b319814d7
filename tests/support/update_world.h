/* SPDX-License-Identifier: Apache-2.0
 *
 * update_world.h -- updates on a fake clock: the schedules of a few trainers and the receivers of a few
 * ranks, the very code of the worker, between threads and a network that are played here.
 *
 *   trainer: threads ── schedule_next ──► pack, post, wait, signal     each takes a random time
 *                │                             │
 *                │ slots of the ring           ▼
 *                └──────── read late ──── writes in flight ──► cells of the rank's memory
 *                                     or of its window ─ taken ─┤
 *   rank: ── receive_next ──► ACCEPT ... PUBLISH v: every cell is of v, and nobody may write
 *
 * A write reads its slot when it completes, as late as a NIC may. What must never be is kept as a
 * finding: a version published that is not whole, a slot reused before its writes completed, bytes
 * that land where no permission is, and calls that never return.
 */
#ifndef TESTS_SUPPORT_UPDATE_WORLD_H
#define TESTS_SUPPORT_UPDATE_WORLD_H

#include "base/text.h"
#include "worker/update/receive.h"
#include "worker/update/schedule.h"

enum { WORLD_TRAINERS = 3, WORLD_RANKS = 3, WORLD_THREADS = 4, WORLD_SOURCES = 10, WORLD_ROWS = 30,
       WORLD_TENSORS = 6, WORLD_PARTS = 3, WORLD_BLOCKS = 30, WORLD_RING = 4096, WORLD_WINDOW = 512 };

/* Mistakes that a schedule could make, made by hand: each must be found. */
enum world_bug {
	BUG_NONE,
	BUG_SLOT_LET_GO,      /* a posted slot's writes are forgotten: it is reused too early */
	BUG_SLOT_UNHELD,      /* a slot loses its holder while it is packed or posted */
	BUG_ROW_SKIPPED,      /* a cursor passes over a row */
	BUG_PACKED_TOO_EARLY, /* a block counts as packed while it is being packed */
	BUG_NO_SETTLE,        /* the end does not wait for writes */
	BUG_EVENT_LOST,       /* nobody is told that a part was packed */
	BUG_ROW_LEFT_OPEN,    /* a row stays open after its last task */
	BUG_PERMISSION_KEPT,  /* a begin takes a permission that was used */
	BUG_WINDOW_LET_GO,    /* places of a window are free again before they are taken */
	BUG_TOLD_TOO_EARLY,   /* what is not posted yet counts as landed */
	BUG_TAIL_UNTOLD,      /* the end does not count the last entries */
	BUG_BASE_KEPT,        /* a rank says that it has its last version, whatever was written since */
	/* of --hedge: update_world_hedge.c, update_world_late.c */
	BUG_OPENED_TOO_EARLY, /* memory is opened for the next version while who is late has a permission for the last */
	BUG_STOOD_FORGOTTEN,  /* an end that another trainer's was taken for has used the late one's permission up */
	BUG_LATE_UNVERIFIED,  /* what who is late wrote after a version was shown is not verified once more */
	BUG_SPARED_WRITES_ON, /* who is spared gives its permission up before what it posted has landed */
	BUG_ASK_IS_OWN,       /* a begin takes the permission to stand in for another for its own */
	BUG_UNRELEASED,       /* who can stand in is not told that it need not */
	BUG_ASK_KEPT,         /* what it was asked for in one version a stand-in sends in another */
	BUG_OLDER_TOO,        /* a stand-in is asked though the late one's permission was for other versions too */
	BUG_COUNT
};

#define BUG_HEDGE_FIRST BUG_OPENED_TOO_EARLY

struct world_options {
	uint64_t seed;
	uint32_t versions;
	bool dies;            /* a rank does, and trainers go on without it */
	bool full, loss, delay, abort, slow_target, small_ring, replay;
	bool landed;          /* ranks, by chance: they have windows, */
	bool deltas;          /* and of what they have of the version before, what differs is enough */
	/* Trainers, two or three that hold the same, are slow and stopped by chance, some until nothing else happens; each
	 * stands in for the one before it, for most, and ranks ask it to: update_world_hedge.c. Not with deltas, as the
	 * controller has it; with full nobody stands in for anybody. */
	bool hedge;
	/* hedge, and a trainer is lost, and the job goes on: ranks show what the others have begun, or give it up, and there it
	 * pauses. Not with abort and interrupt: a rank that has given up what another trainer still sends it pauses and
	 * empties no window, and who stands by no more, and begins nothing, hands nothing back. Both end at timeouts. */
	bool loses;
	bool clash;           /* hedge, and by chance they do not hold the same */
	bool interrupt;       /* of an end, that is then called again; and of steps that are not done then */
	enum world_bug bug;
	bool story;           /* keep a transcript */
	/* A story instead of chance: one trainer with one thread that packs beside the host's, two
	 * ranks, and these pieces; a part is packed in 2 ms, posted in 1, and lands 3 after that.
	 *   source 0   two parts through the ring, to both ranks
	 *   source 1   into rank 0's mapped memory          source 2   in place, to rank 1 */
	bool small;
	bool small_landed;    /* rank 1 has a window, of four parts, */
	bool small_merged;    /* and they are merged */
	uint32_t slow_pack;   /* ms that source 0 part 0 takes; 0: as the others */
	uint32_t lose_post;   /* the link breaks at this post, from 1; 0: never */
	uint32_t abort_version;
	uint32_t late_ms;     /* with hedge there are two trainers, and the first is stopped from 4 ms until then */
};

struct world;

/* Random jobs of these options; NULL: no memory. */
struct world *world_new(const struct world_options *options);
/* Until nothing can happen any more. */
void world_run(struct world *world);
/* The first thing that must never be, or NULL. */
const char *world_finding(const struct world *world);
const char *world_story(const struct world *world);
uint64_t world_published(const struct world *world, uint32_t rank); /* latest version */
uint32_t world_publications(const struct world *world);
uint32_t world_steps(const struct world *world);
/* hedge: how often a stand-in was asked, its end was enough, and other bytes were found */
uint32_t world_asks(const struct world *world);
uint32_t world_stood(const struct world *world);
uint32_t world_clashes(const struct world *world);
/* loses: versions that were shown though the lost trainer had not ended them */
uint32_t world_lost_shown(const struct world *world);
void world_free(struct world **world);
/* A job of these options, in a process of its own: where assertions are on, one of them may be who finds it. */
bool world_finds(const struct world_options *options);

#endif

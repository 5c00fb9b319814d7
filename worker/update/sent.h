/* SPDX-License-Identifier: Apache-2.0
 *
 * sent.h -- what a trainer sent of each source last, so that of the next version only what differs is sent (weft-controller --delta).
 *
 *   packed part ──► coded against `last` (pack/delta.h) ──► runs of a few KiB, which land in each peer's window
 *        └────────► `last`, for the next version
 *
 * A peer is sent runs if its memory holds the very version that `last` was of when they were coded (update_accept.base); any other
 * peer is sent the part whole. What is hardly smaller when it is coded is sent whole to all; a source of which that is true of
 * more than half rests: for some versions it is neither kept nor compared, so that a job whose values all change pays next to nothing.
 *
 *   version      7       8        9 .. 16     17      18
 *   a source     kept    coded    rests       kept    coded        8: it was not worth it
 *
 * Threads: sent_note from many at once, of different parts; the rest under the caller's lock. What a part became is read behind
 * the lock too, when it was said to be packed.
 */
#ifndef WORKER_UPDATE_SENT_H
#define WORKER_UPDATE_SENT_H

#include "base/pool.h"
#include "worker/epoch/send_plan.h"
#include <stdatomic.h>

#define SENT_REST_VERSIONS 8u

/* An entry of a window. */
struct sent_run {
	uint64_t from;             /* of the source: bytes [from, from + span) */
	uint32_t span;
	uint32_t bytes;            /* coded, */
	uint64_t at;               /* in sent.coded */
};

/* What a part became in this version. */
struct sent_block {
	uint64_t coded_at, coded_max;
	uint32_t first_run, run_max;
	uint32_t runs;             /* 0: it is sent whole */
};

struct sent_source {
	uint64_t last_at;          /* in sent.last */
	uint32_t element_bytes;    /* of its values; 0: nobody is sent less than all of it */
	bool keeps, codes;         /* in this version */
	uint64_t version;          /* that `last` holds; 0: none */
	uint64_t rests_until;      /* of sent.versions */
	_Atomic uint32_t parts;    /* noted in this version */
	_Atomic uint64_t bytes;    /* that it takes coded, or whole where it is that */
};

struct sent {
	struct pool pool;          /* of all arrays here */
	unsigned char *last, *coded;
	uint64_t bytes;            /* of `last` */
	struct sent_source *sources; /* as the plan's */
	struct sent_block *blocks; /* as the plan's */
	struct sent_run *runs;
	const struct send_plan *plan;
	uint64_t versions;         /* begun */
};

/* Of a plan some of whose peers may be sent what differs (send_plan.deltas). Whatever it returns, sent_close. */
int sent_open(struct sent *sent, const struct send_plan *plan, struct error *error);
void sent_close(struct sent *sent);
/* A version begins; `ended`: the last one that was ended, 0: none was. */
void sent_begin(struct sent *sent, uint64_t version, uint64_t ended);
/* A part is packed, and lies in `memory`. */
void sent_note(struct sent *sent, uint32_t source, uint32_t part, const void *memory);

#endif

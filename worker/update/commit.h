/* SPDX-License-Identifier: Apache-2.0
 *
 * commit.h -- how inference ranks agree on what they show: a pure function of what each of them has said. Who carries it
 * out is meet.c; whom a rank agrees with is the plan's (job/commit.h).
 *
 * In an update they meet two times, or three:
 *
 *   OPEN      all are in weft_update_wait for the same version. In place, readers lose theirs now, on all ranks
 *   CLOSE     where versions are staged: all have every byte, verified. Readers lose theirs now
 *   PUBLISH   all have loaded it. Readers are shown it now
 *
 * A meeting is a tree: who decides for others waits for all of them and for itself, tells who decides for it, if somebody
 * does, and lets its own go when it was let go. Whoever decides last stores the word that all of them show (versions.h).
 *
 *   ranks 1, 2, 3           rank 0, decides
 *   ARRIVE publish 8 ─────► has all three, and its own ─► word = 8
 *   shows 8 ◄────────────── RELEASE publish 8
 *
 * A turn is all that a rank says from one OPEN to the next, and its number tells what is late. A rank that cannot go on
 * says GIVE_UP, once, and the turn ends for all with its words. One that has arrived at PUBLISH has promised: it
 * neither gives up nor shows anything until it was let go, or asks for another version, which is the same as giving up where
 * the decision is not taken yet, and too late where it is. So a deadline or an interrupt decides nothing.
 */
#ifndef WORKER_UPDATE_COMMIT_H
#define WORKER_UPDATE_COMMIT_H

#include "base/error.h"
#include "base/text.h"
#include "worker/update/update.h"

/* One rank that this one agrees with. */
struct commit_link {
	const char *name;            /* for messages; the caller's */
	struct update_arrive last;   /* what it said last; turn 0: nothing */
	uint64_t turn;               /* of its own, that it was let go in; 0: none */
};

enum commit_phase {
	COMMIT_IDLE,                 /* no turn */
	COMMIT_MEETING,              /* at `round`, not let go yet */
	COMMIT_LETTING_GO,           /* of children, from `at` on */
	COMMIT_BETWEEN,              /* two meetings of a turn */
	COMMIT_GIVING_UP             /* telling the others, from `at` on */
};

struct committer {
	struct commit_link *links;   /* who decides for this rank first, if somebody does, then its own */
	uint32_t link_count;
	bool decided_for;            /* links[0] decides for it */
	enum commit_phase phase;
	enum update_round round;
	uint64_t turn;               /* from 1 */
	struct update_arrive own;    /* what this rank wants of the meeting, */
	struct update_arrive all;    /* and what all below it together do */
	bool told;                   /* who decides has heard that */
	struct update_release release; /* of the last meeting, as children hear it */
	uint32_t at;
	bool opening;                /* GIVING_UP: before the turn was opened, */
	uint32_t from;               /* and who knows: links[from] said it. UINT32_MAX: nobody */
	struct update_give_up given_up;
	struct error error;          /* of the last COMMIT_FAIL */
};

enum commit_step_kind {
	COMMIT_WAIT,                 /* for somebody's word */
	COMMIT_TELL,                 /* links[link]: `arrive` */
	COMMIT_STORE,                /* `word` where this rank's children, and it, look; after it, releases */
	COMMIT_RELEASE,              /* links[link]: `release`, and `word` before it if it asked for that */
	COMMIT_MET,                  /* the meeting is over: `release` says with what */
	COMMIT_SAY,                  /* links[link]: `give_up` */
	COMMIT_FAIL                  /* committer.error; the turn is over, for all that were told */
};
struct commit_step {
	enum commit_step_kind kind;
	uint32_t link;
	uint64_t word;
	bool writes;                 /* of RELEASE */
};

enum commit_event_kind {
	COMMIT_ASKS,                 /* nothing happened, or the step was done */
	COMMIT_ARRIVES,              /* this rank, at `round` of the turn, or with a new one at OPEN */
	COMMIT_HEARS,                /* of `link` */
	COMMIT_CANNOT                /* this rank, for the reason `why`: its turn is over */
};
struct commit_event {
	enum commit_event_kind kind;
	enum update_round round;         /* ARRIVES; HEARS: by tag */
	struct update_arrive arrive;     /* ARRIVES: versions, flags. HEARS of a child */
	uint32_t link, tag;
	struct update_release release;
	struct update_give_up give_up;
	const char *why;
	uint64_t version;                /* CANNOT: of the update; 0: unknown */
};

/* links: their names set, else zero; stay the caller's. */
void committer_init(struct committer *committer, struct commit_link *links, uint32_t link_count, bool decided_for);
struct commit_step commit_next(struct committer *committer, const struct commit_event *event);
/* At PUBLISH, of a rank that decides for nobody: the word says that it was let go, before it was told. */
void commit_shown(struct committer *committer);
/* At a meeting that is not over: it is waited for. */
bool commit_lacks(const struct committer *committer, uint32_t link);
/* At a meeting that is not over: whom it waits for and what for, "inference 1 (host a) is not in weft_update_wait". */
void commit_missing(const struct committer *committer, struct text *text);

#endif

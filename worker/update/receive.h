/* SPDX-License-Identifier: Apache-2.0
 *
 * receive.h -- what an inference rank does next for a version: a pure function of the plan and of what
 * the trainers have said, with the time in the event. Who carries it out is wait.c.
 *
 *   OPENS (version) ─► MEET at OPEN, where ranks agree on what they show (commit.h)
 *                   ─► ACCEPT, to each trainer that holds no permission or needs the new range
 *   SIGNAL (peer)   ─► TAKE what LANDED in its window, if it has one
 *                   ─► WAIT, until every trainer ended the version
 *                   ─► VERIFY the checksums ─► MEET at CLOSE, if versions are staged
 *                   ─► LOAD: the host's hook ─► MEET at PUBLISH ─► PUBLISH
 *   the same trainer is late ─► ASK the one that stands in for it; whichever ends first is enough ─► SPARE or RELEASE the other
 *   GONE (peer), FAILED (error), a deadline ─► FAIL
 *   GONE (peer), in a job that goes on      ─► what all others have ended cannot come any more: FAIL, like an abort
 *
 *   deadline, interrupt                       what was counted still counts for the next wait
 *   the same, while meeting at PUBLISH        it goes on there in the next wait for this version
 *   abort, two versions, checksum, hook       the version is past, a later one recovers
 */
#ifndef WORKER_UPDATE_RECEIVE_H
#define WORKER_UPDATE_RECEIVE_H

#include "base/error.h"
#include "worker/update/update.h"

/* What the plan says of one trainer. */
struct receive_peer {
	const char *name;          /* for messages */
	uint64_t bytes;
	uint32_t pieces;
	const char *path;          /* over which network it writes, for messages; NULL or "": none */
	bool lands;                /* it writes into a window, */
	uint64_t landed_bytes;     /* so many bytes, */
	bool deltas;               /* or more: of others, too, what differs alone may land */
	uint32_t stand_in;         /* 1 + the peer that can be asked to send its pieces; 0: none */
};

struct receive_link {
	uint64_t opening;          /* number of the last permission given */
	bool outstanding;          /* it is not used up yet */
	bool ended;                /* end is counted for the version waited for */
	bool ending;               /* or will be, when what landed before it is taken */
	bool gone;                 /* it has left a job that goes on, and sends nothing any more */
	struct update_end end;
	uint64_t landed, taken;    /* entries of the window in this opening */
	uint64_t taken_bytes;
	uint64_t ended_ns;         /* when its own end was heard */
	bool accepted;             /* by a permission of this version alone: so what it writes is of it */
	bool asked;                /* .. its stand-in was asked for its pieces */
	bool spared;               /* .. it was told that it need not write the rest */
	bool released;             /* .. it was told that it will not be asked for another one's, and need not write the rest of its own */
	bool stood;                /* its end is its stand-in's; its own permission is out still */
	uint32_t stands;           /* 1 + the peer whose pieces it was asked for, by the permission that is out; 0: none */
	bool stands_ending;        /* it has sent all of them, and some lie in its window still */
};

enum receive_phase {
	RECEIVE_CLOSED,
	RECEIVE_JOINING,           /* meeting at OPEN */
	RECEIVE_OPENING,
	RECEIVE_COUNTING,
	RECEIVE_VERIFYING,
	RECEIVE_CLOSING,           /* meeting at CLOSE */
	RECEIVE_LOADING,
	RECEIVE_PREPARED           /* meeting at PUBLISH */
};

struct receiver {
	const struct receive_peer *peers;
	size_t peer_count;
	struct digest plan;
	bool sums;
	bool meets, staged;        /* with others; and before what is staged is installed too */
	bool joined;               /* they have met at OPEN for `wanted` */
	struct receive_link *links;
	enum receive_phase phase;
	uint32_t at;               /* peer, of RECEIVE_OPENING */
	uint32_t taken_last;       /* peer of RECEIVE_TAKE: the next one's turn is first */
	uint64_t wanted;           /* version asked for; 0: the next one */
	uint64_t min_version, max_version;
	uint64_t past;             /* no version up to this one can be complete any more */
	uint64_t began_ns, deadline_ns;
	uint64_t hedge_ns;         /* from the end of who stands in for a trainer until it is asked to; 0: it never is */
	struct error error;        /* of the last FAIL */
};

enum receive_step_kind {
	RECEIVE_ACCEPT,            /* tell `peer`: links[peer].opening, min to max version */
	RECEIVE_ASK,               /* tell `peer`: links[peer].opening, to write the pieces of links[peer].stands - 1 */
	RECEIVE_SPARE,             /* tell `peer`, that has a permission for `version` out: all of that is here */
	RECEIVE_RELEASE,           /* tell `peer`: neither the rest of its own pieces nor another one's are asked of it (any more) */
	RECEIVE_TAKE,              /* entries [taken, landed) of `peer`, and tell it unless it is ending */
	RECEIVE_WAIT,              /* until `until_ns`, or something is heard */
	RECEIVE_VERIFY,            /* the checksums, where there are any */
	RECEIVE_MEET,              /* at `round`, until `until_ns`: MET, FAILED, or nothing yet */
	RECEIVE_LOAD,              /* call the host's hook with `version` */
	RECEIVE_PUBLISH,           /* `version` */
	RECEIVE_FAIL               /* receiver.error; broken: the worker cannot go on */
};
struct receive_step {
	enum receive_step_kind kind;
	uint32_t peer;
	enum update_round round;
	uint64_t version, until_ns;
	bool broken;
};

enum receive_event_kind {
	RECEIVE_ASKS,              /* nothing happened, or the step was done */
	RECEIVE_OPENS,             /* a wait begins */
	RECEIVE_SIGNAL,            /* of `peer`: LANDED; END or ABORT, using up its permission */
	RECEIVE_MET,               /* the step; at OPEN with the versions that all of them want */
	RECEIVE_TAKEN,             /* `bytes` of `peer`, with entries up to `entries` */
	RECEIVE_GONE,              /* `peer` has, all its signals are read; broken: and the job ends with it */
	RECEIVE_FAILED             /* the step, with `error`; broken: and the worker with it */
};
struct receive_event {
	enum receive_event_kind kind;
	uint64_t now_ns;             /* 0: no deadline passes by it */
	uint64_t heard_ns;           /* SIGNAL */
	uint32_t peer;
	uint64_t version, published; /* OPENS: wanted (0: the next one), and published before */
	uint64_t deadline_ns;        /* OPENS */
	enum update_tag word;        /* SIGNAL */
	const struct update_end *end;
	const struct update_abort *gone;
	const struct update_landed *landed;
	uint64_t entries, bytes;     /* TAKEN */
	uint64_t min_version, max_version; /* MET */
	const struct error *error;   /* GONE, FAILED */
	bool broken;
};

/* links: zeroed, by peer; both stay the caller's and outlive the receiver. */
void receiver_init(struct receiver *receiver, const struct receive_peer *peers,
		   size_t peer_count, struct receive_link *links, struct digest plan, bool sums);
/* It agrees with others on what is shown (commit.h). */
void receiver_meets(struct receiver *receiver, bool staged);
struct receive_step receive_next(struct receiver *receiver, const struct receive_event *event);
/* The version that it is at PUBLISH with; 0: it is not. */
uint64_t receive_promised(const struct receiver *receiver);
/* All trainers are gone, and not all had ended the version that is waited for. */
bool receive_is_alone(const struct receiver *receiver);
/* Which trainer waits to be asked to stand in for another one; it is told now that it will not be. false: none (any more). */
bool receive_unreleased(struct receiver *receiver, uint32_t *peer);
/* Whose permission, of those for the last version, is out still, and has to be used up before another version is opened: it is late, or
 * stands in for one that is. false: nobody's. */
bool receive_owes(const struct receiver *receiver, uint32_t *peer);
/* .. and it was, or that peer is gone. */
void receive_settle(struct receiver *receiver, uint32_t peer);
/* A wait for that version goes on where the last one was, with what was counted. */
bool receive_goes_on(const struct receiver *receiver, uint64_t version);
/* What was counted of it counts no more, and is not past: others are met at OPEN again. */
void receive_start_over(struct receiver *receiver);
/* ---- receive_late.c, for receive.c ---- */

/* It has not ended, and its pieces come from another one, or may yet. What one that was gone before this version had begun to
 * write would be of another version. */
bool receive_may_be_stood_in_for(const struct receiver *receiver, uint32_t peer);
/* ASK, SPARE or RELEASE, if one of them is due. now_ns 0: nobody is late by it. */
bool receive_hedge(struct receiver *receiver, uint64_t now_ns, struct receive_step *step);
/* When somebody may be late, or the deadline. */
uint64_t receive_hedge_until(const struct receiver *receiver);

/* Before OPENS: 0, or why that version can never come. *done: it is published already. */
int receive_check(const struct receiver *receiver, uint64_t version, uint64_t published,
		  bool tainted, bool *done, struct error *error);

#endif

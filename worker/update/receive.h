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
	struct error error;        /* of the last FAIL */
};

enum receive_step_kind {
	RECEIVE_ACCEPT,            /* tell `peer`: links[peer].opening, min to max version */
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
/* What was counted of it counts no more, and is not past: others are met at OPEN again. */
void receive_start_over(struct receiver *receiver);
/* Before OPENS: 0, or why that version can never come. *done: it is published already. */
int receive_check(const struct receiver *receiver, uint64_t version, uint64_t published,
		  bool tainted, bool *done, struct error *error);

#endif

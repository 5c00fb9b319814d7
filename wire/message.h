/* SPDX-License-Identifier: Apache-2.0
 *
 * message.h -- every message of the control plane, as plain structs, and their codec.
 *
 * One ZeroMQ frame is one msgpack map with short string keys. Every message starts with the
 * same head, then the fields of its type, which one table (message.c) decodes: unknown, missing
 * and duplicate keys, wrong types and counts past a limit are named in the error.
 *
 *   {"type":"hello", "wire":4, "job":"demo", "epoch":0, "from":0x9f.. , ...fields }
 *
 *   worker                         controller                         worker
 *     hello ───────────────────────────►
 *     ◄──────────────── welcome | refuse
 *     declare(digest) ─────────────────►
 *     ◄─────────────── want(0 or 1 digest)      a body travels once per digest, not per rank
 *     layout | holding ────────────────►
 *                                    all here: route, prove
 *     ◄───────────────────────────── plan(rows, peers)
 *     endpoints (leg 1) ───────────────►
 *     ◄───────────────────────────── peers (leg 2: what the others sent)
 *     connected (leg 3) ───────────────►
 *                                    all connected
 *     ◄─────────────────────────────── go ───────────────────────────────►
 *     heartbeat ◄───────────────────────► heartbeat       while the job lives
 *     failure | leave ─────────────────►  lost ──────────────────────────► everyone else
 *     failure | leave | drop ──────────►  gone ──────────────────────────► who goes on (lost: that engine)
 *     ◄─────────────────────────── pause      one is back, or a trainer gone: trainers between two versions, then ranks
 *     paused ──────────────────────────►  when all are: plan, endpoints, .. go as above, of another attempt
 *     activity ────────────────────────►  with each heartbeat, for people (status.h)
 *   observer
 *     ask ─────────────────────────────►
 *     ◄────────────────────────── report
 *
 * Messages may be lost with a connection, doubled by a resend, and delayed: a worker sends its
 * latest unanswered message again every resend_ms, and every message carries (job, epoch,
 * attempt, incarnation), so old ones are recognised and dropped, never mistaken.
 */
#ifndef WIRE_MESSAGE_H
#define WIRE_MESSAGE_H

#include "job/digest.h"
#include "base/error.h"
#include "job/holding.h"
#include "job/layout.h"
#include "job/member.h"
#include "job/nic.h"
#include "wire/limits.h"
#include "wire/status.h"
#include <stddef.h>

enum message_type {
	MESSAGE_HELLO,     /* worker -> controller */
	MESSAGE_DECLARE,
	MESSAGE_LAYOUT,
	MESSAGE_HOLDING,
	MESSAGE_ENDPOINTS,
	MESSAGE_CONNECTED,
	MESSAGE_FAILURE,
	MESSAGE_DROP,
	MESSAGE_PAUSED,
	MESSAGE_LEAVE,
	MESSAGE_ACTIVITY,
	MESSAGE_ASK,       /* observer -> controller */
	MESSAGE_HEARTBEAT, /* both ways */
	MESSAGE_WELCOME,   /* controller -> worker */
	MESSAGE_REFUSE,
	MESSAGE_WANT,
	MESSAGE_PLAN,
	MESSAGE_PEERS,
	MESSAGE_GO,
	MESSAGE_LOST,
	MESSAGE_GONE,
	MESSAGE_PAUSE,
	MESSAGE_REPORT,    /* controller -> observer */
	MESSAGE_TYPE_COUNT
};

/* So many ranks, from that one on. */
struct members { struct member first; uint32_t count; };
struct message_hello {
	enum role role;
	uint32_t rank;
	uint64_t incarnation;      /* random per process start; never 0 */
	char *host;                /* for people */
	char *host_id;             /* boot id: equal means the same kernel */
	uint64_t pid;
	uint32_t attempt;          /* it runs, by the plan of that attempt, and its controller was lost; 0: it does not */
	struct digest plan;        /* that plan's */
	bool follows;              /* .. which was made from the one before it, so its controller alone could make it */
	bool paused;               /* .. and was asked to stop for another one */
	bool unconnected;          /* .. or does not yet: it has that one, and is not connected */
	struct members *away;      /* who was when it was made, .. */
	size_t away_count;
	struct members *lost;      /* .. which engines have been lost since, .. */
	size_t lost_count;
	struct members *done;      /* .. and which have left with their work done */
	size_t done_count;
};

/* One transport of a list. Workers reach each other by it when both offer it with one `reach`. */
struct transport_offer {
	char *name, *reach;
	bool mapped, registered, landed; /* as in the declaration, by this transport */
};

struct message_declare {
	/* labels: what the dump prints; all workers of a job must agree */
	char *model, *train, *infer;
	struct digest digest;      /* of the layout (inference) or holding (trainer) */
	bool mapped;               /* inference: memory from weft's allocator, mappable by peers
				      on the same host; trainer: able to map such memory */
	bool registered;           /* trainer: tensors stay in registered memory (see path.h); inference: what it shows can be sent
				      to ranks of its layout from where it lies */
	bool device;               /* trainer: tensors lie in memory of a GPU, which maps all that is mappable;
				      inference: what peers write does, and only such trainers can map it */
	bool landed;               /* inference: peers cannot write its memory, but a window of it that it empties itself */
	bool stands_in;            /* trainer: what it writes stays until its update has ended, so it can be sent in another one's place too */
	char *transport;           /* "shm": required by this worker; or a list, "shm,verbs"; all
				      must agree */
	bool checksums;            /* asks for piece checksums; all must agree */
	struct nic_report *nics;   /* all that it sends or receives through; none for shm */
	size_t nic_count;
	struct transport_offer *offers; /* with a list: what of it this worker has; else none */
	size_t offer_count;
};

struct message_layout { struct digest digest; struct layout layout; };
struct message_holding { struct digest digest; struct holding holding; };

/* One region of an inference rank, as its provider exports it. */
struct region_record { uint32_t region; unsigned char *bytes; size_t length; };
/* Where parameter i of the declared layout lies: for each of `copies` (1 in place, 2 shadow). */
struct param_place { uint32_t region; uint64_t offset; };
/* One endpoint record: from the sender, meant for `peer`. */
struct endpoint_record { struct member peer; unsigned char *bytes; size_t length; };

struct message_endpoints {      /* leg 1; and, with `from`, one item of leg 2 */
	uint32_t attempt;
	struct region_record *regions;
	size_t region_count;
	uint32_t copies;           /* inference: 1 or 2; trainers: 0 */
	struct param_place *places; /* inference: copies * parameters, copy-major */
	size_t place_count;
	struct region_record *shared; /* inference: memory for ranks that agree with it (job/commit.h) */
	size_t shared_count;
	struct endpoint_record *records;
	size_t record_count;
};

struct peer_endpoints {
	struct member member;
	uint64_t incarnation;
	struct region_record *regions; /* of one that this rank agrees with: what is shared, and no places */
	size_t region_count;
	uint32_t copies;
	struct param_place *places;
	size_t place_count;
	unsigned char *record;     /* that peer's record for the receiver */
	size_t record_length;
};
struct message_peers { uint32_t attempt; struct peer_endpoints *peers; size_t peer_count; };
/* What was said before with what is said now of it: a region of that number is replaced, and without bytes left out. Takes bytes out
 * of the changes. */
int message_regions_change(struct region_record **regions, size_t *count, struct region_record *changes,
			   size_t change_count, struct error *error);

struct message_attempt { uint32_t attempt; }; /* connected, go */

struct message_failure { int code; char *text; uint64_t version; };
/* Of a plan that continues, that of the attempt: the sender goes on without that worker, which it does not reach. Answered by gone. */
struct message_drop { uint32_t attempt; struct member member; int code; char *text; uint64_t version; };
struct message_leave { bool done; };  /* done: finished its work; else interrupted */
struct message_heartbeat {
	uint64_t sequence;         /* the controller answers with the same */
	uint64_t version;          /* last version ended (trainer) or published (inference) */
	uint32_t gone;             /* worker: how many of those messages it has heard */
};

struct message_welcome {
	uint32_t heartbeat_ms;     /* how often the worker beats */
	uint32_t lost_ms;          /* silence after which a side is given up */
	uint64_t controller;       /* incarnation of the controller; never 0 */
	bool runs;                 /* the job does: this worker comes in between two of its updates */
	uint32_t orphan_ms;        /* how long updates go on when the controller is lost; 0: not at all */
};
struct message_refuse { int code; char *text; };
struct message_want { struct digest *digests; size_t digest_count; }; /* none: all known */

/* What two ranks of different engines have to do with each other: one sends the other what it shows. */
enum plan_copy { COPY_NONE, COPY_FROM, COPY_TO, COPY_COUNT };
struct plan_peer {
	struct member member;
	char *host;
	uint64_t bytes;            /* between the two, per update */
	uint32_t pieces;           /* piece ordinals 0..pieces-1 are this pair's checksum slots */
	char *transport;           /* with a list: the one that this pair uses; else "" */
	bool lacks;                /* an inference rank: it is sent `repeat` */
	bool delta;                /* of what the inference rank has of the version before, what differs may be sent alone: --delta */
	enum plan_copy copy;       /* FROM: this peer sends `copy` here; TO: is sent it. bytes and pieces are all parameters then */
	bool kept;                 /* the endpoint that the pair has stays: neither side opens another one */
	uint32_t stand_in;         /* to an inference rank, of a trainer: 1 + the rank of the one that it can ask for this one's pieces;
				      0: none */
};
/* To a trainer that stands in for another one: what that one has for an inference rank, which is a peer of its own too. */
struct plan_spare {
	struct member member;
	uint64_t bytes;
	uint32_t pieces;
};
/* One piece to move. Trainers get them in send order, inference ranks in ordinal order.
 * `tensor` indexes the receiver's own declaration: the trainer's holding (layout for an
 * inference rank); `param` always indexes the inference rank's layout. */
struct plan_row {
	uint32_t peer;             /* index into peers */
	uint32_t ordinal;          /* of the piece within the pair (trainer, inference rank) */
	uint32_t tensor, param;
	enum route_path path;
	uint32_t scales;           /* with transform.from_rows: the tensor of the scales, an index
				      as `tensor` is; else 0 */
	struct box src;
	uint64_t offset, bytes;    /* of the parameter */
	struct transform transform; /* of its bytes: see layout.h */
	enum dtype to;             /* of the result; DTYPE_NONE for a copy, of the tensor's dtype */
	struct spread spread;      /* of its bytes in the parameter */
};
/* In a plan that is told by what differs: so many of its own rows, and then so many of the other one's, from that one on, whose
 * ordinals are those that its own leave free. What is left of its own comes last. */
struct plan_run { uint32_t fresh, first, count; };
struct message_plan {
	uint32_t attempt;
	struct digest digest;      /* of the whole routing table */
	bool follows;              /* another plan, of which it keeps what it can: it is no function of who is here alone */
	char *policy, *order;      /* names of rows: who sends what, and when */
	bool checksums;
	bool continues;            /* who is lost ends nobody else's work: --on-loss continue */
	uint32_t update_timeout_ms;
	uint32_t gone;             /* how many times an engine or a trainer had left before it was made, */
	struct members *away;      /* and who is not back, in order; engines that have yet to come are among them */
	size_t away_count;
	uint64_t next;             /* the version that trainers are about to begin; 0: any. To a rank that lacks it: `repeat`, if any */
	uint64_t copy;             /* the last version, which ranks that show it send to those that lack it, before they accept the
				      next one; 0: they do not */
	uint64_t repeat;           /* trainer: the last version, which all of them send once more to those that lack it; 0: they do not */
	uint32_t together;         /* all engines show versions together, in a job that goes on without some: ranks of each; 0: they do not */
	uint64_t shows;            /* so: who has promised that version (paused.promised) shows it now, and gives up any other; 0: any */
	uint64_t alone;            /* so: that version this rank's engine shows by itself, since others show it; 0: none */
	uint32_t decider;          /* rank: 1 + the one that decides for all who show versions together with it; 0: none does, or itself */
	uint32_t rows_of;          /* it is told by what is otherwise in that attempt's plan, which this worker has; 0: all is here */
	struct plan_peer *peers;   /* with rows_of: but for those that are kept, and else what they were there, */
	size_t peer_count;
	struct member *dropped;    /* and these are none any more */
	size_t dropped_count;
	struct plan_row *rows;     /* with rows_of: but for these of that plan's rows */
	size_t row_count;
	struct plan_run *runs;
	size_t run_count;
	struct digest whole;       /* with rows_of: message_plan_digest of all that it is to be */
	bool spared;               /* with rows_of: for whom it stands in, and all of that, is what it was there */
	bool misses_leave;         /* an engine of which one rank makes no version of what came leaves; else it shows what it has */
	uint32_t hedge_ms;         /* who is so much later than who can stand in for it is not waited for alone; 0: it is */
	uint32_t stands_for;       /* trainer: 1 + the rank of the one that it stands in for; 0: none */
	struct plan_spare *spares; /* so: the ranks that it may write that one's pieces to, */
	size_t spare_count;
	struct plan_row *spare_rows; /* and these: `peer` is an index into spares, all else as if they were that one's */
	size_t spare_row_count;
};
/* message_rows.c: of all that a worker takes from a plan in another one's place: peers, but for copies, rows, and for whom it stands
 * in with what that one has; */
struct digest message_plan_digest(const struct message_plan *plan);
/* of that last part alone; */
struct digest message_spares_digest(const struct message_plan *plan);
/* a row by itself, wherever it and its peer stand, and whatever its ordinal is. */
uint64_t message_row_mark(const struct message_plan *plan, const struct plan_row *row);
/* A plan that is told by what differs from this one becomes a whole one: rows_of 0. ERROR_MESSAGE where it does not fit. */
int message_plan_complete(struct message_plan *plan, const struct message_plan *from, struct error *error);
/* Of all peers of the plan, in its order: of those that it keeps what was said before, which is taken out of there, with what is
 * said now, and no record. ERROR_MESSAGE where the two do not fit the plan. */
int message_peers_complete(struct message_peers *peers, const struct message_plan *plan, struct message_peers *before,
			   struct error *error);
/* That one, of peers in the order of a plan's; NULL: it is not there. */
struct peer_endpoints *message_peers_find(const struct message_peers *peers, struct member member);
/* An engine, or a trainer, has left the job, and the others go on: `count` ranks from the first on, and why. Counted from 1,
 * heard in this order. */
struct message_gone {
	uint32_t number;           /* of the last one that it tells of, */
	uint32_t departures;       /* of so many; 1, but of those that have yet to come */
	struct member first;
	uint32_t count;            /* ranks, of all of them */
	int code;
	char *text;
};
/* Who has stopped does nothing with its plan any more, and waits for another one. A trainer answers at once how far it is: one
 * that has stopped goes on where another one was ahead. */
struct message_pause {
	uint32_t number;           /* counted from 1 */
	uint32_t gone;             /* how many times an engine or a trainer had left: who has not heard of all does not stop yet */
	bool stop;                 /* false, to ranks: not yet. A trainer has begun this version, and another one is gone */
	uint64_t version;          /* trainer: before it begins this one, or a later one; inference: once nothing up to this
				      one is on its way to it */
	uint64_t shows;            /* inference: who has promised that version shows it, as plan.shows; 0: that is not known yet */
};
struct message_paused {
	uint32_t number;
	bool stopped;              /* else a trainer that will, where it begins its next update; or a rank that says what it has promised */
	uint64_t next;             /* trainer: the first version that it has not begun; inference: 0 */
	uint64_t version;          /* trainer: the last one that it ended; inference: the last one that it published */
	bool repeats;              /* trainer: it would send that once more to those that lack it, before the next one; inference:
				      its memory holds that one whole */
	bool between;              /* trainer: it has nothing new yet, and begins nothing at once */
	bool anew;                 /* some endpoint of its is not whole: it is to open all of them anew */
	uint64_t promised;         /* inference: a later one that it holds, whole, and shows if the next plan says so; 0: none */
};
struct message_lost {           /* the job's end for the others: who, and the error message */
	int code;
	char *text;
	struct member member;      /* whose loss or failure it was */
	uint64_t incarnation;
};

struct message {
	enum message_type type;
	uint32_t wire;             /* WIRE_VERSION; set by the encoder */
	char job[LIMIT_JOB_BYTES];
	uint64_t epoch;            /* of the plan it belongs to; 0 before the welcome */
	uint64_t from;             /* incarnation of the sender */
	union {
		struct message_hello hello;
		struct message_declare declare;
		struct message_layout layout;
		struct message_holding holding;
		struct message_endpoints endpoints;
		struct message_attempt connected, go;
		struct message_failure failure;
		struct message_drop drop;
		struct message_paused paused;
		struct message_leave leave;
		struct message_heartbeat heartbeat;
		struct message_welcome welcome;
		struct message_refuse refuse;
		struct message_want want;
		struct message_plan plan;
		struct message_peers peers;
		struct message_lost lost;
		struct message_gone gone;
		struct message_pause pause;
		struct message_activity activity;
		struct message_ask ask;
		struct message_report report;
	} u;
};

const char *message_type_name(enum message_type type);

/* Frees everything a message owns and zeroes it; a zeroed message is empty. */
void message_fini(struct message *message);
void endpoints_fini(struct message_endpoints *endpoints); /* the same, outside of one */

/* Deep copy; *to is overwritten, not freed, and empty on failure. */
int message_copy(struct message *to, const struct message *from, struct error *error);

/* Encodes into *bytes (memory_free it); `wire` is WIRE_VERSION whatever the struct says. NULL
 * strings go as "". What the other side would refuse is refused here: ERROR_LIMIT for counts,
 * lengths and numbers past limits.h, ERROR_MESSAGE for text that is not UTF-8 or fields that
 * contradict each other. Only error messages (`text`) are cut and cleaned instead, since a failure
 * must be heard. Equal messages give equal bytes. */
int message_encode(const struct message *message, unsigned char **bytes, size_t *length,
		   struct error *error);

/* Decodes; on failure *message is empty. A wire version other than ours gives
 * ERROR_WIRE_VERSION with both versions, anything malformed ERROR_MESSAGE with the key and the
 * byte offset (fields that contradict each other: their keys). layout and holding bodies pass
 * through layout_add_* and layout_finish, whose errors keep their code behind key and offset,
 * and their digest is recomputed and compared. Strings are never NULL, hold no NUL and are
 * valid UTF-8; empty lists are NULL. */
int message_decode(struct message *message, const unsigned char *bytes, size_t length,
		   struct error *error);

#endif

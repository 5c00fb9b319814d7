/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule.h -- what a trainer does next in an update: a pure function of the plan and of what has
 * happened, with the time in the event. It touches no tensor, no socket, no clock and no lock; a
 * thread asks it, does what it says, and tells it so (executor.h).
 *
 *   thread ── event ──► schedule_next ──► step
 *
 *   ASKS                     PACK  these parts, into their slots and mapped targets
 *   PACKED                   POST  this part of this row, or these sums, to its peer
 *   POSTED (write)           WAIT  for a write, a peer's ACCEPT, or for anything to change
 *   COMPLETED (peer, write)  SIGNAL  END or ABORT to this peer
 *   ACCEPTED (peer)          DONE  the call may return
 *   TOLD, TAKEN (entries)    FAIL  and so must everybody's
 *   FAILED (error)
 *   SPARED, GONE (peer)
 *
 * The way of one part of one row, which one thread goes (a task):
 *
 *   TAKE ─► ROOM ─► PACK ─► POST ─► TAKE ...        schedule.c, top to bottom
 *            │ ▲                                    which row is taken: schedule_take.c
 *            └─┘ WAIT                               begin, drain, end, abort: schedule_version.c
 *                                                   what lands in a window: schedule_land.c
 *
 * The state of a block (a part of a source) in one version:
 *
 *   WAITING ──taken──► PACKING ──PACKED──► PACKED     its slot may be lost to later blocks once
 *                                                     every write from it is complete; a row that
 *                                                     comes later then packs it again
 * A peer that is gone takes no part any more: what is its own is packed with what is others', and counts as written and told.
 *
 * Threads: the caller's lock around every call here.
 */
#ifndef WORKER_UPDATE_SCHEDULE_H
#define WORKER_UPDATE_SCHEDULE_H

#include "base/pool.h"
#include "worker/epoch/send_plan.h"
#include "worker/epoch/windows.h"
#include "worker/replica/full.h"
#include "worker/replica/replica.h"
#include "worker/update/sent.h"
#include "worker/update/update.h"

#define CURSORS_MAX 8u

enum block_state { BLOCK_WAITING, BLOCK_PACKING, BLOCK_PACKED };

/* A place in a call's rows. */
struct cursor {
	size_t at;
	uint32_t part;      /* of the row at `at` */
	bool on_row;        /* that row is taken, by this cursor */
	uint32_t tasks;     /* at work behind it */
};

/* What one call of the host wants done; on the stack of the call. */
enum call_kind { CALL_WRITE, CALL_BEGIN, CALL_DRAIN, CALL_END, CALL_ABORT };
struct call {
	enum call_kind kind;
	uint64_t deadline_ns;         /* of all its waits but CALL_WRITE's */
	struct error *error;          /* filled with STEP_FAIL */
	/* CALL_WRITE */
	const uint32_t *rows;         /* in send order; NULL: all */
	size_t count;
	bool replay;                  /* from the full replica, without tensors */
	bool shared;                  /* packing threads help: it is in schedule.calls */
	struct cursor cursors[CURSORS_MAX];
	uint32_t active;              /* tasks in work */
	size_t settled;               /* rows that nobody has open any more */
	struct call *next;
	/* the others */
	uint32_t phase, peer;         /* of schedule_version.c */
	uint64_t wanted;              /* writes to settle, as they were when the peer was reached */
	bool sampled;                 /* they were */
	uint64_t version;
	bool lacks_trainer;           /* BEGIN: one has left since the plan was made */
};

enum task_stage { TASK_TAKE, TASK_ROOM, TASK_PACK, TASK_POST };

/* One part of one row in a thread's hands. */
struct task {
	enum task_stage stage;
	struct call *own;             /* the thread's; NULL: a packing thread */
	struct call *call;            /* that the part is of */
	uint32_t cursor;
	uint32_t row, source, part;
	bool first;                   /* of the source's part in this version */
	bool held;                    /* holds its slot */
	bool fresh;                   /* packs a slot that was lost once more */
	bool ahead;                   /* its row's turn is to come: only packed */
	uint32_t group_first, group;  /* first: sources packed with it, itself too; slots are held */
	uint32_t sent;                /* full: rows of the source looked at */
	uint32_t run;                 /* of the part, where what differs is sent: so many are in the peer's window; */
	uint64_t landed;              /* of the part: bytes that are in the peer's window; */
	uint64_t entry;               /* and the entry of those that are on their way, */
	bool placed;                  /* which have their place, and were not posted yet */
	uint32_t tells;               /* peer + 1 that it was to tell, and has not yet; 0: none */
	uint32_t follower;            /* to be sent next, or NO_SOURCE */
	uint32_t follower_row, follower_part;
	uint32_t late_peer;           /* of the write that is waited for, */
	uint64_t late_write;
	uint64_t deadline_ns;         /* until then; 0: none is */
};

enum step_kind {
	STEP_PACK, STEP_POST, STEP_WAIT, STEP_SIGNAL,
	STEP_DROP,    /* the peer, for schedule.late */
	STEP_DONE, STEP_FAIL
};
enum step_wait {
	WAIT_CHANGE,  /* another thread's event */
	WAIT_WORK,    /* a packing thread: a call that it can help */
	WAIT_WRITE,   /* that write on that peer's endpoint */
	WAIT_FLUSH,   /* everything on that peer's endpoint, and seen there */
	WAIT_TAKEN,   /* a TAKEN of that peer */
	WAIT_ACCEPT   /* a signal of any peer */
};
struct step {
	enum step_kind kind;
	enum step_wait wait;
	uint32_t row, source, part;   /* PACK, POST */
	uint32_t group_first, group;  /* PACK: sources of that part, all at once; 0: not from tensors */
	bool fresh;                   /* PACK: into the slot alone */
	bool replay;                  /* PACK: from its home to mapped targets */
	bool sums;                    /* POST: the checksums of that peer */
	bool abort;                   /* SIGNAL: ABORT, not END */
	bool tells;                   /* SIGNAL: LANDED, after what of entries [told, entries) is merged, and the entries */
	uint64_t told, entries;       /* SIGNAL: END too */
	bool lands;                   /* POST: into the peer's window, at `at` of its ring, */
	uint64_t at, from, bytes;     /* these bytes of the piece; */
	bool merges;                  /* or first to merge_at of what is merged for the peer: telling posts it */
	uint64_t merge_at;
	const struct sent_run *run;   /* POST: what of these bytes differs, and not they; NULL: they */
	uint64_t beside_bytes;        /* SIGNAL: END, of pieces that land because no more of them is sent */
	uint32_t peer;                /* POST, SIGNAL, WAIT, DROP */
	uint64_t write;               /* WAIT_WRITE */
	uint64_t until_ns;            /* WAIT: by then ask again; 0: no deadline */
};

enum event_kind {
	EVENT_ASK, EVENT_PACKED, EVENT_POSTED, EVENT_SIGNALLED, EVENT_COMPLETED, EVENT_ACCEPTED,
	EVENT_TOLD, EVENT_TAKEN, EVENT_SPARED, EVENT_FAILED, EVENT_GONE
};
struct event {
	enum event_kind kind;
	uint64_t now_ns;
	uint32_t peer;                /* COMPLETED, ACCEPTED, TOLD, TAKEN, SPARED, GONE */
	uint64_t write;               /* POSTED, TOLD: its number; COMPLETED: writes up to it */
	bool released;                /* SPARED: as send_link.released */
	uint64_t entries;             /* TOLD, TAKEN: of the peer's window, up to these */
	const struct update_accept *accept;
	const struct error *error;
};

/* A pair's permission and writes. */
struct send_link {
	struct update_accept accept;  /* latest; opening 0: none */
	uint64_t used_opening;        /* the opening of our last begin */
	uint64_t posted;              /* writes */
	bool gone;
	bool lacks;                   /* schedule.repeat */
	bool rests;                   /* it has the version that is sent once more: as if it were gone, until that ends */
	bool spared;                  /* it needs no more of this version: others send it, or have; the permission is given up at the end */
	bool released;                /* .. nor is this trainer asked for another one's pieces of it */
	bool deltas;                  /* its memory holds the last version that was ended: of this one, what differs is enough */
};
static inline bool link_out(const struct send_link *link)
{
	return link->gone || link->rests;
}

/* None of its pieces are sent (any more). */
static inline bool link_needs_none(const struct send_link *link)
{
	return link_out(link) || link->spared;
}

/* What is in a peer's window, which it empties; entries are counted from 0 in each version.
 *
 *   entries   ... taken ... told ... posted ... next       taken: their places in the ring are free
 */
struct send_window {
	struct ring ring;             /* of 0 bytes: the peer has none */
	uint64_t first_id;            /* of the ring, that entry 0 has */
	struct window_entry *entries; /* WINDOW_ENTRIES, the last ones, */
	struct send_entry {
		bool written;         /* posted, or merged */
		uint64_t merge_id;    /* its place among what is merged; 0: posted by itself */
		uint64_t merge_at;
	} *states;                    /* and of each */
	struct ring merge;            /* what is small, from when it is packed until it is taken; of 0 bytes: nothing is */
	uint64_t taken, told, posted;
	uint64_t untold_bytes, unmerged_bytes; /* unmerged: of what is merged, and no write has taken along */
	uint64_t beside_bytes;        /* of pieces that the plan does not let land */
	uint64_t telling;             /* a task tells up to these; 0: none does */
};

enum update_state { UPDATE_CLOSED, UPDATE_OPEN, UPDATE_ENDING };

struct schedule_counts {
	uint64_t pieces[PATH_COUNT], bytes, packed_bytes, copacked, saved_bytes;
};

/* What does not change between updates. */
struct schedule_options {
	const struct send_plan *plan;
	const char *const *peer_names; /* for messages */
	const char *const *peer_paths; /* as receive_peer has them; NULL: none */
	const char *const *tensor_names;
	bool full, sums;
	bool parallel;                /* endpoints may be posted to at once, and a post takes time */
	bool drops;                   /* who keeps others waiting is not waited for: STEP_DROP, not a failure */
	uint64_t begin_ns, wait_ns;   /* deadlines of a begin, for messages, and of a wait for room */
	void *ring;                   /* plan->ring_bytes, not looked at; NULL: none */
	struct window_entry *entries; /* by peer, WINDOW_ENTRIES each, for those whose pieces land; NULL: none do */
	const struct sent *sent;      /* what parts became when they were packed; NULL: all are sent whole */
};

struct schedule {
	struct schedule_options options;
	struct pool pool;             /* of all arrays here */
	enum update_state state;
	uint64_t version, last_version;
	uint64_t ended_version;       /* under this plan; 0: none was */
	uint64_t repeat;              /* the last one, where it may be begun once more for links that lack it; else 0 */
	uint64_t whole_version;       /* that the full replica holds, whole; 0: none */
	bool changed;                 /* what somebody may wait for; the caller wakes them, resets it */
	bool failed;                  /* for good */
	struct error error;           /* the first one */
	struct error late;            /* of the last STEP_DROP */
	uint32_t cursors;             /* of a call */

	bool *submitted;              /* by tensor: its memory is here in this version */
	size_t unsubmitted;           /* wanted tensors that are not */
	struct row_state {
		uint32_t open : 31;   /* tasks and cursors on it */
		uint32_t taken : 1;
	} *rows;
	struct source_state {
		uint32_t unpacked;    /* parts */
		uint32_t unsent;      /* parts whose first task is not done */
	} *sources;
	unsigned char *blocks;        /* enum block_state */
	struct call *calls;           /* shared ones that may have work */
	uint32_t writers;             /* CALL_WRITE and CALL_DRAIN that are inside */
	struct replica replica;
	struct full full;
	struct send_link *links;      /* by peer */
	struct send_window *windows;  /* by peer */
	_Atomic uint64_t *done;       /* writes completed, by peer */
	struct schedule_counts counts;
};

/* The plan outlives it. Whatever it returns, schedule_close. */
int schedule_open(struct schedule *schedule, const struct schedule_options *options,
		  struct error *error);
void schedule_close(struct schedule *schedule);

/* Of a thread: the host's, with its call; or a packing one, without. */
void task_init(struct task *task, struct call *call);
void call_init(struct call *call, enum call_kind kind, uint64_t deadline_ns, struct error *error);
/* What the task's thread does next, after what happened. After DONE or FAIL the call is out. */
struct step schedule_next(struct schedule *schedule, struct task *task, const struct event *event);
/* What happened alone, of a call that goes no further. */
void schedule_note(struct schedule *schedule, struct task *task, const struct event *event);

/* The step is for a peer that is gone, and done without doing anything: *event. */
bool schedule_for_nobody(const struct schedule *schedule, const struct step *step, struct event *event);

/* The first error stops the update for all, for good. */
void schedule_fail(struct schedule *schedule, const struct error *error);
/* An end or abort that has told, or may have told, some target: it tells all that it can. */
bool schedule_telling(const struct task *task);

/* ---- what a call checks before it begins; ERROR_* with the message ---- */

int schedule_check_begin(const struct schedule *schedule, uint64_t version, struct error *error);
/* The version that peers wait for to be sent once more; 0: none. */
uint64_t schedule_repeats(const struct schedule *schedule);
/* After that: who takes no part in the version. */
void schedule_rest(struct schedule *schedule, uint64_t version);
/* CALL_WRITE, CALL_DRAIN: an update is open. `call` is for the message. */
int schedule_check_open(const struct schedule *schedule, const char *call, struct error *error);
/* CALL_END, CALL_ABORT: and nobody is writing. */
int schedule_check_end(const struct schedule *schedule, const char *call, struct error *error);
/* CALL_END: and every wanted tensor was submitted. */
int schedule_check_whole(const struct schedule *schedule, struct error *error);
/* CALL_DRAIN: no submitted tensor waits for another one. */
int schedule_check_halves(const struct schedule *schedule, struct error *error);
/* 0, or why not all of the last version can be sent again. */
int schedule_check_replay(const struct schedule *schedule, struct error *error);
/* The peer lets that version be written. */
bool schedule_accepts(const struct schedule *schedule, uint32_t peer, uint64_t version);
/* The tensor's memory is here, for the rows that want it. */
void schedule_submit(struct schedule *schedule, uint32_t tensor);
/* Rows of that tensor that are by_device, and whose tensors are all here, have left: no task takes them. */
void schedule_sent(struct schedule *schedule, uint32_t tensor);

/* ---- between the parts of schedule*.c ---- */

/* The next part for the task, which is then in TASK_ROOM; false when there is none now. */
bool schedule_take(struct schedule *schedule, struct task *task);
/* The part is packed, and what of it differs is all that the row's peer is sent; NULL: it is sent whole. */
const struct sent_block *schedule_delta(const struct schedule *schedule, const struct task *task, uint32_t row);
/* Of the row's part that the task has: what brings more of it into the peer's window, or waits for room there; false:
 * all of it is there. */
bool schedule_land(struct schedule *schedule, struct task *task, uint32_t row, uint64_t now_ns, struct step *step);
/* Its last step was done; true: with it, all of the part is there. */
bool schedule_landed(struct schedule *schedule, struct task *task, uint32_t peer);
void schedule_told(struct schedule *schedule, struct task *task, uint32_t peer, uint64_t entries);
void schedule_taken(struct schedule *schedule, uint32_t peer, uint64_t entries);
/* LANDED, of all that was posted, or what the task was to tell before; with nothing untold: false. */
bool schedule_tell(struct schedule *schedule, struct task *task, uint32_t peer, uint64_t until_ns,
		   struct step *step);
/* The peer kept others waiting until the deadline. */
struct step schedule_late(struct schedule *schedule, uint32_t peer, const struct error *late);
/* Nobody is telling: whoever was has given that up. */
void schedule_untell(struct schedule *schedule);
int schedule_make_windows(struct schedule *schedule, struct error *error);
/* A version begins: windows are as the peers' ACCEPT says. */
int schedule_open_windows(struct schedule *schedule, struct error *error);
void schedule_close_windows(struct schedule *schedule);
/* A task is done with the row, or a cursor has moved on. */
void schedule_close_row(struct schedule *schedule, uint32_t row);
struct step schedule_version_next(struct schedule *schedule, struct task *task,
				  const struct event *event);

#endif

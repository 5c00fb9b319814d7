/* SPDX-License-Identifier: Apache-2.0
 *
 * trainer.h -- a trainer's update engine: what goes where, and who does it.
 *
 *   weft_update_write(t) ─► job: rows of t ─┐  cursor: the next (row, part) in send order
 *   weft_update_write_all ─► job: all rows ─┤
 *                                           ▼
 *        calling threads and packing threads take one item at a time
 *             │ first of its source's part: pack it ─► slot, mapped targets, sum    no lock
 *             │   and with it the column slices beside it that others will want
 *             └ post it to the row's target                                  lock: wire
 *
 * A source is one distinct piece of the held rows: packed and summed once an update, for all
 * rows that want it. A part of it is what is packed in one go: one block of its sum, or less where
 * the ring is small.
 *
 * Two locks, never held together: `lock` for all state here, `wire` for every call on the
 * endpoints (a transport takes one thread at a time). Whoever waits looks at `broken`: the first
 * error stops all.
 */
#ifndef WORKER_UPDATE_TRAINER_H
#define WORKER_UPDATE_TRAINER_H

#include "job/member.h"
#include "transport/transport.h"
#include "worker/replica/full.h"
#include "pack/pack.h"
#include "worker/replica/replica.h"
#include <pthread.h>

#define NO_SOURCE UINT32_MAX
#define NO_TENSOR UINT32_MAX
#define PACK_THREADS_MAX 64u

struct weft_worker;

struct source {
	uint32_t tensor, scales;     /* scales: of the tensor of its scales, or NO_TENSOR */
	uint32_t first_row, row_count; /* trainer.source_rows of it */
	uint32_t first_block, parts; /* into trainer.blocks, of part_bytes each */
	uint32_t parts_left;         /* not made yet in this version */
	uint32_t follower;           /* source of the scales that are made along with these values */
	bool follows;                /* this is one: it leaves when its values are packed */
	bool slots;                  /* some row goes through the ring */
	bool sum_parts;              /* its parts are the blocks of its sum */
	uint64_t part_bytes;
	uint64_t kept;               /* a follower's bytes in trainer.kept */
	uint64_t sum;
	struct pack pack;
};

struct target {
	struct transport_remote *remote;
	unsigned char *pointer;      /* mapped here: its first byte; else NULL */
	uint64_t offset;
};

struct send_row {
	uint32_t peer, ordinal, source;
	uint32_t target;             /* targets[target + copy] */
	enum route_how how : 8;      /* a byte: there may be millions of rows */
	bool stored;                 /* we store it ourselves; else it is posted */
	bool taken;                  /* by a job of this update */
	uint32_t open;               /* items of it in work, and 1 while a cursor is on it */
};

enum block_state { BLOCK_WAITS, BLOCK_TAKEN, BLOCK_MADE };

/* One call's rows; on the stack of the call. */
struct write_job {
	const uint32_t *rows;        /* in send order; NULL: all */
	size_t count, at;
	uint32_t part;               /* of rows[at] */
	bool on_row;                 /* rows[at] is taken, by this job */
	bool repeat;                 /* from the full replica, no tensors */
	uint32_t active;             /* items in work */
	struct write_job *next;
};

enum update_state { UPDATE_CLOSED, UPDATE_OPEN, UPDATE_ENDING };

struct trainer {
	/* the plan, made at join */
	struct send_row *rows;       /* send order */
	size_t row_count;
	struct target *targets;
	size_t target_count;
	struct source *sources;
	size_t source_count;
	uint32_t *source_rows;
	uint32_t *tensor_first;      /* rows of tensor t: tensor_rows[tensor_first[t] .. [t + 1]) */
	uint32_t *tensor_rows;       /* in send order within a tensor; as its scales too */
	bool *direct;                /* by tensor: some piece goes out as it lies */
	struct transport_region *ring_region; /* of the ring, or of all homes */
	struct replica replica;
	struct full full;
	struct transport_region *kept_region; /* followers' bytes */
	unsigned char *kept;
	uint64_t kept_bytes;
	struct transport_region *sums_region;
	uint64_t *sums;
	_Atomic uint64_t *done;      /* writes completed, by peer */
	int node;                    /* of the replica's memory; -1: it does not matter */

	/* the update, under lock */
	const void **given;          /* by tensor: its memory in this update */
	size_t unwritten;            /* wanted tensors not given */
	unsigned char *blocks;       /* enum block_state */
	uint64_t *block_sums;        /* checksums only */
	size_t block_count;
	struct write_job *jobs;
	uint32_t writers;            /* calls that are inside */
	uint64_t writing_since_ns;
	enum update_state state;
	uint64_t version, last_version;
	uint64_t whole_version;      /* that the full replica holds, whole; 0: none */
	uint64_t begin_ns;
	_Atomic bool broken;         /* for good; written under the lock */
	struct error error;          /* the first one */

	bool locks;                  /* below is initialised */
	pthread_mutex_t lock, wire;
	pthread_cond_t changed, work;
	pthread_t threads[PACK_THREADS_MAX];
	uint32_t thread_count;
	bool stop;
};

/* jobs.c */
int trainer_open_locks(struct trainer *trainer, struct error *error);
void trainer_close_locks(struct trainer *trainer);
int jobs_start(struct weft_worker *worker, struct error *error);
void jobs_stop(struct weft_worker *worker);
/* With the lock held. Does the job's rows, with the packing threads' help if it is `large`;
 * returns with the lock held and the rows done, also those that another job had taken, or the
 * first error. */
int job_run(struct weft_worker *worker, struct write_job *job, bool large, struct error *error);

/* engine.c */
struct item {
	uint32_t row, source, part;
	bool first;                  /* of the source's part in this version */
	bool held;                   /* its slot is there, held for it */
	bool ahead;                  /* the same, and its row's turn is to come: only packed */
	bool repeat;
	uint32_t lanes_first, lanes; /* first: sources made with it, itself too; slots are held */
};
/* With the lock held: the job's next item; false when there is none. */
bool engine_next(struct weft_worker *worker, struct write_job *job, struct item *item);
int engine_do(struct weft_worker *worker, const struct item *item, struct error *error);
/* The first error of this update or of the worker, or 0. With the lock held. */
int engine_check(struct weft_worker *worker, struct error *error);
/* With the lock held: this error, unless there was one before, stops all. */
void engine_break(struct trainer *trainer, const struct error *error);
/* With the lock held: a row's item is done, or its cursor has moved on. */
void engine_close_row(struct trainer *trainer, uint32_t row);
/* With the lock held: a moment, or until something changed. */
void engine_pause(struct trainer *trainer);
/* With the lock held, which it drops meanwhile: until that write is complete. */
int engine_wait_write(struct weft_worker *worker, uint32_t peer, uint64_t write,
		      struct error *error);
int engine_post(struct weft_worker *worker, uint32_t peer, const void *source,
		const struct transport_region *region, const struct target *target, uint64_t from,
		uint64_t bytes, uint64_t *number, struct error *error);
uint64_t source_part(const struct source *source, uint32_t part, uint64_t *from);
const struct target *row_target(const struct weft_worker *worker, const struct send_row *row);

/* engine_make.c */
struct lane {
	struct source *source;
	void *into;                  /* its slot or home, or NULL */
};
/* Packs the part of each lane into `into` and every mapped target, and takes its sum. */
void engine_make(struct weft_worker *worker, const struct lane *lanes, size_t count,
		 uint32_t part);
/* With the lock held: takes the item's part of its source, and of those that are best made along. */
void engine_take(struct weft_worker *worker, struct item *item);
/* Into a slot, for a row that comes after the first one's slot is gone. */
void engine_make_again(const struct weft_worker *worker, const struct source *source, uint32_t part,
		       void *into);
void engine_follow(struct weft_worker *worker, struct source *source, uint32_t part, void *into);

/* engine_full.c: the same item in a replica that keeps everything */
int engine_do_full(struct weft_worker *worker, const struct item *item, struct error *error);
/* 0, or why not all of the last version can be sent again. With the lock held. */
int engine_repeatable(const struct weft_worker *worker, struct error *error);

/* update_trainer.c: what weft.h says of the call of the same name, which has checked the worker, its
 * role and its stage */
int update_write_tensor(struct weft_worker *worker, uint32_t id, const void *data, uint64_t bytes,
			struct error *error);
int update_write_all(struct weft_worker *worker, const void *const *data, struct error *error);
int update_end(struct weft_worker *worker, struct error *error);
int update_abort(struct weft_worker *worker, const char *why, struct error *error);
/* Takes the lock: a call that writes is inside from enter to leave. */
int update_enter(struct weft_worker *worker, const char *call, struct error *error);
int update_leave(struct weft_worker *worker, int rc, struct error *error);
/* With the lock held: the tensor's memory, for the rows that want it. */
int update_check_tensor(struct weft_worker *worker, uint32_t id, const void *data,
			struct error *error);
bool update_wanted(const struct weft_worker *worker, uint32_t id);
void update_give(struct weft_worker *worker, uint32_t id, const void *data);
/* The end of an update that nobody writes any more. */
int update_finish(struct weft_worker *worker, struct error *error);
/* Until all that was posted when it was called is complete. */
int update_settle(struct weft_worker *worker, uint64_t deadline_ns, struct error *error);
int update_failed(struct weft_worker *worker, struct error *error);

/* update_bucket.c: the same */
struct bucket_slice {
	const char *name, *dtype;
	uint32_t dims;
	uint64_t shape[BOX_DIMS_MAX];
	const void *data;
	uint64_t bytes;
};
int update_write_bucket(struct weft_worker *worker, const struct bucket_slice *slices,
			size_t count, struct error *error);
int update_drain(struct weft_worker *worker, struct error *error);
int update_repeat(struct weft_worker *worker, uint64_t version, struct error *error);

/* update_begin.c: the same */
int update_begin(struct weft_worker *worker, uint64_t version, struct error *error);
int update_try_begin(struct weft_worker *worker, uint64_t version, struct error *error);

#endif

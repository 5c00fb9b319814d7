/* SPDX-License-Identifier: Apache-2.0
 *
 * send_plan.h -- a trainer's rows of the routing table, resolved once an epoch to what an update
 * needs; nothing in it changes until the epoch is released.
 *
 *   plan rows ─► send rows ─► sources (equal rows share one) ─► parts ─► ring, or homes
 *
 * A tensor is here what is written with one id (locals.h): a tensor's rows, or a local parameter.
 *
 * A source is one distinct piece of the held rows: packed and summed once a version, for all rows
 * that want it. A part of it is what is packed in one go: one block of its sum, or less where the
 * ring is small. Blocks number all parts of all sources.
 */
#ifndef WORKER_EPOCH_SEND_PLAN_H
#define WORKER_EPOCH_SEND_PLAN_H

#include "base/pool.h"
#include "job/layout.h"
#include "pack/pack.h"
#include "transport/transport.h"
#include "worker/device/batch.h"
#include "worker/epoch/mapper.h"
#include "worker/replica/full.h"

#define NO_SOURCE UINT32_MAX
#define NO_TENSOR UINT32_MAX

struct epoch;

struct send_source {
	uint32_t tensor, scales;       /* scales: of the tensor of its scales, or NO_TENSOR */
	uint32_t first_row, row_count; /* send_plan.source_rows of it */
	uint32_t first_block, parts;   /* blocks, of part_bytes each */
	uint32_t follower;             /* source of the scales that are packed along with these values */
	bool follows;                  /* this is one: it leaves when its values are packed */
	bool scheduled;                /* some row of it is not by_device */
	bool slots;                    /* some row goes through the ring */
	bool gathers;                  /* or would, but posts read its rows where they lie */
	bool packs;                    /* a part of it is work: a slot, a mapped target, a sum, scales */
	bool sum_parts;                /* its parts are the blocks of its sum */
	bool joins_next;               /* a column of the same rows as the next source, beside it */
	uint8_t group_max;             /* so many of those are packed in one pass */
	uint64_t part_bytes;
	uint64_t scratch;              /* a follower's bytes in send_plan.scratch */
	struct pack pack;
};

struct send_target {
	struct transport_remote *remote;
	unsigned char *pointer;        /* mapped here: its first byte, by_device as kernels reach it; else NULL */
	uint64_t offset;
};

struct send_row {
	uint32_t peer, ordinal, source;
	uint32_t target;               /* targets[target + copy] */
	enum route_path path : 8;      /* a byte: there may be millions of rows; what is landed: how it leaves here */
	bool landed : 1;               /* into a window of the peer's */
	bool spread : 1;               /* its bytes are no one run of the target: plan_row.spread */
	bool stored : 1;               /* packing stores it at the target; else it is posted, */
	bool by_device : 1;            /* or a GPU's kernel stores it there: no task's affair */
};

/* What the full replica held under the plan before, if this one sends the same: see send_plan_keep. */
struct kept_replica {
	struct transport_region *homes, *sums;
	uint64_t version;              /* 0: nothing */
	struct digest digest;          /* of that plan, */
	struct digest places;          /* and of where it keeps what of it: parameters are numbered by their layouts */
};

struct send_plan {
	struct pool pool;              /* of all arrays here */
	struct send_row *rows;         /* send order */
	size_t row_count;
	struct send_target *targets;
	size_t target_count;
	struct send_source *sources;
	size_t source_count;
	size_t block_count;
	uint32_t *source_rows;
	uint32_t *tensor_first;        /* rows of tensor t: tensor_rows[tensor_first[t] .. [t + 1]) */
	uint32_t *tensor_rows;         /* in send order within a tensor; as its scales too */
	size_t tensor_count, peer_count;
	bool *lands;                   /* by peer: some of its rows are landed; */
	bool *deltas;                  /* and what differs alone may be, of any row that is posted */
	struct transport_region *entries_region; /* of windows, where some are */
	struct transport_region *merge_region; /* where what is small is merged on its way into windows, */
	struct send_merge {
		uint64_t at, bytes;
	} *merges;                     /* by peer; of 0 bytes: nothing is, for that one */
	bool *direct;                  /* by tensor: some piece goes out in place */
	bool posts;                    /* some row is posted */
	bool scheduled;                /* some row is not by_device */
	bool full;                     /* the replica keeps everything */
	struct full homes;             /* full: by source; its groups are never taken */
	uint64_t kept_version;         /* that these hold from the plan before; 0: none */
	uint64_t ring_bytes;           /* that one update puts into the ring, its limit at most */
	struct transport_region *replica_region; /* of the ring, or of all homes */
	struct transport_region *scratch_region; /* followers' bytes */
	uint64_t replica_block, scratch_block; /* memory of the GPU under them; 0: they lie on the host */
	unsigned char *scratch;
	uint64_t scratch_bytes;
	struct transport_region *sums_region;
	uint64_t *sums;                /* by pair and ordinal; NULL: none are wanted */
	int node;                      /* of the replica's memory; -1: it does not matter */
	const struct device *device;   /* that has the tensors; NULL: the host */
	bool ring_on_device;           /* and NICs read the ring in its memory; else it is pinned */
	struct batch *batch;           /* the rows that are by_device; NULL: there are none */
	uint32_t copies;               /* of targets, at most; the batch's group of a row is peer * copies + copy */
	struct mapper mapper;          /* of mapped targets that were not mapped before */
};

/* Of an epoch whose peers are connected. Everything a peer said is checked here, so that an update
 * only moves bytes. Whatever it returns, send_plan_close. */
int send_plan_open(struct send_plan *plan, struct epoch *epoch, struct error *error);
void send_plan_close(struct send_plan *plan);
/* Before it closes: its homes hold that version, whole, for the plan that comes next, if that is the same. */
void send_plan_keep(struct epoch *epoch, uint64_t version, struct kept_replica *kept);
void send_plan_drop_kept(struct kept_replica *kept, const struct device *device);
/* When the job runs: mapped targets that were not mapped before get their pages here (mapper.h). */
int send_plan_map_targets(struct send_plan *plan, const struct epoch *epoch, struct error *error);

/* ---- send_plan.c and its parts, in the order of their calls ---- */

/* Of the tensor with that id. */
const char *send_plan_name(const struct epoch *epoch, uint32_t id);
int send_plan_bad_row(const struct epoch *epoch, size_t row, const char *what,
		      struct error *error);
/* send_device.c: of resolved rows: whether the ring can lie in the GPU's memory; said where it cannot. */
void send_plan_place_ring(struct send_plan *plan, const struct epoch *epoch);
/* send_sources.c: of resolved rows; equal ones share a source. */
int send_plan_find_sources(struct send_plan *plan, const struct epoch *epoch,
			   struct error *error);
/* send_memory.c: cuts them into parts. */
int send_plan_open_memory(struct send_plan *plan, struct epoch *epoch, struct error *error);
void send_plan_close_memory(struct send_plan *plan);
/* send_sources.c: which are packed together, and which at all. */
void send_plan_find_work(struct send_plan *plan);
/* send_device.c: rows that are by_device. */
int send_plan_open_batch(struct send_plan *plan, const struct epoch *epoch, struct error *error);

/* ---- what an update asks ---- */

/* Bytes of that part, and where it begins in its source. */
static inline uint64_t source_part(const struct send_source *source, uint32_t part, uint64_t *from)
{
	uint64_t left;

	*from = (uint64_t)part * source->part_bytes;
	left = source->pack.bytes - *from;
	return left < source->part_bytes ? left : source->part_bytes;
}

/* Do its parts lie somewhere as they are sent, where the processor can read them? */
static inline bool send_plan_readable(const struct send_plan *plan, const struct send_source *source)
{
	if (plan->device)
		return !plan->ring_on_device && (source->slots || source->follows || plan->full);
	return !source->gathers || plan->full;
}

/* Does it land, and can the processor read what is posted of it? Then parts of less than MERGE_BYTES go out many to a write. */
static inline bool send_plan_merges(const struct send_plan *plan, const struct send_row *row)
{
	return row->landed &&
	       (!plan->device || (!plan->ring_on_device && row->path == PATH_REPLICA));
}

/* Before so many bytes of that target are written, from `at` in its region on. */
static inline void send_plan_map(const struct send_plan *plan, const struct send_target *target, uint64_t at, uint64_t bytes)
{
	if (mapper_lacks(&plan->mapper, (uint32_t)(target - plan->targets)))
		mapper_map(target->remote, at, bytes);
}

static inline bool send_plan_deltas(const struct send_plan *plan, size_t peer)
{
	return plan->deltas && plan->deltas[peer];
}

static inline bool send_plan_wants(const struct send_plan *plan, uint32_t tensor)
{
	return plan->tensor_first[tensor] != plan->tensor_first[tensor + 1];
}

#endif

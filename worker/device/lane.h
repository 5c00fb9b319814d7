/* SPDX-License-Identifier: Apache-2.0
 *
 * lane.h -- what one thread packs with a GPU for a transport that sends it from where it was packed:
 *
 *   a NIC reads the GPU's memory    parts ─► one launch ─► slots of a ring on the device
 *   else                            parts ─► one launch ─► staging ─► copy engine ─► slots of a pinned ring
 *                                            lane 1's kernel runs    while lane 0's copy does, and others' posts
 *
 * What needs no packing is copied from where it lies, without a kernel. Sums are of what was packed, or lies there, on
 * the device. The table is read where it lies, in pinned memory: it is a few hundred bytes beside a block of megabytes.
 *
 * Threads: lanes_take and lanes_give any, at once; a lane is one thread's in between.
 */
#ifndef WORKER_DEVICE_LANE_H
#define WORKER_DEVICE_LANE_H

#include "pack/cuda/launch.h"
#include "worker/device/device.h"

struct lanes;
struct lane;

/* Of its staging that a part takes. */
#define LANE_ALIGN 256u
static inline uint64_t lane_staged(uint64_t bytes)
{
	return (bytes + LANE_ALIGN - 1) / LANE_ALIGN * LANE_ALIGN;
}

/* staging_bytes: of one lane, what is packed in one go at most; 0: the ring lies on the device, or nothing is packed.
 * Whatever it returns, lanes_close. */
int lanes_open(struct lanes **lanes, const struct device *device, uint64_t staging_bytes, struct error *error);
void lanes_close(struct lanes **lanes);

/* Waits while all of them are taken, by threads that have a deadline; NULL: the lanes are broken. */
struct lane *lanes_take(struct lanes *lanes);
/* After a lane that failed, and that what it queued may use still: it is not given back, and no other is taken. */
void lanes_break(struct lanes *lanes, const struct error *error);
/* 0, or why they are broken. */
int lanes_broken(struct lanes *lanes, struct error *error);
/* Nothing queued is at work any more, and nobody has a lane: all of them are there again. */
void lanes_mend(struct lanes *lanes);
void lanes_give(struct lanes *lanes, struct lane *lane);

/* Tensors of the parts to come. */
void lane_begin(struct lane *lane, const void *data, const void *scales);
/* One part: at most PACK_COLUMNS_MAX of them. */
struct lane_part {
	const struct pack *pack;    /* NULL: only the sum of `bytes` at `target` */
	uint64_t from, bytes;       /* of the piece */
	void *target;               /* its slot; NULL: only the sum, of a part that lies contiguous in its tensor */
	void *scales_target;        /* NULL, or where the scales of the values go */
	bool sum;
};
void lane_add(struct lane *lane, const struct lane_part *part);
/* Queues them; *done is the lane's event behind them. */
int lane_run(struct lane *lane, cuda_event *done, struct error *error);
/* checksum64() of the i-th part, once it is done. */
uint64_t lane_sum(const struct lane *lane, uint32_t i);
uint64_t lanes_launches(const struct lanes *lanes);

#endif

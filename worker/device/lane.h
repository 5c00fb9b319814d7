/* SPDX-License-Identifier: Apache-2.0
 *
 * lane.h -- what one thread packs with a GPU into pinned memory of the host, for a transport that reads it there:
 *
 *   thread ── parts of one group ──► one launch ──► slots of the ring ── lane_wait ──► posted
 *
 * The table is read where it lies, in pinned memory: it is a few hundred bytes beside a block of megabytes.
 *
 * Threads: lanes_take and lanes_give any, at once; a lane is one thread's in between.
 */
#ifndef WORKER_DEVICE_LANE_H
#define WORKER_DEVICE_LANE_H

#include "pack/cuda/launch.h"
#include "worker/device/device.h"

struct lanes;
struct lane;

/* Whatever it returns, lanes_close. */
int lanes_open(struct lanes **lanes, const struct device *device, struct error *error);
void lanes_close(struct lanes **lanes);

/* Waits while all of them are taken. */
struct lane *lanes_take(struct lanes *lanes);
void lanes_give(struct lanes *lanes, struct lane *lane);

/* Tensors of the parts to come. */
void lane_begin(struct lane *lane, const void *data, const void *scales);
/* Bytes [from, from + bytes) of the piece to pinned memory at `target`; scales_target: NULL, or where those of the values
 * go. At most PACK_COLUMNS_MAX of them. */
void lane_add(struct lane *lane, const struct pack *pack, uint64_t from, uint64_t bytes, void *target,
	      void *scales_target);
int lane_launch(struct lane *lane, struct error *error);
/* Until all is packed. ERROR_TIMEOUT: it is not by then. */
int lane_wait(struct lane *lane, uint64_t deadline_ns, struct error *error);
uint64_t lanes_launches(const struct lanes *lanes);

#endif

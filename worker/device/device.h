/* SPDX-License-Identifier: Apache-2.0
 *
 * device.h -- the GPU of this process as a worker uses it: its stream, its kernel, memory, and what lies where.
 *
 *   host's stream ── work queued there ──► event ─┐
 *   ours          ────────────────────────────────┴─► kernels and copies ──► mark ── asked, never waited for blindly
 *
 * Addresses are device addresses, uint64_t: nothing here may be touched by the processor but what is pinned.
 *
 * Threads: any for device_copy, device_fill and what tells; who queues work on the stream does so one at a time.
 */
#ifndef WORKER_DEVICE_DEVICE_H
#define WORKER_DEVICE_DEVICE_H

#include "base/error.h"
#include "pack/cuda/part.h"
#include "transport/cuda/calls.h"

#include <stdatomic.h>

struct device {
	int number;
	struct cuda_facts facts;
	cuda_stream stream;         /* waits for nobody unasked */
	cuda_event behind;          /* what a host has queued on its own */
	cuda_kernel kernel;
	_Atomic uint64_t *published; /* pinned: the version that streams may wait for */
};

/* name: "cuda" (the launcher's local rank; -1: 0) or "cuda:N". Whatever it returns, device_close. */
int device_open(struct device **device, const char *name, int local_rank, struct error *error);
/* Waits for what is queued. NULL inside is fine. */
void device_close(struct device **device);
/* For messages: "cuda:1 (NVIDIA H100 80GB HBM3)". */
const char *device_text(const struct device *device);

/* ---- memory ---- */

/* Zeroed; *address is 0 after a failure. */
int device_allocate(const struct device *device, uint64_t bytes, uint64_t *address, struct error *error);
void device_release(const struct device *device, uint64_t address);
int device_zero(const struct device *device, uint64_t address, uint64_t bytes, struct error *error);
/* Host memory that kernels reach at its own address and copies need not stage. It begins on a page, and is made of
 * whole ones. */
int device_pin(const struct device *device, void *memory, uint64_t bytes, struct error *error);
void device_unpin(const struct device *device, void *memory);
/* Between any two of host and device; both are done when it returns. */
int device_copy(const struct device *device, uint64_t to, uint64_t from, uint64_t bytes, struct error *error);
/* The same, queued on the stream; the host's memory is pinned. */
int device_queue_copy(const struct device *device, uint64_t to, uint64_t from, uint64_t bytes, struct error *error);
/* ERROR_USAGE unless all of it is memory of this device; `what` is for the message. */
int device_holds(const struct device *device, const void *memory, uint64_t bytes, const char *what,
		 struct error *error);

/* ---- the stream ---- */

/* What was queued on the host's stream (NULL: the default one) comes before what is queued here from now on. */
int device_after(const struct device *device, void *stream, struct error *error);
/* The kernel over that range of a table. *launched: 1, or 0 where there is nothing to do. */
int device_launch(const struct device *device, struct pack_cuda_launch *launch, uint32_t *launched,
		  struct error *error);
/* A place in the stream: reached when all queued before it is complete. */
int device_mark(const struct device *device, cuda_event *mark, struct error *error);
/* 1: reached; 0: not yet. */
int device_reached(const struct device *device, cuda_event mark, struct error *error);
void device_unmark(const struct device *device, cuda_event mark);
/* The same by waiting, for work of our own that is short. */
int device_finish(const struct device *device, struct error *error);

/* ---- versions, for streams ---- */

void device_publish(const struct device *device, uint64_t version);
/* What is queued on the host's stream from now on waits until that version, or a later one, is published. */
int device_stream_wait(const struct device *device, void *stream, uint64_t version, struct error *error);

#endif

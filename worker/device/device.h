/* SPDX-License-Identifier: Apache-2.0
 *
 * device.h -- the GPU of this process as a worker uses it: its stream, its kernel, memory, and what lies where.
 *
 *   host's stream ── work queued there ──► event ─┐
 *   KERNELS       ────────────────────────────────┴─► kernels and copies ──► mark ── asked, never waited for blindly
 *   COPIES        ────── after an event of KERNELS ──► down to the host, while the next kernel runs
 *
 * Addresses are device addresses, uint64_t: nothing here may be touched by the processor but what is pinned.
 *
 * Every wait of ours has a deadline (copies to memory that is not pinned, and from the host to the host, are the driver's): what was queued may wait for a stream of the host program, which may wait for anything. Where it
 * has passed at an end, the device is stuck: what kernels and copies that are queued may touch is not freed any more.
 *
 * Threads: any. What one thread queues on a stream stays in its order; what two do mixes.
 */
#ifndef WORKER_DEVICE_DEVICE_H
#define WORKER_DEVICE_DEVICE_H

#include "base/error.h"
#include "pack/cuda/part.h"
#include "transport/cuda/calls.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

enum device_stream { DEVICE_KERNELS, DEVICE_COPIES };

struct device_live {
	pthread_mutex_t after;      /* `behind`, between its record and who waits for it */
	_Atomic bool stuck, left;   /* left: somebody did not close what it may touch */
	_Atomic bool awaited;       /* streams of the host program may look at `published` until they end */
};

struct device {
	int number;
	struct cuda_facts facts;
	cuda_stream streams[2];     /* by enum device_stream; they wait for nobody unasked */
	cuda_event behind;          /* what a host has queued on its own */
	cuda_kernel kernel;
	_Atomic uint64_t *published; /* pinned: the version that streams may wait for */
	struct device_live *live;
};

/* name: "cuda" (the launcher's local rank; -1: 0) or "cuda:N". Whatever it returns, device_close. */
int device_open(struct device **device, const char *name, int local_rank, struct error *error);
/* NULL inside is fine. */
void device_close(struct device **device);
/* For messages: "cuda:1 (NVIDIA H100 80GB HBM3)". */
const char *device_text(const struct device *device);

/* ---- memory ---- */

/* Zeroed; *address is 0 after a failure. */
int device_allocate(const struct device *device, uint64_t bytes, uint64_t *address, struct error *error);
void device_release(const struct device *device, uint64_t address);
/* Bytes that are free now. */
int device_memory_left(const struct device *device, uint64_t *bytes, struct error *error);
int device_zero(const struct device *device, uint64_t address, uint64_t bytes, struct error *error);
/* Host memory that kernels reach at its own address and copies need not stage. It begins on a page, and is made of
 * whole ones. */
int device_pin(const struct device *device, void *memory, uint64_t bytes, struct error *error);
void device_unpin(const struct device *device, void *memory);
/* The same of the host program's memory: the pages around it that nobody has pinned, from *pinned on; NULL: all are. */
int device_pin_pages(const struct device *device, void *memory, uint64_t bytes, void **pinned, struct error *error);
/* Between any two of host and device; both are done when it returns. */
int device_copy(const struct device *device, uint64_t to, uint64_t from, uint64_t bytes, struct error *error);
/* The same, queued on a stream; the host's memory is pinned. */
int device_queue_copy(const struct device *device, enum device_stream stream, uint64_t to, uint64_t from, uint64_t bytes,
		      struct error *error);
/* ERROR_USAGE unless all of it is memory of this device; `what` is for the message. */
int device_holds(const struct device *device, const void *memory, uint64_t bytes, const char *what,
		 struct error *error);
/* Whether it is memory of a GPU at all. */
bool device_has(const void *memory);

/* ---- streams ---- */

/* What was queued on the host's stream (NULL: the default one) comes before what is queued on KERNELS from now on. */
int device_after(const struct device *device, void *stream, struct error *error);
/* The kernel over that range of a table. *launched: 1, or 0 where there is nothing to do. */
int device_launch(const struct device *device, struct pack_cuda_launch *launch, uint32_t *launched,
		  struct error *error);
/* An event that is recorded any number of times; device_unmark. */
int device_event(const struct device *device, cuda_event *event, struct error *error);
/* It is reached when all that is queued on the stream now is complete. */
int device_record(const struct device *device, cuda_event event, enum device_stream stream, struct error *error);
/* What is queued on COPIES from now on comes after it. */
int device_copies_after(const struct device *device, cuda_event event, struct error *error);
/* A new event, recorded on KERNELS. */
int device_mark(const struct device *device, cuda_event *mark, struct error *error);
/* 1: reached; 0: not yet. */
int device_reached(const struct device *device, cuda_event mark, struct error *error);
/* Until it is; ERROR_TIMEOUT: by then it is not. */
int device_reach(const struct device *device, cuda_event mark, uint64_t until_ns, struct error *error);
void device_unmark(const struct device *device, cuda_event mark);
/* Until all that is queued on both streams is complete; ERROR_TIMEOUT: by then it is not. */
int device_settle(const struct device *device, uint64_t until_ns, struct error *error);
/* For who closes: true when nothing queued here is at work any more, so that memory may go; or the device is lost, and has
 * let go of everything. Waits some seconds; false: it is stuck, which was said in the log. From then on device_release and
 * device_unpin do nothing, and what else kernels may touch must stay; until it is asked again and is quiet. */
bool device_quiet(const struct device *device);
/* The same, for who leaves everything as it is where it is false. */
bool device_closes(const struct device *device);
/* What NICs wrote into memory of the device is seen by kernels that are launched from now on. */
int device_flush(const struct device *device, struct error *error);

/* ---- versions, for streams ---- */

void device_publish(const struct device *device, uint64_t version);
/* For who closes: whoever waits for a version goes on, as no version will come. */
void device_let_go(const struct device *device);
/* What is queued on the host's stream from now on waits until that version, or a later one, is published. */
int device_stream_wait(const struct device *device, void *stream, uint64_t version, struct error *error);

#endif

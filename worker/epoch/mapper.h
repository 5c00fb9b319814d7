/* SPDX-License-Identifier: Apache-2.0
 *
 * mapper.h -- memory of peers that a trainer writes itself (shm). The first store into each of its pages is a fault, which takes longer
 * than the copy; one call for many pages does not, but of tens of GB it takes seconds, for an engine that comes in while others want
 * an update. So a thread makes those calls, with what processor time others leave, and an update those that it is in need of:
 *
 *   targets    0  1  2  3  4  5  6  7  8
 *   an update  ─────►           ◄─────── the thread, from the last one on
 *              those before `left`
 *
 * Where no thread starts, all is mapped before mapper_start returns.
 */
#ifndef WORKER_EPOCH_MAPPER_H
#define WORKER_EPOCH_MAPPER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct transport_remote;

/* In the order of their targets. */
struct mapper_range {
	const unsigned char *memory;
	uint64_t bytes;
	uint32_t target;
};

/* Zeroed: nothing is to be mapped. */
struct mapper {
	struct mapper_range *ranges; /* the caller's, until mapper_stop */
	size_t count;
	_Atomic uint32_t left;       /* targets before this one the thread may have yet to map */
	_Atomic bool stopped;
	bool running;
	pthread_t thread;
};

void mapper_start(struct mapper *mapper, struct mapper_range *ranges, size_t count);
/* Before that memory is mapped here no more. */
void mapper_stop(struct mapper *mapper);

/* So many bytes of it are worth a call: they are mapped, and were not when it was imported. [any thread] */
bool mapper_wants(const struct transport_remote *remote, uint64_t bytes);
/* Makes that call, before they are written; what lies beyond its end the write refuses. [any thread] */
void mapper_map(const struct transport_remote *remote, uint64_t offset, uint64_t bytes);

/* [any thread] */
static inline bool mapper_lacks(const struct mapper *mapper, uint32_t target)
{
	return target < atomic_load_explicit(&mapper->left, memory_order_relaxed);
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * ring.h -- which bytes of the CPU replica are in use: a ring of slots, pure arithmetic.
 *
 *        oldest                     newest
 *   |....[ 7 ][ 8 ][ 9 given back ][ 10 ].......|     next slot goes behind 10, or, when it does
 *        ^tail                          ^head         not fit there, to the front before 7
 *
 * Slots are given back in any order; their bytes come free in order of age, as a ring must.
 * A slot is never moved or cut, so it is one contiguous source for a write.
 */
#ifndef WORKER_REPLICA_RING_H
#define WORKER_REPLICA_RING_H

#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RING_ALIGN 64 /* slots start on a cache line */

static inline uint64_t ring_aligned(uint64_t bytes)
{
	return (bytes + RING_ALIGN - 1) / RING_ALIGN * RING_ALIGN;
}

struct ring_slot {
	uint64_t offset;
	bool free;
};

struct ring {
	uint64_t bytes;
	struct ring_slot *slots; /* slot `id` lives at slots[id % capacity] */
	size_t capacity;
	uint64_t first, next;    /* ids of the oldest and of the next slot; ids start at 1 */
	uint64_t head;           /* offset behind the newest slot */
};

int ring_open(struct ring *ring, uint64_t bytes, size_t slots, struct error *error);
void ring_close(struct ring *ring);
/* True and the slot's id; false when there is no room until older slots are given back. More
 * than ring.bytes never fits. */
bool ring_take(struct ring *ring, uint64_t bytes, uint64_t *id);
bool ring_fits(const struct ring *ring, uint64_t bytes); /* would be taken */
/* Id of the oldest slot in use, 0 when the ring is empty. */
uint64_t ring_oldest(const struct ring *ring);
bool ring_alive(const struct ring *ring, uint64_t id); /* taken and not given back */
uint64_t ring_offset(const struct ring *ring, uint64_t id);
void ring_give_back(struct ring *ring, uint64_t id); /* asserts that it is alive */
void ring_reset(struct ring *ring);                  /* gives back everything */

#endif

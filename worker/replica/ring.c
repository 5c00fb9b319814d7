/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/replica/ring.h"

#include "base/memory.h"

#include <assert.h>
#include <string.h>

int ring_open(struct ring *ring, uint64_t bytes, size_t slots, struct error *error)
{
	memset(ring, 0, sizeof(*ring));
	ring->slots = memory_zalloc(slots, sizeof(*ring->slots));
	if (!ring->slots)
		return memory_error(error, "making a replica ring", slots * sizeof(*ring->slots));
	ring->capacity = slots;
	ring->bytes = bytes / RING_ALIGN * RING_ALIGN;
	ring->first = ring->next = 1;
	return 0;
}

void ring_close(struct ring *ring)
{
	memory_free(ring->slots);
	memset(ring, 0, sizeof(*ring));
}

static struct ring_slot *slot_of(const struct ring *ring, uint64_t id)
{
	return &ring->slots[id % ring->capacity];
}

/* Offset for `bytes` more, or UINT64_MAX. */
static uint64_t find_room(const struct ring *ring, uint64_t bytes)
{
	uint64_t tail;

	if (ring->first == ring->next)
		return bytes <= ring->bytes ? 0 : UINT64_MAX;
	tail = slot_of(ring, ring->first)->offset;
	if (ring->head > tail) {
		if (ring->bytes - ring->head >= bytes)
			return ring->head;
		return bytes <= tail ? 0 : UINT64_MAX;
	}
	/* wrapped: the free bytes lie between head and tail; equal means none */
	return tail - ring->head >= bytes ? ring->head : UINT64_MAX;
}

/* Of a slot. */
static uint64_t slot_bytes(uint64_t bytes)
{
	return bytes ? ring_aligned(bytes) : RING_ALIGN;
}

bool ring_fits(const struct ring *ring, uint64_t bytes)
{
	return bytes <= ring->bytes && ring->next - ring->first < ring->capacity &&
	       find_room(ring, slot_bytes(bytes)) != UINT64_MAX;
}

bool ring_take(struct ring *ring, uint64_t bytes, uint64_t *id)
{
	struct ring_slot *slot;
	uint64_t offset;

	if (!ring_fits(ring, bytes))
		return false;
	bytes = slot_bytes(bytes);
	offset = find_room(ring, bytes);
	slot = slot_of(ring, ring->next);
	*slot = (struct ring_slot){.offset = offset};
	ring->head = offset + bytes;
	*id = ring->next++;
	return true;
}

uint64_t ring_oldest(const struct ring *ring)
{
	return ring->first == ring->next ? 0 : ring->first;
}

bool ring_alive(const struct ring *ring, uint64_t id)
{
	return id >= ring->first && id < ring->next && !slot_of(ring, id)->free;
}

uint64_t ring_offset(const struct ring *ring, uint64_t id)
{
	assert(ring_alive(ring, id));
	return slot_of(ring, id)->offset;
}

void ring_give_back(struct ring *ring, uint64_t id)
{
	assert(ring_alive(ring, id));
	slot_of(ring, id)->free = true;
	while (ring->first < ring->next && slot_of(ring, ring->first)->free)
		ring->first++;
}

void ring_reset(struct ring *ring)
{
	ring->first = ring->next; /* ids go on: an old id never names a new slot */
	ring->head = 0;
}

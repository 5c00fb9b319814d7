/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/replica/replica.h"

#include "base/memory.h"

#include <string.h>

#define REPLICA_SLOTS 4096

int replica_open(struct replica *replica, void *memory, uint64_t bytes, size_t blocks,
		 struct error *error)
{
	int rc;

	memset(replica, 0, sizeof(*replica));
	rc = ring_open(&replica->ring, bytes, REPLICA_SLOTS, error);
	if (rc)
		return rc;
	replica->memory = memory;
	replica->blocks = blocks;
	replica->slot_of_block =
		pool_array(&replica->pool, blocks, sizeof(*replica->slot_of_block));
	replica->slots = pool_array(&replica->pool, REPLICA_SLOTS, sizeof(*replica->slots));
	if (!pool_ok(&replica->pool)) {
		replica_close(replica);
		return memory_error(error, "making the CPU replica",
				    blocks * sizeof(*replica->slot_of_block));
	}
	return 0;
}

void replica_close(struct replica *replica)
{
	ring_close(&replica->ring);
	pool_free(&replica->pool);
	uses_free(&replica->uses);
	memset(replica, 0, sizeof(*replica));
}

static struct replica_slot *slot_at(const struct replica *replica, uint64_t id)
{
	return &replica->slots[id % replica->ring.capacity];
}

void *replica_find(struct replica *replica, uint32_t block)
{
	uint64_t slot = replica->slot_of_block[block];

	if (!slot || !ring_alive(&replica->ring, slot))
		return NULL;
	return replica->memory + ring_offset(&replica->ring, slot);
}

void *replica_take(struct replica *replica, uint32_t block, uint64_t bytes)
{
	uint64_t slot;

	if (!ring_take(&replica->ring, bytes, &slot))
		return NULL;
	replica->slot_of_block[block] = slot;
	*slot_at(replica, slot) = (struct replica_slot){.holders = 1};
	return replica->memory + ring_offset(&replica->ring, slot);
}

void *replica_take_spare(struct replica *replica, uint32_t block, uint64_t bytes,
			 const _Atomic uint64_t *done)
{
	void *memory;

	while (!(memory = replica_take(replica, block, bytes))) {
		uint64_t oldest = ring_oldest(&replica->ring), write;
		uint32_t peer;

		if (!oldest || !slot_at(replica, oldest)->written ||
		    replica_make_room(replica, done, &peer, &write) != REPLICA_FREED)
			return NULL;
	}
	return memory;
}

struct replica_slot *replica_slot(struct replica *replica, uint32_t block)
{
	return slot_at(replica, replica->slot_of_block[block]);
}

int replica_used(struct replica *replica, uint32_t block, uint32_t peer, uint64_t write,
		 struct error *error)
{
	struct replica_slot *slot = replica_slot(replica, block);

	slot->written = true;
	return uses_add(&replica->uses, &slot->first_use, peer, write, error);
}

enum replica_room replica_make_room(struct replica *replica, const _Atomic uint64_t *done,
				    uint32_t *peer, uint64_t *write)
{
	uint64_t oldest = ring_oldest(&replica->ring);
	struct replica_slot *slot = slot_at(replica, oldest);

	if (!oldest)
		return REPLICA_FREED;
	if (slot->holders)
		return REPLICA_HELD;
	if (uses_wait(&replica->uses, &slot->first_use, done, peer, write))
		return REPLICA_WRITTEN;
	ring_give_back(&replica->ring, oldest);
	return REPLICA_FREED;
}

void replica_reset(struct replica *replica)
{
	ring_reset(&replica->ring);
	memset(replica->slot_of_block, 0, replica->blocks * sizeof(*replica->slot_of_block));
	uses_clear(&replica->uses);
}

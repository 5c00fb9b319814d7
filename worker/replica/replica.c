/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/replica/replica.h"

#include "common/memory.h"

#include <assert.h>
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
	replica->slot_of_block = memory_zalloc(blocks, sizeof(*replica->slot_of_block));
	replica->first_use = memory_zalloc(REPLICA_SLOTS, sizeof(*replica->first_use));
	if (!replica->slot_of_block || !replica->first_use) {
		replica_close(replica);
		return memory_error(error, "making the CPU replica",
				    blocks * sizeof(*replica->slot_of_block));
	}
	return 0;
}

void replica_close(struct replica *replica)
{
	ring_close(&replica->ring);
	memory_free(replica->slot_of_block);
	memory_free(replica->first_use);
	memory_free(replica->uses);
	memset(replica, 0, sizeof(*replica));
}

static uint32_t *uses_of(const struct replica *replica, uint64_t slot)
{
	return &replica->first_use[slot % replica->ring.capacity];
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
	*uses_of(replica, slot) = 0;
	return replica->memory + ring_offset(&replica->ring, slot);
}

static struct replica_use *new_use(struct replica *replica)
{
	if (replica->free_use) {
		struct replica_use *use = &replica->uses[replica->free_use - 1];

		replica->free_use = use->next;
		return use;
	}
	if (replica->use_count == replica->use_capacity) {
		size_t wanted = replica->use_capacity ? 2 * replica->use_capacity : 64;
		struct replica_use *grown = memory_resize(replica->uses, wanted, sizeof(*grown));

		if (!grown)
			return NULL;
		replica->uses = grown;
		replica->use_capacity = wanted;
	}
	return &replica->uses[replica->use_count++];
}

int replica_used(struct replica *replica, uint32_t block, uint32_t peer, uint64_t write,
		 struct error *error)
{
	uint32_t *first = uses_of(replica, replica->slot_of_block[block]);
	struct replica_use *use = new_use(replica);

	if (!use)
		return memory_error(error, "noting a write from the CPU replica", sizeof(*use));
	*use = (struct replica_use){.peer = peer, .write = write, .next = *first};
	*first = (uint32_t)(use - replica->uses) + 1;
	return 0;
}

bool replica_oldest_use(const struct replica *replica, uint32_t *cursor, uint32_t *peer,
			uint64_t *write)
{
	uint64_t oldest = ring_oldest(&replica->ring);
	const struct replica_use *use;
	uint32_t index;

	if (!oldest)
		return false;
	index = *cursor ? replica->uses[*cursor - 1].next : *uses_of(replica, oldest);
	if (!index)
		return false;
	use = &replica->uses[index - 1];
	*cursor = index;
	*peer = use->peer;
	*write = use->write;
	return true;
}

void replica_retire_oldest(struct replica *replica)
{
	uint64_t oldest = ring_oldest(&replica->ring);
	uint32_t *first = uses_of(replica, oldest);

	assert(oldest);
	while (*first) {
		struct replica_use *use = &replica->uses[*first - 1];
		uint32_t index = *first;

		*first = use->next;
		use->next = replica->free_use;
		replica->free_use = index;
	}
	ring_give_back(&replica->ring, oldest);
}

void replica_reset(struct replica *replica)
{
	ring_reset(&replica->ring);
	memset(replica->slot_of_block, 0, replica->blocks * sizeof(*replica->slot_of_block));
	replica->use_count = 0;
	replica->free_use = 0;
}

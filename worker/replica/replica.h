/* SPDX-License-Identifier: Apache-2.0
 *
 * replica.h -- the CPU replica of a trainer: packed blocks in a registered ring, kept as long as
 * the ring has room, so that a block wanted by several targets is packed once.
 *
 *   block (a part of a source box) ─ packed into ─► slot ─ written to ─► peer a, write 17
 *                                                                   └──► peer b, write 9
 *
 * A slot is reused when every write from it completed; who waits for that, and how, is the
 * caller's affair (the update engine asks transport_progress).
 */
#ifndef WORKER_REPLICA_REPLICA_H
#define WORKER_REPLICA_REPLICA_H

#include "worker/replica/ring.h"

struct replica_use {
	uint32_t peer, next; /* next: index + 1 into uses, 0 ends the list */
	uint64_t write;      /* number of the write on that peer's endpoint */
};

struct replica {
	struct ring ring;
	unsigned char *memory;    /* ring.bytes, borrowed */
	uint64_t *slot_of_block;  /* 0: never packed */
	size_t blocks;
	uint32_t *first_use;      /* by slot id % ring.capacity */
	struct replica_use *uses; /* pool */
	size_t use_count, use_capacity;
	uint32_t free_use;        /* index + 1 */
};

int replica_open(struct replica *replica, void *memory, uint64_t bytes, size_t blocks,
		 struct error *error);
void replica_close(struct replica *replica);
/* The block's packed bytes, or NULL when they are not in the ring (any more). */
void *replica_find(struct replica *replica, uint32_t block);
/* Room for the block, or NULL until the oldest slot is retired. */
void *replica_take(struct replica *replica, uint32_t block, uint64_t bytes);
/* Write number `write` on peer's endpoint reads the block. */
int replica_used(struct replica *replica, uint32_t block, uint32_t peer, uint64_t write,
		 struct error *error);
/* The oldest slot's uses, one a call: *cursor 0 starts; false at the end. */
bool replica_oldest_use(const struct replica *replica, uint32_t *cursor, uint32_t *peer,
			uint64_t *write);
void replica_retire_oldest(struct replica *replica);
/* Forgets all blocks: their tensors changed. No write may be under way. */
void replica_reset(struct replica *replica);

#endif

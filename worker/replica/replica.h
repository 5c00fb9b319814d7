/* SPDX-License-Identifier: Apache-2.0
 *
 * replica.h -- the CPU replica of a trainer in its bounded form: packed blocks in a registered
 * ring, kept as long as the ring has room, so that a block wanted by several targets is packed
 * once (full.h is the form that keeps everything).
 *
 *   block (a part of a source) ─ packed into ─► slot ─ written to ─► peer a, write 17
 *                                                               └──► peer b, write 9
 *
 * A slot is reused when it is packed, nobody holds it, and every write from it completed; who waits
 * for that, and how, is the caller's affair, and so is the lock around all of this.
 */
#ifndef WORKER_REPLICA_REPLICA_H
#define WORKER_REPLICA_REPLICA_H

#include "base/pool.h"
#include "worker/replica/ring.h"
#include "worker/replica/uses.h"

struct replica_slot {
	uint32_t first_use;
	uint32_t holders; /* threads that pack it or post a write from it */
	bool packed, written; /* written: from it, at least once */
};

struct replica {
	struct ring ring;
	struct pool pool;         /* of the arrays below */
	unsigned char *memory;    /* ring.bytes, borrowed */
	uint64_t *slot_of_block;  /* 0: never packed */
	size_t blocks;
	struct replica_slot *slots; /* by slot id % ring.capacity */
	struct uses uses;
};

enum replica_room {
	REPLICA_FREED,   /* the oldest slot, or there was none */
	REPLICA_HELD,    /* by a thread that is packing or posting it */
	REPLICA_WRITTEN  /* *write to *peer is not complete */
};

int replica_open(struct replica *replica, void *memory, uint64_t bytes, size_t blocks,
		 struct error *error);
void replica_close(struct replica *replica);
/* The block's bytes, or NULL when they are not in the ring (any more). */
void *replica_find(struct replica *replica, uint32_t block);
/* Room for the block, held once and not packed yet; NULL until the oldest slot is freed. */
void *replica_take(struct replica *replica, uint32_t block, uint64_t bytes);
/* The same for a block that nobody waits for yet: frees what can be freed for it at once, but nothing
 * that was packed and not written from. */
void *replica_take_spare(struct replica *replica, uint32_t block, uint64_t bytes,
			 const _Atomic uint64_t *done);
/* Of a block that is found. */
struct replica_slot *replica_slot(struct replica *replica, uint32_t block);
/* Write number `write` on peer's endpoint reads the block, which the caller holds. */
int replica_used(struct replica *replica, uint32_t block, uint32_t peer, uint64_t write,
		 struct error *error);
/* Frees the oldest slot, if that is possible. `done`: writes completed, by peer. */
enum replica_room replica_make_room(struct replica *replica, const _Atomic uint64_t *done,
				    uint32_t *peer, uint64_t *write);
/* Forgets all blocks: their tensors changed. No write may be under way. */
void replica_reset(struct replica *replica);

#endif

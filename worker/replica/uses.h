/* SPDX-License-Identifier: Apache-2.0
 *
 * uses.h -- which writes still read a place of the CPU replica: lists in one pool.
 *
 *   place ─ first ─► (peer a, write 17) ─► (peer b, write 9)       complete ones are dropped when
 *                                                                  somebody asks
 */
#ifndef WORKER_REPLICA_USES_H
#define WORKER_REPLICA_USES_H

#include "base/error.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct use {
	uint32_t peer, next; /* next: index + 1 into items, 0 ends the list */
	uint64_t write;      /* number of the write on that peer's endpoint */
};

struct uses {
	struct use *items;
	size_t count, capacity;
	uint32_t unused; /* index + 1 */
};

/* Adds to the list *first (0: empty). */
int uses_add(struct uses *uses, uint32_t *first, uint32_t peer, uint64_t write,
	     struct error *error);
/* Drops what is complete: writes up to done[peer]. True and one that is not. */
bool uses_wait(struct uses *uses, uint32_t *first, const _Atomic uint64_t *done, uint32_t *peer,
	       uint64_t *write);
void uses_clear(struct uses *uses); /* all lists of the pool; the caller sets their firsts to 0 */
void uses_free(struct uses *uses);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * turn.h -- who may write the target's own memory now. Nothing can stop a process that is between its
 * check and its write, so it says beforehand, in the target's slot, that it is there:
 *
 *   writer                                      target
 *   say      writing = bytes, at = where        refuse    stop = 1
 *   may?     stop is 0                          busy?     writing is not 0
 *   ... the write ...
 *   end      writing = 0
 *
 * Each stores its own word before it loads the other's, all four in one order (seq_cst): so either the
 * writer sees the stop and does not write, or the target sees the writer and waits. Once stop is 1 and
 * writing was 0, nothing of this writer lands, however long it was stopped in between.
 */
#ifndef TRANSPORT_SHM_TURN_H
#define TRANSPORT_SHM_TURN_H

#include "transport/shm/shm.h"

static inline void shm_turn_say(struct shm_slot *slot, uint64_t address, uint64_t bytes)
{
	atomic_store_explicit(&slot->writing_at, address, memory_order_relaxed);
	atomic_store(&slot->writing, bytes);
}

static inline bool shm_turn_may(const struct shm_slot *slot)
{
	return !atomic_load(&slot->stop);
}

/* Release: what was written is there for who sees this. */
static inline void shm_turn_end(struct shm_slot *slot)
{
	atomic_store_explicit(&slot->writing, 0, memory_order_release);
}

static inline bool shm_turn_busy(const struct shm_slot *slot)
{
	return atomic_load(&slot->writing) != 0;
}

#endif

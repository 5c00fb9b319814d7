/* SPDX-License-Identifier: Apache-2.0
 *
 * mailbox.h -- where signals land: a slot per peer, a doorbell per domain.
 *
 *   slot     latest ──► sequence of the newest complete signal (0: none)
 *            bank[0]    even sequences        bank[1]   odd ones
 *            { sequence, tag|length, payload[96] }
 *
 * The writer fills the bank that `latest` does not point to, so a writer that dies in the
 * middle leaves the signal before it whole. The reader checks the bank's sequence before and
 * after its loads; only a writer two signals ahead can have changed it, and then `latest`
 * has moved too, so a torn read is retried and the retry ends.
 *
 * All words are atomics in memory that two processes share. Stores release and loads acquire,
 * so whoever sees a signal sees every plain store its writer made before.
 */
#ifndef TRANSPORT_MAILBOX_H
#define TRANSPORT_MAILBOX_H

#include "transport/transport.h"
#include <stdatomic.h>

struct mailbox_bank {
	_Atomic uint64_t sequence;
	_Atomic uint64_t head; /* tag, length << 32 */
	_Atomic uint64_t payload[TRANSPORT_PAYLOAD_BYTES / 8];
};

struct mailbox_slot {
	_Atomic uint64_t latest;
	struct mailbox_bank bank[2];
};

void mailbox_clear(struct mailbox_slot *slot);
void mailbox_store(struct mailbox_slot *slot, const struct transport_signal *signal);
int mailbox_load(struct mailbox_slot *slot, struct transport_signal *signal);

struct doorbell {
	_Atomic uint64_t count;   /* signals that landed in the domain */
	_Atomic uint32_t bell;    /* futex: changes with every ring and every wake */
	_Atomic uint32_t waiters; /* a ring makes a system call only for these */
};

void doorbell_ring(struct doorbell *doorbell);
void doorbell_wake(struct doorbell *doorbell);
/* The count, once it differs from seen, at the deadline, or when *interrupt was set (it is
 * cleared then). Works between processes that share the page. */
uint64_t doorbell_wait(struct doorbell *doorbell, uint64_t seen, uint64_t deadline_ns,
		       _Atomic uint32_t *interrupt);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * traced.h -- what of an update goes into the trace of the process (trace/trace.h), where one is wanted. Each call here is one look at
 * a pointer where none is.
 *
 * Times are those at which a thread was in a call. Where a post is the copy itself (shm), that is when the bytes moved; of a NIC or a
 * socket it is when they were handed over, and "flush" is the wait until they were there.
 */
#ifndef WORKER_UPDATE_TRACED_H
#define WORKER_UPDATE_TRACED_H

#include "base/clock.h"
#include "trace/trace.h"
#include "worker/epoch/epoch.h"

struct sender;
struct waiter;
struct step;
struct doing;
struct donor;
struct donation;

/* 0: nothing is traced. */
static inline uint64_t traced_now(const struct epoch *epoch)
{
	return epoch->options.trace ? clock_ns() : 0;
}

/* ---- a trainer's; begin_ns as traced_now gave it: 0, and nothing is done ---- */

void traced_pack(const struct sender *sender, const struct step *step, uint64_t begin_ns);
/* With the peer's wire: of a POST; */
void traced_post(const struct sender *sender, const struct step *step, const struct doing *doing, uint64_t begin_ns);
/* a flush, or a signal. */
void traced_wire(const struct sender *sender, const struct step *step, uint64_t begin_ns);
/* A part of the update that is open, from begin_ns to now: "accept", "write", "end", and "update", which is all of it. With the lock, or
 * between two updates. */
void traced_sending(const struct sender *sender, const char *name, uint64_t begin_ns, uint64_t bytes);
/* The last two. */
void traced_ended(const struct sender *sender, uint64_t end_begin_ns);

/* ---- an inference rank's ---- */

/* "post_load", from begin_ns to now. */
void traced_receiving(const struct waiter *waiter, const char *name, uint64_t version, uint64_t begin_ns);
/* Peer `p`, an instant: "accept" was said, "end" was heard. */
void traced_word(const struct waiter *waiter, uint32_t p, const char *name, uint64_t version, uint64_t bytes);
/* The version is shown: all of the update that led there. */
void traced_published(const struct waiter *waiter, uint64_t version);
/* .. or it was given up, for that reason. */
void traced_given_up(const struct waiter *waiter, const char *why);
/* What it sent a rank of another engine of what it shows ("copy"), or was given up, for that reason. */
void traced_copied(const struct donor *donor, const struct donation *donation, const char *why);

#endif

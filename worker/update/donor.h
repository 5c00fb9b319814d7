/* SPDX-License-Identifier: Apache-2.0
 *
 * donor.h -- an inference rank that sends what it shows to ranks of other engines, which came in, or had given that version up,
 * while trainers have nothing new (controller/copies.c). To them it is as a trainer is, for this one version:
 *
 *   newcomer                                        donor
 *   update_wait: opens its memory                   update_wait, before it opens its own for another version
 *       ACCEPT opening 1, versions 7..  ──────────► shows 7
 *                                                   writes parameter after parameter, as they lie there
 *       counts, verifies, publishes 7  ◄─────────── END opening 1, version 7, all bytes, a checksum each
 *       and from then on waits for trainers         opens its memory for 8
 *
 * Nothing of a newcomer ends a donor, and nothing of a donor a newcomer: what is not there in three quarters of the update timeout, or
 * cannot be sent, is given up with a word (ABORT), and the newcomer waits for trainers' next version. Trainers wait for that time
 * longer than else until all have accepted it (executor_is_patient), and leave out who does not.
 */
#ifndef WORKER_UPDATE_DONOR_H
#define WORKER_UPDATE_DONOR_H

#include "base/pool.h"
#include "worker/control/watch.h"
#include "worker/epoch/epoch.h"
#include "worker/update/update.h"
#include "worker/update/versions.h"

/* One that is sent it. */
struct donation {
	struct peer *peer;
	uint64_t seen;               /* sequence of its signal read last */
	struct update_accept accept; /* opening 0: it has not said where to */
	size_t param;                /* that is next, */
	uint64_t at, bytes;          /* from this byte; of all */
	uint64_t began_ns;
	bool over;
};

/* Zeroed: of a rank that sends nothing. */
struct donor {
	struct pool pool;
	struct epoch *epoch;             /* held; NULL: this rank sends nothing by it */
	struct health *health;
	struct versions *versions;
	struct watch *watch;
	uint64_t version;
	struct donation *donations;
	size_t count;                    /* 0: all is sent */
	struct transport_region *sums;   /* of what is shown, by parameter: epoch's beside.copied; NULL: nobody has asked */
	size_t summed;                   /* so many of them */
	uint64_t signals;                /* of the domain, seen */
	uint64_t until_ns;               /* 0: not run yet */
};

/* Takes hold of a connected epoch, if this rank is to send something by it. Whatever it returns, donor_close. */
int donor_open(struct donor *donor, struct epoch *epoch, struct health *health, struct versions *versions,
	       struct watch *watch, struct error *error);
/* Sends what is left. Without block: a part, and WEFT_AGAIN. An error is the job's, or ERROR_INTERRUPTED, or ERROR_TIMEOUT: of this
 * call, timeout_ms 0: the plan's. */
int donor_run(struct donor *donor, uint32_t timeout_ms, bool block, struct error *error);
/* Nothing more is sent: newcomers hear at the next look at their endpoint that it has gone. */
void donor_let_go(struct donor *donor);
void donor_close(struct donor *donor);

#endif

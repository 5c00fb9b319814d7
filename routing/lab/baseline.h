/* SPDX-License-Identifier: Apache-2.0
 *
 * baseline.h -- what many systems do instead of routing: a bucketed broadcast from the first
 * rank of each stage. The stage gathers a bucket of whole tensors on its first rank, which
 * broadcasts it to every inference rank (a ring: each passes on what it received, so the full
 * bytes go through every NIC of the ring), then the next bucket; stages take turns.
 *
 *   gather 0 │ broadcast 0 │ gather 1 │ broadcast 1 │ ...     + a fixed cost a bucket
 */
#ifndef ROUTING_LAB_BASELINE_H
#define ROUTING_LAB_BASELINE_H

#include "routing/lab/simulate.h"

#define BASELINE_BUCKET_BYTES  (UINT64_C(512) << 20) /* miles' default at HEAD */
#define BASELINE_FIXED_SECONDS 0.010                 /* docs/simulator.md: fitted, and to what */

struct baseline {
	double seconds, gather_seconds, wire_seconds, fixed_seconds; /* the sum, its parts */
	uint64_t buckets;
	uint64_t receiver_bytes; /* through each inference rank: the whole model */
	uint32_t heads;          /* stages: first trainers of distinct holdings */
	double slowest_bytes_per_second; /* of the ring */
};

/* Tensors that no inference rank wants are not sent. */
int baseline_broadcast(struct baseline *baseline, const struct table *table,
		       const struct simulate_options *options, struct error *error);

#endif

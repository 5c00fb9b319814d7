/* SPDX-License-Identifier: Apache-2.0
 *
 * bound.h -- the least possible makespan when every byte may go to any trainer of its set, under
 * limits that form a forest: a trainer's NICs, then its host's uplink.
 *
 *   set {0,1,2}  120 B ──► trainer 0 ──► NIC a  50 B/s ─┐
 *   set {2,3}     80 B ──► trainer 1 ──► NIC b  50 B/s ─┴─► uplink 80 B/s
 *                     ├──► trainer 2 ──► NIC c  50 B/s
 *                     └──► trainer 3 ──► NIC d  25 B/s
 */
#ifndef ROUTING_PLAN_BOUND_H
#define ROUTING_PLAN_BOUND_H

#include "routing/plan/unit.h"

#define BOUND_NO_LIMIT UINT32_MAX

/* In a time of s seconds at most free_bytes + rate * s pass. */
struct bound_limit {
	uint64_t rate;       /* bytes a second; never 0. All together below 2^62 */
	uint64_t free_bytes; /* what need not pass here at all */
	uint32_t parent;     /* passed next; a larger index, or BOUND_NO_LIMIT */
};

struct bound_input {
	const struct holder_set *sets;
	const uint64_t *bytes;     /* by set; together at most 2^62 (units_weigh checks) */
	size_t set_count;
	uint32_t trainer_count;
	const struct bound_limit *limits; /* NULL: each trainer its own, of 1 byte a second */
	const uint32_t *limit_of;  /* by trainer: the first that it passes */
	uint32_t limit_count;
};

/* Bytes of a set that a trainer sends in a plan that reaches the bound. */
struct bound_share {
	uint32_t trainer;
	uint64_t bytes;
};

/* The bound is bytes / rate seconds, exactly: what only the `tight` trainers can send, through
 * the `binding` limits, which are all they have. */
struct bound {
	struct pool pool;  /* owns tight and binding */
	uint64_t bytes, rate;
	bool *tight;     /* by trainer */
	bool *binding;   /* by limit; by trainer when there are none */
	struct bound_share *shares; /* of set s: share_first[s] .. share_first[s + 1] */
	size_t *share_first;
};

int bound_solve(struct bound *bound, const struct bound_input *input, struct error *error);
void bound_fini(struct bound *bound);

/* Without limits: max over all sets T of trainers of (bytes whose holders are all in T) / |T|,
 * exactly, rounded up to a byte. */
int bound_of(uint64_t *bound, const struct holder_set *sets, const uint64_t *bytes, size_t count,
	     uint32_t trainer_count, struct error *error);

#endif

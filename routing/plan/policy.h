/* SPDX-License-Identifier: Apache-2.0
 *
 * policy.h -- the policies behind the rows of policy.c; each file words its own rule.
 */
#ifndef ROUTING_PLAN_POLICY_H
#define ROUTING_PLAN_POLICY_H

#include "routing/plan/table.h"

policy_assign greedy_assign, round_robin_assign, round_robin_affinity_assign, prefix_assign,
	first_holder_assign, modulo_assign, hash_assign, lpt_assign, balanced_assign;

/* Inference ranks of one kind can use one replica: engine ranks, or layouts. */
struct round_robin_targets {
	uint32_t count;
	uint32_t *kind; /* by inference rank, below kinds */
	uint32_t kinds;
};
/* The plan that both round-robins are made of: sender[rank] in [0, senders) for every inference
 * rank. */
int round_robin_deal(const struct round_robin_targets *targets, uint32_t senders,
		     uint32_t *sender, struct error *error);

/* CRC-32 as zlib has it, of the name without its end: "123456789" is 0xcbf43926. */
uint32_t hash_crc32(const char *name);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * policy.h -- the policies behind the rows of policy.c; each file words its own rule.
 */
#ifndef ROUTING_PLAN_POLICY_H
#define ROUTING_PLAN_POLICY_H

#include "routing/plan/table.h"

int greedy_assign(const struct problem *problem, const struct plan_options *options,
		  struct units *units, uint32_t **trainer, struct error *error);
int round_robin_assign(const struct problem *problem, const struct plan_options *options,
		       struct units *units, uint32_t **trainer, struct error *error);
int round_robin_affinity_assign(const struct problem *problem, const struct plan_options *options,
				struct units *units, uint32_t **trainer, struct error *error);
int prefix_assign(const struct problem *problem, const struct plan_options *options,
		  struct units *units, uint32_t **trainer, struct error *error);
int first_holder_assign(const struct problem *problem, const struct plan_options *options,
			struct units *units, uint32_t **trainer, struct error *error);
int modulo_assign(const struct problem *problem, const struct plan_options *options,
		  struct units *units, uint32_t **trainer, struct error *error);
int hash_assign(const struct problem *problem, const struct plan_options *options,
		struct units *units, uint32_t **trainer, struct error *error);
int lpt_assign(const struct problem *problem, const struct plan_options *options,
	       struct units *units, uint32_t **trainer, struct error *error);
int balanced_assign(const struct problem *problem, const struct plan_options *options,
		    struct units *units, uint32_t **trainer, struct error *error);

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

/* SPDX-License-Identifier: Apache-2.0
 *
 * policy.h -- the policies behind the rows of policy.c; each file words its own rule.
 */
#ifndef ROUTING_POLICY_H
#define ROUTING_POLICY_H

#include "routing/table.h"

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

/* The plan that round-robin is made of: sender[rank] in [0, senders) for every inference rank
 * (engine-major, ranks_per_engine of them an engine; 0: one engine). */
int round_robin_plan(uint32_t senders, uint32_t ranks, uint32_t ranks_per_engine,
		     uint32_t *sender, struct error *error);

/* CRC-32 as zlib has it, of the name without its end: "123456789" is 0xcbf43926. */
uint32_t hash_crc32(const char *name);

#endif

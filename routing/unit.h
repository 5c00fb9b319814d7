/* SPDX-License-Identifier: Apache-2.0
 *
 * unit.h -- what a policy decides about: a pair (tensor, inference rank), or, where holders
 * have only shards of the tensor, one shard of the pair. Units come in decision order: tensors
 * in checkpoint order, inference ranks ascending, rows ascending.
 *
 * Holder sets are interned: `holders` indexes a list of distinct ascending trainer lists.
 */
#ifndef ROUTING_UNIT_H
#define ROUTING_UNIT_H

#include "routing/problem.h"

struct unit {
	uint32_t tensor, inference;
	uint32_t holders;     /* index of the holder set */
	uint64_t lo, hi;      /* rows of the tensor that this unit takes from a holder */
	uint64_t bytes;
};

struct holder_set {
	const uint32_t *trainers; /* ascending */
	uint32_t count;
};

struct units {
	struct unit *items;
	size_t count;
	struct holder_set *sets;
	size_t set_count;
	uint32_t *set_storage;
};

int units_build(struct units *units, const struct problem *problem, struct error *error);
void units_fini(struct units *units);

#endif

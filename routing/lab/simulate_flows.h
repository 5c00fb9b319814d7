/* SPDX-License-Identifier: Apache-2.0
 *
 * simulate_flows.h -- a table in its order as flows: who sends how much to whom after preparing
 * what. Everything that does not depend on time is decided here: parts, which box is still in
 * the ring, which earlier flows must be through before there is room for the next box.
 */
#ifndef ROUTING_LAB_SIMULATE_FLOWS_H
#define ROUTING_LAB_SIMULATE_FLOWS_H

#include "routing/lab/simulate.h"

struct sim_flow {
	uint32_t inference;
	uint32_t queue;      /* the trainer's inference ranks, numbered as it meets them */
	uint32_t room_after; /* preparing waits until that many of the trainer's flows, counted
				from its first, are through */
	double bytes;
	double writes;       /* requests that it goes out in; less than 1: with others */
	double gather_bytes, copy_bytes; /* to prepare for it: gather; device_to_host and pack */
};

struct sim_flows {
	struct sim_flow *items;  /* trainer t's: first[t] .. first[t + 1] */
	size_t *first;
	size_t count, capacity;
	size_t *queue_first;     /* by trainer: its queues among all; one more at the end */
	uint64_t flow_bytes_min;
};

/* Does any inference rank want any of it? */
bool sim_wanted(const struct problem *problem, size_t tensor);
/* What a gathered trainer takes in to have its stage's tensors: of each tensor that others hold
 * too and somebody wants, all but its own part (n - 1 of n). By trainer; memory_free. */
int sim_gathers(double **bytes, const struct problem *problem, struct error *error);

int sim_flows_build(struct sim_flows *flows, const struct table *table, uint64_t ring_bytes,
		    struct error *error);
void sim_flows_fini(struct sim_flows *flows);

#endif

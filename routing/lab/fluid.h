/* SPDX-License-Identifier: Apache-2.0
 *
 * fluid.h -- max-min fair rates of flows over shared resources, kept up as flows come and go.
 *
 *   sender 0  ══╦══ flow ══╦══ receiver 0       each flow loads some resources, each with a
 *   sender 1  ══╩══ flow ══╩══ receiver 1       share of its rate (1, or a NIC's part of it)
 *
 * Rates are max-min fair when every flow has a resource that is full and on which no other flow
 * is faster. Each resource has a level: the rate that its flows get if nothing else holds them
 * back; a flow's rate is the least level on its path. A level depends only on the levels its
 * flows meet elsewhere, so a change is followed from resource to resource and stops where it
 * changes nothing. It ends at the one max-min solution: the lowest level of all depends on no
 * other, so it is right once and for ever; without its flows the next lowest is the lowest.
 */
#ifndef ROUTING_LAB_FLUID_H
#define ROUTING_LAB_FLUID_H

#include "base/error.h"
#include "routing/lab/simulate_queue.h"
#include <stdint.h>

struct fluid_load {
	uint32_t resource;
	double share; /* of the flow's rate that goes through the resource */
};

struct fluid_path {        /* of one slot, while a flow is in it */
	struct fluid_load load;
	uint32_t next, previous; /* other flows on the resource: path index + 1; 0: none */
};

struct fluid_resource {
	double bytes_per_second;
	double level;          /* INFINITY: it holds nobody back */
	uint32_t first, flows; /* list of its flows */
	bool queued;
	double full_since, full_seconds; /* while level is finite */
};

struct fluid_slot {
	uint32_t length;       /* of its path; 0: no flow */
	double left_bytes, rate, settled_seconds;
	bool touched;
};

/* Told of bytes that moved in a slot at one rate, from a time to a time. */
typedef void fluid_moved(void *context, uint32_t slot, double from, double to, double bytes);

struct fluid {
	struct fluid_resource *resources;
	uint32_t resource_count;
	struct fluid_slot *slots;
	uint32_t slot_count, path_max;
	struct fluid_path *paths;   /* path_max a slot */
	uint32_t *pending;          /* resources to look at: a ring of resource_count */
	uint32_t pending_first, pending_count;
	uint32_t *touched;          /* slots whose rate may have changed */
	uint32_t touched_count;
	struct event_queue *queue;  /* borrowed: gets the end of each flow, id = slot */
	fluid_moved *moved;         /* may be NULL */
	void *context;
	struct pool pool;           /* of these arrays */
	uint64_t updates;           /* levels computed: the work done */
};

/* Slots and paths; the caller then fills resources[].bytes_per_second (each > 0). */
int fluid_init(struct fluid *fluid, uint32_t resources, uint32_t slots, uint32_t path_max,
	       struct event_queue *queue, struct error *error);
void fluid_fini(struct fluid *fluid);

/* Both take effect at the next fluid_solve. A path has 1..path_max loads of distinct resources,
 * shares > 0. A flow of 0 bytes ends at once. */
void fluid_start(struct fluid *fluid, uint32_t slot, const struct fluid_load *path,
		 uint32_t length, double bytes, double now);
/* Ends a flow, done or not; returns the bytes that were left. */
double fluid_stop(struct fluid *fluid, uint32_t slot, double now);
/* New rates from `now` on, and the ends of flows into the queue. */
void fluid_solve(struct fluid *fluid, double now);

#endif

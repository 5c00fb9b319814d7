/* SPDX-License-Identifier: Apache-2.0
 *
 * simulate_queue.h -- what happens next: a heap of times, one a number (id), each of which may
 * be moved or taken out. Equal times come by number, so a run is the same everywhere.
 */
#ifndef ROUTING_LAB_SIMULATE_QUEUE_H
#define ROUTING_LAB_SIMULATE_QUEUE_H

#include "base/pool.h"
#include <stdbool.h>
#include <stdint.h>

struct event_queue {
	double *seconds;     /* by id */
	uint32_t *heap;      /* ids; the earliest first */
	uint32_t *place;     /* by id: index in heap + 1; 0: not in it */
	uint32_t count;
	struct pool pool;    /* of the three */
};

int event_queue_init(struct event_queue *queue, uint32_t ids, struct error *error);
void event_queue_fini(struct event_queue *queue);
/* Puts the id in, or moves it. */
void event_queue_put(struct event_queue *queue, uint32_t id, double seconds);
void event_queue_drop(struct event_queue *queue, uint32_t id); /* fine when it is not there */
/* The earliest; false when empty. It stays in. */
bool event_queue_first(const struct event_queue *queue, uint32_t *id, double *seconds);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * watch.h -- what makes a worker's descriptor readable: a thread that sleeps where signals of peers
 * arrive, and whoever else has news. It is there only where a host has asked for the descriptor.
 *
 *   peer's signal ─► transport ─► watch thread ─┐
 *   half a second of a try, its end, failed job ┤
 *   published, interrupted ─────────────────────┴─► eventfd ─► the host's poll(2)
 */
#ifndef WORKER_CONTROL_WATCH_H
#define WORKER_CONTROL_WATCH_H

#include "base/error.h"
#include "transport/transport.h"
#include "worker/control/control.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct watch {
	_Atomic int descriptor;        /* -1: nobody asked */
	_Atomic uint64_t deadline_ns;  /* of the try in progress; 0: none */
	_Atomic bool stop;
	uint64_t seen;                 /* signals of the domain that the descriptor has told of */
	bool running;
	pthread_t thread;
	const char *log_name;          /* the worker's */
	struct transport_domain *domain;
	const struct control *control;
};

void watch_init(struct watch *watch);
/* The descriptor, readable at once; a second call gives the same. */
int watch_open(struct watch *watch, const char *log_name, struct transport_domain *domain,
	       const struct control *control, int *descriptor, struct error *error);
/* [any thread, signal handlers] There is news. */
void watch_tell(const struct watch *watch);
/* Before a look at what the news may be: what comes from here on makes it readable again. */
void watch_drain(const struct watch *watch);
/* When a try's time is over, 0: none is in progress. */
void watch_deadline(struct watch *watch, uint64_t deadline_ns);
/* Ends the thread; before the domain closes. */
void watch_close(struct watch *watch);

#endif

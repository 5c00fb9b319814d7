/* SPDX-License-Identifier: Apache-2.0
 *
 * lookup.h -- whether the name in the controller's address resolves. The connection is made by
 * zmq, which tries again and again and never says why; so it is asked here, beside it, on a
 * thread of its own, because asking may take many seconds.
 */
#ifndef WORKER_LAUNCH_LOOKUP_H
#define WORKER_LAUNCH_LOOKUP_H

#include "base/error.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define LOOKUP_HOST_BYTES 256

struct lookup {
	char host[LOOKUP_HOST_BYTES];
	int wake;		      /* an eventfd that is told of the answer; borrowed */
	pthread_t thread;
	bool running, done; /* done: nothing (more) to ask */
	_Atomic bool answered;
	int result, errnum; /* the thread's until answered */
	uint64_t next_ms;
};

/* A number needs no asking, and other addresses than tcp://host:port have no name. */
void lookup_init(struct lookup *lookup, const char *address, int wake);
/* Asks when it is time. True when an answer came: *error says why the name does not resolve, or
 * has code 0 when it does, and then nothing is asked any more. */
bool lookup_step(struct lookup *lookup, uint64_t now_ms, struct error *error);
/* The controller was heard. */
void lookup_stop(struct lookup *lookup);
/* Waits for a question that is under way. */
void lookup_fini(struct lookup *lookup);

#endif

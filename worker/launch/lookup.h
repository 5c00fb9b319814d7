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
#include <sys/socket.h>

#define LOOKUP_HOST_BYTES 256

struct lookup {
	char host[LOOKUP_HOST_BYTES], port[8];
	int wake;		      /* an eventfd that is told of the answer; borrowed */
	pthread_t thread;
	bool running, done; /* done: nothing (more) to ask */
	_Atomic bool answered;
	int result, errnum; /* the thread's until answered; so is the address */
	struct sockaddr_storage address;
	socklen_t address_bytes; /* 0: not known */
	uint64_t next_ms;
};

/* A number needs no asking, and other addresses than tcp://host:port have neither name nor address. */
void lookup_init(struct lookup *lookup, const char *address, int wake);
/* Asks when it is time. True when an answer came: *error says why the name does not resolve, or
 * has code 0 when it does, and then nothing is asked any more. */
bool lookup_step(struct lookup *lookup, uint64_t now_ms, struct error *error);
/* What libzmq connects to; NULL: not known, or not yet. */
const struct sockaddr *lookup_address(const struct lookup *lookup, socklen_t *bytes);
/* The controller was heard. */
void lookup_stop(struct lookup *lookup);
/* Waits for a question that is under way. */
void lookup_fini(struct lookup *lookup);

#endif

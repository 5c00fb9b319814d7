/* SPDX-License-Identifier: Apache-2.0
 *
 * dealer.h -- a worker's socket to the controller: its key, messages cut to frames, and why the controller
 * is not reached.
 *
 * Threads: one at a time; the control thread's once that runs.
 */
#ifndef WORKER_CONTROL_DEALER_H
#define WORKER_CONTROL_DEALER_H

#include "base/error.h"
#include "trust/key.h"
#include <stdbool.h>
#include <stddef.h>

struct dealer_options {
	const char *address;  /* "tcp://host:29600" */
	const char *key_file; /* "": none; outlives the dealer */
	bool key_waits;       /* it may come, or be replaced, until the controller was heard */
	enum key_role role;   /* whose key it must be good for */
	int wake;             /* an eventfd, rung when there may be news; borrowed */
};

struct dealer;
/* ERROR_CONFIG: no socket can have the address, or the key file is not good; ERROR_LIMIT: too few file
 * descriptors are left. */
int dealer_open(struct dealer **dealer, const struct dealer_options *options, struct error *error);
/* What was sent last gets a second to leave, if the controller was ever heard. */
void dealer_close(struct dealer **dealer);

const char *dealer_address(const struct dealer *dealer);
/* From here on something comes within so many milliseconds, or the connection is made anew. */
void dealer_expect(struct dealer *dealer, uint32_t silent_ms);
/* Until a message may be there, `fd` is readable, or `ms` have passed. */
void dealer_wait(struct dealer *dealer, int fd, long ms);
/* The next message, valid until the next call, or what is wrong with it (error->code); false: none. */
bool dealer_receive(struct dealer *dealer, const unsigned char **bytes, size_t *length,
		    struct error *error);
/* Takes `bytes` (memory_free). False: dropped, too much is on its way already. */
bool dealer_send(struct dealer *dealer, unsigned char *bytes, size_t length);
/* libzmq has a connection that stands, or cannot tell. */
bool dealer_is_connected(const struct dealer *dealer);
/* True when there is news: *why says what stands between the controller and us, or has code 0 when
 * nothing does. Never once the controller was heard. To be asked before each wait. */
bool dealer_news(struct dealer *dealer, struct error *why);

#endif

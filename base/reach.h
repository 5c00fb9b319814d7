/* SPDX-License-Identifier: Apache-2.0
 *
 * reach.h -- whether anybody listens where the controller, or a tool's other side, is said to be. libzmq
 * tries again and again and says of no try why it failed, so a plain connection is tried beside it, of
 * which the kernel does:
 *
 *   refused               nobody listens there: it is not running, or the port is another
 *   no route, no network  it cannot be reached from here, or a firewall rejects it
 *   no answer in time     neither: a host that is down, a firewall that drops
 *   made, greeted         somebody who speaks ZMTP listens: closed at once, libzmq's own is on its way
 *   made, no greeting     another program, or a controller that is stopped
 *
 * Threads: the one that owns the socket.
 */
#ifndef BASE_REACH_H
#define BASE_REACH_H

#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

struct reach {
	int fd; /* of the try under way; -1: none */
	uint64_t began_ms, next_ms;
	bool made; /* that try: now its greeting is waited for */
	int said;  /* of the last try: errno, or what reach.c has beside; 0: none, or greeted */
};

void reach_init(struct reach *reach);
/* Goes on with the try, or begins one when it is time. True when there is news: *why says what stands in the
 * way, or has code 0 when nothing does any more. */
bool reach_step(struct reach *reach, const struct sockaddr *address, socklen_t bytes,
		uint64_t now_ms, struct error *why);
/* libzmq has a connection: nothing is tried any more. */
void reach_stop(struct reach *reach);

#endif

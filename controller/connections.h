/* SPDX-License-Identifier: Apache-2.0
 *
 * connections.h -- how many connections a bound socket has, and an end to them: without one a thousand
 * strangers take the last file descriptor, and libzmq asks for the next one in a loop.
 *
 * A monitor of the socket tells of each connection that was accepted, by its descriptor, and of each that
 * ended. One too many is shut down as soon as it is told of, before its handshake.
 */
#ifndef CONTROLLER_CONNECTIONS_H
#define CONTROLLER_CONNECTIONS_H

#include "base/error.h"
#include <stdint.h>

struct connections {
	void *monitor;
	uint64_t open, most;
	uint64_t turned_away, told, told_ms;
};

/* Before the socket is bound. */
int connections_open(struct connections *connections, void *context, void *socket, uint64_t most,
		     struct error *error);
/* Counts what happened, turns away, says so once a minute. */
void connections_step(struct connections *connections);
/* Before the socket is closed. */
void connections_close(struct connections *connections, void *socket);

#endif

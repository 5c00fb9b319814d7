/* SPDX-License-Identifier: Apache-2.0
 *
 * connections.h -- how many connections a bound socket has and how much each may say, and an end to those that
 * are too many or say too much.
 *
 * Without it a thousand strangers take the last file descriptor, and libzmq asks for the next one in a loop. A
 * monitor of the socket tells of each connection that was accepted, by its descriptor, and of each that ended.
 * One too many is shut down as soon as it is told of, before its handshake.
 *
 * libzmq must never stop reading a connection (ZMQ_RCVHWM 0): when one that it does not read is reset by the
 * other side, and a PING lies behind what was read, or a heartbeat of its own is due, it ends the process
 * ("Assertion failed: !_io_error", 4.3.4 and 4.3.5). So what a stranger may say is bounded here instead: what is
 * read is looked at at once, and who says too much in a second is shut down.
 */
#ifndef CONTROLLER_CONNECTIONS_H
#define CONTROLLER_CONNECTIONS_H

#include "base/array.h"
#include "base/error.h"
#include "controller/tally.h"
#include <stdint.h>

/* What one connection, known by its descriptor, said. */
struct said {
	uint64_t since_ms; /* start of the second that is counted */
	uint32_t cost;
	bool ended;
};

struct connections {
	void *monitor;
	bool keyed;
	uint64_t open, most;
	uint64_t shut; /* and not heard of as failed yet */
	struct tally turned_away;
	struct tally failed; /* their handshake, before a key was seen */
	struct tally ended;
	ARRAY(struct said) said; /* by descriptor */
};

/* Before the socket is bound. */
int connections_open(struct connections *connections, void *context, void *socket, bool keyed,
		     uint64_t most, struct error *error);
/* Counts what happened, turns away, says so once a minute. */
void connections_step(struct connections *connections);
#define CONNECTIONS_COST_MOST 4096 /* in a second */
/* A frame came on this descriptor which costs so much. False: that was too much, and nothing of this connection
 * is heard any more. */
bool connections_hear(struct connections *connections, int descriptor, uint32_t cost);
/* Before the socket is closed. */
void connections_close(struct connections *connections, void *socket);

#endif

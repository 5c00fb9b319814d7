/* SPDX-License-Identifier: Apache-2.0
 *
 * connections.h -- how many connections a bound socket has and how much each may say, and an end to those that
 * are too many or say too much.
 *
 *   accepted ──► more are open than there are descriptors for? ─► the oldest that is no member's is ended
 *   a frame ───► of a member: nothing; else it costs, and who costs too much in a second is ended
 *
 * A monitor of the socket tells of each connection that was accepted, by its descriptor, and of each that ended.
 * To end one is to disconnect it: what the kernel holds of it is gone too, unread.
 *
 * libzmq must never stop reading a connection (ZMQ_RCVHWM 0): when one that it does not read is reset by the
 * other side, and a PING lies behind what was read, or a heartbeat of its own is due, it ends the process
 * ("Assertion failed: !_io_error", 4.3.4 and 4.3.5). So what a stranger may say is bounded here instead, and
 * what is read is looked at at once.
 */
#ifndef CONTROLLER_CONNECTIONS_H
#define CONTROLLER_CONNECTIONS_H

#include "base/array.h"
#include "base/error.h"
#include "controller/tally.h"
#include <stdbool.h>

#define CONNECTIONS_COST_MOST 4096 /* in a second */
#define CONNECTIONS_LOOK_MS   500
#define CONNECTIONS_PEERS     8192 /* whose costs are known at a time */

/* An open connection, by its descriptor. */
struct connection {
	uint64_t number; /* in the order of acceptance, from 1; 0: not open */
	bool member;
};

/* What a stranger said. By his id and not by his descriptor, which is another's before his last frame is read. */
struct said {
	uint64_t peer, since_ms; /* since: start of the second that is counted */
	uint32_t cost;
	bool ended;
};

struct connections {
	void *monitor;
	bool keyed;
	uint64_t open, most, accepted;
	uint64_t shut; /* and not heard of as failed yet */
	uint64_t looked_ms, forgiven_ms; /* the last look, and until when a failure is no one's fault but ours */
	struct tally turned_away;
	struct tally failed; /* their handshake, before a key was seen */
	struct tally ended;
	ARRAY(struct connection) by_descriptor;
	struct said *said; /* CONNECTIONS_PEERS, by hash */
};

/* Before the socket is bound. `most` may be open. */
int connections_open(struct connections *connections, void *context, void *socket, bool keyed,
		     uint64_t most, struct error *error);
/* Counts what happened, ends who is too many, says so once a minute. To be called at least every CONNECTIONS_LOOK_MS:
 * who is called much later stood still, stopped or starved, and the job's own workers, whom nobody answered, have hung
 * up and connected anew meanwhile. Those are not counted. */
void connections_step(struct connections *connections);
/* The frame that came on this descriptor is a member's. */
void connections_member(struct connections *connections, int descriptor);
/* A frame of a stranger, known by `peer`, costs so much. False: that was too much, and nothing of him is heard
 * any more. A cost of 0 only asks. */
bool connections_hear(struct connections *connections, uint64_t peer, int descriptor,
		      uint32_t cost);
/* Before the socket is closed. */
void connections_close(struct connections *connections, void *socket);

#endif

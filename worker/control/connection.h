/* SPDX-License-Identifier: Apache-2.0
 *
 * connection.h -- why no connection to the controller stands: what libzmq, which tries again and again without a
 * word, tells a monitor of its socket. And when it no longer tries: after a byte that was broken on the way it
 * takes the other side for no peer at all, and never connects again by itself.
 *
 * Threads: the one that owns the socket.
 */
#ifndef WORKER_CONTROL_CONNECTION_H
#define WORKER_CONTROL_CONNECTION_H

#include "base/error.h"
#include <stdint.h>
#include <stdbool.h>

struct connection {
	void *monitor; /* NULL: none could be had; then nothing is told */
	bool keyed;    /* the socket has a key */
	bool made;     /* its handshake too; else reach.h finds out why not */
	uint16_t said; /* the event that said most of what stands in the way; 0: nothing does */
	bool broken;   /* and libzmq has not begun another */
	uint64_t broken_ms;
	uint32_t wait_ms; /* until it is made anew */
};

void connection_open(struct connection *connection, void *context, void *socket, bool keyed);
/* True when there is news: *why says what stands in the way, or has code 0 when nothing does. */
bool connection_step(struct connection *connection, struct error *why);
/* True when it is to be made anew, by the caller; asked after connection_step. */
bool connection_is_due(struct connection *connection, uint64_t now_ms);
/* Milliseconds until it is, or -1. */
long connection_due_in_ms(const struct connection *connection, uint64_t now_ms);
/* Before the socket is closed. */
void connection_close(struct connection *connection, void *socket);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * connection.h -- why the controller is not reached: what libzmq, which tries again and again without a
 * word, tells a monitor of its socket.
 *
 * Threads: the one that owns the socket.
 */
#ifndef WORKER_CONTROL_CONNECTION_H
#define WORKER_CONTROL_CONNECTION_H

#include "base/error.h"
#include <stdbool.h>

struct connection {
	void *monitor; /* NULL: none could be had; then nothing is told */
	bool keyed;    /* the socket has a key */
};

void connection_open(struct connection *connection, void *context, void *socket, bool keyed);
/* True when there is news: *why says what stands in the way, or has code 0 when nothing does. */
bool connection_step(struct connection *connection, struct error *why);
/* Before the socket is closed. */
void connection_close(struct connection *connection, void *socket);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * curve.h -- a job's keys on ZeroMQ sockets: before connect or bind, and the gate behind a bound one.
 *
 *   peer ── TCP ── CURVE handshake ──► gate: whose public key is this? ──► its first message
 *                  wrong server key:     trainer, inference, observer:     carries the role, as
 *                  no handshake          let in by that name; any other:   property "User-Id"
 *                                        refused, counted
 *
 * Nothing that a stranger sends is looked at, and no routing id of his is taken, before the gate has
 * decided: libzmq asks it (ZAP, ZeroMQ RFC 27) when the handshake has proved the key.
 *
 * A gate belongs to the thread that polls it; while that thread does not, nobody gets in.
 */
#ifndef TRUST_CURVE_H
#define TRUST_CURVE_H

#include "trust/key.h"
#include <stdbool.h>

/* Before the context of a socket that binds is made: libzmq counts the ids of connections up from what
 * rand() says first. Without a seed that is the same number in every process: a stranger who claims the
 * id that comes next ends the process by an assertion, and one who knows a worker's can speak for it. */
void curve_seed_ids(void);

/* The one who binds: as KEY_JOB the controller, which needs the job's own key; KEY_OBSERVER: a weft
 * tool that waits for another one. */
int curve_serve(void *socket, const struct key *key, enum key_role as, struct error *error);
/* The one who connects, as a trainer, inference rank or observer. A tool that connects to a tool
 * (`to` KEY_OBSERVER) needs the observer's key, a worker (`to` KEY_JOB) knows the controller's. */
int curve_connect(void *socket, const struct key *key, enum key_role as, enum key_role to,
		  struct error *error);

struct gate;
/* Before the first socket of `context` (of zmq) that has curve_serve binds. Lets in the roles of the
 * job whose key this is: all three when it is the job's own, else that one. */
int gate_open(struct gate **gate, void *context, const struct key *key, struct error *error);
/* Without a key everybody is let in on `socket`, but not faster than this: who may come again and again without
 * end fills memory faster than anybody can look at what he says. A frame has no "User-Id". */
int gate_open_to_all(struct gate **gate, void *context, void *socket, uint64_t at_once,
		     uint64_t a_second, struct error *error);
/* The socket to poll for reading. */
void *gate_socket(const struct gate *gate);
/* Decides about all who wait. */
void gate_step(struct gate *gate);
/* How many were refused, and the last one's address. */
uint64_t gate_refused(const struct gate *gate, const char **address);
/* Before the context is ended. */
void gate_close(struct gate **gate);

#endif

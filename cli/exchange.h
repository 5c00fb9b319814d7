/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange.h -- what two `weft` tools on two hosts say to each other, in the messages of wire/tool.h,
 * each a frame of a ZeroMQ socket (cli/socket.h).
 *
 *   server: exchange_listen ─► exchange_accept ─┐             ┌─ exchange_connect :client
 *                                               hello ◄─► hello
 *                                               message ◄─► message
 *
 * The server talks to one peer at a time; whoever else says hello meanwhile is told that it is busy,
 * and may come again. A failure of the other side comes out of the receiving calls as their error.
 * Every wait has a deadline (clock_ns(); EXCHANGE_FOREVER for none) and every error message names the
 * peer as host:port and what was waited for. Name lookup alone is outside the deadline.
 */
#ifndef CLI_EXCHANGE_H
#define CLI_EXCHANGE_H

#include "cli/socket.h"
#include "wire/tool.h"

#define EXCHANGE_TEXT_BYTES SOCKET_TEXT_BYTES
#define EXCHANGE_FOREVER    UINT64_MAX

struct exchange {
	struct tool_socket *socket;      /* NULL: closed */
	char peer[EXCHANGE_TEXT_BYTES];  /* "host:port", in every error message */
	char host[EXCHANGE_TEXT_BYTES];  /* the same without the port */
	bool absent;                     /* nobody took the connection: what exchange_connect failed of */
};

struct exchange_listener {
	struct tool_socket *socket;      /* NULL: closed */
	uint16_t port;                   /* as bound */
};

/* On all addresses of this host, of IPv6 and IPv4; on loopback alone without a key, unless `trust`
 * says --insecure. Port 0: a free one. */
int exchange_listen(struct exchange_listener *listener, const struct socket_trust *trust,
		    uint16_t port, struct error *error);
/* The next peer that runs the same `tool` ("bench write") of the same version; others are told why
 * and are an error here. Somebody who is no weft tool at all is logged and not answered. */
int exchange_accept(const struct exchange_listener *listener, struct exchange *exchange,
		    const char *tool, struct error *error);
void exchange_listener_close(struct exchange_listener *listener);
/* What the other host can write to reach it: the host's name, or 127.0.0.1 when no other one can. */
void exchange_listener_host(const struct exchange_listener *listener,
			    char host[EXCHANGE_TEXT_BYTES]);

/* "name", "name:port", "10.0.0.1", "fd00::1", "[fd00::1]:port", and these after "tcp://". A peer that does not listen yet is
 * asked again until the deadline, of which a line of the log says so and why within 2 s, where it is
 * further away; one that wants another key, or none, is an error at once. */
int exchange_connect(struct exchange *exchange, const struct socket_trust *trust,
		     const char *address, uint16_t default_port, const char *tool,
		     uint64_t deadline_ns, struct error *error);
int exchange_send(struct exchange *exchange, const struct tool_message *message,
		  struct error *error);
/* Something is to be received: a message, or the end. */
bool exchange_waits(struct exchange *exchange);
/* The next message, which must be of `type`; `waiting_for` goes into error messages ("its endpoint
 * record"). The caller frees it (tool_fini); NULL: nothing in it is needed. */
int exchange_receive(struct exchange *exchange, enum tool_type type, const char *waiting_for,
		     struct tool_message *message, uint64_t deadline_ns, struct error *error);
/* Any type; of one that is not known in its place, exchange_unwanted is the error. */
int exchange_receive_any(struct exchange *exchange, const char *waiting_for,
			 struct tool_message *message, uint64_t deadline_ns, struct error *error);
int exchange_unwanted(const struct exchange *exchange, struct tool_message *message,
		      const char *waiting_for, struct error *error);
/* Tells the peer why this side gives up; best effort. */
void exchange_send_failure(struct exchange *exchange, const struct error *failure);
void exchange_close(struct exchange *exchange);

#endif

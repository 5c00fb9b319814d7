/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange.h -- one TCP connection between two `weft` tools on two hosts, for the messages of
 * wire/tool.h: each is its length in 4 bytes, little-endian, and its frame.
 *
 *   server: exchange_listen ─► exchange_accept ─┐             ┌─ exchange_connect :client
 *                                               hello ◄─► hello
 *                                               message ◄─► message
 *
 * A failure of the other side comes out of the receiving calls as their error. Every call has a
 * deadline (clock_ns(); EXCHANGE_FOREVER for none) and every error message names the peer as
 * host:port and what was waited for. Name lookup alone is outside the deadline.
 */
#ifndef CLI_EXCHANGE_H
#define CLI_EXCHANGE_H

#include "wire/tool.h"

#define EXCHANGE_TEXT_BYTES 128
#define EXCHANGE_FOREVER    UINT64_MAX

struct exchange {
	int fd;                              /* -1: closed */
	char peer[EXCHANGE_TEXT_BYTES];      /* "host:port", in every error message */
	char host[EXCHANGE_TEXT_BYTES];      /* the same without the port */
	char local[EXCHANGE_TEXT_BYTES];     /* our own address on this connection, no port */
};

struct exchange_listener {
	int fd;                              /* -1: closed */
	uint16_t port;                       /* as bound */
};

/* Of IPv6 and IPv4 both, where this host has both. Port 0: a free one. */
int exchange_listen(struct exchange_listener *listener, uint16_t port, struct error *error);
/* The next peer that runs the same `tool` ("bench write") of the same version; others are told why
 * and are an error here. Somebody who is no weft tool at all is logged and not answered. */
int exchange_accept(const struct exchange_listener *listener, struct exchange *exchange,
		    const char *tool, uint64_t deadline_ns, struct error *error);
void exchange_listener_close(struct exchange_listener *listener);

/* "name", "name:port", "10.0.0.1", "fd00::1", "[fd00::1]:port". A peer that does not listen yet is
 * asked again until the deadline. */
int exchange_connect(struct exchange *exchange, const char *address, uint16_t default_port,
		     const char *tool, uint64_t deadline_ns, struct error *error);
int exchange_send(struct exchange *exchange, const struct tool_message *message,
		  uint64_t deadline_ns, struct error *error);
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange.h -- one TCP connection between two `weft` tools on two hosts: it carries what they
 * must tell each other before and between transfers, never the transfer itself.
 *
 *   server: exchange_listen ─► exchange_accept ─┐             ┌─ exchange_connect :client
 *                                               hello ◄─► hello      magic, version, tool
 *                                               message ◄─► message  {kind, length, bytes}
 *
 * A message is at most 64 KiB; integers are little-endian. Kinds are the tool's own, from 1; kind 0
 * is a failure: code and sentence, which the other side's exchange_receive returns as its error.
 * Every call has a deadline (clock_ns(); EXCHANGE_FOREVER for none) and every sentence names the
 * peer as host:port and what was waited for. Name lookup alone is outside the deadline.
 */
#ifndef CLI_EXCHANGE_H
#define CLI_EXCHANGE_H

#include "base/error.h"
#include <stddef.h>
#include <stdint.h>

#define EXCHANGE_BYTES_MAX  65536
#define EXCHANGE_TEXT_BYTES 128
#define EXCHANGE_TOOL_BYTES 24
#define EXCHANGE_FOREVER    UINT64_MAX

struct exchange {
	int fd;                              /* -1: closed */
	char peer[EXCHANGE_TEXT_BYTES];      /* "host:port", in every sentence */
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
int exchange_send(struct exchange *exchange, uint32_t kind, const void *bytes, size_t length,
		  uint64_t deadline_ns, struct error *error);
/* The next message, which must be of `kind`; `waiting_for` goes into sentences ("its endpoint
 * record"). More than `most` bytes is ERROR_MESSAGE. */
int exchange_receive(struct exchange *exchange, uint32_t kind, const char *waiting_for,
		     void *bytes, size_t most, size_t *length, uint64_t deadline_ns,
		     struct error *error);
/* Any kind from 1: *kind says which. */
int exchange_receive_any(struct exchange *exchange, uint32_t *kind, const char *waiting_for,
			 void *bytes, size_t most, size_t *length, uint64_t deadline_ns,
			 struct error *error);
/* Tells the peer why this side gives up; best effort. */
void exchange_send_failure(struct exchange *exchange, const struct error *failure);
void exchange_close(struct exchange *exchange);

/* Integers of a message's bytes. */
static inline void exchange_put_u64(unsigned char *at, uint64_t value)
{
	for (int i = 0; i < 8; i++)
		at[i] = (unsigned char)(value >> 8 * i);
}
static inline uint64_t exchange_get_u64(const unsigned char *at)
{
	uint64_t value = 0;

	for (int i = 0; i < 8; i++)
		value |= (uint64_t)at[i] << 8 * i;
	return value;
}

#endif

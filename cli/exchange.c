/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/exchange.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/reach.h"
#include "base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FIRST_NS UINT64_C(250000000) /* somebody who is there has taken a connection by then */
#define SLICE_NS UINT64_C(100000000)
#define SAID_NS	 UINT64_C(1000000000) /* who gives up as soon as this need not be told that we try */

/* ---- messages ---- */

static int send_to(struct exchange *exchange, const struct socket_peer *to,
		   const struct tool_message *message, struct error *error)
{
	unsigned char *bytes;
	size_t length;
	int rc = tool_encode(message, &bytes, &length, error);

	if (rc)
		return rc;
	if (!socket_send(exchange->socket, to, bytes, length))
		rc = error_set(error, ERROR_PEER_LOST,
			       "%s closed the connection, or does not read what this side sends",
			       exchange->peer);
	memory_free(bytes);
	return rc;
}

static int send_failure(struct exchange *exchange, const struct socket_peer *to,
			const struct error *failure)
{
	struct tool_message message = {
		.type = TOOL_FAILURE,
		.u.failure = {(int)failure->code, (char *)(uintptr_t)failure->text}};

	return send_to(exchange, to, &message, NULL);
}

/* ERROR_MESSAGE: what came is no message of ours. */
static int decode(struct exchange *exchange, struct tool_message *message, struct error *error)
{
	struct tool_socket *socket = exchange->socket;
	int rc = tool_decode(message, socket->frame, socket->length, error);

	socket->held = false;
	return rc ? error_wrap(error, "%s", exchange->peer) : 0;
}

/* The other side's failure is ours. */
static int take_failure(const struct exchange *exchange, struct tool_message *message,
			struct error *error)
{
	int code = message->u.failure.code;
	int rc = error_set(error, error_known(code) ? (enum error_code)code : ERROR_PEER_LOST,
			   "the other side (%s) says: %s", exchange->peer, message->u.failure.text);

	tool_fini(message);
	return rc;
}

/* The frame that waits is of somebody else than the peer. */
static void send_away(struct exchange *exchange)
{
	struct tool_socket *socket = exchange->socket;
	struct tool_message message;
	struct error busy;

	socket->held = false;
	if (tool_decode(&message, socket->frame, socket->length, NULL))
		return;
	if (message.type == TOOL_HELLO) {
		error_set(&busy, ERROR_TRANSPORT, "busy with %s; try again when it is done",
			  exchange->host);
		send_failure(exchange, &socket->from, &busy);
		socket_tell(socket, "sent away: %s, as %s is served", socket->from.text,
			    exchange->peer);
	}
	tool_fini(&message);
}

/* As socket_wait; a frame is the peer's. */
static enum socket_news wait_peer(struct exchange *exchange, uint64_t deadline_ns)
{
	for (;;) {
		enum socket_news news = socket_wait(exchange->socket, deadline_ns);

		if (news != SOCKET_FRAME || socket_from_peer(exchange->socket))
			return news;
		send_away(exchange);
		if (clock_ns() >= deadline_ns)
			return SOCKET_QUIET;
	}
}

bool exchange_waits(struct exchange *exchange)
{
	return wait_peer(exchange, clock_ns()) != SOCKET_QUIET;
}

int exchange_receive_any(struct exchange *exchange, const char *waiting_for,
			 struct tool_message *message, uint64_t deadline_ns, struct error *error)
{
	enum socket_news news = wait_peer(exchange, deadline_ns);
	int rc;

	*message = (struct tool_message){0};
	if (news == SOCKET_QUIET)
		return error_set(error, ERROR_TIMEOUT,
				 "%s: waiting for %s took longer than its deadline", exchange->peer,
				 waiting_for);
	if (news == SOCKET_LOST)
		return error_set(error, ERROR_PEER_LOST,
				 "%s closed the connection; this side was waiting for %s",
				 exchange->peer, waiting_for);
	rc = decode(exchange, message, error);
	return !rc && message->type == TOOL_FAILURE ? take_failure(exchange, message, error) : rc;
}

int exchange_unwanted(const struct exchange *exchange, struct tool_message *message,
		      const char *waiting_for, struct error *error)
{
	int rc = error_set(error, ERROR_MESSAGE, "%s sent '%s' instead of %s", exchange->peer,
			   tool_type_name(message->type), waiting_for);

	tool_fini(message);
	return rc;
}

int exchange_receive(struct exchange *exchange, enum tool_type type, const char *waiting_for,
		     struct tool_message *message, uint64_t deadline_ns, struct error *error)
{
	struct tool_message unused;
	struct tool_message *to = message ? message : &unused;
	int rc = exchange_receive_any(exchange, waiting_for, to, deadline_ns, error);

	if (rc == 0 && to->type != type)
		rc = exchange_unwanted(exchange, to, waiting_for, error);
	if (rc == 0 && !message)
		tool_fini(to);
	return rc;
}

/* A send that failed may have crossed the peer's own failure, which is the cause. */
int exchange_send(struct exchange *exchange, const struct tool_message *message,
		  struct error *error)
{
	struct tool_message heard;
	struct error why;
	int rc = send_to(exchange, &exchange->socket->peer, message, error);

	if (rc != -ERROR_PEER_LOST || wait_peer(exchange, clock_ns()) != SOCKET_FRAME ||
	    decode(exchange, &heard, &why))
		return rc;
	if (heard.type == TOOL_FAILURE)
		return take_failure(exchange, &heard, error);
	tool_fini(&heard);
	return rc;
}

void exchange_send_failure(struct exchange *exchange, const struct error *failure)
{
	if (exchange->socket)
		send_failure(exchange, &exchange->socket->peer, failure);
}

/* A server's socket is its listener's. */
void exchange_close(struct exchange *exchange)
{
	if (exchange->socket && exchange->socket->serves) {
		exchange->socket->peer.fd = 0;
		exchange->socket->lost = exchange->socket->held = false;
		exchange->socket = NULL;
	}
	socket_close(&exchange->socket);
}

/* ---- hello ---- */

static int send_hello(struct exchange *exchange, const struct socket_peer *to, const char *program,
		      struct error *error)
{
	struct tool_message message = {.type = TOOL_HELLO};

	snprintf(message.u.hello.program, sizeof(message.u.hello.program), "%s", program);
	return send_to(exchange, to, &message, error);
}

/* Of the frame that waits. ERROR_MESSAGE: no weft tool. */
static int take_hello(struct exchange *exchange, const char *program, struct error *error)
{
	struct tool_message message;
	struct error failure;
	int rc = decode(exchange, &message, &failure);

	if (rc == -ERROR_MESSAGE)
		return error_set(error, ERROR_MESSAGE,
				 "%s is no weft tool; is another program on that port? (%s)",
				 exchange->peer, failure.text);
	if (rc)
		return error_set(error, failure.code, "%s", failure.text);
	if (message.type == TOOL_FAILURE && !exchange->socket->serves)
		return take_failure(exchange, &message, error);
	if (message.type != TOOL_HELLO)
		return exchange_unwanted(exchange, &message, "its hello", error);
	if (strcmp(message.u.hello.program, program) != 0)
		return error_set(error, ERROR_CONFIG,
				 "%s runs `weft %s`, this is `weft %s`: start the same on both",
				 exchange->peer, message.u.hello.program, program);
	return 0;
}

/* ---- listening ---- */

int exchange_listen(struct exchange_listener *listener, const struct socket_trust *trust,
		    uint16_t port, struct error *error)
{
	listener->port = port;
	return socket_listen(&listener->socket, trust, &listener->port, error);
}

void exchange_listener_close(struct exchange_listener *listener)
{
	socket_close(&listener->socket);
}

void exchange_listener_host(const struct exchange_listener *listener,
			    char host[EXCHANGE_TEXT_BYTES])
{
	snprintf(host, EXCHANGE_TEXT_BYTES, "127.0.0.1");
	if (listener->socket->open && gethostname(host, EXCHANGE_TEXT_BYTES - 1) != 0)
		snprintf(host, EXCHANGE_TEXT_BYTES, "THIS_HOST");
}

int exchange_accept(const struct exchange_listener *listener, struct exchange *exchange,
		    const char *tool, struct error *error)
{
	struct tool_socket *socket = listener->socket;

	for (;;) {
		int rc;

		*exchange = (struct exchange){.socket = socket};
		if (socket_wait(socket, EXCHANGE_FOREVER) != SOCKET_FRAME)
			continue;
		snprintf(exchange->peer, sizeof(exchange->peer), "%s", socket->from.text);
		snprintf(exchange->host, sizeof(exchange->host), "%s", socket->from.host);
		if (socket_from_last(socket)) {
			socket->held = false; /* it tells why it gave up, which this side did too */
			continue;
		}
		rc = take_hello(exchange, tool, error);
		if (rc == -ERROR_MESSAGE) {
			socket_tell(socket, "not answered: %s", error->text);
			continue;
		}
		if (rc) { /* another tool or version: our own hello tells it which we are */
			send_hello(exchange, &socket->from, tool, NULL);
			exchange_close(exchange);
			return rc;
		}
		socket_take_peer(socket);
		if (send_hello(exchange, &socket->peer, tool, error) == 0)
			return 0;
		log_debug("not answered: %s", error->text);
		exchange_close(exchange);
	}
}

/* ---- connecting ---- */

static int parse_address(const char *address, uint16_t default_port, char *host, size_t host_bytes,
			 uint16_t *port, struct error *error)
{
	const char *given = address, *begin, *colon, *end;
	uint64_t value = default_port;

	if (strncmp(address, "tcp://", 6) == 0)
		address += 6; /* as --controller is written */
	begin = address;
	colon = strrchr(address, ':');
	if (strstr(address, "://")) {
		begin = end = address; /* refused below */
	} else if (*address == '[') {
		begin++;
		end = strchr(begin, ']');
		colon = end && end[1] == ':' ? end + 1 : NULL;
		if (!end || (end[1] && !colon))
			begin = end = address; /* refused below: an empty name */
	} else if (colon && strchr(address, ':') == colon) {
		end = colon;
	} else {
		colon = NULL; /* a name, or a bare IPv6 address */
		end = address + strlen(address);
	}
	if (end == begin || (size_t)(end - begin) >= host_bytes ||
	    (colon && (!parse_u64(colon + 1, &value) || value < 1 || value > 65535)))
		return error_set(error, ERROR_USAGE,
				 "'%.120s' is no address: give NAME, NAME:PORT or [IPV6]:PORT",
				 given);
	snprintf(host, host_bytes, "%.*s", (int)(end - begin), begin);
	*port = (uint16_t)value;
	return 0;
}

static int look_up(struct exchange *exchange, const char *address, uint16_t port,
		   struct addrinfo **found, struct error *error)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
	char host[100], service[8];
	int rc = parse_address(address, port, host, sizeof(host), &port, error);

	if (rc)
		return rc;
	snprintf(service, sizeof(service), "%u", port);
	snprintf(exchange->host, sizeof(exchange->host), "%s", host);
	snprintf(exchange->peer, sizeof(exchange->peer), strchr(host, ':') ? "[%s]:%u" : "%s:%u",
		 host, port);
	rc = getaddrinfo(host, service, &hints, found);
	return rc ? error_set(error, rc == EAI_AGAIN ? ERROR_TIMEOUT : ERROR_CONFIG,
			      "the name '%s' has no address: %s", host,
			      rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc))
		  : 0;
}

/* libzmq says of no try why it failed, so one is made beside it, until it has an answer. Returns its
 * errno; 0: there was no need of it, or somebody is there. */
static int try_beside(struct exchange *exchange, const struct addrinfo *to, uint64_t deadline_ns,
		      enum socket_news *news)
{
	uint64_t next = clock_ns() + FIRST_NS;
	struct reach reach;
	bool said = false;
	struct error why;

	reach_init(&reach);
	while (*news = socket_wait(exchange->socket, next < deadline_ns ? next : deadline_ns),
	       *news == SOCKET_QUIET && clock_ns() < deadline_ns) {
		uint64_t now = clock_ns();

		next = said || exchange->socket->reached ? deadline_ns : now + SLICE_NS;
		if (next == deadline_ns ||
		    !reach_step(&reach, to->ai_addr, to->ai_addrlen, now / 1000000, &why))
			continue;
		said = true;
		if (deadline_ns - now > SAID_NS)
			log_warn("%s: %s; trying for %" PRIu64 " s more", exchange->peer, why.text,
				 (deadline_ns - now) / 1000000000);
	}
	reach_stop(&reach);
	return reach.said;
}

/* No hello came. `number`: of the try beside. */
static int fail_connect(struct exchange *exchange, int number, struct error *error)
{
	const struct tool_socket *socket = exchange->socket;
	bool no_route = number == EHOSTUNREACH || number == ENETUNREACH;

	if (socket->why.code)
		return error_set(error, socket->why.code, "%s %s", exchange->peer,
				 socket->why.text);
	if (socket->lost)
		return error_set(error, ERROR_PEER_LOST,
				 "%s closed the connection; this side was waiting for its hello",
				 exchange->peer);
	if (socket->reached)
		return error_set(
			error, ERROR_TIMEOUT,
			"%s: waiting for its hello took longer than its deadline; is it a weft tool?",
			exchange->peer);
	exchange->absent = true;
	if (no_route)
		return error_set(error, ERROR_TIMEOUT,
				 "%s: there is no route to it from here: is the address right, and "
				 "this host's network up?",
				 exchange->peer);
	if (socket->refused && number != ETIMEDOUT)
		return error_set(error, ERROR_TIMEOUT,
				 "%s refuses connections: is the other side started, with the same "
				 "--port, and with --key FILE? (without a key it listens to its "
				 "own host alone)",
				 exchange->peer);
	return error_set(error, ERROR_TIMEOUT,
			 "%s does not answer: is the host up, and the port open in its firewall?",
			 exchange->peer);
}

int exchange_connect(struct exchange *exchange, const struct socket_trust *trust,
		     const char *address, uint16_t default_port, const char *tool,
		     uint64_t deadline_ns, struct error *error)
{
	struct addrinfo *found = NULL;
	enum socket_news news;
	int rc, number;

	*exchange = (struct exchange){0};
	rc = look_up(exchange, address, default_port, &found, error);
	if (rc)
		return rc;
	rc = socket_connect(&exchange->socket, trust, found, error);
	if (rc == 0)
		rc = send_hello(exchange, NULL, tool, error);
	if (rc == 0) {
		number = try_beside(exchange, found, deadline_ns, &news);
		rc = news == SOCKET_FRAME ? take_hello(exchange, tool, error)
					  : fail_connect(exchange, number, error);
	}
	freeaddrinfo(found);
	if (rc)
		exchange_close(exchange);
	return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/exchange.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"

#include <endian.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LENGTH_BYTES 4
#define HELLO_NS     5000000000ull /* a peer that has connected says hello at once */
#define FAILURE_NS   1000000000ull
#define RETRY_MS     100

/* Milliseconds for poll(), rounded up; slices, so that no deadline overflows an int. */
static int slice_ms(uint64_t deadline_ns)
{
	uint64_t now = clock_ns(), left;

	if (now >= deadline_ns)
		return 0;
	left = (deadline_ns - now + 999999) / 1000000;
	return left > 60000 ? 60000 : (int)left;
}

/* 0: the socket is ready; 1: the deadline passed; -1: poll failed (errno). */
static int wait_ready(int fd, short events, uint64_t deadline_ns)
{
	for (;;) {
		struct pollfd item = {.fd = fd, .events = events};
		int n = poll(&item, 1, slice_ms(deadline_ns));

		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -1;
		if (clock_ns() >= deadline_ns)
			return 1;
	}
}

static int fail_timeout(const struct exchange *exchange, const char *doing, const char *what,
			struct error *error)
{
	return error_set(error, ERROR_TIMEOUT, "%s %s %s took longer than its deadline", doing,
			 exchange->peer, what);
}

static int fail_lost(const struct exchange *exchange, const char *what, int errnum,
		     struct error *error)
{
	if (!errnum || errnum == ECONNRESET || errnum == EPIPE)
		return error_set(error, ERROR_PEER_LOST,
				 "%s closed the connection; this side was waiting for %s",
				 exchange->peer, what);
	return error_set_errno(error, ERROR_PEER_LOST, errnum,
			       "the connection to %s failed while waiting for %s", exchange->peer,
			       what);
}

/* All of the bytes, in (`what` is waited for) or out. */
static int move_all(const struct exchange *exchange, void *bytes, size_t length, bool in,
		    const char *what, uint64_t deadline_ns, struct error *error)
{
	unsigned char *at = bytes;

	while (length) {
		ssize_t n = in ? recv(exchange->fd, at, length, 0)
			       : send(exchange->fd, at, length, MSG_NOSIGNAL);
		int rc;

		if (n > 0 || (n == 0 && !in)) {
			at += n;
			length -= (size_t)n;
			continue;
		}
		if (n == 0)
			return fail_lost(exchange, what, 0, error);
		if (errno == EINTR)
			continue;
		if (errno != EAGAIN)
			return fail_lost(exchange, what, errno, error);
		rc = wait_ready(exchange->fd, in ? POLLIN : POLLOUT, deadline_ns);
		if (rc < 0)
			return fail_lost(exchange, what, errno, error);
		if (rc > 0)
			return in ? fail_timeout(exchange, "waiting for", what, error)
				  : fail_timeout(exchange, "sending to", "a message", error);
	}
	return 0;
}

static int read_all(const struct exchange *exchange, void *bytes, size_t length, const char *what,
		    uint64_t deadline_ns, struct error *error)
{
	return move_all(exchange, bytes, length, true, what, deadline_ns, error);
}

static int write_all(const struct exchange *exchange, void *bytes, size_t length,
		     uint64_t deadline_ns, struct error *error)
{
	return move_all(exchange, bytes, length, false, "room to send a message", deadline_ns,
			error);
}

/* ---- messages ---- */

static int write_message(const struct exchange *exchange, const struct tool_message *message,
			 uint64_t deadline_ns, struct error *error)
{
	unsigned char *bytes;
	uint32_t head;
	size_t length;
	int rc = tool_encode(message, &bytes, &length, error);

	if (rc)
		return rc;
	head = htole32((uint32_t)length);
	rc = write_all(exchange, &head, sizeof(head), deadline_ns, error);
	if (rc == 0)
		rc = write_all(exchange, bytes, length, deadline_ns, error);
	memory_free(bytes);
	return rc;
}

/* ERROR_MESSAGE: what came is no message of ours. */
static int read_message(const struct exchange *exchange, struct tool_message *message,
			const char *waiting_for, uint64_t deadline_ns, struct error *error)
{
	unsigned char bytes[TOOL_MESSAGE_BYTES];
	uint32_t head;
	int rc = read_all(exchange, &head, sizeof(head), waiting_for, deadline_ns, error);

	*message = (struct tool_message){0};
	if (rc)
		return rc;
	head = le32toh(head);
	if (head > sizeof(bytes))
		return error_set(error, ERROR_MESSAGE, "%s sent %u bytes where %s has at most %zu",
				 exchange->peer, head, waiting_for, sizeof(bytes));
	rc = read_all(exchange, bytes, head, waiting_for, deadline_ns, error);
	if (rc)
		return rc;
	rc = tool_decode(message, bytes, head, error);
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

/* A send that failed may have crossed the peer's own failure, which is the cause. */
static int hear_failure(struct exchange *exchange, int rc, struct error *error)
{
	struct tool_message message;
	char byte;

	if (recv(exchange->fd, &byte, 1, MSG_PEEK) != 1 ||
	    read_message(exchange, &message, "why it failed", clock_ns() + FAILURE_NS, NULL))
		return rc;
	if (message.type == TOOL_FAILURE)
		return take_failure(exchange, &message, error);
	tool_fini(&message);
	return rc;
}

int exchange_send(struct exchange *exchange, const struct tool_message *message,
		  uint64_t deadline_ns, struct error *error)
{
	int rc = write_message(exchange, message, deadline_ns, error);

	return rc ? hear_failure(exchange, rc, error) : 0;
}

int exchange_receive_any(struct exchange *exchange, const char *waiting_for,
			 struct tool_message *message, uint64_t deadline_ns, struct error *error)
{
	int rc = read_message(exchange, message, waiting_for, deadline_ns, error);

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

void exchange_send_failure(struct exchange *exchange, const struct error *failure)
{
	struct tool_message message = {
		.type = TOOL_FAILURE,
		.u.failure = {(int)failure->code, (char *)(uintptr_t)failure->text}};

	if (exchange->fd >= 0)
		exchange_send(exchange, &message, clock_ns() + FAILURE_NS, NULL);
}

void exchange_close(struct exchange *exchange)
{
	if (exchange->fd >= 0)
		close(exchange->fd);
	exchange->fd = -1;
}

/* ---- hello ---- */

static int send_hello(const struct exchange *exchange, const char *program, uint64_t deadline_ns,
		      struct error *error)
{
	struct tool_message message = {.type = TOOL_HELLO};

	snprintf(message.u.hello.program, sizeof(message.u.hello.program), "%s", program);
	return write_message(exchange, &message, deadline_ns, error);
}

/* ERROR_MESSAGE: no weft tool. */
static int take_hello(const struct exchange *exchange, const char *program, uint64_t deadline_ns,
		      struct error *error)
{
	struct tool_message message;
	struct error failure;
	int rc = read_message(exchange, &message, "its hello", deadline_ns, &failure);

	if (rc == -ERROR_MESSAGE)
		return error_set(error, ERROR_MESSAGE,
				 "%s is no weft tool; is another program on that port? (%s)",
				 exchange->peer, failure.text);
	if (rc)
		return error_set(error, failure.code, "%s", failure.text);
	if (message.type != TOOL_HELLO)
		return exchange_unwanted(exchange, &message, "its hello", error);
	if (strcmp(message.u.hello.program, program) != 0)
		return error_set(error, ERROR_CONFIG,
				 "%s runs `weft %s`, this is `weft %s`: start the same on both",
				 exchange->peer, message.u.hello.program, program);
	return 0;
}

/* ---- addresses ---- */

static void name_socket(const struct sockaddr *address, socklen_t bytes,
			char host[EXCHANGE_TEXT_BYTES], char text[EXCHANGE_TEXT_BYTES])
{
	char name[80] = "?", port[8] = "?";
	const char *shown = name;

	getnameinfo(address, bytes, name, sizeof(name), port, sizeof(port),
		    NI_NUMERICHOST | NI_NUMERICSERV);
	if (strncmp(name, "::ffff:", 7) == 0 && strchr(name, '.'))
		shown = name + 7; /* IPv4, as a socket of both families shows it */
	snprintf(host, EXCHANGE_TEXT_BYTES, "%s", shown);
	snprintf(text, EXCHANGE_TEXT_BYTES, strchr(shown, ':') ? "[%s]:%s" : "%s:%s", shown, port);
}

static void name_both(struct exchange *exchange)
{
	char unused[EXCHANGE_TEXT_BYTES];
	struct sockaddr_storage address;
	socklen_t bytes = sizeof(address);
	int one = 1, idle_s = 10, retry_s = 5, tries = 4; /* a host that died is noticed in 30 s */

	if (getsockname(exchange->fd, (struct sockaddr *)&address, &bytes) == 0)
		name_socket((struct sockaddr *)&address, bytes, exchange->local, unused);
	setsockopt(exchange->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(exchange->fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	setsockopt(exchange->fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
	setsockopt(exchange->fd, IPPROTO_TCP, TCP_KEEPINTVL, &retry_s, sizeof(retry_s));
	setsockopt(exchange->fd, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof(tries));
}

static int parse_address(const char *address, uint16_t default_port, char *host, size_t host_bytes,
			 uint16_t *port, struct error *error)
{
	const char *colon = strrchr(address, ':'), *begin = address, *end;
	uint64_t value = default_port;

	if (*address == '[') {
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
				 address);
	snprintf(host, host_bytes, "%.*s", (int)(end - begin), begin);
	*port = (uint16_t)value;
	return 0;
}

/* ---- listening ---- */

static int bind_any(int family, uint16_t port)
{
	int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1, off = 0;
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
	int rc, saved;

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)); /* IPv4 has no such option */
	rc = family == AF_INET6 ? bind(fd, (struct sockaddr *)&six, sizeof(six))
				: bind(fd, (struct sockaddr *)&four, sizeof(four));
	if (rc == 0 && listen(fd, 4) == 0)
		return fd;
	saved = errno;
	close(fd);
	errno = saved;
	return -1;
}

int exchange_listen(struct exchange_listener *listener, uint16_t port, struct error *error)
{
	struct sockaddr_storage address;
	socklen_t bytes = sizeof(address);

	*listener = (struct exchange_listener){.fd = bind_any(AF_INET6, port)};
	if (listener->fd < 0 && (errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL))
		listener->fd = bind_any(AF_INET, port); /* no IPv6 in this kernel */
	if (listener->fd < 0 && errno == EADDRINUSE)
		return error_set(
			error, ERROR_CONFIG,
			"port %u of this host is in use: give another with --port, on both "
			"sides",
			port);
	if (listener->fd < 0)
		return error_set_errno(error, ERROR_IO, errno, "cannot listen on port %u", port);
	if (getsockname(listener->fd, (struct sockaddr *)&address, &bytes) != 0) {
		exchange_listener_close(listener);
		return error_set_errno(error, ERROR_IO, errno, "cannot tell the port");
	}
	listener->port =
		ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
						    : ((struct sockaddr_in *)&address)->sin_port);
	return 0;
}

void exchange_listener_close(struct exchange_listener *listener)
{
	if (listener->fd >= 0)
		close(listener->fd);
	listener->fd = -1;
}

static int accept_one(const struct exchange_listener *listener, struct exchange *exchange,
		      uint64_t deadline_ns, struct error *error)
{
	for (;;) {
		struct sockaddr_storage address;
		socklen_t bytes = sizeof(address);
		int rc = wait_ready(listener->fd, POLLIN, deadline_ns);

		if (rc > 0)
			return error_set(error, ERROR_TIMEOUT, "nobody connected to port %u",
					 listener->port);
		if (rc < 0)
			return error_set_errno(error, ERROR_IO, errno, "cannot wait on port %u",
					       listener->port);
		exchange->fd = accept4(listener->fd, (struct sockaddr *)&address, &bytes,
				       SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (exchange->fd >= 0) {
			name_socket((struct sockaddr *)&address, bytes, exchange->host,
				    exchange->peer);
			name_both(exchange);
			return 0;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
			return error_set_errno(error, ERROR_IO, errno,
					       "cannot accept a connection on port %u",
					       listener->port);
		/* anything else: that peer has gone again */
	}
}

int exchange_accept(const struct exchange_listener *listener, struct exchange *exchange,
		    const char *tool, uint64_t deadline_ns, struct error *error)
{
	for (;;) {
		uint64_t hello_ns;
		int rc;

		*exchange = (struct exchange){.fd = -1};
		rc = accept_one(listener, exchange, deadline_ns, error);
		if (rc)
			return rc;
		hello_ns = clock_ns() + HELLO_NS;
		rc = take_hello(exchange, tool, hello_ns, error);
		if (rc == -ERROR_MESSAGE || rc == -ERROR_TIMEOUT || rc == -ERROR_PEER_LOST) {
			log_warn("not answered: %s", error->text);
			exchange_close(exchange);
			continue;
		}
		/* ours or another version's: our own hello tells it which we are */
		if (rc == 0)
			rc = send_hello(exchange, tool, hello_ns, error);
		else
			send_hello(exchange, tool, hello_ns, NULL);
		if (rc)
			exchange_close(exchange);
		return rc;
	}
}

/* ---- connecting ---- */

/* 0, or the errno. */
static int connect_one(struct exchange *exchange, const struct addrinfo *to, uint64_t deadline_ns)
{
	int fd = socket(to->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int errnum = 0, rc;
	socklen_t bytes = sizeof(errnum);

	if (fd < 0)
		return errno;
	if (connect(fd, to->ai_addr, to->ai_addrlen) != 0) {
		errnum = errno;
		if (errnum == EINPROGRESS) {
			rc = wait_ready(fd, POLLOUT, deadline_ns);
			errnum = rc > 0 ? ETIMEDOUT : errno;
			if (rc == 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &errnum, &bytes) != 0)
				errnum = errno;
		}
	}
	if (errnum)
		close(fd);
	else
		exchange->fd = fd;
	return errnum;
}

static int connect_until(struct exchange *exchange, const struct addrinfo *found,
			 uint64_t deadline_ns, struct error *error)
{
	int errnum = ETIMEDOUT;

	do {
		for (const struct addrinfo *to = found; to; to = to->ai_next) {
			errnum = connect_one(exchange, to, deadline_ns);
			if (!errnum)
				return 0;
		}
		if (clock_ns() + RETRY_MS * 1000000ull >= deadline_ns)
			break;
		clock_sleep_ms(RETRY_MS);
	} while (errnum == ECONNREFUSED || errnum == ECONNRESET);
	if (errnum == ECONNREFUSED)
		return error_set(error, ERROR_PEER_LOST,
				 "%s refuses connections: is the other side started, and with the "
				 "same --port?",
				 exchange->peer);
	if (errnum == ETIMEDOUT)
		return error_set(error, ERROR_TIMEOUT,
				 "%s does not answer: is the host up, and the port open in its "
				 "firewall?",
				 exchange->peer);
	return error_set_errno(error, ERROR_PEER_LOST, errnum, "cannot connect to %s",
			       exchange->peer);
}

int exchange_connect(struct exchange *exchange, const char *address, uint16_t default_port,
		     const char *tool, uint64_t deadline_ns, struct error *error)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
	struct addrinfo *found = NULL;
	char host[100], service[8];
	uint16_t port = default_port;
	int rc;

	*exchange = (struct exchange){.fd = -1};
	rc = parse_address(address, default_port, host, sizeof(host), &port, error);
	if (rc)
		return rc;
	snprintf(service, sizeof(service), "%u", port);
	snprintf(exchange->host, sizeof(exchange->host), "%s", host);
	snprintf(exchange->peer, sizeof(exchange->peer), strchr(host, ':') ? "[%s]:%u" : "%s:%u",
		 host, port);
	rc = getaddrinfo(host, service, &hints, &found);
	if (rc)
		return error_set(error, rc == EAI_AGAIN ? ERROR_TIMEOUT : ERROR_CONFIG,
				 "the name '%s' has no address: %s", host,
				 rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
	rc = connect_until(exchange, found, deadline_ns, error);
	freeaddrinfo(found);
	if (rc)
		return rc;
	name_both(exchange);
	rc = send_hello(exchange, tool, deadline_ns, error);
	if (rc == 0)
		rc = take_hello(exchange, tool, deadline_ns, error);
	if (rc)
		exchange_close(exchange);
	return rc;
}

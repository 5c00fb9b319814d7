/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/socket.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/descriptors.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "trust/curve.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <zmq.h>

#define MONITOR	    "inproc://weft-tool"
#define LINGER_MS   1000 /* how long a last message may take to leave */
#define RETRY_MS    100
#define IDLE_S	    5 /* a host that died is noticed so much and ASK_MOST asks later */
#define ASK_S	    5
#define ASK_MOST    4
#define QUEUED	    16 /* messages of a connection: the two sides take turns */
#define LINES	    10
#define DESCRIPTORS 24
#define MINUTE_NS   60000000000ull
#define EVENTS                                                                        \
	(ZMQ_EVENT_CONNECTED | ZMQ_EVENT_CONNECT_RETRIED | ZMQ_EVENT_ACCEPTED |       \
	 ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED |                     \
	 ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | \
	 ZMQ_EVENT_HANDSHAKE_FAILED_AUTH)

int socket_trust_read(struct socket_trust *trust, struct error *error)
{
	const char *file = trust->key_file ? trust->key_file : getenv("WEFT_KEY_FILE");
	const char *insecure = getenv("WEFT_INSECURE");

	bool without_key = false;

	if (insecure && !parse_flag(insecure, &without_key))
		return error_set(error, ERROR_CONFIG, "WEFT_INSECURE: '%.60s' is neither 1 nor 0",
				 insecure);
	trust->insecure |= without_key;
	trust->keyed = file && *file;
	return trust->keyed ? key_read(&trust->key, file, error) : 0;
}

/* ---- who ---- */

static void name(struct socket_peer *peer, const struct sockaddr *address, socklen_t bytes)
{
	char numbers[80] = "?", port[8] = "?";
	const char *shown = numbers;

	getnameinfo(address, bytes, numbers, sizeof(numbers), port, sizeof(port),
		    NI_NUMERICHOST | NI_NUMERICSERV);
	if (strncmp(numbers, "::ffff:", 7) == 0 && strchr(numbers, '.'))
		shown = numbers + 7; /* IPv4, as a socket of both families shows it */
	snprintf(peer->host, sizeof(peer->host), "%s", shown);
	snprintf(peer->text, sizeof(peer->text), strchr(shown, ':') ? "[%s]:%s" : "%s:%s", shown,
		 port);
}

/* All that libzmq tells of a connection that it accepted is the descriptor. */
static void name_descriptor(struct socket_peer *peer, int fd, const char *otherwise)
{
	struct sockaddr_storage address;
	socklen_t bytes = sizeof(address);

	peer->fd = fd;
	snprintf(peer->text, sizeof(peer->text), "%s", otherwise);
	snprintf(peer->host, sizeof(peer->host), "%s", otherwise);
	if (getpeername(fd, (struct sockaddr *)&address, &bytes) == 0)
		name(peer, (struct sockaddr *)&address, bytes);
}

void socket_tell(struct tool_socket *socket, const char *format, ...)
{
	uint64_t now = clock_ns();
	struct error line;
	va_list arguments;

	if (now >= socket->told_ns + MINUTE_NS) {
		if (socket->told > LINES)
			log_warn("and %u more like these", socket->told - LINES);
		socket->told_ns = now;
		socket->told = 0;
	}
	if (socket->told++ >= LINES)
		return;
	va_start(arguments, format);
	error_vset(&line, ERROR_MESSAGE, format, arguments);
	va_end(arguments);
	log_warn("%s", line.text);
}

/* ---- the monitor ---- */

static void gone(struct tool_socket *socket, int fd, const struct socket_peer *arrival)
{
	if (fd == socket->peer.fd)
		socket->lost = true;
	if (arrival->fd != fd)
		return;
	if (socket->failure)
		socket_tell(socket, "refused: %s, from %s", socket->failure, arrival->text);
	else
		socket_tell(socket, "not answered: %s said no hello; it is no weft tool%s",
			    arrival->text,
			    socket->keyed ? "" : ", or has a key and this side has none");
}

static void hear_serving(struct tool_socket *socket, uint16_t event, uint32_t value)
{
	struct socket_peer *arrival = &socket->arrivals[value % SOCKET_ARRIVALS];

	if (event == ZMQ_EVENT_ACCEPTED) {
		name_descriptor(arrival, (int)value, "a connection that has gone");
	} else if (event == ZMQ_EVENT_DISCONNECTED) {
		gone(socket, (int)value, arrival);
		arrival->fd = 0;
		socket->failure = NULL;
	} else if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
		socket->failure = NULL;
	} else if (socket->keyed) {
		socket->failure = "no key of this job";
	} else if (value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH) {
		socket->failure = "it has a key and this side has none (give --key FILE to both or "
				  "to neither)";
	}
}

/* Both sides find that one of them has no key; who closes first leaves the other without the reason. */
static void hear_asking(struct tool_socket *socket, uint16_t event, uint32_t value)
{
	struct error *why = &socket->why;

	if (event == ZMQ_EVENT_CONNECTED)
		socket->reached = true;
	else if (event == ZMQ_EVENT_CONNECT_RETRIED)
		socket->refused = true;
	else if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED)
		socket->met = true;
	else if (event == ZMQ_EVENT_DISCONNECTED && !socket->met && !why->code)
		error_set(why, ERROR_MESSAGE, "is no weft tool; is another program on that port?");
	else if (event == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL &&
		 value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH)
		error_set(why, ERROR_CONFIG,
			  socket->keyed ? "has no key and this side has one: give --key FILE to "
					  "both or to neither"
					: "wants a key: give the same one here, with --key FILE or "
					  "WEFT_KEY_FILE");
	else if (event != ZMQ_EVENT_DISCONNECTED)
		error_set(why, ERROR_CONFIG,
			  socket->keyed
				  ? "does not take this key: it has none or that of another job "
				    "(compare `weft key show FILE`), or is no weft tool"
				  : "broke off: it wants a key (--key FILE or WEFT_KEY_FILE), or "
				    "is no weft tool; is another program on that port?");
	socket->lost |= why->code || event == ZMQ_EVENT_DISCONNECTED;
}

/* An event is two frames: 16 bits of event and 32 of value, then an address of ours. */
static void hear(struct tool_socket *socket)
{
	unsigned char head[6], address[SOCKET_TEXT_BYTES];
	uint32_t value;
	uint16_t event;

	while (zmq_recv(socket->monitor, head, sizeof(head), ZMQ_DONTWAIT) == (int)sizeof(head) &&
	       zmq_recv(socket->monitor, address, sizeof(address), ZMQ_DONTWAIT) >= 0) {
		memcpy(&event, head, sizeof(event));
		memcpy(&value, head + sizeof(event), sizeof(value));
		(socket->serves ? hear_serving : hear_asking)(socket, event, value);
	}
}

/* ---- frames ---- */

/* The gate lets every role of the job in; two tools are observers. */
static bool take_sender(struct tool_socket *socket, zmq_msg_t *frame)
{
	const char *role = zmq_msg_gets(frame, "User-Id");
	const char *address = zmq_msg_gets(frame, "Peer-Address");
	int fd = zmq_msg_get(frame, ZMQ_SRCFD);

	name_descriptor(&socket->from, fd, address ? address : "?");
	socket->arrivals[(unsigned)fd % SOCKET_ARRIVALS].fd = 0;
	if (!socket->gate || (role && strcmp(role, key_role_name(KEY_OBSERVER)) == 0))
		return true;
	socket_tell(socket, "refused: the key of role %s, from %s", role ? role : "?",
		    socket->from.text);
	return false;
}

/* Parts of a message arrive together; of several, the last is the frame. */
static bool take(struct tool_socket *socket)
{
	struct socket_peer *from = &socket->from;
	int id_bytes = 0, bytes;
	zmq_msg_t frame;

	if (socket->serves)
		id_bytes = zmq_recv(socket->socket, from->id, sizeof(from->id), ZMQ_DONTWAIT);
	if (id_bytes < 0)
		return false;
	from->id_bytes = (size_t)id_bytes;
	zmq_msg_init(&frame);
	do
		bytes = zmq_msg_recv(&frame, socket->socket, ZMQ_DONTWAIT);
	while (bytes >= 0 && zmq_msg_more(&frame));
	socket->held = bytes >= 0 && bytes <= TOOL_MESSAGE_BYTES &&
		       (!socket->serves || take_sender(socket, &frame));
	if (socket->held)
		memcpy(socket->frame, zmq_msg_data(&frame), socket->length = (size_t)bytes);
	zmq_msg_close(&frame);
	return socket->held;
}

enum socket_news socket_wait(struct tool_socket *socket, uint64_t deadline_ns)
{
	for (;;) {
		zmq_pollitem_t items[3] = {{.socket = socket->socket, .events = ZMQ_POLLIN},
					   {.socket = socket->monitor, .events = ZMQ_POLLIN}};

		if (socket->gate) {
			items[2] = (zmq_pollitem_t){.socket = gate_socket(socket->gate),
						    .events = ZMQ_POLLIN};
			gate_step(socket->gate);
		}
		hear(socket);
		if (socket->held || take(socket))
			return SOCKET_FRAME;
		if (socket->lost)
			return SOCKET_LOST;
		if (clock_ns() >= deadline_ns)
			return SOCKET_QUIET;
		zmq_poll(items, socket->gate ? 3 : 2, clock_left_ms(deadline_ns));
	}
}

static bool same_id(const struct socket_peer *a, const struct socket_peer *b)
{
	return a->id_bytes == b->id_bytes && memcmp(a->id, b->id, a->id_bytes) == 0;
}

bool socket_from_peer(const struct tool_socket *socket)
{
	return !socket->serves || (socket->peer.fd && same_id(&socket->from, &socket->peer));
}

bool socket_from_last(const struct tool_socket *socket)
{
	return !socket->peer.fd && socket->peer.id_bytes && same_id(&socket->from, &socket->peer);
}

/* What the monitor has said until here is of earlier connections with that descriptor; whether this
 * one has ended by now is seen by the next send, which libzmq prepares when it is asked for events. */
void socket_take_peer(struct tool_socket *socket)
{
	int events;
	size_t bytes = sizeof(events);

	hear(socket);
	socket->peer = socket->from;
	socket->lost = false;
	zmq_getsockopt(socket->socket, ZMQ_EVENTS, &events, &bytes);
}

bool socket_send(struct tool_socket *socket, const struct socket_peer *to,
		 const unsigned char *bytes, size_t length)
{
	return (!socket->serves ||
		zmq_send(socket->socket, to->id, to->id_bytes, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0) &&
	       zmq_send(socket->socket, bytes, length, ZMQ_DONTWAIT) >= 0;
}

/* ---- opening and closing ---- */

static int set_options(struct tool_socket *socket)
{
	const struct {
		int option, value;
	} rows[] = {
		{ZMQ_LINGER, LINGER_MS},
		/* Nobody reads while a test runs: memory is bounded, although who resets a connection that
		 * is not read may end the tool (controller/connections.h). No heartbeats, for that. */
		{ZMQ_RCVHWM, QUEUED},
		{ZMQ_SNDHWM, QUEUED},
		{ZMQ_RECONNECT_IVL, RETRY_MS},
		{ZMQ_TCP_KEEPALIVE, 1},
		{ZMQ_TCP_KEEPALIVE_IDLE, IDLE_S},
		{ZMQ_TCP_KEEPALIVE_INTVL, ASK_S},
		{ZMQ_TCP_KEEPALIVE_CNT, ASK_MOST},
		{ZMQ_TCP_MAXRT, 1000 * (IDLE_S + ASK_S * ASK_MOST)},
		/* who asks has a deadline of his own, and a gate may be late that is in a test */
		{socket->serves ? ZMQ_ROUTER_MANDATORY : ZMQ_HANDSHAKE_IVL, socket->serves},
	};
	int64_t largest = TOOL_MESSAGE_BYTES;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (zmq_setsockopt(socket->socket, rows[i].option, &rows[i].value, sizeof(int)))
			return -1;
	return zmq_setsockopt(socket->socket, ZMQ_MAXMSGSIZE, &largest, sizeof(largest));
}

/* Unbounded: libzmq's thread would wait for room, and with it all that it does. */
static int watch(struct tool_socket *socket)
{
	int none = 0;

	if (zmq_socket_monitor(socket->socket, MONITOR, EVENTS))
		return -1;
	socket->monitor = zmq_socket(socket->context, ZMQ_PAIR);
	if (!socket->monitor || zmq_setsockopt(socket->monitor, ZMQ_RCVHWM, &none, sizeof(none)))
		return -1;
	return zmq_connect(socket->monitor, MONITOR);
}

static int use_key(struct tool_socket *socket, const struct key *key, struct error *error)
{
	int rc;

	if (!socket->serves)
		return curve_connect(socket->socket, key, KEY_OBSERVER, KEY_OBSERVER, error);
	rc = gate_open(&socket->gate, socket->context, key, error);
	return rc ? rc : curve_serve(socket->socket, key, KEY_OBSERVER, error);
}

static int open_socket(struct tool_socket **out, bool serves, const struct socket_trust *trust,
		       struct error *error)
{
	struct tool_socket *socket = memory_zalloc(1, sizeof(*socket));

	*out = socket;
	if (!socket)
		return memory_error(error, "opening a connection", sizeof(*socket));
	socket->serves = serves;
	socket->keyed = trust->keyed;
	socket->open = trust->keyed || trust->insecure;
	if (descriptors_check("the connection to the other side", DESCRIPTORS, error))
		return -ERROR_LIMIT;
	curve_seed_ids();
	socket->context = zmq_ctx_new();
	if (socket->context)
		socket->socket = zmq_socket(socket->context, serves ? ZMQ_ROUTER : ZMQ_DEALER);
	if (!socket->socket || set_options(socket) || watch(socket))
		return error_set(error, ERROR_IO, "no socket: %s", zmq_strerror(errno));
	return trust->keyed ? use_key(socket, &trust->key, error) : 0;
}

void socket_close(struct tool_socket **out)
{
	struct tool_socket *socket = *out;
	int none = 0;

	*out = NULL;
	if (!socket)
		return;
	if (socket->monitor) {
		hear(socket); /* is the last message's reader still there? */
		zmq_socket_monitor(socket->socket, NULL, 0);
		zmq_close(socket->monitor);
	}
	if (socket->socket && !socket->serves && (socket->lost || !socket->met))
		zmq_setsockopt(socket->socket, ZMQ_LINGER, &none, sizeof(none));
	if (socket->socket)
		zmq_close(socket->socket);
	gate_close(&socket->gate);
	if (socket->context)
		zmq_ctx_term(socket->context);
	memory_free(socket);
}

/* 0, or the errno. */
static int bind_to(struct tool_socket *socket, const char *host, uint16_t *port)
{
	char endpoint[SOCKET_TEXT_BYTES];
	size_t bytes = sizeof(endpoint);
	int six = *host == '[' || *host == '*'; /* which is of both families */

	zmq_setsockopt(socket->socket, ZMQ_IPV6, &six, sizeof(six));
	snprintf(endpoint, sizeof(endpoint), "tcp://%s:%u", host, *port);
	if (zmq_bind(socket->socket, endpoint))
		return errno;
	zmq_getsockopt(socket->socket, ZMQ_LAST_ENDPOINT, endpoint, &bytes);
	*port = (uint16_t)atoi(strrchr(endpoint, ':') + 1);
	return 0;
}

int socket_listen(struct tool_socket **out, const struct socket_trust *trust, uint16_t *port,
		  struct error *error)
{
	int errnum, rc = open_socket(out, true, trust, error);

	if (rc) {
		socket_close(out);
		return rc;
	}
	errnum = bind_to(*out, (*out)->open ? "*" : "127.0.0.1", port);
	if (!errnum && !(*out)->open && bind_to(*out, "[::1]", port) == EADDRINUSE)
		errnum = EADDRINUSE; /* anything else: this kernel has no IPv6 */
	if (!errnum && (*out)->open && !trust->keyed)
		log_warn("no key (--insecure): whoever reaches tcp://*:%u can be the other side of "
			 "this test and write into its memory",
			 *port);
	if (!errnum)
		return 0;
	socket_close(out);
	if (errnum == EADDRINUSE)
		return error_set(
			error, ERROR_CONFIG,
			"port %u of this host is in use: give another with --port, on both "
			"sides",
			*port);
	return error_set(error, ERROR_IO, "cannot listen on port %u: %s", *port,
			 zmq_strerror(errnum));
}

int socket_connect(struct tool_socket **out, const struct socket_trust *trust,
		   const struct addrinfo *to, struct error *error)
{
	int rc = open_socket(out, false, trust, error), six = to->ai_family == AF_INET6;
	char endpoint[SOCKET_TEXT_BYTES + 8];
	struct socket_peer peer;

	name(&peer, to->ai_addr, to->ai_addrlen);
	snprintf(endpoint, sizeof(endpoint), "tcp://%s", peer.text);
	if (!rc && (zmq_setsockopt((*out)->socket, ZMQ_IPV6, &six, sizeof(six)) ||
		    zmq_connect((*out)->socket, endpoint)))
		rc = error_set(error, ERROR_IO, "cannot connect to %s: %s", endpoint,
			       zmq_strerror(errno));
	if (rc)
		socket_close(out);
	return rc;
}

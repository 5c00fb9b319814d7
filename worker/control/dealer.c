/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/control/dealer.h"

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/reach.h"
#include "trust/curve.h"
#include "wire/limits.h"
#include "wire/parts.h"
#include "worker/control/connection.h"
#include "worker/launch/lookup.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <zmq.h>

#define LINGER_MS	 1000 /* how long a last message may take to leave */
#define RECONNECT_MS	 100
#define RECONNECT_MAX_MS 2000
#define HANDSHAKE_MS	 5000
#define SILENT_MS	 3000 /* until there is a rhythm */
#define KEY_MISSED_MS	 2000
#define LOOK_MS \
	300 /* a connection on its way is made by then, or who listens there is looked into */
#define KEY_LOOK_MS 50 /* whether rank 0 has put the key there */
#define ZMQ_DESCRIPTORS \
	16 /* a context with two sockets takes 10, and 3 a connection; zmq ends the process
			     * when it runs out in the middle of making them */

struct dealer {
	struct dealer_options options;
	char *address;
	void *context, *socket;
	bool heard; /* anything came */
	uint64_t heard_ms, dialed_ms;
	uint32_t silent_ms; /* see dealer_expect */

	bool connected, key_missed; /* missed: that was said */
	uint64_t opened_ms;
	ino_t key_inode;
	struct timespec key_changed; /* of the file when it was read */
	struct connection connection;
	struct lookup lookup;
	struct reach reach;

	unsigned char *sending; /* owned; NULL: nothing is half out */
	struct parts_out out;
	struct parts_in in;
	struct parts_budget budget;
	bool whole;	 /* `in` holds the last message received */
	zmq_msg_t frame; /* or this does */
};

const char *dealer_address(const struct dealer *dealer)
{
	return dealer->address;
}

bool dealer_is_connected(const struct dealer *dealer)
{
	return !dealer->connection.monitor || dealer->connection.made;
}

/* ---- opening ---- */

/* What is connected already is closed, and what was half sent with it is lost. */
static int dial(struct dealer *dealer, struct error *error)
{
	if (dealer->connected)
		zmq_disconnect(dealer->socket, dealer->address);
	dealer->connected = true;
	dealer->dialed_ms = clock_ms();
	memory_free(dealer->sending);
	dealer->sending = NULL;
	if (zmq_connect(dealer->socket, dealer->address) == 0)
		return 0;
	return error_set(error, ERROR_CONFIG,
			 "controller address '%s' is not usable: %s; write it as tcp://host:29600",
			 dealer->address, zmq_strerror(errno));
}

static int connect_keyed(struct dealer *dealer, struct error *error)
{
	const char *path = dealer->options.key_file;
	struct key key;
	int rc = 0;

	if (*path) {
		rc = key_read(&key, path, error);
		if (!rc && (rc = curve_connect(dealer->socket, &key, dealer->options.role, KEY_JOB,
					       error)))
			error_wrap(error, "%s", path);
		key_forget(&key);
		if (rc)
			return rc;
	}
	return dial(dealer, error);
}

static int open_socket(struct dealer *dealer, struct error *error)
{
	const struct {
		int option, value;
	} rows[] = {
		{ZMQ_LINGER, LINGER_MS},
		{ZMQ_RECONNECT_IVL, RECONNECT_MS},
		{ZMQ_RECONNECT_IVL_MAX, RECONNECT_MAX_MS},
		{ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS},
		{ZMQ_TCP_KEEPALIVE, 1},
		{ZMQ_RCVHWM, 0}, /* see controller/connections.h */
		{ZMQ_IPV6, 1},	 /* names may be both */
	};
	int64_t largest = PART_WIRE_BYTES;
	int rc = descriptors_check("the control channel", ZMQ_DESCRIPTORS, error);

	if (rc)
		return rc;
	dealer->context = zmq_ctx_new();
	if (dealer->context)
		dealer->socket = zmq_socket(dealer->context, ZMQ_DEALER);
	if (!dealer->socket)
		return error_set(error, ERROR_IO, "no control socket: %s", zmq_strerror(errno));
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		zmq_setsockopt(dealer->socket, rows[i].option, &rows[i].value, sizeof(int));
	zmq_setsockopt(dealer->socket, ZMQ_MAXMSGSIZE, &largest, sizeof(largest));
	connection_open(&dealer->connection, dealer->context, dealer->socket,
			*dealer->options.key_file);
	return dealer->options.key_waits ? 0 : connect_keyed(dealer, error);
}

int dealer_open(struct dealer **out, const struct dealer_options *options, struct error *error)
{
	struct dealer *dealer = memory_zalloc(1, sizeof(*dealer));
	int rc;

	*out = NULL;
	if (!dealer)
		return memory_error(error, "opening the control channel", sizeof(*dealer));
	zmq_msg_init(&dealer->frame);
	reach_init(&dealer->reach);
	dealer->options = *options;
	dealer->options.key_waits &= *options->key_file != '\0';
	dealer->opened_ms = clock_ms();
	dealer->silent_ms = SILENT_MS;
	dealer->budget.most = 2 * (size_t)LIMIT_MESSAGE_BYTES;
	dealer->address = memory_string(options->address);
	rc = dealer->address ? open_socket(dealer, error)
			     : memory_error(error, "opening the control channel",
					    strlen(options->address) + 1);
	if (rc) {
		dealer_close(&dealer);
		return rc;
	}
	lookup_init(&dealer->lookup, dealer->address, options->wake);
	*out = dealer;
	return 0;
}

void dealer_close(struct dealer **where)
{
	struct dealer *dealer = *where;
	int linger = 0;

	if (!dealer)
		return;
	lookup_fini(&dealer->lookup);
	reach_stop(&dealer->reach);
	zmq_msg_close(&dealer->frame);
	/* what nobody answered would only make the end wait for nobody */
	if (dealer->socket && !dealer->heard)
		zmq_setsockopt(dealer->socket, ZMQ_LINGER, &linger, sizeof(linger));
	if (dealer->socket) {
		connection_close(&dealer->connection, dealer->socket);
		zmq_close(dealer->socket);
	}
	if (dealer->context)
		zmq_ctx_term(dealer->context);
	parts_drop(&dealer->in, &dealer->budget);
	memory_free(dealer->sending);
	memory_free(dealer->address);
	memory_free(dealer);
	*where = NULL;
}

/* ---- why the controller is not reached ---- */

/* Rank 0 puts the key there when it starts the controller; what lies there before is of an earlier
 * launch, and its controller is never heard. The others of a launch are often a little ahead of rank 0,
 * so a key that is missing is no news at once. */
static bool take_key(struct dealer *dealer, struct error *why)
{
	const char *path = dealer->options.key_file;
	struct stat about;

	if (stat(path, &about)) {
		if (dealer->key_missed || clock_ms() < dealer->opened_ms + KEY_MISSED_MS)
			return false;
		dealer->key_missed = true;
		error_set(why, ERROR_CONTROLLER_LOST,
			  "there is no key %s, which rank 0 makes when it starts the controller: "
			  "has it started, on this host and as this user?",
			  path);
		return true;
	}
	if (about.st_ino == dealer->key_inode &&
	    about.st_ctim.tv_sec == dealer->key_changed.tv_sec &&
	    about.st_ctim.tv_nsec == dealer->key_changed.tv_nsec)
		return false;
	dealer->key_inode = about.st_ino;
	dealer->key_changed = about.st_ctim;
	return connect_keyed(dealer, why) != 0;
}

static void dial_anew(struct dealer *dealer)
{
	struct error unusable;

	if (dial(dealer, &unusable))
		log_warn_of(unusable.code, "%s", unusable.text);
}

/* A handshake that failed says more; and a connection that nobody answers at all, without a refusal, or that
 * was made with a program of another kind, is seen by its silence. */
static bool look_there(struct dealer *dealer, uint64_t now, struct error *why)
{
	const struct connection *connection = &dealer->connection;
	socklen_t bytes;
	const struct sockaddr *address = lookup_address(&dealer->lookup, &bytes);

	if (!dealer->connected || connection->made || connection->said ||
	    now < dealer->dialed_ms + LOOK_MS) {
		reach_stop(&dealer->reach);
		return false;
	}
	return reach_step(&dealer->reach, address, bytes, now, why);
}

bool dealer_news(struct dealer *dealer, struct error *why)
{
	uint64_t now = clock_ms();
	bool news = connection_step(&dealer->connection, why);

	if (connection_is_due(&dealer->connection, now))
		dial_anew(dealer);
	if (dealer->heard)
		return false;
	/* without an address there is no connection to speak of */
	if (news && dealer->lookup.done)
		return true;
	return (dealer->options.key_waits && take_key(dealer, why)) ||
	       lookup_step(&dealer->lookup, now, why) || look_there(dealer, now, why);
}

/* ---- messages ---- */

/* False: the queue is full, and the rest goes later. */
static bool push(struct dealer *dealer, struct parts_out *out)
{
	unsigned char frame[PART_BYTES];
	size_t bytes;

	while ((bytes = parts_next(out, frame)) > 0) {
		if (zmq_send(dealer->socket, frame, bytes, ZMQ_DONTWAIT) < 0)
			return false;
		parts_sent(out);
	}
	return true;
}

bool dealer_send(struct dealer *dealer, unsigned char *bytes, size_t length)
{
	struct parts_out out = {.bytes = bytes, .length = length, .number = dealer->out.number + 1};
	bool large = length > PART_BYTES, sent = false;

	/* parts of two messages must not come between each other */
	if (!large || !dealer->sending) {
		sent = push(dealer, &out);
		if (large)
			dealer->out = out;
		if (large && !sent) {
			dealer->sending = bytes;
			return true;
		}
	}
	memory_free(bytes);
	return sent;
}

void dealer_expect(struct dealer *dealer, uint32_t silent_ms)
{
	dealer->silent_ms = silent_ms;
}

/* A connection can stand and carry nothing: a length that was broken on the way, an address translation that was
 * forgotten. */
static void check_silence(struct dealer *dealer)
{
	uint64_t now = clock_ms(), since = dealer->heard_ms;

	if (since < dealer->dialed_ms)
		since = dealer->dialed_ms;
	if (!dealer->connected || now < since + dealer->silent_ms)
		return;
	log_info("nothing came from the controller for %.1f s: connecting anew",
		 (double)(now - since) / 1000.0);
	dial_anew(dealer);
}

void dealer_wait(struct dealer *dealer, int fd, long ms)
{
	zmq_pollitem_t items[4] = {
		{.socket = dealer->socket, .events = ZMQ_POLLIN},
		{.fd = fd, .events = ZMQ_POLLIN},
	};
	int count = 2;
	long due = connection_due_in_ms(&dealer->connection, clock_ms());

	if (dealer->sending)
		items[0].events |= ZMQ_POLLOUT;
	if (dealer->options.key_waits && !dealer->heard && ms > KEY_LOOK_MS)
		ms = KEY_LOOK_MS;
	if (due >= 0 && due < ms)
		ms = due;
	if (dealer->connection.monitor)
		items[count++] = (zmq_pollitem_t){.socket = dealer->connection.monitor,
						  .events = ZMQ_POLLIN};
	if (dealer->reach.fd >= 0)
		items[count++] = (zmq_pollitem_t){.fd = dealer->reach.fd, .events = ZMQ_POLLOUT};
	if (!dealer->heard && ms > LOOK_MS)
		ms = LOOK_MS;
	zmq_poll(items, count, ms);
	if (!(items[0].revents & ZMQ_POLLIN))
		check_silence(dealer);
	if (dealer->sending && push(dealer, &dealer->out)) {
		memory_free(dealer->sending);
		dealer->sending = NULL;
	}
}

/* A stray frame part of zmq is a message of its own and fails to decode. */
bool dealer_receive(struct dealer *dealer, const unsigned char **bytes, size_t *length,
		    struct error *error)
{
	int rc;

	*error = (struct error){0};
	if (dealer->whole)
		parts_drop(&dealer->in, &dealer->budget);
	dealer->whole = false;
	while (zmq_msg_recv(&dealer->frame, dealer->socket, ZMQ_DONTWAIT) >= 0) {
		dealer->heard = true;
		dealer->heard_ms = clock_ms();
		lookup_stop(&dealer->lookup);
		*bytes = zmq_msg_data(&dealer->frame);
		*length = zmq_msg_size(&dealer->frame);
		if (!parts_is(*bytes, *length))
			return true;
		rc = parts_take(&dealer->in, &dealer->budget, *bytes, *length, LIMIT_MESSAGE_BYTES,
				error);
		if (rc < 0)
			return true;
		if (rc == 1) {
			dealer->whole = true;
			*bytes = dealer->in.bytes;
			*length = dealer->in.total;
			return true;
		}
	}
	return false;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/channel.h"

#include "base/array.h"
#include "base/clock.h"
#include "base/descriptors.h"
#include "base/hash.h"
#include "base/log.h"
#include "controller/connections.h"
#include "controller/listen.h"
#include "trust/curve.h"
#include "wire/parts.h"

#include <errno.h>
#include <stdio.h>
#include <zmq.h>

#define LINGER_MS    2000  /* how long last messages may take to leave */
#define PIPE_FRAMES  64	   /* of one connection in memory, before they are on the wire */
#define DROPS	     1000  /* frames of no use, until something else has its turn */
#define RETRY_MS     10	   /* between two tries to send what is kept */
#define BACKLOG	     1024  /* connections that wait to be accepted */
#define HANDSHAKE_MS 10000 /* for who connects to say who he is */
#define IDLE_S	     10	   /* of a connection, before its other end is asked whether it is there */
#define ASK_S	     5
#define ASK_MOST     4

/* What frames of strangers cost, of CONNECTIONS_COST_MOST. A worker that nobody answers says hello once a second. One
 * that has connected anew is a stranger until its next heartbeat, and may be in the middle of a large message,
 * of which a whole part costs nothing to drop. */
#define COST_FRAME	256
#define COST_UNREADABLE 1024
#define COST_PART	4
#define DESCRIPTORS	40   /* of a context with three sockets, and of the rest of the process */
#define STRANGERS	2048 /* connections beside the workers' */
/* Without a key: routing ids are given one after the other, and who connects without end meets one that he claimed. */
#define STRANGERS_OPEN 128
#define OPEN_AT_ONCE   32 /* beside two for each worker */
#define OPEN_A_SECOND  32
#define COLLECT_BYTES  ((size_t)512 << 20) /* of all members' messages that are not whole yet */

struct kept {
	char peer[PEER_BYTES];
	unsigned char *bytes; /* owned */
	struct parts_out out;
};

struct collected {
	char peer[PEER_BYTES];
	struct parts_in in;
};

struct channel {
	struct channel_options options;
	void *context, *socket;
	struct gate *gate;
	struct tally refused;
	struct connections connections;
	ARRAY(struct kept) kept;
	uint32_t number; /* of the last message in parts */
	ARRAY(struct collected) collected;
	struct parts_budget budget;
	zmq_msg_t frame;      /* of the last message received */
	uint64_t from;	      /* who sent it, as a hash */
	unsigned char *whole; /* or this: it came in parts */
};

/* ---- ids ---- */

/* A routing id as text: itself when printable, else "#" and hex digits. */
static bool peer_text(const unsigned char *id, size_t bytes, char out[PEER_BYTES])
{
	static const char digits[] = "0123456789abcdef";
	bool plain = bytes > 0 && id[0] != '#';

	for (size_t i = 0; i < bytes; i++)
		plain &= id[i] > 0x20 && id[i] < 0x7f;
	if (plain ? bytes >= PEER_BYTES : 2 * bytes + 2 > PEER_BYTES)
		return false;
	if (plain) {
		memcpy(out, id, bytes);
		out[bytes] = '\0';
		return true;
	}
	*out++ = '#';
	for (size_t i = 0; i < bytes; i++) {
		*out++ = digits[id[i] >> 4];
		*out++ = digits[id[i] & 15];
	}
	*out = '\0';
	return true;
}

static size_t peer_id(const char *peer, unsigned char id[PEER_BYTES])
{
	size_t bytes = strlen(peer);

	if (peer[0] != '#') {
		memcpy(id, peer, bytes);
		return bytes;
	}
	for (size_t i = 0; i < bytes / 2; i++) {
		unsigned int byte = 0;

		sscanf(peer + 1 + 2 * i, "%2x", &byte);
		id[i] = (unsigned char)byte;
	}
	return bytes / 2;
}

/* ---- out ---- */

/* 0: all of it is on its way; EAGAIN: the peer's pipe is full; another errno: the peer is gone. */
static int push(struct channel *channel, const char *peer, struct parts_out *out)
{
	unsigned char id[PEER_BYTES], frame[PART_BYTES];
	size_t id_bytes = peer_id(peer, id), bytes;

	while ((bytes = parts_next(out, frame)) > 0) {
		if (zmq_send(channel->socket, id, id_bytes, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0 ||
		    zmq_send(channel->socket, frame, bytes, ZMQ_DONTWAIT) < 0)
			return errno;
		parts_sent(out);
	}
	return 0;
}

static bool keeps(const struct channel *channel, const char *peer)
{
	array_each(kept, &channel->kept)
		if (!strcmp(kept->peer, peer))
			return true;
	return false;
}

bool channel_send(struct channel *channel, const char *peer, unsigned char *bytes, size_t length)
{
	struct kept one = {.bytes = bytes, .out = {.bytes = bytes, .length = length}};
	bool large = length > PART_BYTES;
	int rc = EAGAIN;

	/* its parts would come between those of the one that is kept */
	if (!large || !keeps(channel, peer)) {
		one.out.number = ++channel->number;
		rc = push(channel, peer, &one.out);
		snprintf(one.peer, sizeof(one.peer), "%s", peer);
		if (rc == EAGAIN && large && array_add(&channel->kept, one))
			return true;
	}
	memory_free(bytes);
	return rc == 0;
}

static void push_kept(struct channel *channel)
{
	size_t left = 0;

	array_each(kept, &channel->kept) {
		if (push(channel, kept->peer, &kept->out) == EAGAIN)
			channel->kept.items[left++] = *kept;
		else
			memory_free(kept->bytes);
	}
	channel->kept.count = left;
}

/* ---- in ---- */

static struct collected *collected_of(struct channel *channel, const char *peer)
{
	struct collected *made;

	array_each(collected, &channel->collected) {
		if (!strcmp(collected->peer, peer))
			return collected;
	}
	made = array_push(&channel->collected);
	if (made)
		snprintf(made->peer, sizeof(made->peer), "%s", peer);
	return made;
}

static void collected_drop(struct channel *channel, struct collected *collected)
{
	size_t behind = --channel->collected.count - (size_t)(collected - channel->collected.items);

	parts_drop(&collected->in, &channel->budget);
	memmove(collected, collected + 1, behind * sizeof(*collected));
}

/* True: *frame has the whole message, or an error. */
static bool collect(struct channel *channel, struct channel_frame *frame)
{
	struct collected *collected;
	int rc;

	/* a member that has just connected anew says so with its next heartbeat, and the rest again */
	if (!channel->options.is_member(channel->options.context, frame->peer)) {
		log_debug("dropped: a part of a large message from %s, which is no member",
			  frame->peer);
		return false;
	}
	collected = collected_of(channel, frame->peer);
	if (!collected) {
		memory_error(&frame->error, "collecting a message", sizeof(*collected));
		return true;
	}
	rc = parts_take(&collected->in, &channel->budget, frame->bytes, frame->length,
			LIMIT_MESSAGE_BYTES, &frame->error);
	if (rc == 1) {
		channel->whole = collected->in.bytes;
		frame->bytes = channel->whole;
		frame->length = collected->in.total;
		collected->in.bytes = NULL; /* ours from here on */
	}
	if (rc)
		collected_drop(channel, collected);
	/* Who left in the middle of a message, perhaps, is forgotten: the oldest. This one is sent again, and has
	 * room then. */
	if (rc == -(int)ERROR_LIMIT && channel->collected.count)
		collected_drop(channel, channel->collected.items);
	return rc != 0;
}

/* One message: routing id and one frame. Further frames are read away, and make it malformed. False:
 * nothing was waiting. */
static bool receive(struct channel *channel, zmq_msg_t *id, bool *more)
{
	zmq_msg_t rest;
	bool follows;

	*more = false;
	if (zmq_msg_recv(id, channel->socket, ZMQ_DONTWAIT) < 0 || !zmq_msg_more(id) ||
	    zmq_msg_recv(&channel->frame, channel->socket, ZMQ_DONTWAIT) < 0)
		return false;
	follows = zmq_msg_more(&channel->frame);
	while (follows) { /* the parts of a message arrive together */
		*more = true;
		zmq_msg_init(&rest);
		follows = zmq_msg_recv(&rest, channel->socket, ZMQ_DONTWAIT) >= 0 &&
			  zmq_msg_more(&rest);
		zmq_msg_close(&rest);
	}
	return true;
}

static bool hear(struct channel *channel, uint32_t cost)
{
	return connections_hear(&channel->connections, channel->from,
				zmq_msg_get(&channel->frame, ZMQ_SRCFD), cost);
}

void channel_unreadable(struct channel *channel)
{
	hear(channel, COST_UNREADABLE);
}

/* False: it is a stranger's, who has said enough. */
static bool is_heard(struct channel *channel, const struct channel_frame *frame)
{
	if (!channel->options.is_member(channel->options.context, frame->peer))
		return hear(channel, frame->length == PART_BYTES ? COST_PART : COST_FRAME);
	connections_member(&channel->connections, zmq_msg_get(&channel->frame, ZMQ_SRCFD));
	return true;
}

/* False: it is of no use, or not whole yet. */
static bool take(struct channel *channel, zmq_msg_t *id, bool more, struct channel_frame *frame)
{
	*frame = (struct channel_frame){
		.bytes = zmq_msg_data(&channel->frame),
		.length = zmq_msg_size(&channel->frame),
		.key_role = channel->options.key ? zmq_msg_gets(&channel->frame, "User-Id") : NULL,
	};
	channel->from = hash_keyed(zmq_msg_data(id), zmq_msg_size(id));
	/* of who has said too much libzmq's thread may have read millions of frames: each is to cost little */
	if (!hear(channel, 0))
		return false;
	if (!peer_text(zmq_msg_data(id), zmq_msg_size(id), frame->peer)) {
		channel_unreadable(channel);
		return false; /* no worker has such an id, and no text could name it */
	}
	if (channel->options.key && !frame->key_role)
		return false; /* the gate lets nobody in without */
	if (!is_heard(channel, frame))
		return false;
	if (more)
		error_set(&frame->error, ERROR_MESSAGE,
			  "a message of several frames, one is expected");
	else if (parts_is(frame->bytes, frame->length))
		return collect(channel, frame);
	return true;
}

bool channel_receive(struct channel *channel, struct channel_frame *frame)
{
	zmq_msg_t id;
	bool more, got, taken = false;
	unsigned looked = 0;

	memory_free(channel->whole);
	channel->whole = NULL;
	zmq_msg_init(&id);
	do {
		got = receive(channel, &id, &more);
		taken = got && take(channel, &id, more, frame);
	} while (got && !taken && ++looked < DROPS);
	zmq_msg_close(&id);
	return taken;
}

/* ---- waiting ---- */

static void tell_refused(struct channel *channel)
{
	const char *address;
	uint64_t more;

	channel->refused.count = gate_refused(channel->gate, &address);
	more = tally_due(&channel->refused, clock_ms());
	if (more)
		log_warn("connections refused %s: %llu, the last from %s",
			 channel->options.key ? "for want of a key of this job"
					      : "as too many came in a second",
			 (unsigned long long)more, address);
}

uint64_t channel_refused(const struct channel *channel)
{
	return channel->refused.count + channel->connections.failed.count;
}

bool channel_wait(struct channel *channel, int fd, int ms)
{
	zmq_pollitem_t items[4] = {
		{.socket = channel->socket, .events = ZMQ_POLLIN},
		{.fd = fd, .events = ZMQ_POLLIN},
		{.socket = channel->connections.monitor, .events = ZMQ_POLLIN},
		{.socket = gate_socket(channel->gate), .events = ZMQ_POLLIN},
	};

	if (channel->kept.count && (ms < 0 || ms > RETRY_MS))
		ms = RETRY_MS;
	if (ms < 0 || ms > CONNECTIONS_LOOK_MS)
		ms = CONNECTIONS_LOOK_MS;
	zmq_poll(items, 4, ms);
	gate_step(channel->gate);
	tell_refused(channel);
	connections_step(&channel->connections);
	push_kept(channel);
	return items[1].revents != 0;
}

/* ---- opening ---- */

static int set_options(struct channel *channel, struct error *error)
{
	const struct {
		int option, value;
	} rows[] = {
		{ZMQ_LINGER, LINGER_MS},
		{ZMQ_ROUTER_MANDATORY, 1},
		{ZMQ_IPV6, 1},
		{ZMQ_BACKLOG, BACKLOG}, /* what is beyond it tries again after a second */
		{ZMQ_RCVHWM, 0},	/* controller/connections.h bounds it, and says why */
		{ZMQ_SNDHWM, PIPE_FRAMES},
		{ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS},
		{ZMQ_TCP_KEEPALIVE, 1},
		{ZMQ_TCP_KEEPALIVE_IDLE, IDLE_S},
		{ZMQ_TCP_KEEPALIVE_INTVL, ASK_S},
		{ZMQ_TCP_KEEPALIVE_CNT, ASK_MOST},
		{ZMQ_TCP_MAXRT, 1000 * (IDLE_S + ASK_S * ASK_MOST)},
	};
	int64_t largest = PART_WIRE_BYTES;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (zmq_setsockopt(channel->socket, rows[i].option, &rows[i].value, sizeof(int)))
			return error_set(error, ERROR_IO, "control socket option %d: %s",
					 rows[i].option, zmq_strerror(errno));
	if (zmq_setsockopt(channel->socket, ZMQ_MAXMSGSIZE, &largest, sizeof(largest)))
		return error_set(error, ERROR_IO, "control socket: %s", zmq_strerror(errno));
	return 0;
}

/* As many connections as descriptors allow, each worker twice (it may connect anew before the old one is
 * found gone). */
static int open_connections(struct channel *channel, struct error *error)
{
	uint64_t limit = descriptors_raise(), workers = channel->options.workers;
	uint64_t least = DESCRIPTORS + workers;
	uint64_t most = (channel->options.key ? STRANGERS : STRANGERS_OPEN) + 2 * workers;

	if (limit < least)
		return error_set(
			error, ERROR_LIMIT,
			"a job of %llu workers needs %llu file descriptors, this process may "
			"open %llu: raise ulimit -n (its hard limit)",
			(unsigned long long)workers, (unsigned long long)least,
			(unsigned long long)limit);
	if (most > limit - DESCRIPTORS)
		most = limit - DESCRIPTORS;
	return connections_open(&channel->connections, channel->context, channel->socket,
				channel->options.key != NULL, most, error);
}

static int open_keys(struct channel *channel, struct error *error)
{
	const struct key *key = channel->options.key;
	int rc;

	if (!key)
		return gate_open_to_all(&channel->gate, channel->context, channel->socket,
					OPEN_AT_ONCE + 2 * channel->options.workers, OPEN_A_SECOND,
					error);
	rc = gate_open(&channel->gate, channel->context, key, error);
	return rc ? rc : curve_serve(channel->socket, key, KEY_JOB, error);
}

static int listen_on(struct channel *channel, struct error *error)
{
	const struct channel_options *options = &channel->options;
	const char *address = options->bind ? options->bind : listen_default(options->key);
	char endpoint[512] = "";
	size_t bytes = sizeof(endpoint);

	if (listen_check(address, options->key, options->insecure, error))
		return -ERROR_CONFIG;
	if (!options->key && listen_is_open(address))
		log_warn("no key (--insecure): whoever reaches %s can join this job as any rank, "
			 "send its engines other weights, read its plans and end it",
			 address);
	if (zmq_bind(channel->socket, address)) {
		int number = errno;

		return error_set(
			error, number == EADDRINUSE ? ERROR_IO : ERROR_CONFIG,
			"cannot listen on %s: %s; %s", address, zmq_strerror(number),
			number == EADDRINUSE
				? "another controller may be running: stop it, or choose "
				  "another port with --bind"
				: "write --bind as tcp://*:29600 or tcp://ADDRESS:PORT, with an "
				  "address of this host");
	}
	zmq_getsockopt(channel->socket, ZMQ_LAST_ENDPOINT, endpoint, &bytes);
	listen_say(endpoint);
	if (options->port_file)
		return listen_write_port(options->port_file, endpoint, error);
	return 0;
}

int channel_open(struct channel **out, const struct channel_options *options, struct error *error)
{
	struct channel *channel = memory_zalloc(1, sizeof(*channel));
	int rc;

	*out = NULL;
	if (!channel)
		return memory_error(error, "opening the control socket", sizeof(*channel));
	channel->options = *options;
	channel->budget.most = COLLECT_BYTES;
	zmq_msg_init(&channel->frame);
	rc = descriptors_check("the control socket", DESCRIPTORS - 8, error);
	if (rc) {
		memory_free(channel);
		return rc;
	}
	curve_seed_ids();
	channel->context = zmq_ctx_new();
	channel->socket = channel->context ? zmq_socket(channel->context, ZMQ_ROUTER) : NULL;
	rc = channel->socket
		     ? set_options(channel, error)
		     : error_set(error, ERROR_IO, "no control socket: %s", zmq_strerror(errno));
	if (!rc)
		rc = open_connections(channel, error);
	if (!rc)
		rc = open_keys(channel, error);
	if (!rc)
		rc = listen_on(channel, error);
	if (rc)
		channel_close(&channel);
	*out = channel;
	return rc;
}

void channel_close(struct channel **where)
{
	struct channel *channel = *where;

	if (!channel)
		return;
	zmq_msg_close(&channel->frame);
	connections_close(&channel->connections, channel->socket);
	if (channel->socket)
		zmq_close(channel->socket);
	gate_close(&channel->gate);
	if (channel->context)
		zmq_ctx_term(channel->context);
	array_each(kept, &channel->kept)
		memory_free(kept->bytes);
	array_free(&channel->kept);
	while (channel->collected.count)
		collected_drop(channel, channel->collected.items);
	array_free(&channel->collected);
	memory_free(channel->whole);
	memory_free(channel);
	*where = NULL;
}

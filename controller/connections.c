/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/connections.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"

#include <string.h>
#include <sys/socket.h>
#include <zmq.h>

#define ADDRESS "inproc://weft-connections"
/* A worker connects anew when it hears nothing for a third of --lost-after: with the usual one after 1.7 s. */
#define STOOD_STILL_MS 1500
#define FAILED	       (ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL)

int connections_open(struct connections *connections, void *context, void *socket, bool keyed,
		     uint64_t most, struct error *error)
{
	int linger = 0, unbounded = 0; /* else libzmq's thread would wait for room */

	*connections = (struct connections){.keyed = keyed, .most = most, .looked_ms = clock_ms()};
	connections->said = memory_zalloc(CONNECTIONS_PEERS, sizeof(*connections->said));
	if (!connections->said)
		return memory_error(error, "the costs of strangers",
				    CONNECTIONS_PEERS * sizeof(*connections->said));
	if (zmq_socket_monitor(socket, ADDRESS,
			       ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED | FAILED) == 0)
		connections->monitor = zmq_socket(context, ZMQ_PAIR);
	if (!connections->monitor ||
	    zmq_setsockopt(connections->monitor, ZMQ_RCVHWM, &unbounded, sizeof(unbounded)) ||
	    zmq_connect(connections->monitor, ADDRESS))
		return error_set(error, ERROR_IO, "control socket: no monitor: %s",
				 zmq_strerror(zmq_errno()));
	zmq_setsockopt(connections->monitor, ZMQ_LINGER, &linger, sizeof(linger));
	return 0;
}

void connections_close(struct connections *connections, void *socket)
{
	memory_free(connections->said);
	connections->said = NULL;
	array_free(&connections->by_descriptor);
	if (!connections->monitor)
		return;
	zmq_socket_monitor(socket, NULL, 0);
	zmq_close(connections->monitor);
	connections->monitor = NULL;
}

/* 16 bits of event and 32 of value, of an accepted connection its descriptor; then a frame with the address. 0: none. */
static uint16_t next(void *monitor, int32_t *descriptor)
{
	unsigned char head[6];
	zmq_msg_t frame;
	uint16_t event = 0;
	bool more;

	zmq_msg_init(&frame);
	do {
		if (zmq_msg_recv(&frame, monitor, ZMQ_DONTWAIT) < 0)
			break;
		if (!event && zmq_msg_size(&frame) == sizeof(head)) {
			memcpy(head, zmq_msg_data(&frame), sizeof(head));
			memcpy(&event, head, sizeof(event));
			memcpy(descriptor, head + sizeof(event), sizeof(*descriptor));
		}
		more = zmq_msg_more(&frame);
	} while (more);
	zmq_msg_close(&frame);
	return event;
}

/* The descriptor may be another connection's already: then that one is made anew, which its owner does by
 * himself. */
static void end(int descriptor)
{
	static const struct sockaddr nobody = {.sa_family = AF_UNSPEC};

	if (connect(descriptor, &nobody, sizeof(nobody)))
		shutdown(descriptor, SHUT_RDWR);
}

/* NULL: no memory for it, or not a descriptor. */
static struct connection *connection_on(struct connections *connections, int descriptor)
{
	while (descriptor >= 0 && connections->by_descriptor.count <= (size_t)descriptor)
		if (!array_push(&connections->by_descriptor))
			return NULL;
	return descriptor < 0 ? NULL : &connections->by_descriptor.items[descriptor];
}

void connections_member(struct connections *connections, int descriptor)
{
	struct connection *connection = connection_on(connections, descriptor);

	if (connection)
		connection->member = true;
}

bool connections_hear(struct connections *connections, uint64_t peer, int descriptor, uint32_t cost)
{
	struct said *said = &connections->said[peer % CONNECTIONS_PEERS];
	uint64_t now = clock_ms();

	if (said->peer != peer)
		*said = (struct said){.peer = peer, .since_ms = now};
	if (now >= said->since_ms + 1000) {
		said->since_ms = now;
		said->cost = 0;
	}
	said->cost += cost;
	if (said->cost > CONNECTIONS_COST_MOST && !said->ended) {
		said->ended = true;
		end(descriptor);
		connections->ended.count++;
	}
	return !said->ended;
}

static void turn_away(struct connections *connections, int descriptor)
{
	end(descriptor);
	connections->turned_away.count++;
	connections->shut++;
}

/* Members' connections stay, whoever else comes. */
static void make_room(struct connections *connections)
{
	int oldest = -1;

	array_each(connection, &connections->by_descriptor)
		if (connection->number && !connection->member &&
		    (oldest < 0 ||
		     connection->number < connections->by_descriptor.items[oldest].number))
			oldest = (int)(connection - connections->by_descriptor.items);
	if (oldest < 0)
		return;
	turn_away(connections, oldest);
	connections->by_descriptor.items[oldest].number = 0;
}

static void begin(struct connections *connections, int descriptor)
{
	struct connection *connection = connection_on(connections, descriptor);

	connections->open++;
	if (connection)
		*connection = (struct connection){.number = ++connections->accepted};
	if (connections->open > connections->most)
		make_room(connections);
}

static void ended(struct connections *connections, int descriptor)
{
	struct connection *connection = connection_on(connections, descriptor);

	connections->open -= connections->open > 0;
	if (connection)
		*connection = (struct connection){0};
}

static void tell(struct tally *tally, const char *of_them)
{
	uint64_t more = tally_due(tally, clock_ms());

	if (more)
		log_warn("connections %s: %llu", of_them, (unsigned long long)more);
}

/* libzmq's own thread stood still too, and tells of them within moments. */
static void look(struct connections *connections)
{
	uint64_t now = clock_ms(), gap = now - connections->looked_ms;

	if (gap >= STOOD_STILL_MS)
		connections->forgiven_ms = now + STOOD_STILL_MS;
	connections->looked_ms = now;
}

void connections_step(struct connections *connections)
{
	int32_t descriptor;
	uint16_t event;

	look(connections);
	while ((event = next(connections->monitor, &descriptor)) != 0) {
		if (event == ZMQ_EVENT_DISCONNECTED)
			ended(connections, descriptor);
		else if (event & FAILED && connections->shut)
			connections->shut--;
		else if (event & FAILED)
			connections->failed.count +=
				connections->looked_ms >= connections->forgiven_ms;
		else
			begin(connections, descriptor);
	}
	tell(&connections->turned_away, "that were turned away, as there are too many");
	tell(&connections->failed,
	     connections->keyed
		     ? "that broke off before they were made, of who has no key of this job or is no worker"
		     : "that broke off before they were made, of who has a key (this controller has "
		       "none) or is no worker");
	tell(&connections->ended, "that were ended, as they said what no worker says, or too much");
}

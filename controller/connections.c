/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/connections.h"

#include "base/clock.h"
#include "base/log.h"
#include <string.h>
#include <sys/socket.h>
#include <zmq.h>

#define ADDRESS "inproc://weft-connections"
#define FAILED	(ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL)

int connections_open(struct connections *connections, void *context, void *socket, bool keyed,
		     uint64_t most, struct error *error)
{
	int linger = 0, unbounded = 0; /* else libzmq's thread would wait for room */

	*connections = (struct connections){.keyed = keyed, .most = most};
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
	if (!connections->monitor)
		return;
	zmq_socket_monitor(socket, NULL, 0);
	zmq_close(connections->monitor);
	connections->monitor = NULL;
	array_free(&connections->said);
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
static void turn_away(struct connections *connections, int32_t descriptor)
{
	shutdown(descriptor, SHUT_RDWR);
	connections->turned_away.count++;
	connections->shut++;
}

/* NULL: no memory for it, or not a descriptor. */
static struct said *said_on(struct connections *connections, int descriptor)
{
	while (descriptor >= 0 && connections->said.count <= (size_t)descriptor)
		if (!array_push(&connections->said))
			return NULL;
	return descriptor < 0 ? NULL : &connections->said.items[descriptor];
}

bool connections_hear(struct connections *connections, int descriptor, uint32_t cost)
{
	struct said *said = said_on(connections, descriptor);
	uint64_t now = clock_ms();

	if (!said)
		return true;
	if (now >= said->since_ms + 1000)
		*said = (struct said){.since_ms = now, .ended = said->ended};
	said->cost += cost;
	if (said->cost > CONNECTIONS_COST_MOST && !said->ended) {
		said->ended = true;
		shutdown(descriptor, SHUT_RDWR);
		connections->ended.count++;
	}
	return !said->ended;
}

/* What its descriptor said was another connection's. */
static void begin(struct connections *connections, int descriptor)
{
	if ((size_t)descriptor < connections->said.count)
		connections->said.items[descriptor] = (struct said){0};
	if (++connections->open > connections->most)
		turn_away(connections, descriptor);
}

static void tell(struct tally *tally, const char *of_them)
{
	uint64_t more = tally_due(tally, clock_ms());

	if (more)
		log_warn("connections %s: %llu", of_them, (unsigned long long)more);
}

void connections_step(struct connections *connections)
{
	int32_t descriptor;
	uint16_t event;

	while ((event = next(connections->monitor, &descriptor)) != 0) {
		if (event == ZMQ_EVENT_DISCONNECTED)
			connections->open -= connections->open > 0;
		else if (event & FAILED && connections->shut)
			connections->shut--;
		else if (event & FAILED)
			connections->failed.count++;
		else
			begin(connections, descriptor);
	}
	tell(&connections->turned_away, "that were turned away, as no more may be open");
	tell(&connections->failed,
	     connections->keyed
		     ? "that broke off before they were made, of who has no key of this job or is no worker"
		     : "that broke off before they were made, of who has a key (this controller has "
		       "none) or is no worker");
	tell(&connections->ended, "that were ended, as they said what no worker says, or too much");
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "controller/connections.h"

#include "base/clock.h"
#include "base/log.h"

#include <string.h>
#include <sys/socket.h>
#include <zmq.h>

#define ADDRESS "inproc://weft-connections"
#define TELL_MS 60000

int connections_open(struct connections *connections, void *context, void *socket, uint64_t most,
		     struct error *error)
{
	int linger = 0;

	*connections = (struct connections){.most = most};
	if (zmq_socket_monitor(socket, ADDRESS, ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED) == 0)
		connections->monitor = zmq_socket(context, ZMQ_PAIR);
	if (!connections->monitor || zmq_connect(connections->monitor, ADDRESS))
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
}

/* 16 bits of event and 32 of value, here the descriptor; then a frame with the address. 0: none. */
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
	connections->turned_away++;
}

void connections_step(struct connections *connections)
{
	uint64_t now;
	int32_t descriptor;
	uint16_t event;

	while ((event = next(connections->monitor, &descriptor)) != 0) {
		if (event == ZMQ_EVENT_DISCONNECTED)
			connections->open -= connections->open > 0;
		else if (++connections->open > connections->most)
			turn_away(connections, descriptor);
	}
	if (connections->turned_away == connections->told)
		return;
	now = clock_ms();
	if (connections->told && now < connections->told_ms + TELL_MS)
		return;
	log_warn("%llu connections were turned away: %llu are open, which is the most",
		 (unsigned long long)(connections->turned_away - connections->told),
		 (unsigned long long)connections->most);
	connections->told = connections->turned_away;
	connections->told_ms = now;
}

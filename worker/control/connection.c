/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/control/connection.h"

#include "base/clock.h"
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <zmq.h>

#define ADDRESS "inproc://weft-connection"
#define FAILED                                                                        \
	(ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | \
	 ZMQ_EVENT_HANDSHAKE_FAILED_AUTH)
#define EVENTS                                                                             \
	(ZMQ_EVENT_CONNECT_RETRIED | ZMQ_EVENT_CONNECTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED | \
	 ZMQ_EVENT_DISCONNECTED | FAILED)
#define WAIT_MS	    100
#define WAIT_MAX_MS 2000

void connection_open(struct connection *connection, void *context, void *socket, bool keyed)
{
	int linger = 0, unbounded = 0; /* else libzmq's thread would wait for room */

	*connection = (struct connection){.keyed = keyed, .wait_ms = WAIT_MS};
	if (zmq_socket_monitor(socket, ADDRESS, EVENTS))
		return;
	connection->monitor = zmq_socket(context, ZMQ_PAIR);
	if (!connection->monitor)
		return;
	zmq_setsockopt(connection->monitor, ZMQ_LINGER, &linger, sizeof(linger));
	zmq_setsockopt(connection->monitor, ZMQ_RCVHWM, &unbounded, sizeof(unbounded));
	if (zmq_connect(connection->monitor, ADDRESS) == 0)
		return;
	zmq_close(connection->monitor);
	connection->monitor = NULL;
}

void connection_close(struct connection *connection, void *socket)
{
	if (!connection->monitor)
		return;
	zmq_socket_monitor(socket, NULL, 0);
	zmq_close(connection->monitor);
	connection->monitor = NULL;
}

/* The event, 0: none. Two frames: 16 bits of event and 32 of value (of a handshake that failed, errno), then the
 * address. A handshake that ran out of time says nothing of keys: reach.h finds out. */
static uint16_t next(const struct connection *connection, bool *late)
{
	unsigned char head[6];
	int32_t value;
	zmq_msg_t frame;
	uint16_t event = 0;
	int more;

	zmq_msg_init(&frame);
	do {
		if (zmq_msg_recv(&frame, connection->monitor, ZMQ_DONTWAIT) < 0)
			break;
		if (!event && zmq_msg_size(&frame) == sizeof(head)) {
			memcpy(head, zmq_msg_data(&frame), sizeof(head));
			memcpy(&event, head, sizeof(event));
			memcpy(&value, head + sizeof(event), sizeof(value));
			*late = event == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL && value == EAGAIN;
		}
		more = zmq_msg_more(&frame);
	} while (more);
	zmq_msg_close(&frame);
	return event;
}

/* How much an event says of why: a broken handshake shows one side alone what it is about, this time or the
 * next. */
static int weight(uint16_t event)
{
	switch (event) {
	case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
	case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
		return 2;
	case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
		return 1;
	default:
		return 0;
	}
}

static void failed(const struct connection *connection, uint16_t event, struct error *why)
{
	switch (event) {
	case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
		error_set(why, ERROR_CONFIG,
			  connection->keyed
				  ? "it does not take this key: it has the key of another job"
				  : "it takes no more connections now: too many come");
		break;
	case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
		error_set(
			why, ERROR_CONFIG,
			connection->keyed
				? "this worker has a key and the controller has none, or it is no "
				  "weft-controller: give both the key or neither"
				: "the controller wants a key: give --key FILE or WEFT_KEY_FILE");
		break;
	default:
		error_set(why, ERROR_CONFIG,
			  connection->keyed
				  ? "it broke off: it has no key or another job's, or is no "
				    "weft-controller"
				  : "it broke off: it is no weft-controller, or wants a key "
				    "(--key FILE or WEFT_KEY_FILE)");
	}
}

/* Whoever retries is at it again. */
static void note(struct connection *connection, uint16_t event)
{
	connection->broken = event == ZMQ_EVENT_DISCONNECTED || event & FAILED;
	connection->made = event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED;
	if (connection->broken)
		connection->broken_ms = clock_ms();
	else if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED)
		connection->wait_ms = WAIT_MS;
}

bool connection_step(struct connection *connection, struct error *why)
{
	struct error found = {0};
	bool news = false, late = false;
	uint16_t event;

	while (connection->monitor && (event = next(connection, &late)) != 0) {
		note(connection, event);
		if (late || event == ZMQ_EVENT_DISCONNECTED || event == ZMQ_EVENT_CONNECTED ||
		    event == ZMQ_EVENT_CONNECT_RETRIED)
			continue; /* says nothing of why */
		if (event != ZMQ_EVENT_HANDSHAKE_SUCCEEDED &&
		    weight(event) < weight(connection->said))
			continue;
		news = true;
		connection->said = event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED ? 0 : event;
		found = (struct error){0};
		if (connection->said)
			failed(connection, event, &found);
	}
	*why = found;
	return news;
}

long connection_due_in_ms(const struct connection *connection, uint64_t now_ms)
{
	uint64_t due = connection->broken_ms + connection->wait_ms;

	if (!connection->broken)
		return -1;
	return due > now_ms ? (long)(due - now_ms) : 0;
}

bool connection_is_due(struct connection *connection, uint64_t now_ms)
{
	if (connection_due_in_ms(connection, now_ms) != 0)
		return false;
	connection->broken = false;
	if (connection->wait_ms < WAIT_MAX_MS)
		connection->wait_ms *= 2;
	return true;
}

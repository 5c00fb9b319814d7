/* SPDX-License-Identifier: Apache-2.0 */
#include "base/reach.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#define ANSWER_MS 1500 /* a SYN and its first repetition: enough across a continent */
#define AGAIN_MS  2000
#define GREETS	  0xff /* how whoever speaks ZMTP begins, unasked (RFC 37) */
/* Beside errno: a connection was made, and then .. */
#define SILENT (-1)
#define OTHER  (-2)

void reach_init(struct reach *reach)
{
	*reach = (struct reach){.fd = -1};
}

/* Whoever comes and goes without a word is for a controller somebody whose key is another. One byte that begins no
 * greeting is none of that: libzmq lets go of it, and tells no failed handshake. What it says itself is read before,
 * or closing would reset the connection, and the byte with it. */
void reach_stop(struct reach *reach)
{
	static const char good_bye = 0;
	char said[64];

	if (reach->fd < 0)
		return;
	while (recv(reach->fd, said, sizeof(said), MSG_DONTWAIT) > 0)
		;
	send(reach->fd, &good_bye, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	close(reach->fd);
	reach->fd = -1;
}

/* 0: made; EINPROGRESS: no answer yet. */
static int result(const struct reach *reach)
{
	struct pollfd poll_fd = {.fd = reach->fd, .events = POLLOUT};
	socklen_t bytes = sizeof(int);
	int number = 0;

	if (poll(&poll_fd, 1, 0) <= 0)
		return EINPROGRESS;
	return getsockopt(reach->fd, SOL_SOCKET, SO_ERROR, &number, &bytes) ? errno : number;
}

/* Who listens there: 0 somebody who speaks ZMTP; EINPROGRESS: has not spoken yet. */
static int greeting(const struct reach *reach)
{
	unsigned char first;
	ssize_t got = recv(reach->fd, &first, 1, MSG_DONTWAIT | MSG_PEEK);

	if (got == 1)
		return first == GREETS ? 0 : OTHER;
	return got < 0 && (errno == EAGAIN || errno == EINTR) ? EINPROGRESS : OTHER;
}

static void explain(int number, struct error *why)
{
	static const struct {
		int number;
		const char *text;
	} rows[] = {
		{ECONNREFUSED, "nobody listens there (connection refused): is it running, is the "
			       "port right?"},
		{ETIMEDOUT, "no answer from there: the host is down, the address is not its own, "
			    "or a firewall drops what goes to this port"},
		{EHOSTUNREACH,
		 "no route to that host from here: is the address right, is it up, or "
		 "does a firewall reject what goes to this port?"},
		{ENETUNREACH, "no route to that network from here: is the address right?"},
		{EACCES, "a firewall of this host rejects what goes to this port"},
		{EPERM, "a firewall of this host drops what goes to this port"},
		{SILENT,
		 "somebody listens there and says nothing: another program than weft-controller (does "
		 "not speak ZMTP), or a controller that is stopped"},
		{OTHER, "somebody listens there and is no weft-controller (does not speak ZMTP, or "
			"hangs up at once): is the port right?"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].number == number) {
			error_set(why, ERROR_CONTROLLER_LOST, "%s", rows[i].text);
			return;
		}
	error_set(why, ERROR_CONTROLLER_LOST, "it cannot be reached: %s", strerror(number));
}

/* EINPROGRESS, or how it ended at once. No descriptor for it says nothing of the controller. */
static int begin(struct reach *reach, const struct sockaddr *address, socklen_t bytes,
		 uint64_t now_ms)
{
	reach->fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	reach->made = false;
	reach->began_ms = now_ms;
	reach->next_ms = now_ms + AGAIN_MS;
	if (reach->fd < 0)
		return 0;
	return connect(reach->fd, address, bytes) ? errno : 0;
}

static int go_on(struct reach *reach, const struct sockaddr *address, socklen_t bytes,
		 uint64_t now_ms)
{
	int number = 0;

	if (reach->fd < 0)
		number = begin(reach, address, bytes, now_ms);
	else if (!reach->made)
		number = result(reach);
	if (number || reach->fd < 0)
		return number;
	reach->made = true;
	return greeting(reach);
}

bool reach_step(struct reach *reach, const struct sockaddr *address, socklen_t bytes,
		uint64_t now_ms, struct error *why)
{
	int number;

	if (reach->fd < 0 && (!address || now_ms < reach->next_ms))
		return false;
	number = go_on(reach, address, bytes, now_ms);
	if (number == EINPROGRESS) {
		if (now_ms < reach->began_ms + ANSWER_MS)
			return false;
		number = reach->made ? SILENT : ETIMEDOUT;
	}
	reach_stop(reach);
	if (number == reach->said)
		return false;
	reach->said = number;
	*why = (struct error){0};
	if (number)
		explain(number, why);
	return true;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/reach.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#define ANSWER_MS 1500 /* a SYN and its first repetition: enough across a continent */
#define AGAIN_MS  2000

void reach_init(struct reach *reach)
{
	*reach = (struct reach){.fd = -1};
}

void reach_stop(struct reach *reach)
{
	if (reach->fd >= 0)
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
		{EHOSTUNREACH, "no route to that host from here: is the address right, is it up?"},
		{ENETUNREACH, "no route to that network from here: is the address right?"},
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
	reach->began_ms = now_ms;
	reach->next_ms = now_ms + AGAIN_MS;
	if (reach->fd < 0)
		return 0;
	return connect(reach->fd, address, bytes) ? errno : 0;
}

bool reach_step(struct reach *reach, const struct sockaddr *address, socklen_t bytes,
		uint64_t now_ms, struct error *why)
{
	int number;

	if (reach->fd < 0 && (!address || now_ms < reach->next_ms))
		return false;
	number = reach->fd < 0 ? begin(reach, address, bytes, now_ms) : result(reach);
	if (number == EINPROGRESS) {
		if (now_ms < reach->began_ms + ANSWER_MS)
			return false;
		number = ETIMEDOUT;
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

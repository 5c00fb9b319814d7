/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/reach.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#define LONG_AFTER 60000 /* ms */

static int listener(int backlog, struct sockaddr_in *address)
{
	socklen_t bytes = sizeof(*address);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	*address = (struct sockaddr_in){.sin_family = AF_INET,
					.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)), 0);
	assert_int_equal(bind(fd, (struct sockaddr *)address, bytes), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)address, &bytes), 0);
	assert_int_equal(listen(fd, backlog), 0);
	return fd;
}

/* What libzmq says first to whoever connects. */
static const unsigned char zmtp[10] = {0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f};
/* Whom the listener let in last, -1: nobody; it says `says` to each. */
static int caller = -1;
static const void *says;
static size_t says_bytes;

static void accept_and_say(int listening)
{
	struct pollfd poll_fd = {.fd = listening, .events = POLLIN};

	if (listening < 0 || poll(&poll_fd, 1, 0) <= 0)
		return;
	if (caller >= 0)
		close(caller);
	caller = accept(listening, NULL, NULL);
	assert_true(caller >= 0);
	assert_int_equal(send(caller, says, says_bytes, 0), says_bytes);
}

static int listening = -1; /* who accept_and_say lets in; -1: nobody is let in */

/* Steps until the kernel has decided; `now` stands still. */
static bool decided(struct reach *reach, const struct sockaddr_in *address, uint64_t now,
		    struct error *why)
{
	for (int i = 0; i < 200; i++) {
		if (reach_step(reach, (const struct sockaddr *)address, sizeof(*address), now, why))
			return true;
		if (reach->fd < 0)
			return false;
		accept_and_say(listening);
		poll(&(struct pollfd){.fd = reach->fd, .events = reach->made ? POLLIN : POLLOUT}, 1,
		     10);
	}
	return false;
}

static void test_reach__of_a_closed_port_says_that_nobody_listens_once(void **state)
{
	struct sockaddr_in address;
	struct reach reach;
	struct error why;
	int fd = listener(4, &address);

	(void)state;
	reach_init(&reach);
	close(fd);
	assert_true(decided(&reach, &address, 0, &why));
	assert_int_equal(why.code, ERROR_CONTROLLER_LOST);
	assert_non_null(strstr(why.text, "nobody listens there"));
	assert_false(decided(&reach, &address, 1, &why));	   /* not again at once */
	assert_false(decided(&reach, &address, LONG_AFTER, &why)); /* no news */
	reach_stop(&reach);
}

static void test_reach__that_is_there_later_is_news(void **state)
{
	struct sockaddr_in address;
	struct reach reach;
	struct error why;
	int fd = listener(4, &address);

	(void)state;
	says = zmtp;
	says_bytes = sizeof(zmtp);
	listening = fd;
	reach_init(&reach);
	assert_false(decided(&reach, &address, 0, &why));
	assert_int_equal(reach.fd, -1);
	listening = -1;
	close(fd);
	assert_true(decided(&reach, &address, LONG_AFTER, &why));
	fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)), 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(fd, 4), 0);
	listening = fd;
	assert_true(decided(&reach, &address, 2 * LONG_AFTER, &why));
	assert_int_equal(why.code, ERROR_NONE);
	reach_stop(&reach);
	listening = -1;
	close(fd);
}

static void test_reach__leaves_a_byte_that_begins_no_greeting(void **state)
{
	struct sockaddr_in address;
	struct reach reach;
	struct error why;
	unsigned char got[2];
	int fd = listener(4, &address);

	(void)state;
	says = zmtp;
	says_bytes = sizeof(zmtp);
	listening = fd;
	reach_init(&reach);
	assert_false(decided(&reach, &address, 0, &why));
	listening = -1;
	/* and no more than it, and no reset: what it was told was read */
	assert_int_equal(recv(caller, got, sizeof(got), MSG_WAITALL), 1);
	assert_int_not_equal(got[0], zmtp[0]);
	close(fd);
}

static void test_reach__of_another_program_says_that_it_is_none(void **state)
{
	static const struct {
		const char *says, *told;
	} rows[] = {{"HTTP/1.1 400 Bad Request\r\n", "is no weft-controller"},
		    {"", "says nothing: another program than weft-controller"}};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct sockaddr_in address;
		struct reach reach;
		struct error why;
		int fd = listener(4, &address);
		bool is_silent = !*rows[i].says, told;

		says = rows[i].says;
		says_bytes = strlen(says);
		listening = is_silent ? -1 : fd; /* silent: in the queue, as at a stopped process */
		reach_init(&reach);
		told = reach_step(&reach, (struct sockaddr *)&address, sizeof(address), 0, &why);
		assert_false(told);
		told = is_silent ? reach_step(&reach, (struct sockaddr *)&address, sizeof(address),
					      1, &why) ||
					   decided(&reach, &address, LONG_AFTER, &why)
				 : decided(&reach, &address, 0, &why);
		assert_true(told);
		assert_non_null(strstr(why.text, rows[i].told));
		assert_int_equal(why.code, ERROR_CONTROLLER_LOST);
		listening = -1;
		close(fd);
	}
}

/* A full queue of a listener drops what comes, as a firewall does. */
static void test_reach__without_any_answer_is_another_message(void **state)
{
	struct sockaddr_in address;
	struct reach reach;
	struct error why;
	int fd = listener(0, &address), fillers[8];

	(void)state;
	reach_init(&reach);
	for (int i = 0; i < 8; i++) {
		fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		connect(fillers[i], (struct sockaddr *)&address, sizeof(address));
	}
	assert_false(reach_step(&reach, (struct sockaddr *)&address, sizeof(address), 0, &why));
	assert_true(reach.fd >= 0);
	assert_true(
		reach_step(&reach, (struct sockaddr *)&address, sizeof(address), LONG_AFTER, &why));
	assert_non_null(strstr(why.text, "no answer from there"));
	assert_int_equal(reach.fd, -1);
	reach_stop(&reach);
	for (int i = 0; i < 8; i++)
		close(fillers[i]);
	close(fd);
}

static void test_reach__of_a_network_without_a_route_says_so(void **state)
{
	/* TCP has no way to a group, whatever the routes are */
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_port = htons(9),
				      .sin_addr.s_addr = htonl(INADDR_ALLHOSTS_GROUP)};
	struct reach reach;
	struct error why;

	(void)state;
	reach_init(&reach);
	assert_true(decided(&reach, &address, 0, &why));
	assert_non_null(strstr(why.text, "no route to that network from here"));
	assert_int_equal(why.code, ERROR_CONTROLLER_LOST);
	assert_false(reach_step(&reach, NULL, 0, 2 * LONG_AFTER, &why)); /* no address yet */
	reach_stop(&reach);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reach__of_a_closed_port_says_that_nobody_listens_once),
		cmocka_unit_test(test_reach__that_is_there_later_is_news),
		cmocka_unit_test(test_reach__leaves_a_byte_that_begins_no_greeting),
		cmocka_unit_test(test_reach__of_another_program_says_that_it_is_none),
		cmocka_unit_test(test_reach__without_any_answer_is_another_message),
		cmocka_unit_test(test_reach__of_a_network_without_a_route_says_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

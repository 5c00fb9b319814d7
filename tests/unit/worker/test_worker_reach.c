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
	assert_int_equal(bind(fd, (struct sockaddr *)address, bytes), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)address, &bytes), 0);
	assert_int_equal(listen(fd, backlog), 0);
	return fd;
}

/* Steps until the kernel has decided; `now` stands still. */
static bool decided(struct reach *reach, const struct sockaddr_in *address, uint64_t now,
		    struct error *why)
{
	for (int i = 0; i < 200; i++) {
		if (reach_step(reach, (const struct sockaddr *)address, sizeof(*address), now, why))
			return true;
		if (reach->fd < 0)
			return false;
		poll(&(struct pollfd){.fd = reach->fd, .events = POLLOUT}, 1, 10);
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
	reach_init(&reach);
	assert_false(decided(&reach, &address, 0, &why));
	close(fd);
	assert_true(decided(&reach, &address, LONG_AFTER, &why));
	fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)), 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(fd, 4), 0);
	assert_true(decided(&reach, &address, 2 * LONG_AFTER, &why));
	assert_int_equal(why.code, ERROR_NONE);
	reach_stop(&reach);
	close(fd);
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
		cmocka_unit_test(test_reach__without_any_answer_is_another_message),
		cmocka_unit_test(test_reach__of_a_network_without_a_route_says_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The port: what it answers, and what it does with garbage, with those who say nothing and with two thousand connections. The
 * file: whole at any time. This program's own dlopen() can hide libmicrohttpd from it.
 */
#include "base/array.h"
#include "base/clock.h"
#include "base/memory.h"
#include "metrics/address.h"
#include "metrics/outlet.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define PAGE  "weft_test 1\n"
#define STORM 2000u

static bool hidden;
static _Atomic uint64_t rendered;

void *dlopen(const char *file, int flags)
{
	void *(*opens)(const char *, int);
	void *found = dlsym(RTLD_NEXT, "dlopen");
	bool gone = hidden && file && strstr(file, "libmicrohttpd");

	memcpy(&opens, &found, sizeof(opens));
	return opens(gone ? "libmicrohttpd.so.gone" : file, flags);
}

static void render(void *context, struct text *text)
{
	(void)context;
	rendered++;
	text_add(text, PAGE);
}

static uint16_t free_port(void)
{
	const struct address address = {.host = "127.0.0.1", .ports = 1};
	uint16_t port = 0;
	int fd = -1;

	assert_int_equal(address_listen(&address, &fd, &port, NULL), 0);
	close(fd);
	return port;
}

static struct outlet *open_at(uint16_t port)
{
	struct outlet_options options = {.address_name = "--metrics",
					 .file_name = "--metrics-file",
					 .who = "t3",
					 .render = render};
	struct outlet *outlet = NULL;
	struct error error = {0};
	char address[32];

	snprintf(address, sizeof(address), "127.0.0.1:%u", port);
	options.address = address;
	if (outlet_open(&outlet, &options, &error))
		fail_msg("%s", error.text);
	return outlet;
}

static int connect_to(uint16_t port)
{
	const struct sockaddr_in at = {.sin_family = AF_INET,
				       .sin_port = htons(port),
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && connect(fd, (const struct sockaddr *)&at, sizeof(at))) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* Until the other side ends it, or says nothing for 0.3 s. */
static size_t take(int fd, char *out, size_t room)
{
	struct pollfd wait = {.fd = fd, .events = POLLIN};
	size_t got = 0;
	ssize_t more = 1;

	while (more > 0 && got + 1 < room && poll(&wait, 1, 300) > 0) {
		more = recv(fd, out + got, room - 1 - got, 0);
		got += more > 0 ? (size_t)more : 0;
	}
	out[got] = 0;
	return got;
}

static void ask(uint16_t port, const char *request, char *out, size_t room)
{
	int fd = connect_to(port);

	assert_true(fd >= 0);
	send(fd, request, strlen(request), MSG_NOSIGNAL);
	shutdown(fd, SHUT_WR); /* there is no more to come */
	take(fd, out, room);
	close(fd);
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"

static bool is_served(uint16_t port)
{
	char out[1024] = "";
	int fd = connect_to(port);

	if (fd < 0)
		return false;
	send(fd, GET("/metrics"), strlen(GET("/metrics")), MSG_NOSIGNAL);
	take(fd, out, sizeof(out));
	close(fd);
	return strstr(out, "200 OK") && text_ends(out, PAGE);
}

static void test_missing_library__is_named_with_what_to_install(void **unused)
{
	struct outlet_options options = {
		.address = "127.0.0.1:0", .address_name = "--metrics", .render = render};
	struct outlet *outlet;
	struct error error = {0};
	int status;
	pid_t child;

	(void)unused;
	child = fork(); /* what was opened once stays */
	if (!child) {
		hidden = true;
		_exit(!(outlet_open(&outlet, &options, &error) == -ERROR_UNSUPPORTED && !outlet &&
			strstr(error.text,
			       "--metrics '127.0.0.1:0': libmicrohttpd.so.12 cannot be opened: ") &&
			strstr(error.text,
			       "install libmicrohttpd12 (Debian), or write a file instead")));
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static const struct {
	const char *request, *answer;
} requests[] = {
	{GET("/metrics"), "200 OK"},
	{GET("/metrics?x=1"), "200 OK"},
	{"HEAD /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "200 OK"},
	{GET("/"), "404 Not Found"},
	{"POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx",
	 "405 Method Not Allowed"},
	{"DELETE /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
	 "405 Method Not Allowed"},
	{"nonsense\r\n\r\n", ""},
	{"\x16\x03\x01\x02\x01\x01\x01\xfc\x03\x03\r\n\r\n", ""},
	{"GET /metrics HTTP/9.9\r\n\r\n", ""},
	{"GET /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: -7\r\n\r\n", ""},
};

static void test_port__answers_what_it_is_asked_and_outlives_garbage(void **unused)
{
	uint16_t port = free_port();
	struct outlet *outlet = open_at(port);
	char out[2048], *large = memory_zalloc(1, 100001);

	(void)unused;
	for (size_t i = 0; i < ARRAY_SIZE(requests); i++) {
		ask(port, requests[i].request, out, sizeof(out));
		if (*requests[i].answer)
			assert_non_null(strstr(out, requests[i].answer));
		else
			assert_null(strstr(out, "200 OK"));
	}
	memset(large, 'A', 100000); /* no head is so long */
	ask(port, large, out, sizeof(out));
	assert_null(strstr(out, "200 OK"));
	memory_free(large);
	ask(port, GET("/metrics"), out, sizeof(out));
	assert_non_null(strstr(out, "Content-Type: text/plain; version=0.0.4; charset=utf-8"));
	assert_true(text_ends(out, "\r\n\r\n" PAGE));
	outlet_close(&outlet);
	assert_int_equal(connect_to(port), -1);
}

static void test_port__makes_no_more_than_ten_pages_a_second(void **unused)
{
	uint16_t port = free_port();
	struct outlet *outlet = open_at(port);
	uint64_t begin = clock_ns(), before = rendered, most;

	(void)unused;
	for (int i = 0; i < 50; i++)
		assert_true(is_served(port));
	most = (clock_ns() - begin) / 100000000u + 1;
	assert_in_range(rendered - before, 1, most);
	outlet_close(&outlet);
}

/* Who sends half of a request, or nothing, holds a place for five seconds; those of one address are not all there are. */
static void test_port__outlives_two_thousand_connections(void **unused)
{
	const struct rlimit many = {STORM + 500, STORM + 500};
	uint16_t port = free_port();
	struct outlet *outlet = open_at(port);
	int *fds = memory_zalloc(STORM, sizeof(*fds));
	uint64_t deadline, begin;
	bool served = false;
	uint32_t made = 0;

	(void)unused;
	setrlimit(RLIMIT_NOFILE, &many);
	for (uint32_t i = 0; i < STORM; i++) {
		fds[i] = connect_to(port);
		made += fds[i] >= 0;
		if (fds[i] >= 0 && i % 2)
			send(fds[i], "GET /metr", 9, MSG_NOSIGNAL);
	}
	assert_in_range(made, SERVE_PER_ADDRESS, STORM);
	for (uint32_t i = 0; i < STORM; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	memory_free(fds);
	deadline = clock_deadline_ns(10000);
	while (!served && clock_ns() < deadline)
		served = is_served(port);
	assert_true(served);
	begin = clock_ns();
	outlet_close(&outlet);
	assert_true(clock_ns() - begin < 2000000000ull);
}

static void test_port__is_let_go_of_while_somebody_holds_it(void **unused)
{
	uint16_t port = free_port();
	struct outlet *outlet = open_at(port);
	uint64_t begin = clock_ns();
	int fd = connect_to(port);
	char out[8];

	(void)unused;
	send(fd, "GET ", 4, MSG_NOSIGNAL);
	clock_sleep_ms(20);
	outlet_close(&outlet);
	assert_true(clock_ns() - begin < 2000000000ull);
	assert_int_equal(take(fd, out, sizeof(out)), 0);
	close(fd);
}

/* ---- the file ---- */

static void test_file__is_there_at_once_and_can_be_read_by_others(void **unused)
{
	char folder[] = "build/metrics-XXXXXX", path[256], got[64] = "";
	struct outlet_options options = {
		.file_name = "--metrics-file", .who = "t3", .render = render};
	struct outlet *outlet;
	struct error error = {0};
	struct stat about;
	FILE *file;

	(void)unused;
	if (chdir(getenv("WEFT_SOURCE_DIR") ? getenv("WEFT_SOURCE_DIR") : ".") || !mkdtemp(folder))
		fail();
	snprintf(path, sizeof(path), "%s/%%r.prom", folder);
	options.file = path;
	umask(022);
	assert_int_equal(outlet_open(&outlet, &options, &error), 0);
	snprintf(path, sizeof(path), "%s/t3.prom", folder);
	assert_int_equal(stat(path, &about), 0);
	assert_int_equal(about.st_mode & 0777, 0644);
	unlink(path);
	outlet_close(&outlet); /* writes it a last time */
	file = fopen(path, "re");
	assert_non_null(file);
	assert_non_null(fgets(got, sizeof(got), file));
	fclose(file);
	assert_string_equal(got, PAGE);
	unlink(path);
	assert_int_equal(rmdir(folder), 0); /* nothing else was left */
}

static void test_file__that_cannot_be_written_is_named_with_its_option(void **unused)
{
	struct outlet_options options = {.file = "/nowhere/at/all.prom",
					 .file_name = "WEFT_METRICS_FILE",
					 .who = "t3",
					 .render = render};
	struct outlet *outlet;
	struct error error = {0};

	(void)unused;
	assert_int_equal(outlet_open(&outlet, &options, &error), -ERROR_IO);
	assert_null(outlet);
	assert_non_null(
		strstr(error.text,
		       "WEFT_METRICS_FILE '/nowhere/at/all.prom' (give a file in a folder that"));
	assert_non_null(strstr(error.text, "No such file or directory"));
}

static void test_opening__fails_well_at_each_allocation(void **unused)
{
	struct outlet_options options = {.address = "127.0.0.1:0",
					 .address_name = "--metrics",
					 .who = "t3",
					 .render = render};
	struct outlet *outlet;
	struct error error;
	int rc = -1;

	(void)unused;
	for (uint64_t k = 1; rc; k++) {
		memory_fail_at(k);
		rc = outlet_open(&outlet, &options, &error);
		memory_fail_at(0);
		assert_true(!rc || (rc == -ERROR_MEMORY && !outlet));
		assert_true(k < 20);
	}
	outlet_close(&outlet);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_missing_library__is_named_with_what_to_install),
		cmocka_unit_test(test_port__answers_what_it_is_asked_and_outlives_garbage),
		cmocka_unit_test(test_port__makes_no_more_than_ten_pages_a_second),
		cmocka_unit_test(test_port__outlives_two_thousand_connections),
		cmocka_unit_test(test_port__is_let_go_of_while_somebody_holds_it),
		cmocka_unit_test(test_file__is_there_at_once_and_can_be_read_by_others),
		cmocka_unit_test(test_file__that_cannot_be_written_is_named_with_its_option),
		cmocka_unit_test(test_opening__fails_well_at_each_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

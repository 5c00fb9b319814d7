/* SPDX-License-Identifier: Apache-2.0
 *
 * The controller's shell on a real socket: what a stranger on the network can send, signals,
 * addresses and files. Whole jobs over real sockets are in tests/e2e.
 */
#include "controller/shell.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include <cmocka.h>

struct bench {
	struct shell_options options;
	char folder[64], port_file[96], address[64];
	pthread_t thread;
	struct error error;
	int rc;
	void *context, *socket;
};

static void *serve(void *argument)
{
	struct bench *bench = argument;

	bench->rc = shell_run(&bench->options, &bench->error);
	return NULL;
}

static void read_port(struct bench *bench)
{
	FILE *file = NULL;
	unsigned int port = 0;

	for (int i = 0; i < 500 && !file; i++) {
		file = fopen(bench->port_file, "r");
		if (!file)
			clock_sleep_ms(10);
	}
	assert_non_null(file);
	assert_int_equal(fscanf(file, "%u", &port), 1); /* whole as soon as it is there */
	fclose(file);
	snprintf(bench->address, sizeof(bench->address), "tcp://127.0.0.1:%u", port);
}

static int set_up(void **state)
{
	struct bench *bench = memory_zalloc(1, sizeof(*bench));
	int linger = 0, patience = 5000;

	strcpy(bench->folder, "shellXXXXXX");
	assert_non_null(mkdtemp(bench->folder));
	snprintf(bench->port_file, sizeof(bench->port_file), "%s/port", bench->folder);
	bench->options = (struct shell_options){
		.channel.bind = "tcp://127.0.0.1:0",
		.channel.port_file = bench->port_file,
		.controller = {.job = "demo",
			       .policy = "greedy",
			       .train = {.world = 1, .pp = 1, .fsdp = 1},
			       .infer = {.engines = 1, .tp = 1, .ep = 1, .dp = 1},
			       .heartbeat_ms = 50,
			       .lost_ms = 500,
			       .join_timeout_ms = 20000,
			       .exchange_timeout_ms = 5000,
			       .update_timeout_ms = 5000,
			       .incarnation = 0xc0de}};
	assert_int_equal(pthread_create(&bench->thread, NULL, serve, bench), 0);
	read_port(bench);
	bench->context = zmq_ctx_new();
	bench->socket = zmq_socket(bench->context, ZMQ_DEALER);
	zmq_setsockopt(bench->socket, ZMQ_LINGER, &linger, sizeof(linger));
	zmq_setsockopt(bench->socket, ZMQ_RCVTIMEO, &patience, sizeof(patience));
	assert_int_equal(zmq_connect(bench->socket, bench->address), 0);
	*state = bench;
	return 0;
}

static void stop(struct bench *bench)
{
	kill(getpid(), SIGTERM); /* blocked in every thread: the shell's descriptor gets it */
	pthread_join(bench->thread, NULL);
}

static int tear_down(void **state)
{
	struct bench *bench = *state;

	zmq_close(bench->socket);
	zmq_ctx_term(bench->context);
	unlink(bench->port_file);
	rmdir(bench->folder);
	memory_free(bench);
	return 0;
}

static void expect_refusal(struct bench *bench, enum error_code code)
{
	struct message message;
	struct error error;
	zmq_msg_t frame;

	zmq_msg_init(&frame);
	assert_true(zmq_msg_recv(&frame, bench->socket, 0) >= 0);
	if (message_decode(&message, zmq_msg_data(&frame), zmq_msg_size(&frame), &error))
		fail_msg("%s", error.text);
	assert_int_equal(message.type, MESSAGE_REFUSE);
	assert_int_equal(message.u.refuse.code, code);
	message_fini(&message);
	zmq_msg_close(&frame);
}

static void test_shell__answers_garbage_and_goes_on(void **state)
{
	struct bench *bench = *state;

	zmq_send(bench->socket, "\xc1garbage", 8, 0);
	expect_refusal(bench, ERROR_MESSAGE);
	zmq_send(bench->socket, "", 0, 0);
	expect_refusal(bench, ERROR_MESSAGE);
	zmq_send(bench->socket, "one", 3, ZMQ_SNDMORE);
	zmq_send(bench->socket, "two", 3, ZMQ_SNDMORE);
	zmq_send(bench->socket, "three", 5, 0);
	expect_refusal(bench, ERROR_MESSAGE);
	stop(bench);
	assert_int_equal(bench->rc, -ERROR_INTERRUPTED);
}

static void test_shell__tells_a_worker_that_it_is_stopped(void **state)
{
	struct bench *bench = *state;
	struct message hello = {.type = MESSAGE_HELLO,
				.job = "demo",
				.from = 7,
				.u.hello = {.incarnation = 7,
					    .host = (char *)"a",
					    .host_id = (char *)"boot",
					    .pid = 1}};
	unsigned char *bytes;
	zmq_msg_t frame;
	size_t length;

	assert_int_equal(message_encode(&hello, &bytes, &length, NULL), 0);
	zmq_send(bench->socket, bytes, length, 0);
	memory_free(bytes);
	zmq_msg_init(&frame);
	assert_true(zmq_msg_recv(&frame, bench->socket, 0) >= 0); /* welcome */
	zmq_msg_close(&frame);
	kill(getpid(), SIGUSR1);
	stop(bench);
	expect_refusal(bench, ERROR_INTERRUPTED);
	assert_non_null(strstr(bench->error.text, "SIGTERM"));
}

struct flood {
	const char *address;
	atomic_bool over;
};

static void *send_garbage(void *argument)
{
	struct flood *flood = argument;
	void *context = zmq_ctx_new(), *socket = zmq_socket(context, ZMQ_DEALER);
	int linger = 0;

	zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof(linger));
	zmq_connect(socket, flood->address);
	while (!atomic_load(&flood->over))
		zmq_send(socket, "\xc1garbage", 8, ZMQ_DONTWAIT);
	zmq_close(socket);
	zmq_ctx_term(context);
	return NULL;
}

/* One connection that never stops and never reads: others are served, and a signal is heard. */
static void test_shell__serves_and_stops_under_a_flood(void **state)
{
	struct bench *bench = *state;
	struct flood flood = {.address = bench->address};
	uint64_t began;
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, send_garbage, &flood), 0);
	clock_sleep_ms(200);
	for (int i = 0; i < 3; i++) { /* more would be a flood too */
		zmq_send(bench->socket, "", 0, 0);
		expect_refusal(bench, ERROR_MESSAGE);
	}
	began = clock_ms();
	stop(bench);
	assert_true(clock_ms() - began < 5000);
	assert_int_equal(bench->rc, -ERROR_INTERRUPTED);
	atomic_store(&flood.over, true);
	pthread_join(thread, NULL);
}

static void test_shell__says_what_to_do_about_its_address(void **state)
{
	struct bench *bench = *state;
	struct shell_options options = bench->options;
	struct error error;

	options.channel.port_file = NULL;
	options.channel.bind = bench->address;
	assert_int_equal(shell_run(&options, &error), -ERROR_IO);
	assert_non_null(strstr(error.text, "in use"));
	assert_non_null(strstr(error.text, "--bind"));
	options.channel.bind = "tcp:/wrong";
	assert_int_equal(shell_run(&options, &error), -ERROR_CONFIG);
	options.channel.bind = "tcp://127.0.0.1:0";
	options.channel.port_file = "no/such/folder/port";
	assert_int_equal(shell_run(&options, &error), -ERROR_IO);
	assert_non_null(strstr(error.text, "no/such/folder"));
	stop(bench);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_shell__answers_garbage_and_goes_on),
		TEST(test_shell__tells_a_worker_that_it_is_stopped),
		TEST(test_shell__serves_and_stops_under_a_flood),
		TEST(test_shell__says_what_to_do_about_its_address),
	};

	log_open("test_controller_shell", "");
	log_set_level(LOG_LEVEL_ERROR);
	shell_block_signals();
	return cmocka_run_group_tests(tests, NULL, NULL);
}

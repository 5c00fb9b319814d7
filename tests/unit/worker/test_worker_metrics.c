/* SPDX-License-Identifier: Apache-2.0
 *
 * What a worker counts of its updates, call by call; and that it may be read at any time.
 */
#include "tests/unit/worker/worker_rig.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/wait.h>

static const struct rig_options plain = {.trainers = 2, .ranks = 2, .update_timeout_ms = 10000};
static const struct rig_options lone = {.trainers = 1, .ranks = 1, .update_timeout_ms = 300};

#define PORTS_TRIED 64

/* Of a file that was written when the worker closed. */
static double value_in(const char *path, const char *sample)
{
	char line[1024];
	double value = -1;
	FILE *file = fopen(path, "re");

	assert_non_null(file);
	while (fgets(line, sizeof(line), file)) {
		const char *found = strstr(line, sample);

		if (line[0] != '#' && found)
			value = strtod(strrchr(line, ' '), NULL);
	}
	fclose(file);
	return value;
}

static double trainer_has(const char *sample)
{
	return value_in("metrics-t0.prom", sample);
}

static double rank_has(const char *sample)
{
	return value_in("metrics-i0.prom", sample);
}

static struct rig *rig_with_files(const struct rig_options *options)
{
	struct rig *rig;

	setenv("WEFT_METRICS_FILE", "metrics-%r.prom", 1);
	rig = rig_new(options);
	unsetenv("WEFT_METRICS_FILE");
	return rig;
}

static void forget_files(void)
{
	unlink("metrics-t0.prom");
	unlink("metrics-t1.prom");
	unlink("metrics-i0.prom");
	unlink("metrics-i1.prom");
}

static void test_update__is_counted_once_however_often_it_is_tried(void **unused)
{
	struct rig *rig = rig_with_files(&lone);
	weft_error error = WEFT_ERROR_INIT;
	const void *data[RIG_TENSORS] = {rig->tensors[0], rig->tensors[1], rig->tensors[2]};
	uint64_t published = 0;

	(void)unused;
	for (int i = 0; i < 3; i++)
		assert_int_equal(weft_update_try_begin(rig->trainers[0], 1, &error), WEFT_AGAIN);
	while (weft_update_try_wait(rig->ranks[0], 1, 0, &published, &error) == WEFT_AGAIN &&
	       weft_update_try_begin(rig->trainers[0], 1, &error) == WEFT_AGAIN)
		;
	rig_ok(host_write_all(rig->trainers[0], data, &error), &error);
	rig_ok(weft_update_end(rig->trainers[0], &error), &error);
	rig_ok(weft_update_wait(rig->ranks[0], 1, 0, &published, &error), &error);
	rig_ok(weft_update_wait(rig->ranks[0], 1, 0, &published, &error),
	       &error); /* shown already */
	rig_free(rig);
	assert_float_equal(trainer_has("weft_sync_started_total{"), 1, 0);
	assert_float_equal(trainer_has("result=\"ok\""), 1, 0);
	assert_float_equal(trainer_has("weft_sync_seconds_count{"), 1, 0);
	assert_float_equal(trainer_has("weft_weight_version{"), 1, 0);
	assert_float_equal(
		trainer_has(
			"weft_peers{weft_job=\"rig\",role=\"trainer\",rank=\"0\",state=\"planned\""),
		1, 0);
	assert_float_equal(rank_has("weft_sync_started_total{"), 1, 0);
	assert_float_equal(rank_has("result=\"ok\""), 1, 0);
	assert_float_equal(rank_has("phase=\"verify\",le=\"+Inf\""), 1, 0);
	assert_float_equal(rank_has("weft_bytes_received_total{"), 480 + 480 + 28, 0);
	forget_files();
}

static void test_abort__and_what_a_host_has_wrong_are_told_apart(void **unused)
{
	struct rig *rig = rig_with_files(&lone);
	weft_error error = WEFT_ERROR_INIT;

	(void)unused;
	rig_wait_begin(rig, 1, 0);
	rig_ok(weft_update_begin(rig->trainers[0], 1, &error), &error);
	assert_int_equal(weft_update_begin(rig->trainers[0], 2, &error), -WEFT_E_STATE);
	assert_int_equal(weft_update_end(rig->trainers[0], &error),
			 -WEFT_E_STATE); /* tensors are missing */
	rig_ok(weft_update_abort(rig->trainers[0], "for once", &error), &error);
	rig_wait_end(rig, -WEFT_E_ABORTED);
	rig_update(rig, 2);
	rig_free(rig);
	assert_float_equal(trainer_has("weft_sync_started_total{"), 2, 0);
	assert_float_equal(trainer_has("result=\"aborted\""), 1, 0);
	assert_float_equal(trainer_has("result=\"failed\""), 0, 0);
	assert_float_equal(trainer_has("result=\"ok\""), 1, 0);
	assert_float_equal(trainer_has("code=\"WEFT-E103\""), 2, 0);
	assert_float_equal(rank_has("result=\"aborted\""), 1, 0);
	assert_float_equal(rank_has("code=\"WEFT-E152\""), 1, 0);
	forget_files();
}

static void test_deadline__is_an_update_that_failed(void **unused)
{
	struct rig *rig = rig_with_files(&lone);
	weft_error error = WEFT_ERROR_INIT;
	uint64_t published;

	(void)unused;
	assert_int_equal(weft_update_wait(rig->ranks[0], 1, 50, &published, &error),
			 -WEFT_E_TIMEOUT);
	assert_int_equal(weft_update_wait(rig->ranks[0], 1, 50, &published, &error),
			 -WEFT_E_TIMEOUT);
	rig_free(rig);
	assert_float_equal(rank_has("weft_sync_started_total{"), 2, 0);
	assert_float_equal(rank_has("result=\"failed\""), 2, 0);
	assert_float_equal(rank_has("code=\"WEFT-E130\""), 2, 0);
	forget_files();
}

static void test_forked_child__touches_nothing_of_it(void **unused)
{
	struct rig *rig = rig_with_files(&lone);
	weft_error error = WEFT_ERROR_INIT;
	weft_worker *copy = rig->trainers[0];
	int status;
	pid_t child;

	(void)unused;
	child = fork();
	if (!child) {
		int rc = weft_update_begin(copy, 1, &error);

		_exit(rc == -WEFT_E_STATE && weft_update_end(copy, &error) == -WEFT_E_STATE
			      ? weft_close(&copy)
			      : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	rig_update(rig, 1);
	rig_free(rig);
	assert_float_equal(trainer_has("weft_sync_started_total{"), 1, 0);
	assert_float_equal(trainer_has("code=\"WEFT-E103\""), -1, 0);
	forget_files();
}

/* ---- read while it is written ---- */

struct reader {
	uint16_t port; /* the first one that may be theirs */
	_Atomic bool stop;
	uint32_t pages;
};

static bool read_page(uint16_t port)
{
	static const char request[] =
		"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
	const struct sockaddr_in at = {.sin_family = AF_INET,
				       .sin_port = htons(port),
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char out[4096] = "";
	bool served = false;

	if (fd >= 0 && !connect(fd, (const struct sockaddr *)&at, sizeof(at)) &&
	    send(fd, request, sizeof(request) - 1, MSG_NOSIGNAL) > 0)
		served = recv(fd, out, sizeof(out) - 1, 0) > 0 && strstr(out, "200 OK");
	while (served && recv(fd, out, sizeof(out), 0) > 0)
		;
	close(fd);
	return served;
}

static void *read_pages(void *context)
{
	struct reader *reader = context;

	while (!reader->stop)
		for (uint16_t i = 0; i < PORTS_TRIED && !reader->stop; i++)
			reader->pages += read_page((uint16_t)(reader->port + i));
	return NULL;
}

static void test_pages__are_read_while_updates_run_and_workers_close(void **unused)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int taken = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	socklen_t bytes = sizeof(at);
	struct reader reader = {.port = 0};
	char address[64];
	struct rig *rig;
	pthread_t thread;

	(void)unused;
	assert_int_equal(bind(taken, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(getsockname(taken, (struct sockaddr *)&at, &bytes), 0);
	close(taken);
	reader.port = ntohs(at.sin_port);
	snprintf(address, sizeof(address), "127.0.0.1:%u+", reader.port);
	setenv("WEFT_METRICS", address, 1);
	rig = rig_new(&plain);
	unsetenv("WEFT_METRICS");
	assert_int_equal(pthread_create(&thread, NULL, read_pages, &reader), 0);
	for (uint64_t version = 1; version <= 150; version++) {
		rig_update(rig, version);
		clock_sleep_ms(2);
	}
	rig_free(rig);
	reader.stop = true;
	pthread_join(thread, NULL);
	assert_in_range(reader.pages, 4, UINT32_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_update__is_counted_once_however_often_it_is_tried),
		cmocka_unit_test(test_abort__and_what_a_host_has_wrong_are_told_apart),
		cmocka_unit_test(test_deadline__is_an_update_that_failed),
		cmocka_unit_test(test_forked_child__touches_nothing_of_it),
		cmocka_unit_test(test_pages__are_read_while_updates_run_and_workers_close),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

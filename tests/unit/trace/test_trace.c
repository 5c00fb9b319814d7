/* SPDX-License-Identifier: Apache-2.0
 *
 * The writer of traces: what is added is there, valid JSON whatever it quotes, at any moment; what has no room is counted; off there
 * is nothing.
 */
#include "base/clock.h"
#include "base/memory.h"
#include "trace/trace.h"

#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64], path[96];

static int begin(void **state)
{
	(void)state;
	snprintf(folder, sizeof(folder), "/tmp/trace-of-weft-XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof(path), "%s/t3.json", folder);
	return 0;
}

static int end(void **state)
{
	(void)state;
	unlink(path);
	return rmdir(folder);
}

static int open_as(struct trace **trace, const char *file, struct error *error)
{
	const struct trace_options options = {.file = file,
					      .file_name = "--trace",
					      .who = "t3",
					      .job = "a \"job\"",
					      .role = "trainer",
					      .rank = 3};

	return trace_open(trace, &options, error);
}

static struct trace *opened(void)
{
	struct trace *trace;
	struct error error;
	char pattern[96];

	snprintf(pattern, sizeof(pattern), "%s/%%r.json", folder);
	assert_int_equal(open_as(&trace, pattern, &error), 0);
	assert_non_null(trace);
	return trace;
}

/* What is there now; `cut`: without its end. */
static json_t *read_now(bool cut)
{
	static char text[32 << 20];
	FILE *file = fopen(path, "r");
	json_error_t why;
	json_t *rows;
	size_t n;

	assert_non_null(file);
	n = fread(text, 1, sizeof(text) - 8, file);
	fclose(file);
	text[n] = '\0';
	if (cut) {
		assert_string_equal(text + n - 2, ",\n");
		strcpy(text + n - 2, "\n]");
	}
	rows = json_loads(text, JSON_REJECT_DUPLICATES, &why);
	assert_non_null(rows);
	return rows;
}

static size_t named(const json_t *rows, const char *name)
{
	size_t count = 0, i;
	json_t *row;

	json_array_foreach(rows, i, row) count +=
		!strcmp(json_string_value(json_object_get(row, "name")), name);
	return count;
}

static json_int_t end_figure(const json_t *rows, const char *key)
{
	const json_t *last = json_array_get(rows, json_array_size(rows) - 1);

	assert_string_equal(json_string_value(json_object_get(last, "name")), "weft_end");
	return json_integer_value(json_object_get(json_object_get(last, "args"), key));
}

static void add(struct trace *trace, const char *text, uint64_t begin_ns, uint64_t ns)
{
	struct trace_event event = {.name = "write",
				    .path = "direct",
				    .begin_ns = begin_ns,
				    .end_ns = begin_ns + ns,
				    .version = 7,
				    .bytes = 4096,
				    .piece = 1,
				    .lane = LANE_PEERS + 2,
				    .by_thread = true};

	trace_text(&event, text);
	trace_add(trace, &event, "to inference 2");
}

static void test_event__is_in_the_file_as_it_was_given(void **state)
{
	struct trace *trace = opened();
	json_t *rows, *row, *args;

	(void)state;
	add(trace, "model.\"norm\"\n", 1234567891, 42);
	trace_close(&trace);
	assert_null(trace);
	rows = read_now(false);
	assert_int_equal(named(rows, "write"), 1);
	assert_int_equal(named(rows, "thread_name"), 1);
	row = json_array_get(rows, json_array_size(rows) - 2);
	args = json_object_get(row, "args");
	assert_string_equal(json_string_value(json_object_get(row, "ph")), "X");
	assert_true(json_real_value(json_object_get(row, "ts")) == 1234567.891);
	assert_true(json_real_value(json_object_get(row, "dur")) == 0.042);
	assert_int_equal(json_integer_value(json_object_get(args, "bytes")), 4096);
	assert_int_equal(json_integer_value(json_object_get(args, "version")), 7);
	assert_int_equal(json_integer_value(json_object_get(args, "piece")), 0);
	assert_string_equal(json_string_value(json_object_get(args, "tensor")),
			    "model.\"norm\"\\x0a");
	assert_int_equal(end_figure(rows, "events"), 1);
	assert_int_equal(end_figure(rows, "dropped"), 0);
	row = json_object_get(json_array_get(rows, 0), "args");
	assert_string_equal(json_string_value(json_object_get(row, "job")), "a \"job\"");
	assert_int_equal(json_integer_value(json_object_get(row, "rank")), 3);
	json_decref(rows);
}

static void test_file__opens_while_it_is_written(void **state)
{
	uint64_t until = clock_ms() + 10000;
	struct trace *trace = opened();
	size_t seen = 0;

	(void)state;
	while (seen < 3 && clock_ms() < until) {
		json_t *rows;

		add(trace, "model.norm", clock_ns(), 10);
		clock_sleep_ms(20);
		rows = read_now(true);
		seen = named(rows, "write");
		json_decref(rows);
	}
	assert_true(seen >= 3);
	trace_close(&trace);
}

static void test_off__is_nothing(void **state)
{
	static const char *const off[] = {NULL, "", "off"};
	const struct trace_event event = {.name = "write", .begin_ns = 1};
	struct trace *trace = (struct trace *)path;
	struct error error;

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(open_as(&trace, off[i], &error), 0);
		assert_null(trace);
	}
	trace_add(NULL, &event, "lane");
	trace_close(&trace);
}

static void test_path__that_cannot_be_is_named(void **state)
{
	struct trace *trace;
	struct error error;

	(void)state;
	assert_int_equal(open_as(&trace, "/nonexistent/%r.json", &error), -(int)ERROR_IO);
	assert_null(trace);
	assert_non_null(strstr(error.text, "--trace: cannot write '/nonexistent/t3.json'"));
}

static void test_file__of_another_worker_is_refused_and_left_as_it_is(void **state)
{
	struct trace *trace = opened(), *other;
	struct error error;
	json_t *rows;

	(void)state;
	add(trace, "first", 1, 1);
	assert_int_equal(open_as(&other, path, &error), -(int)ERROR_CONFIG);
	assert_non_null(strstr(error.text, "%r"));
	trace_close(&trace);
	rows = read_now(false);
	assert_int_equal(named(rows, "write"), 1);
	json_decref(rows);
	trace = opened(); /* and one of before is replaced */
	trace_close(&trace);
	rows = read_now(false);
	assert_int_equal(named(rows, "write"), 0);
	json_decref(rows);
}

/* All at once, and the disk as slow as it is: what is in the file and what is said to be dropped are all there was. */
static void test_flood__is_counted_and_waits_for_nobody(void **state)
{
	const uint64_t all = 4 * TRACE_EVENTS;
	struct trace *trace = opened();
	uint64_t written, dropped;
	json_t *rows;

	(void)state;
	for (uint64_t i = 0; i < all; i++)
		add(trace, "t", i + 1, 1);
	trace_close(&trace);
	rows = read_now(false);
	written = (uint64_t)end_figure(rows, "events");
	dropped = (uint64_t)end_figure(rows, "dropped");
	assert_int_equal(written + dropped, all);
	assert_int_equal(named(rows, "write"), written);
	assert_true(dropped == 0 || named(rows, "events dropped") > 0);
	json_decref(rows);
}

static void *add_many(void *trace)
{
	for (uint64_t i = 0; i < 2000; i++)
		add(trace, "model.norm", clock_ns(), 0);
	return NULL;
}

static void test_threads__have_a_lane_each(void **state)
{
	struct trace *trace = opened();
	pthread_t threads[4];
	json_t *rows;

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, add_many, trace), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	trace_close(&trace);
	rows = read_now(false);
	assert_int_equal(named(rows, "write") + (size_t)end_figure(rows, "dropped"), 8000);
	assert_int_equal(named(rows, "thread_name"), 4);
	json_decref(rows);
}

/* The child's copy is not the file's writer. */
static void test_child__leaves_the_file_alone(void **state)
{
	struct trace *trace = opened();
	int status = -1;
	json_t *rows;
	pid_t child;

	(void)state;
	add(trace, "parent", 1, 1);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		add(trace, "child", 2, 1);
		trace_close(&trace);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	trace_close(&trace);
	rows = read_now(false);
	assert_int_equal(named(rows, "write"), 1);
	json_decref(rows);
}

static void test_memory__that_fails_once_is_an_error_or_nothing(void **state)
{
	(void)state;
	for (uint64_t at = 1; at < 30; at++) {
		struct trace *trace;
		struct error error;
		int rc;

		memory_fail_at(at);
		rc = open_as(&trace, path, &error);
		if (!rc)
			add(trace, "model.norm", 1, 1);
		trace_close(&trace);
		memory_fail_at(0);
		assert_true(!rc || rc == -(int)ERROR_MEMORY);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_event__is_in_the_file_as_it_was_given, begin,
						end),
		cmocka_unit_test_setup_teardown(test_file__opens_while_it_is_written, begin, end),
		cmocka_unit_test_setup_teardown(test_off__is_nothing, begin, end),
		cmocka_unit_test_setup_teardown(test_path__that_cannot_be_is_named, begin, end),
		cmocka_unit_test_setup_teardown(
			test_file__of_another_worker_is_refused_and_left_as_it_is, begin, end),
		cmocka_unit_test_setup_teardown(test_flood__is_counted_and_waits_for_nobody, begin,
						end),
		cmocka_unit_test_setup_teardown(test_threads__have_a_lane_each, begin, end),
		cmocka_unit_test_setup_teardown(test_child__leaves_the_file_alone, begin, end),
		cmocka_unit_test_setup_teardown(test_memory__that_fails_once_is_an_error_or_nothing,
						begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Trace files as OTLP: whose child a span is, of which trace, at which time of the day; lines that the collector takes; the same ids
 * for the same rows, whatever else there is.
 */
#include "base/memory.h"
#include "cli/trace_otlp.h"
#include "cli/trace_spans.h"
#include "trace/trace_line.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define DAY_NS	  1700000000123456789u /* of clock 5 s, on the host of kernel "one" */
#define CLOCK_NS  5000000000u
#define UPDATE	  (LANE_UPDATE * TRACE_LANE_STEP)
#define PEER	  (LANE_PEERS * TRACE_LANE_STEP)
#define FILES_MAX 3

static char folder[64];

/* Files of a run, and what became of them. */
static struct {
	char paths[FILES_MAX][96];
	struct text texts[FILES_MAX];
	size_t count;
	char *out;
	size_t bytes;
	json_t *spans; /* of all lines, each with its "process" and "lane" */
	size_t lines, longest;
} run;

/* ---- files ---- */

static int begin(void **state)
{
	(void)state;
	memset(&run, 0, sizeof(run));
	snprintf(folder, sizeof(folder), "/tmp/otlp-of-weft-XXXXXX");
	return mkdtemp(folder) ? 0 : -1;
}

static int end(void **state)
{
	(void)state;
	for (size_t i = 0; i < run.count; i++) {
		unlink(run.paths[i]);
		text_fini(&run.texts[i]);
	}
	json_decref(run.spans);
	free(run.out);
	return rmdir(folder);
}

static struct trace_process process_of(const char *role, int rank)
{
	return (struct trace_process){.pid = 100 + rank,
				      .job = "night",
				      .role = role,
				      .host = "a",
				      .boot = "one",
				      .rank = rank,
				      .wall_ns = DAY_NS,
				      .clock_ns = CLOCK_NS};
}

static struct text *add_file(const struct trace_process *process)
{
	struct text *text = &run.texts[run.count];

	snprintf(run.paths[run.count], sizeof(run.paths[0]), "%s/%zu.json", folder, run.count);
	run.count++;
	trace_line_begin(text, process);
	return text;
}

static struct text *add_trainer(void)
{
	const struct trace_process process = process_of("trainer", 0);

	return add_file(&process);
}

/* Begin and end in us after the file's clock; end 0: an instant. */
static void add(struct text *text, uint32_t lane, const char *name, uint64_t version,
		uint64_t begin_us, uint64_t end_us)
{
	const struct trace_event event = {.name = name,
					  .version = version,
					  .begin_ns = CLOCK_NS + begin_us * 1000,
					  .end_ns = end_us ? CLOCK_NS + end_us * 1000 : 0};

	trace_line_event(text, 1, lane, &event);
}

static void take_line(json_t *line)
{
	json_t *of = json_array_get(json_object_get(line, "resourceSpans"), 0), *scope, *span;
	size_t i, k;

	assert_int_equal(json_array_size(json_object_get(line, "resourceSpans")), 1);
	json_array_foreach(json_object_get(of, "scopeSpans"), i, scope)
	{
		json_array_foreach(json_object_get(scope, "spans"), k, span)
		{
			json_object_set(span, "process", json_object_get(of, "resource"));
			json_object_set(span, "lane",
					json_object_get(json_object_get(scope, "scope"), "name"));
			json_array_append(run.spans, span);
		}
	}
	json_decref(line);
}

static int convert(struct error *error)
{
	const char *paths[FILES_MAX];
	struct trace_set set;
	FILE *stream;
	int rc;

	for (size_t i = 0; i < run.count; i++) {
		stream = fopen(paths[i] = run.paths[i], "w");
		assert_non_null(stream);
		fputs(text_string(&run.texts[i]), stream);
		fclose(stream);
	}
	assert_int_equal(trace_set_read(&set, paths, run.count, error), 0);
	trace_set_clocks(&set);
	free(run.out);
	stream = open_memstream(&run.out, &run.bytes);
	rc = trace_put_otlp(stream, &set, error);
	fclose(stream);
	trace_set_fini(&set);
	return rc;
}

static void converted(void)
{
	struct error error;

	assert_int_equal(convert(&error), 0);
	json_decref(run.spans);
	run.spans = json_array();
	run.lines = run.longest = 0;
	for (char *at = run.out, *stop; *at; at = stop + 1, run.lines++) {
		stop = strchr(at, '\n');
		assert_non_null(stop);
		if ((size_t)(stop - at) > run.longest)
			run.longest = (size_t)(stop - at);
		take_line(json_loadb(at, (size_t)(stop - at), JSON_REJECT_DUPLICATES, NULL));
	}
}

/* ---- spans ---- */

static json_t *span_of(const char *name)
{
	size_t i;
	json_t *span, *found = NULL;

	json_array_foreach(run.spans, i, span)
	{
		if (strcmp(json_string_value(json_object_get(span, "name")), name) != 0)
			continue;
		assert_null(found);
		found = span;
	}
	assert_non_null(found);
	return found;
}

static const char *value(const char *name, const char *key)
{
	const char *text = json_string_value(json_object_get(span_of(name), key));

	return text ? text : "";
}

static void assert_child(const char *child, const char *parent)
{
	assert_string_equal(value(child, "parentSpanId"), value(parent, "spanId"));
	assert_string_equal(value(child, "traceId"), value(parent, "traceId"));
}

static void test_slice__in_another_one_of_its_lane_is_its_child(void **state)
{
	struct text *file = add_trainer();

	(void)state;
	add(file, PEER, "outer", 0, 0, 100);
	add(file, PEER, "first", 0, 0, 40);
	add(file, PEER, "inmost", 0, 10, 20);
	add(file, PEER, "second", 0, 40, 100);
	add(file, PEER, "across", 0, 90, 110);
	add(file, PEER, "after", 0, 110, 120);
	add(file, PEER + 1, "elsewhere", 0, 10, 20);
	converted();
	assert_child("first", "outer");
	assert_child("inmost", "first");
	assert_child("second", "outer");
	for (size_t i = 0; i < 4; i++)
		assert_string_equal(
			value((const char *[]){"outer", "across", "after", "elsewhere"}[i],
			      "parentSpanId"),
			"");
	assert_int_equal(json_array_size(run.spans), 7);
}

static void test_lane__has_the_update_of_its_process_and_version_above_it(void **state)
{
	const struct trace_process other = process_of("trainer", 1);
	struct text *file = add_trainer();

	(void)state;
	add(file, PEER, "write", 7, 10, 30);
	add(file, PEER, "flush", 7, 12, 15);
	add(file, PEER, "late", 7, 90, 110);
	add(file, PEER, "next", 8, 95, 98);
	add(file, UPDATE, "update", 7, 0, 100);
	file = add_file(&other);
	add(file, PEER, "another's", 7, 10, 30);
	converted();
	assert_child("write", "update");
	assert_child("flush", "write");
	for (size_t i = 0; i < 4; i++)
		assert_string_equal(
			value((const char *[]){"update", "late", "next", "another's"}[i],
			      "parentSpanId"),
			"");
	assert_string_equal(value("another's", "traceId"), value("update", "traceId"));
	assert_string_not_equal(value("next", "traceId"), value("update", "traceId"));
}

static void test_trace__of_another_run_of_the_same_job_is_another_one(void **state)
{
	struct trace_process process = process_of("controller", -1);
	char before[DIGEST_TEXT_BYTES];

	(void)state;
	add(add_file(&process), UPDATE, "plan", 0, 0, 100);
	converted();
	assert_int_equal(strlen(value("plan", "traceId")), 32);
	assert_int_equal(strspn(value("plan", "traceId"), "0123456789abcdef"), 32);
	snprintf(before, sizeof(before), "%s", value("plan", "traceId"));
	text_fini(&run.texts[--run.count]);
	process.wall_ns += 1;
	add(add_file(&process), UPDATE, "plan", 0, 0, 100);
	converted();
	assert_string_not_equal(value("plan", "traceId"), before);
}

static void test_instant__is_a_span_without_length(void **state)
{
	struct text *file = add_trainer();

	(void)state;
	add(file, PEER, "accept", 3, 20, 0);
	add(file, UPDATE, "update", 3, 0, 100);
	converted();
	assert_child("accept", "update");
	assert_string_equal(value("accept", "startTimeUnixNano"),
			    value("accept", "endTimeUnixNano"));
}

static void test_update__that_was_given_up_is_an_error_in_its_own_words(void **state)
{
	struct trace_event event = {.name = "update given up",
				    .version = 4,
				    .begin_ns = CLOCK_NS,
				    .end_ns = CLOCK_NS + 5000};
	struct text *file = add_trainer();
	json_t *status;

	(void)state;
	trace_text(&event, "trainer 1 \"left\"");
	trace_line_event(file, 1, UPDATE, &event);
	add(file, PEER, "abort", 4, 1, 2);
	converted();
	status = json_object_get(span_of("update given up"), "status");
	assert_int_equal(json_integer_value(json_object_get(status, "code")), 2);
	assert_string_equal(json_string_value(json_object_get(status, "message")),
			    "trainer 1 \"left\"");
	assert_child("abort", "update given up");
	assert_null(json_object_get(span_of("abort"), "status"));
}

/* The reference's clock of the day counts for all: the other host's is an hour off, and a heartbeat says so. */
static void test_times__are_of_the_day_by_the_references_clock(void **state)
{
	struct trace_process process = process_of("controller", -1);
	struct trace_event beat = {
		.name = "heartbeat", .sequence = 1, .from = 9, .begin_ns = CLOCK_NS + 2000000};
	struct text *file = add_file(&process);

	(void)state;
	add(file, UPDATE, "plan", 0, 1000, 3000);
	trace_line_event(file, 1, UPDATE + 1, &beat);
	process = process_of("trainer", 0);
	process.boot = "two";
	process.wall_ns += 3600 * 1000000000ul;
	file = add_file(&process);
	beat.begin_ns = CLOCK_NS + 7000000;
	beat.end_ns = CLOCK_NS + 7000002;
	trace_line_event(file, 1, UPDATE + 1, &beat);
	add(file, PEER, "write", 1, 7000, 8000);
	/* two rows have that name */
	assert_int_equal(convert(&(struct error){0}), 0);
	assert_non_null(strstr(run.out, "\"name\":\"plan\",\"kind\":1,\"startTimeUnixNano\":"
					"\"1700000000124456789\",\"endTimeUnixNano\":"
					"\"1700000000126456789\""));
	assert_non_null(strstr(run.out, "\"name\":\"write\",\"kind\":1,\"startTimeUnixNano\":"
					"\"1700000000125456788\",\"endTimeUnixNano\":"
					"\"1700000000126456788\""));
}

static void test_clock__that_is_before_1970_is_refused_by_its_file(void **state)
{
	struct trace_process process = process_of("controller", -1);
	struct error error;

	(void)state;
	process.wall_ns = 1000000000;
	process.clock_ns = 2 * CLOCK_NS;
	add(add_file(&process), UPDATE, "plan", 0, 0, 100);
	assert_int_equal(convert(&error), -(int)ERROR_FILE);
	assert_non_null(strstr(error.text, "0.json"));
	assert_non_null(strstr(error.text, "1970"));
}

static void test_lines__are_short_enough_and_each_is_whole(void **state)
{
	struct text *file = add_trainer();

	(void)state;
	for (uint64_t i = 0; i < 12000; i++)
		add(file, PEER + (uint32_t)(i % 3), "write", i % 5 + 1, i * 10, i * 10 + 5);
	converted();
	assert_int_equal(json_array_size(run.spans), 12000);
	assert_true(run.lines > 3);
	assert_true(run.longest < TRACE_OTLP_LINE_BYTES);
	assert_true(run.longest > TRACE_OTLP_LINE_BYTES * 9 / 10);
}

static void test_ids__stay_when_a_file_grows_and_others_come(void **state)
{
	const struct trace_process other = process_of("trainer", 1);
	struct text *file = add_trainer();
	char before[SPAN_ID_BYTES];

	(void)state;
	add(file, PEER, "write", 1, 10, 20);
	converted();
	snprintf(before, sizeof(before), "%s", value("write", "spanId"));
	add(file, PEER, "earlier", 1, 0, 5);
	add(add_file(&other), PEER, "another's", 1, 0, 5);
	converted();
	assert_string_equal(value("write", "spanId"), before);
	assert_string_not_equal(value("earlier", "spanId"), before);
	assert_string_not_equal(value("another's", "spanId"), before);
}

static void test_attributes__are_of_the_kind_that_the_rows_have(void **state)
{
	struct trace_event event = {.name = "write",
				    .path = "direct",
				    .version = 1,
				    .bytes = 4096,
				    .piece = 3,
				    .begin_ns = CLOCK_NS,
				    .end_ns = CLOCK_NS + 1};
	struct text *file = add_trainer();

	(void)state;
	trace_text(&event, "model.norm");
	trace_line_lane(file, 1, PEER, "to inference 0");
	trace_line_event(file, 1, PEER, &event);
	text_add(file, "{\"ph\":\"i\",\"pid\":1,\"tid\":0,\"name\":\"odd\",\"ts\":5000000,\"args\":"
		       "{\"a\":true,\"b\":0.5,\"c\":[1,null]}},\n");
	converted();
	assert_string_equal(value("write", "lane"), "to inference 0");
	assert_string_equal(value("odd", "lane"), "process");
	assert_non_null(strstr(
		run.out, "\"attributes\":["
			 "{\"key\":\"weft.version\",\"value\":{\"intValue\":\"1\"}},"
			 "{\"key\":\"weft.bytes\",\"value\":{\"intValue\":\"4096\"}},"
			 "{\"key\":\"weft.piece\",\"value\":{\"intValue\":\"2\"}},"
			 "{\"key\":\"weft.part\",\"value\":{\"intValue\":\"0\"}},"
			 "{\"key\":\"weft.path\",\"value\":{\"stringValue\":\"direct\"}},"
			 "{\"key\":\"weft.tensor\",\"value\":{\"stringValue\":\"model.norm\"}}]"));
	assert_non_null(strstr(run.out,
			       "{\"key\":\"weft.a\",\"value\":{\"boolValue\":true}},"
			       "{\"key\":\"weft.b\",\"value\":{\"doubleValue\":0.5}},"
			       "{\"key\":\"weft.c\",\"value\":{\"stringValue\":\"[1,null]\"}}"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
	const struct CMUnitTest tests[] = {
		TEST(test_slice__in_another_one_of_its_lane_is_its_child),
		TEST(test_lane__has_the_update_of_its_process_and_version_above_it),
		TEST(test_trace__of_another_run_of_the_same_job_is_another_one),
		TEST(test_instant__is_a_span_without_length),
		TEST(test_update__that_was_given_up_is_an_error_in_its_own_words),
		TEST(test_times__are_of_the_day_by_the_references_clock),
		TEST(test_clock__that_is_before_1970_is_refused_by_its_file),
		TEST(test_lines__are_short_enough_and_each_is_whole),
		TEST(test_ids__stay_when_a_file_grows_and_others_come),
		TEST(test_attributes__are_of_the_kind_that_the_rows_have),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The dump reader on files: any legal layout of the same content, values across chunks, routes
 * one by one, and hostile texts with the byte they are refused at.
 */
#include "tests/support/sanitized.h"
#include "tests/unit/routing/routing_job.h"

#include "base/file.h"
#include "base/text.h"
#include "routing/report/dump.h"
#include "routing/report/dump_read.h"
#include "base/json_split.h"
#include <jansson.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHIFT_STEP (SANITIZED ? 149 : 17) /* each shift reads a MiB twice */

static char path[64];

static char *text_of(const struct dump *dump)
{
	char *data = NULL;
	size_t bytes;
	FILE *stream = open_memstream(&data, &bytes);

	assert_non_null(stream);
	dump_put(stream, dump, DUMP_WHOLE);
	fclose(stream);
	return data;
}

/* Some engines of one rank that want many tensors: routes enough for several chunks. */
static char *large_text(uint32_t tensors)
{
	static struct job job;
	struct error error = {0};
	struct table *table;
	struct dump *dump;
	char *text;

	job_init(&job, 2, 8);
	job.ranks_per_engine = 1;
	for (uint32_t n = 0; n < tensors; n++) {
		char name[64];

		snprintf(name, sizeof(name), "model.layers.%u.\xc3\xa9\\\"weight\"", n);
		job_hold(&job, n % 2, name, n, 4, 2, 0, 4);
		for (uint32_t i = 0; i < 8; i++)
			job_want(&job, i, name, name, 4, 2, 0, 4, 0, 1);
	}
	job_build(&job);
	table = job_plan(&job, "greedy");
	assert_int_equal(dump_of(&dump, table, &error), 0);
	text = text_of(dump);
	dump_free(&dump);
	table_free(&table);
	job_fini(&job);
	return text;
}

static void save(const char *text, size_t bytes)
{
	FILE *file = fopen(path, "w");

	assert_non_null(file);
	assert_int_equal(fwrite(text, 1, bytes, file), bytes);
	assert_int_equal(fclose(file), 0);
}

/* The text in another layout: by jansson, with white space and sorted keys. */
static char *relaid(const char *text, size_t flags)
{
	json_t *root = json_loads(text, 0, NULL);
	char *other;

	assert_non_null(root);
	other = json_dumps(root, flags);
	json_decref(root);
	return other;
}

static void test_layouts__pretty_sorted_and_escaped_give_the_same_dump(void **state)
{
	static const size_t layouts[] = {JSON_INDENT(4), JSON_COMPACT, JSON_SORT_KEYS,
					 JSON_ENSURE_ASCII | JSON_INDENT(1),
					 JSON_SORT_KEYS | JSON_INDENT(2) | JSON_ESCAPE_SLASH};
	char *text = large_text(1500);

	(void)state;
	assert_true(strlen(text) > 2 * SPLIT_CHUNK_BYTES);
	for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
		char *other = relaid(text, layouts[i] | JSON_REAL_PRECISION(9)), *again;
		struct error error = {0};
		struct dump *dump;

		save(other, strlen(other));
		if (dump_open(&dump, path, &error))
			fail_msg("layout %zu: %s", i, error.text);
		again = text_of(dump);
		assert_string_equal(again, text);
		dump_free(&dump);
		if (dump_parse(&dump, other, strlen(other), "memory", &error))
			fail_msg("layout %zu: %s", i, error.text);
		dump_free(&dump);
		free(again);
		free(other);
	}
	free(text);
}

/* ---- route by route ---- */

struct visit {
	const struct dump *whole;
	size_t heads, routes, stop_at;
};

static int visit_head(void *context, const struct dump *head, struct error *error)
{
	struct visit *visit = context;

	(void)error;
	visit->heads++;
	assert_string_equal(head->labels.model, visit->whole->labels.model);
	assert_int_equal(head->labels.trainer_count, visit->whole->labels.trainer_count);
	return 0;
}

static int visit_route(void *context, const struct dump *head, const struct route *route,
		       const struct route_piece *pieces, struct error *error)
{
	struct visit *visit = context;
	const struct dump *whole = visit->whole;
	const struct route *same = &whole->routes[visit->routes];

	if (visit->routes == visit->stop_at)
		return error_set(error, ERROR_ABORTED, "stopped");
	assert_string_equal(head->names.items[route->tensor], whole->names.items[same->tensor]);
	assert_int_equal(route->trainer, same->trainer);
	assert_int_equal(route->inference, same->inference);
	assert_int_equal(route->piece_first, 0);
	assert_int_equal(route->piece_count, same->piece_count);
	for (uint32_t p = 0; p < route->piece_count; p++) {
		const struct route_piece *piece = &whole->pieces[same->piece_first + p];

		assert_true(box_equal(&pieces[p].src, &piece->src));
		assert_int_equal(pieces[p].offset, piece->offset);
		assert_string_equal(head->names.items[pieces[p].param],
				    whole->names.items[piece->param]);
	}
	visit->routes++;
	return 0;
}

static void test_visitor__sees_each_route_once_in_order(void **state)
{
	char *text = large_text(300), *sorted = relaid(text, JSON_SORT_KEYS);
	const char *const texts[] = {text, sorted};
	struct error error = {0};
	struct dump *whole, *rest;

	(void)state;
	assert_int_equal(dump_parse(&whole, text, strlen(text), "memory", &error), 0);
	for (int i = 0; i < 2; i++) {
		struct visit visit = {.whole = whole, .stop_at = SIZE_MAX};
		struct dump_visitor visitor = {visit_head, visit_route, &visit};

		save(texts[i], strlen(texts[i]));
		if (dump_visit(&rest, path, &visitor, &error))
			fail_msg("%s", error.text);
		assert_int_equal(visit.heads, 1);
		assert_int_equal(visit.routes, whole->route_count);
		assert_true(rest->has_routes && rest->route_count == 0);
		assert_true(digest_equal(rest->labels.digest, whole->labels.digest));
		assert_int_equal(rest->report.own.routes, whole->route_count);
		dump_free(&rest);
		visit = (struct visit){.whole = whole, .stop_at = 17};
		assert_int_equal(dump_visit(&rest, path, &visitor, &error), -ERROR_ABORTED);
		assert_string_equal(error.text, "stopped");
		assert_int_equal(visit.routes, 17);
		assert_null(rest);
	}
	dump_free(&whole);
	free(sorted);
	free(text);
}

/* ---- pipes ---- */

static void *feed(void *text)
{
	FILE *file = fopen(path, "w");

	if (file) {
		fwrite(text, 1, strlen(text), file); /* the reader may give up before the end */
		fclose(file);
	}
	return NULL;
}

static int read_pipe(char *text, struct dump **dump, struct error *error)
{
	pthread_t feeder;
	int keep, rc;

	unlink(path);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(pthread_create(&feeder, NULL, feed, text), 0);
	keep = open(path, O_RDONLY); /* so that the feeder has opened before the reader does */
	assert_true(keep >= 0);
	rc = dump_open(dump, path, error);
	close(keep);
	pthread_join(feeder, NULL);
	unlink(path);
	return rc;
}

static void test_pipe__is_read_once_and_wants_the_routes_after_the_ranks(void **state)
{
	char *text = large_text(300), *sorted = relaid(text, JSON_SORT_KEYS), *again;
	struct error error = {0};
	struct dump *dump;

	(void)state;
	signal(SIGPIPE, SIG_IGN);
	if (read_pipe(text, &dump, &error))
		fail_msg("%s", error.text);
	again = text_of(dump);
	assert_string_equal(again, text);
	dump_free(&dump);
	assert_int_equal(read_pipe(sorted, &dump, &error), -ERROR_IO);
	assert_non_null(strstr(error.text, "\"routes\" stand before the labels and ranks"));
	free(again);
	free(sorted);
	free(text);
}

/* ---- hostile texts ---- */

static char *repeated(const char *before, const char *unit, size_t times, const char *after)
{
	struct text text = {0};

	text_add(&text, before);
	for (size_t i = 0; i < times; i++)
		text_add(&text, unit);
	text_add(&text, after);
	assert_true(text_ok(&text));
	return text.data;
}

static void expect(const char *text, size_t bytes, const char *message)
{
	for (int from_file = 0; from_file < 2; from_file++) {
		struct error error = {0};
		struct dump *dump;
		int rc;

		if (from_file)
			save(text, bytes);
		rc = from_file ? dump_open(&dump, path, &error)
			       : dump_parse(&dump, text, bytes, path, &error);
		if (rc != -ERROR_FILE || !strstr(error.text, message))
			fail_msg("%.60s: %d, '%s' has no '%s'", text, rc, error.text, message);
		assert_memory_equal(error.text, path, strlen(path));
		assert_null(dump);
	}
}

static void test_hostile__texts_are_refused_with_their_byte(void **state)
{
	static const struct {
		const char *text, *message;
	} cases[] = {
		{"", "ends at byte 0 where the '{' of a routing dump is due"},
		{"[]", "'[' at byte 0 where the '{' of a routing dump is due"},
		{"\xef\xbb\xbf{}", "byte 0xef at byte 0"},
		{"{}", "key \"schema\" is missing"},
		{"{} x", "text after the end, at byte 3"},
		{"{\"a\":1}}", "text after the end, at byte 7"},
		{"{\"a\":1,}", "'}' at byte 7 where another item after ','"},
		{"{\"a\" 1}", "'1' at byte 5 where ':' after a key is due"},
		{"{\"a\":}", "'}' at byte 5 where a value is due"},
		{"{\"a\":,", "',' at byte 5 where a value is due"},
		{"{1:2}", "'1' at byte 1 where a key in quotes is due"},
		{"{\"a\":1 2}", "'2' at byte 7 where ',' or the '}'"},
		{"{\"a", "ends at byte 3 where the rest of a value is due"},
		{"{\"a\":12", "ends at byte 7 where ',' or the '}'"},
		{"{\"a\":tru}", "invalid token"},
		{"{\"a\":[1}", "a: ']' expected near '}', at byte 8"},
		{"{\"a\":\"\xff\"}", "a: unable to decode byte 0xff"},
		{"{\"\\u0000\":1}", "NUL"},
		{"{\"a\":1,\"\\u0061\":2}", "duplicate key \"a\" before byte 16"},
		{"{\"a\":{\"b\":1,\"b\":2}}", "a: duplicate object key"},
		{"{\"routes\":[],\"routes\":[]}", "duplicate key \"routes\" before byte 22"},
		{"{\"schema\":\"weft.routing/2\",\"new\":[]}",
		 "\"schema\" is \"weft.routing/2\"; this weft reads weft.routing/1: use the weft "
		 "that wrote it, or plan again with this one"},
		{"{\"routes\":[{\"a\":1},],\"schema\":\"weft.routing/0\"}",
		 "\"schema\" is \"weft.routing/0\""},
	};
	char item[4096] = {0};
	char *text;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		expect(cases[i].text, strlen(cases[i].text), cases[i].message);
	expect("{\"a\":1}\0", 8, "text after the end, at byte 7");
	expect("{\"a\"\0:1}", 8, "byte 0x00 at byte 4");
	text = repeated("{\"a\":", "[", 3000000, "");
	expect(text, strlen(text), "more than 16 brackets inside each other at byte 21");
	memory_free(text);
	text = repeated("{\"a\":\"", "x", 70000, "\"}");
	expect(text, strlen(text), "has more than 65536 bytes");
	memory_free(text);
	text = repeated("{\"a\":", "1", 65, "}");
	expect(text, strlen(text), "a number or word before byte 70 has more than 64 bytes");
	memory_free(text);
	memset(item, 'x', sizeof(item) - 1); /* long strings: read faster than as many numbers */
	memcpy(item, ",\"", 2);
	item[sizeof(item) - 2] = '"';
	text = repeated("{\"a\":[1", item, 67108864 / (sizeof(item) - 1) + 1, "]}");
	expect(text, strlen(text), "the value at byte 5 has more than 67108864 bytes");
	memory_free(text);
}

/* As in one text, so in a file: where a chunk ends must not matter. */
static void test_chunks__a_value_may_end_anywhere(void **state)
{
	char *text = large_text(2);
	size_t bytes = strlen(text);

	(void)state;
	for (size_t shift = 0; shift < bytes; shift += SHIFT_STEP) {
		size_t pad = SPLIT_CHUNK_BYTES - shift;
		char *moved = malloc(pad + bytes + 1), *again;
		struct error error = {0};
		struct dump *dump;

		memset(moved, ' ', pad);
		memcpy(moved + pad, text, bytes + 1);
		save(moved, pad + bytes);
		if (dump_open(&dump, path, &error))
			fail_msg("shift %zu: %s", shift, error.text);
		again = text_of(dump);
		assert_string_equal(again, text);
		dump_free(&dump);
		free(again);
		/* and cut there, it is no dump */
		assert_int_equal(truncate(path, (off_t)(SPLIT_CHUNK_BYTES)), 0);
		if (shift + 1 < bytes) {
			assert_int_equal(dump_open(&dump, path, &error), -ERROR_FILE);
			assert_non_null(strstr(error.text, "byte 1048576"));
		}
		free(moved);
	}
	free(text);
}

static void test_file__that_cannot_be_read_is_an_error(void **state)
{
	struct error error = {0};
	struct dump *dump;

	(void)state;
	assert_int_equal(dump_open(&dump, "/", &error), -ERROR_IO);
	assert_int_equal(dump_open(&dump, "/no/such/file", &error), -ERROR_IO);
	assert_non_null(strstr(error.text, "/no/such/file"));
	/* reads of address 0 of a process fail: an error in the middle of a regular file */
	assert_int_equal(dump_open(&dump, "/proc/self/mem", &error), -ERROR_IO);
	assert_non_null(strstr(error.text, "cannot read /proc/self/mem"));
}

static int stream_once(struct error *error)
{
	struct dump *dump;
	int rc = dump_open(&dump, path, error);

	dump_free(&dump);
	return rc;
}

static void test_stream__survives_every_failed_allocation(void **state)
{
	char *text = large_text(20), *sorted = relaid(text, JSON_SORT_KEYS | JSON_INDENT(2));
	size_t pad = SPLIT_CHUNK_BYTES - 700;
	char *moved = malloc(pad + strlen(sorted) + 1);
	struct error error = {0};
	int rc = -1;

	(void)state;
	memset(moved, ' ', pad);
	strcpy(moved + pad, sorted);
	save(moved, strlen(moved));
	for (uint64_t k = 1; rc; k++) {
		memory_fail_at(k);
		rc = stream_once(&error);
		memory_fail_at(0);
		if (rc != 0 && rc != -ERROR_MEMORY)
			fail_msg("allocation %" PRIu64 ": %s", k, error.text);
		assert_true(k < 10000);
	}
	free(moved);
	free(sorted);
	free(text);
}

static int remove_file(void **state)
{
	(void)state;
	unlink(path);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layouts__pretty_sorted_and_escaped_give_the_same_dump),
		cmocka_unit_test(test_visitor__sees_each_route_once_in_order),
		cmocka_unit_test(test_pipe__is_read_once_and_wants_the_routes_after_the_ranks),
		cmocka_unit_test(test_hostile__texts_are_refused_with_their_byte),
		cmocka_unit_test(test_chunks__a_value_may_end_anywhere),
		cmocka_unit_test(test_file__that_cannot_be_read_is_an_error),
		cmocka_unit_test(test_stream__survives_every_failed_allocation),
	};

	if (SANITIZED_THREADS) /* the others have one thread, which has no race */
		cmocka_set_test_filter("test_pipe__*");
	snprintf(path, sizeof(path), "stream-%d.json", (int)getpid());
	return cmocka_run_group_tests(tests, NULL, remove_file);
}

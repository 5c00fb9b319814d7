/* SPDX-License-Identifier: Apache-2.0 */
#include "base/array.h"
#include "base/copy.h"
#include "job/digest.h"
#include "base/file.h"
#include "base/json_write.h"
#include "job/strmap.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static void test_error__is_wrapped_and_cut_never_replaced(void **unused)
{
	struct error error;
	char longest[2 * ERROR_TEXT_BYTES];

	(void)unused;
	assert_int_equal(error_set(&error, ERROR_TIMEOUT, "no signal from %s", "trainer 3"), -130);
	assert_int_equal(error_wrap(&error, "update %d", 12), -130);
	assert_string_equal(error.text, "update 12: no signal from trainer 3");
	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	error_set(&error, ERROR_IO, "%s", longest);
	assert_int_equal(strlen(error.text), ERROR_TEXT_BYTES - 1);
	assert_string_equal(error.text + ERROR_TEXT_BYTES - 4, "...");
	assert_int_equal(error_exit_code(ERROR_TIMEOUT), 75);
	assert_int_equal(error_exit_code(ERROR_CONFIG), 78);
	assert_int_equal(error_set(NULL, ERROR_IO, "no one listens"), -ERROR_IO);
}

static void test_json__is_canonical_and_escapes(void **unused)
{
	struct text text = {0};
	struct json json;

	(void)unused;
	json_to_text(&json, &text);
	json_put_object(&json);
	json_put_key_string(&json, "a", "q\"\\\n\x01z");
	json_put_key(&json, "list");
	json_put_array(&json);
	json_put_u64(&json, 1);
	json_put_i64(&json, -2);
	json_put_double(&json, 0.5);
	json_put_double(&json, 1.0 / 0.0);
	json_put_bool(&json, true);
	json_put_array_end(&json);
	json_put_key(&json, "empty");
	json_put_object(&json);
	json_put_object_end(&json);
	json_put_object_end(&json);
	assert_string_equal(
		text_string(&text),
		"{\"a\":\"q\\\"\\\\\\n\\u0001z\",\"list\":[1,-2,0.5,null,true],\"empty\":{}}");
	text_fini(&text);
}

static void test_strmap__finds_what_was_put_among_thousands(void **unused)
{
	struct strmap map = {0};
	char *keys[5000];
	uint32_t value;

	(void)unused;
	for (uint32_t i = 0; i < ARRAY_SIZE(keys); i++) {
		keys[i] = memory_format("model.layers.%u.weight", i);
		assert_true(strmap_put(&map, keys[i], i));
	}
	for (uint32_t i = 0; i < ARRAY_SIZE(keys); i++) {
		assert_true(strmap_get(&map, keys[i], &value));
		assert_int_equal(value, i);
	}
	assert_false(strmap_get(&map, "model.layers.5000.weight", &value));
	assert_int_equal(map.count, ARRAY_SIZE(keys));
	strmap_fini(&map);
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		memory_free(keys[i]);
}

static void test_digest__text_round_trips_and_rejects_others(void **unused)
{
	char text[DIGEST_TEXT_BYTES];
	struct digest digest = digest_bytes("weft", 4), again;
	struct digest_stream stream;

	(void)unused;
	assert_true(digest_parse(digest_text(digest, text), &again));
	assert_true(digest_equal(digest, again));
	digest_begin(&stream);
	digest_add(&stream, "we", 2);
	digest_add(&stream, "ft", 2);
	assert_true(digest_equal(digest, digest_end(&stream)));
	text[3] = 'X';
	assert_false(digest_parse(text, &again));
	assert_false(digest_parse("00", &again));
}

static void test_file_writer__leaves_the_old_file_until_commit(void **unused)
{
	char path[] = "weft-test-XXXXXX";
	struct file_writer writer;
	struct file_map map;
	struct error error;

	(void)unused;
	assert_true(mkstemp(path) >= 0);
	assert_int_equal(file_writer_open(&writer, path, &error), 0);
	fputs("half", writer.stream);
	file_writer_abort(&writer);
	assert_int_equal(file_map_open(&map, path, &error), 0);
	assert_int_equal(map.bytes, 0);
	file_map_close(&map);
	assert_int_equal(file_writer_open(&writer, path, &error), 0);
	fputs("whole", writer.stream);
	assert_int_equal(file_writer_commit(&writer, &error), 0);
	assert_int_equal(file_map_open(&map, path, &error), 0);
	assert_memory_equal(map.data, "whole", 5);
	file_map_close(&map);
	unlink(path);
	assert_int_equal(file_map_open(&map, path, &error), -ERROR_IO);
	assert_non_null(strstr(error.text, path));
	assert_int_equal(file_writer_open(&writer, "/nowhere/x", &error), -ERROR_IO);
}

static void test_file_writer__leaves_nothing_when_the_process_is_killed(void **unused)
{
	char folder[] = "weft-test-XXXXXX", path[64];
	struct file_writer writer;
	struct error error;
	int status, fd;
	pid_t child;

	(void)unused;
	fd = open(".", O_TMPFILE | O_WRONLY, 0600);
	if (fd < 0)
		skip(); /* this file system has no files without a name */
	close(fd);
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/file", folder);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		if (file_writer_open(&writer, path, &error) == 0) {
			fputs("half", writer.stream);
			fflush(writer.stream);
		}
		raise(SIGKILL);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(rmdir(folder), 0); /* it is empty */
}

static void test_error__quotes_no_control_characters(void **unused)
{
	struct error error;

	(void)unused;
	error_set(&error, ERROR_CONFIG, "model '%s'", "a\033[31m\n\177\302\233b\303\251");
	assert_string_equal(error.text, "model 'a?[31m????b\303\251'");
	error_set_errno(&error, ERROR_IO, ENOENT, "a\tb");
	assert_string_equal(error.text, "a?b: No such file or directory");
	error_wrap(&error, "in\r%s", "file");
	assert_string_equal(error.text, "in?file: a?b: No such file or directory");
}

static void test_file_writer__writes_what_is_no_regular_file_in_place(void **unused)
{
	char folder[] = "weft-test-XXXXXX", path[64], link[64], text[8] = "";
	struct file_writer writer;
	struct error error;
	struct stat status;
	int fd;

	(void)unused;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/pipe", folder);
	snprintf(link, sizeof(link), "%s/link", folder);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(symlink("pipe", link), 0);
	fd = open(path, O_RDWR | O_NONBLOCK);
	assert_true(fd >= 0);
	assert_int_equal(file_writer_open(&writer, link, &error), 0);
	fputs("whole", writer.stream);
	assert_int_equal(file_writer_commit(&writer, &error), 0);
	assert_int_equal(read(fd, text, sizeof(text)), 5);
	assert_string_equal(text, "whole");
	assert_int_equal(lstat(path, &status), 0);
	assert_true(S_ISFIFO(status.st_mode));
	assert_int_equal(lstat(link, &status), 0);
	assert_true(S_ISLNK(status.st_mode));
	close(fd);
	unlink(link);
	unlink(path);
	assert_int_equal(file_writer_open(&writer, folder, &error), -ERROR_IO);
	assert_non_null(strstr(error.text, folder));
	rmdir(folder);
	assert_int_equal(file_writer_open(&writer, "", &error), -ERROR_IO);
}

static void test_copy__equals_memcpy_at_every_offset_and_length(void **unused)
{
	enum { BYTES = 40000 };
	unsigned char *source = malloc(BYTES), *target = malloc(BYTES), *expected = malloc(BYTES);

	(void)unused;
	for (size_t i = 0; i < BYTES; i++)
		source[i] = (unsigned char)(i * 31 + i / 251);
	for (int n = 0; n < 3000; n++) {
		size_t from = (size_t)rand() % 200, to = (size_t)rand() % 200;
		size_t bytes = (size_t)rand() % (BYTES - 400);

		memset(target, 0, BYTES);
		memset(expected, 0, BYTES);
		memcpy(expected + to, source + from, bytes);
		copy_bytes(target + to, source + from, bytes);
		copy_fence();
		assert_memory_equal(target, expected, BYTES);
	}
	free(source);
	free(target);
	free(expected);
}

static void test_copy_rows__equals_a_loop_of_memcpy(void **unused)
{
	enum { BYTES = 200000 };
	unsigned char *source = malloc(BYTES), *target = malloc(BYTES), *expected = malloc(BYTES);

	(void)unused;
	for (size_t i = 0; i < BYTES; i++)
		source[i] = (unsigned char)(i * 131 + i / 509);
	for (int n = 0; n < 3000; n++) {
		size_t width = 1 + (size_t)rand() % (n % 3 > 0 ? 700 : 20000);
		size_t stride = width + (size_t)rand() % 900, from = (size_t)rand() % 64;
		size_t rows = (size_t)rand() % ((BYTES - 64) / stride),
		       to = n % 2 ? 0 : (size_t)rand() % 64;

		if (n % 4 == 0 && width >= 64)
			width = width / 64 * 64;
		memset(target, 0, BYTES);
		memset(expected, 0, BYTES);
		for (size_t r = 0; r < rows; r++)
			memcpy(expected + to + r * width, source + from + r * stride, width);
		copy_rows(target + to, source + from, rows, width, stride);
		copy_fence();
		assert_memory_equal(target, expected, BYTES);
	}
	free(source);
	free(target);
	free(expected);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_error__is_wrapped_and_cut_never_replaced),
		cmocka_unit_test(test_json__is_canonical_and_escapes),
		cmocka_unit_test(test_strmap__finds_what_was_put_among_thousands),
		cmocka_unit_test(test_digest__text_round_trips_and_rejects_others),
		cmocka_unit_test(test_file_writer__leaves_the_old_file_until_commit),
		cmocka_unit_test(test_file_writer__writes_what_is_no_regular_file_in_place),
		cmocka_unit_test(test_file_writer__leaves_nothing_when_the_process_is_killed),
		cmocka_unit_test(test_error__quotes_no_control_characters),
		cmocka_unit_test(test_copy__equals_memcpy_at_every_offset_and_length),
		cmocka_unit_test(test_copy_rows__equals_a_loop_of_memcpy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Text of others in lines of ours: what is escaped, what is left alone, where it is cut.
 */
#include "base/error.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "base/plain.h"
#include "base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define EACH(rows) (sizeof(rows) / sizeof((rows)[0]))

static const struct {
	const char *text, *plain, *json;
} rows[] = {
	{"", "", "\"\""},
	{"model.layers.0.weight", "model.layers.0.weight", "\"model.layers.0.weight\""},
	{"\xe6\x97\xa5\xf0\x9f\xa7\xb5 e\xcc\x81", "\xe6\x97\xa5\xf0\x9f\xa7\xb5 e\xcc\x81",
	 "\"\xe6\x97\xa5\xf0\x9f\xa7\xb5 e\xcc\x81\""},
	{"say \"\\\"", "say \"\\\"", "\"say \\\"\\\\\\\"\""},
	{"a\nb\tc\r", "a\\x0ab\\x09c\\x0d", "\"a\\nb\\tc\\r\""},
	{"\x1b[2J\x7f", "\\x1b[2J\\x7f", "\"\\u001b[2J\\u007f\""},
	{"\xc2\x85\xc2\x9b", "\\u0085\\u009b", "\"\\u0085\\u009b\""},	      /* C1 */
	{"\xe2\x80\xa8\xe2\x80\xae", "\\u2028\\u202e", "\"\\u2028\\u202e\""}, /* line, direction */
	{"\xff|\xc3", "\\xff|\\xc3", "\"\\ufffd|\\ufffd\""},
	{"\xc0\xaf\xed\xa0\x80", "\\xc0\\xaf\\xed\\xa0\\x80",
	 "\"\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\""}, /* overlong, surrogate */
};

static void test_text__is_escaped_where_it_is_not_plain(void **state)
{
	(void)state;
	for (size_t i = 0; i < EACH(rows); i++) {
		struct text added = {0}, json_text = {0};
		struct json json;
		char put[128];

		assert_int_equal(plain_put(put, sizeof(put), rows[i].text), strlen(rows[i].plain));
		assert_string_equal(put, rows[i].plain);
		plain_add(&added, rows[i].text);
		assert_string_equal(text_string(&added), rows[i].plain);
		assert_true(plain_is(put));
		assert_int_equal(plain_is(rows[i].text), !strcmp(rows[i].text, rows[i].plain));
		json_to_text(&json, &json_text);
		json_put_string(&json, rows[i].text);
		assert_string_equal(text_string(&json_text), rows[i].json);
		text_fini(&added);
		text_fini(&json_text);
	}
}

static void test_cut__is_marked_and_inside_of_no_character(void **state)
{
	const char *text = "ab\x1b\xe6\x97\xa5\xff"
			   "end";
	char whole[64];
	size_t bytes = plain_put(whole, sizeof(whole), text);

	(void)state;
	assert_string_equal(whole, "ab\\x1b\xe6\x97\xa5\\xffend");
	for (size_t room = PLAIN_SHOWN_BYTES; room <= bytes + 3; room++) {
		char out[64];
		size_t n;

		memset(out, '#', sizeof(out));
		n = plain_put(out, room, text);
		assert_int_equal(n, strlen(out));
		assert_true(n < room);
		assert_int_equal(out[room], '#');
		assert_true(plain_is(out));
		if (room > bytes)
			assert_string_equal(out, whole);
		else
			assert_string_equal(out + n - 3, "...");
	}
}

static void test_error__is_plain_whatever_it_quotes(void **state)
{
	struct error error;

	(void)state;
	error_set(&error, ERROR_FILE, "tensor %s", "a\x1b\n\xe2\x80\xa8\xff.\xe6\x97\xa5");
	assert_string_equal(error.text, "tensor a??????.\xe6\x97\xa5");
}

static void test_anything__becomes_plain(void **state)
{
	(void)state;
	srand(1);
	for (int i = 0; i < 20000; i++) {
		char text[40], out[170], small[16];
		size_t n = (size_t)rand() % sizeof(text);

		for (size_t k = 0; k < n; k++)
			text[k] = (char)(rand() % 3 ? rand() % 255 + 1 : 0xc0 + rand() % 64);
		text[n < sizeof(text) ? n : n - 1] = '\0';
		plain_put(out, sizeof(out), text);
		assert_true(plain_is(out));
		assert_int_equal(utf8_prefix(out, strlen(out)), strlen(out));
		plain_put(small, sizeof(small), text);
		assert_true(plain_is(small));
		plain_mask(text);
		assert_true(plain_is(text));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_text__is_escaped_where_it_is_not_plain),
		cmocka_unit_test(test_cut__is_marked_and_inside_of_no_character),
		cmocka_unit_test(test_error__is_plain_whatever_it_quotes),
		cmocka_unit_test(test_anything__becomes_plain),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

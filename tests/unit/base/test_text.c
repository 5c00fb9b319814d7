/* SPDX-License-Identifier: Apache-2.0 */
#include "base/array.h"
#include "base/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static void test_parse_bytes__takes_what_people_write(void **unused)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = {{"0", 0},	      {"1024", 1024},
		    {"8M", 8u << 20}, {"4KiB", 4096},
		    {"1G", 1u << 30}, {"512 MB", 512u << 20},
		    {"1.5k", 1536},   {"18446744073709551615", UINT64_MAX}};
	static const char *const bad[] = {"",	 "M",	 "-1",		 "8X",
					  "8MM", "0x10", "99999999999P", "1 2"};
	uint64_t bytes;

	(void)unused;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		assert_true(parse_bytes(good[i].text, &bytes));
		assert_int_equal(bytes, good[i].bytes);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(parse_bytes(bad[i], &bytes));
}

static void test_parse_duration__takes_units_and_bare_seconds(void **unused)
{
	static const struct {
		const char *text;
		uint64_t ms;
	} good[] = {{"30", 30000},  {"30s", 30000},  {"500ms", 500}, {"2m", 120000},
		    {"1.5s", 1500}, {"1h", 3600000}, {"0", 0}};
	static const char *const bad[] = {"", "s", "-1s", "1d", "10 s x", "1e400"};
	uint64_t ms;

	(void)unused;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		assert_true(parse_duration_ms(good[i].text, &ms));
		assert_int_equal(ms, good[i].ms);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(parse_duration_ms(bad[i], &ms));
}

static void test_bytes_text__has_three_digits(void **unused)
{
	char out[TEXT_SHORT_BYTES];

	(void)unused;
	assert_string_equal(bytes_text(0, out), "0 B");
	assert_string_equal(bytes_text(999, out), "999 B");
	assert_string_equal(bytes_text(988065536, out), "988 MB");
	assert_string_equal(bytes_text(1029000000000u, out), "1.03 TB");
	assert_string_equal(bytes_text(15231233024u, out), "15.2 GB");
	assert_string_equal(grouped_text(988065536, out), "988,065,536");
	assert_string_equal(grouped_text(12, out), "12");
}

static void test_text__stays_failed_after_the_first_failed_allocation(void **unused)
{
	struct text text = {0};

	(void)unused;
	memory_fail_at(1);
	text_add(&text, "lost");
	text_add(&text, "also lost");
	assert_false(text_ok(&text));
	assert_string_equal(text_string(&text), "");
	text_fini(&text);
	for (int i = 0; i < 1000; i++)
		text_format(&text, "%d,", i);
	assert_true(text_ok(&text));
	assert_int_equal(text.bytes, 10 * 2 + 90 * 3 + 900 * 4);
	text_fini(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parse_bytes__takes_what_people_write),
		cmocka_unit_test(test_parse_duration__takes_units_and_bare_seconds),
		cmocka_unit_test(test_bytes_text__has_three_digits),
		cmocka_unit_test(test_text__stays_failed_after_the_first_failed_allocation),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * What a code means: every one has a row of its own, and is found as people write it.
 */
#include "base/error_help.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void test_help__is_there_for_each_code_once(void **state)
{
	unsigned place = 0;

	(void)state;
#define X(code_name, number, exit_code, words)                       \
	assert_int_equal(error_help_at(place)->code, number);        \
	assert_string_equal(error_help_at(place)->name, #code_name); \
	assert_true(strlen(error_help_at(place)->meaning) > 20);     \
	assert_true(strlen(error_help_at(place++)->remedy) > 20);
	ERROR_CODES(X)
#undef X
	assert_null(error_help_at(place));
}

static void test_code__is_found_as_people_write_it_and_nothing_else_is(void **state)
{
	static const char *const good[] = {"WEFT-E130", "weft-e130", "E130",   "e130",
					   "130",	"TIMEOUT",   "timeout"};
	static const char *const bad[] = {"",	  "E",	   "WEFT-", "WEFT-E", "13",
					  "1300", "E130:", "time",  "0",      "129"};

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_non_null(error_help_find(good[i]));
		assert_int_equal(error_help_find(good[i])->code, ERROR_TIMEOUT);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_null(error_help_find(bad[i]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_help__is_there_for_each_code_once),
		cmocka_unit_test(test_code__is_found_as_people_write_it_and_nothing_else_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/closest.h"
#include <string.h>

static void assert_closest(const char *wanted, const char *const *names, const char *expected)
{
	struct closest closest = {.wanted = wanted};
	char text[64];

	for (; *names; names++)
		closest_offer(&closest, *names);
	assert_string_equal(closest_text(&closest, text, sizeof(text)), expected);
}

static void test_closest__lists_the_least_edits_first_without_regard_to_case(void **state)
{
	(void)state;
	assert_closest("norm", (const char *[]){"embed", "NORM2", "form", "q_norm", "lm", NULL},
		       "NORM2, form, q_norm");
}

static void test_closest__keeps_the_order_of_equals(void **state)
{
	(void)state;
	assert_closest("a", (const char *[]){"d", "c", "b", "e", NULL}, "d, c, b");
	assert_closest("a", (const char *[]){"d", "c", "b", "a", NULL}, "a, d, c");
}

static void test_closest__has_fewer_when_there_are_fewer(void **state)
{
	(void)state;
	assert_closest("a", (const char *[]){"b", NULL}, "b");
	assert_closest("a", (const char *[]){NULL}, "");
}

static void test_closest__counts_a_long_name_as_far_and_cuts_to_the_room(void **state)
{
	char huge[400];

	(void)state;
	memset(huge, 'a', sizeof(huge) - 1);
	huge[sizeof(huge) - 1] = '\0';
	assert_closest("a", (const char *[]){huge, "zzzz", "yyyyy", "xxxxxx", NULL},
		       "zzzz, yyyyy, xxxxxx");
	assert_closest(huge, (const char *[]){"a", "b", NULL}, "a, b");
	struct closest closest = {.wanted = huge};
	char room[8];

	closest_offer(&closest, "abcdef");
	closest_offer(&closest, "ghijkl");
	assert_string_equal(closest_text(&closest, room, sizeof(room)), "abcdef,");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_closest__lists_the_least_edits_first_without_regard_to_case),
		cmocka_unit_test(test_closest__keeps_the_order_of_equals),
		cmocka_unit_test(test_closest__has_fewer_when_there_are_fewer),
		cmocka_unit_test(test_closest__counts_a_long_name_as_far_and_cuts_to_the_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "job/transports.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void test_transports__a_list_is_read_and_written_alike(void **state)
{
	const struct {
		const char *given, *text;
		uint32_t count;
	} rows[] = {
		{"shm", "shm", 1},
		{"auto", "shm,verbs", 2},
		{"shm,verbs,tcp", "shm,verbs,tcp", 3},
		{"a,b,c,d,e,f,g,h", "a,b,c,d,e,f,g,h", 8},
	};
	char text[TRANSPORTS_TEXT_BYTES];
	struct transports list;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		assert_int_equal(transports_parse(&list, rows[i].given, NULL), 0);
		assert_int_equal(list.count, rows[i].count);
		assert_string_equal(transports_text(&list, text), rows[i].text);
		assert_int_equal(transports_listed(rows[i].given), i > 0);
	}
	assert_int_equal(transports_find(&list, "c"), 2);
	assert_int_equal(transports_find(&list, "x"), 8);
}

static void test_transports__what_is_no_list_is_refused_with_the_name(void **state)
{
	const struct {
		const char *given, *said;
	} rows[] = {
		{"", "'' is no name"},
		{"shm,,tcp", "'' is no name"},
		{"shm,Verbs", "'Verbs' is no name"},
		{"shm, verbs", "' verbs' is no name"},
		{"a_name_of_16_byte", "'a_name_of_16_byte' is no name"},
		{"shm,auto,shm", "lists shm twice"},
		{"a,b,c,d,e,f,g,h,i", "more than 8"},
	};
	struct transports list;
	struct error error;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		assert_int_equal(transports_parse(&list, rows[i].given, &error), -ERROR_CONFIG);
		assert_non_null(strstr(error.text, rows[i].said));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_transports__a_list_is_read_and_written_alike),
		cmocka_unit_test(test_transports__what_is_no_list_is_refused_with_the_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Which lines are shown of those that repeat, and what is told of the others.
 */
#include "base/log_repeat.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct log_repeats repeats;
static const char place[] = "%s is %d";

static bool line(const char *who, const char *text, bool failure, uint64_t now)
{
	const struct log_repeat_line given = {.level = failure ? 0 : 1,
					      .failure = failure,
					      .place = place,
					      .who = who,
					      .text = text};

	return log_repeat_passes(&repeats, &given, now);
}

static int begin(void **state)
{
	(void)state;
	memset(&repeats, 0, sizeof(repeats));
	return 0;
}

static void test_text__passes_ten_times_a_second_and_the_rest_is_one_count(void **state)
{
	struct log_repeated told;
	unsigned passed = 0;

	(void)state;
	for (uint64_t i = 0; i < 67; i++)
		passed += line("t3", "disk full", true, 5000 + i * 10);
	assert_int_equal(passed, LOG_REPEAT_TEXTS);
	assert_false(log_repeat_take(&repeats, 5999, false, &told));
	assert_true(log_repeat_take(&repeats, 6000, false, &told));
	assert_int_equal(told.count, 57);
	assert_int_equal(told.ms, 660);
	assert_string_equal(told.who, "t3");
	assert_string_equal(told.text, "disk full");
	assert_false(log_repeat_take(&repeats, 6000, true, &told));
	assert_true(line("t3", "disk full", true, 6001));
}

static void test_text__of_another_speaker_or_a_second_later_is_not_the_same(void **state)
{
	(void)state;
	for (unsigned i = 0; i < LOG_REPEAT_TEXTS; i++)
		assert_true(line("t3", "disk full", true, 0));
	assert_false(line("t3", "disk full", true, 1));
	assert_true(line("t4", "disk full", true, 1));
	for (uint64_t i = 0; i < 100; i++) /* nine a second, for ever */
		assert_true(line("t5", "slow", true, 10000 + i * 111));
}

static void test_place__counts_what_is_no_failure_and_never_a_failure(void **state)
{
	struct log_repeated told;
	unsigned passed = 0, failures = 0;
	char text[64];

	(void)state;
	for (unsigned i = 0; i < 1000; i++) {
		snprintf(text, sizeof(text), "rank %u", i);
		passed += line("", text, false, i / 2);
		failures += line("", text, true, i / 2);
	}
	assert_int_equal(failures, 1000);
	assert_int_equal(passed, LOG_REPEAT_PLACES);
	assert_true(log_repeat_take(&repeats, 1000, false, &told));
	assert_int_equal(told.count, 1000 - LOG_REPEAT_PLACES);
	assert_false(log_repeat_take(&repeats, 1000, true, &told));
}

/* Many kinds of lines at once, each too often: whatever has no slot passes, and nothing is lost from the sum. */
static void test_slots__that_are_full_let_lines_pass_and_lose_no_count(void **state)
{
	struct log_repeated told;
	uint64_t passed = 0, counted = 0;
	char text[64];

	(void)state;
	srand(11);
	for (unsigned i = 0; i < 100000; i++) {
		snprintf(text, sizeof(text), "kind %d", rand() % 100);
		passed += line("", text, true, i / 50);
		while (log_repeat_take(&repeats, i / 50, false, &told))
			counted += told.count;
	}
	while (log_repeat_take(&repeats, 0, true, &told))
		counted += told.count;
	assert_true(counted > 0);
	assert_int_equal(passed + counted, 100000);
	assert_int_equal(repeats.waiting, 0);
}

static void test_long_text__is_told_with_dots(void **state)
{
	struct log_repeated told;
	char text[4000];

	(void)state;
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	for (unsigned i = 0; i <= LOG_REPEAT_TEXTS; i++)
		line("", text, true, 0);
	assert_true(log_repeat_take(&repeats, 0, true, &told));
	assert_string_equal(told.text + strlen(told.text) - 3, "...");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(
			test_text__passes_ten_times_a_second_and_the_rest_is_one_count, begin),
		cmocka_unit_test_setup(
			test_text__of_another_speaker_or_a_second_later_is_not_the_same, begin),
		cmocka_unit_test_setup(test_place__counts_what_is_no_failure_and_never_a_failure,
				       begin),
		cmocka_unit_test_setup(test_slots__that_are_full_let_lines_pass_and_lose_no_count,
				       begin),
		cmocka_unit_test_setup(test_long_text__is_told_with_dots, begin),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

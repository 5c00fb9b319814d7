/* SPDX-License-Identifier: Apache-2.0
 *
 * When `weft bench update` says that somebody disturbed an update: runs of made-up memcpy rates.
 */
#include "cli/bench_judge.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_disturbed__either_memcpy_below_four_fifths_of_the_best(void **unused)
{
	static const struct {
		double before, after;
		bool disturbed;
	} rows[] = {
		{10.0, 9.0, false}, /* the best is 10 from here on */
		{8.1, 9.5, false},  /* as far apart as an idle machine's are */
		{8.0, 8.0, false},  /* four fifths are enough */
		{7.9, 9.5, true},   /* somebody came before */
		{9.5, 7.9, true},   /* or during the update */
		{4.0, 4.0, true},   /* and stayed: equal slow ones are no excuse */
		{12.0, 9.7, false}, /* the best may still grow */
		{9.5, 9.5, true},   /* and then what was fair before is not */
	};
	struct bench_judge judge = {0};

	(void)unused;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_int_equal(bench_disturbed(&judge, rows[i].before, rows[i].after),
				 rows[i].disturbed);
}

static void test_disturbed__the_first_update_is_judged_by_its_own_two(void **unused)
{
	struct bench_judge judge = {0}, other = {0};

	(void)unused;
	assert_true(bench_disturbed(&judge, 10.0, 5.0));
	assert_false(bench_disturbed(&other, 5.0, 5.0));
}

static void test_disturbed__no_rate_at_all_is_no_disturbance(void **unused)
{
	struct bench_judge judge = {0};

	(void)unused;
	assert_false(bench_disturbed(&judge, 0.0, 0.0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_disturbed__either_memcpy_below_four_fifths_of_the_best),
		cmocka_unit_test(test_disturbed__the_first_update_is_judged_by_its_own_two),
		cmocka_unit_test(test_disturbed__no_rate_at_all_is_no_disturbance),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

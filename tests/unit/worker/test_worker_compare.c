/* SPDX-License-Identifier: Apache-2.0
 *
 * A host program compares its engine's parameters with what it declared, before it joins.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/memory.h"
#include "worker/api/weft.h"

#include <string.h>

static const weft_param declared[] = {
	{sizeof(weft_param), "a.weight", "BF16", 2, {4, 8}, NULL},
	{sizeof(weft_param), "b.weight", "F32", 1, {8}, NULL},
	{sizeof(weft_param), "c.weight", "BF16", 1, {8}, NULL},
	{sizeof(weft_param), "d.weight", "BF16", 1, {8}, NULL},
	{sizeof(weft_param), "e.weight", "BF16", 1, {8}, NULL},
};
#define COUNT (sizeof(declared) / sizeof(declared[0]))

static weft_worker *open_worker(enum weft_role role)
{
	const weft_options options = {
		.size = sizeof(options), .controller = "tcp://127.0.0.1:9", .role = role};
	weft_worker *worker;
	weft_error error = WEFT_ERROR_INIT;

	assert_int_equal(weft_open(&worker, &options, &error), 0);
	for (size_t i = 0; role == WEFT_INFERENCE && i < COUNT; i++)
		assert_int_equal(weft_declare_param(worker, &declared[i], NULL, &error), 0);
	return worker;
}

static void test_compare__is_0_for_the_same_in_torchs_names_and_any_order(void **state)
{
	const weft_param live[] = {
		declared[4],
		declared[2],
		{sizeof(weft_param), "b.weight", "torch.float32", 1, {8}, NULL},
		{sizeof(weft_param), "layers.0.self_attn.attn.k_scale", "float32", 0, {0}, NULL},
		{sizeof(weft_param), "a.weight", "bfloat16", 2, {4, 8}, NULL},
		declared[3],
	};
	weft_worker *worker = open_worker(WEFT_INFERENCE);
	weft_error error = WEFT_ERROR_INIT;

	(void)state;
	assert_int_equal(weft_compare_params(worker, live, 6, sizeof(weft_param), &error), 0);
	weft_close(&worker);
}

static void test_compare__names_the_first_differences_and_counts_the_rest(void **state)
{
	const weft_param live[] = {{sizeof(weft_param), "a.weight", "BF16", 2, {4, 9}, NULL}};
	weft_worker *worker = open_worker(WEFT_INFERENCE);
	weft_error error = WEFT_ERROR_INIT;

	(void)state;
	assert_int_equal(weft_compare_params(worker, live, 1, sizeof(weft_param), &error),
			 -WEFT_E_CONFLICT);
	assert_int_equal(weft_exit_code(error.code), 78);
	assert_string_equal(error.text,
			    "5 differences between the 5 parameters declared here and the engine's "
			    "own: a.weight: BF16 [4, 8] in the layout, BF16 [4, 9] in the engine | "
			    "b.weight: F32 [8] in the layout, nothing in the engine | c.weight: "
			    "BF16 [8] in the layout, nothing in the engine | and 2 more");
	assert_int_equal(weft_compare_params(worker, NULL, 0, sizeof(weft_param), &error),
			 -WEFT_E_CONFLICT);
	/* the worker can be asked again, and go on */
	assert_int_equal(weft_compare_params(worker, declared, COUNT, sizeof(weft_param), &error),
			 0);
	weft_close(&worker);
}

static void test_compare__refuses_what_is_no_list(void **state)
{
	const weft_param twice[] = {declared[0], declared[0]};
	const weft_param odd[] = {{sizeof(weft_param), "a.weight", "BF17", 1, {4}, NULL}};
	const weft_param deep[] = {{sizeof(weft_param), "a.weight", "BF16", 5, {4}, NULL}};
	const weft_param nameless[] = {{sizeof(weft_param), NULL, "BF16", 1, {4}, NULL}};
	weft_worker *worker = open_worker(WEFT_INFERENCE), *trainer = open_worker(WEFT_TRAINER);
	weft_error error = WEFT_ERROR_INIT;

	(void)state;
	assert_int_equal(weft_compare_params(worker, twice, 2, sizeof(weft_param), &error),
			 -WEFT_E_FILE);
	assert_non_null(strstr(error.text, "a.weight stands there twice"));
	assert_int_equal(weft_compare_params(worker, odd, 1, sizeof(weft_param), &error),
			 -WEFT_E_FILE);
	assert_int_equal(weft_compare_params(worker, deep, 1, sizeof(weft_param), &error),
			 -WEFT_E_USAGE);
	assert_int_equal(weft_compare_params(worker, nameless, 1, sizeof(weft_param), &error),
			 -WEFT_E_FILE);
	assert_int_equal(weft_compare_params(worker, NULL, 1, sizeof(weft_param), &error),
			 -WEFT_E_USAGE);
	assert_int_equal(weft_compare_params(NULL, declared, 1, sizeof(weft_param), &error),
			 -WEFT_E_USAGE);
	assert_int_equal(weft_compare_params(trainer, declared, 1, sizeof(weft_param), &error),
			 -WEFT_E_STATE);
	assert_int_equal(weft_compare_params_file(worker, NULL, NULL, NULL, &error), -WEFT_E_USAGE);
	assert_int_equal(weft_compare_params_file(worker, "/nowhere", NULL, NULL, &error),
			 -WEFT_E_IO);
	weft_close(&worker);
	weft_close(&trainer);
}

static void test_memory__every_allocation_of_a_comparison_may_fail(void **state)
{
	const weft_param live[] = {declared[0],
				   {sizeof(weft_param), "x.weight", "BF16", 1, {4}, NULL}};
	weft_worker *worker = open_worker(WEFT_INFERENCE);
	weft_error error = {.size = sizeof(error), .code = WEFT_E_MEMORY};

	(void)state;
	for (uint64_t k = 1; error.code == WEFT_E_MEMORY; k++) {
		memory_fail_at(k);
		assert_int_not_equal(
			weft_compare_params(worker, live, 2, sizeof(weft_param), &error), 0);
		memory_fail_at(0);
	}
	assert_int_equal(error.code, WEFT_E_CONFLICT);
	weft_close(&worker);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_compare__is_0_for_the_same_in_torchs_names_and_any_order),
		cmocka_unit_test(test_compare__names_the_first_differences_and_counts_the_rest),
		cmocka_unit_test(test_compare__refuses_what_is_no_list),
		cmocka_unit_test(test_memory__every_allocation_of_a_comparison_may_fail),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

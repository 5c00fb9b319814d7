/* SPDX-License-Identifier: Apache-2.0
 *
 * Work shared out to threads: all of it is done, and of a layout's pieces the first wrong one is
 * named whoever found it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/memory.h"
#include "base/threads.h"
#include "model/content.h"
#include "worker/referee/transform.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define PIECES	200u
#define COLUMNS 64u

struct counted {
	_Atomic uint32_t next, bodies, done[1000];
};

static void count(void *context)
{
	struct counted *counted = context;

	atomic_fetch_add(&counted->bodies, 1);
	for (uint32_t i; (i = atomic_fetch_add(&counted->next, 1)) < 1000;)
		atomic_fetch_add(&counted->done[i], 1);
}

static void test_threads__do_all_of_the_work_once(void **state)
{
	static const uint32_t counts[] = {0, 1, 2, 7, THREADS_MAX, THREADS_MAX + 9};

	(void)state;
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		struct counted counted = {0};
		uint32_t bodies = counts[i] ? counts[i] : 1;

		threads_run(counts[i], count, &counted);
		assert_int_equal(counted.bodies,
				 bodies > THREADS_MAX + 1 ? THREADS_MAX + 1 : bodies);
		for (uint32_t k = 0; k < 1000; k++)
			assert_int_equal(counted.done[k], 1);
	}
	assert_in_range(threads_here(), 1, THREADS_MAX);
}

static struct layout layout;
static unsigned char param[PIECES * COLUMNS * 2];
static _Atomic uint64_t taken;

static int read_made(void *context, const struct tensor_info *tensor, uint64_t offset,
		     uint64_t bytes, void *out, struct error *error)
{
	(void)context;
	(void)error;
	content_make(tensor->name, tensor->dtype, 5, offset, bytes, out);
	return 0;
}

static int take(void *context, const struct piece *piece, uint64_t offset,
		const unsigned char *expected, uint64_t bytes, struct error *error)
{
	(void)context;
	if (memcmp(param + offset, expected, bytes) != 0)
		return error_set(error, ERROR_CHECKSUM, "piece %u",
				 (unsigned int)(piece->offset / (COLUMNS * 2)));
	atomic_fetch_add(&taken, bytes);
	return 0;
}

static int open_layout(void **state)
{
	const uint64_t shape[2] = {PIECES, COLUMNS};
	struct error error;

	(void)state;
	layout_init(&layout);
	if (layout_add_tensor(&layout, "t", DTYPE_BF16, 2, shape, &error) ||
	    layout_add_param(&layout, "p", DTYPE_BF16, 2, shape, &error))
		return -1;
	for (uint64_t row = 0; row < PIECES; row++) {
		struct piece piece = {.offset = row * COLUMNS * 2,
				      .bytes = COLUMNS * 2,
				      .src = {2, {row, 0}, {row + 1, COLUMNS}}};

		if (layout_add_piece(&layout, &piece, &error))
			return -1;
	}
	content_make("t", DTYPE_BF16, 5, 0, sizeof(param), param);
	return 0;
}

static int close_layout(void **state)
{
	(void)state;
	layout_fini(&layout);
	return 0;
}

static void test_layout__compares_every_byte_with_any_number_of_threads(void **state)
{
	static const uint32_t threads[] = {0, 1, 2, 5, PIECES + 50};
	struct referee_transform transform = {.read = read_made, .take = take};
	struct layout empty;
	struct error error;

	(void)state;
	for (size_t i = 0; i < sizeof(threads) / sizeof(threads[0]); i++) {
		taken = 0;
		assert_int_equal(referee_transform_layout(&transform, &layout, threads[i], &error),
				 0);
		assert_int_equal(taken, sizeof(param));
	}
	layout_init(&empty);
	assert_int_equal(referee_transform_layout(&transform, &empty, 3, &error), 0);
	layout_fini(&empty);
}

static void test_layout__names_the_first_wrong_piece(void **state)
{
	struct referee_transform transform = {.read = read_made, .take = take};
	struct error error;

	(void)state;
	for (uint32_t first = 0; first < PIECES; first += 13) {
		char expected[32];

		for (uint32_t wrong = first; wrong < PIECES; wrong += 7)
			param[wrong * COLUMNS * 2 + wrong % 128] ^= 4;
		snprintf(expected, sizeof(expected), "piece %u", first);
		assert_int_equal(referee_transform_layout(&transform, &layout, 4, &error),
				 -ERROR_CHECKSUM);
		assert_string_equal(error.text, expected);
		for (uint32_t wrong = first; wrong < PIECES; wrong += 7)
			param[wrong * COLUMNS * 2 + wrong % 128] ^= 4;
	}
}

static void test_layout__says_when_there_is_no_memory_for_a_thread(void **state)
{
	struct referee_transform transform = {.read = read_made, .take = take};
	struct error error;

	(void)state;
	for (uint64_t at = 1; at <= 3; at++) {
		memory_fail_at(at);
		assert_int_equal(referee_transform_layout(&transform, &layout, 3, &error),
				 -ERROR_MEMORY);
		memory_fail_at(0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads__do_all_of_the_work_once),
		cmocka_unit_test(test_layout__compares_every_byte_with_any_number_of_threads),
		cmocka_unit_test(test_layout__names_the_first_wrong_piece),
		cmocka_unit_test(test_layout__says_when_there_is_no_memory_for_a_thread),
	};

	return cmocka_run_group_tests(tests, open_layout, close_layout);
}

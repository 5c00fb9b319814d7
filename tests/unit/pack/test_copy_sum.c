/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of copies against libxxhash's of the same bytes, with every kernel.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/array.h"
#include "base/copy.h"
#include "pack/copy_sum.h"
#include "job/digest.h"
#include "model/content.h"

#include <string.h>

enum { LENGTHS = 5000, EDGE = 128 };

static uint64_t random_state = 3;

static uint64_t below(uint64_t limit)
{
	return splitmix64(++random_state) % limit;
}

static void fill(unsigned char *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		bytes[i] = (unsigned char)splitmix64(i);
}

static const char *const kernels[] = {"avx512", "avx2", "portable"};

static void use_best(void)
{
	for (size_t k = 0; k < ARRAY_SIZE(kernels) && !copy_kernel_use(kernels[k]);)
		k++;
}

/* Copied, or only summed, whole lines at a time. */
static void check_length(const unsigned char *source, size_t bytes, size_t step_lines, bool copied)
{
	static unsigned char target[LENGTHS + 2 * EDGE];
	size_t to = EDGE + below(COPY_LINE_BYTES), step = step_lines * COPY_LINE_BYTES;
	struct copy_sum sum;

	memset(target, 0xee, sizeof(target));
	copy_sum_begin(&sum, bytes);
	for (size_t done = 0, n; done < bytes; done += n) {
		n = bytes - done < step ? bytes - done : step;
		copy_sum_bytes(&sum, copied ? target + to + done : NULL, source + done, n);
	}
	copy_fence();
	assert_true(copy_sum_end(&sum, source + bytes - COPY_LINE_BYTES) ==
		    checksum64(source, bytes));
	if (copied)
		assert_memory_equal(target + to, source, bytes);
	for (size_t i = 0; i < sizeof(target); i++)
		if (!copied || i < to || i >= to + bytes)
			assert_int_equal(target[i], 0xee);
}

static void test_copy_sum__is_the_library_s_of_every_length(void **state)
{
	static unsigned char source[LENGTHS + COPY_LINE_BYTES];

	(void)state;
	fill(source, sizeof(source));
	for (size_t k = 0; k < ARRAY_SIZE(kernels); k++) {
		if (!copy_kernel_use(kernels[k]))
			continue;
		for (size_t bytes = COPY_SUM_BYTES_MIN; bytes <= LENGTHS; bytes++)
			check_length(source + below(COPY_LINE_BYTES), bytes,
				     bytes % 2 ? 1 + below(40) : 100, bytes % 3);
	}
	use_best();
}

static void test_copy_sum_bytes__copies_without_a_sum(void **state)
{
	static unsigned char source[LENGTHS], target[LENGTHS + COPY_LINE_BYTES];

	(void)state;
	fill(source, sizeof(source));
	for (size_t k = 0; k < ARRAY_SIZE(kernels); k++) {
		if (!copy_kernel_use(kernels[k]))
			continue;
		for (int n = 0; n < 300; n++) {
			size_t from = below(200), bytes = below(n % 2 ? 200 : LENGTHS - 200);
			size_t to = below(COPY_LINE_BYTES);

			memset(target, 0xee, sizeof(target));
			copy_sum_bytes(NULL, target + to, source + from, bytes);
			copy_fence();
			assert_memory_equal(target + to, source + from, bytes);
			for (size_t i = 0; i < sizeof(target); i++)
				if (i < to || i >= to + bytes)
					assert_int_equal(target[i], 0xee);
		}
	}
	use_best();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_copy_sum__is_the_library_s_of_every_length),
		cmocka_unit_test(test_copy_sum_bytes__copies_without_a_sum),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "job/digest.h"
#include "base/memory.h"
#include "model/content.h"
#include <math.h>
#include <string.h>

#define GOLDEN 0x9E3779B97F4A7C15u
#define BYTES  4099 /* several vectors, several words and 3 bytes */

/* The formula of content.h, one byte at a time. */
static unsigned char reference_version(const char *name, const unsigned char *tensor,
				       uint64_t bytes, uint64_t version, uint64_t at)
{
	uint64_t key = splitmix64(hash64(name, strlen(name)) + version * GOLDEN);
	uint64_t i = at / 8, word = 0;

	for (uint64_t b = 0; b < 8; b++)
		if (i * 8 + b < bytes)
			word |= (uint64_t)tensor[i * 8 + b] << (8 * b);
	word += key * (2 * i + 1);
	return (unsigned char)(word >> (8 * (at % 8)));
}

static unsigned char reference_made(const char *name, uint64_t seed, uint64_t keep, uint64_t set,
				    uint64_t at)
{
	uint64_t key = splitmix64(hash64(name, strlen(name)) + seed * GOLDEN);
	uint64_t word = (splitmix64(key + at / 8) & keep) | set;

	return (unsigned char)(word >> (8 * (at % 8)));
}

static void test_splitmix64__gives_the_published_sequence(void **state)
{
	(void)state;
	/* the first two outputs of the generator that starts at 0 */
	assert_true(splitmix64(0) == 0xE220A8397B1DCDAFu);
	assert_true(splitmix64(GOLDEN) == 0x6E789E6AA1B965F4u);
}

static void test_hash64__is_xxh64_with_seed_0(void **state)
{
	(void)state;
	assert_true(hash64("", 0) == 0xEF46DB3751D8E999u);
	assert_true(hash64("abc", 3) == 0x44BC2CF5AD770999u);
}

static void test_version__equals_the_formula_at_any_offset_and_length(void **state)
{
	static unsigned char tensor[BYTES + 16], out[BYTES + 64];
	const char *name = "model.layers.3.mlp.down_proj.weight";

	(void)state;
	for (size_t shift = 0; shift < 9; shift += 3) { /* an unaligned tensor, too */
		unsigned char *data = tensor + shift;

		content_make(name, DTYPE_BF16, 1, 0, BYTES, data);
		for (uint64_t offset = 0; offset <= 16; offset++) {
			for (uint64_t tail = 0; tail <= 40; tail++) {
				uint64_t n = BYTES - offset - tail;

				memset(out, 0xee, sizeof(out));
				content_version(name, data, BYTES, 7, offset, n, out);
				for (uint64_t i = 0; i < n; i += (i < 64 || i + 80 > n) ? 1 : 37)
					assert_int_equal(out[i],
							 reference_version(name, data, BYTES, 7,
									   offset + i));
				assert_int_equal(out[n], 0xee);
			}
		}
	}
}

static void test_version__short_pieces_inside_one_word(void **state)
{
	unsigned char tensor[11], out[16];

	(void)state;
	content_make("x", DTYPE_U8, 3, 0, sizeof(tensor), tensor);
	for (uint64_t offset = 0; offset <= sizeof(tensor); offset++) {
		for (uint64_t n = 0; offset + n <= sizeof(tensor); n++) {
			memset(out, 0xee, sizeof(out));
			content_version("x", tensor, sizeof(tensor), 1, offset, n, out);
			for (uint64_t i = 0; i < n; i++)
				assert_int_equal(out[i],
						 reference_version("x", tensor, sizeof(tensor), 1,
								   offset + i));
			assert_int_equal(out[n], 0xee);
		}
	}
}

static uint64_t latest(const char *name, uint64_t value, uint64_t version, uint32_t one_in)
{
	uint64_t turn = splitmix64(hash64(name, strlen(name)) + value) % one_in;

	while (version && version % one_in != turn)
		version--;
	return version;
}

static void test_version__may_differ_from_the_one_before_in_a_few_values(void **state)
{
	static unsigned char tensor[4000], is[4000], was[4000], of[4000];
	size_t differ = 0;

	(void)state;
	content_make("x", DTYPE_BF16, 9, 0, sizeof(tensor), tensor);
	for (uint64_t version = 1; version <= 45; version++) {
		content_change_one_in(20);
		content_version("x", tensor, sizeof(tensor), version, 0, sizeof(is), is);
		content_version("x", tensor, sizeof(tensor), version, 1001, 33, of);
		assert_memory_equal(of, is + 1001, 33);
		content_change_one_in(1);
		for (size_t k = 0; k < sizeof(is) / 2; k++) {
			content_version("x", tensor, sizeof(tensor), latest("x", k, version, 20),
					k * 2, 2, of);
			assert_memory_equal(is + k * 2, of, 2);
			differ += version > 20 && memcmp(is + k * 2, was + k * 2, 2) != 0;
		}
		memcpy(was, is, sizeof(was));
	}
	assert_in_range(differ, 25 * 80, 25 * 120); /* of 25 versions, 100 of 2000 */
}

static void test_version__zero_is_the_checkpoint_itself(void **state)
{
	unsigned char tensor[100], out[100];

	(void)state;
	content_make("x", DTYPE_F32, 9, 0, sizeof(tensor), tensor);
	content_version("x", tensor, sizeof(tensor), 0, 3, 90, out);
	assert_memory_equal(out, tensor + 3, 90);
}

static void test_version__changes_every_word_and_depends_on_its_place(void **state)
{
	static uint64_t zero[512], one[512], two[512];

	(void)state;
	memset(zero, 0, sizeof(zero));
	content_version("x", zero, sizeof(zero), 1, 0, sizeof(one), one);
	content_version("x", zero, sizeof(zero), 2, 0, sizeof(two), two);
	for (size_t i = 0; i < 512; i++) {
		assert_true(one[i] != 0 && two[i] != one[i]);
		for (size_t j = 0; j < i; j++)
			assert_true(one[i] != one[j]);
	}
}

static void test_version__large_version_numbers_wrap_around(void **state)
{
	unsigned char tensor[64], out[64];

	(void)state;
	content_make("x", DTYPE_BF16, 0, 0, sizeof(tensor), tensor);
	content_version("x", tensor, sizeof(tensor), UINT64_MAX, 0, sizeof(out), out);
	for (uint64_t i = 0; i < sizeof(out); i++)
		assert_int_equal(out[i],
				 reference_version("x", tensor, sizeof(tensor), UINT64_MAX, i));
}

static void test_make__equals_the_formula_at_any_offset_and_length(void **state)
{
	unsigned char out[256];

	(void)state;
	for (uint64_t offset = 0; offset <= 16; offset++) {
		for (uint64_t n = 0; n < 200; n++) {
			memset(out, 0xee, sizeof(out));
			content_make("a.weight", DTYPE_BF16, 5, offset, n, out);
			for (uint64_t i = 0; i < n; i++)
				assert_int_equal(out[i],
						 reference_made("a.weight", 5, 0x81ff81ff81ff81ffu,
								0x3c003c003c003c00u, offset + i));
			assert_int_equal(out[n], 0xee);
		}
	}
}

static double float_of(enum dtype dtype, const unsigned char *bytes)
{
	uint32_t word = 0;
	uint16_t half = 0;
	float single;
	double wide;

	memcpy(&half, bytes, dtype_bytes(dtype) < 2 ? 1 : 2);
	switch (dtype) {
	case DTYPE_BF16:
		word = (uint32_t)half << 16;
		memcpy(&single, &word, 4);
		return single;
	case DTYPE_F32:
		memcpy(&single, bytes, 4);
		return single;
	case DTYPE_F64:
		memcpy(&wide, bytes, 8);
		return wide;
	case DTYPE_F16:
		assert_true((half >> 10 & 31) != 0 && (half >> 10 & 31) != 31);
		return ldexp(1.0 + (half & 1023) / 1024.0, (half >> 10 & 31) - 15) *
		       (half >> 15 ? -1 : 1);
	case DTYPE_F8_E4M3:
		return ldexp(1.0 + (*bytes & 7) / 8.0, (*bytes >> 3 & 15) - 7) *
		       (*bytes >> 7 ? -1 : 1);
	case DTYPE_F8_E5M2:
		return ldexp(1.0 + (*bytes & 3) / 4.0, (*bytes >> 2 & 31) - 15) *
		       (*bytes >> 7 ? -1 : 1);
	default:
		fail();
		return 0;
	}
}

static void test_make__every_float_is_small_and_finite_and_both_signs_occur(void **state)
{
	static const enum dtype floats[] = {DTYPE_BF16, DTYPE_F16,     DTYPE_F32,
					    DTYPE_F64,	DTYPE_F8_E4M3, DTYPE_F8_E5M2};
	static unsigned char out[8192];

	(void)state;
	for (size_t k = 0; k < sizeof(floats) / sizeof(floats[0]); k++) {
		int negative = 0, n = 0;

		content_make("w", floats[k], 0, 0, sizeof(out), out);
		for (size_t i = 0; i < sizeof(out); i += dtype_bytes(floats[k]), n++) {
			double value = float_of(floats[k], out + i);

			assert_true(fabs(value) >= 1.0 / 128 && fabs(value) < 2.0);
			negative += value < 0;
		}
		assert_true(negative > n / 3 && negative < 2 * n / 3);
	}
}

static void test_make__words_do_not_repeat_and_tensors_differ(void **state)
{
	static uint64_t a[4096], b[4096];
	size_t equal = 0;

	(void)state;
	content_make("a", DTYPE_BF16, 0, 0, sizeof(a), a);
	content_make("b", DTYPE_BF16, 0, 0, sizeof(b), b);
	for (size_t i = 1; i < 4096; i++)
		equal += (a[i] == a[i - 1]) + (a[i] == b[i]);
	assert_int_equal(equal, 0);
	content_make("a", DTYPE_BF16, 1, 0, sizeof(b), b);
	assert_memory_not_equal(a, b, sizeof(a));
}

/* Computed by tests/e2e/contents.py. */
static void test_contents__equal_the_vectors_of_the_python_statement(void **state)
{
	static const unsigned char made[] = {0x70, 0xbd, 0xce, 0xbd, 0x9f, 0xbd, 0x50,
					     0x3d, 0x1f, 0xbd, 0xe4, 0xbd, 0x36, 0xbd,
					     0x2b, 0xbd, 0xf3, 0xbd, 0x5b};
	static const unsigned char third[] = {0x3c, 0xb1, 0x5a, 0x5a, 0x60, 0x16, 0xd2,
					      0x43, 0x83, 0x98, 0x88, 0x93, 0x78, 0xc7,
					      0xaf, 0xd0, 0xef, 0x80, 0x17};
	unsigned char out[sizeof(made)], next[sizeof(made)];

	(void)state;
	content_make("model.norm.weight", DTYPE_BF16, 42, 0, sizeof(out), out);
	assert_memory_equal(out, made, sizeof(made));
	content_version("model.norm.weight", out, sizeof(out), 3, 0, sizeof(out), next);
	assert_memory_equal(next, third, sizeof(third));
}

int main(void)
{
	static const char *const kernels[] = {"avx512", "avx2", "portable"};
	int failed = 0;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_splitmix64__gives_the_published_sequence),
		cmocka_unit_test(test_hash64__is_xxh64_with_seed_0),
		cmocka_unit_test(test_version__equals_the_formula_at_any_offset_and_length),
		cmocka_unit_test(test_version__short_pieces_inside_one_word),
		cmocka_unit_test(test_version__may_differ_from_the_one_before_in_a_few_values),
		cmocka_unit_test(test_version__zero_is_the_checkpoint_itself),
		cmocka_unit_test(test_version__changes_every_word_and_depends_on_its_place),
		cmocka_unit_test(test_version__large_version_numbers_wrap_around),
		cmocka_unit_test(test_make__equals_the_formula_at_any_offset_and_length),
		cmocka_unit_test(test_make__every_float_is_small_and_finite_and_both_signs_occur),
		cmocka_unit_test(test_make__words_do_not_repeat_and_tensors_differ),
		cmocka_unit_test(test_contents__equal_the_vectors_of_the_python_statement),
	};

	for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++)
		if (content_kernel_use(kernels[i]))
			failed += cmocka_run_group_tests_name(kernels[i], tests, NULL, NULL);
	return failed;
}

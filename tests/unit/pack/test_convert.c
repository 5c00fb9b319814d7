/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/copy.h"
#include "base/memory.h"
#include "model/content.h"
#include "tests/unit/pack/number_reference.h"
#include "pack/convert.h"

#include <fenv.h>
#include <stdlib.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

static const char *const kernels[] = {"portable", "avx2", "avx512", NULL};
#define KERNELS (sizeof(kernels) / sizeof(kernels[0]))

static const enum dtype floats[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};

/* Past the caches the same, to whole lines. */
static void check_streamed(const unsigned char *want, const unsigned char *source, uint64_t count,
			   enum dtype from, enum dtype to, float scale)
{
	convert_row row = convert_find_streamed(from, to, NULL);
	uint64_t bytes = count * dtype_bytes(to);
	unsigned char *got;

	if (!row) /* not this processor's */
		return;
	got = memory_aligned(64, bytes);
	memset(got, 0xee, bytes);
	row(got, source, count, scale);
	copy_fence();
	assert_memory_equal(got, want, bytes);
	memory_free(got);
}

/* Every kernel makes of these elements what the reference makes. */
static void check(const unsigned char *source, uint64_t count, enum dtype from, enum dtype to,
		  float scale)
{
	uint32_t from_bytes = dtype_bytes(from), to_bytes = dtype_bytes(to);
	unsigned char *want = memory_alloc(count * to_bytes), *got = memory_alloc(count * to_bytes);

	for (uint64_t i = 0; i < count; i++) {
		uint32_t made = number_convert(number_load(source + i * from_bytes, from_bytes),
					       from, to, scale);

		memcpy(want + i * to_bytes, &made, to_bytes);
	}
	for (size_t k = 0; k < KERNELS; k++) {
		convert_row row = convert_find(from, to, kernels[k]);

		if (!row) /* not this processor's */
			continue;
		memset(got, 0xee, count * to_bytes);
		row(got, source, count, scale);
		for (uint64_t i = 0; i < count; i++) {
			if (!memcmp(got + i * to_bytes, want + i * to_bytes, to_bytes))
				continue;
			fail_msg("%s: %s %#x is %s %#x, not %#x (scale %a)",
				 kernels[k] ? kernels[k] : "the best", dtype_name(from),
				 number_load(source + i * from_bytes, from_bytes), dtype_name(to),
				 number_load(want + i * to_bytes, to_bytes),
				 number_load(got + i * to_bytes, to_bytes), (double)scale);
		}
	}
	check_streamed(want, source, count, from, to, scale);
	memory_free(want);
	memory_free(got);
}

static void test_sixteen_bits__every_number_becomes_the_nearest(void **state)
{
	uint16_t *all = memory_alloc(65536 * sizeof(*all));

	(void)state;
	for (uint32_t i = 0; i < 65536; i++)
		all[i] = (uint16_t)i;
	for (size_t to = 0; to < 3; to++) {
		check((unsigned char *)all, 65536, DTYPE_BF16, floats[to], 1);
		check((unsigned char *)all, 65536, DTYPE_F16, floats[to], 1);
	}
	memory_free(all);
}

static void check_f32(const uint32_t *bits, uint64_t count)
{
	check((const unsigned char *)bits, count, DTYPE_F32, DTYPE_BF16, 1);
	check((const unsigned char *)bits, count, DTYPE_F32, DTYPE_F16, 1);
}

static void test_f32__half_ways_and_their_neighbours_of_every_exponent(void **state)
{
	uint32_t *bits = memory_alloc(512u * 23 * 23 * 3 * sizeof(*bits));
	uint64_t count = 0;

	(void)state;
	for (uint32_t sign_exponent = 0; sign_exponent < 512; sign_exponent++)
		for (uint32_t high = 0; high < 23; high++)
			for (uint32_t low = 0; low <= high; low++)
				for (uint32_t near = 0; near < 3; near++)
					bits[count++] =
						sign_exponent << 23 |
						(((1u << high | 1u << low) - 1 + near) & 0x7fffff);
	for (uint32_t sign_exponent = 0; sign_exponent < 512; sign_exponent++) {
		bits[count++] = sign_exponent << 23 | 0x7fffff; /* what carries all the way */
		for (uint32_t ones = 0; ones < 23; ones++)
			bits[count++] = sign_exponent << 23 | (0x7fffff & ~((1u << ones) - 1));
	}
	assert_true(count <= 512u * 23 * 23 * 3);
	check_f32(bits, count);
	memory_free(bits);
}

static void test_f32__random_bits(void **state)
{
	uint64_t count = 1u << 21, random = 5;
	uint32_t *bits = memory_alloc(count * sizeof(*bits));

	(void)state;
	for (uint64_t i = 0; i < count; i++)
		bits[i] = (uint32_t)splitmix64(++random);
	for (uint64_t i = 0; i < count; i += 4) /* a quarter in the range of F16, and around it */
		bits[i] = (bits[i] & 0x87ffffff) | (((bits[i] >> 27 & 1) ? 0x40u : 0x30u) << 24);
	check_f32(bits, count);
	memory_free(bits);
}

static void test_f8__every_code_times_a_scale(void **state)
{
	static const float scales[] = {1,
				       0.5f,
				       3,
				       -2,
				       0,
				       -0.0f,
				       1e-10f,
				       0x1p-126f,
				       0x1p-149f,
				       0x1.8p-140f,
				       0x1p127f,
				       0x1.fffffep127f,
				       0x1.00ffp-9f,
				       0x1.01p0f,
				       INFINITY,
				       -INFINITY,
				       NAN,
				       146.28571f};
	uint64_t random = 9;
	unsigned char codes[256];

	(void)state;
	for (int i = 0; i < 256; i++)
		codes[i] = (unsigned char)i;
	for (size_t to = 0; to < 3; to++) {
		for (size_t s = 0; s < sizeof(scales) / sizeof(scales[0]); s++)
			check(codes, 256, DTYPE_F8_E4M3, floats[to], scales[s]);
		for (int s = 0; s < 500; s++) {
			uint32_t bits = (uint32_t)splitmix64(++random);
			float scale;

			memcpy(&scale, &bits, sizeof(scale));
			check(codes, 256, DTYPE_F8_E4M3, floats[to], scale);
		}
	}
}

static void check_edges(enum dtype from, enum dtype to, const char *kernel, uint64_t count,
			uint64_t shift, convert_row reference)
{
	convert_row row = convert_find(from, to, kernel);
	uint32_t from_bytes = dtype_bytes(from), to_bytes = dtype_bytes(to);
	/* sources of exactly their size: reading past one is a fault under ASan */
	unsigned char *source = memory_alloc(shift + count * from_bytes);
	unsigned char *got = memory_alloc(shift + count * to_bytes + 64);
	unsigned char *want = memory_alloc(count * to_bytes);
	uint64_t random = count;

	for (uint64_t i = 0; i < count * from_bytes; i++)
		source[shift + i] = (unsigned char)splitmix64(++random);
	memset(got, 0xee, shift + count * to_bytes + 64);
	row(got + shift, source + shift, count, 1.5f);
	reference(want, source + shift, count, 1.5f);
	assert_memory_equal(got + shift, want, count * to_bytes);
	for (uint64_t i = 0; i < shift; i++)
		assert_int_equal(got[i], 0xee);
	for (uint64_t i = 0; i < 64; i++)
		assert_int_equal(got[shift + count * to_bytes + i], 0xee);
	memory_free(source);
	memory_free(got);
	memory_free(want);
}

static void test_rows__of_any_count_and_alignment_touch_nothing_else(void **state)
{
	static const enum dtype from[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_F8_E4M3};

	(void)state;
	for (size_t k = 0; k < KERNELS; k++)
		for (size_t f = 0; f < 4; f++)
			for (size_t t = 0; t < 3; t++) {
				if (!convert_find(from[f], floats[t], kernels[k]))
					continue;
				for (uint64_t count = 0; count < 100; count++)
					check_edges(from[f], floats[t], kernels[k], count,
						    count % 5,
						    convert_find(from[f], floats[t], "portable"));
			}
}

static void test_find__copies_equal_dtypes_and_knows_what_it_cannot(void **state)
{
	static const unsigned char bytes[16] = {1, 0, 0x80, 0x7f, 1, 0, 0x80, 0xff, 9, 8, 7};
	unsigned char got[16];

	(void)state;
	for (int dtype = DTYPE_NONE + 1; dtype < DTYPE_COUNT; dtype++)
		for (size_t k = 0; k < KERNELS; k++) {
			convert_row row =
				convert_find((enum dtype)dtype, (enum dtype)dtype, kernels[k]);

			if (!row && k)
				continue;
			assert_non_null(row);
			memset(got, 0, sizeof(got));
			row(got, bytes, 16 / dtype_bytes((enum dtype)dtype), 1);
			assert_memory_equal(got, bytes, 16);
		}
	assert_null(convert_find(DTYPE_F32, DTYPE_F8_E4M3, NULL)); /* quantise.h */
	assert_null(convert_find(DTYPE_F8_E5M2, DTYPE_F32, NULL));
	assert_null(convert_find(DTYPE_F64, DTYPE_F32, NULL));
	assert_null(convert_find(DTYPE_I16, DTYPE_U16, NULL));
	assert_null(convert_find(DTYPE_NONE, DTYPE_NONE, NULL));
	assert_null(convert_find(DTYPE_F32, DTYPE_BF16, "neon"));
}

/* As a host may have set it: subnormals flushed, rounding upwards, traps on. */
static void test_rows__do_not_depend_on_the_threads_floating_point_mode(void **state)
{
	static const enum dtype from[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_F8_E4M3};
	uint64_t random = 77;
	unsigned char source[1024], want[1024], got[1024];

	(void)state;
	for (size_t i = 0; i < sizeof(source); i++)
		source[i] = (unsigned char)splitmix64(++random);
	for (uint16_t i = 0; i < 64; i++) { /* many are subnormal, and some signalling NaN */
		uint16_t bits = (uint16_t)(i < 60 ? i * 17 : 0x7c01 + i);

		memcpy(source + i * 2, &bits, sizeof(bits));
	}
	for (size_t k = 0; k < KERNELS; k++)
		for (size_t f = 0; f < 4; f++)
			for (size_t t = 0; t < 3; t++) {
				convert_row row = convert_find(from[f], floats[t], kernels[k]);

				if (!row)
					continue;
				row(want, source, 250, 0x1.8p-130f);
#if defined(__x86_64__)
				{
					unsigned int host = _mm_getcsr(), now;

					_mm_setcsr(0xc040); /* FTZ, up, DAZ; all traps on */
					row(got, source, 250, 0x1.8p-130f);
					now = _mm_getcsr();
					_mm_setcsr(host);
					assert_int_equal(now & ~0x3fu, 0xc040);
				}
#else
				fesetround(FE_UPWARD);
				row(got, source, 250, 0x1.8p-130f);
				assert_int_equal(fegetround(), FE_UPWARD);
				fesetround(FE_TONEAREST);
#endif
				assert_memory_equal(got, want, 250 * dtype_bytes(floats[t]));
			}
}

static void test_scaled__equals_a_call_a_scale(void **state)
{
	unsigned char codes[300], want[1200], got[1201], scales[4 * 40 + 1];
	uint64_t random = 5;

	(void)state;
	for (size_t i = 0; i < sizeof(codes); i++)
		codes[i] = (unsigned char)splitmix64(++random);
	for (size_t i = 0; i < 40; i++) {
		float scale = (float)(i + 1) * 0x1.7p-9f;

		memcpy(scales + 1 + i * 4, &scale, sizeof(scale));
	}
	for (size_t k = 0; k < KERNELS; k++)
		for (size_t t = 0; t < 3; t++)
			for (uint64_t width = 8; width < 400; width = width * 3 - 7) {
				convert_scaled scaled = convert_find_scaled(floats[t], kernels[k]);
				convert_row row =
					convert_find(DTYPE_F8_E4M3, floats[t], kernels[k]);
				uint64_t skip = width - 3, bytes = dtype_bytes(floats[t]);

				if (!scaled)
					continue;
				for (uint64_t i = 0; i < 300; i++) {
					float scale;

					memcpy(&scale, scales + 1 + (skip + i) / width * 4, 4);
					row(want + i * bytes, codes + i, 1, scale);
				}
				got[300 * bytes] = 0xa5;
				scaled(got, codes, 300, scales + 1, skip, width);
				assert_memory_equal(got, want, 300 * bytes);
				assert_int_equal(got[300 * bytes], 0xa5);
			}
	assert_null(convert_find_scaled(DTYPE_F8_E4M3, NULL));
	assert_null(convert_find_scaled(DTYPE_F32, "neon"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sixteen_bits__every_number_becomes_the_nearest),
		cmocka_unit_test(test_f32__half_ways_and_their_neighbours_of_every_exponent),
		cmocka_unit_test(test_f32__random_bits),
		cmocka_unit_test(test_f8__every_code_times_a_scale),
		cmocka_unit_test(test_scaled__equals_a_call_a_scale),
		cmocka_unit_test(test_rows__of_any_count_and_alignment_touch_nothing_else),
		cmocka_unit_test(test_find__copies_equal_dtypes_and_knows_what_it_cannot),
		cmocka_unit_test(test_rows__do_not_depend_on_the_threads_floating_point_mode),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

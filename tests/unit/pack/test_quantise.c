/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/memory.h"
#include "model/content.h"
#include "tests/unit/pack/number_reference.h"
#include "pack/quantise.h"

#include <fenv.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

static const char *const kernels[] = {"portable", "avx2", "avx512", "avx512vbmi", NULL};
#define KERNELS (sizeof(kernels) / sizeof(kernels[0]))

static const enum dtype floats[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};

struct band {
	enum dtype from;
	uint64_t rows, columns, stride_bytes, block_columns;
	const unsigned char *source;
};

static double at(const struct band *band, uint64_t row, uint64_t column, bool *negative)
{
	uint32_t element = dtype_bytes(band->from);
	uint32_t bits =
		number_load(band->source + row * band->stride_bytes + column * element, element);

	*negative = number_negative(bits, number_format(band->from));
	return number_value(bits, number_format(band->from));
}

/* job/transform.h, number by number. A product of two F32 has 48 bits: exact in a double, so it is
 * rounded once; a quotient of two F32 is rounded alike through a double's 53 bits. */
static void reference(const struct band *band, unsigned char *values, float *scales)
{
	for (uint64_t from = 0; from < band->columns; from += band->block_columns) {
		uint64_t end = band->columns - from < band->block_columns
				       ? band->columns
				       : from + band->block_columns;
		double amax = 1e-10f;
		float scale, inverse;
		bool negative;

		for (uint64_t row = 0; row < band->rows; row++)
			for (uint64_t column = from; column < end; column++) {
				double x = fabs(at(band, row, column, &negative));

				if (isfinite(x) && x > amax)
					amax = x;
			}
		*scales++ = scale = (float)(amax / 448.0);
		inverse = (float)(1.0 / (double)scale);
		for (uint64_t row = 0; row < band->rows; row++)
			for (uint64_t column = from; column < end; column++) {
				double x = at(band, row, column, &negative);
				double y = (float)(x * (double)inverse);

				values[row * band->columns + column] =
					(unsigned char)number_nearest(y, negative,
								      number_format(DTYPE_F8_E4M3));
			}
	}
}

static void check(const struct band *band)
{
	uint64_t count = band->rows * band->columns;
	uint64_t blocks = (band->columns - 1) / band->block_columns + 1;
	unsigned char *want = memory_alloc(count), *got = memory_alloc(count + 64);
	float *scales = memory_alloc(blocks * 4), *made = memory_alloc(blocks * 4);

	reference(band, want, scales);
	for (size_t k = 0; k < KERNELS; k++) {
		if (!quantise_use(kernels[k])) /* not this processor's */
			continue;
		memset(got, 0xee, count + 64);
		memset(made, 0xee, blocks * 4);
		quantise_band(got, made, band->source, band->from, band->rows, band->columns,
			      band->stride_bytes, band->block_columns);
		assert_memory_equal(made, scales, blocks * 4);
		for (uint64_t i = 0; i < count; i++)
			if (got[i] != want[i])
				fail_msg("%s, %s, row %zu, column %zu: %#x, not %#x",
					 kernels[k] ? kernels[k] : "the best",
					 dtype_name(band->from), (size_t)(i / band->columns),
					 (size_t)(i % band->columns), got[i], want[i]);
		for (size_t i = 0; i < 64; i++)
			assert_int_equal(got[count + i], 0xee);
		memset(made, 0xee, blocks * 4);
		quantise_band(NULL, made, band->source, band->from, band->rows, band->columns,
			      band->stride_bytes, band->block_columns);
		assert_memory_equal(made, scales, blocks * 4);
	}
	assert_true(quantise_use(NULL));
	memory_free(want);
	memory_free(got);
	memory_free(scales);
	memory_free(made);
}

static void store(unsigned char *to, float value, enum dtype dtype)
{
	uint32_t bits = number_nearest(value, signbit(value), number_format(dtype));

	memcpy(to, &bits, dtype_bytes(dtype));
}

/* 0: weights; 1: any bits at all; 2: weights with a number now and then that is none, or tiny */
static void fill(unsigned char *to, uint64_t count, enum dtype dtype, int kind, uint64_t *random)
{
	static const float odd[] = {0,	     -0.0f,	INFINITY,   -INFINITY, NAN,
				    -NAN,    0x1p-149f, -0x1p-133f, 0x1p-24f,  448,
				    65504.f, 3.3e38f,	1e-10f,	    -1e-12f};
	uint32_t element = dtype_bytes(dtype);

	for (uint64_t i = 0; i < count; i++, to += element) {
		uint64_t bits = splitmix64(++*random);
		float weight = (float)(int32_t)bits * 0x1p-36f;

		if (kind == 1)
			memcpy(to, &bits, element);
		else if (kind == 2 && bits >> 60 == 0)
			store(to, odd[(bits >> 32) % (sizeof(odd) / sizeof(odd[0]))], dtype);
		else
			store(to, weight, dtype);
	}
}

static void test_bands__of_any_shape_are_as_the_reference_makes_them(void **state)
{
	static const uint64_t rows[] = {1, 2, 5, 37};
	static const uint64_t columns[] = {1, 7, 31, 64, 65, 129, 200, 1000};
	static const uint64_t blocks[] = {1, 3, 17, 32, 63, 64, 100, 128, 5000};
	uint64_t random = 3, shift = 0;

	(void)state;
	for (size_t r = 0; r < 4; r++)
		for (size_t c = 0; c < 8; c++)
			for (size_t b = 0; b < 9; b++)
				for (size_t f = 0; f < 3; f++) {
					uint32_t element = dtype_bytes(floats[f]);
					uint64_t width = columns[c] + (b + r) % 3;
					uint64_t count = (rows[r] - 1) * width + columns[c];
					uint64_t skew = shift++ % 4;
					/* exactly as large: reading past it faults under ASan */
					unsigned char *made = memory_alloc(skew + count * element);
					struct band band = {floats[f],	rows[r],
							    columns[c], width * element,
							    blocks[b],	made + skew};

					fill(made + skew, count, floats[f], (int)(shift % 3),
					     &random);
					check(&band);
					memory_free(made);
				}
}

static void test_bands__larger_than_a_strip(void **state)
{
	uint64_t random = 4;

	(void)state;
	for (size_t f = 0; f < 3; f++)
		for (int kind = 0; kind < 3; kind++) {
			uint32_t element = dtype_bytes(floats[f]);
			struct band band = {floats[f], 128, 2600, 2600 * element, 128, NULL};
			unsigned char *made = memory_alloc(128 * 2600 * element);

			band.source = made;
			fill(made, 128 * 2600, floats[f], kind, &random);
			check(&band);
			memory_free(made);
		}
}

static void test_bands__of_rows_whole_pages_apart(void **state)
{
	uint64_t random = 6;

	(void)state;
	for (size_t f = 0; f < 3; f++)
		for (uint64_t block = 24; block <= 4800; block *= 200) { /* one does not fit */
			uint32_t element = dtype_bytes(floats[f]);
			uint64_t stride = 16384 / element, columns = 3700, rows = 40;
			uint64_t count = (rows - 1) * stride + columns;
			unsigned char *made = memory_alloc(count * element);
			struct band band = {floats[f], rows, columns, 16384, block, made};

			fill(made, count, floats[f], 2, &random);
			check(&band);
			memory_free(made);
		}
}

static void test_sixteen_bits__every_number_in_blocks_of_its_neighbours(void **state)
{
	uint16_t *all = memory_alloc(65536 * sizeof(*all));

	(void)state;
	for (uint32_t i = 0; i < 65536; i++)
		all[i] = (uint16_t)i;
	for (size_t f = 1; f < 3; f++) {
		struct band band = {floats[f], 1, 65536, 131072, 128, (unsigned char *)all};

		check(&band);
		band.block_columns = 1;
		check(&band);
		band.block_columns = 65536; /* one block: its largest number is the dtype's */
		check(&band);
		band = (struct band){floats[f], 512, 128, 256, 64, (unsigned char *)all};
		check(&band);
	}
	memory_free(all);
}

/* Whatever its largest number, a block has the values that the portable kernel gives it: of all
 * numbers below that, both signs. */
static void test_bf16__blocks_of_every_largest_number(void **state)
{
	static const uint32_t exponents[] = {1, 94, 254};
	static uint16_t source[128 * 128];
	static unsigned char want[sizeof(source) / 2], got[sizeof(source) / 2];
	float scale, made;

	(void)state;
	for (uint32_t most = 0; most < 3 * 128; most++) {
		for (uint32_t i = 0; i < 128 * 128; i++) {
			uint32_t peak = exponents[most / 128] << 7 | most % 128;
			/* one tiny number among 64 takes the others along: only one time in two */
			uint32_t below = i / 2 % (most % 2 ? 8192 : 16 * 128);

			source[i] = (uint16_t)((below > peak ? 0 : peak - below) | i % 2 << 15);
		}
		assert_true(quantise_use("portable"));
		quantise_band(want, &scale, source, DTYPE_BF16, 128, 128, 256, 128);
		assert_true(quantise_use(NULL));
		quantise_band(got, &made, source, DTYPE_BF16, 128, 128, 256, 128);
		assert_memory_equal(got, want, sizeof(want));
		assert_memory_equal(&made, &scale, sizeof(scale));
	}
}

static void test_hints__change_no_value(void **state)
{
	static _Alignas(64) unsigned char source[4 * 64 * 8192], want[64 * 2048], got[64 * 2048];
	float scales[2048 / 64], made[2048 / 64];
	uint64_t random = 9;

	(void)state;
	for (size_t f = 0; f < 3; f++)
		for (size_t k = 0; k < KERNELS; k++)
			for (uint64_t columns = 1000; columns <= 2048; columns += 1048) {
				uint32_t element = dtype_bytes(floats[f]);
				uint64_t stride = (k + columns) % 2 ? 2048 * element : 8192;

				if (!quantise_use(kernels[k]))
					continue;
				fill(source, sizeof(source) / element, floats[f], 2, &random);
				quantise_band(want, scales, source, floats[f], 64, columns, stride,
					      64);
				quantise_band_on(got, made, source, floats[f], 64, columns, stride,
						 64, source + 64 * stride, true);
				assert_memory_equal(got, want, 64 * columns);
				assert_memory_equal(made, scales, (columns + 63) / 64 * 4);
			}
	assert_true(quantise_use(NULL));
}

/* With 448 in the block the scale is 1: every half way between two codes, and its neighbours. */
static void test_codes__are_the_nearest_and_even_half_way(void **state)
{
	float line[1024] = {448, -448};
	struct band band = {DTYPE_F32, 1, 1024, 4096, 1024, (unsigned char *)line};
	uint64_t count = 2;

	(void)state;
	for (uint32_t code = 0; code < 0x7e; code++) {
		struct number_format format = number_format(DTYPE_F8_E4M3);
		float half =
			(float)((number_value(code, format) + number_value(code + 1, format)) / 2);

		line[count++] = half;
		line[count++] = -half;
		line[count++] = nextafterf(half, 0);
		line[count++] = -nextafterf(half, 0);
		line[count++] = nextafterf(half, INFINITY);
		line[count++] = -nextafterf(half, INFINITY);
		line[count++] = (float)number_value(code, format);
	}
	assert_true(count <= 1024);
	check(&band);
	line[1000] = NAN; /* the same on the way of blocks that are not all finite */
	check(&band);
}

static void test_scales__of_blocks_without_a_number_worth_one(void **state)
{
	const float least = 1e-10f, scale = 1e-10f / 448.0f;
	float line[6][64] = {{0}};
	struct band band = {DTYPE_F32, 1, 6 * 64, sizeof(line), 64, (unsigned char *)line};
	unsigned char values[6 * 64];
	float scales[6];

	(void)state;
	for (size_t i = 0; i < 64; i++) {
		line[1][i] = -0.0f;
		line[2][i] = i % 2 ? NAN : -NAN;
		line[3][i] = i % 2 ? INFINITY : -INFINITY;
		line[4][i] = i ? 0x1p-149f : nextafterf(least, 0);
		line[5][i] = i ? -0x1p-149f : nextafterf(least, 1);
	}
	check(&band);
	for (size_t k = 0; k < KERNELS; k++) {
		if (!quantise_use(kernels[k]))
			continue;
		quantise_band(values, scales, line, DTYPE_F32, 1, 6 * 64, sizeof(line), 64);
		for (size_t b = 0; b < 5; b++)
			assert_memory_equal(&scales[b], &scale, sizeof(scale));
		assert_true(scales[5] > scale);
		assert_int_equal(values[0], 0x00);
		assert_int_equal(values[64], 0x80);
		assert_int_equal(values[128 + 1], 0x7f);
		assert_int_equal(values[128], 0xff);
		assert_int_equal(values[192 + 1], 0x7e);
		assert_int_equal(values[192], 0xfe);
		assert_int_equal(values[256], 0x7e);
		assert_int_equal(values[256 + 1], 0x00);
		assert_int_equal(values[320 + 1], 0x80);
	}
	assert_true(quantise_use(NULL));
}

/* As a host may have set it: subnormals flushed, rounding upwards, traps on. */
static void test_bands__do_not_depend_on_the_threads_floating_point_mode(void **state)
{
	unsigned char source[4 * 300 * 4], want[4 * 300], got[4 * 300];
	float scales[3], made[3];
	uint64_t random = 8;

	(void)state;
	for (size_t k = 0; k < KERNELS; k++)
		for (size_t f = 0; f < 3; f++) {
			uint32_t element = dtype_bytes(floats[f]);

			if (!quantise_use(kernels[k]))
				continue;
			fill(source, 4 * 300, floats[f], 2, &random);
			quantise_band(want, scales, source, floats[f], 4, 300, 300 * element, 128);
#if defined(__x86_64__)
			unsigned int host = _mm_getcsr(), now;

			_mm_setcsr(0xc040); /* FTZ, up, DAZ; all traps on */
			quantise_band(got, made, source, floats[f], 4, 300, 300 * element, 128);
			now = _mm_getcsr();
			_mm_setcsr(host);
			assert_int_equal(now & ~0x3fu, 0xc040);
#else
			fesetround(FE_UPWARD);
			quantise_band(got, made, source, floats[f], 4, 300, 300 * element, 128);
			assert_int_equal(fegetround(), FE_UPWARD);
			fesetround(FE_TONEAREST);
#endif
			assert_memory_equal(got, want, sizeof(want));
			assert_memory_equal(made, scales, sizeof(scales));
		}
	assert_true(quantise_use(NULL));
}

static void test_use__refuses_a_kernel_that_is_none(void **state)
{
	(void)state;
	assert_true(quantise_use("portable"));
	assert_false(quantise_use("neon"));
	assert_true(quantise_use(NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bands__of_any_shape_are_as_the_reference_makes_them),
		cmocka_unit_test(test_bands__larger_than_a_strip),
		cmocka_unit_test(test_bands__of_rows_whole_pages_apart),
		cmocka_unit_test(test_sixteen_bits__every_number_in_blocks_of_its_neighbours),
		cmocka_unit_test(test_bf16__blocks_of_every_largest_number),
		cmocka_unit_test(test_hints__change_no_value),
		cmocka_unit_test(test_codes__are_the_nearest_and_even_half_way),
		cmocka_unit_test(test_scales__of_blocks_without_a_number_worth_one),
		cmocka_unit_test(test_bands__do_not_depend_on_the_threads_floating_point_mode),
		cmocka_unit_test(test_use__refuses_a_kernel_that_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

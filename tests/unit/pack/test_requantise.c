/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/array.h"
#include "base/copy.h"
#include "job/transform.h"
#include "model/content.h"
#include "pack/element.h"
#include "pack/quantise.h"
#include "pack/requantise.h"

#include <float.h>
#include <math.h>

enum { ROWS = 130, COLUMNS = 1300, SCALES = 64 * 64 };

static _Alignas(64) unsigned char source[ROWS * COLUMNS + 64], got[ROWS * COLUMNS + 64];
static unsigned char want[ROWS * COLUMNS];
static float scales[SCALES], got_scales[COLUMNS + 1], want_scales[COLUMNS];
static uint64_t random_state = 5;

static uint64_t below(uint64_t limit)
{
	return splitmix64(++random_state) % limit;
}

static float value_at(const struct requantise *band, uint64_t row, uint64_t column)
{
	uint64_t at = (row + band->row_skip) / band->from_rows * 64 +
		      (column + band->column_skip) / band->from_columns;

	return element_float(element_f32_from_f8_scaled(
		band->source[row * band->stride_bytes + column], scales[at]));
}

/* job/transform.h, number by number, with what test_convert.c and test_quantise.c check. */
static void reference(const struct requantise *band)
{
	for (uint64_t from = 0, b = 0; from < band->columns; from += band->width, b++) {
		uint64_t end =
			from + band->width < band->columns ? from + band->width : band->columns;
		float most = TRANSFORM_AMAX_MIN, inverse;

		for (uint64_t row = 0; row < band->rows; row++)
			for (uint64_t column = from; column < end; column++) {
				float x = fabsf(value_at(band, row, column));

				most = isfinite(x) && x > most ? x : most;
			}
		want_scales[b] = most / TRANSFORM_FP8_MAX;
		inverse = 1.0f / want_scales[b];
		for (uint64_t row = 0; row < band->rows; row++)
			for (uint64_t column = from; column < end; column++)
				want[row * band->columns + column] = element_f8_from_f32(
					element_bits(value_at(band, row, column) * inverse));
	}
}

static struct requantise choose_band(void)
{
	static const uint64_t sizes[] = {32, 48, 64, 100, 128, 300, 2000};
	struct requantise band = {
		.source = source + below(2) * 3,
		.rows = 1 + below(ROWS),
		.columns = 1 + below(COLUMNS - 3),
		.stride_bytes = COLUMNS - 3,
		.scales = (const unsigned char *)scales,
		.scale_stride_bytes = 64 * sizeof(float),
		.from_rows = sizes[below(ARRAY_SIZE(sizes))],
		.from_columns = sizes[below(ARRAY_SIZE(sizes))],
		.width = sizes[below(ARRAY_SIZE(sizes))],
		.values = got,
		.transformed_scales = got_scales,
		.next = below(2) ? source : NULL,
		.stream = below(2),
	};

	if (below(2)) { /* whole lines */
		band.columns = 64 * (1 + band.columns / 64 % 20);
		band.width = 64 + 64 * below(3);
		band.from_columns = 64 + 64 * below(3);
	} else {
		band.row_skip = below(band.from_rows);
		band.column_skip = below(band.from_columns);
	}
	return band;
}

/* 0: any code at all; 1: no NaN; 2: nothing but NaN and zeros; 3: tiny scales */
static void fill(int kind)
{
	for (size_t i = 0; i < sizeof(source); i++) {
		source[i] = (unsigned char)splitmix64(++random_state);
		if (kind == 1)
			source[i] &= 0xbf;
		if (kind == 2)
			source[i] =
				(unsigned char)((source[i] & 0x80) | (source[i] & 1 ? 0x7f : 0));
	}
	for (size_t i = 0; i < SCALES; i++)
		scales[i] = (float)(1 + below(1000)) * (kind == 3 ? 0x1p-145f : 1 / 997.0f);
	scales[below(8)] = 0;
	scales[below(8)] = FLT_MAX / TRANSFORM_FP8_MAX * (kind == 1 ? 1 : 0x1p-30f);
}

static void test_bands__are_as_a_loop_makes_them(void **state)
{
	static const char *const kernels[] = {"portable", "avx2", "avx512", "avx512vbmi"};
	unsigned int made = 0;

	(void)state;
	for (unsigned int i = 0; i < 400; i++) {
		struct requantise band = choose_band();

		if (!quantise_use(kernels[i % 4]))
			continue;
		fill((int)(i / 4 % 4));
		memset(got, 0xee, sizeof(got));
		if (!requantise_band(&band))
			continue;
		made++;
		copy_fence();
		reference(&band);
		for (uint64_t at = 0; at < band.rows * band.columns; at++)
			if (got[at] != want[at])
				fail_msg("band %u, row %zu, column %zu: %#x, not %#x", i,
					 (size_t)(at / band.columns), (size_t)(at % band.columns),
					 got[at], want[at]);
		assert_int_equal(got[band.rows * band.columns], 0xee);
		assert_memory_equal(got_scales, want_scales,
				    ((band.columns - 1) / band.width + 1) * sizeof(float));
		memset(got_scales, 0, sizeof(got_scales));
		band.values = NULL;
		assert_true(requantise_band(&band));
		assert_memory_equal(got_scales, want_scales,
				    ((band.columns - 1) / band.width + 1) * sizeof(float));
	}
	assert_true(made > 100);
	assert_true(quantise_use(NULL));
}

static void test_band__is_refused_where_a_table_would_be_wrong_or_too_dear(void **state)
{
	const struct requantise good = {.source = source,
					.rows = 64,
					.columns = 128,
					.stride_bytes = 128,
					.scales = (const unsigned char *)scales,
					.scale_stride_bytes = 64 * sizeof(float),
					.from_rows = 128,
					.from_columns = 128,
					.width = 64,
					.values = got,
					.transformed_scales = got_scales};
	static const float bad_scales[] = {-0.5f, -0.0f, NAN, INFINITY, FLT_MAX};
	struct requantise bad = good;

	(void)state;
	fill(1);
	scales[0] = 1;
	assert_true(requantise_band(&good));
	bad.rows = 8;
	assert_false(requantise_band(&bad));
	bad = good;
	bad.from_columns = 16;
	assert_false(requantise_band(&bad));
	bad = good;
	bad.from_rows = 4;
	assert_false(requantise_band(&bad));
	for (size_t i = 0; i < ARRAY_SIZE(bad_scales); i++) {
		scales[0] = bad_scales[i];
		assert_false(requantise_band(&good));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bands__are_as_a_loop_makes_them),
		cmocka_unit_test(test_band__is_refused_where_a_table_would_be_wrong_or_too_dear),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

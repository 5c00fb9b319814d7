/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/array.h"
#include "base/copy.h"
#include "job/digest.h"
#include "model/content.h"
#include "pack/element.h"
#include "pack/pack.h"
#include "pack/quantise.h"

#include <string.h>

enum { ROWS_MAX = 300, COLUMNS_MAX = 900, VALUES_MAX = ROWS_MAX * COLUMNS_MAX, TARGETS_MAX = 3 };

/* A tensor with its scales, and what the piece must be, number by number. What one number becomes
 * is element.h's, which test_convert.c and test_quantise.c check; here it is which and where. */
static struct job {
	struct pack_source source;
	unsigned char tensor[VALUES_MAX * 4 + 1];
	float scales[VALUES_MAX];
	unsigned char want[VALUES_MAX * 4];
	float want_scales[VALUES_MAX];
} job;
static _Alignas(64) unsigned char got[TARGETS_MAX][VALUES_MAX * 4 + 64];
static float got_scales[VALUES_MAX];
static uint64_t random_state;

static uint64_t below(uint64_t limit)
{
	return splitmix64(++random_state) % limit;
}

static uint64_t ceiling(uint64_t a, uint64_t b)
{
	return (a + b - 1) / b;
}

static float value_at(uint64_t row, uint64_t column)
{
	const struct pack_source *source = &job.source;
	const unsigned char *at =
		job.tensor + 1 + (row * source->shape[1] + column) * dtype_bytes(source->from);
	uint16_t word;
	uint32_t bits;

	if (source->from == DTYPE_F8_E4M3) {
		uint64_t across = ceiling(source->shape[1], source->transform.from_columns);

		return element_float(element_f32_from_f8_scaled(
			*at, job.scales[row / source->transform.from_rows * across +
					column / source->transform.from_columns]));
	}
	memcpy(&bits, at, source->from == DTYPE_F32 ? 4 : 2);
	memcpy(&word, at, 2);
	if (source->from == DTYPE_BF16)
		bits = element_f32_from_bf16(word);
	else if (source->from == DTYPE_F16)
		bits = element_f32_from_f16(word);
	return element_float(bits);
}

static uint64_t want_elements(void)
{
	const struct box *box = &job.source.src;
	const bool turned = job.source.transform.part == TRANSFORM_TRANSPOSED;
	const uint32_t outer = turned, inner = !turned;
	uint64_t n = 0;

	for (uint64_t i = box->lo[outer]; i < box->hi[outer]; i++)
		for (uint64_t j = box->lo[inner]; j < box->hi[inner]; j++) {
			uint32_t bits = element_bits(turned ? value_at(j, i) : value_at(i, j));
			uint16_t word = job.source.to == DTYPE_BF16 ? element_bf16_from_f32(bits)
								    : element_f16_from_f32(bits);
			bool wide = job.source.to == DTYPE_F32;

			memcpy(job.want + n, wide ? (void *)&bits : (void *)&word, wide ? 4 : 2);
			n += wide ? 4 : 2;
		}
	return n;
}

/* The values into want, the scales into want_scales. */
static void want_blocks(void)
{
	const struct box *box = &job.source.src;
	const struct transform *transform = &job.source.transform;
	uint64_t columns = box->hi[1] - box->lo[1], scale_count = 0;

	for (uint64_t row = box->lo[0]; row < box->hi[0]; row += transform->to_rows)
		for (uint64_t column = box->lo[1]; column < box->hi[1];
		     column += transform->to_columns) {
			float amax = TRANSFORM_AMAX_MIN, scale, inverse;

			for (int pass = 0; pass < 2; pass++) {
				scale = amax / TRANSFORM_FP8_MAX;
				inverse = 1.0f / scale;
				for (uint64_t r = row;
				     r < row + transform->to_rows && r < box->hi[0]; r++)
					for (uint64_t c = column;
					     c < column + transform->to_columns && c < box->hi[1];
					     c++) {
						float x = value_at(r, c);
						float magnitude = x < 0 ? -x : x;

						job.want[(r - box->lo[0]) * columns + c -
							 box->lo[1]] =
							element_f8_from_f32(
								element_bits(x * inverse));
						if (magnitude > amax)
							amax = magnitude;
					}
			}
			job.want_scales[scale_count++] = scale;
		}
}

static void run_part(const struct pack *pack, uint64_t from, uint64_t bytes)
{
	bool values = pack->transform.to_rows && pack->transform.part == TRANSFORM_VALUES;
	uint64_t across = values ? ceiling(pack->columns, pack->transform.to_columns) : 0;
	uint64_t sum = 0;
	void *targets[TARGETS_MAX];
	struct pack_part part = {
		.data = job.tensor + 1 +
			job.source.held_lo * job.source.shape[1] * dtype_bytes(job.source.from),
		.from = from,
		.bytes = bytes,
		.targets = targets,
		.target_count = below(TARGETS_MAX + 1),
		.transformed_scales = values && below(2) ? got_scales : NULL,
	};

	if (pack->transform.from_rows)
		part.scales =
			job.scales + job.source.scales_lo * ceiling(job.source.shape[1],
								    pack->transform.from_columns);
	part.sum = part.target_count == 0 || below(2) ? &sum : NULL;
	for (size_t i = 0; i < part.target_count; i++) {
		targets[i] = got[i] + below(2) * below(64); /* whole lines are for themselves */
		memset((unsigned char *)targets[i] + bytes, 0xee, 1);
	}
	pack_run(pack, &part);
	copy_fence();
	for (size_t i = 0; i < part.target_count; i++) {
		assert_memory_equal(targets[i], job.want + from, bytes);
		assert_int_equal(((unsigned char *)targets[i])[bytes], 0xee);
	}
	if (part.sum)
		assert_true(sum == checksum64(job.want + from, bytes));
	if (part.transformed_scales)
		assert_memory_equal(got_scales, job.want_scales + from / pack->grain_bytes * across,
				    ceiling(bytes, pack->grain_bytes) * across * sizeof(float));
}

static void run_job(void)
{
	struct pack_source *source = &job.source;
	struct pack pack;
	uint64_t grains, from, to;

	assert_int_equal(pack_init(&pack, source, NULL), 0);
	if (source->transform.to_rows)
		want_blocks();
	else
		assert_int_equal(want_elements(), pack.bytes);
	if (source->transform.part == TRANSFORM_SCALES)
		memcpy(job.want, job.want_scales, pack.bytes);
	assert_true(pack.block_bytes % pack.grain_bytes == 0);
	assert_true(pack.block_bytes == pack_block_bytes(&source->transform, source->from,
							 source->to, &source->src, pack.bytes));
	run_part(&pack, 0, pack.bytes);
	grains = ceiling(pack.bytes, pack.grain_bytes);
	from = below(grains);
	to = from + 1 + below(grains - from);
	run_part(&pack, from * pack.grain_bytes,
		 (to == grains ? pack.bytes : to * pack.grain_bytes) - from * pack.grain_bytes);
}

/* Where a box may begin and end: anywhere, or on the borders of blocks of `to`. */
static void choose_box(uint32_t d, uint64_t block)
{
	struct pack_source *source = &job.source;
	uint64_t steps = ceiling(source->shape[d], block), lo = below(steps);
	uint64_t hi = (lo + 1 + below(steps - lo)) * block;

	source->src.lo[d] = lo * block;
	source->src.hi[d] = hi < source->shape[d] ? hi : source->shape[d];
}

static void choose_source(enum dtype from, enum dtype to, const struct transform *transform)
{
	struct pack_source *source = &job.source;
	static const uint64_t shapes[][2] = {{1, 1},	 {5, 7},	  {64, 64},
					     {130, 258}, {ROWS_MAX, 200}, {40, COLUMNS_MAX},
					     {200, 700}, {128, 640}};
	uint64_t pick = below(ARRAY_SIZE(shapes)), bytes;

	*source = (struct pack_source){.from = from, .to = to, .dims = 2, .transform = *transform};
	memcpy(source->shape, shapes[pick], sizeof(shapes[pick]));
	source->src.dims = 2;
	choose_box(0, transform->to_rows ? transform->to_rows : 1);
	choose_box(1, transform->to_columns ? transform->to_columns : 1);
	source->held_lo = below(source->src.lo[0] + 1);
	source->held_hi = source->src.hi[0] + below(source->shape[0] - source->src.hi[0] + 1);
	if (transform->from_rows) {
		source->scales_lo = below(source->src.lo[0] / transform->from_rows + 1);
		source->scales_hi = ceiling(source->shape[0], transform->from_rows);
	}
	bytes = source->shape[0] * source->shape[1] * dtype_bytes(from);
	for (uint64_t i = 0; i < bytes; i++)
		job.tensor[1 + i] = (unsigned char)splitmix64(++random_state);
	/* no infinities and NaN: test_quantise.c has them */
	for (uint64_t i = 0; i < bytes; i++)
		if (from == DTYPE_F8_E4M3 || i % dtype_bytes(from) == dtype_bytes(from) - 1)
			job.tensor[1 + i] &= 0xbf;
	for (uint64_t i = 0; i < VALUES_MAX; i++)
		job.scales[i] = (float)(1 + splitmix64(i) % 1000) / 997.0f;
}

/* NULL: the best one for each make, which may be a finer one than these. */
static const char *const kernels[] = {NULL, "avx512", "avx2", "portable"};

static bool use_kernel(const char *name)
{
	if (name)
		return pack_kernel_use(name);
	return quantise_use(NULL); /* conversions begin with their best */
}

static void use_best(void)
{
	for (size_t k = 1; k < ARRAY_SIZE(kernels) && !pack_kernel_use(kernels[k]);)
		k++;
	assert_true(quantise_use(NULL));
}

static void test_elements__equal_a_loop_for_random_boxes_and_parts(void **state)
{
	static const struct {
		enum dtype from, to;
	} rows[] = {{DTYPE_F32, DTYPE_BF16},	{DTYPE_F32, DTYPE_F16},
		    {DTYPE_BF16, DTYPE_F32},	{DTYPE_BF16, DTYPE_F16},
		    {DTYPE_F16, DTYPE_F32},	{DTYPE_F16, DTYPE_BF16},
		    {DTYPE_F8_E4M3, DTYPE_F32}, {DTYPE_F8_E4M3, DTYPE_BF16},
		    {DTYPE_F8_E4M3, DTYPE_F16}};
	static const uint32_t sizes[] = {1, 3, 64, 128};

	(void)state;
	for (size_t k = 0; k < ARRAY_SIZE(kernels); k++) {
		if (!use_kernel(kernels[k]))
			continue;
		for (size_t r = 0; r < 6 * ARRAY_SIZE(rows); r++) {
			enum dtype from = rows[r / 6].from;
			struct transform transform = {0};

			if (from == DTYPE_F8_E4M3) {
				transform.from_rows = sizes[below(ARRAY_SIZE(sizes))];
				transform.from_columns = sizes[below(ARRAY_SIZE(sizes))];
			}
			choose_source(from, rows[r / 6].to, &transform);
			run_job();
		}
	}
	use_best();
}

static void test_transposed__is_column_after_column_of_the_box(void **state)
{
	static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
	const struct transform transform = {.part = TRANSFORM_TRANSPOSED};

	(void)state;
	for (size_t k = 0; k < ARRAY_SIZE(kernels); k++) {
		if (!use_kernel(kernels[k]))
			continue;
		for (size_t r = 0; r < 4 * 9; r++) { /* also of equal dtypes */
			choose_source(dtypes[r % 3], dtypes[r / 3 % 3], &transform);
			run_job();
		}
	}
	use_best();
}

/* Row after row of the box, each with zeroes behind it, from random places on. */
static void test_padded__rows_have_zeroes_behind_them(void **state)
{
	static const uint64_t sizes[][4] = {{3, 40, 23, 16}, {2, 7, 5, 1}, {1, 300, 90, 2}};
	struct pack_source *source = &job.source;

	(void)state;
	for (size_t r = 0; r < 60; r++) {
		const uint64_t *size = sizes[r % ARRAY_SIZE(sizes)];
		uint64_t bytes = size[0] * size[1] * size[2] * size[3], row, n = 0;
		struct pack pack;

		*source = (struct pack_source){
			.from = DTYPE_U8, .to = DTYPE_U8, .dims = 4, .held_hi = size[0]};
		memcpy(source->shape, size, sizeof(source->shape));
		source->src = box_whole(4, size);
		choose_box(0, 1);
		if (below(2)) /* columns of every row, or all of some rows of one expert */
			choose_box(2, 1);
		else if (source->src.hi[0] - source->src.lo[0] == 1)
			choose_box(1, 1);
		row = (source->src.hi[2] - source->src.lo[2]) * size[3];
		source->transform = (struct transform){.part = TRANSFORM_PADDED,
						       .to_columns = (uint32_t)(row + below(70))};
		for (uint64_t i = 0; i < bytes; i++)
			job.tensor[1 + i] = (unsigned char)splitmix64(++random_state);
		memset(job.want, 0, sizeof(job.want) / 8);
		for (uint64_t e = source->src.lo[0]; e < source->src.hi[0]; e++)
			for (uint64_t i = source->src.lo[1]; i < source->src.hi[1]; i++) {
				memcpy(job.want + n,
				       job.tensor + 1 +
					       ((e * size[1] + i) * size[2] + source->src.lo[2]) *
						       size[3],
				       row);
				n += source->transform.to_columns;
			}
		assert_int_equal(pack_init(&pack, source, NULL), 0);
		assert_int_equal(pack.bytes, n);
		run_part(&pack, 0, n);
		row = below(n);
		run_part(&pack, row, 1 + below(n - row));
	}
}

static void test_blocks__equal_a_loop_for_random_blocks_boxes_and_parts(void **state)
{
	static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_F8_E4M3,
					    DTYPE_F8_E4M3};
	static const uint32_t sizes[] = {1, 2, 48, 64, 128, 640, 65536};

	(void)state;
	for (size_t k = 0; k < ARRAY_SIZE(kernels); k++) {
		if (!use_kernel(kernels[k]))
			continue;
		for (size_t r = 0; r < 20 * ARRAY_SIZE(dtypes); r++) {
			struct transform transform = {.part = below(4) ? TRANSFORM_VALUES
								       : TRANSFORM_SCALES};
			enum dtype from = dtypes[r / 20];

			transform.to_rows = sizes[below(ARRAY_SIZE(sizes))];
			transform.to_columns = sizes[below(ARRAY_SIZE(sizes))];
			if (from == DTYPE_F8_E4M3) {
				transform.from_rows = sizes[below(ARRAY_SIZE(sizes))];
				transform.from_columns = sizes[below(ARRAY_SIZE(sizes))];
			}
			choose_source(from,
				      transform.part == TRANSFORM_SCALES ? DTYPE_F32
									 : DTYPE_F8_E4M3,
				      &transform);
			run_job();
		}
	}
	use_best();
}

static void test_pack_init__names_what_cannot_be_made(void **state)
{
	static const struct pack_source good = {
		.from = DTYPE_F8_E4M3,
		.to = DTYPE_F8_E4M3,
		.dims = 2,
		.shape = {256, 300},
		.src = {2, {64, 64}, {192, 300}},
		.held_hi = 256,
		.scales_hi = 2,
		.transform = {TRANSFORM_VALUES, 128, 128, 64, 64},
	};
	struct pack_source bad;
	struct pack pack;
	struct error error;

	(void)state;
	assert_int_equal(pack_init(&pack, &good, &error), 0);
	assert_int_equal(pack.grain_bytes, 64 * 236);
	assert_int_equal(pack.block_bytes, 2 * 64 * 236);
	assert_int_equal(pack.row_skip, 64);
	assert_int_equal(pack.column_skip, 64);
	bad = good;
	bad.scales_lo = 1;
	assert_int_equal(pack_init(&pack, &bad, &error), -ERROR_BOUNDS);
	assert_string_equal(error.text, "rows of scales 0..2 of 2 are needed, 1..2 are held");
	bad = good;
	bad.src.lo[1] = 65;
	assert_int_equal(pack_init(&pack, &bad, &error), -ERROR_CONFIG);
	assert_non_null(strstr(error.text, "\"requantise 128x128 64x64\""));
	bad = good;
	bad.to = DTYPE_F32;
	assert_int_equal(pack_init(&pack, &bad, &error), -ERROR_UNSUPPORTED);
	bad = good;
	bad.shape[1] = bad.src.hi[1] = 64 * (PACK_ROW_BLOCKS_MAX + 1) + 65;
	assert_int_equal(pack_init(&pack, &bad, &error), -ERROR_LIMIT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_elements__equal_a_loop_for_random_boxes_and_parts),
		cmocka_unit_test(test_transposed__is_column_after_column_of_the_box),
		cmocka_unit_test(test_padded__rows_have_zeroes_behind_them),
		cmocka_unit_test(test_blocks__equal_a_loop_for_random_blocks_boxes_and_parts),
		cmocka_unit_test(test_pack_init__names_what_cannot_be_made),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

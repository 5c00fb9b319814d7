/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of several pieces at once against the same bytes, one by one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/array.h"
#include "base/copy.h"
#include "job/digest.h"
#include "model/content.h"
#include "pack/pack.h"

#include <stdlib.h>
#include <string.h>

enum { EDGE = 64, TENSOR_BYTES = 1 << 20, TARGETS_MAX = 3 };

static uint64_t random_state = 11;

static uint64_t below(uint64_t limit)
{
	return splitmix64(++random_state) % limit;
}

/* One matrix of bytes, cut into columns of `width` from column `first` on. */
struct matrix {
	uint64_t rows, columns, first, width, slices;
	unsigned char *bytes;
};

static struct pack pack_of(const struct matrix *matrix, uint64_t column)
{
	uint64_t lo = matrix->first + column * matrix->width;
	struct pack_source source = {
		.from = DTYPE_U8,
		.to = DTYPE_U8,
		.dims = 2,
		.shape = {matrix->rows, matrix->columns},
		.src = {2, {0, lo}, {matrix->rows, lo + matrix->width}},
		.held_hi = matrix->rows,
	};
	struct pack pack;

	assert_int_equal(pack_init(&pack, &source, NULL), 0);
	return pack;
}

/* A column's memory: all its targets, each with an edge on both sides. */
struct column {
	struct pack pack;
	unsigned char *got, *want;
	void *targets[TARGETS_MAX];
	uint64_t sum;
};

static void prepare(struct column *column, struct pack_column *call, const struct matrix *matrix,
		    uint64_t from, uint64_t bytes, bool aligned)
{
	size_t room = bytes + 4 * EDGE, count = below(TARGETS_MAX + 1);

	column->want = malloc(bytes + 1);
	column->got = malloc(TARGETS_MAX * room);
	assert_non_null(column->want);
	assert_non_null(column->got);
	for (uint64_t i = 0; i < bytes; i++)
		column->want[i] =
			matrix->bytes[(from + i) / matrix->width * matrix->columns +
				      column->pack.runs.offset + (from + i) % matrix->width];
	memset(column->got, 0xee, TARGETS_MAX * room);
	for (size_t t = 0; t < count; t++) {
		uintptr_t at = (uintptr_t)column->got + t * room + EDGE;

		column->targets[t] =
			(void *)((at + EDGE - 1) / EDGE * EDGE + (aligned ? 0 : below(EDGE)));
	}
	*call = (struct pack_column){
		.pack = &column->pack,
		.part = {.data = matrix->bytes,
			 .from = from,
			 .bytes = bytes,
			 .targets = column->targets,
			 .target_count = count,
			 .sum = !count || below(2) ? &column->sum : NULL},
	};
}

/* The targets hold what they should, and nothing beside them was touched. */
static void check(const struct column *column, const struct pack_part *part)
{
	size_t room = part->bytes + 4 * EDGE;

	for (size_t t = 0; t < part->target_count; t++) {
		unsigned char *target = column->targets[t];

		assert_memory_equal(target, column->want, part->bytes);
		memset(target, 0xee, part->bytes);
	}
	for (size_t i = 0; i < TARGETS_MAX * room; i++)
		if (column->got[i] != 0xee)
			fail_msg("byte %zu beside the targets was written", i);
	if (part->sum)
		assert_true(column->sum == checksum64(column->want, part->bytes));
}

static void run_columns(const struct matrix *matrix, uint64_t from, uint64_t bytes, bool aligned)
{
	static struct column columns[PACK_COLUMNS_MAX];
	struct pack_column calls[PACK_COLUMNS_MAX];
	size_t turn = below(matrix->slices);

	for (size_t i = 0; i < matrix->slices; i++) {
		size_t k = (i * 7 + turn) % matrix->slices; /* in no order, some of them twice */

		columns[i].pack = pack_of(matrix, k);
		prepare(&columns[i], &calls[i], matrix, from, bytes, aligned);
	}
	pack_run_columns(calls, matrix->slices);
	copy_fence();
	for (size_t i = 0; i < matrix->slices; i++) {
		check(&columns[i], &calls[i].part);
		free(columns[i].got);
		free(columns[i].want);
	}
}

static void run_random(unsigned char *bytes)
{
	static const uint64_t widths[] = {1, 7, 64, 100, 128, 192, 704, 1000, 1024, 4032};
	struct matrix matrix = {.width = widths[below(ARRAY_SIZE(widths))]};
	uint64_t piece, from, to;

	matrix.slices = 1 + below(below(3) ? 8 : PACK_COLUMNS_MAX);
	while (matrix.slices * matrix.width * 2 > TENSOR_BYTES / 4)
		matrix.slices--;
	matrix.first = below(70);
	matrix.columns = matrix.first + matrix.slices * matrix.width + (matrix.slices == 1) +
			 (below(2) ? below(70) : 0);
	matrix.rows = 2 + below(TENSOR_BYTES / 2 / matrix.columns - 1);
	if (matrix.rows > 100000 / matrix.width + 2)
		matrix.rows = 100000 / matrix.width + 2;
	/* nothing lies behind it, as a sanitizer sees */
	matrix.bytes = malloc(matrix.rows * matrix.columns);
	assert_non_null(matrix.bytes);
	memcpy(matrix.bytes, bytes, matrix.rows * matrix.columns);
	piece = matrix.rows * matrix.width;
	from = below(piece);
	to = from + below(piece - from + 1);
	if (below(2)) /* as parts are cut */
		from -= from % EDGE;
	if (below(2))
		to = piece;
	if (!below(4))
		from = 0;
	run_columns(&matrix, from, to - from, below(2));
	free(matrix.bytes);
}

static void test_columns__are_each_as_if_packed_alone(void **state)
{
	static const char *const kernels[] = {"avx512", "avx2", "portable"};
	unsigned char *bytes = malloc(TENSOR_BYTES);

	(void)state;
	assert_non_null(bytes);
	for (size_t i = 0; i < TENSOR_BYTES; i++)
		bytes[i] = (unsigned char)splitmix64(i);
	for (size_t k = 0; k < ARRAY_SIZE(kernels); k++) {
		if (!pack_kernel_use(kernels[k]))
			continue;
		for (int n = 0; n < 120; n++)
			run_random(bytes);
	}
	for (size_t k = 0; k < ARRAY_SIZE(kernels) && !pack_kernel_use(kernels[k]);)
		k++;
	pack_run_columns(NULL, 0);
	free(bytes);
}

static struct pack slice_of(uint64_t rows, uint64_t columns, uint64_t row, uint64_t column,
			    uint64_t height, uint64_t width)
{
	struct pack_source source = {
		.from = DTYPE_BF16,
		.to = DTYPE_BF16,
		.dims = 2,
		.shape = {rows, columns},
		.src = {2, {row, column}, {row + height, column + width}},
		.held_hi = rows,
	};
	struct pack pack;

	assert_int_equal(pack_init(&pack, &source, NULL), 0);
	return pack;
}

static void test_pack_can_copack__is_true_of_short_slices_of_the_same_rows_only(void **state)
{
	struct pack a = slice_of(64, 4096, 8, 0, 32, 512), b;

	(void)state;
	b = slice_of(64, 4096, 8, 512, 32, 512);
	assert_true(pack_can_copack(&a, &b));
	assert_true(pack_can_copack(&b, &a));
	assert_true(pack_can_copack(&a, &a));
	b = slice_of(64, 4096, 9, 512, 32, 512); /* other rows */
	assert_false(pack_can_copack(&a, &b));
	b = slice_of(64, 4096, 8, 512, 33, 512); /* more of them */
	assert_false(pack_can_copack(&a, &b));
	b = slice_of(64, 4096, 8, 512, 32, 256); /* shorter ones */
	assert_false(pack_can_copack(&a, &b));
	b = slice_of(64, 8192, 8, 512, 32, 512); /* of a wider tensor */
	assert_false(pack_can_copack(&a, &b));
	b = slice_of(64, 4096, 8, 512, 32, 512);
	b.to = DTYPE_F32;
	assert_false(pack_can_copack(&a, &b));
	b.to = DTYPE_BF16;
	b.transform.to_rows = b.transform.to_columns = 128;
	assert_false(pack_can_copack(&a, &b));
	a = slice_of(64, 8192, 8, 0, 32, 4096); /* long ones are as fast alone */
	b = slice_of(64, 8192, 8, 4096, 32, 4096);
	assert_false(pack_can_copack(&a, &b));
	a = slice_of(64, 512, 8, 0, 32, 512); /* dense, as one row */
	assert_false(pack_can_copack(&a, &a));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_columns__are_each_as_if_packed_alone),
		cmocka_unit_test(
			test_pack_can_copack__is_true_of_short_slices_of_the_same_rows_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/copy.h"
#include "job/digest.h"
#include "model/content.h"
#include "pack/pack.h"

#include <string.h>

/* Element by element, as nobody would pack. */
static size_t pack_naive(unsigned char *out, const unsigned char *tensor, const struct box *box,
			 const uint64_t *shape, uint32_t element)
{
	uint64_t at[BOX_DIMS_MAX];
	size_t bytes = 0;

	memcpy(at, box->lo, sizeof(at));
	for (;;) {
		uint64_t index = 0;
		uint32_t d;

		for (d = 0; d < box->dims; d++)
			index = index * shape[d] + at[d];
		memcpy(out + bytes, tensor + index * element, element);
		bytes += element;
		for (d = box->dims; d-- > 0;) {
			if (++at[d] < box->hi[d])
				break;
			at[d] = box->lo[d];
		}
		if (d == UINT32_MAX)
			return bytes;
	}
}

enum { EDGE = 64, BYTES_MAX = 4096, TARGETS_MAX = 3 };
static const enum dtype dtypes[] = {DTYPE_U8, DTYPE_BF16, DTYPE_F32, DTYPE_I64};

/* The part into `count` targets, each at another alignment, nothing beside them touched; and its
 * sum. */
static void check_part(const struct pack *pack, const void *data, const unsigned char *want,
		       uint64_t from, uint64_t bytes, size_t count, uint64_t *random)
{
	static unsigned char got[TARGETS_MAX][BYTES_MAX + 2 * EDGE];
	void *targets[TARGETS_MAX];
	uint64_t sum = 0;
	struct pack_part part = {.data = data,
				 .from = from,
				 .bytes = bytes,
				 .targets = targets,
				 .target_count = count,
				 .sum = count == 0 || splitmix64(++*random) % 2 ? &sum : NULL};

	for (size_t i = 0; i < count; i++) {
		targets[i] = got[i] + splitmix64(++*random) % EDGE;
		memset(got[i], 0xee, sizeof(got[i]));
	}
	pack_run(pack, &part);
	copy_fence();
	if (part.sum)
		assert_true(sum == checksum64(want + from, bytes));
	for (size_t i = 0; i < count; i++) {
		size_t before = (size_t)((unsigned char *)targets[i] - got[i]);

		assert_memory_equal(targets[i], want + from, bytes);
		for (size_t k = 0; k < sizeof(got[i]); k++)
			if (k < before || k >= before + bytes)
				assert_int_equal(got[i][k], 0xee);
	}
}

static void check_box(const unsigned char *tensor, const struct box *box, const uint64_t *shape,
		      enum dtype dtype, uint64_t *random)
{
	unsigned char want[BYTES_MAX];
	uint32_t element = dtype_bytes(dtype);
	size_t bytes = pack_naive(want, tensor, box, shape, element);
	uint64_t row_bytes = element;
	struct pack_source source = {.from = dtype, .to = dtype, .dims = box->dims, .src = *box};
	struct pack pack;
	struct runs runs;

	memcpy(source.shape, shape, box->dims * sizeof(*shape));
	for (uint32_t d = 1; d < box->dims; d++)
		row_bytes *= shape[d];
	source.held_lo = splitmix64(++*random) % (box->lo[0] + 1);
	source.held_hi = box->hi[0] + splitmix64(++*random) % (shape[0] - box->hi[0] + 1);
	if (!box_runs(box, shape, element, &runs)) {
		if (pack_init(&pack, &source, NULL)) /* the rows held may need fewer strides */
			return;
	} else {
		assert_int_equal(pack_init(&pack, &source, NULL), 0);
	}
	assert_int_equal(pack.bytes, bytes);
	tensor += source.held_lo * row_bytes;
	check_part(&pack, tensor, want, 0, bytes, 1, random);
	for (size_t n = 0; n <= TARGETS_MAX; n++) {
		uint64_t from = splitmix64(++*random) % bytes;

		check_part(&pack, tensor, want, from, splitmix64(++*random) % (bytes - from + 1), n,
			   random);
	}
}

static void test_pack__equals_an_element_by_element_copy_for_all_small_boxes(void **state)
{
	unsigned char tensor[BYTES_MAX];
	uint64_t random = 1;

	(void)state;
	for (size_t i = 0; i < sizeof(tensor); i++)
		tensor[i] = (unsigned char)splitmix64(i);
	for (uint64_t rows = 1; rows <= 5; rows++)
		for (uint64_t cols = 1; cols <= 5; cols++)
			for (uint64_t a = 0; a < rows; a++)
				for (uint64_t b = a + 1; b <= rows; b++)
					for (uint64_t c = 0; c < cols; c++)
						for (uint64_t d = c + 1; d <= cols; d++) {
							struct box box = {2, {a, c}, {b, d}};
							uint64_t shape[] = {rows, cols};

							check_box(tensor, &box, shape,
								  dtypes[random % 4], &random);
						}
}

static void test_pack__equals_it_for_random_boxes_of_1_to_4_dimensions(void **state)
{
	unsigned char tensor[BYTES_MAX];
	uint64_t random = 99;

	(void)state;
	for (size_t i = 0; i < sizeof(tensor); i++)
		tensor[i] = (unsigned char)splitmix64(i);
	for (int round = 0; round < 3000; round++) {
		struct box box = {.dims = 1 + (uint32_t)(splitmix64(++random) % 4)};
		uint64_t shape[BOX_DIMS_MAX];

		for (uint32_t d = 0; d < box.dims; d++) {
			shape[d] = 1 + splitmix64(++random) % 5;
			box.lo[d] = splitmix64(++random) % shape[d];
			box.hi[d] = box.lo[d] + 1 + splitmix64(++random) % (shape[d] - box.lo[d]);
		}
		check_box(tensor, &box, shape, dtypes[splitmix64(++random) % 3], &random);
	}
}

/* Past the size from which stores are streamed, and rows of every kind of length. */
static void test_pack__gives_the_same_bytes_with_every_kernel_at_every_length(void **state)
{
	static const char *const names[] = {"avx512", "avx2", "portable"};
	static const uint64_t columns[] = {1, 3, 64, 100, 512, 1000, 2048, 4100, 20000, 40000};
	static unsigned char tensor[400000], want[400000], got[2][400000 + EDGE];
	uint64_t random = 5;

	(void)state;
	for (size_t i = 0; i < sizeof(tensor); i++)
		tensor[i] = (unsigned char)splitmix64(i);
	for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
		if (!pack_kernel_use(names[k]))
			continue;
		assert_string_equal(pack_kernel_name(), names[k]);
		for (size_t c = 0; c < 10 * sizeof(columns) / sizeof(columns[0]); c++) {
			uint64_t width = columns[c / 10], all = width * 2;
			struct pack_source source = {
				.from = DTYPE_U8,
				.to = DTYPE_U8,
				.dims = 2,
				.shape = {sizeof(tensor) / all, all},
				.src = {2,
					{0, width / 2},
					{sizeof(tensor) / all, width + width / 2}},
				.held_hi = sizeof(tensor) / all};
			uint64_t sum = 0;
			void *targets[2] = {got[0] + splitmix64(++random) % EDGE * (c % 2),
					    got[1] + splitmix64(++random) % EDGE};
			struct pack_part part = {
				.data = tensor, .targets = targets, .target_count = 1 + c % 2};
			struct pack pack;

			if (c % 3 == 0)
				part.sum = &sum;
			assert_int_equal(pack_init(&pack, &source, NULL), 0);
			pack_naive(want, tensor, &source.src, source.shape, 1);
			part.from = c % 5 ? splitmix64(++random) % pack.bytes : 0;
			part.bytes = pack.bytes - part.from;
			pack_run(&pack, &part);
			copy_fence();
			for (size_t i = 0; i < part.target_count; i++)
				assert_memory_equal(targets[i], want + part.from, part.bytes);
			if (part.sum)
				assert_true(sum == checksum64(want + part.from, part.bytes));
		}
	}
	assert_false(pack_kernel_use("mmx"));
	for (size_t k = 0; k < sizeof(names) / sizeof(names[0]) && !pack_kernel_use(names[k]);)
		k++;
}

static void test_pack_init__names_what_cannot_be_packed(void **state)
{
	static const struct pack_source good = {
		.from = DTYPE_BF16,
		.to = DTYPE_BF16,
		.dims = 3,
		.shape = {8, 6, 4},
		.src = {3, {2, 0, 0}, {4, 3, 4}},
		.held_lo = 2,
		.held_hi = 4,
	};
	struct pack_source bad;
	struct pack pack;
	struct error error;

	(void)state;
	assert_int_equal(pack_init(&pack, &good, &error), 0);
	assert_int_equal(pack.bytes, 2 * 3 * 4 * 2);
	assert_int_equal(pack.runs.offset, 0);
	assert_int_equal(pack.stride_bytes, 48);
	bad = good;
	bad.held_lo = 3;
	assert_int_equal(pack_init(&pack, &bad, &error), -ERROR_BOUNDS);
	assert_string_equal(error.text, "rows 2..4 of 8 are needed, 3..4 are held");
	bad = good;
	bad.held_hi = 3;
	assert_int_equal(pack_init(&pack, &bad, &error), -ERROR_BOUNDS);
	bad = good;
	bad.held_hi = 9;
	assert_int_equal(pack_init(&pack, &bad, &error), -ERROR_BOUNDS);
	bad = good;
	bad.src.hi[1] = 7;
	assert_int_equal(pack_init(&pack, &bad, &error), -ERROR_BOUNDS);
	assert_string_equal(error.text, "box [2..4, 0..7, 0..4] is not inside of its tensor");
	bad = good;
	bad.src.hi[2] = 3; /* rows of 3 of 4, and 3 of 6 of these */
	assert_int_equal(pack_init(&pack, &bad, &error), -ERROR_UNSUPPORTED);
	assert_non_null(strstr(error.text, "more than one stride"));
	bad = good;
	bad.to = DTYPE_I16;
	assert_int_equal(pack_init(&pack, &bad, &error), -ERROR_UNSUPPORTED);
	assert_non_null(strstr(error.text, "from BF16 to I16"));
}

static void test_pack_sum__of_one_block_is_its_own_and_of_more_the_sum_of_sums(void **state)
{
	static const uint64_t sums[2] = {0x0123456789abcdef, 0xfedcba9876543210};
	static const unsigned char bytes[16] = {0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01,
						0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe};

	(void)state;
	assert_true(pack_sum(sums, 1) == sums[0]);
	assert_true(pack_sum(sums, 2) == checksum64(bytes, sizeof(bytes)));
}

static void test_checksum__in_parts_equals_the_whole(void **state)
{
	unsigned char data[1000];
	struct digest_stream stream;

	(void)state;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (unsigned char)splitmix64(i);
	for (size_t cut = 0; cut <= sizeof(data); cut += 37) {
		checksum_begin(&stream);
		digest_add(&stream, data, cut);
		digest_add(&stream, data + cut, sizeof(data) - cut);
		assert_true(checksum_end(&stream) == checksum64(data, sizeof(data)));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pack__equals_an_element_by_element_copy_for_all_small_boxes),
		cmocka_unit_test(test_pack__equals_it_for_random_boxes_of_1_to_4_dimensions),
		cmocka_unit_test(test_pack__gives_the_same_bytes_with_every_kernel_at_every_length),
		cmocka_unit_test(test_pack_init__names_what_cannot_be_packed),
		cmocka_unit_test(
			test_pack_sum__of_one_block_is_its_own_and_of_more_the_sum_of_sums),
		cmocka_unit_test(test_checksum__in_parts_equals_the_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

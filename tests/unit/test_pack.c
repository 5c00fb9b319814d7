/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/copy.h"
#include "common/digest.h"
#include "model/content.h"
#include "worker/replica/pack.h"

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

static void check_box(const unsigned char *tensor, const struct box *box, const uint64_t *shape,
		      uint32_t element, uint64_t *random)
{
	unsigned char want[4096], got[4096 + 2];
	struct runs runs;
	size_t bytes = pack_naive(want, tensor, box, shape, element);

	if (!box_runs(box, shape, element, &runs))
		return;
	memset(got, 0xee, sizeof(got));
	pack_range(got + 1, tensor, &runs, 0, bytes);
	copy_fence();
	assert_memory_equal(got + 1, want, bytes);
	assert_int_equal(got[0], 0xee);
	assert_int_equal(got[bytes + 1], 0xee);
	assert_true(pack_checksum(tensor, &runs) == checksum64(want, bytes));
	for (int part = 0; part < 4; part++) {
		uint64_t from = splitmix64(++*random) % bytes;
		uint64_t n = splitmix64(++*random) % (bytes - from + 1);

		memset(got, 0xee, sizeof(got));
		pack_range(got + 1, tensor, &runs, from, n);
		copy_fence();
		assert_memory_equal(got + 1, want + from, n);
		assert_int_equal(got[0], 0xee);
		assert_int_equal(got[n + 1], 0xee);
	}
}

static void test_pack__equals_an_element_by_element_copy_for_all_small_boxes(void **state)
{
	static const uint32_t elements[] = {1, 2, 4, 8};
	unsigned char tensor[4096];
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
								  elements[random % 4], &random);
						}
}

static void test_pack__equals_it_for_random_boxes_of_1_to_4_dimensions(void **state)
{
	unsigned char tensor[4096];
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
		check_box(tensor, &box, shape, 1u << splitmix64(++random) % 3, &random);
	}
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
		cmocka_unit_test(test_checksum__in_parts_equals_the_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

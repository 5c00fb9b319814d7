/* SPDX-License-Identifier: Apache-2.0
 *
 * The sum of a piece that lies packed in memory is the one that its blocks had when it was packed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "job/digest.h"
#include "pack/pack.h"

#include <stdlib.h>

static uint64_t packed_sum(const struct pack *pack, const void *data, void *out)
{
	uint64_t sums[8], blocks = 0;

	for (uint64_t from = 0; from < pack->bytes; from += pack->block_bytes) {
		uint64_t left = pack->bytes - from;
		void *target = (unsigned char *)out + from;
		struct pack_part part = {
			.data = data,
			.from = from,
			.bytes = left < pack->block_bytes ? left : pack->block_bytes,
			.targets = &target,
			.target_count = 1,
			.sum = &sums[blocks++],
		};

		pack_run(pack, &part);
	}
	return pack_sum(sums, blocks);
}

static void test_pack_piece_sum__is_that_of_the_packed_blocks(void **state)
{
	static const uint64_t columns[] = {1, 77, 1024, 1025, 2048, 2049, 4100};

	(void)state;
	for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++) {
		/* a column slice of 4 KiB rows of F32: 1024 columns are one block */
		struct pack_source source = {
			.from = DTYPE_F32,
			.to = DTYPE_F32,
			.dims = 2,
			.shape = {1024, 5000},
			.src = {.dims = 2, .lo = {0, 3}, .hi = {1024, 3 + columns[i]}},
			.held_hi = 1024,
		};
		unsigned char *data = malloc(1024 * 5000 * 4), *out;
		struct error error;
		struct pack pack;
		uint64_t sum, block;

		assert_non_null(data);
		for (size_t at = 0; at < 1024u * 5000 * 4; at++)
			data[at] = (unsigned char)(at * 13 + at / 251);
		assert_int_equal(pack_init(&pack, &source, &error), 0);
		out = malloc(pack.bytes);
		assert_non_null(out);
		sum = packed_sum(&pack, data, out);
		block = pack_block_bytes(&source.transform, source.from, source.to, &source.src,
					 pack.bytes);
		assert_true(pack_piece_sum(out, pack.bytes, block) == sum);
		out[pack.bytes - 1] ^= 1;
		assert_true(pack_piece_sum(out, pack.bytes, block) != sum);
		free(out);
		free(data);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pack_piece_sum__is_that_of_the_packed_blocks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

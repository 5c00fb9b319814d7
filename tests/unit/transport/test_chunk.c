/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/chunk.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static uint64_t state_ = 7;
static uint64_t random64(void)
{
	uint64_t z = state_ += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static uint64_t random_size(void)
{
	return (random64() & ((UINT64_C(1) << 62) - 1)) >> (random64() % 62);
}

/* Cheap enough for a million cuts: cmocka's asserts would be most of the time. */
static bool chunk_right(const struct chunk *chunk, uint64_t offset, uint64_t done, uint64_t bytes,
			uint64_t chunk_bytes)
{
	bool last = done + chunk->bytes == bytes;
	bool cut = (chunk->remote_offset + chunk->bytes) % CHUNK_CUT_BYTES == 0;

	return chunk->bytes > 0 && chunk->bytes <= chunk_bytes && chunk->source_offset == done &&
	       chunk->remote_offset == offset + done && done + chunk->bytes <= bytes &&
	       (last || chunk_bytes < CHUNK_CUT_BYTES || cut) &&
	       /* no chunk is cut shorter than it had to be */
	       (last || chunk->bytes + CHUNK_CUT_BYTES > chunk_bytes ||
		chunk_bytes < CHUNK_CUT_BYTES);
}

static void check_whole(uint64_t offset, uint64_t bytes, uint64_t chunk_bytes)
{
	struct chunk_cursor cursor;
	struct chunk chunk;
	uint64_t done = 0, n = 0;

	chunk_begin(&cursor, offset, bytes, chunk_bytes);
	while (chunk_next(&cursor, &chunk)) {
		if (!chunk_right(&chunk, offset, done, bytes, chunk_bytes))
			fail_msg("chunk %llu of (%llu, %llu, %llu)", (unsigned long long)n,
				 (unsigned long long)offset, (unsigned long long)bytes,
				 (unsigned long long)chunk_bytes);
		done += chunk.bytes;
		n++;
	}
	if (done != bytes || n != chunk_count(offset, bytes, chunk_bytes))
		fail_msg("(%llu, %llu, %llu): %llu bytes in %llu chunks",
			 (unsigned long long)offset, (unsigned long long)bytes,
			 (unsigned long long)chunk_bytes, (unsigned long long)done,
			 (unsigned long long)n);
	assert_false(chunk_next(&cursor, &chunk)); /* stays at the end */
}

static void test_chunk__covers_in_order_for_all_small_sizes(void **state)
{
	(void)state;
	for (uint64_t offset = 0; offset <= 20; offset++)
		for (uint64_t bytes = 0; bytes <= 40; bytes++)
			for (uint64_t chunk = 1; chunk <= 24; chunk++)
				check_whole(offset, bytes, chunk);
}

static void test_chunk__covers_in_order_around_every_cut(void **state)
{
	const uint64_t near[] = {0,    1,    2,	   4094,  4095,	 4096,	4097, 4098,
				 8191, 8192, 8193, 12287, 12288, 12289, 20000};
	const size_t n = sizeof(near) / sizeof(near[0]);

	(void)state;
	for (size_t i = 0; i < n; i++)
		for (size_t j = 0; j < n; j++)
			for (size_t k = 1; k < n; k++)
				if (near[k] > 2 || near[j] < 10)
					check_whole(near[i], near[j], near[k]);
}

/* Too many chunks to walk: the first thousand, and the count by its own definition. */
static void test_chunk__random_large_writes_up_to_2_62(void **state)
{
	(void)state;
	for (int i = 0; i < 20000; i++) {
		uint64_t offset = random_size(), bytes = random_size(), limit = random_size() + 1;
		uint64_t done = 0, left = chunk_count(offset, bytes, limit);
		struct chunk_cursor cursor;
		struct chunk chunk;

		chunk_begin(&cursor, offset, bytes, limit);
		for (int n = 0; n < 100 && chunk_next(&cursor, &chunk); n++) {
			assert_true(chunk_right(&chunk, offset, done, bytes, limit));
			done += chunk.bytes;
			left--;
			assert_int_equal(left, chunk_count(offset + done, bytes - done, limit));
		}
	}
}

static void test_chunk__nothing_gives_no_chunk(void **state)
{
	struct chunk_cursor cursor;
	struct chunk chunk;

	(void)state;
	chunk_begin(&cursor, 123, 0, 0);
	assert_false(chunk_next(&cursor, &chunk));
	assert_int_equal(chunk_count(123, 0, 0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_chunk__covers_in_order_for_all_small_sizes),
		cmocka_unit_test(test_chunk__covers_in_order_around_every_cut),
		cmocka_unit_test(test_chunk__random_large_writes_up_to_2_62),
		cmocka_unit_test(test_chunk__nothing_gives_no_chunk),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

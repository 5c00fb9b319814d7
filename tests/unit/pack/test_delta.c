/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "pack/delta.h"

#include <stdlib.h>
#include <string.h>

static uint64_t state = 7;

static uint64_t random64(void)
{
	state += 0x9E3779B97F4A7C15u;
	uint64_t x = state;

	x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
	x = (x ^ x >> 27) * 0x94D049BB133111EBu;
	return x ^ x >> 31;
}

/* One of `one_in` values differs, and is another one. */
static void change(unsigned char *is, size_t bytes, unsigned element, uint64_t one_in)
{
	for (size_t i = 0; i < bytes; i += element)
		if (random64() % one_in == 0)
			is[i + random64() % element] ^= (unsigned char)(1 + random64() % 255);
}

static void test_code__of_any_change_is_applied_to_the_very_bytes(void **unused)
{
	static const uint64_t rates[] = {1, 2, 3, 20, 300, 100000};
	unsigned char was[DELTA_CHUNK_BYTES], is[DELTA_CHUNK_BYTES], coded[DELTA_CODED_MAX];

	(void)unused;
	for (int turn = 0; turn < 6000; turn++) {
		unsigned element = 1u << turn % 3;
		size_t bytes = random64() % 3
				       ? (1 + random64() % (DELTA_CHUNK_BYTES / element)) * element
				       : (1 + random64() % 130) * element;
		size_t length;

		if (bytes > DELTA_CHUNK_BYTES)
			bytes = DELTA_CHUNK_BYTES;
		for (size_t i = 0; i < bytes; i++)
			was[i] = (unsigned char)random64();
		memcpy(is, was, bytes);
		change(is, bytes, element, rates[random64() % 6]);
		length = delta_code(was, is, bytes, element, coded);
		assert_true(length >= 8 && length <= bytes + 8);
		assert_int_equal(delta_is_same(coded), memcmp(was, is, bytes) == 0);
		assert_int_equal(delta_span(coded, length, element), bytes);
		for (int twice = 0; twice < 2; twice++) {
			delta_apply(coded, length, element, was);
			assert_memory_equal(was, is, bytes);
		}
	}
}

static void test_code__of_one_bf16_value_in_twenty_takes_an_eighth(void **unused)
{
	unsigned char was[DELTA_CHUNK_BYTES], is[DELTA_CHUNK_BYTES], coded[DELTA_CODED_MAX];
	size_t all = 0;

	(void)unused;
	for (int turn = 0; turn < 100; turn++) {
		for (size_t i = 0; i < sizeof(was); i++)
			was[i] = is[i] = (unsigned char)random64();
		change(is, sizeof(is), 2, 20);
		all += delta_code(was, is, sizeof(is), 2, coded);
	}
	assert_in_range(all, 100 * sizeof(is) / 10, 100 * sizeof(is) / 8);
}

static void test_chunks__follow_each_other_and_say_how_long_they_are(void **unused)
{
	unsigned char was[3 * 512] = {0}, is[3 * 512] = {0}, coded[3 * 520];
	size_t length;
	uint32_t first;

	(void)unused;
	is[2] = 1;
	memset(is + 2 * 512, 9, 512);
	length = delta_code(was, is, 512, 2, coded);
	delta_same(coded + length, 512);
	length += 8;
	length += delta_code(was, is + 2 * 512, 512, 2, coded + length);
	assert_int_equal(delta_span(coded, length, 2), sizeof(was));
	assert_int_equal(delta_first(coded, &first), 512);
	assert_int_equal(first, 8 + 8 + 8 + 2);
	assert_int_equal(length, first + 8 + 8 + 512);
	delta_apply(coded, length, 2, was);
	assert_memory_equal(was, is, sizeof(is));
}

/* Whatever a peer sends: what is taken touches no byte beyond what it says that it is of. */
static void test_span__refuses_what_is_cut_or_wrong_and_what_it_takes_stays_inside(void **unused)
{
	unsigned char was[2048], is[2048], coded[2056];
	size_t taken = 0;

	(void)unused;
	for (int turn = 0; turn < 20000; turn++) {
		unsigned element = 1u << turn % 3;
		size_t length, n;
		unsigned char *exact, *memory;
		uint64_t span;

		memset(was, turn, sizeof(was));
		memcpy(is, was, sizeof(was));
		change(is, sizeof(is), element, 1 + random64() % 40);
		length = delta_code(was, is, sizeof(was), element, coded);
		for (uint64_t k = random64() % 4; k; k--)
			coded[random64() % (random64() % 2 ? length : 24)] =
				(unsigned char)random64();
		n = random64() % 2 ? length : random64() % (length + 1);
		exact = malloc(n + 1);
		memcpy(exact, coded, n);
		span = delta_span(exact, n, element);
		if (span && span < 1 << 20) {
			memory = malloc(span);
			delta_apply(exact, n, element, memory);
			free(memory);
			taken++;
		}
		free(exact);
	}
	assert_in_range(taken, 1000, 19000);
	assert_int_equal(delta_span(coded, 0, 2), 0);
	assert_int_equal(delta_span(coded, 7, 2), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_code__of_any_change_is_applied_to_the_very_bytes),
		cmocka_unit_test(test_code__of_one_bf16_value_in_twenty_takes_an_eighth),
		cmocka_unit_test(test_chunks__follow_each_other_and_say_how_long_they_are),
		cmocka_unit_test(
			test_span__refuses_what_is_cut_or_wrong_and_what_it_takes_stays_inside),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

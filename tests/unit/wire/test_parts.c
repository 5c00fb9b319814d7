/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages cut to frames and put together again: every length around the borders, frames that are lost,
 * doubled or forged, and the memory that somebody can make us keep.
 */
#include "wire/parts.h"

#include "base/memory.h"
#include "wire/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CARRIES (PART_BYTES - PART_HEAD_BYTES)

static struct parts_budget budget;
static struct error error;

static int set_up(void **state)
{
	(void)state;
	budget = (struct parts_budget){.most = 4u << 20};
	return 0;
}

static unsigned char *message_of(size_t length)
{
	unsigned char *bytes = memory_alloc(length);

	assert_non_null(bytes);
	for (size_t i = 0; i < length; i++)
		bytes[i] = (unsigned char)(i * 31 + length);
	bytes[0] = 0x87;
	return bytes;
}

/* The frames of a message, one after the other; `lost` does not arrive, `doubled` twice. */
static int travel(struct parts_in *in, const unsigned char *bytes, size_t length, uint32_t number,
		  int lost, int doubled)
{
	struct parts_out out = {.bytes = bytes, .length = length, .number = number};
	unsigned char frame[PART_BYTES];
	size_t frame_bytes;
	int rc = 0;

	for (int i = 0; (frame_bytes = parts_next(&out, frame)) > 0; i++) {
		parts_sent(&out);
		assert_true(frame_bytes <= PART_BYTES);
		for (int times = i == lost ? 0 : i == doubled ? 2 : 1; times && !rc; times--)
			rc = parts_take(in, &budget, frame, frame_bytes, LIMIT_MESSAGE_BYTES,
					&error);
	}
	return rc;
}

static void test_message__up_to_a_frame_is_that_frame(void **state)
{
	static const size_t lengths[] = {1, 2, CARRIES, CARRIES + 1, PART_BYTES - 1, PART_BYTES};

	(void)state;
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		unsigned char frame[PART_BYTES], *bytes = message_of(lengths[i]);
		struct parts_out out = {.bytes = bytes, .length = lengths[i]};

		assert_int_equal(parts_next(&out, frame), lengths[i]);
		assert_memory_equal(frame, bytes, lengths[i]);
		assert_false(parts_is(frame, lengths[i]));
		assert_int_equal(parts_next(&out, frame), lengths[i]); /* not sent yet */
		parts_sent(&out);
		assert_int_equal(parts_next(&out, frame), 0);
		memory_free(bytes);
	}
}

static void test_message__of_any_length_comes_out_as_it_went_in(void **state)
{
	static const size_t around[] = {PART_BYTES + 1, 2 * CARRIES, 3 * CARRIES, 1000000};

	(void)state;
	for (size_t i = 0; i < sizeof(around) / sizeof(around[0]); i++)
		for (size_t length = around[i] - (i ? 1 : 0); length <= around[i] + 1; length++) {
			unsigned char *bytes = message_of(length);
			struct parts_in in = {0};

			assert_int_equal(travel(&in, bytes, length, 7, -1, -1), 1);
			assert_int_equal(in.total, length);
			assert_memory_equal(in.bytes, bytes, length);
			parts_drop(&in, &budget);
			assert_int_equal(budget.used, 0);
			memory_free(bytes);
		}
}

static void test_part__that_is_lost_or_doubled_costs_that_message_and_no_other(void **state)
{
	unsigned char *bytes = message_of(5 * CARRIES);

	(void)state;
	for (int which = 0; which < 10; which++) {
		int lost = which < 5 ? which : -1, doubled = which < 5 ? -1 : which - 5;
		bool whole = doubled == 0 || doubled == 4; /* begun anew; whole already */
		struct parts_in in = {0};

		assert_int_equal(travel(&in, bytes, 5 * CARRIES, 1, lost, doubled), whole);
		if (whole)
			parts_drop(&in, &budget);
		assert_int_equal(travel(&in, bytes, 5 * CARRIES, 2, -1, -1), 1);
		assert_memory_equal(in.bytes, bytes, 5 * CARRIES);
		parts_drop(&in, &budget);
		assert_int_equal(budget.used, 0);
	}
	memory_free(bytes);
}

static void test_parts__of_two_messages_never_make_one(void **state)
{
	unsigned char *one = message_of(3 * CARRIES), frame[PART_BYTES];
	struct parts_out out = {.bytes = one, .length = 3 * CARRIES, .number = 1};
	struct parts_in in = {0};
	size_t bytes = parts_next(&out, frame);

	(void)state;
	assert_int_equal(parts_take(&in, &budget, frame, bytes, LIMIT_MESSAGE_BYTES, &error), 0);
	parts_sent(&out);
	out.number = 2;
	for (int i = 0; i < 2; i++) {
		bytes = parts_next(&out, frame);
		assert_int_equal(
			parts_take(&in, &budget, frame, bytes, LIMIT_MESSAGE_BYTES, &error), 0);
		parts_sent(&out);
		assert_int_equal(in.have, 0);
	}
	assert_int_equal(budget.used, 0);
	memory_free(one);
}

static void test_part__that_cannot_be_is_refused(void **state)
{
	/* total, offset, bytes behind the head */
	static const uint32_t rows[][3] = {
		{PART_BYTES, 0, 100},	  {0, 0, 100},	     {LIMIT_MESSAGE_BYTES + 1u, 0, 100},
		{UINT32_MAX, 0, 100},	  {50000, 50000, 1}, {50000, 49999, 2},
		{50000, UINT32_MAX, 100}, {50000, 0, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		unsigned char frame[PART_BYTES] = {0xc1};
		struct parts_in in = {0};

		memcpy(frame + 5, &rows[i][0], 4);
		memcpy(frame + 9, &rows[i][1], 4);
		assert_int_equal(parts_take(&in, &budget, frame, PART_HEAD_BYTES + rows[i][2],
					    LIMIT_MESSAGE_BYTES, &error),
				 -ERROR_MESSAGE);
		assert_int_equal(budget.used, 0);
	}
}

/* What a message says of itself makes nobody reserve it, and all together stay below the budget. */
static void test_memory__comes_with_bytes_and_has_an_end(void **state)
{
	unsigned char frame[PART_BYTES] = {0xc1};
	struct parts_in in[80] = {0};
	uint32_t total = LIMIT_MESSAGE_BYTES;
	int refused = 0;

	(void)state;
	memcpy(frame + 5, &total, 4);
	for (size_t i = 0; i < 80; i++) {
		int rc =
			parts_take(&in[i], &budget, frame, PART_BYTES, LIMIT_MESSAGE_BYTES, &error);

		assert_true(rc == 0 || rc == -ERROR_LIMIT);
		refused += rc != 0;
		assert_true(budget.used <= budget.most);
	}
	assert_in_range(refused, 1, 40);
	for (size_t i = 0; i < 80; i++)
		parts_drop(&in[i], &budget);
	assert_int_equal(budget.used, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_message__up_to_a_frame_is_that_frame, set_up),
		cmocka_unit_test_setup(test_message__of_any_length_comes_out_as_it_went_in, set_up),
		cmocka_unit_test_setup(
			test_part__that_is_lost_or_doubled_costs_that_message_and_no_other, set_up),
		cmocka_unit_test_setup(test_parts__of_two_messages_never_make_one, set_up),
		cmocka_unit_test_setup(test_part__that_cannot_be_is_refused, set_up),
		cmocka_unit_test_setup(test_memory__comes_with_bytes_and_has_an_end, set_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

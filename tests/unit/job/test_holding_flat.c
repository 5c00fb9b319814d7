/* SPDX-License-Identifier: Apache-2.0
 *
 * test_holding_flat.c -- flat ranges of tensors as boxes: random ones against a walk over elements, and the vectors of FSDP1 and
 * ZeRO-3 that a run of torch gave.
 */
#include "job/holding.h"

#include "base/array.h"
#include "base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static uint64_t state;

/* splitmix64 */
static uint64_t random_u64(void)
{
	uint64_t z = (state += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static uint64_t below(uint64_t n)
{
	return random_u64() % n;
}

/* Of each element of the tensor, as they follow each other, its element of the local parameter, plus one; 0: of none. */
static void walk(const struct holding *holding, uint32_t tensor, uint64_t *place)
{
	const uint64_t *shape = holding->tensors[tensor].shape;

	for (size_t i = 0; i < holding->held_count; i++) {
		const struct held *held = &holding->held[i];
		uint32_t dims = held->box.dims;

		for (uint64_t n = 0; held->tensor == tensor && n < box_elements(&held->box); n++) {
			uint64_t left = n, step = 1, flat = 0, to = held->place.offset;

			for (uint32_t d = dims; d-- > 0;) {
				uint64_t size = held->box.hi[d] - held->box.lo[d];

				flat += (held->box.lo[d] + left % size) * step;
				to += left % size * held->place.stride[d];
				left /= size;
				step *= shape[d];
			}
			assert_int_equal(place[flat], 0); /* once */
			place[flat] = to + 1;
		}
	}
}

static void test_flat__is_every_element_once_in_few_boxes(void **unused)
{
	size_t most[5] = {0};

	(void)unused;
	for (state = 1; state < 6000; state++) {
		uint64_t seed = state, room = 300;
		uint32_t dims = 1 + (uint32_t)below(4);
		uint64_t shape[4], all = 1, from, to, offset = below(9), place[4 * 4 * 4 * 4] = {0};
		struct holding holding;

		for (uint32_t d = 0; d < dims; d++)
			all *= shape[d] = 1 + below(4);
		from = below(all);
		to = from + 1 + below(all - from);
		holding_init(&holding);
		assert_int_equal(holding_add_tensor(&holding, "w", DTYPE_F32, dims, shape, 0, NULL),
				 0);
		assert_int_equal(holding_add_local(&holding, "p", DTYPE_F32, 1, &room, NULL), 0);
		assert_int_equal(holding_add_flat(&holding, 0, from, to, 0, offset, NULL), 0);
		if (holding.held_count > 2 * dims - 1)
			fail_msg("%zu boxes of %u dimensions", holding.held_count, dims);
		if (holding.held_count > most[dims])
			most[dims] = holding.held_count;
		assert_int_equal(holding_finish(&holding, NULL), 0);
		walk(&holding, 0, place);
		for (uint64_t i = 0; i < all; i++)
			assert_int_equal(place[i],
					 i < from || i >= to ? 0 : offset + (i - from) + 1);
		holding_fini(&holding);
		state = seed;
	}
	/* and as many there are */
	for (uint32_t dims = 1; dims <= 4; dims++)
		assert_int_equal(most[dims], 2 * dims - 1);
}

/* One rank's range of one parameter, and the boxes that it is: rows, columns, offset, row stride. */
struct vector {
	uint32_t rank, tensor;
	uint64_t from, to, offset;
	struct {
		uint64_t row, rows, column, columns, offset;
	} boxes[3];
};

/* [5, 3], [2, 5] and [2] in 32 bits; 7 or 8 elements a shard. */
static const struct vector fsdp1[] = {
	{0, 0, 0, 7, 0, {{0, 2, 0, 3, 0}, {2, 1, 0, 1, 6}}},
	{1, 0, 7, 14, 0, {{2, 1, 1, 2, 0}, {3, 1, 0, 3, 2}, {4, 1, 0, 2, 5}}},
	{2, 0, 14, 15, 0, {{4, 1, 2, 1, 0}}},
	{2, 1, 0, 6, 1, {{0, 1, 0, 5, 1}, {1, 1, 0, 1, 6}}},
	{3, 1, 6, 10, 0, {{1, 1, 1, 4, 0}}},
	{3, 2, 0, 2, 4, {{0, 2, 0, 1, 4}}},
};

static const struct vector fsdp1_orig[] = {
	{0, 0, 0, 8, 0, {{0, 2, 0, 3, 0}, {2, 1, 0, 2, 6}}},
	{1, 0, 8, 15, 0, {{2, 1, 2, 1, 0}, {3, 2, 0, 3, 1}}},
	{2, 1, 0, 8, 0, {{0, 1, 0, 5, 0}, {1, 1, 0, 3, 5}}},
	{3, 1, 8, 10, 0, {{1, 1, 3, 2, 0}}},
	{3, 2, 0, 2, 4, {{0, 2, 0, 1, 4}}},
};

static const struct vector zero3[] = {
	{0, 0, 0, 4, 0, {{0, 1, 0, 3, 0}, {1, 1, 0, 1, 3}}},
	{1, 0, 4, 8, 0, {{1, 1, 1, 2, 0}, {2, 1, 0, 2, 2}}},
	{2, 0, 8, 12, 0, {{2, 1, 2, 1, 0}, {3, 1, 0, 3, 1}}},
	{3, 0, 12, 15, 0, {{4, 1, 0, 3, 0}}},
};

static void declare(struct holding *holding, uint64_t shard)
{
	static const uint64_t shapes[3][2] = {{5, 3}, {2, 5}, {2}};
	static const char *const names[3] = {"P0", "P1", "P2"};

	holding_init(holding);
	for (uint32_t t = 0; t < 3; t++)
		assert_int_equal(holding_add_tensor(holding, names[t], DTYPE_F32, t == 2 ? 1 : 2,
						    shapes[t], t, NULL),
				 t);
	assert_int_equal(holding_add_local(holding, "shard", DTYPE_F32, 1, &shard, NULL), 0);
}

static void check_boxes(const struct holding *holding, const struct vector *vector, size_t *next)
{
	for (int b = 0; b < 3 && vector->boxes[b].rows; b++, (*next)++) {
		const struct held *held = &holding->held[*next];
		const uint32_t dims = vector->tensor == 2 ? 1 : 2;
		struct box want = {dims,
				   {vector->boxes[b].row, vector->boxes[b].column},
				   {vector->boxes[b].row + vector->boxes[b].rows,
				    vector->boxes[b].column + vector->boxes[b].columns}};

		assert_true(*next < holding->held_count);
		assert_int_equal(held->tensor, vector->tensor);
		assert_true(box_equal(&held->box, &want));
		assert_int_equal(held->place.offset, vector->boxes[b].offset);
		assert_int_equal(held->place.stride[0], dims == 1 ? 1 : vector->boxes[b].columns);
		assert_int_equal(held->place.stride[dims - 1], 1);
	}
}

static void check_vectors(const struct vector *vectors, size_t count, uint64_t shard)
{
	for (uint32_t rank = 0; rank < 4; rank++) {
		struct holding holding;
		size_t next = 0;

		declare(&holding, shard);
		for (size_t v = 0; v < count; v++)
			if (vectors[v].rank == rank)
				assert_int_equal(holding_add_flat(&holding, vectors[v].tensor,
								  vectors[v].from, vectors[v].to, 0,
								  vectors[v].offset, NULL),
						 0);
		assert_int_equal(holding_finish(&holding, NULL), 0);
		for (size_t v = 0; v < count; v++)
			if (vectors[v].rank == rank)
				check_boxes(&holding, &vectors[v], &next);
		assert_int_equal(next, holding.held_count);
		holding_fini(&holding);
	}
}

static void test_flat__is_what_fsdp1_and_zero3_hold(void **unused)
{
	(void)unused;
	check_vectors(fsdp1, ARRAY_SIZE(fsdp1), 7);
	check_vectors(fsdp1_orig, ARRAY_SIZE(fsdp1_orig), 8);
	check_vectors(zero3, ARRAY_SIZE(zero3), 4);
}

static void test_flat__refuses_what_is_no_range_of_the_tensor_or_has_no_room(void **unused)
{
	static const struct {
		uint32_t tensor, local;
		uint64_t from, to, offset;
		int code;
		const char *message;
	} rows[] = {
		{0, 0, 3, 3, 0, ERROR_BOUNDS, "elements 3..3 of tensor P0, which has 15"},
		{0, 0, 4, 3, 0, ERROR_BOUNDS, "elements 4..3 of tensor P0"},
		{0, 0, 9, 16, 0, ERROR_BOUNDS, "elements 9..16 of tensor P0, which has 15"},
		{0, 0, 0, UINT64_MAX, 0, ERROR_BOUNDS, "of tensor P0, which has 15"},
		{3, 0, 0, 1, 0, ERROR_CONFIG, "names tensor 3 of 3"},
		{0, 1, 0, 1, 0, ERROR_CONFIG, "names local parameter 1 of 1"},
		{0, 0, 0, 9, 0, ERROR_BOUNDS,
		 "elements 0..9 of tensor P0 from element 0 on leave local parameter shard, which has 8"},
		{0, 0, 0, 2, 7, ERROR_BOUNDS, "leave local parameter shard"},
		{0, 0, 0, 7, UINT64_MAX - 2, ERROR_BOUNDS, "leave local parameter shard"},
	};

	(void)unused;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct error error = {0};
		struct holding holding;

		declare(&holding, 8);
		assert_int_equal(holding_add_flat(&holding, rows[i].tensor, rows[i].from,
						  rows[i].to, rows[i].local, rows[i].offset,
						  &error),
				 -rows[i].code);
		if (!strstr(error.text, rows[i].message))
			fail_msg("'%s' does not say '%s'", error.text, rows[i].message);
		assert_int_equal(holding.held_count, 0); /* all of a range, or nothing */
		holding_fini(&holding);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_flat__is_every_element_once_in_few_boxes),
		cmocka_unit_test(test_flat__is_what_fsdp1_and_zero3_hold),
		cmocka_unit_test(test_flat__refuses_what_is_no_range_of_the_tensor_or_has_no_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

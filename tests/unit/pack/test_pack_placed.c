/* SPDX-License-Identifier: Apache-2.0
 *
 * Boxes that lie in a trainer's own parameters, with any strides: what is packed is what an element by element walk finds, copied,
 * converted or transposed, in parts that begin and end anywhere.
 */
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

#define ELEMENTS 4096

static uint64_t below(uint64_t *random, uint64_t bound)
{
	return splitmix64(++*random) % bound;
}

/* Local memory in which each element is its own number. */
static uint16_t local[ELEMENTS];

/* A box of a matrix, and where it lies: rows or columns beside each other, with room between. */
static void random_held(struct pack_held *held, uint64_t shape[2], bool turned, uint64_t *random)
{
	uint64_t rows, columns, inner;

	held->box.dims = 2;
	for (int d = 0; d < 2; d++) {
		shape[d] = 1 + below(random, 24);
		held->box.lo[d] = below(random, shape[d]);
		held->box.hi[d] = held->box.lo[d] + 1 + below(random, shape[d] - held->box.lo[d]);
	}
	rows = held->box.hi[0] - held->box.lo[0];
	columns = held->box.hi[1] - held->box.lo[1];
	inner = turned ? rows : columns;
	held->place.offset = below(random, 100);
	held->place.stride[turned ? 0 : 1] = 1;
	held->place.stride[turned ? 1 : 0] = inner + below(random, 3) * inner + below(random, 2);
}

static uint64_t place_of(const struct pack_held *held, uint64_t row, uint64_t column)
{
	return held->place.offset + (row - held->box.lo[0]) * held->place.stride[0] +
	       (column - held->box.lo[1]) * held->place.stride[1];
}

static void check_parts(const struct pack *pack, const void *want, uint64_t grain, uint64_t *random)
{
	static unsigned char got[4 * ELEMENTS];

	for (int i = 0; i < 4; i++) {
		uint64_t from = i ? below(random, pack->bytes) / grain * grain : 0,
			 left = pack->bytes - from;
		uint64_t bytes = i ? below(random, left / grain + 1) * grain : left, sum = 0;
		void *target = got;
		struct pack_part part = {.data = local,
					 .from = from,
					 .bytes = bytes,
					 .targets = &target,
					 .target_count = 1,
					 .sum = &sum};

		if (!bytes)
			continue;
		memset(got, 0xee, sizeof(got));
		pack_run(pack, &part);
		copy_fence();
		assert_memory_equal(got, (const unsigned char *)want + from, bytes);
		assert_int_equal(got[bytes], 0xee);
		assert_true(sum == checksum64((const unsigned char *)want + from, bytes));
	}
}

/* The same as one matrix of several: dimension 0 counts them. */
static void stack(struct pack_source *source, struct pack_held *held)
{
	const struct pack_source one = *source;
	const struct pack_held from = *held;

	source->dims = 3;
	source->shape[0] = 5;
	source->src = held->box = (struct box){3, {2}, {3}};
	for (int d = 0; d < 2; d++) {
		source->shape[d + 1] = one.shape[d];
		source->src.lo[d + 1] = one.src.lo[d];
		source->src.hi[d + 1] = one.src.hi[d];
		held->box.lo[d + 1] = from.box.lo[d];
		held->box.hi[d + 1] = from.box.hi[d];
		held->place.stride[d + 1] = from.place.stride[d];
	}
	held->place.stride[0] = 17;
	if (held->place.offset >= 17) { /* the second of those that are held */
		held->box.lo[0]--;
		held->place.offset -= 17;
	}
}

static void check_matrix(bool turned, enum transform_part part, enum dtype to, uint64_t *random)
{
	static uint32_t want[ELEMENTS];
	static uint16_t plain[ELEMENTS];
	struct pack_held held;
	struct pack_source source = {.from = DTYPE_BF16,
				     .to = to,
				     .dims = 2,
				     .held = &held,
				     .transform = {.part = part}};
	struct error error = {0};
	struct pack pack;
	uint64_t n = 0;

	random_held(&held, source.shape, turned, random);
	source.src = held.box;
	for (int d = 0; d < 2; d++) {
		source.src.lo[d] += below(random, held.box.hi[d] - held.box.lo[d]);
		source.src.hi[d] =
			source.src.lo[d] + 1 + below(random, held.box.hi[d] - source.src.lo[d]);
	}
	if (pack_init(&pack, &source, &error))
		fail_msg("%s", error.text);
	/* the outer one of the piece: rows, or columns where it is transposed */
	int outer = part == TRANSFORM_TRANSPOSED, inner = !outer;

	for (uint64_t i = source.src.lo[outer]; i < source.src.hi[outer]; i++)
		for (uint64_t k = source.src.lo[inner]; k < source.src.hi[inner]; k++, n++) {
			plain[n] = local[place_of(&held, outer ? k : i, outer ? i : k)];
			want[n] = (uint32_t)plain[n] << 16; /* F32 of a BF16 */
		}
	assert_int_equal(pack.bytes, n * dtype_bytes(to));
	check_parts(&pack, to == DTYPE_F32 ? (const void *)want : plain,
		    part == TRANSFORM_VALUES && to == DTYPE_BF16 && !turned ? 1 : dtype_bytes(to),
		    random);
	if (part != TRANSFORM_TRANSPOSED)
		return;
	stack(&source, &held);
	if (pack_init(&pack, &source, &error))
		fail_msg("%s", error.text);
	check_parts(&pack, plain, dtype_bytes(to), random);
}

static void test_placed__is_copied_converted_and_transposed_from_any_strides(void **state)
{
	uint64_t random = 7;

	(void)state;
	for (size_t i = 0; i < ELEMENTS; i++)
		local[i] = (uint16_t)(i + 1) & 0x7f7f; /* no NaN */
	for (int round = 0; round < 1500; round++)
		for (int turned = 0; turned < 2; turned++) {
			check_matrix(turned, TRANSFORM_VALUES, DTYPE_BF16, &random);
			check_matrix(turned, TRANSFORM_VALUES, DTYPE_F32, &random);
			check_matrix(turned, TRANSFORM_TRANSPOSED, DTYPE_BF16, &random);
		}
}

/* Blocks, and their scales, of rows with room between. */
static void test_placed__is_quantised_as_if_it_lay_in_a_tensor_of_its_own(void **state)
{
	const struct pack_held held = {.box = {2, {0, 16}, {16, 48}},
				       .place = {.offset = 5, .stride = {40, 1}}};
	struct pack_source placed = {
		.from = DTYPE_BF16,
		.to = DTYPE_F8_E4M3,
		.dims = 2,
		.shape = {16, 64},
		.src = {2, {0, 32}, {16, 48}},
		.held = &held,
		.transform = {.part = TRANSFORM_VALUES, .to_rows = 8, .to_columns = 8}};
	struct pack_source dense = placed;
	unsigned char got[2][16 * 16] = {{0}};
	uint16_t tensor[16 * 64];
	struct error error = {0};
	struct pack pack;

	(void)state;
	for (size_t i = 0; i < ELEMENTS; i++)
		local[i] = (uint16_t)(0x3c00 | (i * 37 & 0x1ff));
	dense.held = NULL;
	dense.held_hi = 16;
	for (uint64_t row = 0; row < 16; row++)
		for (uint64_t column = 16; column < 48; column++)
			tensor[row * 64 + column] = local[place_of(&held, row, column)];
	for (int i = 0; i < 2; i++) {
		void *target = got[i];
		struct pack_part part = {.data = i ? (const void *)tensor : local,
					 .targets = &target,
					 .target_count = 1};

		if (pack_init(&pack, i ? &dense : &placed, &error))
			fail_msg("%s", error.text);
		part.bytes = pack.bytes;
		pack_run(&pack, &part);
		copy_fence();
	}
	assert_memory_equal(got[0], got[1], sizeof(got[0]));
}

/* What a plan calls one run goes out as it lies; so packing must call it so too, whatever the strides say. */
static void test_placed__one_column_of_what_is_transposed_is_one_run(void **state)
{
	const struct pack_held held = {.box = {2, {0, 0}, {6, 3}},
				       .place = {.offset = 2, .stride = {1, 6}}};
	struct pack_source source = {.from = DTYPE_BF16,
				     .to = DTYPE_BF16,
				     .dims = 2,
				     .shape = {6, 3},
				     .src = {2, {0, 1}, {6, 2}},
				     .held = &held};
	struct error error;
	struct pack pack;

	(void)state;
	assert_int_equal(pack_init(&pack, &source, &error), 0);
	assert_true(transform_plain(&pack.transform));
	assert_int_equal(pack.runs.rows, 1);
	assert_int_equal(pack.runs.offset, 2 * (2 + 6));
}

static void test_placed__refuses_what_it_cannot_read(void **state)
{
	struct pack_held held = {.box = {2, {0, 0}, {4, 8}}, .place = {.stride = {8, 1}}};
	struct pack_source source = {.from = DTYPE_BF16,
				     .to = DTYPE_BF16,
				     .dims = 2,
				     .shape = {8, 8},
				     .src = {2, {0, 0}, {5, 8}},
				     .held = &held};
	struct error error;
	struct pack pack;

	(void)state;
	assert_int_equal(pack_init(&pack, &source, &error), -ERROR_BOUNDS);
	assert_non_null(strstr(error.text, "[0..5, 0..8] is needed, [0..4, 0..8] is held"));
	source.src.hi[0] = 4;
	held.place.stride[1] = 3; /* neither rows nor columns beside each other */
	held.place.stride[0] = 30;
	assert_int_equal(pack_init(&pack, &source, &error), -ERROR_UNSUPPORTED);
	assert_non_null(strstr(error.text, "more than one stride"));
	held.place = (struct placement){.stride = {1, 4}}; /* transposed, in blocks */
	source.to = DTYPE_F8_E4M3;
	source.transform =
		(struct transform){.part = TRANSFORM_VALUES, .to_rows = 4, .to_columns = 4};
	assert_int_equal(pack_init(&pack, &source, &error), -ERROR_UNSUPPORTED);
	assert_non_null(strstr(error.text, "as its transformation needs"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_placed__is_copied_converted_and_transposed_from_any_strides),
		cmocka_unit_test(test_placed__is_quantised_as_if_it_lay_in_a_tensor_of_its_own),
		cmocka_unit_test(test_placed__one_column_of_what_is_transposed_is_one_run),
		cmocka_unit_test(test_placed__refuses_what_it_cannot_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

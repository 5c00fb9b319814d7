/* SPDX-License-Identifier: Apache-2.0
 *
 * test_holding.c -- boxes of tensors with a place in a trainer's parameters: what is taken, what is refused and in what words, and
 * flat ranges and interleaved places against a walk over elements.
 */
#include "job/holding.h"

#include "base/array.h"
#include "base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
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

static void tensor(struct holding *holding, const char *name, uint64_t rows, uint64_t columns)
{
	const uint64_t shape[2] = {rows, columns};

	assert_true(holding_add_tensor(holding, name, DTYPE_BF16, 2, shape, 0, NULL) >= 0);
}

static void local(struct holding *holding, const char *name, uint64_t elements)
{
	assert_true(holding_add_local(holding, name, DTYPE_BF16, 1, &elements, NULL) >= 0);
}

/* Rows and columns of tensor `t`, in local parameter 0. */
static struct held at(uint32_t t, struct box box, uint64_t offset, uint64_t row, uint64_t column)
{
	return (struct held){.tensor = t, .box = box, .place = {offset, {row, column}}};
}

static struct box box2(uint64_t row, uint64_t rows, uint64_t column, uint64_t columns)
{
	return (struct box){2, {row, column}, {row + rows, column + columns}};
}

static void add(struct holding *holding, struct held held)
{
	struct error error = {0};

	if (holding_add_placed(holding, &held, &error))
		fail_msg("%s", error.text);
}

/* "w" [8, 6] and "v" [8, 6] bf16; local parameters "p" of 96 elements and "f", the same in 32 bits. */
static void declare(struct holding *holding)
{
	const uint64_t elements = 96;

	holding_init(holding);
	tensor(holding, "w", 8, 6);
	tensor(holding, "v", 8, 6);
	local(holding, "p", 96);
	assert_int_equal(holding_add_local(holding, "f", DTYPE_F32, 1, &elements, NULL), 1);
}

static void expect_finish(struct holding *holding, int code, const char *message)
{
	struct error error = {0};
	int rc = holding_finish(holding, &error);

	if (rc != -code)
		fail_msg("%d instead of %d: %s", rc, -code, error.text);
	if (code && !strstr(error.text, message))
		fail_msg("'%s' does not say '%s'", error.text, message);
	holding_fini(holding);
}

static void test_holding__takes_boxes_with_places_of_their_own(void **unused)
{
	struct holding holding;

	(void)unused;
	declare(&holding);
	add(&holding, at(0, box2(4, 4, 0, 6), 0, 6, 1));  /* rows, dense */
	add(&holding, at(0, box2(0, 4, 2, 3), 24, 3, 1)); /* columns, dense */
	add(&holding, at(1, box2(0, 8, 0, 6), 36, 1, 8)); /* transposed: to 36 + 48 */
	add(&holding, at(0, box2(0, 1, 0, 1), 95, 7, 9)); /* the last element */
	expect_finish(&holding, 0, NULL);
}

static void test_holding__refuses_a_place_by_name(void **unused)
{
	static const uint64_t far = 1ull << 63;
	const struct {
		struct held held;
		int code;
		const char *message;
	} rows[] = {
		{at(0, box2(0, 4, 0, 6), 0, 0, 1), ERROR_BOUNDS,
		 "tensor w in local parameter p has stride 0 in dimension 0"},
		{at(0, box2(0, 4, 0, 6), 0, 6, 0), ERROR_BOUNDS, "stride 0 in dimension 1"},
		{at(0, box2(4, 5, 0, 6), 0, 6, 1), ERROR_BOUNDS,
		 "[4..9, 0..6], is outside of tensor w"},
		{at(0, box2(0, 4, 3, 4), 0, 6, 1), ERROR_BOUNDS,
		 "[0..4, 3..7], is outside of tensor w"},
		{at(0, box2(2, 0, 0, 6), 0, 6, 1), ERROR_BOUNDS,
		 "[2..2, 0..6], is outside of tensor w"},
		{at(0, (struct box){1, {0}, {8}}, 0, 6, 1), ERROR_BOUNDS, "outside of tensor w"},
		{at(0, (struct box){5, {0}, {8}}, 0, 6, 1), ERROR_BOUNDS, "a box of 5 dimensions"},
		/* one element too far, whichever way it goes there */
		{at(0, box2(0, 8, 0, 6), 49, 6, 1), ERROR_BOUNDS,
		 "from element 49 on leaves local parameter p, which has 96 elements"},
		{at(0, box2(0, 8, 0, 6), 0, 13, 1), ERROR_BOUNDS, "leaves local parameter p"},
		{at(0, box2(0, 8, 0, 6), 0, 1, 18), ERROR_BOUNDS, "leaves local parameter p"},
		{at(0, box2(0, 1, 0, 1), 96, 1, 1), ERROR_BOUNDS, "leaves local parameter p"},
		/* and beyond all numbers */
		{at(0, box2(0, 1, 0, 1), far, 1, 1), ERROR_BOUNDS, "leaves local parameter p"},
		{at(0, box2(0, 1, 0, 1), UINT64_MAX, 1, 1), ERROR_BOUNDS,
		 "leaves local parameter p"},
		{at(0, box2(0, 1, 0, 6), UINT64_MAX, 1, 1), ERROR_BOUNDS,
		 "leaves local parameter p"},
		{at(0, box2(0, 8, 0, 6), 0, far, 1), ERROR_BOUNDS, "leaves local parameter p"},
		{at(0, box2(0, 3, 0, 6), 0, far, 1), ERROR_BOUNDS, "leaves local parameter p"},
		{at(0, box2(0, 2, 0, 2), 0, far, far), ERROR_BOUNDS, "leaves local parameter p"},
		{at(0, box2(0, 5, 0, 1), 0, 1ull << 62, 1), ERROR_BOUNDS,
		 "leaves local parameter p"},
		{at(0, box2(0, 8, 0, 6), 0, 5, 1), ERROR_CONFLICT,
		 "two elements at one place of local parameter p: its strides are too short"},
		{at(0, box2(0, 8, 0, 6), 0, 1, 7), ERROR_CONFLICT, "two elements at one place"},
		{at(0, box2(0, 8, 0, 6), 0, 1, 1), ERROR_CONFLICT, "two elements at one place"},
		{at(7, box2(0, 8, 0, 6), 0, 6, 1), ERROR_CONFIG, "names tensor 7 of 2"},
		{{.local = 2, .box = box2(0, 8, 0, 6), .place = {0, {6, 1}}},
		 ERROR_CONFIG,
		 "names local parameter 2 of 2"},
		{{.local = HELD_OWN, .box = box2(0, 8, 0, 6), .place = {0, {6, 1}}},
		 ERROR_CONFIG,
		 "names local parameter"},
		{{.local = 1, .box = box2(0, 8, 0, 6), .place = {0, {6, 1}}},
		 ERROR_CONFLICT,
		 "tensor w is BF16, and local parameter f, which has [0..8, 0..6] of it, is F32"},
	};
	struct holding holding;

	(void)unused;
	declare(&holding);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct error error = {0};
		int rc = holding_add_placed(&holding, &rows[i].held, &error);

		if (rc != -rows[i].code || !strstr(error.text, rows[i].message))
			fail_msg("%zu: %d, '%s' does not say '%s'", i, rc, error.text,
				 rows[i].message);
	}
	assert_int_equal(holding.held_count, 0);
	/* a stride that is never taken may be any number */
	add(&holding, at(0, box2(0, 1, 0, 6), 0, far, 16));
	add(&holding, at(1, box2(0, 8, 0, 1), 1, 13, UINT64_MAX));
	expect_finish(&holding, ERROR_CONFLICT, "strides do not show");
}

static void test_holding__takes_a_local_parameter_once_a_name(void **unused)
{
	const uint64_t elements = 96;
	struct error error = {0};
	struct holding holding;

	(void)unused;
	declare(&holding);
	assert_int_equal(holding_add_local(&holding, "p", DTYPE_BF16, 1, &elements, &error),
			 -ERROR_CONFLICT);
	assert_non_null(strstr(error.text, "local parameter p"));
	/* a tensor may be named again, as it was; its name is no name of a local parameter */
	tensor(&holding, "w", 8, 6);
	assert_int_equal(holding.tensor_count, 2);
	assert_int_equal(holding_add_local(&holding, "w", DTYPE_BF16, 1, &elements, &error), 2);
	holding_fini(&holding);
}

static void test_holding__refuses_what_is_held_or_placed_twice(void **unused)
{
	static const struct {
		struct held a, b;
		const char *message;
	} rows[] = {
		{{.box = {2, {0, 0}, {4, 6}}, .place = {0, {6, 1}}},
		 {.box = {2, {3, 0}, {8, 6}}, .place = {48, {6, 1}}},
		 "[3..4, 0..6] of tensor w is held twice"},
		{{.box = {2, {0, 0}, {8, 3}}, .place = {0, {3, 1}}},
		 {.box = {2, {0, 2}, {8, 6}}, .place = {48, {4, 1}}},
		 "[0..8, 2..3] of tensor w is held twice"},
		{{.box = {2, {0, 1}, {8, 2}}, .place = {0, {1, 1}}},
		 {.box = {2, {5, 0}, {6, 6}}, .place = {48, {6, 1}}},
		 "[5..6, 1..2] of tensor w is held twice"},
		{{.local = HELD_OWN, .box = {2, {0, 0}, {8, 6}}, .place = {0, {6, 1}}},
		 {.box = {2, {7, 5}, {8, 6}}, .place = {48, {6, 1}}},
		 "[7..8, 5..6] of tensor w is held twice"},
		/* the last element of the one is the first of the other */
		{{.box = {2, {0, 0}, {8, 6}}, .place = {0, {6, 1}}},
		 {.tensor = 1, .box = {2, {0, 0}, {8, 6}}, .place = {47, {6, 1}}},
		 "tensors w and v are given the same elements of local parameter p, from element 47 on"},
		{{.box = {2, {0, 0}, {4, 6}}, .place = {0, {6, 1}}},
		 {.box = {2, {4, 0}, {8, 6}}, .place = {5, {6, 1}}},
		 "tensors w and w are given the same elements"},
		/* columns 0..3 and 2..6 of rows of 12 */
		{{.box = {2, {0, 0}, {8, 3}}, .place = {0, {12, 1}}},
		 {.box = {2, {0, 3}, {8, 6}}, .place = {2, {12, 1}}},
		 "from element 2 on"},
		/* rows of 6 from the end of rows of 12 into the next */
		{{.box = {2, {0, 0}, {7, 6}}, .place = {0, {12, 1}}},
		 {.tensor = 1, .box = {2, {0, 0}, {7, 6}}, .place = {8, {12, 1}}},
		 "from element 8 on"},
	};

	(void)unused;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		for (int swap = 0; swap < 2; swap++) {
			const struct held *pair[2] = {&rows[i].a, &rows[i].b};
			struct holding holding;

			declare(&holding);
			for (int k = 0; k < 2; k++) {
				const struct held *held = pair[k ^ swap];

				if (held->local == HELD_OWN)
					assert_int_equal(holding_add(&holding, held->tensor,
								     &held->box, NULL),
							 0);
				else
					add(&holding, *held);
			}
			expect_finish(&holding, ERROR_CONFLICT, rows[i].message);
		}
}

static void test_holding__takes_boxes_that_lie_between_each_other(void **unused)
{
	struct holding holding;

	(void)unused;
	/* rotary: the halves of a head in turn, so rows of the one are two rows apart */
	declare(&holding);
	add(&holding, at(0, box2(0, 4, 0, 6), 0, 12, 1));
	add(&holding, at(0, box2(4, 4, 0, 6), 6, 12, 1));
	expect_finish(&holding, 0, NULL);
	/* gate beside up, both transposed, in a table of as many rows as they have columns */
	declare(&holding);
	add(&holding, at(0, box2(0, 8, 0, 6), 0, 1, 16));
	add(&holding, at(1, box2(0, 8, 0, 6), 8, 1, 16));
	expect_finish(&holding, 0, NULL);
	/* one row between two */
	declare(&holding);
	add(&holding, at(0, box2(0, 2, 0, 6), 0, 12, 1));
	add(&holding, at(0, box2(2, 1, 0, 6), 6, 6, 1));
	expect_finish(&holding, 0, NULL);
	/* and one that begins before the row of the other ends */
	declare(&holding);
	add(&holding, at(0, box2(0, 2, 0, 6), 0, 12, 1));
	add(&holding, at(0, box2(2, 1, 0, 6), 5, 6, 1));
	expect_finish(&holding, ERROR_CONFLICT, "from element 5 on");
}

/* How often each element of a local parameter is in one of its boxes. */
static void count_places(const struct holding *holding, uint32_t *seen)
{
	for (size_t i = 0; i < holding->held_count; i++) {
		const struct held *held = &holding->held[i];

		for (uint64_t r = 0; r < held->box.hi[0] - held->box.lo[0]; r++)
			for (uint64_t c = 0; c < held->box.hi[1] - held->box.lo[1]; c++)
				seen[held->place.offset + r * held->place.stride[0] +
				     c * held->place.stride[1]]++;
	}
}

/* What finish takes shares no element; what lies behind each other it takes. */
static void test_holding__takes_no_two_random_boxes_that_share_an_element(void **unused)
{
	size_t taken = 0, mixed = 0, refused = 0;

	(void)unused;
	for (state = 1; refused < 2000 || mixed < 500; state++) {
		uint32_t seen[96] = {0};
		struct holding holding;
		bool twice = false, behind;
		int rc;

		declare(&holding);
		for (uint32_t t = 0; t < 2; t++) {
			struct held held = at(t, box2(0, 1 + below(4), 0, 1 + below(4)), below(12),
					      1 + below(14), 1 + below(14));

			if (holding_add_placed(&holding, &held, NULL))
				break;
		}
		if (holding.held_count == 2) {
			const struct held *a = &holding.held[0], *b = &holding.held[1];
			uint64_t last_a, last_b;

			placement_last(&a->place, &a->box, &last_a);
			placement_last(&b->place, &b->box, &last_b);
			behind = last_a < b->place.offset || last_b < a->place.offset;
			count_places(&holding, seen);
			for (int i = 0; i < 96; i++)
				twice |= seen[i] > 1;
			rc = holding_finish(&holding, NULL);
			assert_true(rc == 0 || rc == -ERROR_CONFLICT);
			assert_false(rc == 0 && twice);
			assert_false(rc && behind);
			taken += rc == 0;
			mixed += rc == 0 && !behind;
			refused += rc != 0;
		}
		holding_fini(&holding);
	}
	assert_true(taken > mixed);
}

static void test_holding__finds_the_one_that_has_a_box(void **unused)
{
	struct box whole = box2(0, 8, 0, 6), inside = box2(5, 1, 1, 2), across = box2(3, 2, 0, 1);
	struct holding holding;

	(void)unused;
	declare(&holding);
	add(&holding, at(1, whole, 48, 6, 1));
	add(&holding, at(0, box2(4, 4, 0, 3), 12, 3, 1));
	add(&holding, at(0, box2(0, 4, 0, 3), 0, 3, 1));
	add(&holding, at(0, box2(0, 8, 3, 3), 24, 3, 1));
	assert_int_equal(holding_finish(&holding, NULL), 0);
	assert_int_equal(holding_find(&holding, 0, &inside)->place.offset, 12);
	inside = box2(2, 5, 4, 1);
	assert_int_equal(holding_find(&holding, 0, &inside)->place.offset, 24);
	assert_null(holding_find(&holding, 0, &across)); /* of two, and so of none */
	assert_null(holding_find(&holding, 0, &whole));
	assert_int_equal(holding_find(&holding, 1, &whole)->place.offset, 48);
	assert_null(holding_find(&holding, 2, &whole));
	holding_fini(&holding);
}

enum variant {
	ROWS,
	ROWS_REVERSED,
	PLACED,
	PLACED_REVERSED,
	OTHER_PLACE,
	OTHER_STRIDE,
	OTHER_LOCAL,
	VARIANTS
};

static struct digest digest_of(enum variant variant)
{
	struct holding holding;
	struct digest digest;
	struct held halves[2] = {at(0, box2(0, 4, 0, 6), 0, 6, 1),
				 at(0, box2(4, 4, 0, 6), 48, 6, 1)};

	declare(&holding);
	local(&holding, "q", 96);
	halves[1].place.offset += variant == OTHER_PLACE;
	halves[1].place.stride[0] += variant == OTHER_STRIDE;
	halves[1].local = variant == OTHER_LOCAL ? 2 : 0;
	for (int k = 0; k < 2; k++) {
		const struct held *held =
			&halves[k ^ (variant == ROWS_REVERSED || variant == PLACED_REVERSED)];

		if (variant <= ROWS_REVERSED)
			assert_int_equal(holding_add(&holding, 0, &held->box, NULL), 0);
		else
			add(&holding, *held);
	}
	assert_int_equal(holding_finish(&holding, NULL), 0);
	digest = holding_digest(&holding);
	holding_fini(&holding);
	return digest;
}

static void test_holding__digest_is_of_boxes_and_places_alone(void **unused)
{
	(void)unused;
	for (enum variant a = 0; a < VARIANTS; a++)
		for (enum variant b = 0; b < VARIANTS; b++) {
			bool same = a == b || (a <= ROWS_REVERSED && b <= ROWS_REVERSED) ||
				    (a >= PLACED && a <= PLACED_REVERSED && b >= PLACED &&
				     b <= PLACED_REVERSED);

			if (digest_equal(digest_of(a), digest_of(b)) != same)
				fail_msg("%d and %d", (int)a, (int)b);
		}
}

/* So many columns of their own of one tensor: abreast of each other, in the tensor or in memory. */
static int finish_columns(uint64_t count, bool placed)
{
	struct timespec from, to;
	struct holding holding;
	int rc;

	holding_init(&holding);
	tensor(&holding, "w", placed ? count : 2, placed ? 2 : count);
	local(&holding, "p", 2 * count);
	for (uint64_t i = 0; i < count; i++) {
		struct box box = placed ? box2(i, 1, 0, 2) : box2(0, 2, i, 1);

		if (placed)
			add(&holding, at(0, box, i, 1, count));
		else
			assert_int_equal(holding_add(&holding, 0, &box, NULL), 0);
	}
	clock_gettime(CLOCK_MONOTONIC, &from);
	rc = holding_finish(&holding, NULL);
	clock_gettime(CLOCK_MONOTONIC, &to);
	assert_true(to.tv_sec - from.tv_sec < 5); /* no square of what a peer declares */
	holding_fini(&holding);
	return rc;
}

static void test_holding__takes_so_many_boxes_abreast_and_no_more(void **unused)
{
	(void)unused;
	for (int placed = 0; placed < 2; placed++) {
		assert_int_equal(finish_columns(HELD_ABREAST_MAX, placed), 0);
		assert_int_equal(finish_columns(HELD_ABREAST_MAX + 1, placed), -ERROR_LIMIT);
		assert_int_equal(finish_columns(200000, placed), -ERROR_LIMIT);
	}
}

static int build(struct holding *holding)
{
	const uint64_t shape[2] = {5, 3}, elements = 30;
	struct box box = box2(0, 1, 0, 2);
	int rc;

	holding_init(holding);
	if (holding_add_tensor(holding, "w", DTYPE_BF16, 2, shape, 0, NULL) < 0 ||
	    holding_add_tensor(holding, "v", DTYPE_BF16, 2, shape, 1, NULL) < 0 ||
	    holding_add_local(holding, "p", DTYPE_BF16, 1, &elements, NULL) < 0)
		return -ERROR_MEMORY;
	rc = holding_add_flat(holding, 0, 2, 14, 0, 0, NULL);
	for (uint64_t i = 0; i < 5 && !rc; i++)
		rc = holding_add_flat(holding, 1, 3 * i, 3 * i + 3, 0, 12 + 3 * i, NULL);
	rc = rc ?: holding_add(holding, 0, &box, NULL);
	return rc ?: holding_finish(holding, NULL);
}

static void test_holding__every_failed_allocation_is_an_error_without_leak(void **unused)
{
	struct holding holding;
	uint64_t k = 0;
	int rc;

	(void)unused;
	do {
		memory_fail_at(++k);
		rc = build(&holding);
		memory_fail_at(0);
		holding_fini(&holding);
		assert_true(rc == 0 || rc == -ERROR_MEMORY);
	} while (rc);
	assert_true(k > 8);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_holding__takes_boxes_with_places_of_their_own),
		cmocka_unit_test(test_holding__refuses_a_place_by_name),
		cmocka_unit_test(test_holding__takes_a_local_parameter_once_a_name),
		cmocka_unit_test(test_holding__refuses_what_is_held_or_placed_twice),
		cmocka_unit_test(test_holding__takes_boxes_that_lie_between_each_other),
		cmocka_unit_test(test_holding__takes_no_two_random_boxes_that_share_an_element),
		cmocka_unit_test(test_holding__finds_the_one_that_has_a_box),
		cmocka_unit_test(test_holding__digest_is_of_boxes_and_places_alone),
		cmocka_unit_test(test_holding__takes_so_many_boxes_abreast_and_no_more),
		cmocka_unit_test(test_holding__every_failed_allocation_is_an_error_without_leak),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * test_box_place.c -- where a placed box lies, and whether boxes cover another one, against a walk over elements.
 */
#include "job/box_cover.h"

#include "base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define ELEMENTS_MAX 256

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

/* Inside of [0, 4) in each dimension. */
static struct box random_box(uint32_t dims)
{
	struct box box = {.dims = dims};

	for (uint32_t d = 0; d < dims; d++) {
		box.lo[d] = below(4);
		box.hi[d] = box.lo[d] + 1 + below(4 - box.lo[d]);
	}
	return box;
}

static struct box random_part(const struct box *box)
{
	struct box part = *box;

	for (uint32_t d = 0; d < box->dims; d++) {
		part.lo[d] += below(box->hi[d] - box->lo[d]);
		part.hi[d] = part.lo[d] + 1 + below(box->hi[d] - part.lo[d]);
	}
	return part;
}

/* Element n of the box, row after row. */
static void element(const struct box *box, uint64_t n, uint64_t at[BOX_DIMS_MAX])
{
	for (uint32_t d = box->dims; d-- > 0;) {
		uint64_t size = box->hi[d] - box->lo[d];

		at[d] = box->lo[d] + n % size;
		n /= size;
	}
}

/* Elements of `part` in turn; how many. */
static uint64_t walk(const struct placement *place, const struct box *box, const struct box *part,
		     uint64_t *out)
{
	uint64_t count = box_elements(part), at[BOX_DIMS_MAX];

	for (uint64_t n = 0; n < count; n++) {
		element(part, n, at);
		out[n] = place->offset;
		for (uint32_t d = 0; d < box->dims; d++)
			out[n] += (at[d] - box->lo[d]) * place->stride[d];
	}
	return count;
}

/* Are they runs of one length at one distance? */
static bool regular(const uint64_t *at, uint64_t count, uint64_t *run, uint64_t *stride)
{
	*run = 1;
	while (*run < count && at[*run] == at[*run - 1] + 1)
		++*run;
	*stride = *run < count ? at[*run] - at[0] : *run;
	for (uint64_t n = 0; n < count; n++)
		if (at[n] != at[0] + n / *run * *stride + n % *run)
			return false;
	return count % *run == 0;
}

static struct placement random_place(const struct box *box)
{
	struct placement place = placement_dense(box);

	/* as it is, with gaps somewhere, transposed, or anything */
	switch (below(4)) {
	case 0:
		break;
	case 1: {
		uint32_t from = (uint32_t)below(box->dims);

		for (uint32_t d = 0; d <= from; d++)
			place.stride[d] *= 3;
		break;
	}
	case 2:
		for (uint32_t d = 0, step = 1; d < box->dims; d++) {
			place.stride[d] = step;
			step *= (uint32_t)(box->hi[d] - box->lo[d]);
		}
		break;
	default:
		for (uint32_t d = 0; d < box->dims; d++)
			place.stride[d] = 1 + below(30);
	}
	place.offset = below(1000);
	return place;
}

static void test_placement__runs_agree_with_a_walk_over_elements(void **unused)
{
	size_t taken = 0, strided = 0, refused = 0;

	(void)unused;
	for (state = 1; taken < 5000 || strided < 1000 || refused < 1000;) {
		struct box box = random_box(1 + (uint32_t)below(4)), part = random_part(&box);
		struct placement place = random_place(&box);
		uint64_t at[ELEMENTS_MAX], run, stride, last, count;
		struct runs runs;
		bool one_stride, got;

		count = walk(&place, &box, &box, at);
		assert_true(placement_last(&place, &box, &last));
		assert_int_equal(last, at[count - 1]);
		count = walk(&place, &box, &part, at);
		one_stride = regular(at, count, &run, &stride);
		got = placement_runs(&place, &box, &part, 2, &runs);
		assert_int_equal(got, one_stride);
		refused += !got;
		if (!got)
			continue;
		assert_int_equal(runs.offset, at[0] * 2);
		assert_int_equal(runs.row_bytes, run * 2);
		assert_int_equal(runs.rows, count / run);
		assert_int_equal(runs.stride_bytes, stride * 2);
		taken++;
		strided += runs.rows > 1;
	}
}

/* A dense place is the box as a tensor of its own: both ways to runs agree. */
static void test_placement__of_a_tensor_has_the_runs_of_its_boxes(void **unused)
{
	(void)unused;
	for (state = 7; state < 3000; state++) {
		uint64_t seed = state, shape[BOX_DIMS_MAX];
		struct box whole = {.dims = 1 + (uint32_t)below(4)}, part;
		struct runs placed, boxed;
		struct placement place;
		bool got;

		for (uint32_t d = 0; d < whole.dims; d++)
			whole.hi[d] = shape[d] = 1 + below(4);
		part = random_part(&whole);
		place = placement_dense(&whole);
		got = placement_runs(&place, &whole, &part, 4, &placed);
		assert_true(got || !box_runs(&part, shape, 4, &boxed));
		if (box_runs(&part, shape, 4, &boxed)) {
			assert_int_equal(placed.offset, boxed.offset);
			assert_int_equal(placed.rows * placed.row_bytes,
					 boxed.rows * boxed.row_bytes);
		}
		state = seed;
	}
}

static void test_placement__beyond_all_numbers_has_no_last_element(void **unused)
{
	struct box box = {2, {0, 0}, {3, 5}};
	uint64_t last = 7;

	(void)unused;
	assert_false(placement_last(&(struct placement){1ull << 62, {5, 1}}, &box, &last));
	assert_false(placement_last(&(struct placement){0, {1ull << 63, 1}}, &box, &last));
	assert_false(placement_last(&(struct placement){0, {1, 1ull << 60}}, &box, &last));
	assert_false(placement_last(&(struct placement){UINT64_MAX, {1, 1}}, &box, &last));
	assert_int_equal(last, 7);
	assert_true(placement_last(&(struct placement){(1ull << 62) - 15, {5, 1}}, &box, &last));
	assert_int_equal(last, (1ull << 62) - 1);
	assert_false(placement_last(&(struct placement){(1ull << 62) - 14, {5, 1}}, &box, &last));
}

static bool inside(const struct box *box, const uint64_t at[BOX_DIMS_MAX])
{
	for (uint32_t d = 0; d < box->dims; d++)
		if (at[d] < box->lo[d] || at[d] >= box->hi[d])
			return false;
	return true;
}

static bool in_any(const struct box_cover *cover, const uint64_t at[BOX_DIMS_MAX])
{
	for (size_t i = 0; i < cover->boxes.count; i++)
		if (inside(&cover->boxes.items[i], at))
			return true;
	return false;
}

/* The gap is a part of the box, and no element of it is in a box. */
static void check_gap(const struct box_cover *cover, const struct box *box, const struct box *gap)
{
	uint64_t at[BOX_DIMS_MAX];

	assert_true(box_within(gap, box));
	assert_true(box_elements(gap) > 0);
	for (uint64_t n = 0; n < box_elements(gap); n++) {
		element(gap, n, at);
		assert_false(in_any(cover, at));
	}
}

static void test_cover__is_whole_or_has_a_gap_that_is_one(void **unused)
{
	size_t whole = 0, gaps = 0;

	(void)unused;
	for (state = 3; whole < 1000 || gaps < 1000;) {
		struct box_cover cover = {0};
		struct box box = random_box(1 + (uint32_t)below(3)), gap;
		uint64_t boxes = below(14), at[BOX_DIMS_MAX];
		bool covered, want = true;

		for (uint64_t i = 0; i < boxes; i++)
			assert_true(array_add(&cover.boxes, random_box(box.dims)));
		for (uint64_t n = 0; n < box_elements(&box); n++) {
			element(&box, n, at);
			want &= in_any(&cover, at);
		}
		/* twice: what it keeps for itself is as if new */
		for (int again = 0; again < 2; again++) {
			assert_int_equal(box_cover_all(&cover, &box, &covered, &gap), 0);
			assert_int_equal(covered, want);
			if (!covered)
				check_gap(&cover, &box, &gap);
		}
		whole += want;
		gaps += !want;
		box_cover_fini(&cover);
	}
}

static int cover_once(bool *covered)
{
	static const struct box box = {2, {0, 0}, {9, 9}};
	struct box_cover cover = {0};
	struct box gap;
	int rc = 0;

	for (uint64_t i = 0; i < 9 && !rc; i++)
		rc = array_add(&cover.boxes, (struct box){2, {i, 0}, {i + 1, 9}}) ? 0 : -1;
	rc = rc ?: box_cover_all(&cover, &box, covered, &gap);
	box_cover_fini(&cover);
	return rc;
}

static void test_cover__every_failed_allocation_is_told(void **unused)
{
	bool covered = false;
	uint64_t k = 0;
	int rc;

	(void)unused;
	do {
		memory_fail_at(++k);
		rc = cover_once(&covered);
		memory_fail_at(0);
		assert_true(rc == 0 || rc == -1);
	} while (rc);
	assert_true(k > 4 && covered);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_placement__runs_agree_with_a_walk_over_elements),
		cmocka_unit_test(test_placement__of_a_tensor_has_the_runs_of_its_boxes),
		cmocka_unit_test(test_placement__beyond_all_numbers_has_no_last_element),
		cmocka_unit_test(test_cover__is_whole_or_has_a_gap_that_is_one),
		cmocka_unit_test(test_cover__every_failed_allocation_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

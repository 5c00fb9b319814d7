/* SPDX-License-Identifier: Apache-2.0
 *
 * What peers write beside an inference rank's parameters lies where it lies for as long as it is large enough.
 */
#include "worker/epoch/beside.h"

#include "base/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define PARAMS 3 /* regions of parameters */

struct rank {
	struct transport_domain *domain;
	struct beside beside;
};

static int set_up_rank(void **state)
{
	const struct transport_options options = {.self = {ROLE_INFERENCE, 0}, .secret = 1};
	struct rank *rank = memory_zalloc(1, sizeof(*rank));
	struct error error;

	assert_int_equal(transport_domain_open(&rank->domain, "shm", &options, &error), 0);
	*state = rank;
	return 0;
}

static int tear_down_rank(void **state)
{
	struct rank *rank = *state;

	beside_close(&rank->beside);
	transport_domain_close(&rank->domain);
	memory_free(rank);
	return 0;
}

static int want(struct rank *rank, struct beside_region *which, uint64_t bytes)
{
	struct error error;

	return beside_want(&rank->beside, which, rank->domain, bytes, 100000, PARAMS, NULL, &error);
}

static void test_region__that_is_large_enough_is_what_it_was(void **state)
{
	struct rank *rank = *state;
	struct beside *beside = &rank->beside;
	struct transport_region *region;

	assert_int_equal(want(rank, &beside->sums, 8192), 0);
	assert_int_equal(want(rank, &beside->windows, 100), 0);
	region = beside->sums.region;
	assert_int_equal(beside->sums.number, PARAMS);
	assert_int_equal(beside->windows.number, PARAMS + 1);
	assert_int_equal(want(rank, &beside->sums, 8), 0);
	assert_int_equal(want(rank, &beside->sums, 8192), 0);
	assert_ptr_equal(beside->sums.region, region);
	assert_int_equal(beside->replaced.count, 0);
}

static void test_region__that_is_too_small_is_replaced_under_a_number_of_its_own(void **state)
{
	struct rank *rank = *state;
	struct beside *beside = &rank->beside;
	unsigned char *before;

	assert_int_equal(want(rank, &beside->sums, 8), 0);
	before = transport_region_memory(beside->sums.region);
	assert_int_equal(want(rank, &beside->windows, 8), 0);
	assert_int_equal(want(rank, &beside->sums, 80000), 0);
	assert_int_equal(beside->sums.number, PARAMS + 2);
	assert_int_equal(beside->replaced.count, 1);
	assert_int_equal(beside->replaced.items[0].number, PARAMS);
	before[0] = 1; /* still there */
	beside_close_replaced(beside);
	assert_int_equal(beside->replaced.count, 0);
	assert_int_equal(want(rank, &beside->windows, 80000), 0);
	assert_int_equal(beside->windows.number, PARAMS + 3);
	assert_int_equal(want(rank, &beside->windows, 80001), 0); /* twice as much, up to 100,000 */
	assert_int_equal(transport_region_bytes(beside->windows.region), 100000);
}

static void test_region__that_cannot_be_had_leaves_the_one_before(void **state)
{
	struct rank *rank = *state;
	struct beside *beside = &rank->beside;
	int rc = -1;

	assert_int_equal(want(rank, &beside->sums, 8), 0);
	for (long k = 1; rc; k++) {
		memory_fail_at(k);
		rc = want(rank, &beside->sums, 80000);
		memory_fail_at(0);
		if (rc)
			assert_true(beside->sums.number == PARAMS && beside->sums.region);
	}
	assert_int_equal(beside->sums.number, PARAMS + 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_region__that_is_large_enough_is_what_it_was,
						set_up_rank, tear_down_rank),
		cmocka_unit_test_setup_teardown(
			test_region__that_is_too_small_is_replaced_under_a_number_of_its_own,
			set_up_rank, tear_down_rank),
		cmocka_unit_test_setup_teardown(
			test_region__that_cannot_be_had_leaves_the_one_before, set_up_rank,
			tear_down_rank),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

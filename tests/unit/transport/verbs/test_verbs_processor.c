/* SPDX-License-Identifier: Apache-2.0
 *
 * From which processor the lanes of a software NIC are posted, and that nobody else is moved.
 */
#include "base/array.h"
#include "transport/verbs/verbs.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void allow(cpu_set_t *set, const int *cpus, size_t count)
{
	CPU_ZERO(set);
	for (size_t i = 0; i < count; i++)
		CPU_SET(cpus[i], set);
}

static void test_processor_of__goes_round_those_that_are_allowed(void **unused)
{
	static const int cpus[] = {1, 4, 63, 200};
	cpu_set_t set;

	(void)unused;
	allow(&set, cpus, ARRAY_SIZE(cpus));
	for (uint32_t number = 0; number < 12; number++)
		assert_int_equal(verbs_processor_of(&set, number), cpus[number % 4]);
	assert_int_equal(verbs_processor_of(&set, UINT32_MAX), cpus[3]);
	allow(&set, NULL, 0);
	assert_int_equal(verbs_processor_of(&set, 0), -1);
}

/* Two lanes of an endpoint on one NIC; the device gave them the queue pairs 17 and 18. */
struct lanes {
	struct verbs_nic nic;
	struct verbs_endpoint endpoint;
};

static void transform(struct lanes *lanes, bool soft)
{
	lanes->nic.limits.soft = soft;
	for (uint32_t i = 0; i < 2; i++) {
		struct verbs_lane *lane = &lanes->endpoint.lanes[i];

		*lane = (struct verbs_lane){.endpoint = &lanes->endpoint,
					    .nic = &lanes->nic,
					    .index = i,
					    .state = VERBS_LANE_READY,
					    .depth = 128};
		lane->local.qpn = 17 + i;
	}
}

static void test_enter__two_lanes_of_a_software_nic_take_two_processors(void **unused)
{
	static struct lanes lanes;
	cpu_set_t before, inside, allowed;
	int seen[2];

	(void)unused;
	transform(&lanes, true);
	assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
	if (CPU_COUNT(&before) < 2)
		skip();
	for (int i = 0; i < 2; i++) {
		assert_true(verbs_processor_enter(&lanes.endpoint.lanes[i], &allowed));
		assert_true(CPU_EQUAL(&allowed, &before));
		assert_int_equal(sched_getaffinity(0, sizeof(inside), &inside), 0);
		assert_int_equal(CPU_COUNT(&inside), 1);
		seen[i] = sched_getcpu();
		assert_true(CPU_ISSET(seen[i], &inside));
		verbs_processor_leave(&allowed);
		assert_int_equal(sched_getaffinity(0, sizeof(inside), &inside), 0);
		assert_true(CPU_EQUAL(&inside, &before));
	}
	assert_int_not_equal(seen[0], seen[1]);
}

static void test_enter__hardware_and_single_processors_are_left_alone(void **unused)
{
	static struct lanes lanes;
	cpu_set_t before, one, allowed;

	(void)unused;
	transform(&lanes, false);
	assert_false(verbs_processor_enter(&lanes.endpoint.lanes[0], &allowed));
	transform(&lanes, true);
	assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
	CPU_ZERO(&one);
	CPU_SET(verbs_processor_of(&before, 0), &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	assert_false(verbs_processor_enter(&lanes.endpoint.lanes[1], &allowed));
	assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
}

/* Which lanes may be posted to: bit 0 and bit 1. */
static uint32_t due(const struct lanes *lanes)
{
	return (verbs_run_elsewhere(&lanes->endpoint, 0) ? 0 : 1u) |
	       (verbs_run_elsewhere(&lanes->endpoint, 1) ? 0 : 2u);
}

static void test_run__a_lane_of_a_software_nic_takes_eight_mebibytes_in_a_row(void **unused)
{
	static struct lanes lanes;

	(void)unused;
	transform(&lanes, true);
	assert_int_equal(due(&lanes), 3); /* nothing was posted yet */
	verbs_run_took(&lanes.endpoint, 1, 65536);
	assert_int_equal(due(&lanes), 2);
	for (int i = 1; i < 127; i++)
		verbs_run_took(&lanes.endpoint, 1, 65536);
	assert_int_equal(due(&lanes), 2);
	verbs_run_took(&lanes.endpoint, 1, 65536);
	assert_int_equal(due(&lanes), 3); /* any, and the shared layer takes the next one round */
	verbs_run_took(&lanes.endpoint, 0, 16 << 20);
	assert_int_equal(due(&lanes), 3);
	verbs_run_took(&lanes.endpoint, 0, 4096); /* the same again, when no other has room */
	assert_int_equal(due(&lanes), 1);
}

static void test_run__nobody_waits_for_a_lane_that_cannot_take_more(void **unused)
{
	static struct lanes lanes;
	struct verbs_lane *lane = &lanes.endpoint.lanes[0];

	(void)unused;
	transform(&lanes, true);
	verbs_run_took(&lanes.endpoint, 0, 4096);
	assert_int_equal(due(&lanes), 1);
	lane->tail = lane->depth - VERBS_SIGNAL_SLOTS; /* full */
	assert_int_equal(due(&lanes), 3);
	lane->tail = 0;
	atomic_store(&lane->closed_by_event, true);
	assert_int_equal(due(&lanes), 3);
	atomic_store(&lane->closed_by_event, false);
	atomic_store(&lanes.nic.down, true);
	assert_int_equal(due(&lanes), 3);
	atomic_store(&lanes.nic.down, false);
	assert_int_equal(due(&lanes), 1);
	transform(&lanes, false); /* hardware: the lanes take turns */
	verbs_run_took(&lanes.endpoint, 0, 4096);
	assert_int_equal(due(&lanes), 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_processor_of__goes_round_those_that_are_allowed),
		cmocka_unit_test(test_enter__two_lanes_of_a_software_nic_take_two_processors),
		cmocka_unit_test(test_enter__hardware_and_single_processors_are_left_alone),
		cmocka_unit_test(test_run__a_lane_of_a_software_nic_takes_eight_mebibytes_in_a_row),
		cmocka_unit_test(test_run__nobody_waits_for_a_lane_that_cannot_take_more),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}

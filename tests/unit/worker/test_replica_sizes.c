/* SPDX-License-Identifier: Apache-2.0
 *
 * What a trainer keeps a piece must not grow unseen: tests/bench/bench_replica measures the sum,
 * docs/benchmarks.md states it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "wire/message.h"
#include "worker/update/schedule.h"

static void test_piece__takes_no_more_memory_than_is_written_down(void **state)
{
	/* of the plan; a row, its target in one copy, its places in two lists, and its source */
	const size_t plan = sizeof(struct plan_row);
	const size_t engine = sizeof(struct send_row) + sizeof(struct row_state) +
			      sizeof(struct send_target) + 2 * sizeof(uint32_t) +
			      sizeof(struct send_source) + sizeof(struct source_state);
	/* of a part: its slot in the ring, found by its number, with one write that reads it; its
	 * state and its sum */
	const size_t part = sizeof(struct ring_slot) + sizeof(struct replica_slot) +
			    sizeof(uint64_t) + sizeof(struct use) + 1 + sizeof(uint64_t);

	(void)state;
	assert_in_range(plan, 1, 152);
	assert_in_range(engine, 1, 288);
	assert_in_range(part, 1, 69);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_piece__takes_no_more_memory_than_is_written_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/memory.h"
#include "model/content.h"
#include "worker/replica/replica.h"

#include <string.h>

#define SLOTS 64

struct live {
	uint64_t id, offset, bytes;
};

static void assert_apart(const struct live *live, size_t count, uint64_t ring_bytes)
{
	for (size_t i = 0; i < count; i++) {
		assert_true(live[i].offset % RING_ALIGN == 0);
		assert_true(live[i].offset + live[i].bytes <= ring_bytes);
		for (size_t k = 0; k < i; k++)
			assert_true(live[i].offset + live[i].bytes <= live[k].offset ||
				    live[k].offset + live[k].bytes <= live[i].offset);
	}
}

static void test_ring__slots_never_overlap_in_any_order_of_release(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 200; seed++) {
		uint64_t random = seed, ring_bytes = 64 * (1 + splitmix64(seed) % 40), wraps = 0;
		uint64_t last = 0;
		struct live live[SLOTS];
		size_t count = 0;
		struct ring ring;

		assert_int_equal(ring_open(&ring, ring_bytes, SLOTS, NULL), 0);
		for (int step = 0; step < 400; step++) {
			uint64_t id, bytes = 1 + splitmix64(++random) % ring_bytes;

			if (splitmix64(++random) % 2 && count) {
				size_t which = splitmix64(++random) % count;

				ring_give_back(&ring, live[which].id);
				assert_false(ring_alive(&ring, live[which].id));
				live[which] = live[--count];
			} else if (ring_take(&ring, bytes, &id)) {
				assert_true(count < SLOTS);
				live[count++] = (struct live){id, ring_offset(&ring, id), bytes};
				wraps += ring_offset(&ring, id) < last;
				last = ring_offset(&ring, id);
				assert_apart(live, count, ring_bytes);
			}
			if (!count)
				assert_int_equal(ring_oldest(&ring), 0);
		}
		assert_true(wraps > 0 || ring_bytes < 256);
		ring_close(&ring);
	}
}

static void test_ring__takes_everything_again_when_all_is_given_back(void **state)
{
	struct ring ring;
	uint64_t id;

	(void)state;
	assert_int_equal(ring_open(&ring, 1024, 4, NULL), 0);
	for (int round = 0; round < 10; round++) {
		assert_true(ring_take(&ring, 1024, &id));
		assert_false(ring_take(&ring, 1, &id));
		ring_give_back(&ring, ring_oldest(&ring));
	}
	assert_false(ring_take(&ring, 1025, &id));
	ring_close(&ring);
}

static void test_ring__has_no_more_slots_than_it_was_opened_with(void **state)
{
	struct ring ring;
	uint64_t id;

	(void)state;
	assert_int_equal(ring_open(&ring, 1 << 20, 2, NULL), 0);
	assert_true(ring_take(&ring, 1, &id));
	assert_true(ring_take(&ring, 1, &id));
	assert_false(ring_take(&ring, 1, &id));
	ring_close(&ring);
}

static void test_replica__keeps_a_block_while_its_slot_lives(void **state)
{
	unsigned char memory[256];
	struct replica replica;
	_Atomic uint64_t done[4] = {0};
	uint32_t peer;
	uint64_t write;

	(void)state;
	assert_int_equal(replica_open(&replica, memory, sizeof(memory), 4, NULL), 0);
	assert_null(replica_find(&replica, 1));
	assert_ptr_equal(replica_take(&replica, 1, 128), memory);
	assert_int_equal(replica_used(&replica, 1, 0, 7, NULL), 0);
	assert_int_equal(replica_used(&replica, 1, 3, 9, NULL), 0);
	assert_ptr_equal(replica_find(&replica, 1), memory);
	assert_ptr_equal(replica_take(&replica, 2, 128), memory + 128);
	assert_null(replica_take(&replica, 3, 64));
	/* held by who packs it, then read by two writes */
	assert_int_equal(replica_make_room(&replica, done, &peer, &write), REPLICA_HELD);
	replica_slot(&replica, 1)->holders--;
	assert_int_equal(replica_make_room(&replica, done, &peer, &write), REPLICA_WRITTEN);
	assert_int_equal(peer * 100 + write, 309);
	done[3] = 9;
	assert_int_equal(replica_make_room(&replica, done, &peer, &write), REPLICA_WRITTEN);
	assert_int_equal(peer * 100 + write, 7);
	done[0] = 8;
	assert_int_equal(replica_make_room(&replica, done, &peer, &write), REPLICA_FREED);
	assert_null(replica_find(&replica, 1));
	assert_ptr_equal(replica_take(&replica, 3, 64), memory);
	replica_reset(&replica);
	assert_null(replica_find(&replica, 3));
	replica_close(&replica);
}

static void test_replica__opens_or_says_out_of_memory(void **state)
{
	struct replica replica;
	unsigned char memory[64];
	struct error error;
	uint64_t k = 0;
	int rc;

	(void)state;
	do {
		memory_fail_at(++k);
		rc = replica_open(&replica, memory, sizeof(memory), 4, &error);
		memory_fail_at(0);
		assert_true(rc == 0 || (rc == -ERROR_MEMORY && error.code == ERROR_MEMORY));
	} while (rc);
	assert_true(k > 3);
	replica_close(&replica);
}

static void test_replica__makes_spare_room_only_of_what_was_written_from(void **state)
{
	_Alignas(64) unsigned char memory[256];
	_Atomic uint64_t done[1] = {0};
	struct replica replica;

	(void)state;
	assert_int_equal(replica_open(&replica, memory, sizeof(memory), 8, NULL), 0);
	assert_null(replica_take_spare(&replica, 0, 320, done)); /* larger than the ring */
	for (uint32_t block = 0; block < 4; block++) {
		assert_ptr_equal(replica_take_spare(&replica, block, 64, done),
				 memory + 64 * block);
		replica_slot(&replica, block)->packed = true;
	}
	assert_null(replica_take_spare(&replica, 4, 64, done)); /* all held */
	for (uint32_t block = 0; block < 4; block++)
		replica_slot(&replica, block)->holders--;
	assert_null(replica_take_spare(&replica, 4, 64, done)); /* none written from */
	assert_int_equal(replica_used(&replica, 0, 0, 1, NULL), 0);
	assert_int_equal(replica_used(&replica, 1, 0, 2, NULL), 0);
	assert_null(replica_take_spare(&replica, 4, 64, done)); /* not complete */
	done[0] = 2;
	assert_ptr_equal(replica_take_spare(&replica, 4, 128, done), memory);
	assert_null(replica_find(&replica, 1));
	assert_non_null(replica_find(&replica, 2));
	assert_null(replica_take_spare(&replica, 5, 64, done));
	replica_close(&replica);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ring__slots_never_overlap_in_any_order_of_release),
		cmocka_unit_test(test_ring__takes_everything_again_when_all_is_given_back),
		cmocka_unit_test(test_ring__has_no_more_slots_than_it_was_opened_with),
		cmocka_unit_test(test_replica__keeps_a_block_while_its_slot_lives),
		cmocka_unit_test(test_replica__makes_spare_room_only_of_what_was_written_from),
		cmocka_unit_test(test_replica__opens_or_says_out_of_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

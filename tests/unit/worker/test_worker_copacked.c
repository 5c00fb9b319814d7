/* SPDX-License-Identifier: Apache-2.0
 *
 * Column slices that lie beside each other are packed in one pass, and no thread waits for another's
 * packing while there is something to pack. Over the mock every piece goes through the ring.
 */
#include "tests/unit/worker/worker_rig.h"

#include "transport/mock/mock.h"
#include "worker/api/worker.h"

static const struct mock_options mock = {.local_registration = true, .delay_max = 20};

static struct rig *open_rig(uint32_t ranks, uint32_t threads, uint64_t ring_bytes)
{
	struct rig_options options = {.trainers = 1,
				      .ranks = ranks,
				      .transport = "mock",
				      .order = "table",
				      .checksums = 1,
				      .pack_threads = threads,
				      .ring_bytes = ring_bytes};
	struct rig *rig = calloc(1, sizeof(*rig));

	assert_non_null(rig);
	mock_options_default(&mock);
	rig_open(rig, &options);
	return rig;
}

static void close_rig(struct rig *rig)
{
	rig_close(rig);
	free(rig);
	mock_options_default(NULL);
}

static void test_slices__of_one_tensor_are_packed_in_one_pass(void **state)
{
	(void)state;
	for (uint32_t ranks = 2; ranks <= 4; ranks++)
		for (uint32_t threads = 1; threads <= 3; threads++) {
			struct rig *rig = open_rig(ranks, threads, 0);
			weft_stats stats = WEFT_STATS_INIT;

			for (uint64_t version = 1; version <= 5; version++)
				rig_update(rig, version);
			weft_get_stats(rig->trainers[0], &stats, NULL);
			/* all of o's but the first; q's rows and n lie alone */
			assert_int_equal(stats.parts_copacked, 5 * (ranks - 1));
			assert_int_equal(stats.packed_bytes, 5 * (480 + 480 + 28));
			close_rig(rig);
		}
}

static void test_slices__are_packed_alone_where_the_ring_is_full(void **state)
{
	/* four slots of 64 bytes for pieces of 120: parts of 64 bytes, of which few wait in the ring */
	struct rig *rig = open_rig(4, 1, 256);
	weft_stats stats = WEFT_STATS_INIT;

	(void)state;
	for (uint64_t version = 1; version <= 20; version++)
		rig_update(rig, version);
	weft_get_stats(rig->trainers[0], &stats, NULL);
	assert_true(stats.packed_bytes >= 20 * (480 + 480 + 28));
	/* what was packed too early, and again in its turn, is at most a ring an update */
	assert_true(stats.packed_bytes <= 20 * (480 + 480 + 28 + 256));
	close_rig(rig);
}

struct taken {
	struct task tasks[64];
	size_t count;
};

/* All parts of the call, as threads would get them that have not done any yet. */
static void take_all(struct sender *sender, struct taken *taken)
{
	for (;; taken->count++) {
		assert_true(taken->count < sizeof(taken->tasks) / sizeof(taken->tasks[0]));
		task_init(&taken->tasks[taken->count], NULL);
		if (!schedule_take(&sender->schedule, &taken->tasks[taken->count]))
			return;
	}
}

/* How many hold the block's slot; 0 where it has none. */
static uint32_t holders(struct schedule *schedule, uint32_t block)
{
	return replica_find(&schedule->replica, block)
		       ? replica_slot(&schedule->replica, block)->holders
		       : 0;
}

/* Each by a thread that finds nothing more to do. */
static void do_all(struct sender *sender, struct taken *taken)
{
	sender->stop = true;
	for (size_t i = 0; i < taken->count; i++)
		assert_int_equal(executor_go(sender, &taken->tasks[i]), 0);
	sender->stop = false;
}

static void test_threads__pack_what_comes_later_before_they_wait(void **state)
{
	struct rig *rig = open_rig(4, 1, 0);
	struct sender *sender = &rig->trainers[0]->sender;
	struct schedule *schedule = &sender->schedule;
	const struct send_plan *plan = schedule->options.plan;
	struct call call;
	struct taken taken = {.count = 0};
	bool waited = false;
	size_t ahead = 0;
	struct error inner;
	weft_error error = WEFT_ERROR_INIT;

	(void)state;
	rig_fill(rig, 1);
	rig_wait_begin(rig, 1, 0);
	rig_ok(weft_update_begin(rig->trainers[0], 1, &error), &error);
	call_init(&call, CALL_WRITE, 0, &inner);
	call.count = plan->row_count;
	pthread_mutex_lock(&sender->lock);
	schedule->calls = &call;
	for (uint32_t t = 0; t < RIG_TENSORS; t++) {
		sender->data[t] = rig->tensors[t];
		schedule_submit(schedule, t);
	}
	take_all(sender, &taken);
	/* every row once; and each of the pieces packed once, before anything waits for it */
	for (size_t i = 0; i < taken.count; i++) {
		assert_false(waited && taken.tasks[i].first);
		waited = waited || !taken.tasks[i].first;
		/* and what a part was given out for stays until it is done */
		assert_true(taken.tasks[i].held);
		ahead += taken.tasks[i].ahead;
	}
	assert_true(ahead > 0);
	assert_int_equal(taken.count, plan->row_count + ahead);
	do_all(sender, &taken);
	schedule->calls = NULL;
	for (uint32_t block = 0; block < plan->block_count; block++)
		assert_int_equal(holders(schedule, block), 0);
	pthread_mutex_unlock(&sender->lock);
	rig_ok(weft_update_end(rig->trainers[0], &error), &error);
	rig_wait_end(rig, 0);
	for (uint32_t i = 0; i < 4; i++)
		rig_check(rig, i, 1);
	for (size_t i = 0; i < plan->row_count; i++)
		assert_int_equal(schedule->rows[i].open, 0);
	close_rig(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slices__of_one_tensor_are_packed_in_one_pass),
		cmocka_unit_test(test_slices__are_packed_alone_where_the_ring_is_full),
		cmocka_unit_test(test_threads__pack_what_comes_later_before_they_wait),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

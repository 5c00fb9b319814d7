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
	struct item items[64];
	size_t count;
};

/* All items of the job, as threads would get them that have not done any yet. */
static void take_all(struct weft_worker *worker, struct write_job *job, struct taken *taken)
{
	while (engine_next(worker, job, &taken->items[taken->count]))
		assert_true(++taken->count < sizeof(taken->items) / sizeof(taken->items[0]));
}

/* How many hold the block's slot; 0 where it has none. */
static uint32_t holders(struct trainer *trainer, uint32_t block)
{
	return replica_find(&trainer->replica, block)
		       ? replica_slot(&trainer->replica, block)->holders
		       : 0;
}

static void do_all(struct weft_worker *worker, const struct taken *taken)
{
	struct error error;

	for (size_t i = 0; i < taken->count; i++) {
		assert_int_equal(engine_do(worker, &taken->items[i], &error), 0);
		pthread_mutex_lock(&worker->trainer.lock);
		engine_close_row(&worker->trainer, taken->items[i].row);
		pthread_mutex_unlock(&worker->trainer.lock);
	}
}

static void test_threads__pack_what_comes_later_before_they_wait(void **state)
{
	struct rig *rig = open_rig(4, 1, 0);
	struct weft_worker *worker = rig->trainers[0];
	struct trainer *trainer = &worker->trainer;
	struct write_job job = {.count = trainer->row_count};
	struct taken taken = {.count = 0};
	bool waited = false;
	size_t ahead = 0;
	struct error inner;
	weft_error error = WEFT_ERROR_INIT;

	(void)state;
	rig_fill(rig, 1);
	rig_wait_begin(rig, 1, 0);
	rig_ok(weft_update_begin(worker, 1, &error), &error);
	assert_int_equal(update_enter(worker, "a test", &inner), 0);
	for (uint32_t t = 0; t < RIG_TENSORS; t++)
		update_give(worker, t, rig->tensors[t]);
	take_all(worker, &job, &taken);
	assert_int_equal(update_leave(worker, 0, &inner), 0);
	/* every row once; and each of the pieces packed once, before anything waits for it */
	for (size_t i = 0; i < taken.count; i++) {
		assert_false(waited && taken.items[i].first);
		waited = waited || !taken.items[i].first;
		/* and what an item was given out for stays until it is done */
		assert_true(taken.items[i].held);
		ahead += taken.items[i].ahead;
	}
	assert_true(ahead > 0);
	assert_int_equal(taken.count, trainer->row_count + ahead);
	do_all(worker, &taken);
	for (uint32_t block = 0; block < trainer->block_count; block++)
		assert_int_equal(holders(trainer, block), 0);
	rig_ok(weft_update_end(worker, &error), &error);
	rig_wait_end(rig, 0);
	for (uint32_t i = 0; i < 4; i++)
		rig_check(rig, i, 1);
	for (size_t i = 0; i < trainer->row_count; i++)
		assert_int_equal(trainer->rows[i].open, 0);
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

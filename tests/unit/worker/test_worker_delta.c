/* SPDX-License-Identifier: Apache-2.0
 *
 * Jobs that send what differs from the version before: every byte of every version, whatever became of the one before.
 */
#include "pack/delta.h"
#include "tests/unit/worker/worker_rig.h"
#include "worker/api/worker.h"

static const struct rig_options delta = {
	.trainers = 2, .ranks = 2, .transport = "tcp", .commit = "engine", .delta = 1};

static uint64_t saved(const struct rig *rig)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < rig->options.trainers; i++) {
		weft_stats stats = WEFT_STATS_INIT;

		assert_int_equal(weft_get_stats(rig->trainers[i], &stats, NULL), 0);
		bytes += stats.saved_bytes;
	}
	return bytes;
}

/* A value here and there. */
static void change_little(struct rig *rig, uint64_t version)
{
	for (uint32_t t = 0; t < RIG_TENSORS; t++)
		rig->tensors[t][version * 52 % rig_bytes[t]] ^= (unsigned char)(1 + version % 255);
}

static void check(struct rig *rig, uint64_t version)
{
	uint64_t rows = 12 / rig->options.ranks;

	for (uint32_t rank = 0; rank < rig->options.ranks; rank++) {
		const unsigned char *q = weft_param_memory(rig->ranks[rank], 0, version);
		const unsigned char *o = weft_param_memory(rig->ranks[rank], 1, version);
		const unsigned char *n = weft_param_memory(rig->ranks[rank], 2, version);

		assert_int_equal(weft_published(rig->ranks[rank]), version);
		assert_non_null(q);
		assert_memory_equal(q, rig->tensors[0] + rank * rows * 40, rows * 40);
		for (uint64_t r = 0; r < 10; r++)
			assert_memory_equal(o + r * rows * 4,
					    rig->tensors[1] + r * 48 + rank * rows * 4, rows * 4);
		assert_memory_equal(n, rig->tensors[2], 28);
		assert_memory_equal(n + 28, "\0\0\0\0", 4);
	}
}

static void send_all(struct rig *rig, uint64_t version)
{
	for (uint32_t i = 0; i < rig->options.trainers; i++)
		rig_send(rig, i, version);
}

static void update(struct rig *rig, uint64_t version)
{
	rig_wait_begin(rig, version, 0);
	send_all(rig, version);
	rig_wait_end(rig, 0);
	check(rig, version);
}

static void open_with_one(struct rig *rig, const struct rig_options *options)
{
	rig_open(rig, options);
	rig_fill(rig, 1);
	update(rig, 1);
	assert_int_equal(saved(rig), 0);
}

static void test_update__of_little_sends_little(void **state)
{
	static const char *const replicas[] = {"ring", "full"};

	(void)state;
	for (int i = 0; i < 4; i++) {
		struct rig_options options = delta;
		uint64_t before = 0;
		struct rig rig;

		options.replica = replicas[i % 2];
		options.shadow = i / 2;
		open_with_one(&rig, &options);
		for (uint64_t version = 2; version <= 6; version++) {
			change_little(&rig, version);
			update(&rig, version);
			assert_in_range(saved(&rig), before + 700, before + 1000);
			before = saved(&rig);
		}
		update(&rig, 9); /* and of nothing nothing */
		assert_in_range(saved(&rig), before + 900, before + 1050);
		rig_close(&rig);
	}
}

static void abort_all(struct rig *rig, uint64_t version, bool one_ends)
{
	const void *data[RIG_TENSORS] = {rig->tensors[0], rig->tensors[1], rig->tensors[2]};
	weft_error error = WEFT_ERROR_INIT;

	/* Both have begun before one gives up: who comes to an engine after that waits for its next. */
	rig_wait_begin(rig, version, 0);
	for (uint32_t i = 0; i < rig->options.trainers; i++)
		rig_ok(weft_update_begin(rig->trainers[i], version, &error), &error);
	for (uint32_t i = 0; i < rig->options.trainers; i++) {
		rig_ok(host_write_all(rig->trainers[i], data, &error), &error);
		if (one_ends && !i)
			rig_ok(weft_update_end(rig->trainers[i], &error), &error);
		else
			rig_ok(weft_update_abort(rig->trainers[i], "no reason", &error), &error);
	}
	rig_wait_end(rig, -WEFT_E_ABORTED);
}

static void test_update__after_one_that_was_given_up_is_whole(void **state)
{
	(void)state;
	for (int i = 0; i < 4; i++) {
		struct rig_options options = delta;
		uint64_t before;
		struct rig rig;

		options.shadow = i / 2;
		open_with_one(&rig, &options);
		change_little(&rig, 2);
		update(&rig, 2);
		change_little(&rig, 3);
		abort_all(&rig, 3, i % 2);
		before = saved(&rig);
		change_little(&rig, 4);
		update(&rig, 4);
		assert_int_equal(saved(&rig), before);
		change_little(&rig, 5);
		update(&rig, 5);
		assert_true(saved(&rig) > before + 700);
		rig_close(&rig);
	}
}

/* The permission of a wait that nobody came to is the next one's. */
static void test_update__that_came_after_its_first_wait_is_of_what_differs(void **state)
{
	struct rig rig;

	(void)state;
	open_with_one(&rig, &delta);
	rig_wait_begin(&rig, 2, 50);
	rig_wait_end(&rig, -WEFT_E_TIMEOUT);
	change_little(&rig, 2);
	update(&rig, 2);
	assert_true(saved(&rig) > 700);
	rig_close(&rig);
}

static void
test_memory__that_somebody_else_wrote_fails_one_version_and_is_sent_whole_from_then_on(void **state)
{
	struct rig_options options = delta;
	uint64_t before;
	struct rig rig;

	(void)state;
	options.own_memory = 1;
	options.commit = NULL;
	open_with_one(&rig, &options);
	rig.own[0][0][100] ^= 1;
	rig_wait_begin(&rig, 2, 0);
	change_little(&rig, 2);
	send_all(&rig, 2);
	for (uint32_t i = 0; i < 2; i++)
		pthread_join(rig.waits[i].thread, NULL);
	assert_int_equal(rig.waits[0].rc, -WEFT_E_CHECKSUM);
	assert_int_equal(rig.waits[1].rc, 0);
	before = saved(&rig);
	for (uint64_t version = 3; version < 6; version++) {
		change_little(&rig, version);
		update(&rig, version);
		assert_in_range(saved(&rig), before + 350,
				before + 520); /* rank 1 is sent what differs */
		before = saved(&rig);
	}
	rig_close(&rig);
}

static void test_versions__that_differ_everywhere_rest_and_are_tried_again(void **state)
{
	uint64_t version = 2, before;
	struct rig rig;

	(void)state;
	open_with_one(&rig, &delta);
	for (; version < 14; version++) {
		rig_fill(&rig, version);
		update(&rig, version);
		assert_int_equal(saved(&rig), 0);
	}
	for (; version < 24; version++) {
		change_little(&rig, version);
		update(&rig, version);
	}
	before = saved(&rig);
	assert_true(before > 700);
	change_little(&rig, version);
	update(&rig, version);
	assert_true(saved(&rig) > before + 700);
	rig_close(&rig);
}

/* A trainer writes into its window what it likes. */
static void test_what_differs__is_refused_where_it_is_of_nothing_or_of_too_much(void **state)
{
	static unsigned char coded[WINDOW_DELTA_BYTES + 8], none[DELTA_CHUNK_BYTES],
		memory[DELTA_CHUNK_BYTES];
	struct window_entry entry = {.coded = 8, .bytes = 40, .element_bytes = 4};
	const struct plan_row *row;
	struct waiter *waiter;
	struct error error;
	struct rig rig;

	(void)state;
	open_with_one(&rig, &delta);
	change_little(&rig, 2);
	update(&rig, 2);
	waiter = &rig.ranks[0]->waiter;
	waiter->base.given[0] = waiter->now->links[0].opening; /* as in the midst of an update */
	row = &waiter->epoch->plan
		       ->rows[waiter->epoch->receive.rows[waiter->epoch->peers[0].first_piece]];
	delta_same(coded, 40);
	assert_int_equal(waiter_put_delta(waiter, 0, row, &entry, coded, &error), 0);
	check(&rig, 2);
	entry.bytes = 44; /* it is of 40 */
	assert_int_equal(waiter_put_delta(waiter, 0, row, &entry, coded, &error), -ERROR_MESSAGE);
	assert_non_null(strstr(error.text, "it is of 40 bytes"));
	entry.bytes = 40;
	entry.element_bytes = 3;
	assert_int_equal(waiter_put_delta(waiter, 0, row, &entry, coded, &error), -ERROR_MESSAGE);
	assert_non_null(strstr(error.text, "of values of 3"));
	entry.element_bytes = 4;
	entry.coded = 7;
	assert_int_equal(waiter_put_delta(waiter, 0, row, &entry, coded, &error), -ERROR_MESSAGE);
	entry.coded = WINDOW_DELTA_BYTES + 8;
	assert_int_equal(waiter_put_delta(waiter, 0, row, &entry, coded, &error), -ERROR_MESSAGE);
	assert_non_null(strstr(error.text, "they are at most"));
	/* a chunk is never of more than a chunk, whatever its kind */
	memset(memory, 1, sizeof(memory));
	entry.coded = (uint32_t)delta_code(none, memory, DELTA_CHUNK_BYTES, 4, coded);
	assert_int_equal(entry.coded, DELTA_CODED_MAX);
	for (uint32_t word = 0; word < 2; word++)
		((uint32_t *)(void *)coded)[word] += 4096;
	entry.coded += 4096;
	entry.bytes = DELTA_CHUNK_BYTES + 4096;
	assert_int_equal(waiter_put_delta(waiter, 0, row, &entry, coded, &error), -ERROR_MESSAGE);
	check(&rig, 2);
	rig_close(&rig);
}

static void test_memory__that_is_mapped_is_written_as_ever(void **state)
{
	struct rig_options options = delta;
	struct rig rig;

	(void)state;
	options.transport = "shm";
	open_with_one(&rig, &options);
	for (uint64_t version = 2; version < 5; version++) {
		change_little(&rig, version);
		update(&rig, version);
	}
	assert_int_equal(saved(&rig), 0);
	rig_close(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_update__of_little_sends_little),
		cmocka_unit_test(test_update__after_one_that_was_given_up_is_whole),
		cmocka_unit_test(test_update__that_came_after_its_first_wait_is_of_what_differs),
		cmocka_unit_test(
			test_memory__that_somebody_else_wrote_fails_one_version_and_is_sent_whole_from_then_on),
		cmocka_unit_test(test_versions__that_differ_everywhere_rest_and_are_tried_again),
		cmocka_unit_test(
			test_what_differs__is_refused_where_it_is_of_nothing_or_of_too_much),
		cmocka_unit_test(test_memory__that_is_mapped_is_written_as_ever),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Trainers over a transport that reads only from registered memory: packed through the ring, or
 * straight from what the host registered. And what weft_open does with its newest option.
 */
#include "tests/unit/worker/worker_rig.h"

#include "transport/mock/mock.h"

static const struct mock_options strict = {.local_registration = true, .write_bytes_max = 256};
static const struct mock_options *trainer_options = &strict;
static const struct rig_options jobs = {.trainers = 1, .ranks = 2, .transport = "mock"};

/* rig_open in two halves, for what must happen before join. */
static struct rig *open_rig(void (*before)(struct rig *rig))
{
	struct rig *rig = calloc(1, sizeof(*rig));

	assert_non_null(rig);
	rig->options = jobs;
	rig_start_controller(rig);
	mock_options_default(trainer_options);
	rig->trainers[0] = rig_open_worker(rig, WEFT_TRAINER, 0);
	mock_options_default(&strict);
	rig_declare_trainer(rig->trainers[0]);
	if (before)
		before(rig);
	rig->joins[0].worker = rig->trainers[0];
	for (uint32_t i = 0; i < jobs.ranks; i++) {
		rig->ranks[i] = rig_open_worker(rig, WEFT_INFERENCE, i);
		rig_declare_rank(rig, i);
		rig->joins[i + 1].worker = rig->ranks[i];
	}
	for (uint32_t i = 0; i <= jobs.ranks; i++)
		pthread_create(&rig->joins[i].thread, NULL, rig_join_thread, &rig->joins[i]);
	for (uint32_t i = 0; i <= jobs.ranks; i++) {
		pthread_join(rig->joins[i].thread, NULL);
		rig_ok(rig->joins[i].rc, &rig->joins[i].error);
	}
	return rig;
}

static void close_rig(struct rig *rig)
{
	rig_close(rig);
	free(rig);
}

static weft_stats updates(struct rig *rig)
{
	weft_stats stats = WEFT_STATS_INIT;

	for (uint64_t version = 1; version <= 3; version++)
		rig_update(rig, version);
	assert_int_equal(weft_get_stats(rig->trainers[0], &stats, NULL), 0);
	return stats;
}

static void test_sources__that_are_not_registered_go_through_the_ring(void **state)
{
	struct rig *rig = open_rig(NULL);
	weft_stats stats = updates(rig);

	(void)state;
	assert_int_equal(stats.pieces_direct, 0);
	assert_int_equal(stats.pieces_replica, 3 * 3 * 2);
	close_rig(rig);
}

static void register_all(struct rig *rig)
{
	weft_error error = WEFT_ERROR_INIT;

	rig_ok(weft_source_register(rig->trainers[0], HOST(rig->tensors, sizeof(rig->tensors)),
				    &error),
	       &error);
}

static void test_sources__that_are_registered_are_written_as_they_lie(void **state)
{
	struct rig *rig = open_rig(register_all);
	weft_stats stats = updates(rig);

	(void)state;
	assert_int_equal(stats.pieces_direct, 3 * 2 * 2);
	assert_int_equal(stats.pieces_replica, 3 * 2); /* columns must be packed */
	close_rig(rig);
}

/* In any order of addresses: tensors 2, 0, 1. */
static void register_each(struct rig *rig)
{
	weft_error error = WEFT_ERROR_INIT;

	for (uint32_t i = 0; i < RIG_TENSORS; i++) {
		uint32_t t = (i + 2) % RIG_TENSORS;

		rig_ok(weft_source_register(rig->trainers[0], HOST(rig->tensors[t], 480), &error),
		       &error);
	}
}

static void test_sources__may_be_many_ranges(void **state)
{
	struct rig *rig = open_rig(register_each);
	weft_stats stats = updates(rig);

	(void)state;
	assert_int_equal(stats.pieces_direct, 3 * 2 * 2);
	close_rig(rig);
}

static void register_first(struct rig *rig)
{
	weft_error error = WEFT_ERROR_INIT;

	rig_ok(weft_source_register(rig->trainers[0], HOST(rig->tensors[0], 2 * 480), &error),
	       &error);
}

static void test_sources__outside_of_what_was_registered_are_refused_and_nothing_sent(void **state)
{
	struct rig *rig = open_rig(register_first);
	const void *data[RIG_TENSORS] = {rig->tensors[0], rig->tensors[1], rig->tensors[2]};
	weft_worker *worker = rig->trainers[0];
	unsigned char elsewhere[480];
	weft_stats stats = WEFT_STATS_INIT;
	weft_error error = WEFT_ERROR_INIT;

	(void)state;
	rig_fill(rig, 1);
	rig_wait_begin(rig, 1, 0);
	rig_ok(weft_update_begin(worker, 1, &error), &error);
	assert_int_equal(host_write_all(worker, data, &error), -WEFT_E_USAGE);
	assert_non_null(strstr(error.text, "tensor n"));
	assert_non_null(strstr(error.text, "weft_source_register"));
	memcpy(elsewhere, rig->tensors[0], sizeof(elsewhere));
	assert_int_equal(weft_update_write(worker, 0, HOST(elsewhere, 480), &error), -WEFT_E_USAGE);
	assert_int_equal(weft_update_write(worker, 0, HOST(rig->tensors[0] + 481, 480), &error),
			 -WEFT_E_USAGE);
	assert_int_equal(weft_get_stats(worker, &stats, NULL), 0);
	assert_int_equal(stats.writes, 0);
	/* the update goes on: the third tensor, moved into the range behind the first */
	rig_ok(weft_update_write(worker, 0, HOST(rig->tensors[0], 480), &error), &error);
	memcpy(elsewhere, rig->tensors[1], sizeof(elsewhere));
	rig_ok(weft_update_write(worker, 1, HOST(elsewhere, 480), &error),
	       &error); /* packed anyway */
	memcpy(rig->tensors[1] + 100, rig->tensors[2], 28);
	rig_ok(weft_update_write(worker, 2, HOST(rig->tensors[1] + 100, 28), &error), &error);
	rig_ok(weft_update_end(worker, &error), &error);
	rig_wait_end(rig, 0);
	rig_check(rig, 0, 1);
	rig_check(rig, 1, 1);
	close_rig(rig);
}

static void refuse_all_kinds(struct rig *rig)
{
	weft_worker *worker = rig->trainers[0];
	weft_error error = WEFT_ERROR_INIT;

	assert_int_equal(weft_source_register(worker, HOST(NULL, 8), &error), -WEFT_E_USAGE);
	assert_int_equal(weft_source_register(worker, HOST(rig->tensors, 0), &error),
			 -WEFT_E_USAGE);
	assert_int_equal(weft_source_register(worker, HOST(rig->tensors, UINT64_MAX), &error),
			 -WEFT_E_USAGE);
	rig_ok(weft_source_register(worker, HOST(rig->tensors[1], 480), &error), &error);
	assert_int_equal(weft_source_register(worker, HOST(rig->tensors[1] + 479, 1), &error),
			 -WEFT_E_USAGE);
	assert_non_null(strstr(error.text, "overlap"));
	assert_int_equal(weft_source_register(worker, HOST(rig->tensors[0], 481), &error),
			 -WEFT_E_USAGE);
	rig_ok(weft_source_register(worker, HOST(rig->tensors[2], 480), &error), &error);
	rig_ok(weft_source_register(worker, HOST(rig->tensors[0], 480), &error), &error);
}

static void test_sources__that_overlap_or_come_late_are_refused(void **state)
{
	struct rig *rig = open_rig(refuse_all_kinds);
	weft_error error = WEFT_ERROR_INIT;

	(void)state;
	assert_int_equal(weft_source_register(rig->trainers[0], HOST(rig->own, 8), &error),
			 -WEFT_E_STATE);
	rig_update(rig, 1);
	close_rig(rig);
}

static void *interrupt_soon(void *context)
{
	clock_sleep_ms(100);
	weft_interrupt(context);
	return NULL;
}

/* Nothing that the trainer posts ever completes, so its second chunk waits for credit. */
static void test_interrupt__ends_a_write_that_waits_for_credit(void **state)
{
	static const struct mock_options stuck = {
		.local_registration = true, .inflight_max = 1, .delay_max = UINT32_MAX};
	const void *data[RIG_TENSORS];
	uint64_t began;
	pthread_t thread;
	weft_error error = WEFT_ERROR_INIT;
	struct rig *rig;

	(void)state;
	trainer_options = &stuck;
	rig = open_rig(NULL);
	trainer_options = &strict;
	for (uint32_t t = 0; t < RIG_TENSORS; t++)
		data[t] = rig->tensors[t];
	rig_wait_begin(rig, 1, 0);
	rig_ok(weft_update_begin(rig->trainers[0], 1, &error), &error);
	began = clock_ms();
	pthread_create(&thread, NULL, interrupt_soon, rig->trainers[0]);
	assert_int_equal(host_write_all(rig->trainers[0], data, &error), -WEFT_E_INTERRUPTED);
	assert_true(clock_ms() - began < 2000); /* and not the 5 s of an update's wait */
	pthread_join(thread, NULL);
	for (uint32_t i = 0; i < jobs.ranks; i++) {
		pthread_join(rig->waits[i].thread, NULL);
		assert_true(rig->waits[i].rc < 0);
	}
	close_rig(rig);
}

/* A host that was built against an older header passes a shorter struct: what lies behind it is not
 * looked at. */
static void test_open__reads_no_more_of_the_options_than_there_are(void **state)
{
	weft_options given = {.size = sizeof(given),
			      .role = WEFT_TRAINER,
			      .controller = "tcp://127.0.0.1:9",
			      .nic = "mlx5_0"};
	weft_worker *worker = NULL;
	weft_error error = WEFT_ERROR_INIT;
	char nic[300];

	(void)state;
	assert_int_equal(weft_open(&worker, &given, &error), -WEFT_E_CONFIG);
	assert_non_null(strstr(error.text, "mlx5_0"));
	assert_non_null(strstr(error.text, "shm"));
	given.size = offsetof(weft_options, nic);
	given.nic = (const char *)1;
	rig_ok(weft_open(&worker, &given, &error), &error);
	weft_close(&worker);
	memset(nic, 'n', sizeof(nic));
	nic[sizeof(nic) - 1] = 0;
	given.size = sizeof(given);
	given.nic = nic;
	assert_int_equal(weft_open(&worker, &given, &error), -WEFT_E_LIMIT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sources__that_are_not_registered_go_through_the_ring),
		cmocka_unit_test(test_sources__that_are_registered_are_written_as_they_lie),
		cmocka_unit_test(test_sources__may_be_many_ranges),
		cmocka_unit_test(
			test_sources__outside_of_what_was_registered_are_refused_and_nothing_sent),
		cmocka_unit_test(test_sources__that_overlap_or_come_late_are_refused),
		cmocka_unit_test(test_interrupt__ends_a_write_that_waits_for_credit),
		cmocka_unit_test(test_open__reads_no_more_of_the_options_than_there_are),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

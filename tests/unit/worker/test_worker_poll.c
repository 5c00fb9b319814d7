/* SPDX-License-Identifier: Apache-2.0
 *
 * A worker in an event loop: the descriptor, and begin and wait without blocking.
 */
#include "tests/unit/worker/worker_rig.h"

#include <fcntl.h>
#include <poll.h>

static const struct rig_options plain = {.trainers = 2, .ranks = 2, .update_timeout_ms = 10000};
/* Long enough for an update on a busy host, and its end is waited for. */
static const struct rig_options hasty = {.trainers = 1, .ranks = 1, .update_timeout_ms = 1000};

static int descriptor_of(weft_worker *worker)
{
	weft_error error = WEFT_ERROR_INIT;
	int descriptor = -1, again = -1;

	rig_ok(weft_descriptor(worker, &descriptor, &error), &error);
	rig_ok(weft_descriptor(worker, &again, &error), &error);
	assert_true(descriptor >= 0);
	assert_int_equal(descriptor, again);
	return descriptor;
}

static bool readable(int descriptor, int timeout_ms)
{
	struct pollfd fd = {.fd = descriptor, .events = POLLIN};

	return poll(&fd, 1, timeout_ms) == 1 && fd.revents == POLLIN;
}

/* Reads away what there is at first. */
static void settle(weft_worker *worker, int descriptor)
{
	weft_error error = WEFT_ERROR_INIT;

	do
		rig_ok(weft_poll(worker, &error), &error);
	while (readable(descriptor, 20));
}

/* One thread, one poll, every worker of the job: nobody is ever inside a call that waits. */
struct loop {
	struct rig *rig;
	struct pollfd fds[4];
	uint32_t open; /* trainers that have begun and ended, ranks that have published */
	uint32_t wakes;
	bool done[4];
};

static void loop_step(struct loop *loop, uint32_t i, uint64_t version)
{
	bool trains = i < 2;
	weft_worker *worker = trains ? loop->rig->trainers[i] : loop->rig->ranks[i - 2];
	const void *data[RIG_TENSORS] = {loop->rig->tensors[0], loop->rig->tensors[1],
					 loop->rig->tensors[2]};
	weft_error error = WEFT_ERROR_INIT;
	uint64_t published = 0, began = clock_ms();
	int rc = trains ? weft_update_try_begin(worker, version, &error)
			: weft_update_try_wait(worker, version, 0, &published, &error);

	assert_true(clock_ms() - began < 5000); /* not its timeout */
	if (rc == WEFT_AGAIN)
		return;
	rig_ok(rc, &error);
	if (trains) {
		rig_ok(host_write_all(worker, data, &error), &error);
		rig_ok(weft_update_end(worker, &error), &error);
	} else {
		assert_int_equal(published, version);
	}
	loop->done[i] = true;
	loop->open--;
}

static void test_loop__moves_versions_with_one_thread_for_all(void **state)
{
	struct loop loop = {.rig = rig_new(&plain)};

	(void)state;
	for (uint32_t i = 0; i < 4; i++)
		loop.fds[i] = (struct pollfd){
			.fd = descriptor_of(i < 2 ? loop.rig->trainers[i] : loop.rig->ranks[i - 2]),
			.events = POLLIN};
	for (uint64_t version = 1; version <= 20; version++) {
		rig_fill(loop.rig, version);
		memset(loop.done, 0, sizeof(loop.done));
		loop.open = 4;
		for (uint32_t i = 0; i < 4; i++) /* starts what the descriptors then tell about */
			loop_step(&loop, i, version);
		while (loop.open) {
			assert_true(poll(loop.fds, 4, 10000) > 0);
			loop.wakes++;
			for (uint32_t i = 0; i < 4; i++)
				if (loop.fds[i].revents && !loop.done[i])
					loop_step(&loop, i, version);
				else if (loop.fds[i].revents)
					weft_poll(i < 2 ? loop.rig->trainers[i]
							: loop.rig->ranks[i - 2],
						  NULL);
		}
		for (uint32_t i = 0; i < 2; i++)
			rig_check(loop.rig, i, version);
	}
	assert_true(loop.wakes < 20 * 100); /* it slept in between */
	rig_free(loop.rig);
}

static void test_try__after_its_time_names_who_is_missing(void **state)
{
	struct rig *rig = rig_new(&hasty);
	weft_worker *workers[2] = {rig->trainers[0], rig->ranks[0]};
	weft_error error = WEFT_ERROR_INIT;

	(void)state;
	for (int i = 0; i < 2; i++) {
		int descriptor = descriptor_of(workers[i]), rc = WEFT_AGAIN;
		uint64_t began = clock_ms();

		while (rc == WEFT_AGAIN) {
			rc = i ? weft_update_try_wait(workers[i], 2, 0, NULL, &error)
			       : weft_update_try_begin(workers[i], 1, &error);
			if (rc == WEFT_AGAIN)
				assert_true(readable(descriptor, 10000)); /* at the deadline */
		}
		assert_int_equal(rc, -WEFT_E_TIMEOUT);
		assert_non_null(strstr(error.text, i ? "trainer 0" : "inference 0"));
		assert_in_range(clock_ms() - began, hasty.update_timeout_ms, 10000);
	}
	rig_free(rig);
}

static void test_try__after_its_time_takes_what_had_come(void **state)
{
	struct rig *rig = rig_new(&hasty);
	const void *data[RIG_TENSORS] = {rig->tensors[0], rig->tensors[1], rig->tensors[2]};
	weft_error error = WEFT_ERROR_INIT;
	uint64_t published = 0;

	(void)state;
	rig_fill(rig, 1);
	assert_int_equal(weft_update_try_wait(rig->ranks[0], 1, 0, NULL, &error), WEFT_AGAIN);
	rig_ok(weft_update_begin(rig->trainers[0], 1, &error), &error);
	rig_ok(host_write_all(rig->trainers[0], data, &error), &error);
	rig_ok(weft_update_end(rig->trainers[0], &error), &error);
	clock_sleep_ms(hasty.update_timeout_ms +
		       50); /* the host was busy beyond the timeout; the version was not late */
	rig_ok(weft_update_try_wait(rig->ranks[0], 1, 0, &published, &error), &error);
	assert_int_equal(published, 1);
	rig_check(rig, 0, 1);
	rig_free(rig);
}

static void test_try__may_be_taken_over_by_a_call_that_waits(void **state)
{
	struct rig *rig = rig_new(&plain);
	weft_error error = WEFT_ERROR_INIT;

	(void)state;
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(weft_update_try_wait(rig->ranks[i], 1, 0, NULL, &error),
				 WEFT_AGAIN);
		assert_int_equal(weft_update_try_begin(rig->trainers[i], 9, &error), WEFT_AGAIN);
	}
	rig_update(rig, 1);
	rig_update(rig, 2);
	rig_free(rig);
}

static void test_descriptor__tells_of_a_version_that_another_call_published(void **state)
{
	struct rig *rig = rig_new(&plain);
	int descriptor = descriptor_of(rig->ranks[0]);

	(void)state;
	assert_true(readable(descriptor, 0)); /* whatever came before it was asked for */
	settle(rig->ranks[0], descriptor);
	assert_false(readable(descriptor, 100));
	rig_update(rig, 1);
	assert_true(readable(descriptor, 0));
	assert_true(readable(descriptor, 0)); /* until somebody looks */
	settle(rig->ranks[0], descriptor);
	assert_false(readable(descriptor, 100));
	rig_free(rig);
}

static void test_descriptor__tells_of_a_failed_job_and_of_an_interrupt(void **state)
{
	struct rig *rig = rig_new(&plain);
	int lost = descriptor_of(rig->ranks[0]), interrupted = descriptor_of(rig->ranks[1]);
	weft_error error = WEFT_ERROR_INIT;

	(void)state;
	settle(rig->ranks[0], lost);
	settle(rig->ranks[1], interrupted);
	weft_interrupt(rig->ranks[1]);
	assert_true(readable(interrupted, 0));
	assert_int_equal(weft_poll(rig->ranks[1], &error), -WEFT_E_INTERRUPTED);
	assert_int_equal(weft_update_try_wait(rig->ranks[1], 1, 0, NULL, &error),
			 -WEFT_E_INTERRUPTED);
	weft_close(&rig->ranks[1]);
	assert_int_equal(fcntl(interrupted, F_GETFD), -1); /* closed with its worker */
	assert_true(readable(lost, 10000));
	assert_int_equal(weft_poll(rig->ranks[0], &error), -WEFT_E_PEER_LOST);
	assert_non_null(strstr(error.text, "inference 1"));
	rig_free(rig);
}

static void test_try__of_a_job_that_fails_leaves_the_rank_tainted(void **state)
{
	struct rig *rig = rig_new(&plain);
	int descriptor = descriptor_of(rig->ranks[0]);
	weft_error error = WEFT_ERROR_INIT;
	int rc;

	(void)state;
	rig_update(rig, 1);
	settle(rig->ranks[0], descriptor);
	for (uint32_t i = 0; i < 3; i++) /* both are there, and know it */
		assert_int_equal(weft_update_try_wait(rig->ranks[i % 2], 2, 0, NULL, &error),
				 WEFT_AGAIN);
	assert_int_equal(weft_tainted(rig->ranks[0]), 0);
	rig_ok(weft_fail(rig->trainers[0], 0, "out of memory", &error), &error);
	while ((rc = weft_update_try_wait(rig->ranks[0], 2, 0, NULL, &error)) == WEFT_AGAIN)
		assert_true(readable(descriptor, 10000));
	assert_int_equal(rc, -WEFT_E_HOST);
	assert_int_equal(weft_tainted(rig->ranks[0]), 1);
	rig_free(rig);
}

static void test_calls__of_the_wrong_worker_or_time_are_refused(void **state)
{
	struct rig *rig = rig_new(&hasty);
	weft_options options = {
		.size = sizeof(options), .controller = "tcp://127.0.0.1:9", .role = WEFT_TRAINER};
	weft_error error = WEFT_ERROR_INIT;
	weft_worker *worker;
	int descriptor;

	(void)state;
	assert_int_equal(weft_descriptor(NULL, &descriptor, &error), -WEFT_E_USAGE);
	assert_int_equal(weft_descriptor(rig->ranks[0], NULL, &error), -WEFT_E_USAGE);
	assert_int_equal(weft_update_try_begin(rig->ranks[0], 1, &error), -WEFT_E_STATE);
	assert_int_equal(weft_update_try_wait(rig->trainers[0], 1, 0, NULL, &error), -WEFT_E_STATE);
	assert_int_equal(weft_poll(NULL, &error), -WEFT_E_USAGE);
	rig_ok(weft_poll(rig->ranks[0], &error), &error); /* also without a descriptor */
	rig_ok(weft_open(&worker, &options, &error), &error);
	assert_int_equal(weft_descriptor(worker, &descriptor, &error), -WEFT_E_STATE);
	weft_close(&worker);
	rig_free(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_loop__moves_versions_with_one_thread_for_all),
		cmocka_unit_test(test_try__after_its_time_names_who_is_missing),
		cmocka_unit_test(test_try__after_its_time_takes_what_had_come),
		cmocka_unit_test(test_try__may_be_taken_over_by_a_call_that_waits),
		cmocka_unit_test(test_descriptor__tells_of_a_version_that_another_call_published),
		cmocka_unit_test(test_descriptor__tells_of_a_failed_job_and_of_an_interrupt),
		cmocka_unit_test(test_try__of_a_job_that_fails_leaves_the_rank_tainted),
		cmocka_unit_test(test_calls__of_the_wrong_worker_or_time_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

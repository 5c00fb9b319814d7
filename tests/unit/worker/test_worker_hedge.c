/* SPDX-License-Identifier: Apache-2.0
 *
 * Two trainers that hold the same, of which one is late, and real ranks: what each call of the late one, of the one that stands in
 * for it, and of the ranks does, whoever comes first.
 */
#include "tests/unit/worker/worker_rig.h"
#include "worker/api/worker.h"

enum { STAND_IN, LATE };

static const struct rig_options hedge = {
	.trainers = 2, .ranks = 2, .transport = "shm", .commit = "engine", .hedge_ms = 50};

/* The stand-in's whole update; it returns when nothing more is asked of it. */
static void stand_in(struct rig *rig, uint64_t version)
{
	rig_send(rig, STAND_IN, version);
}

static void show_without(struct rig *rig, uint64_t version)
{
	rig_fill(rig, version);
	rig_wait_begin(rig, version, 0);
	stand_in(rig, version);
	rig_wait_end(rig, 0);
	for (uint32_t rank = 0; rank < 2; rank++)
		rig_check(rig, rank, version);
}

static uint64_t seconds_of(uint64_t began_ns)
{
	return (clock_ns() - began_ns) / 1000000000u;
}

static void test_version__is_shown_without_who_is_late_and_holds_nobody_up(void **state)
{
	static const char *const transports[] = {"shm", "tcp"};

	(void)state;
	for (int i = 0; i < 4; i++) {
		struct rig_options options = hedge;
		struct rig *rig;
		uint64_t began;

		options.transport = transports[i % 2];
		options.shadow = i / 2;
		rig = rig_new(&options);
		rig_update(rig, 1);
		show_without(rig, 2);
		/* no rank waits for anything now, and the late one ends all the same */
		began = clock_ns();
		rig_send(rig, LATE, 2);
		assert_true(seconds_of(began) < 2);
		for (uint32_t rank = 0; rank < 2; rank++)
			rig_check(rig, rank, 2);
		rig_update(rig, 3);
		rig_free(rig);
	}
}

static void test_ranks__open_for_no_other_version_before_who_is_late_has_ended(void **state)
{
	struct rig *rig = rig_new(&hedge);

	(void)state;
	show_without(rig, 1);
	rig_wait_begin(rig, 2, 300);
	rig_wait_end(rig, -WEFT_E_TIMEOUT);
	assert_non_null(strstr(rig->waits[0].error.text, "trainer 1"));
	assert_non_null(strstr(rig->waits[0].error.text, "has yet to end update 1, which another"));
	for (uint32_t rank = 0; rank < 2; rank++)
		rig_check(rig, rank, 1);
	rig_send(rig, LATE, 1);
	rig_update(rig, 2);
	rig_free(rig);
}

static void *late_thread(void *context)
{
	rig_send(context, LATE, 2);
	return NULL;
}

/* It comes back to a version that nobody waits for. */
static void test_late__that_leaves_the_version_out_gives_its_permission_back(void **state)
{
	struct rig *rig = rig_new(&hedge);
	pthread_t thread;

	(void)state;
	show_without(rig, 1);
	rig_fill(rig, 2);
	rig_wait_begin(rig, 2, 0);
	pthread_create(&thread, NULL, late_thread, rig);
	stand_in(rig, 2);
	pthread_join(thread, NULL);
	rig_wait_end(rig, 0);
	for (uint32_t rank = 0; rank < 2; rank++)
		rig_check(rig, rank, 2);
	rig_update(rig, 3);
	rig_free(rig);
}

static void test_late__that_gives_the_version_up_changes_nothing(void **state)
{
	struct rig *rig = rig_new(&hedge);
	weft_error error = WEFT_ERROR_INIT;

	(void)state;
	show_without(rig, 1);
	rig_ok(weft_update_begin(rig->trainers[LATE], 1, &error), &error);
	rig_ok(weft_update_abort(rig->trainers[LATE], "no reason", &error), &error);
	rig_update(rig, 2);
	rig_free(rig);
}

/* It had its permission before, and writes other bytes into what is shown. */
static void test_late__that_holds_other_bytes_is_found(void **state)
{
	struct rig_options options = hedge;
	const void *data[RIG_TENSORS];
	weft_error error = WEFT_ERROR_INIT;
	struct rig *rig;
	int differ = 0;

	(void)state;
	options.replica = "ring";
	rig = rig_new(&options);
	rig_fill(rig, 1);
	rig_wait_begin(rig, 1, 0);
	rig_ok(weft_update_begin(rig->trainers[LATE], 1, &error), &error);
	stand_in(rig, 1);
	rig_wait_end(rig, 0);
	memset(rig->own[3], 0x55, sizeof(rig->own[3])); /* no rank's */
	for (uint32_t t = 0; t < RIG_TENSORS; t++)
		data[t] = rig->own[3][t];
	rig_ok(host_write_all(rig->trainers[LATE], data, &error), &error);
	rig_ok(weft_update_end(rig->trainers[LATE], &error), &error);
	for (uint32_t rank = 0; rank < 2; rank++) {
		const unsigned char *n = weft_param_memory(rig->ranks[rank], 1, 1);

		for (uint32_t i = 0; i < 16; i++)
			differ |= n[i] == 0x55;
	}
	if (differ) { /* what it maps it may store in the midst of being spared */
		rig_wait_begin(rig, 2, 300);
		for (uint32_t rank = 0; rank < 2; rank++)
			pthread_join(rig->waits[rank].thread, NULL);
		assert_true(rig->waits[0].rc == -WEFT_E_CHECKSUM ||
			    rig->waits[1].rc == -WEFT_E_CHECKSUM);
	}
	rig_free(rig);
}

static void send_other_bytes(struct rig *rig, uint32_t trainer, uint64_t version)
{
	weft_worker *worker = rig->trainers[trainer];
	const void *data[RIG_TENSORS];
	weft_error error = WEFT_ERROR_INIT;

	memset(rig->own[3], 0x55, sizeof(rig->own[3])); /* no rank's */
	for (uint32_t t = 0; t < RIG_TENSORS; t++)
		data[t] = rig->own[3][t];
	rig_ok(weft_update_begin(worker, version, &error), &error);
	rig_ok(host_write_all(worker, data, &error), &error);
	rig_ok(weft_update_end(worker, &error), &error);
}

static void *stand_in_thread(void *context)
{
	stand_in(context, 2);
	return NULL;
}

static void test_stand_in__that_is_interrupted_while_it_waits_has_ended(void **state)
{
	struct rig_options options = hedge;
	weft_error error = WEFT_ERROR_INIT;
	pthread_t thread;
	struct rig *rig;

	(void)state;
	options.hedge_ms = 1500;
	rig = rig_new(&options);
	rig_update(rig, 1);
	rig_fill(rig, 2);
	rig_wait_begin(rig, 2, 0);
	pthread_create(&thread, NULL, stand_in_thread, rig);
	clock_sleep_ms(200);
	weft_interrupt(rig->trainers[STAND_IN]);
	pthread_join(thread, NULL);
	weft_interrupt_clear(rig->trainers[STAND_IN]);
	rig_send(rig, LATE, 2);
	rig_wait_end(rig, 0);
	rig_update(rig, 3);
	rig_ok(weft_leave(rig->trainers[STAND_IN], &error), &error);
	rig_free(rig);
}

/* It was asked, and begins nothing of it: of the next version it does. */
static void test_stand_in__that_is_interrupted_as_it_is_asked_stands_in_again(void **state)
{
	struct rig_options options = hedge;
	struct sender *sender;
	pthread_t thread;
	struct rig *rig;

	(void)state;
	options.hedge_ms = 300;
	rig = rig_new(&options);
	sender = &rig->trainers[STAND_IN]->sender;
	rig_update(rig, 1);
	rig_fill(rig, 2);
	rig_wait_begin(rig, 2, 0);
	pthread_create(&thread, NULL, stand_in_thread, rig);
	pthread_mutex_lock(&sender->lock);
	while (sender->ended != 2) {
		pthread_mutex_unlock(&sender->lock);
		clock_sleep_ms(1);
		pthread_mutex_lock(&sender->lock);
	}
	clock_sleep_ms(900); /* it stands by, and cannot look */
	weft_interrupt(rig->trainers[STAND_IN]);
	pthread_mutex_unlock(&sender->lock);
	pthread_join(thread, NULL);
	weft_interrupt_clear(rig->trainers[STAND_IN]);
	rig_send(rig, LATE, 2);
	rig_wait_end(rig, 0);
	show_without(rig, 3);
	rig_send(rig, LATE, 3);
	rig_update(rig, 4);
	rig_free(rig);
}

/* It was asked, and writes when the late one has ended after all, and that is shown. */
static void test_stand_in__that_holds_other_bytes_is_found(void **state)
{
	struct rig *rig = rig_new(&hedge);
	pthread_mutex_t *lock = &rig->trainers[STAND_IN]->stand_in.sender.lock;
	pthread_t thread;
	int wrong = 0;

	(void)state;
	rig_update(rig, 1);
	rig_fill(rig, 2);
	rig_wait_begin(rig, 2, 0);
	pthread_mutex_lock(lock);
	pthread_create(&thread, NULL, stand_in_thread, rig);
	clock_sleep_ms(500);
	send_other_bytes(rig, LATE, 2);
	rig_wait_end(rig, 0);
	pthread_mutex_unlock(lock); /* what it maps it stores before it hears that it need not */
	pthread_join(thread, NULL);
	rig_wait_begin(rig, 3, 300);
	for (uint32_t rank = 0; rank < 2; rank++) {
		pthread_join(rig->waits[rank].thread, NULL);
		wrong += rig->waits[rank].rc == -WEFT_E_CHECKSUM;
	}
	assert_true(wrong);
	rig_free(rig);
}

/* What it was asked for in vain it hands back. */
static void test_stand_in__that_has_drained_stands_in_for_nobody(void **state)
{
	const void *data[RIG_TENSORS];
	struct rig *rig = rig_new(&hedge);
	weft_worker *worker = rig->trainers[STAND_IN];
	weft_error error = WEFT_ERROR_INIT;

	(void)state;
	for (uint32_t t = 0; t < RIG_TENSORS; t++)
		data[t] = rig->tensors[t];
	rig_fill(rig, 1);
	rig_wait_begin(rig, 1, 0);
	rig_ok(weft_update_begin(worker, 1, &error), &error);
	rig_ok(host_write_all(worker, data, &error), &error);
	rig_ok(weft_update_drain(worker, &error), &error);
	rig_ok(weft_update_end(worker, &error), &error);
	clock_sleep_ms(100);
	assert_int_equal(weft_published(rig->ranks[0]), 0);
	rig_send(rig, LATE, 1);
	rig_wait_end(rig, 0);
	for (uint32_t rank = 0; rank < 2; rank++)
		rig_check(rig, rank, 1);
	rig_update(rig, 2);
	rig_free(rig);
}

/* It leaves its memory to nobody who may write. */
static void test_rank__leaves_when_who_is_late_has_ended(void **state)
{
	struct rig *rig = rig_new(&hedge);
	weft_error error = WEFT_ERROR_INIT;
	uint64_t began;

	(void)state;
	show_without(rig, 1);
	rig_send(rig, LATE, 1);
	began = clock_ns();
	for (uint32_t rank = 0; rank < 2; rank++)
		rig_ok(weft_leave(rig->ranks[rank], &error), &error);
	assert_true(seconds_of(began) < 2);
	rig_free(rig);
	rig = rig_new(&(struct rig_options){.trainers = 2,
					    .ranks = 2,
					    .transport = "shm",
					    .commit = "engine",
					    .hedge_ms = 50,
					    .update_timeout_ms = 300});
	show_without(rig, 1);
	assert_int_equal(weft_leave(rig->ranks[0], &error), -WEFT_E_TIMEOUT);
	assert_non_null(strstr(error.text, "has yet to end update 1"));
	rig_free(rig);
}

static void test_try_wait__tells_trainers_what_they_wait_for(void **state)
{
	struct rig *rig = rig_new(&(struct rig_options){
		.trainers = 2, .ranks = 2, .transport = "tcp", .commit = "engine", .hedge_ms = 50});
	uint64_t published[2] = {0}, began = clock_ns();
	weft_error error = WEFT_ERROR_INIT;
	pthread_t thread;
	int rc[2] = {WEFT_AGAIN, WEFT_AGAIN};

	(void)state;
	rig_update(rig, 1);
	rig_fill(rig, 2);
	pthread_create(&thread, NULL, stand_in_thread, rig);
	while ((rc[0] == WEFT_AGAIN || rc[1] == WEFT_AGAIN) && seconds_of(began) < 4) {
		for (uint32_t rank = 0; rank < 2; rank++)
			if (rc[rank] == WEFT_AGAIN)
				rc[rank] = weft_update_try_wait(rig->ranks[rank], 2, 0,
								&published[rank], &error);
		clock_sleep_ms(1);
	}
	pthread_join(thread, NULL);
	assert_int_equal(rc[0] | rc[1], 0);
	for (uint32_t rank = 0; rank < 2; rank++)
		rig_check(rig, rank, 2);
	rig_send(rig, LATE, 2);
	rig_update(rig, 3);
	rig_free(rig);
}

/* However often it is tried: the first one's clock counts. */
static void test_try_wait__names_who_is_late_when_its_time_is_over(void **state)
{
	struct rig *rig = rig_new(&hedge);
	weft_error error = WEFT_ERROR_INIT;
	uint64_t published, began = clock_ns();
	int rc;

	(void)state;
	show_without(rig, 1);
	do {
		rc = weft_update_try_wait(rig->ranks[0], 2, 300, &published, &error);
		clock_sleep_ms(1);
	} while (rc == WEFT_AGAIN && seconds_of(began) < 4);
	assert_int_equal(rc, -WEFT_E_TIMEOUT);
	assert_non_null(strstr(error.text, "has yet to end update 1"));
	rig_send(rig, LATE, 1);
	rig_update(rig, 2);
	rig_free(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_version__is_shown_without_who_is_late_and_holds_nobody_up),
		cmocka_unit_test(
			test_ranks__open_for_no_other_version_before_who_is_late_has_ended),
		cmocka_unit_test(test_late__that_leaves_the_version_out_gives_its_permission_back),
		cmocka_unit_test(test_late__that_gives_the_version_up_changes_nothing),
		cmocka_unit_test(test_late__that_holds_other_bytes_is_found),
		cmocka_unit_test(test_stand_in__that_is_interrupted_while_it_waits_has_ended),
		cmocka_unit_test(test_stand_in__that_is_interrupted_as_it_is_asked_stands_in_again),
		cmocka_unit_test(test_stand_in__that_holds_other_bytes_is_found),
		cmocka_unit_test(test_stand_in__that_has_drained_stands_in_for_nobody),
		cmocka_unit_test(test_rank__leaves_when_who_is_late_has_ended),
		cmocka_unit_test(test_try_wait__tells_trainers_what_they_wait_for),
		cmocka_unit_test(test_try_wait__names_who_is_late_when_its_time_is_over),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole jobs inside one process: what an update, a version and a failure mean.
 */
#include "tests/unit/worker/worker_rig.h"

#include "base/memory.h"

#include <fcntl.h>
#include <stdatomic.h>

/* With these counts every trainer writes to every rank. */
static const struct rig_options plain = {.trainers = 3, .ranks = 2, .update_timeout_ms = 5000};

static void test_update__delivers_every_byte_in_every_way(void **state)
{
	static const struct rig_options rows[] = {
		{.trainers = 1, .ranks = 1},
		{.trainers = 2, .ranks = 2},
		{.trainers = 3, .ranks = 4, .checksums = 1},
		{.trainers = 2, .ranks = 2, .shadow = 1, .checksums = 1},
		{.trainers = 2, .ranks = 2, .own_memory = 1, .checksums = 1},
		{.trainers = 2, .ranks = 2, .own_memory = 1, .ring_bytes = 256},
		{.trainers = 2, .ranks = 2, .transport = "mock", .checksums = 1},
		{.trainers = 2, .ranks = 3, .transport = "mock", .ring_bytes = 256},
		{.trainers = 2, .ranks = 2, .transport = "mock", .shadow = 1},
		{.trainers = 3, .ranks = 3, .transport = "mock", .order = "rounds"},
		{.trainers = 2,
		 .ranks = 4,
		 .transport = "mock",
		 .order = "rounds",
		 .ring_bytes = 1},
		{.trainers = 2, .ranks = 3, .own_memory = 1, .order = "table", .ring_bytes = 1},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		bool mapped = !rows[i].own_memory && !rows[i].transport;
		weft_stats stats = WEFT_STATS_INIT, all = WEFT_STATS_INIT;
		struct rig *rig = rig_new(&rows[i]);

		for (uint64_t version = 1; version <= 4; version++)
			rig_update(rig, version * version);
		for (uint32_t t = 0; t < rows[i].trainers; t++) {
			weft_plan_view view = WEFT_PLAN_VIEW_INIT;

			assert_int_equal(weft_plan(rig->trainers[t], &view, NULL), 0);
			assert_string_equal(view.policy, "greedy");
			assert_string_equal(view.order, rows[i].order ? rows[i].order : "rotated");
			assert_int_equal(weft_get_stats(rig->trainers[t], &stats, NULL), 0);
			assert_int_equal(stats.updates, 4);
			all.pieces_direct += stats.pieces_direct;
			all.pieces_mapped += stats.pieces_mapped;
			all.pieces_replica += stats.pieces_replica;
		}
		/* one column piece a rank is strided, when the columns are cut at all */
		assert_int_equal(all.pieces_mapped,
				 mapped && rows[i].ranks > 1 ? 4 * rows[i].ranks : 0);
		assert_int_equal(all.pieces_replica,
				 !mapped && rows[i].ranks > 1 ? 4 * rows[i].ranks : 0);
		assert_int_equal(all.pieces_direct + all.pieces_mapped + all.pieces_replica,
				 4 * 3 * rows[i].ranks);
		rig_free(rig);
	}
}

static void test_update__writes_tensor_by_tensor_and_refuses_what_is_wrong(void **state)
{
	struct rig *rig = rig_new(&(struct rig_options){.trainers = 1, .ranks = 1});
	weft_worker *trainer = rig->trainers[0];
	weft_error error = WEFT_ERROR_INIT;

	(void)state;
	rig_fill(rig, 1);
	assert_int_equal(weft_update_write(trainer, 0, HOST(rig->tensors[0], 480), &error),
			 -WEFT_E_STATE);
	assert_int_equal(weft_update_end(trainer, &error), -WEFT_E_STATE);
	assert_int_equal(weft_update_wait(trainer, 1, 10, NULL, &error), -WEFT_E_STATE);
	assert_int_equal(weft_update_begin(rig->ranks[0], 1, &error), -WEFT_E_STATE);
	rig_wait_begin(rig, 1, 0);
	rig_ok(weft_update_begin(trainer, 1, &error), &error);
	assert_int_equal(weft_update_begin(trainer, 2, &error), -WEFT_E_STATE);
	assert_int_equal(weft_leave(trainer, &error), -WEFT_E_STATE);
	assert_int_equal(weft_update_write(trainer, 9, HOST(rig->tensors[0], 480), &error),
			 -WEFT_E_USAGE);
	assert_int_equal(weft_update_write(trainer, 0, HOST(rig->tensors[0], 479), &error),
			 -WEFT_E_USAGE);
	assert_int_equal(weft_update_write(trainer, 0, HOST(NULL, 480), &error), -WEFT_E_USAGE);
	rig_ok(weft_update_write(trainer, 0, HOST(rig->tensors[0], 480), &error), &error);
	assert_int_equal(weft_update_write(trainer, 0, HOST(rig->tensors[0], 480), &error),
			 -WEFT_E_USAGE);
	assert_non_null(strstr(error.text, "tensor q"));
	rig_ok(weft_update_write(trainer, 2, HOST(rig->tensors[2], 28), &error), &error);
	assert_int_equal(weft_update_end(trainer, &error), -WEFT_E_STATE);
	assert_non_null(strstr(error.text, "tensor o was not written (1 missing)"));
	rig_ok(weft_update_write(trainer, 1, HOST(rig->tensors[1], 480), &error), &error);
	rig_ok(weft_update_end(trainer, &error), &error);
	rig_wait_end(rig, 0);
	rig_check(rig, 0, 1);
	rig_free(rig);
}

static void test_version__repeated_skipped_and_older_have_their_answers(void **state)
{
	struct rig *rig = rig_new(&plain);
	weft_error error = WEFT_ERROR_INIT;
	uint64_t published = 0;

	(void)state;
	rig_update(rig, 3);
	rig_update(rig, 10);
	rig_ok(weft_update_wait(rig->ranks[0], 10, 10, &published, &error), &error);
	assert_int_equal(published, 10);
	assert_int_equal(weft_update_wait(rig->ranks[0], 9, 10, NULL, &error), -WEFT_E_VERSION);
	assert_int_equal(weft_update_begin(rig->trainers[0], 10, &error), -WEFT_E_VERSION);
	assert_int_equal(weft_update_begin(rig->trainers[0], 4, &error), -WEFT_E_VERSION);
	assert_non_null(strstr(error.text, "10"));
	/* nothing changed: the next one works, whatever it is called */
	rig_fill(rig, 11);
	rig_wait_begin(rig, WEFT_VERSION_NEXT, 0);
	rig_send(rig, 0, 11);
	rig_send(rig, 1, 11);
	rig_send(rig, 2, 11);
	rig_wait_end(rig, 0);
	assert_int_equal(rig->waits[1].published, 11);
	rig_check(rig, 0, 11);
	rig_free(rig);
}

static void test_version__two_different_ones_are_named_and_not_published(void **state)
{
	struct rig *rig = rig_new(&plain);
	char both[2][32];

	(void)state;
	rig_update(rig, 1);
	rig_fill(rig, 5);
	rig_wait_begin(rig, WEFT_VERSION_NEXT, 0);
	rig_send(rig, 0, 5);
	rig_send(rig, 1, 6);
	rig_wait_end(rig, -WEFT_E_VERSION);
	snprintf(both[0], sizeof(both[0]), "update 5");
	snprintf(both[1], sizeof(both[1]), "update 6");
	for (int i = 0; i < 2; i++)
		assert_non_null(strstr(rig->waits[0].error.text, both[i]));
	assert_int_equal(weft_published(rig->ranks[0]), 1);
	assert_int_equal(weft_tainted(rig->ranks[0]), 1);
	rig_update(rig, 7);
	assert_int_equal(weft_tainted(rig->ranks[0]), 0);
	rig_free(rig);
}

static void test_deadline__names_who_is_missing_and_the_update_can_still_come(void **state)
{
	struct rig *rig = rig_new(&plain);
	uint64_t version;

	(void)state;
	rig_fill(rig, 12);
	rig_wait_begin(rig, 12, 400);
	rig_send(rig, 0, 12);
	rig_send(rig, 2, 12);
	rig_wait_end(rig, -WEFT_E_TIMEOUT);
	for (uint32_t i = 0; i < 2; i++) {
		const char *text = rig->waits[i].error.text;

		assert_non_null(strstr(text, "update 12: no signal from trainer 1 (host "));
		assert_non_null(strstr(text, "for 0.4 s; 2 of 3 trainers done; raise the update "
					     "timeout (--update-timeout) if this is expected"));
		assert_int_equal(weft_tainted(rig->ranks[i]), 1);
		assert_int_equal(weft_read_begin(rig->ranks[i], &version), WEFT_NONE);
	}
	rig_wait_begin(rig, 12, 0);
	rig_send(rig, 1, 12);
	rig_wait_end(rig, 0);
	rig_check(rig, 0, 12);
	rig_check(rig, 1, 12);
	rig_update(rig, 13);
	rig_free(rig);
}

static void test_deadline__a_late_trainer_is_no_part_of_a_later_version(void **state)
{
	struct rig *rig = rig_new(&plain);
	const void *data[RIG_TENSORS] = {rig->tensors[0], rig->tensors[1], rig->tensors[2]};
	weft_error error = WEFT_ERROR_INIT;

	(void)state;
	/* trainer 1 is inside version 1 when its targets give up and open for 2 */
	rig_fill(rig, 1);
	rig_wait_begin(rig, 1, 300);
	rig_send(rig, 0, 1);
	rig_send(rig, 2, 1);
	rig_ok(weft_update_begin(rig->trainers[1], 1, &error), &error);
	rig_wait_end(rig, -WEFT_E_TIMEOUT);
	rig_wait_begin(rig, 2, 3000);
	rig_ok(host_write_all(rig->trainers[1], data, &error), &error);
	rig_ok(weft_update_end(rig->trainers[1], &error), &error);
	rig_fill(rig, 2);
	rig_send(rig, 0, 2);
	rig_send(rig, 2, 2);
	clock_sleep_ms(100);
	assert_int_equal(weft_published(rig->ranks[0]), 0);
	rig_send(rig, 1, 2);
	rig_wait_end(rig, 0);
	rig_check(rig, 0, 2);
	rig_check(rig, 1, 2);
	rig_free(rig);
}

static void test_deadline__of_begin_names_targets_and_what_they_accept(void **state)
{
	struct rig_options options = plain;
	struct rig *rig;
	weft_error error = WEFT_ERROR_INIT;

	(void)state;
	options.update_timeout_ms = 300;
	rig = rig_new(&options);
	assert_int_equal(weft_update_begin(rig->trainers[0], 1, &error), -WEFT_E_TIMEOUT);
	assert_non_null(
		strstr(error.text, "update 1: not accepted for 0.3 s by inference 0 (host "));
	assert_non_null(strstr(error.text, "0 of 2 targets accept"));
	rig_wait_begin(rig, 4, 2000);
	assert_int_equal(weft_update_begin(rig->trainers[0], 5, &error), -WEFT_E_TIMEOUT);
	assert_non_null(strstr(error.text, "accepts version 4 instead"));
	assert_int_equal(weft_update_begin(rig->trainers[0], 3, &error), -WEFT_E_VERSION);
	rig_fill(rig, 4);
	rig_send(rig, 0, 4);
	rig_send(rig, 1, 4);
	rig_send(rig, 2, 4);
	rig_wait_end(rig, 0);
	rig_check(rig, 1, 4);
	rig_free(rig);
}

static void test_abort__reaches_the_targets_and_a_later_update_recovers(void **state)
{
	struct rig *rig = rig_new(&plain);
	weft_error error = WEFT_ERROR_INIT;

	(void)state;
	rig_update(rig, 1);
	rig_fill(rig, 2);
	rig_wait_begin(rig, 2, 0);
	rig_send(rig, 0, 2);
	rig_send(rig, 2, 2);
	rig_ok(weft_update_begin(rig->trainers[1], 2, &error), &error);
	rig_ok(weft_update_write(rig->trainers[1], 0, HOST(rig->tensors[0], 480), &error), &error);
	rig_ok(weft_update_abort(rig->trainers[1], "the loss is not a number", &error), &error);
	rig_wait_end(rig, -WEFT_E_ABORTED);
	assert_non_null(strstr(rig->waits[0].error.text, "update 2 was given up by trainer 1"));
	assert_non_null(strstr(rig->waits[0].error.text, "the loss is not a number"));
	assert_int_equal(weft_tainted(rig->ranks[0]), 1);
	assert_int_equal(weft_update_wait(rig->ranks[0], 2, 10, NULL, &error), -WEFT_E_VERSION);
	assert_int_equal(weft_update_wait(rig->ranks[0], 1, 10, NULL, &error), -WEFT_E_VERSION);
	rig_update(rig, 3);
	assert_int_equal(weft_tainted(rig->ranks[0]), 0);
	rig_free(rig);
}

static void test_checksum__finds_a_flipped_byte_and_names_the_tensor(void **state)
{
	struct rig_options options = plain;
	struct rig *rig;
	const void *data[RIG_TENSORS];
	weft_error error = WEFT_ERROR_INIT;
	uint64_t version;

	(void)state;
	options.checksums = 1;
	for (int shadow = 0; shadow < 2; shadow++) {
		unsigned char *memory;

		options.shadow = shadow;
		rig = rig_new(&options);
		for (uint32_t t = 0; t < RIG_TENSORS; t++)
			data[t] = rig->tensors[t];
		rig_update(rig, 1);
		rig_update(rig, 2); /* with shadow, version 3 goes where 1 is */
		memory = (void *)(uintptr_t)weft_param_memory(rig->ranks[0], 1, 2);
		assert_ptr_equal(weft_param_memory(rig->ranks[0], 1, 0), shadow ? NULL : memory);
		rig_fill(rig, 3);
		rig_wait_begin(rig, 3, 0);
		for (uint32_t t = 0; t < options.trainers; t++) {
			rig_ok(weft_update_begin(rig->trainers[t], 3, &error), &error);
			rig_ok(host_write_all(rig->trainers[t], data, &error), &error);
		}
		if (!shadow)
			memory[17] ^= 4;
		for (uint32_t t = 0; t < options.trainers; t++)
			rig_ok(weft_update_end(rig->trainers[t], &error), &error);
		pthread_join(rig->waits[0].thread, NULL);
		pthread_join(rig->waits[1].thread, NULL);
		assert_int_equal(rig->waits[1].rc, 0);
		assert_int_equal(rig->waits[0].rc, shadow ? 0 : -WEFT_E_CHECKSUM);
		if (!shadow) {
			assert_non_null(strstr(rig->waits[0].error.text,
					       "update 3: tensor o from trainer"));
			assert_non_null(
				strstr(rig->waits[0].error.text, "parameter p.o, bytes 0..240"));
			assert_int_equal(weft_published(rig->ranks[0]), 2);
			assert_int_equal(weft_tainted(rig->ranks[0]), 1);
			assert_int_equal(weft_read_begin(rig->ranks[0], &version), WEFT_NONE);
			assert_null(weft_param_memory(rig->ranks[0], 1, 2));
		}
		rig_update(rig, 4);
		assert_int_equal(weft_tainted(rig->ranks[0]), 0);
		rig_free(rig);
	}
}

static void test_shadow__a_failed_update_leaves_the_last_version_readable(void **state)
{
	struct rig_options options = plain;
	weft_error error = WEFT_ERROR_INIT;
	struct rig *rig;

	(void)state;
	options.shadow = 1;
	rig = rig_new(&options);
	rig_update(rig, 1);
	rig_fill(rig, 2);
	rig_wait_begin(rig, 2, 0);
	rig_send(rig, 0, 2);
	rig_send(rig, 2, 2);
	rig_ok(weft_update_begin(rig->trainers[1], 2, &error), &error);
	rig_ok(weft_update_abort(rig->trainers[1], NULL, &error), &error);
	rig_wait_end(rig, -WEFT_E_ABORTED);
	assert_int_equal(weft_tainted(rig->ranks[0]), 0);
	rig_check(rig, 0, 1);
	rig_check(rig, 1, 1);
	rig_update(rig, 3);
	rig_free(rig);
}

struct reading {
	struct rig *rig;
	_Atomic bool stop;
	uint64_t whole, torn, none, wrong;
};

/* The peers' stores into these bytes are no data race that a thread sanitizer should see: the
 * bracket says afterwards whether what was read is of one version. */
__attribute__((no_sanitize("thread"))) static bool of_version(const volatile unsigned char *bytes,
							      uint64_t version)
{
	for (uint64_t i = 0; i < 28; i++)
		if (bytes[i] != rig_byte(version, 2, i))
			return false;
	return true;
}

static void *read_all_the_time(void *context)
{
	struct reading *reading = context;
	weft_worker *worker = reading->rig->ranks[0];

	while (!reading->stop) {
		const void *memory;
		uint64_t version;
		bool same;

		if (weft_read_begin(worker, &version)) {
			reading->none++;
			continue;
		}
		memory = weft_param_memory(worker, 2, version);
		same = memory && of_version(memory, version);
		if (weft_read_end(worker, version))
			reading->torn++;
		else if (same)
			reading->whole++;
		else
			reading->wrong++;
	}
	return NULL;
}

static void test_reader__never_sees_a_mixture_as_one_version(void **state)
{
	(void)state;
	for (int shadow = 0; shadow < 2; shadow++) {
		struct rig_options options = plain;
		struct reading reading = {0};
		pthread_t thread;

		options.shadow = shadow;
		reading.rig = rig_new(&options);
		rig_update(reading.rig, 1);
		pthread_create(&thread, NULL, read_all_the_time, &reading);
		for (uint64_t version = 2; version < 60; version++)
			rig_update(reading.rig, version);
		reading.stop = true;
		pthread_join(thread, NULL);
		assert_int_equal(reading.wrong, 0);
		assert_true(reading.whole > 0);
		if (shadow)
			assert_int_equal(reading.none, 0);
		rig_free(reading.rig);
	}
}

static void test_lost__worker_fails_the_others_by_name_until_they_close(void **state)
{
	struct rig *rig = rig_new(&plain);
	weft_error error = WEFT_ERROR_INIT, again = WEFT_ERROR_INIT;

	(void)state;
	rig_update(rig, 1);
	rig_wait_begin(rig, 2, 0);
	weft_interrupt(rig->trainers[1]);
	assert_int_equal(weft_update_begin(rig->trainers[1], 2, &error), -WEFT_E_INTERRUPTED);
	weft_close(&rig->trainers[1]);
	for (uint32_t i = 0; i < 2; i++) {
		pthread_join(rig->waits[i].thread, NULL);
		assert_true(rig->waits[i].rc < 0);
		assert_non_null(strstr(rig->waits[i].error.text, "trainer 1"));
		assert_int_equal(weft_published(rig->ranks[i]), 1);
	}
	assert_int_equal(weft_update_wait(rig->ranks[0], 3, 0, NULL, &again), rig->waits[0].rc);
	assert_string_equal(again.text, rig->waits[0].error.text);
	rig_free(rig);
}

static void test_interrupt__ends_a_wait_at_once(void **state)
{
	struct rig *rig = rig_new(&plain);
	uint64_t begin = clock_ms();

	(void)state;
	rig_wait_begin(rig, 1, 0);
	clock_sleep_ms(50);
	weft_interrupt(rig->ranks[0]);
	weft_interrupt(rig->ranks[1]);
	rig_wait_end(rig, -WEFT_E_INTERRUPTED);
	assert_true(clock_ms() - begin < 2000);
	rig_free(rig);
}

#ifdef __SANITIZE_THREAD__
#define CYCLES 100 /* ten times slower, and leaks are not what it looks for */
#else
#define CYCLES 1000
#endif

static size_t open_files(void)
{
	size_t count = 0;

	for (int i = 0; i < 1024; i++)
		count += fcntl(i, F_GETFD) >= 0;
	return count;
}

static void test_worker__opens_and_closes_without_leaving_anything(void **state)
{
	const char *cycles = getenv("WEFT_TEST_CYCLES");
	int jobs = cycles ? atoi(cycles) : CYCLES;
	struct rig_options options = plain;
	size_t before = 0;

	(void)state;
	options.checksums = 1;
	for (int i = 0; i < jobs; i++) {
		struct rig *rig = rig_new(&options);

		rig_update(rig, 1);
		rig_free(rig);
		if (i == 0)
			before = open_files();
	}
	assert_int_equal(open_files(), before);
}

static int open_and_declare(weft_error *error)
{
	const weft_options options = {.size = sizeof(options),
				      .controller = "tcp://127.0.0.1:9",
				      .role = WEFT_INFERENCE,
				      .join_timeout_ms = 1, /* nobody is there to be told */
				      .own_memory = 1};
	const weft_tensor tensor = {sizeof(weft_tensor), "t", "F32", 2, {4, 4}};
	const uint64_t lo[2] = {0, 0}, hi[2] = {4, 4};
	float memory[16];
	weft_param param = {sizeof(param), "p", "F32", 2, {4, 4}, HOST(memory, sizeof(memory))};
	weft_worker *worker;
	uint32_t id;
	int rc = weft_open(&worker, &options, error);

	if (rc)
		return rc;
	rc = weft_declare_labels(worker, "m", "t", "i", error);
	if (!rc)
		rc = weft_declare_param(worker, &param, &id, error);
	if (!rc)
		rc = weft_declare_piece(worker, &tensor, lo, hi, id, 0, error);
	weft_close(&worker);
	assert_null(worker);
	return rc;
}

static void test_worker__survives_every_failed_allocation(void **state)
{
	weft_error error = WEFT_ERROR_INIT;
	uint64_t k = 0;
	int rc;

	(void)state;
	do {
		memory_fail_at(++k);
		rc = open_and_declare(&error);
		memory_fail_at(0);
		assert_true(rc == 0 || (rc == -WEFT_E_MEMORY && error.code == WEFT_E_MEMORY));
	} while (rc && k < 1000);
	assert_int_equal(rc, 0);
	assert_true(k > 5);
}

static void test_declare__refuses_what_makes_no_sense(void **state)
{
	const weft_options trainer = {
		.size = sizeof(trainer), .role = WEFT_TRAINER, .controller = "tcp://127.0.0.1:9"};
	weft_options wrong = trainer;
	const weft_tensor tensor = {sizeof(weft_tensor), "t", "F32", 2, {4, 4}},
			  odd = {sizeof(weft_tensor), "u", "F3", 2, {4, 4}};
	const weft_param param = {sizeof(weft_param), "p", "F32", 1, {4}, NULL};
	weft_worker *worker;
	weft_error error = WEFT_ERROR_INIT;

	(void)state;
	wrong.shadow = wrong.own_memory = 1;
	assert_int_equal(weft_open(&worker, &wrong, &error), -WEFT_E_USAGE);
	wrong = trainer;
	wrong.controller = "nonsense";
	assert_int_equal(weft_open(&worker, &wrong, &error), -WEFT_E_CONFIG);
	assert_non_null(strstr(error.text, "nonsense"));
	wrong = trainer;
	wrong.transport = "pigeon";
	assert_true(weft_open(&worker, &wrong, &error) < 0);
	assert_non_null(strstr(error.text, "pigeon"));
	rig_ok(weft_open(&worker, &trainer, &error), &error);
	assert_int_equal(weft_declare_param(worker, &param, NULL, &error), -WEFT_E_STATE);
	assert_int_equal(weft_declare_tensor(worker, &odd, 0, 0, 4, NULL, &error), -WEFT_E_USAGE);
	assert_int_equal(weft_declare_tensor(worker, &tensor, 0, 2, 2, NULL, &error),
			 -WEFT_E_USAGE);
	assert_int_equal(weft_declare_tensor(worker, &tensor, 0, 0, 5, NULL, &error),
			 -WEFT_E_USAGE);
	assert_int_equal(weft_declare_tensor(worker, &tensor, 0, 0, 2, NULL, &error), 0);
	assert_int_equal(weft_declare_tensor(worker, &tensor, 0, 2, 4, NULL, &error),
			 -WEFT_E_USAGE);
	assert_int_equal(weft_declare_model(worker, "Qwen2.5-0.5B", "world=1", "tp=1", &error),
			 -WEFT_E_STATE);
	assert_int_equal(weft_update_begin(worker, 1, &error), -WEFT_E_STATE);
	assert_int_equal(weft_join(worker, 300, &error), -WEFT_E_TIMEOUT);
	assert_non_null(strstr(error.text, "tcp://127.0.0.1:9"));
	weft_close(&worker);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_update__delivers_every_byte_in_every_way),
		cmocka_unit_test(test_update__writes_tensor_by_tensor_and_refuses_what_is_wrong),
		cmocka_unit_test(test_version__repeated_skipped_and_older_have_their_answers),
		cmocka_unit_test(test_version__two_different_ones_are_named_and_not_published),
		cmocka_unit_test(test_deadline__names_who_is_missing_and_the_update_can_still_come),
		cmocka_unit_test(test_deadline__a_late_trainer_is_no_part_of_a_later_version),
		cmocka_unit_test(test_deadline__of_begin_names_targets_and_what_they_accept),
		cmocka_unit_test(test_abort__reaches_the_targets_and_a_later_update_recovers),
		cmocka_unit_test(test_checksum__finds_a_flipped_byte_and_names_the_tensor),
		cmocka_unit_test(test_shadow__a_failed_update_leaves_the_last_version_readable),
		cmocka_unit_test(test_reader__never_sees_a_mixture_as_one_version),
		cmocka_unit_test(test_lost__worker_fails_the_others_by_name_until_they_close),
		cmocka_unit_test(test_interrupt__ends_a_wait_at_once),
		cmocka_unit_test(test_worker__opens_and_closes_without_leaving_anything),
		cmocka_unit_test(test_worker__survives_every_failed_allocation),
		cmocka_unit_test(test_declare__refuses_what_makes_no_sense),
	};

	shell_block_signals();
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * A trainer's update engine through weft.h: from many threads, in any order, in buckets, with the
 * ring and with the full replica. Own memory and the mock make every strided piece go through the
 * replica.
 */
#include "tests/unit/worker/worker_rig.h"

#include "transport/mock/mock.h"

static weft_slice slice_of(const struct rig *rig, uint32_t t)
{
	static weft_memory memory[RIG_TENSORS];
	weft_slice slice = {.size = sizeof(slice),
			    .name = rig_tensors[t].name,
			    .dtype = rig_tensors[t].dtype,
			    .dims = rig_tensors[t].dims,
			    .memory = &memory[t]};

	memory[t] = weft_host_memory(rig->tensors[t], rig_bytes[t]);
	memcpy(slice.shape, rig_tensors[t].shape, sizeof(slice.shape));
	return slice;
}

static void finish(struct rig *rig, uint64_t version)
{
	weft_error error = WEFT_ERROR_INIT;

	rig_ok(weft_update_end(rig->trainers[0], &error), &error);
	rig_wait_end(rig, 0);
	for (uint32_t i = 0; i < rig->options.ranks; i++)
		rig_check(rig, i, version);
}

static void begin(struct rig *rig, uint64_t version)
{
	weft_error error = WEFT_ERROR_INIT;

	rig_fill(rig, version);
	rig_wait_begin(rig, version, 0);
	rig_ok(weft_update_begin(rig->trainers[0], version, &error), &error);
}

static const struct rig_options forms[] = {
	{.trainers = 1, .ranks = 2, .own_memory = 1, .checksums = 1, .pack_threads = 1},
	{.trainers = 1, .ranks = 2, .own_memory = 1, .checksums = 1, .pack_threads = 4},
	{.trainers = 1, .ranks = 2, .own_memory = 1, .pack_threads = 4, .ring_bytes = 1},
	{.trainers = 1, .ranks = 2, .checksums = 1, .pack_threads = 3},
	{.trainers = 1,
	 .ranks = 3,
	 .transport = "mock",
	 .checksums = 1,
	 .pack_threads = 4,
	 .ring_bytes = 256},
	{.trainers = 1, .ranks = 1, .replica = "full", .checksums = 1, .pack_threads = 2},
	{.trainers = 1, .ranks = 2, .replica = "full", .checksums = 1, .pack_threads = 4},
	{.trainers = 1,
	 .ranks = 2,
	 .replica = "full",
	 .own_memory = 1,
	 .checksums = 1,
	 .pack_threads = 2},
	{.trainers = 1,
	 .ranks = 4,
	 .replica = "full",
	 .transport = "mock",
	 .checksums = 1,
	 .pack_threads = 4},
	{.trainers = 1,
	 .ranks = 2,
	 .replica = "full",
	 .transport = "mock",
	 .shadow = 1,
	 .pack_threads = 1},
};
#define FORMS (sizeof(forms) / sizeof(forms[0]))

struct writing {
	weft_worker *worker;
	uint32_t id;
	void *data;
	pthread_t thread;
	int rc;
	weft_error error;
};

static void *write_one(void *context)
{
	struct writing *writing = context;

	writing->rc =
		weft_update_write(writing->worker, writing->id,
				  HOST(writing->data, rig_bytes[writing->id]), &writing->error);
	return NULL;
}

static void test_threads__each_write_a_tensor_in_any_order(void **state)
{
	(void)state;
	for (size_t f = 0; f < FORMS; f++) {
		struct rig *rig = rig_new(&forms[f]);

		for (uint64_t version = 1; version <= 6; version++) {
			struct writing writings[RIG_TENSORS];

			begin(rig, version);
			for (uint32_t i = 0; i < RIG_TENSORS; i++) {
				uint32_t t = (uint32_t)(i + version) % RIG_TENSORS;

				writings[i] = (struct writing){.worker = rig->trainers[0],
							       .id = t,
							       .data = rig->tensors[t],
							       .error = WEFT_ERROR_INIT};
				pthread_create(&writings[i].thread, NULL, write_one, &writings[i]);
			}
			for (uint32_t i = 0; i < RIG_TENSORS; i++) {
				pthread_join(writings[i].thread, NULL);
				rig_ok(writings[i].rc, &writings[i].error);
			}
			finish(rig, version);
		}
		rig_update(rig, 9);
		rig_free(rig);
	}
}

static void test_bucket__takes_tensors_by_name_in_any_order(void **state)
{
	(void)state;
	for (size_t f = 0; f < FORMS; f++) {
		struct rig *rig = rig_new(&forms[f]);
		weft_slice two[2] = {slice_of(rig, 2), slice_of(rig, 0)}, one = slice_of(rig, 1);
		weft_error error = WEFT_ERROR_INIT;

		begin(rig, 1);
		rig_ok(weft_update_write_bucket(rig->trainers[0], two, 2, sizeof(weft_slice),
						&error),
		       &error);
		assert_int_equal(weft_update_end(rig->trainers[0], &error), -WEFT_E_STATE);
		assert_non_null(strstr(error.text, "tensor o was not written (1 missing)"));
		rig_ok(weft_update_drain(rig->trainers[0], &error), &error);
		/* what was drained may be reused, also what went out as it lay */
		memset(rig->tensors[0], 0xee, rig_bytes[0]);
		memset(rig->tensors[2], 0xee, rig_bytes[2]);
		rig_ok(weft_update_write_bucket(rig->trainers[0], &one, 1, sizeof(weft_slice),
						&error),
		       &error);
		rig_ok(weft_update_write_bucket(rig->trainers[0], NULL, 0, sizeof(weft_slice),
						&error),
		       &error);
		finish(rig, 1);
		rig_free(rig);
	}
}

static void refused(struct rig *rig, const weft_slice *slices, size_t count, const char *text)
{
	weft_error error = WEFT_ERROR_INIT;
	weft_stats stats = WEFT_STATS_INIT;

	assert_int_equal(weft_update_write_bucket(rig->trainers[0], slices, count,
						  sizeof(weft_slice), &error),
			 -WEFT_E_USAGE);
	if (!strstr(error.text, text))
		print_message("%s\n", error.text);
	assert_non_null(strstr(error.text, text));
	weft_get_stats(rig->trainers[0], &stats, NULL);
	assert_int_equal(stats.bytes, 0);
}

static void test_bucket__names_what_is_wrong_and_sends_nothing(void **state)
{
	struct rig *rig = rig_new(&forms[0]);
	weft_slice good = slice_of(rig, 0), bad[2] = {good, slice_of(rig, 1)};
	weft_error error = WEFT_ERROR_INIT;

	(void)state;
	assert_int_equal(
		weft_update_write_bucket(rig->trainers[0], &good, 1, sizeof(weft_slice), &error),
		-WEFT_E_STATE);
	assert_int_equal(weft_update_drain(rig->trainers[0], &error), -WEFT_E_STATE);
	begin(rig, 1);
	bad[1].name = "who";
	refused(rig, bad, 2, "tensor who is not declared");
	bad[1].name = NULL;
	refused(rig, bad, 2, "has no name");
	bad[1] = slice_of(rig, 1);
	bad[1].dtype = "BF16";
	refused(rig, bad, 2, "tensor o is given as BF16, declared as F32");
	bad[1] = slice_of(rig, 1);
	bad[1].shape[1] = 11;
	refused(rig, bad, 2, "tensor o has 11 in dimension 1, 12 are declared");
	bad[1].dims = 1;
	refused(rig, bad, 2, "tensor o is given with 1 dimensions, declared with 2");
	bad[1] = slice_of(rig, 1);
	bad[1].memory = HOST(rig->tensors[1], rig_bytes[1] - 1);
	refused(rig, bad, 2, "tensor o has 480 bytes here, given 479");
	bad[1] = good;
	refused(rig, bad, 2, "tensor q is in the bucket twice");
	rig_ok(weft_update_write_bucket(rig->trainers[0], &good, 1, sizeof(weft_slice), &error),
	       &error);
	assert_int_equal(
		weft_update_write_bucket(rig->trainers[0], &good, 1, sizeof(weft_slice), &error),
		-WEFT_E_USAGE);
	assert_non_null(strstr(error.text, "tensor q is written twice"));
	assert_int_equal(weft_update_end(rig->trainers[0], &error), -WEFT_E_STATE);
	assert_non_null(strstr(error.text, "tensors o, n were not written (2 missing)"));
	bad[0] = slice_of(rig, 1);
	bad[1] = slice_of(rig, 2);
	rig_ok(weft_update_write_bucket(rig->trainers[0], bad, 2, sizeof(weft_slice), &error),
	       &error);
	finish(rig, 1);
	rig_free(rig);
}

static void test_ring__packs_what_many_targets_want_once(void **state)
{
	/* n is whole on every rank and, over the mock, packed: 28 bytes once, not once a rank */
	struct rig_options options = {
		.trainers = 1, .ranks = 4, .transport = "mock", .pack_threads = 4};
	const struct mock_options mock = {.local_registration = true, .delay_max = 20};
	struct rig *rig;
	weft_stats stats = WEFT_STATS_INIT;

	(void)state;
	mock_options_default(&mock);
	rig = rig_new(&options);
	rig_update(rig, 1);
	rig_update(rig, 2);
	weft_get_stats(rig->trainers[0], &stats, NULL);
	assert_int_equal(stats.pieces_replica, 2 * 3 * 4);
	assert_int_equal(stats.packed_bytes, 2 * (480 + 480 + 28));
	rig_free(rig);
	mock_options_default(NULL);
}

static void test_full__overwrites_no_home_that_is_being_read(void **state)
{
	/* two, three and four layout classes share each home; completions come late, in any order */
	const struct mock_options mock = {.delay_max = 50, .local_registration = true};

	(void)state;
	mock_options_default(&mock);
	for (uint32_t ranks = 2; ranks <= 4; ranks++)
		for (uint32_t threads = 1; threads <= 4; threads += 3) {
			struct rig_options options = {.trainers = 1,
						      .ranks = ranks,
						      .transport = "mock",
						      .replica = "full",
						      .checksums = 1,
						      .pack_threads = threads};
			struct rig *rig = rig_new(&options);
			weft_error error = WEFT_ERROR_INIT;
			weft_stats stats = WEFT_STATS_INIT;

			for (uint64_t version = 1; version <= 8; version++) {
				begin(rig, version);
				for (uint32_t t = 0; t < RIG_TENSORS; t++) {
					rig_ok(weft_update_write(
						       rig->trainers[0], t,
						       HOST(rig->tensors[t], rig_bytes[t]), &error),
					       &error);
					/* the replica has it: the memory is ours again */
					memset(rig->tensors[t], 0xee, rig_bytes[t]);
				}
				finish(rig, version);
			}
			weft_get_stats(rig->trainers[0], &stats, NULL);
			assert_int_equal(stats.packed_bytes, 8 * (480 + 480 + 28));
			assert_int_equal(weft_update_replay(rig->trainers[0], 9, &error),
					 -WEFT_E_STATE);
			assert_non_null(strstr(error.text, "made from tensor"));
			assert_non_null(strstr(error.text, "differs between the inference ranks"));
			rig_free(rig);
		}
	mock_options_default(NULL);
}

static void repeat_after_taint(struct rig *rig)
{
	weft_error error = WEFT_ERROR_INIT;
	unsigned char *memory;
	uint64_t lacking;

	assert_int_equal(weft_update_replay(rig->trainers[0], 1, &error), -WEFT_E_STATE);
	assert_non_null(strstr(error.text, "holds no whole version"));
	begin(rig, 1);
	rig_ok(weft_update_write(rig->trainers[0], 0, HOST(rig->tensors[0], 480), &error), &error);
	rig_ok(weft_update_write(rig->trainers[0], 1, HOST(rig->tensors[1], 480), &error), &error);
	rig_ok(weft_update_write(rig->trainers[0], 2, HOST(rig->tensors[2], 28), &error), &error);
	if (rig->options.checksums) {
		memory = (void *)(uintptr_t)weft_param_memory(rig->ranks[0], 0, 0);
		assert_int_equal(weft_update_replay(rig->trainers[0], 2, &error), -WEFT_E_STATE);
		memory[5] ^= 1;
		rig_ok(weft_update_end(rig->trainers[0], &error), &error);
		rig_wait_end(rig, -WEFT_E_CHECKSUM);
		assert_int_equal(weft_tainted(rig->ranks[0]), 1);
	} else {
		finish(rig, 1);
	}
	memset(rig->tensors, 0xee, sizeof(rig->tensors));
	for (uint64_t version = 2; version < 5; version++) {
		const unsigned char *q;

		rig_wait_begin(rig, version, 0);
		rig_ok(weft_update_replay(rig->trainers[0], version, &error), &error);
		rig_wait_end(rig, 0);
		assert_int_equal(weft_published(rig->ranks[0]), version);
		q = weft_param_memory(rig->ranks[0], 0, version);
		for (uint64_t i = 0; i < 480; i++)
			assert_int_equal(q[i], rig_byte(1, 0, i));
	}
	/* what is given up has written into the homes */
	begin(rig, 5);
	assert_int_equal(weft_update_repeat(rig->trainers[0], &lacking, &error), -WEFT_E_STATE);
	assert_non_null(strstr(error.text, "update 5 is open"));
	rig_ok(weft_update_write(rig->trainers[0], 0, HOST(rig->tensors[0], 480), &error), &error);
	rig_ok(weft_update_abort(rig->trainers[0], "no", &error), &error);
	rig_wait_end(rig, -WEFT_E_ABORTED);
	assert_int_equal(weft_update_replay(rig->trainers[0], 6, &error), -WEFT_E_STATE);
	rig_update(rig, 6);
	lacking = 6;
	rig_ok(weft_update_repeat(rig->trainers[0], &lacking, &error), &error);
	assert_int_equal(lacking, 0); /* nobody waits to come in */
	rig_wait_begin(rig, 7, 0);
	rig_ok(weft_update_replay(rig->trainers[0], 7, &error), &error);
	rig_wait_end(rig, 0);
}

static void test_repeat__sends_the_last_version_again_from_the_replica(void **state)
{
	static const struct rig_options rows[] = {
		{.trainers = 1, .ranks = 1, .replica = "full", .checksums = 1, .pack_threads = 2},
		{.trainers = 1, .ranks = 1, .replica = "full", .own_memory = 1, .pack_threads = 1},
		{.trainers = 1, .ranks = 1, .replica = "full", .transport = "mock"},
	};
	struct rig *rig;
	weft_error error = WEFT_ERROR_INIT;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		rig = rig_new(&rows[i]);
		repeat_after_taint(rig);
		rig_free(rig);
	}
	rig = rig_new(&forms[0]);
	rig_update(rig, 1);
	assert_int_equal(weft_update_replay(rig->trainers[0], 2, &error), -WEFT_E_STATE);
	assert_non_null(strstr(error.text, "the ring keeps no version"));
	rig_free(rig);
}

static void test_failure__in_the_middle_reaches_every_thread(void **state)
{
	(void)state;
	for (size_t f = 0; f < FORMS; f++) {
		struct rig *rig = rig_new(&forms[f]);
		struct writing writings[RIG_TENSORS];
		weft_error error = WEFT_ERROR_INIT;

		rig_update(rig, 1);
		begin(rig, 2);
		weft_interrupt(rig->trainers[0]);
		for (uint32_t t = 0; t < RIG_TENSORS; t++) {
			writings[t] = (struct writing){
				.worker = rig->trainers[0], .id = t, .data = rig->tensors[t]};
			pthread_create(&writings[t].thread, NULL, write_one, &writings[t]);
		}
		for (uint32_t t = 0; t < RIG_TENSORS; t++) {
			pthread_join(writings[t].thread, NULL);
			assert_int_equal(writings[t].rc, -WEFT_E_INTERRUPTED);
		}
		assert_true(weft_update_end(rig->trainers[0], &error) < 0);
		weft_close(&rig->trainers[0]);
		for (uint32_t i = 0; i < forms[f].ranks; i++) {
			pthread_join(rig->waits[i].thread, NULL);
			assert_true(rig->waits[i].rc < 0);
		}
		rig_free(rig);
	}
}

static void test_open__refuses_other_forms_of_the_replica(void **state)
{
	weft_options options = {.size = sizeof(options),
				.role = WEFT_TRAINER,
				.controller = "tcp://127.0.0.1:9",
				.replica = "half"};
	weft_worker *worker;
	weft_error error = WEFT_ERROR_INIT;

	(void)state;
	assert_int_equal(weft_open(&worker, &options, &error), -WEFT_E_CONFIG);
	assert_non_null(strstr(error.text, "half"));
	options.replica = "full";
	options.pack_threads = 65;
	assert_int_equal(weft_open(&worker, &options, &error), -WEFT_E_LIMIT);
	options.pack_threads = 1;
	options.role = WEFT_INFERENCE;
	assert_int_equal(weft_open(&worker, &options, &error), -WEFT_E_USAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads__each_write_a_tensor_in_any_order),
		cmocka_unit_test(test_bucket__takes_tensors_by_name_in_any_order),
		cmocka_unit_test(test_bucket__names_what_is_wrong_and_sends_nothing),
		cmocka_unit_test(test_ring__packs_what_many_targets_want_once),
		cmocka_unit_test(test_full__overwrites_no_home_that_is_being_read),
		cmocka_unit_test(test_repeat__sends_the_last_version_again_from_the_replica),
		cmocka_unit_test(test_failure__in_the_middle_reaches_every_thread),
		cmocka_unit_test(test_open__refuses_other_forms_of_the_replica),
	};

	shell_block_signals();
	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Pieces that are made (quantised, and requantised from two tensors) through the update engine, and
 * the engine when an allocation or a call of the transport fails, whichever it is.
 */
#include "tests/unit/worker/lone_trainer.h"

#include <pthread.h>
#include <stdio.h>

static const struct lone_options forms[] = {
	{.replica = "ring", .peers = 2, .threads = 1},
	{.replica = "ring", .peers = 2, .threads = 3, .ring_bytes = 1024},
	{.replica = "full", .peers = 2, .threads = 2},
	{.replica = "full", .peers = 1, .threads = 1},
};
#define FORMS (sizeof(forms) / sizeof(*forms))

static struct lone *open_lone(const struct lone_options *options)
{
	struct lone *lone = calloc(1, sizeof(*lone));
	struct error error = {0};

	assert_non_null(lone);
	if (lone_open(lone, options, &error))
		print_message("%s\n", error.text);
	assert_int_equal(lone->worker ? lone->worker->stage : STAGE_OPEN, STAGE_JOINED);
	return lone;
}

static void close_lone(struct lone *lone)
{
	lone_close(lone);
	free(lone);
}

static void ok(int rc, const weft_error *error)
{
	if (rc)
		print_message("%s\n", error->text);
	assert_int_equal(rc, 0);
}

static void begin(struct lone *lone, uint64_t version)
{
	weft_error error = WEFT_ERROR_INIT;

	lone_fill(lone, version);
	lone->opening = version;
	ok(weft_update_begin(lone->worker, version, &error), &error);
}

static void write_one(struct lone *lone, uint32_t tensor)
{
	weft_error error = WEFT_ERROR_INIT;

	ok(weft_update_write(lone->worker, tensor,
			     HOST(lone_data(lone, tensor), lone_bytes[tensor]), &error),
	   &error);
}

static void finish(struct lone *lone, uint64_t ends)
{
	weft_error error = WEFT_ERROR_INIT;

	ok(weft_update_end(lone->worker, &error), &error);
	for (uint32_t p = 0; p < lone->plan.peer_count; p++) {
		assert_int_equal(lone->peers[p].ends, ends);
		lone_check(lone, p);
	}
}

static void test_made__leaves_when_both_halves_are_there_in_any_order(void **state)
{
	static const uint32_t orders[][LONE_TENSORS] = {{LONE_W, LONE_V, LONE_S, LONE_B},
							{LONE_S, LONE_B, LONE_V, LONE_W},
							{LONE_V, LONE_W, LONE_B, LONE_S}};

	(void)state;
	for (size_t f = 0; f < FORMS; f++) {
		struct lone *lone = open_lone(&forms[f]);

		for (uint64_t version = 1; version <= 3; version++) {
			begin(lone, version);
			for (uint32_t i = 0; i < LONE_TENSORS; i++)
				write_one(lone, orders[version - 1][i]);
			finish(lone, version);
		}
		close_lone(lone);
	}
}

struct writing {
	struct lone *lone;
	uint32_t tensor;
	int rc;
	weft_error error;
	pthread_t thread;
};

static void *write_thread(void *context)
{
	struct writing *writing = context;

	writing->rc = weft_update_write(
		writing->lone->worker, writing->tensor,
		HOST(lone_data(writing->lone, writing->tensor), lone_bytes[writing->tensor]),
		&writing->error);
	return NULL;
}

/* Each tensor by a thread of its own; the first error, if any. */
static int write_from_threads(struct lone *lone, weft_error *error)
{
	struct writing writings[LONE_TENSORS];
	int rc = 0;

	for (uint32_t t = 0; t < LONE_TENSORS; t++) {
		writings[t] = (struct writing){.lone = lone, .tensor = t, .error = WEFT_ERROR_INIT};
		assert_int_equal(
			pthread_create(&writings[t].thread, NULL, write_thread, &writings[t]), 0);
	}
	for (uint32_t t = 0; t < LONE_TENSORS; t++) {
		pthread_join(writings[t].thread, NULL);
		if (!writings[t].rc || rc)
			continue;
		rc = writings[t].rc;
		*error = writings[t].error;
	}
	return rc;
}

static void test_made__comes_whole_when_its_halves_come_from_two_threads(void **state)
{
	(void)state;
	for (size_t f = 0; f < FORMS; f++) {
		struct lone *lone = open_lone(&forms[f]);

		for (uint64_t version = 1; version <= 20; version++) {
			weft_error error = WEFT_ERROR_INIT;

			begin(lone, version);
			ok(write_from_threads(lone, &error), &error);
			finish(lone, version);
		}
		close_lone(lone);
	}
}

static void test_scales__come_of_the_pass_over_their_values(void **state)
{
	struct lone *lone = open_lone(&forms[0]);
	weft_stats stats = WEFT_STATS_INIT;

	(void)state;
	begin(lone, 1);
	for (uint32_t t = 0; t < LONE_TENSORS; t++)
		write_one(lone, t);
	finish(lone, 1);
	/* into the ring: the values of w and v for two ranks, and b once; no scales */
	weft_get_stats(lone->worker, &stats, NULL);
	assert_int_equal(stats.packed_bytes, 2 * 2 * 4 * LONE_COLUMNS + 256);
	assert_int_equal(stats.pieces_replica, LONE_PEERS * LONE_PARAMS);
	close_lone(lone);
}

static void test_drain__refuses_while_half_of_a_pair_is_given(void **state)
{
	(void)state;
	for (size_t f = 0; f < FORMS; f++)
		for (int first = 0; first < 2; first++) {
			struct lone *lone = open_lone(&forms[f]);
			weft_error error = WEFT_ERROR_INIT;

			begin(lone, 1);
			write_one(lone, LONE_W);
			ok(weft_update_drain(lone->worker, &error), &error);
			write_one(lone, first ? LONE_V : LONE_S);
			assert_int_equal(weft_update_drain(lone->worker, &error), -WEFT_E_STATE);
			assert_non_null(strstr(error.text, first ? "tensor v was written"
								 : "tensor s was written"));
			assert_non_null(strstr(error.text, first ? "needs s too" : "needs v too"));
			assert_int_equal(weft_update_end(lone->worker, &error), -WEFT_E_STATE);
			assert_non_null(
				strstr(error.text, first ? "tensors s, b were not written"
							 : "tensors v, b were not written"));
			write_one(lone, first ? LONE_S : LONE_V);
			ok(weft_update_drain(lone->worker, &error), &error);
			write_one(lone, LONE_B);
			finish(lone, 1);
			close_lone(lone);
		}
}

static void test_repeat__sends_made_pieces_again_without_their_tensors(void **state)
{
	struct lone *lone = open_lone(&forms[3]);
	weft_error error = WEFT_ERROR_INIT;
	weft_stats stats = WEFT_STATS_INIT;

	(void)state;
	begin(lone, 1);
	for (uint32_t t = 0; t < LONE_TENSORS; t++)
		write_one(lone, t);
	finish(lone, 1);
	memset(lone->peers[0].memory, 0xee, sizeof(lone->peers[0].memory));
	lone->opening = 2;
	ok(weft_update_replay(lone->worker, 2, &error), &error);
	assert_int_equal(lone->peers[0].ends, 2);
	lone_check(lone, 0);
	weft_get_stats(lone->worker, &stats, NULL);
	assert_int_equal(stats.updates, 2);
	close_lone(lone);
}

static void test_ring__without_room_for_a_row_of_blocks_says_how_much_it_needs(void **state)
{
	const struct lone_options options = {.replica = "ring", .peers = 2, .ring_bytes = 1};
	struct lone *lone = calloc(1, sizeof(*lone));
	struct error error;

	(void)state;
	assert_non_null(lone);
	assert_int_equal(lone_open(lone, &options, &error), -ERROR_CONFIG);
	assert_non_null(strstr(error.text, "a ring of 256 bytes has no room for a row of blocks"));
	assert_non_null(strstr(error.text, "tensor w, 512 bytes; raise ring_bytes"));
	close_lone(lone);
}

/* ---- failures ---- */

/* A job's life: open, an update from threads, one by bucket with a drain, and with a home for all
 * a repeated one. *versions: ended here. */
static int live(struct lone *lone, const struct lone_options *options, uint64_t *versions,
		weft_error *why)
{
	static const weft_slice slices[LONE_TENSORS] = {
		{sizeof(weft_slice), "w", "BF16", 2, 0, {8, LONE_COLUMNS}, NULL},
		{sizeof(weft_slice), "v", "F8_E4M3", 2, 0, {8, LONE_COLUMNS}, NULL},
		{sizeof(weft_slice), "s", "F32", 2, 0, {4, LONE_COLUMNS / 2}, NULL},
		{sizeof(weft_slice), "b", "F32", 1, 0, {64}, NULL}};
	weft_slice bucket[LONE_TENSORS];
	weft_memory memory[LONE_TENSORS];
	struct error error = {0};
	int rc = lone_open(lone, options, &error);

	*versions = 0;
	if (rc) {
		why->code = (int)error.code;
		snprintf(why->text, sizeof(why->text), "%s", error.text);
		return rc;
	}
	lone_fill(lone, lone->opening = 1);
	rc = weft_update_begin(lone->worker, 1, why);
	if (!rc)
		rc = write_from_threads(lone, why);
	if (!rc)
		rc = weft_update_end(lone->worker, why);
	if (rc)
		return rc;
	++*versions;
	for (uint32_t t = 0; t < LONE_TENSORS; t++) {
		bucket[t] = slices[t];
		memory[t] = weft_host_memory(lone_data(lone, t), lone_bytes[t]);
		bucket[t].memory = &memory[t];
	}
	lone_fill(lone, lone->opening = 2);
	rc = weft_update_begin(lone->worker, 2, why);
	if (!rc)
		rc = weft_update_write_bucket(lone->worker, bucket, LONE_TENSORS,
					      sizeof(weft_slice), why);
	if (!rc)
		rc = weft_update_drain(lone->worker, why);
	if (!rc)
		rc = weft_update_end(lone->worker, why);
	if (rc)
		return rc;
	++*versions;
	if (!options->replica || strcmp(options->replica, "full") || options->peers > 1)
		return 0;
	lone->opening = 3;
	rc = weft_update_replay(lone->worker, 3, why);
	*versions += !rc;
	return rc;
}

/* One error, after which everything is refused, and no version that was not ended whole. */
static void check_failed(struct lone *lone, uint64_t versions, bool transport)
{
	uint64_t published = UINT64_MAX;
	weft_error error = WEFT_ERROR_INIT;

	for (uint32_t p = 0; p < lone->plan.peer_count; p++)
		if (lone->peers[p].ends < published)
			published = lone->peers[p].ends;
	/* the last signal may have gone out before its completion was seen to fail */
	assert_in_range(published, versions, versions + transport);
	for (uint32_t p = 0; p < lone->plan.peer_count; p++)
		if (lone->peers[p].ends > versions)
			lone_check(lone, p); /* who was told has every byte */
	if (lone->worker && lone->worker->stage == STAGE_JOINED && transport) {
		assert_true(weft_update_write(lone->worker, 0, HOST(lone->w, lone_bytes[0]),
					      &error) < 0);
		assert_true(weft_update_end(lone->worker, &error) < 0);
	}
}

static void test_engine__survives_every_failed_allocation(void **state)
{
	(void)state;
	for (size_t f = 0; f < FORMS; f++)
		for (uint64_t k = 1;; k++) {
			struct lone *lone = calloc(1, sizeof(*lone));
			uint64_t before = memory_count(), versions, used;
			weft_error error = WEFT_ERROR_INIT;
			int rc;

			assert_non_null(lone);
			memory_fail_at(k);
			rc = live(lone, &forms[f], &versions, &error);
			memory_fail_at(0);
			used = memory_count() - before;
			if (rc) {
				if (error.code != WEFT_E_MEMORY)
					print_message("%zu, %llu: %s\n", f, (unsigned long long)k,
						      error.text);
				assert_int_equal(error.code, WEFT_E_MEMORY);
				check_failed(lone, versions, false);
			}
			close_lone(lone);
			assert_true(k < 1000);
			if (k <= used)
				continue;
			assert_int_equal(rc, 0);
			assert_true(k > 40);
			break;
		}
}

static void test_engine__survives_every_failed_call_of_the_transport(void **state)
{
	(void)state;
	for (size_t f = 0; f < FORMS; f++)
		for (uint64_t k = 1;; k++) {
			struct lone *lone = calloc(1, sizeof(*lone));
			uint64_t versions, calls;
			weft_error error = WEFT_ERROR_INIT;
			int rc;

			assert_non_null(lone);
			lone->fail_at = k;
			rc = live(lone, &forms[f], &versions, &error);
			calls = lone->calls;
			if (rc) {
				assert_int_equal(error.code, WEFT_E_IO);
				check_failed(lone, versions, true);
			}
			close_lone(lone);
			assert_true(k < 2000);
			if (k <= calls) {
				assert_int_not_equal(rc, 0);
				continue;
			}
			assert_int_equal(rc, 0);
			assert_true(k > 20);
			break;
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_made__leaves_when_both_halves_are_there_in_any_order),
		cmocka_unit_test(test_made__comes_whole_when_its_halves_come_from_two_threads),
		cmocka_unit_test(test_scales__come_of_the_pass_over_their_values),
		cmocka_unit_test(test_drain__refuses_while_half_of_a_pair_is_given),
		cmocka_unit_test(test_repeat__sends_made_pieces_again_without_their_tensors),
		cmocka_unit_test(
			test_ring__without_room_for_a_row_of_blocks_says_how_much_it_needs),
		cmocka_unit_test(test_engine__survives_every_failed_allocation),
		cmocka_unit_test(test_engine__survives_every_failed_call_of_the_transport),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The host's hook between the last byte of a version and its publication.
 */
#include "tests/unit/worker/worker_rig.h"

#include <stdatomic.h>

/* What the hook of a rank saw, and what it shall answer. */
struct seen {
	weft_worker *worker;
	_Atomic uint32_t calls;
	uint64_t version, published, readable;
	int answer, begin, wait, leave, again;
	bool tainted;
	unsigned char q[480], n[32];
};

static int look(void *context, uint64_t version)
{
	struct seen *seen = context;
	weft_param_view view = WEFT_PARAM_VIEW_INIT;
	weft_error error = WEFT_ERROR_INIT;

	seen->version = version;
	seen->published = weft_published(seen->worker);
	seen->tainted = weft_tainted(seen->worker);
	seen->readable = 0;
	seen->begin = weft_read_begin(seen->worker, &seen->readable);
	seen->wait = weft_update_wait(seen->worker, version, 1, NULL, &error);
	seen->leave = weft_leave(seen->worker, &error);
	seen->again = weft_set_post_load(seen->worker, NULL, NULL, &error);
	if (!weft_param_at(seen->worker, 0, &view, NULL))
		memcpy(seen->q, weft_loaded_memory(seen->worker, 0), view.bytes);
	memcpy(seen->n, weft_loaded_memory(seen->worker, 2), 32);
	seen->calls++;
	return seen->answer;
}

static void open_rig(struct rig *rig, struct seen *seen, const struct rig_options *options)
{
	weft_error error = WEFT_ERROR_INIT;

	memset(seen, 0, RIG_MAX * sizeof(*seen));
	rig_open(rig, options);
	for (uint32_t i = 0; i < options->ranks; i++) {
		seen[i].worker = rig->ranks[i];
		rig_ok(weft_set_post_load(rig->ranks[i], look, &seen[i], &error), &error);
	}
}

static void send_all(struct rig *rig, uint64_t version)
{
	rig_fill(rig, version);
	rig_wait_begin(rig, version, 0);
	for (uint32_t i = 0; i < rig->options.trainers; i++)
		rig_send(rig, i, version);
}

static void test_hook__sees_the_whole_version_before_readers_do(void **state)
{
	static const struct rig_options rows[] = {
		{.trainers = 2, .ranks = 2, .checksums = 1},
		{.trainers = 1, .ranks = 2, .shadow = 1},
		{.trainers = 1, .ranks = 1, .own_memory = 1},
	};
	static struct rig rig;
	static struct seen seen[RIG_MAX];

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		open_rig(&rig, seen, &rows[i]);
		for (uint64_t version = 3; version <= 5; version += 2) {
			bool shown = version == 5 && rows[i].shadow;

			rig_update(&rig, version);
			for (uint32_t r = 0; r < rows[i].ranks; r++) {
				uint64_t rows_each = 12 / rows[i].ranks;
				weft_stats stats = WEFT_STATS_INIT;

				assert_int_equal(seen[r].version, version);
				assert_int_equal(seen[r].calls, version / 2);
				assert_int_equal(seen[r].published, version == 3 ? 0 : 3);
				assert_false(seen[r].tainted);
				assert_int_equal(seen[r].begin, shown ? 0 : WEFT_NONE);
				assert_int_equal(seen[r].readable, shown ? 3 : 0);
				for (uint64_t b = 0; b < rows_each * 40; b++)
					assert_int_equal(
						seen[r].q[b],
						rig_byte(version, 0, r * rows_each * 40 + b));
				for (uint64_t b = 0; b < 28; b++)
					assert_int_equal(seen[r].n[b], rig_byte(version, 2, b));
				assert_int_equal(weft_get_stats(rig.ranks[r], &stats, NULL), 0);
				assert_true(stats.post_load_ns > 0 &&
					    stats.post_load_ns < stats.update_ns);
			}
		}
		rig_close(&rig);
	}
}

static void test_hook__that_calls_back_is_told_that_it_is_inside(void **state)
{
	static struct rig rig;
	static struct seen seen[RIG_MAX];

	(void)state;
	open_rig(&rig, seen, &(struct rig_options){.trainers = 1, .ranks = 1});
	rig_update(&rig, 1);
	assert_int_equal(seen[0].wait, -WEFT_E_STATE);
	assert_int_equal(seen[0].leave, -WEFT_E_STATE);
	assert_int_equal(seen[0].again, -WEFT_E_STATE);
	assert_null(weft_loaded_memory(rig.ranks[0], 0));
	rig_update(&rig, 2);
	assert_int_equal(seen[0].calls, 2);
	rig_close(&rig);
}

static void test_hook__that_fails_keeps_the_version_from_readers(void **state)
{
	static struct rig rig;
	static struct seen seen[RIG_MAX];

	(void)state;
	for (int shadow = 0; shadow <= 1; shadow++) {
		weft_error error = WEFT_ERROR_INIT;
		uint64_t version;

		open_rig(&rig, seen,
			 &(struct rig_options){.trainers = 1, .ranks = 1, .shadow = shadow});
		rig_update(&rig, 1);
		seen[0].answer = -7;
		send_all(&rig, 2);
		rig_wait_end(&rig, -WEFT_E_POST_LOAD);
		assert_string_equal(rig.waits[0].error.text,
				    "update 2: the post-load hook returned -7; all bytes had "
				    "arrived, the version is not published");
		assert_int_equal(weft_published(rig.ranks[0]), 1);
		assert_int_equal(weft_tainted(rig.ranks[0]), !shadow);
		assert_int_equal(weft_read_begin(rig.ranks[0], &version), shadow ? 0 : WEFT_NONE);
		if (shadow)
			rig_check(&rig, 0, 1);
		/* the trainers have ended it: it cannot come again */
		assert_int_equal(weft_update_wait(rig.ranks[0], 2, 10, NULL, &error),
				 -WEFT_E_VERSION);
		seen[0].answer = 0;
		rig_update(&rig, 3);
		assert_false(weft_tainted(rig.ranks[0]));
		rig_close(&rig);
	}
}

static void test_hook__is_not_called_for_a_version_that_did_not_arrive(void **state)
{
	static struct rig rig;
	static struct seen seen[RIG_MAX];
	weft_error error = WEFT_ERROR_INIT;

	(void)state;
	open_rig(&rig, seen, &(struct rig_options){.trainers = 1, .ranks = 1});
	rig_wait_begin(&rig, 1, 0);
	rig_ok(weft_update_begin(rig.trainers[0], 1, &error), &error);
	rig_ok(weft_update_abort(rig.trainers[0], "changed my mind", &error), &error);
	rig_wait_end(&rig, -WEFT_E_ABORTED);
	assert_int_equal(seen[0].calls, 0);
	rig_update(&rig, 2);
	assert_int_equal(seen[0].calls, 1);
	/* published already: nothing is loaded */
	rig_ok(weft_update_wait(rig.ranks[0], 2, 0, NULL, &error), &error);
	assert_int_equal(seen[0].calls, 1);
	rig_ok(weft_set_post_load(rig.ranks[0], NULL, NULL, &error), &error);
	rig_update(&rig, 3);
	assert_int_equal(seen[0].calls, 1);
	rig_close(&rig);
}

static void test_hook__belongs_to_inference_ranks(void **state)
{
	static struct rig rig;
	static struct seen seen[RIG_MAX];
	weft_error error = WEFT_ERROR_INIT;

	(void)state;
	open_rig(&rig, seen, &(struct rig_options){.trainers = 1, .ranks = 1});
	assert_int_equal(weft_set_post_load(rig.trainers[0], look, NULL, &error), -WEFT_E_STATE);
	assert_int_equal(weft_set_post_load(NULL, look, NULL, &error), -WEFT_E_USAGE);
	assert_null(weft_loaded_memory(NULL, 0));
	assert_string_equal(weft_strerror(WEFT_E_POST_LOAD), "the host's post-load hook failed");
	assert_int_equal(weft_exit_code(WEFT_E_POST_LOAD), 1);
	rig_close(&rig);
}

/* Of two engines of two ranks, that one makes nothing of version 2, and the other engine shows it. */
static void miss(struct rig *rig, struct seen *seen, uint32_t rank, const char *commit,
		 const char *on_miss)
{
	open_rig(rig, seen,
		 &(struct rig_options){.trainers = 2,
				       .ranks = 4,
				       .engines = 2,
				       .shadow = 1,
				       .commit = commit,
				       .on_loss = "continue",
				       .on_miss = on_miss});
	rig_update(rig, 1);
	seen[rank].answer = -7;
	send_all(rig, 2);
	for (uint32_t i = 0; i < 4; i++) {
		bool other = i / 2 != rank / 2;

		pthread_join(rig->waits[i].thread, NULL);
		assert_int_equal(rig->waits[i].rc != 0, !other);
		rig_check(rig, i, other ? 2 : 1);
	}
	assert_int_equal(rig->waits[rank].rc, -WEFT_E_POST_LOAD);
	seen[rank].answer = 0;
}

static void test_miss__is_one_version_of_an_engine_that_stays(void **state)
{
	static const char *const stays[] = {NULL, "stay"};
	static struct rig rig;
	static struct seen seen[RIG_MAX];

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		miss(&rig, seen, 1, "engine", stays[i]);
		assert_int_equal(rig.waits[0].rc, -WEFT_E_ABORTED);
		rig_update(&rig, 3);
		rig_close(&rig);
	}
}

struct sends {
	pthread_t thread;
	struct rig *rig;
	weft_worker *worker;
	uint64_t version;
	int rc;
	weft_error error;
};

static void *send_one(void *context)
{
	struct sends *sends = context;
	const struct rig *rig = sends->rig;
	const void *data[RIG_TENSORS] = {rig->tensors[0], rig->tensors[1], rig->tensors[2]};

	sends->rc = weft_update_begin(sends->worker, sends->version, &sends->error);
	if (!sends->rc)
		sends->rc = host_write_all(sends->worker, data, &sends->error);
	if (!sends->rc)
		sends->rc = weft_update_end(sends->worker, &sends->error);
	return NULL;
}

/* Both at once: the job may pause before it, where each waits for the other. */
static void send_together(struct rig *rig, uint64_t version)
{
	struct sends sends[2];

	for (uint32_t i = 0; i < 2; i++) {
		sends[i] = (struct sends){.rig = rig,
					  .worker = rig->trainers[i],
					  .version = version,
					  .error = WEFT_ERROR_INIT};
		pthread_create(&sends[i].thread, NULL, send_one, &sends[i]);
	}
	for (uint32_t i = 0; i < 2; i++)
		pthread_join(sends[i].thread, NULL);
	for (uint32_t i = 0; i < 2; i++)
		rig_ok(sends[i].rc, &sends[i].error);
}

/* With commit=job too, whether its first rank decides for the other engine or not: that one shows the version. */
static void test_miss__takes_an_engine_out_that_is_to_leave(void **state)
{
	static const struct {
		const char *commit;
		uint32_t rank;
	} rows[] = {{"engine", 1}, {"job", 1}, {"job", 0}, {"job", 3}};
	static struct rig rig;
	static struct seen seen[RIG_MAX];
	weft_error error = WEFT_ERROR_INIT;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint32_t gone = rows[i].rank / 2 * 2, mate = rows[i].rank ^ 1;
		weft_loss loss = WEFT_LOSS_INIT;
		char name[16];

		miss(&rig, seen, rows[i].rank, rows[i].commit, "leave");
		snprintf(name, sizeof(name), "inference %u", rows[i].rank);
		assert_non_null(strstr(rig.waits[mate].error.text, name));
		rig_fill(&rig, 3);
		rig_wait_begin(&rig, 3, 0);
		send_together(&rig, 3);
		for (uint32_t r = 0; r < 4; r++) {
			pthread_join(rig.waits[r].thread, NULL);
			if (r / 2 * 2 == gone)
				assert_int_equal(rig.waits[r].rc, -WEFT_E_POST_LOAD);
			else
				rig_check(&rig, r, 3);
		}
		rig_ok(weft_loss_at(rig.trainers[0], 0, &loss, &error), &error);
		assert_int_equal(loss.first, gone);
		assert_int_equal(loss.count, 2);
		rig_close(&rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hook__sees_the_whole_version_before_readers_do),
		cmocka_unit_test(test_hook__that_calls_back_is_told_that_it_is_inside),
		cmocka_unit_test(test_hook__that_fails_keeps_the_version_from_readers),
		cmocka_unit_test(test_hook__is_not_called_for_a_version_that_did_not_arrive),
		cmocka_unit_test(test_hook__belongs_to_inference_ranks),
		cmocka_unit_test(test_miss__is_one_version_of_an_engine_that_stays),
		cmocka_unit_test(test_miss__takes_an_engine_out_that_is_to_leave),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks whose parameters lie on a mock GPU that their transport does not write: pieces land in windows of pinned memory, and
 * are put in place while more come.
 */
#include "tests/support/gpu_nic.h"
#include "tests/unit/worker/device_rig.h"
#include "worker/api/worker.h"

static const struct rig_options landing = {.trainers = 1,
					   .ranks = 2,
					   .transport = "shm",
					   .memory = "cuda:0",
					   .rank_memory = "cuda:1",
					   .checksums = 1};

static weft_stats stats_of(const struct rig *rig)
{
	weft_stats stats = WEFT_STATS_INIT;

	assert_int_equal(weft_get_stats(rig->trainers[0], &stats, NULL), 0);
	return stats;
}

/* ---- ways ---- */

static void from_gpu(const struct rig_options *options)
{
	struct tensors tensors;
	struct rig rig;

	open_all(&rig, &tensors, options);
	for (uint64_t version = 1; version <= 3; version++)
		update(&rig, &tensors, version);
	assert_int_equal(stats_of(&rig).pieces_landed, 3 * 3 * options->ranks);
	close_all(&rig, &tensors);
}

static void test_update__lands_over_any_transport(void **state)
{
	static const char *const transports[] = {"shm", "tcp", "shm,tcp"};

	(void)state;
	for (size_t i = 0; i < sizeof(transports) / sizeof(*transports); i++)
		for (int checksums = 0; checksums < 2; checksums++) {
			struct rig_options options = landing;

			options.transport = transports[i];
			options.checksums = checksums;
			from_gpu(&options);
		}
}

static void test_update__lands_where_readers_keep_their_version(void **state)
{
	struct rig_options options = landing;

	(void)state;
	options.shadow = 1;
	from_gpu(&options);
	options.shadow = 0;
	options.stage = "device";
	from_gpu(&options);
}

static void from_host(const struct rig_options *options)
{
	struct rig rig;

	cuda_mock_open(&(struct cuda_mock_options){.devices = 2, .order = CUDA_MOCK_LATE});
	rig_open(&rig, options);
	for (uint64_t version = 1; version <= 3; version++) {
		rig_fill(&rig, version);
		rig_wait_begin(&rig, version, 0);
		for (uint32_t i = 0; i < options->trainers; i++)
			rig_send(&rig, i, version);
		rig_wait_end(&rig, 0);
		for (uint32_t i = 0; i < options->ranks; i++)
			check_rank(&rig, i, version);
	}
	rig_close(&rig);
	assert_int_equal(cuda_mock_close(), 0);
}

static void test_trainers__may_lie_on_the_host_and_be_several(void **state)
{
	static const char *const replicas[] = {"ring", "full"};

	(void)state;
	for (size_t i = 0; i < sizeof(replicas) / sizeof(*replicas); i++) {
		struct rig_options options = landing;

		options.memory = NULL;
		options.replica = replicas[i];
		from_host(&options);
		options.trainers = 2;
		options.transport = "tcp";
		from_host(&options);
	}
}

static uint64_t own[RIG_MAX][RIG_TENSORS];

/* p.o lies on the host, the others anywhere on the GPU. */
static weft_memory own_memory(struct rig *rig, uint32_t rank, uint32_t param)
{
	static unsigned char host[RIG_MAX][4096] __attribute__((aligned(4096)));

	(void)rig;
	if (param == 1)
		return weft_host_memory(host[rank] + 8, 480);
	own[rank][param] = cuda_mock_allocate(1, CUDA_MOCK_POOL, 4096);
	return weft_cuda_memory(1, (void *)(uintptr_t)(own[rank][param] + 24), 480, NULL);
}

/* Of a pool that no other process can open: nobody but its owner has to. */
static void test_own_memory__is_filled_wherever_it_lies(void **state)
{
	struct rig_options options = landing;
	struct tensors tensors;
	struct rig rig;

	(void)state;
	options.own_memory = 1;
	options.own = own_memory;
	open_all(&rig, &tensors, &options);
	for (uint64_t version = 1; version <= 3; version++)
		update(&rig, &tensors, version);
	for (uint32_t i = 0; i < RIG_MAX; i++)
		weft_close(&rig.trainers[i]);
	tensors_close(&tensors);
	rig_close(&rig);
	for (uint32_t i = 0; i < options.ranks; i++) {
		cuda_mock_free(own[i][0]);
		cuda_mock_free(own[i][2]);
	}
	assert_int_equal(cuda_mock_close(), 0);
}

/* ---- windows that are smaller than what goes through them ---- */

enum { BIG_ROWS = 1024, BIG_COLUMNS = 256, BIG_BYTES = BIG_ROWS * BIG_COLUMNS * 4 };

static const weft_tensor big_tensors[2] = {
	{sizeof(weft_tensor), "w", "F32", 2, {BIG_ROWS, BIG_COLUMNS}},
	{sizeof(weft_tensor), "c", "F32", 2, {BIG_ROWS, BIG_COLUMNS}}};

/* Rank r has half of the rows of w, and half of the columns of c. */
struct big {
	struct rig rig;
	weft_memory tensors[2];
	float *host[2];
};

static void declare_big(struct big *big)
{
	struct rig *rig = &big->rig;
	uint64_t rows = BIG_ROWS / rig->options.ranks, columns = BIG_COLUMNS / rig->options.ranks;

	for (uint32_t t = 0; t < 2; t++)
		assert_int_equal(weft_declare_tensor(rig->trainers[0], &big_tensors[t], t, 0,
						     BIG_ROWS, NULL, NULL),
				 0);
	for (uint64_t r = 0; r < rig->options.ranks; r++) {
		const weft_param params[2] = {
			{sizeof(weft_param), "p.w", "F32", 2, {rows, BIG_COLUMNS}, NULL},
			{sizeof(weft_param), "p.c", "F32", 2, {BIG_ROWS, columns}, NULL}};
		const uint64_t lo[2][2] = {{r * rows, 0}, {0, r * columns}};
		const uint64_t hi[2][2] = {{(r + 1) * rows, BIG_COLUMNS},
					   {BIG_ROWS, (r + 1) * columns}};

		for (uint32_t t = 0; t < 2; t++) {
			assert_int_equal(weft_declare_param(rig->ranks[r], &params[t], NULL, NULL),
					 0);
			assert_int_equal(weft_declare_piece(rig->ranks[r], &big_tensors[t], lo[t],
							    hi[t], t, 0, NULL),
					 0);
		}
	}
}

static void big_open(struct big *big, const struct rig_options *options)
{
	struct rig *rig = &big->rig;
	uint32_t count = 0;

	memset(big, 0, sizeof(*big));
	cuda_mock_open(&(struct cuda_mock_options){.devices = 2, .order = CUDA_MOCK_LATE});
	rig->options = *options;
	rig_start_controller(rig);
	rig->joins[count++].worker = rig->trainers[0] = rig_open_worker(rig, WEFT_TRAINER, 0);
	for (uint32_t r = 0; r < options->ranks; r++)
		rig->joins[count++].worker = rig->ranks[r] =
			rig_open_worker(rig, WEFT_INFERENCE, r);
	declare_big(big);
	for (uint32_t i = 0; i < count; i++)
		rig->joins[i].error = (weft_error)WEFT_ERROR_INIT;
	for (uint32_t i = 0; i < count; i++)
		pthread_create(&rig->joins[i].thread, NULL, rig_join_thread, &rig->joins[i]);
	for (uint32_t i = 0; i < count; i++) {
		pthread_join(rig->joins[i].thread, NULL);
		rig_ok(rig->joins[i].rc, &rig->joins[i].error);
	}
	for (uint32_t t = 0; t < 2; t++) {
		big->host[t] = malloc(BIG_BYTES);
		big->tensors[t] = weft_host_memory(big->host[t], BIG_BYTES);
		if (options->memory)
			assert_int_equal(weft_play_allocate(0, BIG_BYTES, &big->tensors[t], NULL),
					 0);
	}
}

static void big_close(struct big *big)
{
	weft_close(&big->rig.trainers[0]);
	for (uint32_t t = 0; t < 2; t++) {
		if (big->rig.options.memory)
			weft_play_free(&big->tensors[t]);
		free(big->host[t]);
	}
	rig_close(&big->rig);
	assert_int_equal(cuda_mock_close(), 0);
}

static float big_value(uint64_t version, uint32_t tensor, uint64_t at)
{
	return (float)((version * 977 + tensor * 131 + at) % 1000003);
}

static void big_fill(struct big *big, uint64_t version)
{
	for (uint32_t t = 0; t < 2; t++) {
		for (uint64_t i = 0; i < BIG_BYTES / 4; i++)
			big->host[t][i] = big_value(version, t, i);
		if (big->rig.options.memory)
			assert_int_equal(weft_play_copy(0, big->tensors[t].pointer, big->host[t],
							BIG_BYTES, NULL),
					 0);
	}
}

static void big_check(struct big *big, uint64_t version)
{
	uint64_t n = big->rig.options.ranks, rows = BIG_ROWS / n, columns = BIG_COLUMNS / n;
	uint64_t each = BIG_BYTES / 4 / n;
	float *here = malloc(BIG_BYTES / n);

	for (uint64_t r = 0; r < n; r++)
		for (uint32_t t = 0; t < 2; t++) {
			const void *memory = weft_param_memory(big->rig.ranks[r], t, version);

			assert_non_null(memory);
			assert_int_equal(weft_play_copy(1, here, memory, BIG_BYTES / n, NULL), 0);
			for (uint64_t i = 0; i < each; i++) {
				uint64_t at =
					t ? i / columns * BIG_COLUMNS + r * columns + i % columns
					  : r * rows * BIG_COLUMNS + i;

				if (here[i] != big_value(version, t, at))
					fail_msg("rank %u, parameter %u, element %u of version %u",
						 (unsigned)r, t, (unsigned)i, (unsigned)version);
			}
		}
	free(here);
}

static void big_send(struct big *big, uint64_t version)
{
	weft_error error = WEFT_ERROR_INIT;

	rig_ok(weft_update_begin(big->rig.trainers[0], version, &error), &error);
	rig_ok(weft_update_write_all(big->rig.trainers[0], big->tensors, 2, sizeof(*big->tensors),
				     &error),
	       &error);
	rig_ok(weft_update_end(big->rig.trainers[0], &error), &error);
}

static struct rig_options narrow(const char *transport, const char *memory)
{
	struct rig_options options = landing;

	options.transport = transport;
	options.memory = memory;
	options.landing_bytes = 1; /* the least there is: 64 KiB, for pieces of 512 */
	return options;
}

static void test_window__may_be_smaller_than_a_piece(void **state)
{
	static const char *const transports[] = {"shm", "tcp"};
	static const char *const memories[] = {"cuda:0", NULL};

	(void)state;
	for (int i = 0; i < 8; i++) {
		struct rig_options options = narrow(transports[i & 1], memories[i >> 1 & 1]);
		struct big big;

		options.pack_threads = i & 4 ? 4 : 1;
		options.ring_bytes = i & 4 ? 2 << 20 : 0;
		big_open(&big, &options);
		for (uint64_t version = 1; version <= 2; version++) {
			big_fill(&big, version);
			rig_wait_begin(&big.rig, version, 0);
			big_send(&big, version);
			rig_wait_end(&big.rig, 0);
			big_check(&big, version);
		}
		/* 16 KiB in one go, and what is said of them */
		assert_true(stats_of(&big.rig).writes > 2 * 2 * BIG_BYTES / 16384);
		big_close(&big);
	}
}

/* A replica that keeps a version sends it again through windows too. */
static void test_replay__lands(void **state)
{
	struct rig_options options = narrow("shm", NULL);
	weft_error error = WEFT_ERROR_INIT;
	struct big big;

	(void)state;
	options.replica = "full";
	options.ranks = 1; /* which then has every home to itself */
	big_open(&big, &options);
	big_fill(&big, 1);
	rig_wait_begin(&big.rig, 1, 0);
	big_send(&big, 1);
	rig_wait_end(&big.rig, 0);
	rig_wait_begin(&big.rig, 2, 0);
	rig_ok(weft_update_replay(big.rig.trainers[0], 2, &error), &error);
	rig_wait_end(&big.rig, 0);
	assert_int_equal(weft_published(big.rig.ranks[0]), 2);
	assert_int_equal(weft_play_copy(1, big.host[0], weft_param_memory(big.rig.ranks[0], 0, 2),
					BIG_BYTES, NULL),
			 0);
	for (uint64_t i = 0; i < BIG_BYTES / 4; i++)
		assert_true(big.host[0][i] == big_value(1, 0, i));
	big_close(&big);
}

/* ---- who is not there ---- */

/* The ACCEPT that comes again has overwritten what was said of what was taken, and says it too. */
static void check_accept(const struct weft_worker *trainer, uint64_t taken)
{
	struct transport_signal signal = {0};
	struct update_accept accept;

	for (int i = 0; i < 1000 && signal.tag != UPDATE_ACCEPT; i++) {
		clock_sleep_ms(1);
		transport_signal_read(trainer->epoch->peers[0].endpoint, &signal);
	}
	assert_int_equal(signal.tag, UPDATE_ACCEPT);
	memcpy(&accept, signal.payload, sizeof(accept));
	assert_int_equal(accept.taken, taken);
}

static void test_wait__that_is_late_and_comes_again_goes_on_where_it_was(void **state)
{
	struct rig_options options = narrow("shm", "cuda:0");
	weft_error error = WEFT_ERROR_INIT;
	uint64_t taken;
	struct big big;

	(void)state;
	big_open(&big, &options);
	big_fill(&big, 1);
	rig_wait_begin(&big.rig, 1, 400);
	rig_ok(weft_update_begin(big.rig.trainers[0], 1, &error), &error);
	rig_ok(weft_update_write(big.rig.trainers[0], 0, &big.tensors[0], &error), &error);
	rig_wait_end(&big.rig, -WEFT_E_TIMEOUT);
	/* all but the last 16 KiB of 512, which nobody has told of yet */
	assert_non_null(strstr(big.rig.waits[0].error.text, "no end from trainer 0"));
	assert_non_null(strstr(big.rig.waits[0].error.text,
			       "507904 of its 1048576 bytes that land are here"));
	taken = big.rig.ranks[0]->waiter.now->links[0].taken;
	assert_int_equal(taken, 31);
	rig_wait_begin(&big.rig, 1, 0);
	check_accept(big.rig.trainers[0], taken);
	rig_ok(weft_update_write(big.rig.trainers[0], 1, &big.tensors[1], &error), &error);
	rig_ok(weft_update_end(big.rig.trainers[0], &error), &error);
	rig_wait_end(&big.rig, 0);
	big_check(&big, 1);
	big_close(&big);
}

static void test_window__that_nobody_empties_is_a_deadline_that_names_the_rank(void **state)
{
	struct rig_options options = narrow("shm", NULL);
	weft_error error = WEFT_ERROR_INIT;
	struct big big;

	(void)state;
	options.update_timeout_ms = 1000;
	big_open(&big, &options);
	big_fill(&big, 1);
	rig_wait_begin(&big.rig, 1, 200);
	rig_ok(weft_update_begin(big.rig.trainers[0], 1, &error), &error);
	rig_wait_end(&big.rig, -WEFT_E_TIMEOUT);
	assert_int_equal(weft_update_write(big.rig.trainers[0], 0, &big.tensors[0], &error),
			 -WEFT_E_TIMEOUT);
	assert_non_null(strstr(error.text, "inference "));
	assert_non_null(strstr(error.text, "has taken nothing out of its window of"));
	assert_non_null(strstr(error.text, "not in weft_update_wait"));
	assert_int_equal(weft_published(big.rig.ranks[0]), 0);
	big_close(&big);
}

static void test_abort__in_the_middle_leaves_the_window_to_the_next_version(void **state)
{
	struct rig_options options = narrow("tcp", "cuda:0");
	weft_error error = WEFT_ERROR_INIT;
	struct big big;

	(void)state;
	big_open(&big, &options);
	big_fill(&big, 1);
	rig_wait_begin(&big.rig, 1, 0);
	rig_ok(weft_update_begin(big.rig.trainers[0], 1, &error), &error);
	rig_ok(weft_update_write(big.rig.trainers[0], 0, &big.tensors[0], &error), &error);
	rig_ok(weft_update_abort(big.rig.trainers[0], "no", &error), &error);
	rig_wait_end(&big.rig, -WEFT_E_ABORTED);
	big_fill(&big, 2);
	rig_wait_begin(&big.rig, 2, 0);
	big_send(&big, 2);
	rig_wait_end(&big.rig, 0);
	big_check(&big, 2);
	big_close(&big);
}

static void test_gpu__that_is_lost_while_pieces_land_is_told_to_all(void **state)
{
	struct rig_options options = narrow("shm", NULL);
	weft_error error = WEFT_ERROR_INIT;
	struct big big;
	int rc;

	(void)state;
	big_open(&big, &options);
	big_fill(&big, 1);
	rig_wait_begin(&big.rig, 1, 0);
	rig_ok(weft_update_begin(big.rig.trainers[0], 1, &error), &error);
	cuda_mock_lose(1);
	rc = weft_update_write_all(big.rig.trainers[0], big.tensors, 2, sizeof(*big.tensors),
				   &error);
	if (!rc)
		rc = weft_update_end(big.rig.trainers[0], &error);
	assert_int_not_equal(rc, 0);
	assert_non_null(strstr(error.text, "inference "));
	for (uint32_t r = 0; r < 2; r++) {
		pthread_join(big.rig.waits[r].thread, NULL);
		assert_int_not_equal(big.rig.waits[r].rc, 0);
		assert_int_equal(weft_published(big.rig.ranks[r]), 0);
	}
	assert_true(big.rig.waits[0].rc == -WEFT_E_TRANSPORT ||
		    big.rig.waits[1].rc == -WEFT_E_TRANSPORT);
	weft_close(&big.rig.trainers[0]);
	for (uint32_t t = 0; t < 2; t++)
		free(big.host[t]);
	rig_close(&big.rig);
	cuda_mock_close(); /* what was on a lost device is gone with it */
}

/* ---- what a trainer says of its window ---- */

static int take(struct weft_worker *rank, const struct window_entry *entry, uint64_t landed,
		struct error *error)
{
	struct waiter *waiter = &rank->waiter;
	const struct peer *peer = &waiter->epoch->peers[0];
	unsigned char *window = (unsigned char *)transport_region_memory(
					waiter->epoch->options.beside->windows.region) +
				peer->window_at;
	bool broken;
	int rc;

	memcpy(window + waiter->now->links[0].taken % WINDOW_ENTRIES * sizeof(*entry), entry,
	       sizeof(*entry));
	waiter->now->links[0].landed = waiter->now->links[0].taken + landed;
	waiter->now->links[0].ending = true; /* nobody is told */
	rc = waiter_take(waiter, 0, clock_deadline_ns(1000), &broken, error);
	assert_int_equal(broken, rc != 0);
	waiter_forget(waiter, 0);
	waiter->now->links[0].ending = false;
	waiter->now->links[0].landed = waiter->now->links[0].taken;
	return rc;
}

static void test_entries__that_leave_a_piece_or_the_window_are_refused(void **state)
{
	const struct {
		struct window_entry entry;
		uint64_t landed;
		const char *words;
	} rows[] = {
		{{0, 0, 3, 16, 0, 0}, 1, "piece 3 of 3"},
		{{8, 0, 0, 233, 0, 0}, 1, "bytes 8..+233 of a piece of 240"},
		{{UINT64_MAX, 0, 0, 2, 0, 0}, 1, "of a piece of 240"},
		{{0, 65536, 0, 1, 0, 0}, 1, "of its window of"},
		{{0, UINT64_MAX - 8, 0, 16, 0, 0}, 1, "of its window of"},
		{{0, 0, 0, 240, 8, 2},
		 1,
		 "was not told that there is anything which it differs from"},
		{{0, 0, 0, 16, 0, 0}, WINDOW_ENTRIES + 1, "entries landed in a window of 512"},
	};
	const struct window_entry good = {0, 0, 0, 240, 0, 0};
	struct tensors tensors;
	struct error error = {0};
	struct rig rig;

	(void)state;
	open_all(&rig, &tensors, &landing);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		assert_int_equal(take(rig.ranks[0], &rows[i].entry, rows[i].landed, &error),
				 -ERROR_MESSAGE);
		if (!strstr(error.text, rows[i].words) || !strstr(error.text, "trainer 0"))
			fail_msg("'%s' is not in: %s", rows[i].words, error.text);
	}
	assert_int_equal(take(rig.ranks[0], &good, 1, &error), 0);
	close_all(&rig, &tensors);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_update__lands_over_any_transport),
		cmocka_unit_test(test_update__lands_where_readers_keep_their_version),
		cmocka_unit_test(test_trainers__may_lie_on_the_host_and_be_several),
		cmocka_unit_test(test_own_memory__is_filled_wherever_it_lies),
		cmocka_unit_test(test_window__may_be_smaller_than_a_piece),
		cmocka_unit_test(test_replay__lands),
		cmocka_unit_test(test_wait__that_is_late_and_comes_again_goes_on_where_it_was),
		cmocka_unit_test(
			test_window__that_nobody_empties_is_a_deadline_that_names_the_rank),
		cmocka_unit_test(test_abort__in_the_middle_leaves_the_window_to_the_next_version),
		cmocka_unit_test(test_gpu__that_is_lost_while_pieces_land_is_told_to_all),
		cmocka_unit_test(test_entries__that_leave_a_piece_or_the_window_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Two trainers that have the left and the right columns of what a rank wants whole, in memory of mock GPUs on either side or on
 * both: packed straight into its runs, or put in place out of windows that cut them anywhere.
 *
 *   w [700,250]  | trainer 0: 100 | trainer 1: 150 |     runs of 400 and of 600 bytes in each row of the rank
 *   v [64,16]    rows 0..32 of trainer 0, 32..64 of trainer 1: no runs, on the same way
 */
#include "tests/support/gpu_nic.h"
#include "tests/unit/worker/device_rig.h"
#include "transport/verbs/calls.h"
#include "worker/api/worker.h"

enum { ROWS = 700, COLUMNS = 250, LEFT = 100, HALVES = 2, W = 0, V = 1, TENSORS = 2 };
enum { W_BYTES = ROWS * COLUMNS * 4, V_BYTES = 64 * 16 * 4 };

static const weft_tensor tensors[TENSORS] = {{sizeof(weft_tensor), "w", "F32", 2, {ROWS, COLUMNS}},
					     {sizeof(weft_tensor), "v", "F32", 2, {64, 16}}};

struct job {
	struct rig rig;
	weft_memory held[HALVES][TENSORS];
	float *host[HALVES][TENSORS];
	weft_memory own[TENSORS]; /* own_memory: p.w on the host, p.v on the GPU */
};

static float value(uint64_t version, uint32_t tensor, uint64_t at)
{
	return (float)((version * 977 + tensor * 131 + at) % 1000003);
}

/* What trainer t has of a tensor. */
static void part(uint32_t t, uint32_t tensor, uint64_t lo[2], uint64_t hi[2])
{
	lo[0] = tensor == V ? 32 * t : 0;
	hi[0] = tensor == V ? lo[0] + 32 : ROWS;
	lo[1] = tensor == W && t ? LEFT : 0;
	hi[1] = tensor == V ? 16 : t ? COLUMNS : LEFT;
}

static uint64_t part_bytes(uint32_t t, uint32_t tensor)
{
	uint64_t lo[2], hi[2];

	part(t, tensor, lo, hi);
	return (hi[0] - lo[0]) * (hi[1] - lo[1]) * 4;
}

/* ---- declarations ---- */

static void declare_trainer(struct job *job, uint32_t t)
{
	weft_worker *worker = job->rig.trainers[t] = rig_open_worker(&job->rig, WEFT_TRAINER, t);

	for (uint32_t i = 0; i < TENSORS; i++) {
		weft_holding holding = WEFT_HOLDING_INIT;
		weft_tensor local = tensors[i];

		part(t, i, holding.lo, holding.hi);
		local.shape[0] = holding.hi[0] - holding.lo[0];
		local.shape[1] = holding.hi[1] - holding.lo[1];
		assert_int_equal(weft_declare_local(worker, &local, &holding.local, NULL), 0);
		holding.order = i;
		assert_int_equal(weft_declare_holding(worker, &tensors[i], &holding, NULL), 0);
	}
}

static void declare_rank(struct job *job)
{
	weft_worker *worker = job->rig.ranks[0] = rig_open_worker(&job->rig, WEFT_INFERENCE, 0);
	bool own = job->rig.options.own_memory;

	if (own) {
		job->own[W] = weft_host_memory(aligned_alloc(4096, (W_BYTES + 4095) / 4096 * 4096),
					       W_BYTES);
		job->own[V] = (weft_memory)WEFT_MEMORY_INIT;
		assert_int_equal(weft_play_allocate(1, V_BYTES, &job->own[V], NULL), 0);
	}
	for (uint32_t i = 0; i < TENSORS; i++) {
		const weft_param param = {sizeof(weft_param),
					  i ? "p.v" : "p.w",
					  "F32",
					  2,
					  {tensors[i].shape[0], tensors[i].shape[1]},
					  own ? &job->own[i] : NULL};

		assert_int_equal(weft_declare_param(worker, &param, NULL, NULL), 0);
		assert_int_equal(weft_declare_piece(worker, &tensors[i], (const uint64_t[2]){0, 0},
						    tensors[i].shape, i, 0, NULL),
				 0);
	}
}

static const struct verbs_calls *nics_of(struct member self)
{
	return verbs_mock_calls(self.role == ROLE_TRAINER ? 0 : 1);
}

static void open_nics(const struct rig_options *options)
{
	if (strcmp(options->transport, "verbs"))
		return;
	verbs_mock_open(&(struct verbs_mock_options){
		.seed = 1, .dmabuf = true, .background = true, .gpu = &gpu_nic});
	verbs_calls_tested = nics_of;
}

static void close_nics(const struct rig_options *options)
{
	if (strcmp(options->transport, "verbs"))
		return;
	assert_int_equal(verbs_mock_alive(), 0);
	assert_string_equal(verbs_mock_violation(), "");
	verbs_calls_tested = NULL;
	verbs_mock_close();
}

static void open_job(struct job *job, const struct rig_options *options)
{
	struct rig *rig = &job->rig;

	memset(job, 0, sizeof(*job));
	cuda_mock_open(&(struct cuda_mock_options){.devices = 2, .order = CUDA_MOCK_LATE});
	open_nics(options);
	rig->options = *options;
	rig_start_controller(rig);
	for (uint32_t t = 0; t < HALVES; t++)
		declare_trainer(job, t);
	declare_rank(job);
	for (uint32_t i = 0; i <= HALVES; i++) {
		rig->joins[i] =
			(struct rig_wait){.worker = i < HALVES ? rig->trainers[i] : rig->ranks[0],
					  .error = WEFT_ERROR_INIT};
		pthread_create(&rig->joins[i].thread, NULL, rig_join_thread, &rig->joins[i]);
	}
	for (uint32_t i = 0; i <= HALVES; i++)
		pthread_join(rig->joins[i].thread, NULL);
	for (uint32_t i = 0; i <= HALVES; i++)
		rig_ok(rig->joins[i].rc, &rig->joins[i].error);
	for (uint32_t t = 0; t < HALVES; t++)
		for (uint32_t i = 0; i < TENSORS; i++) {
			job->host[t][i] = malloc(part_bytes(t, i));
			job->held[t][i] = weft_host_memory(job->host[t][i], part_bytes(t, i));
			if (options->memory)
				assert_int_equal(weft_play_allocate(0, part_bytes(t, i),
								    &job->held[t][i], NULL),
						 0);
		}
}

static void close_job(struct job *job)
{
	for (uint32_t t = 0; t < HALVES; t++) {
		weft_close(&job->rig.trainers[t]);
		for (uint32_t i = 0; i < TENSORS; i++) {
			if (job->rig.options.memory)
				weft_play_free(&job->held[t][i]);
			free(job->host[t][i]);
		}
	}
	rig_close(&job->rig);
	for (uint32_t i = 0; i < TENSORS && job->rig.options.own_memory; i++) {
		if (i == V)
			weft_play_free(&job->own[i]);
		else
			free(job->own[i].pointer);
	}
	assert_int_equal(cuda_mock_close(), 0);
	close_nics(&job->rig.options);
}

/* ---- updates ---- */

static void fill(struct job *job, uint64_t version)
{
	for (uint32_t t = 0; t < HALVES; t++)
		for (uint32_t i = 0; i < TENSORS; i++) {
			uint64_t lo[2], hi[2], n = 0;

			part(t, i, lo, hi);
			for (uint64_t r = lo[0]; r < hi[0]; r++)
				for (uint64_t c = lo[1]; c < hi[1]; c++)
					job->host[t][i][n++] =
						value(version, i, r * tensors[i].shape[1] + c);
			if (job->rig.options.memory)
				assert_int_equal(weft_play_copy(0, job->held[t][i].pointer,
								job->host[t][i], n * 4, NULL),
						 0);
		}
}

static int try_part(struct job *job, uint32_t t, uint64_t version, weft_error *error)
{
	weft_worker *worker = job->rig.trainers[t];
	int rc = weft_update_begin(worker, version, error);

	if (!rc)
		rc = weft_update_write_all(worker, job->held[t], TENSORS, sizeof(**job->held),
					   error);
	return rc ? rc : weft_update_end(worker, error);
}

static void send_part(struct job *job, uint32_t t, uint64_t version)
{
	weft_error error = WEFT_ERROR_INIT;

	rig_ok(try_part(job, t, version, &error), &error);
}

static void check(struct job *job, uint64_t version)
{
	for (uint32_t i = 0; i < TENSORS; i++) {
		uint64_t count = tensors[i].shape[0] * tensors[i].shape[1];
		const void *memory = weft_param_memory(job->rig.ranks[0], i, version);
		float *here = malloc(count * 4);

		assert_non_null(memory);
		if (job->rig.options.rank_memory)
			assert_int_equal(weft_play_copy(1, here, memory, count * 4, NULL), 0);
		else
			memcpy(here, memory, count * 4);
		for (uint64_t k = 0; k < count; k++)
			if (here[k] != value(version, i, k))
				fail_msg("parameter %u, element %u of version %u", (unsigned)i,
					 (unsigned)k, (unsigned)version);
		free(here);
	}
}

static void deliver(struct job *job, uint64_t version)
{
	fill(job, version);
	rig_wait_begin(&job->rig, version, 0);
	for (uint32_t t = 0; t < HALVES; t++)
		send_part(job, t, version);
	rig_wait_end(&job->rig, 0);
	check(job, version);
}

static weft_stats stats_of(const struct job *job, uint32_t t)
{
	weft_stats stats = WEFT_STATS_INIT;

	assert_int_equal(weft_get_stats(job->rig.trainers[t], &stats, NULL), 0);
	return stats;
}

/* What one update has a driver do. */
static uint64_t driven(struct job *job, uint64_t version)
{
	uint64_t before = cuda_mock_count(CUDA_CALL_copy) + cuda_mock_count(CUDA_CALL_launch);

	deliver(job, version);
	return cuda_mock_count(CUDA_CALL_copy) + cuda_mock_count(CUDA_CALL_launch) - before;
}

/* ---- every way ---- */

/* landed: pieces of each trainer: what is in runs, with it what is small if it comes from the host, and all where nothing else is
 * written. */
static const struct way {
	const char *name, *transport, *memory, *rank_memory, *stage;
	unsigned landed;
	int shadow, own_memory;
} ways[] = {
	{"from GPU to GPU", "cuda", "cuda:0", "cuda:1", NULL, 0, 0, 0},
	{"to a shadow", "cuda", "cuda:0", "cuda:1", NULL, 0, 1, 0},
	{"staged on the GPU", "cuda", "cuda:0", "cuda:1", "device", 0, 0, 0},
	{"staged on the host", "cuda", "cuda:0", "cuda:1", "host", 0, 0, 0},
	{"from GPU to host", "cuda", "cuda:0", NULL, NULL, 0, 0, 0},
	{"from GPU to host over shm", "shm", "cuda:0", NULL, NULL, 0, 0, 0},
	{"from host to GPU", "cuda", NULL, "cuda:1", NULL, 2, 0, 0},
	{"by windows", "shm", "cuda:0", "cuda:1", NULL, 2, 0, 0},
	{"by windows of tcp to a shadow", "tcp", "cuda:0", "cuda:1", NULL, 2, 1, 0},
	{"by windows of tcp, staged", "tcp", "cuda:0", "cuda:1", "device", 2, 0, 0},
	{"by windows of tcp, staged on the host", "tcp", NULL, "cuda:1", "host", 2, 0, 0},
	{"by NICs that read and write GPUs", "verbs", "cuda:0", "cuda:1", NULL, 1, 0, 0},
	{"from GPU to what is on both", "cuda", "cuda:0", "cuda:1", NULL, 1, 0, 1},
};

static struct rig_options options_of(const struct way *way)
{
	return (struct rig_options){.trainers = HALVES,
				    .ranks = 1,
				    .transport = way->transport,
				    .memory = way->memory,
				    .rank_memory = way->rank_memory,
				    .stage = way->stage,
				    .shadow = way->shadow,
				    .own_memory = way->own_memory,
				    .checksums = 1,
				    .landing_bytes = 1}; /* the least there is: parts of 16 KiB */
}

static void test_runs__are_right_by_every_way_and_never_copied_one_by_one(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		struct rig_options options = options_of(&ways[i]);
		struct job job;
		uint64_t calls;

		print_message("%s\n", ways[i].name);
		open_job(&job, &options);
		deliver(&job, 1);
		calls = driven(&job, 2);
		/* of 1,400 runs: in 44 parts of the windows, packed, copied, summed; or a few kernels */
		assert_true(calls < (ways[i].landed ? 300 : 40));
		for (uint32_t t = 0; t < HALVES; t++) {
			assert_int_equal(stats_of(&job, t).pieces_landed, 2 * ways[i].landed);
			if (!ways[i].landed)
				assert_int_equal(stats_of(&job, t).pieces_mapped, 2 * TENSORS);
		}
		close_job(&job);
	}
}

/* ---- what goes wrong ---- */

static const struct way by_windows = {"", "shm", NULL, "cuda:1", NULL, TENSORS, 0, 0};

/* Until the rank has that element of the version. */
static void await_element(struct job *job, uint64_t version, uint32_t tensor, uint64_t at)
{
	uint64_t memory = (uint64_t)(uintptr_t)params_landed(&job->rig.ranks[0]->params, 0, tensor);
	float here = 0;

	for (int i = 0; i < 5000 && here != value(version, tensor, at); i++) {
		clock_sleep_ms(1);
		cuda_mock_peek(memory + at * 4, &here, 4);
	}
	assert_true(here == value(version, tensor, at));
}

/* One byte, of a run in the middle, after it was put in place and before it is summed. */
static void test_sum__of_runs_finds_a_byte_that_is_wrong_in_one(void **state)
{
	struct rig_options options = options_of(&by_windows);
	struct job job;
	uint64_t w;

	(void)state;
	open_job(&job, &options);
	deliver(&job, 1);
	w = (uint64_t)(uintptr_t)params_landed(&job.rig.ranks[0]->params, 0, W);
	fill(&job, 2);
	rig_wait_begin(&job.rig, 2, 0);
	send_part(&job, 0, 2);
	await_element(&job, 2, W, (ROWS - 1) * COLUMNS + LEFT - 1);
	await_element(&job, 2, V, 32 * 16 - 1);
	cuda_mock_poke(w + 301 * COLUMNS * 4 + 7, "\x5a", 1);
	send_part(&job, 1, 2);
	rig_wait_end(&job.rig, -WEFT_E_CHECKSUM);
	assert_non_null(strstr(job.rig.waits[0].error.text, "tensor w from trainer 0"));
	assert_non_null(
		strstr(job.rig.waits[0].error.text, "p.w, bytes 0..699400 in runs of 400:"));
	assert_null(strstr(job.rig.waits[0].error.text, "differ in all"));
	deliver(&job, 3);
	close_job(&job);
}

/* A stream of a host program's that the rank's device waits for until the word is 1. */
struct hold {
	_Atomic uint64_t *word;
	cuda_stream stream;
};

static void hold_open(struct hold *hold, const struct job *job)
{
	const struct cuda_calls *calls = cuda_calls();
	struct error error;

	hold->word = aligned_alloc(4096, 4096);
	*hold->word = 0;
	assert_int_equal(calls->enter(1), 0);
	assert_int_equal(calls->host_register((void *)hold->word, 4096), 0);
	assert_int_equal(calls->stream_create(&hold->stream), 0);
	assert_int_equal(calls->stream_wait_value(hold->stream, (uint64_t)(uintptr_t)hold->word, 1),
			 0);
	calls->leave();
	assert_int_equal(device_after(job->rig.ranks[0]->device, hold->stream, &error), 0);
}

static void hold_close(struct hold *hold)
{
	const struct cuda_calls *calls = cuda_calls();

	assert_int_equal(calls->enter(1), 0);
	assert_int_equal(calls->stream_destroy(hold->stream), 0);
	assert_int_equal(calls->host_unregister((void *)hold->word), 0);
	calls->leave();
	free((void *)hold->word);
}

/* One entry of trainer p's window: 900 bytes from 300 on, which begins and ends inside of a run. */
static int take(struct job *job, uint32_t p, uint32_t wait_ms)
{
	struct waiter *waiter = &job->rig.ranks[0]->waiter;
	const struct peer *peer = &waiter->epoch->peers[p];
	unsigned char *window = (unsigned char *)transport_region_memory(
					waiter->epoch->options.beside->windows.region) +
				peer->window_at;
	struct window_entry entry = {.from = 300, .bytes = 900};
	struct error error;
	bool broken;
	int rc;

	for (size_t i = 0; i < peer->plan->pieces; i++)
		if (waiter->epoch->plan->rows[waiter->epoch->receive.rows[peer->first_piece + i]]
			    .param == W)
			entry.ordinal = (uint32_t)i;
	memset(window + WINDOW_HEAD_BYTES, 0x10 + (int)p, entry.bytes);
	memcpy(window, &entry, sizeof(entry));
	waiter->now->links[p].landed = 1;
	waiter->now->links[p].ending = true; /* nobody is told */
	rc = waiter_take(waiter, p, clock_deadline_ns(wait_ms), &broken, &error);
	assert_false(broken);
	if (!rc)
		waiter_forget(waiter, p);
	return rc;
}

static void check_runs(const struct job *job)
{
	uint64_t w = (uint64_t)(uintptr_t)params_landed(&job->rig.ranks[0]->params, 0, W);

	for (uint32_t p = 0; p < HALVES; p++)
		for (uint64_t at = 0; at < 2 * 600; at++) {
			uint64_t run = p ? 600 : 400;
			unsigned char here;

			cuda_mock_peek(w + at / run * COLUMNS * 4 + p * LEFT * 4 + at % run, &here,
				       1);
			assert_int_equal(here, at >= 300 && at < 1200 ? 0x10 + p : 0);
		}
}

/* The table of what is put in place is one, and the device reads it when it likes. */
static void test_take__of_one_trainer_waits_for_the_kernel_of_anothers(void **state)
{
	struct rig_options options = options_of(&by_windows);
	struct hold hold;
	uint64_t launches;
	struct job job;

	(void)state;
	open_job(&job, &options);
	hold_open(&hold, &job);
	assert_int_equal(take(&job, 0, 50), -ERROR_TIMEOUT);
	launches = cuda_mock_count(CUDA_CALL_launch);
	assert_int_equal(take(&job, 1, 50), -ERROR_TIMEOUT);
	assert_int_equal(cuda_mock_count(CUDA_CALL_launch), launches);
	*hold.word = 1;
	assert_int_equal(take(&job, 1, 5000), 0);
	assert_int_equal(cuda_mock_count(CUDA_CALL_launch), launches + 1);
	assert_int_equal(take(&job, 0, 5000), 0); /* it was done meanwhile */
	assert_int_equal(cuda_mock_count(CUDA_CALL_launch), launches + 1);
	check_runs(&job);
	hold_close(&hold);
	close_job(&job);
}

static void test_abort__in_the_middle_of_runs_leaves_the_next_version_whole(void **state)
{
	struct rig_options options = options_of(&by_windows);
	weft_error error = WEFT_ERROR_INIT;
	struct job job;

	(void)state;
	open_job(&job, &options);
	fill(&job, 1);
	rig_wait_begin(&job.rig, 1, 0);
	rig_ok(weft_update_begin(job.rig.trainers[0], 1, &error), &error);
	rig_ok(weft_update_write(job.rig.trainers[0], W, &job.held[0][W], &error), &error);
	rig_ok(weft_update_abort(job.rig.trainers[0], "no", &error), &error);
	rig_wait_end(&job.rig, -WEFT_E_ABORTED);
	deliver(&job, 2);
	close_job(&job);
}

static void test_scatter__that_cannot_be_opened_leaves_nothing_behind(void **state)
{
	static const char *const calls[] = {"host_register", "event_create", "enter"};

	(void)state;
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		struct scatter *scatter;
		struct device *device;
		struct error error;

		cuda_mock_open(&(struct cuda_mock_options){.devices = 1});
		assert_int_equal(device_open(&device, "cuda:0", -1, &error), 0);
		cuda_mock_fail(calls[i], 1, 0);
		assert_int_not_equal(scatter_open(&scatter, device, 512, &error), 0);
		scatter_close(&scatter);
		device_close(&device);
		assert_int_equal(cuda_mock_close(), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_runs__are_right_by_every_way_and_never_copied_one_by_one),
		cmocka_unit_test(test_sum__of_runs_finds_a_byte_that_is_wrong_in_one),
		cmocka_unit_test(test_take__of_one_trainer_waits_for_the_kernel_of_anothers),
		cmocka_unit_test(test_scatter__that_cannot_be_opened_leaves_nothing_behind),
		cmocka_unit_test(test_abort__in_the_middle_of_runs_leaves_the_next_version_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

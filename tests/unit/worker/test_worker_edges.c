/* SPDX-License-Identifier: Apache-2.0
 *
 * The edges of a job: nothing to send, nobody who writes, one element, many ranks, hosts that
 * fork, that have no descriptors or no memory left, and allocations that fail one after another.
 */
#include "tests/support/sanitized.h"
#include "tests/unit/worker/worker_rig.h"

#include "base/memory.h"
#include "transport/shm/shm.h"
#include "worker/api/weft_play.h"
#include "worker/api/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define JOB_MAX 80

/* Workers of any declarations, with the rig's controller; joined on a thread each. */
struct job {
	struct rig rig;
	weft_worker *workers[JOB_MAX];
	struct rig_wait waits[JOB_MAX];
	uint32_t count, trainers;
};

static struct job *job_new(const struct rig_options *options)
{
	struct job *job = calloc(1, sizeof(*job));

	assert_non_null(job);
	job->rig.options = *options;
	rig_start_controller(&job->rig);
	return job;
}

static weft_worker *job_add(struct job *job, enum weft_role role, uint32_t rank)
{
	job->trainers += role == WEFT_TRAINER;
	return job->workers[job->count++] = rig_open_worker(&job->rig, role, rank);
}

static void job_each(struct job *job, uint32_t from, void *(*call)(void *))
{
	for (uint32_t i = from; i < job->count; i++) {
		job->waits[i].worker = job->workers[i];
		pthread_create(&job->waits[i].thread, NULL, call, &job->waits[i]);
	}
}

static void job_done(struct job *job, uint32_t from)
{
	for (uint32_t i = from; i < job->count; i++) {
		pthread_join(job->waits[i].thread, NULL);
		rig_ok(job->waits[i].rc, &job->waits[i].error);
	}
}

static void job_join(struct job *job)
{
	job_each(job, 0, rig_join_thread);
	job_done(job, 0);
}

/* Trainers are the first workers; data[t] is what trainer t sends for its only tensor. */
static void job_update(struct job *job, uint64_t version, const void *const *data)
{
	weft_error error = WEFT_ERROR_INIT;

	for (uint32_t i = job->trainers; i < job->count; i++)
		job->waits[i] = (struct rig_wait){.version = version, .error = WEFT_ERROR_INIT};
	job_each(job, job->trainers, rig_wait_thread);
	for (uint32_t t = 0; t < job->trainers; t++) {
		rig_ok(weft_update_begin(job->workers[t], version, &error), &error);
		rig_ok(host_write_all(job->workers[t], &data[t], &error), &error);
		rig_ok(weft_update_end(job->workers[t], &error), &error);
	}
	job_done(job, job->trainers);
}

static void job_close(struct job *job)
{
	for (uint32_t i = 0; i < job->count; i++)
		weft_close(&job->workers[i]);
	pthread_join(job->rig.controller, NULL);
	free(job);
}

static void test_job__of_a_trainer_without_targets_and_a_rank_without_sources(void **state)
{
	struct job *job = job_new(&(struct rig_options){.trainers = 2, .ranks = 2});
	const weft_tensor one = {sizeof(weft_tensor), "one", "BF16", 1, {1}},
			  unwanted = {sizeof(weft_tensor), "unwanted", "F32", 1, {5}};
	const weft_param first = {sizeof(weft_param), "p.one", "BF16", 1, {1}, NULL};
	const weft_param zeros = {sizeof(weft_param), "p.zeros", "F32", 1, {4}, NULL};
	const uint64_t lo[1] = {0}, hi[1] = {1};
	unsigned char bytes[2] = {1, 2}, ignored[20] = {0};
	const void *data[2] = {bytes, ignored};
	uint64_t version;

	(void)state;
	job_add(job, WEFT_TRAINER, 0);
	job_add(job, WEFT_TRAINER, 1);
	job_add(job, WEFT_INFERENCE, 0);
	job_add(job, WEFT_INFERENCE, 1);
	rig_ok(weft_declare_tensor(job->workers[0], &one, 0, 0, 1, NULL, NULL), NULL);
	rig_ok(weft_declare_tensor(job->workers[1], &unwanted, 1, 0, 5, NULL, NULL), NULL);
	rig_ok(weft_declare_param(job->workers[2], &first, NULL, NULL), NULL);
	rig_ok(weft_declare_piece(job->workers[2], &one, lo, hi, 0, 0, NULL), NULL);
	rig_ok(weft_declare_param(job->workers[3], &zeros, NULL, NULL), NULL);
	rig_ok(weft_declare_fill(job->workers[3], 0, 0, 16, NULL), NULL);
	job_join(job);
	for (uint64_t v = 1; v < 6; v += 2) {
		bytes[1] = (unsigned char)(3 * v);
		job_update(job, v, data);
		assert_memory_equal(weft_param_memory(job->workers[2], 0, v), bytes, 2);
		assert_memory_equal(weft_param_memory(job->workers[3], 0, v), ignored, 16);
		assert_int_equal(weft_read_begin(job->workers[3], &version), 0);
		assert_int_equal(version, v);
	}
	job_close(job);
}

static void test_made_piece__is_declared_or_refused_by_name(void **state)
{
	static const weft_tensor bf16 = {sizeof(weft_tensor), "w", "BF16", 2, {8, 6}},
				 fp8 = {sizeof(weft_tensor), "q", "F8_E4M3", 2, {8, 6}};
	static const weft_tensor scales = {sizeof(weft_tensor), "q_scale", "F32", 2, {2, 2}};
	static const weft_tensor short_scales = {sizeof(weft_tensor), "q_scale", "F32", 2, {1, 2}};
	static const weft_param params[3] = {
		{sizeof(weft_param), "p", "F8_E4M3", 2, {8, 6}, NULL},
		{sizeof(weft_param), "p_scale", "F32", 2, {4, 2}, NULL},
		{sizeof(weft_param), "half", "F16", 2, {8, 6}, NULL}};
	static const weft_transform quantise = {.size = sizeof(quantise),
						.to_rows = 2,
						.to_columns = 3},
				    parts = {.size = sizeof(parts),
					     .to_rows = 2,
					     .to_columns = 3,
					     .scales_part = 1},
				    both = {sizeof(both), 4, 4, 2, 3, 0, 0};
	static const uint64_t lo[2] = {0, 0}, inside[2] = {1, 0}, hi[2] = {8, 6};
	static const weft_transform half = {sizeof(half), 4, 0, 0, 0, 0, 0};
	static const weft_transform odd = {.size = sizeof(odd), .order = 3},
				    scales_turned = {.size = sizeof(odd),
						     .to_rows = 2,
						     .to_columns = 3,
						     .scales_part = 1,
						     .order = WEFT_TRANSPOSED},
				    turned_blocks = {.size = sizeof(odd),
						     .to_rows = 2,
						     .to_columns = 3,
						     .order = WEFT_TRANSPOSED},
				    unpadded = {.size = sizeof(odd), .order = WEFT_PADDED_ROWS};
	static const weft_options options = {
		.size = sizeof(options), .controller = "tcp://127.0.0.1:9", .role = WEFT_INFERENCE};
	weft_worker *rank;
	weft_error error = WEFT_ERROR_INIT;

	(void)state;
	rig_ok(weft_open(&rank, &options, &error), &error);
	for (uint32_t p = 0; p < 3; p++)
		rig_ok(weft_declare_param(rank, &params[p], NULL, &error), &error);
#define REFUSED(code_, words, ...)                                                          \
	do {                                                                                \
		assert_int_equal(weft_declare_transformed_piece(rank, __VA_ARGS__, &error), \
				 -code_);                                                   \
		if (!strstr(error.text, words))                                             \
			fail_msg("%s", error.text);                                         \
	} while (0)
	REFUSED(ERROR_USAGE, "weft_declare_transformed_piece: tensor, src_lo", NULL, lo, hi, 0, 0,
		&quantise, NULL);
	REFUSED(ERROR_USAGE, "parameter 9 for tensor w; 3 are declared", &bf16, lo, hi, 9, 0,
		&quantise, NULL);
	REFUSED(ERROR_UNSUPPORTED, "a piece takes [1..8, 0..6] of tensor w", &bf16, inside, hi, 0,
		0, &quantise, NULL);
	REFUSED(ERROR_UNSUPPORTED, "weft cannot convert", &bf16, lo, hi, 0, 0, NULL, NULL);
	REFUSED(ERROR_USAGE, "blocks of 4x4 and no tensor of scales", &fp8, lo, hi, 0, 0, &both,
		NULL);
	REFUSED(ERROR_USAGE, "tensor w is not in blocks (from 0x0)", &bf16, lo, hi, 0, 0, &quantise,
		&scales);
	/* the right scales of that name are accepted after it */
	REFUSED(ERROR_CONFIG, "given is q_scale F32 of 2 dimensions [1, 2", &fp8, lo, hi, 0, 0,
		&both, &short_scales);
	REFUSED(ERROR_USAGE, "blocks of 4x0 to 0x0: rows and columns", &fp8, lo, hi, 0, 0, &half,
		&scales);
	REFUSED(ERROR_USAGE, "order 3; WEFT_AS_IT_LIES (0)", &bf16, lo, hi, 2, 0, &odd, NULL);
	REFUSED(ERROR_USAGE, "scales_part with order 1", &bf16, lo, hi, 1, 0, &scales_turned, NULL);
	REFUSED(ERROR_USAGE, "order WEFT_TRANSPOSED with blocks of 0x0 to 2x3", &bf16, lo, hi, 2, 0,
		&turned_blocks, NULL);
	REFUSED(ERROR_USAGE, "order WEFT_PADDED_ROWS", &bf16, lo, hi, 2, 0, &unpadded, NULL);
#undef REFUSED
	rig_ok(weft_declare_transformed_piece(rank, &fp8, lo, hi, 0, 0, &both, &scales, &error),
	       &error);
	rig_ok(weft_declare_transformed_piece(rank, &bf16, lo, hi, 1, 0, &parts, NULL, &error),
	       &error);
	rig_ok(weft_declare_piece(rank, &bf16, lo, hi, 2, 0, &error), &error);
	assert_int_equal(rank->layout.piece_count, 3);
	assert_int_equal(rank->layout.pieces[0].bytes, 48);
	assert_string_equal(rank->layout.tensors[rank->layout.pieces[0].scales].name, "q_scale");
	assert_int_equal(rank->layout.pieces[1].bytes, 32);
	assert_int_equal(rank->layout.pieces[2].bytes, 96);
	assert_int_equal(layout_finish(&rank->layout, NULL), 0);
	weft_close(&rank);
}

static void test_job__of_sixty_four_ranks_on_one_host(void **state)
{
	struct rig_options options = {.trainers = 2, .ranks = 64, .checksums = 1};
	const weft_tensor tensors[2] = {{sizeof(weft_tensor), "a", "F32", 2, {64, 100}},
					{sizeof(weft_tensor), "b", "F32", 2, {3, 64}}};
	const weft_param param = {sizeof(weft_param), "p", "F32", 1, {103}, NULL};
	static unsigned char a[64 * 400], b[3 * 256];
	const void *data[2] = {a, b};
	struct job *job = job_new(&options);

	(void)state;
	for (uint32_t t = 0; t < 2; t++)
		rig_ok(weft_declare_tensor(job_add(job, WEFT_TRAINER, t), &tensors[t], t, 0,
					   tensors[t].shape[0], NULL, NULL),
		       NULL);
	for (uint32_t r = 0; r < 64; r++) {
		weft_worker *rank = job_add(job, WEFT_INFERENCE, r);
		const uint64_t lo[2][2] = {{r, 0}, {0, r}}, hi[2][2] = {{r + 1, 100}, {3, r + 1}};

		rig_ok(weft_declare_param(rank, &param, NULL, NULL), NULL);
		rig_ok(weft_declare_piece(rank, &tensors[0], lo[0], hi[0], 0, 0, NULL), NULL);
		rig_ok(weft_declare_piece(rank, &tensors[1], lo[1], hi[1], 0, 400, NULL), NULL);
	}
	job_join(job);
	for (uint64_t version = 1; version < 4; version++) {
		for (size_t i = 0; i < sizeof(a); i++)
			a[i] = rig_byte(version, 0, i);
		for (size_t i = 0; i < sizeof(b); i++)
			b[i] = rig_byte(version, 1, i);
		job_update(job, version, data);
		for (uint32_t r = 0; r < 64; r++) {
			const unsigned char *p = weft_param_memory(job->workers[2 + r], 0, version);

			assert_memory_equal(p, a + r * 400, 400);
			for (uint32_t k = 0; k < 3; k++)
				assert_memory_equal(p + 400 + 4 * k, b + k * 256 + 4 * r, 4);
		}
	}
	job_close(job);
}

/* Takes 2 * 5 GiB of memory: WEFT_TEST_LARGE=1 asks for it. The source is never written but in
 * its last page, so it takes none. */
static void test_job__of_one_tensor_beyond_four_gib(void **state)
{
	const uint64_t bytes = (5ull << 30) + 4;
	const weft_tensor tensor = {sizeof(weft_tensor), "large", "F32", 1, {bytes / 4}};
	const weft_param param = {sizeof(weft_param), "p.large", "F32", 1, {bytes / 4}, NULL};
	const uint64_t lo[1] = {0}, hi[1] = {bytes / 4};
	struct job *job;
	unsigned char *source;
	const unsigned char *target;
	const void *data[1];

	(void)state;
	if (!getenv("WEFT_TEST_LARGE"))
		skip();
	source = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_true(source != MAP_FAILED);
	job = job_new(&(struct rig_options){
		.trainers = 1, .ranks = 1, .checksums = 1, .update_timeout_ms = 60000});
	rig_ok(weft_declare_tensor(job_add(job, WEFT_TRAINER, 0), &tensor, 0, 0, bytes / 4, NULL,
				   NULL),
	       NULL);
	job_add(job, WEFT_INFERENCE, 0);
	rig_ok(weft_declare_param(job->workers[1], &param, NULL, NULL), NULL);
	rig_ok(weft_declare_piece(job->workers[1], &tensor, lo, hi, 0, 0, NULL), NULL);
	job_join(job);
	memset(source, 1, 8);
	memset(source + (4ull << 30), 2, 8);
	memset(source + bytes - 8, 3, 8);
	data[0] = source;
	job_update(job, 1, data);
	target = weft_param_memory(job->workers[1], 0, 1);
	assert_memory_equal(target, source, 4096);
	assert_memory_equal(target + (4ull << 30) - 4096, source + (4ull << 30) - 4096, 8192);
	assert_memory_equal(target + bytes - 4096, source + bytes - 4096, 4096);
	job_close(job);
	munmap(source, bytes);
}

/* A rig of one trainer and two ranks: 'o' is packed, and takes the replica path when the ranks
 * have memory of their own. */
static const struct rig_options small = {.trainers = 1, .ranks = 2, .update_timeout_ms = 5000};

static void test_ring__takes_no_more_memory_than_one_update_needs(void **state)
{
	struct rig_options options = small;
	struct rig *rig = calloc(1, sizeof(*rig));
	weft_worker *trainer;

	(void)state;
	assert_non_null(rig);
	rig_open(rig, &options);
	assert_null(rig->trainers[0]->epoch->send.replica_region); /* all direct or mapped */
	rig_close(rig);
	options.own_memory = 1; /* ring_bytes stays at its default of 1 GiB */
	rig_open(rig, &options);
	trainer = rig->trainers[0];
	assert_non_null(trainer->epoch->send.replica_region);
	assert_in_range(transport_region_bytes(trainer->epoch->send.replica_region), 480, 1024);
	rig_update(rig, 1);
	rig_update(rig, 2);
	rig_close(rig);
	free(rig);
}

/* Direct and mapped into weft's memory, direct and replica into the host's. */
static void test_checksum__finds_a_flipped_byte_on_every_way(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));

	(void)state;
	assert_non_null(rig);
	for (int own = 0; own < 2; own++) {
		struct rig_options options = small;
		const void *data[RIG_TENSORS];
		weft_error error = WEFT_ERROR_INIT;

		options.checksums = 1;
		options.own_memory = own;
		rig_open(rig, &options);
		for (uint32_t t = 0; t < RIG_TENSORS; t++)
			data[t] = rig->tensors[t];
		for (uint64_t version = 1; version <= 2 * RIG_TENSORS; version += 2) {
			uint32_t id = (uint32_t)(version / 2);
			unsigned char *memory =
				(void *)(uintptr_t)weft_param_memory(rig->ranks[1], id, 0);
			char name[16];

			rig_fill(rig, version);
			rig_wait_begin(rig, version, 0);
			rig_ok(weft_update_begin(rig->trainers[0], version, &error), &error);
			rig_ok(host_write_all(rig->trainers[0], data, &error), &error);
			memory[5] ^= 128;
			rig_ok(weft_update_end(rig->trainers[0], &error), &error);
			pthread_join(rig->waits[0].thread, NULL);
			pthread_join(rig->waits[1].thread, NULL);
			assert_int_equal(rig->waits[0].rc, 0);
			assert_int_equal(rig->waits[1].rc, -WEFT_E_CHECKSUM);
			snprintf(name, sizeof(name), "tensor %s ", rig_tensors[id].name);
			assert_non_null(strstr(rig->waits[1].error.text, name));
			rig_update(rig, version + 1);
		}
		rig_close(rig);
	}
	free(rig);
}

static void test_failure__that_woke_a_transfer_is_the_jobs_and_no_interrupt(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));
	struct error seen;

	(void)state;
	assert_non_null(rig);
	rig_open(rig, &small);
	weft_interrupt(rig->ranks[1]);
	weft_close(&rig->ranks[1]);
	/* what a blocked transport call answers when the control thread wakes it */
	error_set(&seen, ERROR_INTERRUPTED, "interrupted after 0.1 s");
	assert_true(health_fail(&rig->trainers[0]->health, &seen, 1) < 0);
	assert_int_not_equal(seen.code, ERROR_INTERRUPTED);
	assert_non_null(strstr(seen.text, "inference 1"));
	rig_close(rig);
	free(rig);
}

static void test_null__arguments_have_answers(void **state)
{
	weft_worker *none = NULL;
	weft_checkpoint *checkpoint;
	weft_error error = WEFT_ERROR_INIT;

	(void)state;
	assert_int_equal(weft_open(NULL, NULL, &error), -WEFT_E_USAGE);
	assert_int_equal(weft_open(&none, NULL, NULL), -WEFT_E_USAGE);
	assert_int_equal(weft_join(NULL, 1, &error), -WEFT_E_USAGE);
	assert_non_null(strstr(error.text, "weft_join"));
	assert_int_equal(weft_leave(NULL, &error), -WEFT_E_USAGE);
	assert_int_equal(weft_plan(NULL, NULL, NULL), -WEFT_E_USAGE);
	assert_int_equal(weft_update_begin(NULL, 1, NULL), -WEFT_E_USAGE);
	assert_int_equal(weft_update_write(NULL, 0, HOST(NULL, 0), NULL), -WEFT_E_USAGE);
	assert_int_equal(host_write_all(NULL, NULL, NULL), -WEFT_E_USAGE);
	assert_int_equal(weft_update_end(NULL, NULL), -WEFT_E_USAGE);
	assert_int_equal(weft_update_write_bucket(NULL, NULL, 0, sizeof(weft_slice), NULL),
			 -WEFT_E_USAGE);
	assert_int_equal(weft_update_drain(NULL, NULL), -WEFT_E_USAGE);
	assert_int_equal(weft_update_replay(NULL, 1, NULL), -WEFT_E_USAGE);
	assert_int_equal(weft_update_repeat(NULL, NULL, NULL), -WEFT_E_USAGE);
	assert_int_equal(weft_update_abort(NULL, NULL, NULL), -WEFT_E_USAGE);
	assert_int_equal(weft_update_wait(NULL, 1, 1, NULL, NULL), -WEFT_E_USAGE);
	assert_int_equal(weft_published(NULL), 0);
	assert_int_equal(weft_tainted(NULL), 0);
	assert_int_equal(weft_read_begin(NULL, NULL), -WEFT_E_USAGE);
	assert_int_equal(weft_read_end(NULL, 1), -WEFT_E_USAGE);
	assert_null(weft_param_memory(NULL, 0, 1));
	assert_int_equal(weft_param_digest(NULL, 0, 1, NULL), -WEFT_E_USAGE);
	assert_int_equal(weft_get_stats(NULL, NULL, NULL), -WEFT_E_USAGE);
	assert_int_equal(weft_declare_param(NULL, NULL, NULL, NULL), -WEFT_E_USAGE);
	assert_int_equal(weft_source_register(NULL, HOST(NULL, 0), NULL), -WEFT_E_USAGE);
	assert_int_equal(weft_verify(NULL, NULL, 1, NULL, NULL), -WEFT_E_USAGE);
	assert_int_equal(weft_checkpoint_open(NULL, "x", NULL), -WEFT_E_USAGE);
	assert_int_equal(weft_checkpoint_open(&checkpoint, NULL, NULL), -WEFT_E_USAGE);
	assert_null(weft_checkpoint_tensor(NULL, "x", NULL));
	assert_int_equal(weft_checkpoint_fits(NULL, NULL, NULL), -WEFT_E_USAGE);
	weft_checkpoint_close(NULL);
	weft_interrupt(NULL);
	weft_close(NULL);
	weft_close(&none);
}

/* 0 when the child ended well. */
static int wait_child(pid_t pid)
{
	int status = -1;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

static int child_of_a_host(struct rig *rig)
{
	uint64_t began = clock_ms();
	weft_error error = WEFT_ERROR_INIT;
	int rc = weft_update_begin(rig->trainers[0], 2, &error);

	if (rc != -WEFT_E_STATE || !strstr(error.text, "forked child"))
		return 1;
	if (weft_update_wait(rig->ranks[0], 2, 10, NULL, &error) != -WEFT_E_STATE)
		return 2;
	if (weft_leave(rig->ranks[0], &error) != -WEFT_E_STATE)
		return 3;
	weft_close(&rig->trainers[0]);
	weft_close(&rig->ranks[0]);
	return clock_ms() - began < 1000 ? 0 : 4;
}

static void test_fork__leaves_the_job_to_the_parent(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));
	pid_t pid;

	(void)state;
	assert_non_null(rig);
	rig_open(rig, &small);
	rig_update(rig, 1);
	pid = fork();
	if (!pid)
		_exit(child_of_a_host(rig));
	assert_int_equal(wait_child(pid), 0);
	rig_update(rig, 2);
	rig_close(rig);
	free(rig);
}

static int open_with_descriptors(unsigned count)
{
	const weft_options options = {
		.size = sizeof(options), .controller = "tcp://127.0.0.1:9", .role = WEFT_INFERENCE};
	const weft_param param = {sizeof(weft_param), "p", "F32", 1, {4}, NULL};
	const struct rlimit limit = {count, count};
	weft_worker *worker;
	weft_error error = WEFT_ERROR_INIT;
	int rc;

	setrlimit(RLIMIT_NOFILE, &limit);
	rc = weft_open(&worker, &options, &error);
	if (!rc)
		rc = weft_declare_param(worker, &param, NULL, &error);
	if (!rc)
		rc = weft_declare_fill(worker, 0, 0, 16, &error);
	if (!rc)
		rc = weft_join(worker, 50, &error);
	weft_close(&worker);
	if (rc == -WEFT_E_TIMEOUT)
		return 0; /* there were enough, and no controller */
	return rc < 0 && (strstr(error.text, "ulimit -n") || strstr(error.text, "Too many")) ? 0
											     : 1;
}

static void test_descriptors__that_run_out_are_a_message_and_no_abort(void **state)
{
	pid_t pids[48];

	(void)state;
	for (unsigned count = 3; count < 48; count++) {
		pids[count] = fork();
		if (!pids[count])
			_exit(open_with_descriptors(count));
	}
	for (unsigned count = 3; count < 48; count++)
		assert_int_equal(wait_child(pids[count]), 0);
}

static void test_memory__that_is_not_there_is_refused_and_the_worker_stays_open(void **state)
{
	const weft_options options = {
		.size = sizeof(options), .controller = "tcp://127.0.0.1:9", .role = WEFT_INFERENCE};
	const weft_param param = {sizeof(weft_param), "p", "F32", 2, {1u << 20, 1u << 20}, NULL};
	weft_worker *worker;
	weft_error error = WEFT_ERROR_INIT;

	(void)state;
	rig_ok(weft_open(&worker, &options, &error), &error);
	rig_ok(weft_declare_param(worker, &param, NULL, &error), &error);
	rig_ok(weft_declare_fill(worker, 0, 0, 4ull << 40, &error), &error);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(weft_join(worker, 50, &error), -WEFT_E_MEMORY);
		assert_non_null(strstr(error.text, "of shared memory; this host has"));
	}
	weft_close(&worker);
}

static int open_as_nobody(int number)
{
	struct error error;
	int fd, rc;

	if (setgid(65534) || setuid(65534))
		return 1;
	rc = shm_memfd_open_peer((uint64_t)getppid(), (uint32_t)number, 4096, &fd, &error);
	return rc == -(int)ERROR_UNSUPPORTED &&
			       strstr(error.text,
				      "user 0 (or not dumpable), this process of user 65534;")
		       ? 0
		       : 2;
}

static void test_shm__of_another_user_is_refused_with_what_to_do(void **state)
{
	struct shm_memfd memfd;
	pid_t pid;

	(void)state;
	if (getuid() != 0)
		skip();
	assert_int_equal(shm_memfd_create(&memfd, "a test", 4096, NULL), 0);
	pid = fork();
	if (!pid)
		_exit(open_as_nobody(memfd.fd));
	assert_int_equal(wait_child(pid), 0);
	shm_memfd_close(&memfd);
}

/* The controller and the other worker, in a process of their own whose allocations work. */
static int other_side(enum weft_role role, int ready)
{
	static struct rig rig;

	rig.options =
		(struct rig_options){.trainers = 1, .ranks = 1, .own_memory = 1, .checksums = 1};
	rig_start_controller(&rig);
	if (write(ready, rig.address, sizeof(rig.address)) < 0)
		return 1;
	if (role == WEFT_TRAINER) {
		rig.trainers[0] = rig_open_worker(&rig, role, 0);
		rig_declare_trainer(rig.trainers[0]);
		weft_join(rig.trainers[0], 0, NULL);
	} else {
		rig.ranks[0] = rig_open_worker(&rig, role, 0);
		rig_declare_rank(&rig, 0);
		weft_join(rig.ranks[0], 0, NULL);
	}
	for (;;) /* till it is killed: who leaves is answered, and does not wait for that */
		pause();
}

/* One join of `role` whose k-th allocation fails; true when there was no k-th. */
static bool join_with_failure(enum weft_role role, uint64_t k)
{
	static struct rig rig;
	weft_error error = WEFT_ERROR_INIT;
	weft_worker *worker;
	int ready[2], rc;
	uint64_t begin;
	bool whole;
	pid_t pid;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	if (!pid)
		_exit(other_side(role == WEFT_TRAINER ? WEFT_INFERENCE : WEFT_TRAINER, ready[1]));
	memset(&rig, 0, sizeof(rig));
	rig.options =
		(struct rig_options){.trainers = 1, .ranks = 1, .own_memory = 1, .checksums = 1};
	assert_int_equal(read(ready[0], rig.address, sizeof(rig.address)), sizeof(rig.address));
	close(ready[0]);
	close(ready[1]);
	worker = rig_open_worker(&rig, role, 0);
	rig.ranks[0] = worker;
	if (role == WEFT_TRAINER)
		rig_declare_trainer(worker);
	else
		rig_declare_rank(&rig, 0);
	begin = memory_count();
	memory_fail_at(k);
	rc = weft_join(worker, 0, &error);
	whole = memory_count() - begin < k;
	memory_fail_at(0);
	assert_true(rc <= 0 && (!rc || *error.text));
	weft_close(&worker);
	kill(pid, SIGKILL);
	wait_child(pid);
	return whole && !rc;
}

static void test_join__survives_every_failed_allocation(void **state)
{
	(void)state;
	for (int role = WEFT_TRAINER; role <= WEFT_INFERENCE; role++) {
		uint64_t k = 1;

		/* which it is matters to what is left behind, and not to races */
		while (k < 2000 && !join_with_failure((enum weft_role)role, k))
			k += SANITIZED_THREADS ? 3 : 1;
		assert_in_range(k, 20, 1999);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		/* first those that fork: no thread may be left of another test then */
		cmocka_unit_test(test_join__survives_every_failed_allocation),
		cmocka_unit_test(test_descriptors__that_run_out_are_a_message_and_no_abort),
		cmocka_unit_test(test_shm__of_another_user_is_refused_with_what_to_do),
		cmocka_unit_test(test_fork__leaves_the_job_to_the_parent),
		cmocka_unit_test(test_job__of_a_trainer_without_targets_and_a_rank_without_sources),
		cmocka_unit_test(test_made_piece__is_declared_or_refused_by_name),
		cmocka_unit_test(test_job__of_sixty_four_ranks_on_one_host),
		cmocka_unit_test(test_job__of_one_tensor_beyond_four_gib),
		cmocka_unit_test(test_ring__takes_no_more_memory_than_one_update_needs),
		cmocka_unit_test(test_checksum__finds_a_flipped_byte_on_every_way),
		cmocka_unit_test(test_failure__that_woke_a_transfer_is_the_jobs_and_no_interrupt),
		cmocka_unit_test(test_null__arguments_have_answers),
		cmocka_unit_test(
			test_memory__that_is_not_there_is_refused_and_the_worker_stays_open),
	};

	shell_block_signals();
	return cmocka_run_group_tests(tests, NULL, NULL);
}

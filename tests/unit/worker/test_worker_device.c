/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of GPUs on either side of an update, on mock devices whose streams are as late as they may be.
 */
#include "tests/unit/worker/device_rig.h"
#include "worker/api/worker.h"

static const struct rig_options both = {.trainers = 1,
					.ranks = 2,
					.transport = "cuda",
					.memory = "cuda:0",
					.rank_memory = "cuda:1"};

static uint64_t launches(const struct rig *rig)
{
	weft_stats stats = WEFT_STATS_INIT;

	assert_int_equal(weft_get_stats(rig->trainers[0], &stats, NULL), 0);
	return stats.launches;
}

/* ---- launches ---- */

static void test_update__from_gpu_to_gpu_is_one_launch_a_peer(void **state)
{
	struct tensors tensors;
	struct rig rig;

	(void)state;
	open_all(&rig, &tensors, &both);
	for (uint64_t version = 1; version <= 3; version++) {
		update(&rig, &tensors, version);
		assert_int_equal(launches(&rig), 2 * version);
	}
	close_all(&rig, &tensors);
}

static void test_write__of_tensors_one_by_one_is_a_launch_a_tensor_and_peer(void **state)
{
	weft_error error = WEFT_ERROR_INIT;
	struct tensors tensors;
	struct rig rig;

	(void)state;
	open_all(&rig, &tensors, &both);
	tensors_fill(&tensors, &rig, 5);
	rig_wait_begin(&rig, 5, 0);
	rig_ok(weft_update_begin(rig.trainers[0], 5, &error), &error);
	for (uint32_t t = RIG_TENSORS; t--;) {
		rig_ok(weft_update_write(rig.trainers[0], t, &tensors.memory[t], &error), &error);
		/* drained, its memory may be reused */
		rig_ok(weft_update_drain(rig.trainers[0], &error), &error);
		rig_ok(weft_play_copy(0, tensors.memory[t].pointer, rig.own, rig_bytes[t], &error),
		       &error);
	}
	rig_ok(weft_update_end(rig.trainers[0], &error), &error);
	rig_wait_end(&rig, 0);
	check_rank(&rig, 0, 5);
	check_rank(&rig, 1, 5);
	assert_int_equal(launches(&rig), 2 * RIG_TENSORS);
	close_all(&rig, &tensors);
}

static void test_shadow__copies_are_launched_each_with_its_own_targets(void **state)
{
	struct rig_options options = both;
	struct tensors tensors;
	struct rig rig;

	(void)state;
	options.shadow = options.checksums = 1;
	open_all(&rig, &tensors, &options);
	for (uint64_t version = 1; version <= 4; version++)
		update(&rig, &tensors, version);
	close_all(&rig, &tensors);
}

/* ---- streams ---- */

/* `tell`: the stream is given with the tensor. */
static bool arrives_from_stream(bool tell)
{
	weft_error error = WEFT_ERROR_INIT;
	unsigned char here;
	struct tensors tensors;
	struct rig rig;
	void *stream;
	bool new;

	open_all(&rig, &tensors, &both);
	tensors_fill(&tensors, &rig, 1);
	rig_fill(&rig, 2);
	stream = queue_late(&tensors.memory[0], rig.tensors[0], rig_bytes[0]);
	if (tell)
		tensors.memory[0].stream = stream;
	rig_wait_begin(&rig, 2, 0);
	send(&rig, &tensors, 2);
	rig_wait_end(&rig, 0);
	rig_ok(weft_play_copy(1, &here, weft_param_memory(rig.ranks[0], 0, 2), 1, &error), &error);
	new = here == rig_byte(2, 0, 0);
	assert_true(new || here == rig_byte(1, 0, 0));
	end_stream(0, stream);
	close_all(&rig, &tensors);
	return new;
}

static void test_stream__of_a_tensor_comes_first(void **state)
{
	(void)state;
	assert_true(arrives_from_stream(true));
	/* and this is what is seen without it */
	assert_false(arrives_from_stream(false));
}

/* One tensor of a trainer, which comes late on a stream of its own. */
struct writer {
	pthread_t thread;
	struct rig *rig;
	weft_memory memory;
	uint32_t tensor;
	pthread_barrier_t *both;
	void *stream;
	int rc;
};

static void *write_late(void *context)
{
	struct writer *writer = context;

	writer->stream = queue_late(&writer->memory, writer->rig->tensors[writer->tensor],
				    rig_bytes[writer->tensor]);
	writer->memory.stream = writer->stream;
	pthread_barrier_wait(writer->both);
	writer->rc =
		weft_update_write(writer->rig->trainers[0], writer->tensor, &writer->memory, NULL);
	return NULL;
}

static const struct cuda_calls *mock_calls;

/* So that the other thread comes in between. */
static int record_slowly(cuda_event event, cuda_stream stream)
{
	int rc = mock_calls->event_record(event, stream);

	clock_sleep_ms(2);
	return rc;
}

static void test_streams__of_two_threads_both_come_first(void **state)
{
	weft_error error = WEFT_ERROR_INIT;
	pthread_barrier_t both_there;
	struct cuda_calls slow;
	struct tensors tensors;
	struct rig rig;

	(void)state;
	open_all(&rig, &tensors, &both);
	mock_calls = cuda_calls();
	slow = *mock_calls;
	slow.event_record = record_slowly;
	cuda_calls_tested = &slow;
	pthread_barrier_init(&both_there, NULL, 2);
	for (uint64_t version = 1; version <= 5; version++) {
		struct writer writers[2];

		rig_fill(&rig, version);
		rig_wait_begin(&rig, version, 0);
		rig_ok(weft_update_begin(rig.trainers[0], version, &error), &error);
		for (uint32_t t = 0; t < 2; t++) {
			writers[t] = (struct writer){.rig = &rig,
						     .memory = tensors.memory[t],
						     .tensor = t,
						     .both = &both_there};
			pthread_create(&writers[t].thread, NULL, write_late, &writers[t]);
		}
		for (uint32_t t = 0; t < 2; t++) {
			pthread_join(writers[t].thread, NULL);
			assert_int_equal(writers[t].rc, 0);
		}
		rig_ok(weft_play_copy(0, tensors.memory[2].pointer, rig.tensors[2], rig_bytes[2],
				      &error),
		       &error);
		rig_ok(weft_update_write(rig.trainers[0], 2, &tensors.memory[2], &error), &error);
		rig_ok(weft_update_end(rig.trainers[0], &error), &error);
		rig_wait_end(&rig, 0);
		check_rank(&rig, 0, version);
		for (uint32_t t = 0; t < 2; t++)
			end_stream(0, writers[t].stream);
	}
	pthread_barrier_destroy(&both_there);
	cuda_calls_tested = mock_calls;
	close_all(&rig, &tensors);
}

/* One registration stays: of the page with the word that a stream may look at as long as it likes. */
static void close_waited(struct rig *rig, struct tensors *tensors)
{
	for (uint32_t i = 0; i < RIG_MAX; i++)
		weft_close(&rig->trainers[i]);
	tensors_close(tensors);
	rig_close(rig);
	assert_int_equal(cuda_mock_close(), 1);
}

static void test_stream_wait__holds_a_stream_until_the_version_is_published(void **state)
{
	const struct cuda_calls *calls = cuda_calls();
	weft_error error = WEFT_ERROR_INIT;
	struct tensors tensors;
	unsigned char *here;
	cuda_stream stream;
	struct rig rig;

	(void)state;
	open_all(&rig, &tensors, &both);
	calls = cuda_calls();
	update(&rig, &tensors, 1);
	here = aligned_alloc(4096, 4096);
	assert_int_equal(calls->enter(1), 0);
	assert_int_equal(calls->host_register(here, 4096), 0);
	assert_int_equal(calls->stream_create(&stream), 0);
	rig_ok(weft_stream_wait(rig.ranks[0], 2, stream, &error), &error);
	assert_int_equal(calls->copy((uint64_t)(uintptr_t)here,
				     (uint64_t)(uintptr_t)weft_param_memory(rig.ranks[0], 0, 0), 1,
				     stream),
			 0);
	for (int i = 0; i < 20; i++)
		assert_int_not_equal(calls->stream_query(stream), 0);
	calls->leave();
	update(&rig, &tensors, 2);
	end_stream(1, stream);
	assert_int_equal(here[0], rig_byte(2, 0, 0));
	assert_int_equal(calls->enter(1), 0);
	assert_int_equal(calls->host_unregister(here), 0);
	calls->leave();
	free(here);
	close_waited(&rig, &tensors);
}

/* A stream that waits for a version holds nobody up, and is let go. */
static void test_stream_wait__for_a_version_that_never_comes_ends_with_the_worker(void **state)
{
	const struct cuda_calls *calls;
	weft_error error = WEFT_ERROR_INIT;
	struct tensors tensors;
	cuda_stream stream;
	struct rig rig;

	(void)state;
	open_all(&rig, &tensors, &both);
	calls = cuda_calls();
	update(&rig, &tensors, 1);
	assert_int_equal(calls->enter(1), 0);
	assert_int_equal(calls->stream_create(&stream), 0);
	calls->leave();
	rig_ok(weft_stream_wait(rig.ranks[0], 2, stream, &error), &error);
	for (uint32_t i = 0; i < RIG_MAX; i++)
		weft_close(&rig.trainers[i]);
	weft_close(&rig.ranks[0]);
	end_stream(1, stream);
	close_waited(&rig, &tensors);
}

/* ---- host memory beside a GPU's ---- */

static unsigned char
	*host_tensor; /* o, of a trainer whose other tensors lie on its GPU: across two pages */

/* And its neighbours on the heap, with whom it shares them. */
static void register_host(struct rig *rig)
{
	const weft_memory memories[] = {weft_host_memory(host_tensor - 3000, 3000),
					weft_host_memory(host_tensor, rig_bytes[1]),
					weft_host_memory(host_tensor + 480, 100)};
	weft_error error = WEFT_ERROR_INIT;

	for (int i = 0; i < 3; i++)
		rig_ok(weft_source_register(rig->trainers[0], &memories[i], &error), &error);
}

static uint64_t mixed_own[2][RIG_TENSORS];

/* p.o lies on the host, the others on the GPU. */
static weft_memory mixed_memory(struct rig *rig, uint32_t rank, uint32_t param)
{
	static unsigned char host[2][4096] __attribute__((aligned(4096)));

	(void)rig;
	if (param == 1)
		return weft_host_memory(host[rank] + 8, 480);
	mixed_own[rank][param] = cuda_mock_allocate(1, CUDA_MOCK_PLAIN, 512);
	return weft_cuda_memory(1, (void *)(uintptr_t)mixed_own[rank][param], 512, NULL);
}

static void mixed(const struct rig_options *options)
{
	unsigned char *host_pages;
	struct tensors tensors;
	weft_memory device;
	struct rig rig;

	host_pages = aligned_alloc(4096, 2 * 4096);
	host_tensor = host_pages + 4096 - 200;
	open_all(&rig, &tensors, options);
	device = tensors.memory[1];
	for (uint64_t version = 1; version <= 3; version++) {
		tensors_fill(&tensors, &rig, version);
		memcpy(host_tensor, rig.tensors[1], rig_bytes[1]);
		tensors.memory[1] = weft_host_memory(host_tensor, rig_bytes[1]);
		rig_wait_begin(&rig, version, 0);
		send(&rig, &tensors, version);
		rig_wait_end(&rig, 0);
		for (uint32_t i = 0; i < options->ranks; i++)
			check_rank(&rig, i, version);
		tensors.memory[1] = device;
	}
	for (uint32_t i = 0; i < RIG_MAX; i++)
		weft_close(&rig.trainers[i]);
	tensors_close(&tensors);
	rig_close(&rig);
	for (uint32_t i = 0; i < options->ranks && options->own; i++) {
		cuda_mock_free(mixed_own[i][0]);
		cuda_mock_free(mixed_own[i][2]);
	}
	assert_int_equal(cuda_mock_close(), 0);
	free(host_pages);
}

static void test_host_memory__goes_beside_a_gpus_once_it_was_named(void **state)
{
	struct rig_options options = both;

	(void)state;
	options.declared = register_host;
	options.checksums = 1;
	mixed(&options);
	options.own_memory = 1;
	options.own = mixed_memory;
	mixed(&options);
	options.stage = "device";
	mixed(&options);
	options.stage = "host";
	options.transport = "shm";
	mixed(&options);
}

/* ---- staged ---- */

static void stage(const char *where, const char *transport, int checksums)
{
	struct rig_options options = both;
	weft_error error = WEFT_ERROR_INIT;
	weft_stats stats = WEFT_STATS_INIT;
	struct tensors tensors;
	uint64_t version = 0;
	struct rig rig;

	options.stage = where;
	options.transport = transport;
	options.checksums = checksums;
	open_all(&rig, &tensors, &options);
	update(&rig, &tensors, 1);
	tensors_fill(&tensors, &rig, 2);
	rig_wait_begin(&rig, 2, 0);
	rig_ok(weft_update_begin(rig.trainers[0], 2, &error), &error);
	rig_ok(weft_update_write_all(rig.trainers[0], tensors.memory, RIG_TENSORS,
				     sizeof(*tensors.memory), &error),
	       &error);
	rig_ok(weft_update_drain(rig.trainers[0], &error), &error);
	/* all of it has landed, and readers have what they had */
	assert_int_equal(weft_read_begin(rig.ranks[1], &version), 0);
	assert_int_equal(version, 1);
	check_rank(&rig, 1, 1);
	assert_int_equal(weft_read_end(rig.ranks[1], 1), 0);
	rig_ok(weft_update_end(rig.trainers[0], &error), &error);
	rig_wait_end(&rig, 0);
	assert_int_equal(weft_read_end(rig.ranks[1], 1), WEFT_TORN);
	check_rank(&rig, 1, 2);
	rig_ok(weft_get_stats(rig.ranks[1], &stats, &error), &error);
	assert_true(stats.pause_ns && stats.pause_ns <= stats.install_ns);
	assert_true(stats.install_ns + stats.wait_ns <= stats.update_ns + 1000000);
	close_all(&rig, &tensors);
}

static void test_stage__readers_keep_their_version_until_it_is_installed(void **state)
{
	(void)state;
	stage("device", "cuda", 1);
	stage("host", "cuda", 0);
	stage("host", "shm", 1);
}

static uint64_t filler, left_bytes;

/* Before the rank joins, somebody else has all of its GPU but for so much. */
static void fill_gpu(struct rig *rig)
{
	uint64_t left, all;

	(void)rig;
	assert_int_equal(cuda_calls()->enter(1), 0);
	assert_int_equal(cuda_calls()->memory_left(&left, &all), 0);
	cuda_calls()->leave();
	filler = cuda_mock_allocate(1, CUDA_MOCK_PLAIN, left - left_bytes);
}

static void lands_with(uint64_t left, enum landing landing)
{
	struct rig_options options = both;
	struct tensors tensors;
	struct rig rig;

	options.stage = "auto";
	options.ranks = 1;
	options.declared = fill_gpu;
	left_bytes = left;
	open_all(&rig, &tensors, &options);
	assert_int_equal(rig.ranks[0]->params.landing, landing);
	update(&rig, &tensors, 1);
	for (uint32_t i = 0; i < RIG_MAX; i++)
		weft_close(&rig.trainers[i]);
	tensors_close(&tensors);
	rig_close(&rig);
	cuda_mock_free(filler);
	assert_int_equal(cuda_mock_close(), 0);
}

/* Parameters are 992 bytes, and so are those that a version lands in. */
static void test_stage_auto__takes_the_gpu_where_it_has_room(void **state)
{
	(void)state;
	lands_with(1 << 20, LANDING_DEVICE);
	lands_with(2000, LANDING_HOST);
}

static void test_stage__an_update_that_is_given_up_leaves_the_last_version(void **state)
{
	struct rig_options options = both;
	weft_error error = WEFT_ERROR_INIT;
	struct tensors tensors;
	struct rig rig;

	(void)state;
	options.stage = "device";
	open_all(&rig, &tensors, &options);
	update(&rig, &tensors, 1);
	tensors_fill(&tensors, &rig, 2);
	rig_wait_begin(&rig, 2, 0);
	rig_ok(weft_update_begin(rig.trainers[0], 2, &error), &error);
	rig_ok(weft_update_write(rig.trainers[0], 0, &tensors.memory[0], &error), &error);
	rig_ok(weft_update_abort(rig.trainers[0], "no", &error), &error);
	rig_wait_end(&rig, -WEFT_E_ABORTED);
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(weft_tainted(rig.ranks[i]), 0);
		check_rank(&rig, i, 1);
	}
	update(&rig, &tensors, 3);
	close_all(&rig, &tensors);
}

/* ---- what fails ---- */

static void test_device__lost_in_an_update_is_told_and_nothing_is_published(void **state)
{
	weft_error error = WEFT_ERROR_INIT;
	struct tensors tensors;
	struct rig rig;
	int rc;

	(void)state;
	open_all(&rig, &tensors, &both);
	update(&rig, &tensors, 1);
	tensors_fill(&tensors, &rig, 2);
	rig_wait_begin(&rig, 2, 0);
	rig_ok(weft_update_begin(rig.trainers[0], 2, &error), &error);
	rig_ok(weft_update_write(rig.trainers[0], 0, &tensors.memory[0], &error), &error);
	cuda_mock_lose(0);
	rc = weft_update_write(rig.trainers[0], 1, &tensors.memory[1], &error);
	if (!rc)
		rc = weft_update_end(rig.trainers[0], &error);
	assert_int_equal(rc, -WEFT_E_TRANSPORT);
	assert_non_null(strstr(error.text, "start it again"));
	for (uint32_t i = 0; i < 2; i++) {
		pthread_join(rig.waits[i].thread, NULL);
		assert_int_equal(rig.waits[i].rc, -WEFT_E_TRANSPORT);
		assert_non_null(strstr(rig.waits[i].error.text, "trainer 0"));
		assert_int_equal(weft_published(rig.ranks[i]), 1);
	}
	weft_close(&rig.trainers[0]);
	rig_close(&rig);
	cuda_mock_close(); /* what was on a lost device is gone with it */
}

/* ---- what is refused ---- */

static weft_worker *open_one(enum weft_role role, const char *transport, const char *memory,
			     const char *where, int shadow, int rc, const char *words)
{
	weft_options options = WEFT_OPTIONS_INIT;
	weft_error error = WEFT_ERROR_INIT;
	weft_worker *worker = NULL;

	options.controller = "tcp://127.0.0.1:1";
	options.role = role;
	options.transport = transport;
	options.memory = memory;
	options.stage = where;
	options.shadow = shadow;
	options.join_timeout_ms = 50;
	assert_int_equal(weft_open(&worker, &options, &error), rc);
	if (rc && !strstr(error.text, words))
		fail_msg("'%s' is not in: %s", words, error.text);
	return worker;
}

static void test_open__refuses_what_does_not_go_together(void **state)
{
	(void)state;
	cuda_mock_open(&(struct cuda_mock_options){.devices = 1});
	open_one(WEFT_INFERENCE, "cuda", "gpu", NULL, 0, -WEFT_E_CONFIG,
		 "'gpu' (--memory) is unknown");
	open_one(WEFT_INFERENCE, "cuda", "cuda:1", NULL, 0, -WEFT_E_CONFIG, "no device cuda:1");
	open_one(WEFT_INFERENCE, "cuda", "host", "host", 0, -WEFT_E_USAGE, "shadow does the same");
	open_one(WEFT_INFERENCE, "cuda", "cuda", "disk", 0, -WEFT_E_CONFIG, "'disk' (--stage)");
	open_one(WEFT_INFERENCE, "cuda", "cuda", "host", 1, -WEFT_E_USAGE, "choose one of them");
	open_one(WEFT_TRAINER, "cuda", "cuda", "host", 0, -WEFT_E_USAGE, "is for inference ranks");
	assert_int_equal(cuda_mock_close(), 0);
}

/* Eight trainers of a host shall not all copy by its first GPU. */
static void test_host_worker__copies_by_the_gpu_of_its_local_rank(void **state)
{
	static const char *const names[] = {"RANK",	   "WORLD_SIZE",
					    "LOCAL_RANK",  "LOCAL_WORLD_SIZE",
					    "MASTER_ADDR", "MASTER_PORT"};
	static const char *const values[] = {"5", "8", "1", "4", "localhost", "29400"};
	static const char *const transports[] = {"cuda", "shm,cuda", "shm"};

	(void)state;
	cuda_mock_open(&(struct cuda_mock_options){.devices = 2});
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		setenv(names[i], values[i], 1);
	for (int i = 0; i < 3; i++) {
		weft_worker *worker = open_one(WEFT_TRAINER, transports[i], NULL, NULL, 0, 0, "");

		assert_int_equal(worker_device_number(worker), i < 2);
		weft_close(&worker);
	}
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		unsetenv(names[i]);
	assert_int_equal(cuda_mock_close(), 0);
}

static void expect(int got, int rc, const weft_error *error, const char *words)
{
	assert_int_equal(got, rc);
	if (!strstr(error->text, words))
		fail_msg("'%s' is not in: %s", words, error->text);
}

static void test_memory__that_is_not_of_the_workers_gpu_is_refused_where_it_is_given(void **state)
{
	weft_error error = WEFT_ERROR_INIT;
	weft_memory other = WEFT_MEMORY_INIT;
	struct tensors tensors;
	weft_memory wrong;
	struct rig rig;

	(void)state;
	open_all(&rig, &tensors, &both);
	rig_ok(weft_play_allocate(1, 480, &other, &error), &error);
	rig_wait_begin(&rig, 1, 0);
	rig_ok(weft_update_begin(rig.trainers[0], 1, &error), &error);
	wrong = weft_host_memory(rig.tensors[0], 480);
	expect(weft_update_write(rig.trainers[0], 0, &wrong, &error), -WEFT_E_USAGE, &error,
	       "opened with memory \"cuda:0\"");
	expect(weft_update_write(rig.trainers[0], 0, &other, &error), -WEFT_E_USAGE, &error,
	       "memory of device 1");
	wrong = weft_cuda_memory(0, other.pointer, 480, NULL);
	expect(weft_update_write(rig.trainers[0], 0, &wrong, &error), -WEFT_E_USAGE, &error,
	       "is memory of cuda:1");
	wrong = weft_cuda_memory(0, rig.tensors[0], 480, NULL);
	expect(weft_update_write(rig.trainers[0], 0, &wrong, &error), -WEFT_E_USAGE, &error,
	       "no device memory");
	wrong = weft_cuda_memory(0, (char *)tensors.memory[0].pointer + (1 << 22), 480, NULL);
	assert_int_not_equal(weft_update_write(rig.trainers[0], 0, &wrong, &error), 0);
	/* and the update goes on */
	tensors_fill(&tensors, &rig, 1);
	rig_ok(weft_update_write_all(rig.trainers[0], tensors.memory, RIG_TENSORS,
				     sizeof(*tensors.memory), &error),
	       &error);
	rig_ok(weft_update_end(rig.trainers[0], &error), &error);
	rig_wait_end(&rig, 0);
	check_rank(&rig, 0, 1);
	weft_play_free(&other);
	close_all(&rig, &tensors);
}

static void test_little_memory__is_said_with_what_is_free(void **state)
{
	weft_error error = WEFT_ERROR_INIT;
	weft_tensor tensor = {sizeof(tensor), "w", "F32", 2, {1024, 1024}};
	weft_param param = {sizeof(param), "w", "F32", 2, {1024, 1024}, NULL};
	const uint64_t lo[2] = {0, 0}, hi[2] = {1024, 1024};
	weft_worker *worker;
	uint32_t id;

	(void)state;
	cuda_mock_open(&(struct cuda_mock_options){.devices = 1, .bytes = 3 << 20});
	worker = open_one(WEFT_INFERENCE, "cuda", "cuda", NULL, 0, 0, "");
	rig_ok(weft_declare_param(worker, &param, &id, &error), &error);
	rig_ok(weft_declare_piece(worker, &tensor, lo, hi, id, 0, &error), &error);
	expect(weft_join(worker, 50, &error), -WEFT_E_MEMORY, &error, "out of device memory");
	assert_non_null(strstr(error.text, "are free"));
	weft_close(&worker);
	assert_int_equal(cuda_mock_close(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_update__from_gpu_to_gpu_is_one_launch_a_peer),
		cmocka_unit_test(test_write__of_tensors_one_by_one_is_a_launch_a_tensor_and_peer),
		cmocka_unit_test(test_shadow__copies_are_launched_each_with_its_own_targets),
		cmocka_unit_test(test_stream__of_a_tensor_comes_first),
		cmocka_unit_test(test_streams__of_two_threads_both_come_first),
		cmocka_unit_test(test_stream_wait__holds_a_stream_until_the_version_is_published),
		cmocka_unit_test(
			test_stream_wait__for_a_version_that_never_comes_ends_with_the_worker),
		cmocka_unit_test(test_host_memory__goes_beside_a_gpus_once_it_was_named),
		cmocka_unit_test(test_stage__readers_keep_their_version_until_it_is_installed),
		cmocka_unit_test(test_stage_auto__takes_the_gpu_where_it_has_room),
		cmocka_unit_test(test_stage__an_update_that_is_given_up_leaves_the_last_version),
		cmocka_unit_test(test_device__lost_in_an_update_is_told_and_nothing_is_published),
		cmocka_unit_test(test_open__refuses_what_does_not_go_together),
		cmocka_unit_test(test_host_worker__copies_by_the_gpu_of_its_local_rank),
		cmocka_unit_test(
			test_memory__that_is_not_of_the_workers_gpu_is_refused_where_it_is_given),
		cmocka_unit_test(test_little_memory__is_said_with_what_is_free),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * Jobs over verbs with memory of GPUs: mock NICs read and write memory of mock devices that the processor cannot touch,
 * behind streams that are as late as they may be; what they write is seen by the device once it was flushed.
 */
#include "tests/support/gpu_nic.h"
#include "tests/unit/worker/device_rig.h"
#include "transport/verbs/verbs.h"
#include "worker/api/worker.h"

/* As this process has them for one job. */
struct world {
	struct rig rig;
	struct tensors tensors;
	uint64_t own[RIG_MAX][RIG_TENSORS];
};

static const struct verbs_calls *calls_of(struct member self)
{
	return verbs_mock_calls(self.role == ROLE_TRAINER ? 0 : 1);
}

static const struct rig_options both = {.trainers = 1,
					.ranks = 2,
					.transport = "verbs",
					.memory = "cuda:0",
					.rank_memory = "cuda:1"};
static const struct verbs_mock_options network = {
	.seed = 1, .nics = 2, .dmabuf = true, .background = true, .gpu = &gpu_nic};
static const struct cuda_mock_options devices = {.devices = 2, .order = CUDA_MOCK_LATE};

static struct world *world_now; /* hooks have no context */

static void world_begin(struct world *world, const struct verbs_mock_options *nics,
			const struct cuda_mock_options *gpus)
{
	memset(world, 0, sizeof(*world));
	world_now = world;
	verbs_mock_open(nics);
	verbs_calls_tested = calls_of;
	cuda_mock_open(gpus);
	tensors_open(&world->tensors, 0);
}

static void world_end(struct world *world)
{
	for (uint32_t i = 0; i < RIG_MAX; i++)
		weft_close(&world->rig.trainers[i]);
	tensors_close(&world->tensors);
	if (world->rig.options.trainers)
		rig_close(&world->rig);
	for (uint32_t r = 0; r < RIG_MAX; r++)
		for (uint32_t p = 0; p < RIG_TENSORS; p++)
			if (world->own[r][p])
				cuda_mock_free(world->own[r][p]);
	assert_int_equal(cuda_mock_close(), 0);
	verbs_calls_tested = NULL;
	assert_string_equal(verbs_mock_violation(), "");
	assert_int_equal(verbs_mock_alive(), 0);
	verbs_mock_close();
}

static void register_tensors(struct rig *rig)
{
	weft_error error = WEFT_ERROR_INIT;

	for (uint32_t t = 0; t < RIG_TENSORS; t++)
		rig_ok(weft_source_register(rig->trainers[0], &world_now->tensors.memory[t],
					    &error),
		       &error);
}

static weft_stats stats_of(const struct world *world)
{
	weft_stats stats = WEFT_STATS_INIT;

	assert_int_equal(weft_get_stats(world->rig.trainers[0], &stats, NULL), 0);
	return stats;
}

static void run(const struct rig_options *options, const struct verbs_mock_options *nics,
		const struct cuda_mock_options *gpus, weft_stats *stats)
{
	struct world world;

	world_begin(&world, nics, gpus);
	rig_open(&world.rig, options);
	for (uint64_t version = 1; version <= 3; version++)
		update(&world.rig, &world.tensors, version);
	if (stats)
		*stats = stats_of(&world);
	world_end(&world);
}

/* ---- ways ---- */

static void test_update__leaves_from_a_ring_on_the_gpu_and_lands_on_one(void **state)
{
	weft_stats stats;

	(void)state;
	run(&both, &network, &devices, &stats);
	assert_int_equal(stats.pieces_replica, 3 * 6);
	assert_int_equal(stats.pieces_direct + stats.pieces_mapped, 0);
	assert_true(stats.launches > 0);
}

static void test_registered__tensors_are_read_where_they_lie(void **state)
{
	struct rig_options options = both;
	weft_stats stats;

	(void)state;
	options.declared = register_tensors;
	run(&options, &network, &devices, &stats);
	assert_int_equal(stats.pieces_direct,
			 3 * 4); /* rows of q, and n; columns of o are packed */
	assert_int_equal(stats.pieces_replica, 3 * 2);
}

static void test_checksums__are_of_what_lies_on_the_gpus(void **state)
{
	struct rig_options options = both;

	(void)state;
	options.checksums = 1;
	run(&options, &network, &devices, NULL);
	options.declared = register_tensors;
	run(&options, &network, &devices, NULL);
	options.shadow = 1;
	run(&options, &network, &devices, NULL);
	options.shadow = 0;
	options.replica = "host";
	run(&options, &network, &devices, NULL);
}

static void test_staged__versions_land_beside_the_parameters(void **state)
{
	struct rig_options options = both;

	(void)state;
	options.stage = "device";
	options.checksums = 1;
	run(&options, &network, &devices, NULL);
	options.stage = "host";
	run(&options, &network, &devices, NULL);
}

static void from_host(const struct rig_options *options)
{
	struct world world;

	world_begin(&world, &network, &devices);
	rig_open(&world.rig, options);
	for (uint64_t version = 1; version <= 2; version++) {
		rig_fill(&world.rig, version);
		rig_wait_begin(&world.rig, version, 0);
		rig_send(&world.rig, 0, version);
		rig_wait_end(&world.rig, 0);
		check_rank(&world.rig, 0, version);
	}
	world_end(&world);
}

static void test_either_side__may_lie_on_the_host(void **state)
{
	struct rig_options options = both;

	(void)state;
	options.rank_memory = NULL;
	options.checksums = 1;
	run(&options, &network, &devices, NULL);
	options.rank_memory = both.rank_memory;
	options.memory = NULL;
	from_host(&options);
}

/* Kernels pack on the device, the copy engine brings it down. */
static void test_replica_host__goes_through_pinned_memory(void **state)
{
	struct rig_options options = both;
	weft_stats stats;

	(void)state;
	options.replica = "host";
	options.declared = register_tensors;
	run(&options, &network, &devices, &stats);
	assert_int_equal(stats.pieces_replica, 3 * 6);
}

static void test_list__prefers_the_members_that_write_memory_of_a_gpu(void **state)
{
	struct rig_options options = both;
	weft_stats stats;

	(void)state;
	options.transport = "shm,verbs";
	options.checksums = 1;
	run(&options, &network, &devices, &stats);
	assert_int_equal(stats.pieces_landed, 0);
	options.transport = "cuda,verbs";
	run(&options, &network, &devices, NULL);
}

/* ---- NICs and drivers ---- */

static void test_peermem__does_where_dmabufs_do_not(void **state)
{
	struct verbs_mock_options nics = network;
	struct cuda_mock_options gpus = devices;
	struct rig_options options = both;

	(void)state;
	nics.dmabuf = false;
	nics.peermem = gpus.peermem = true;
	options.checksums = 1;
	run(&options, &nics, &gpus, NULL);
}

/* What the drivers say of themselves, and what comes of it: BAR1 is full where the trainer tries. */
static void test_dmabuf__that_cannot_be_registered_after_all_is_found_when_it_is_tried(void **state)
{
	struct rig_options options = both;
	struct world world;

	(void)state;
	options.checksums = 1;
	world_begin(&world, &network, &devices);
	cuda_mock_fail("dmabuf", 1, 0);
	rig_open(&world.rig, &options);
	assert_false(transport_domain_caps(world.rig.trainers[0]->domain)->gpu_direct);
	assert_non_null(
		strstr(transport_domain_no_gpu(world.rig.trainers[0]->domain), "as a dma-buf"));
	assert_true(transport_domain_caps(world.rig.ranks[0]->domain)->gpu_direct);
	for (uint64_t version = 1; version <= 2; version++)
		update(&world.rig, &world.tensors, version);
	world_end(&world);
}

/* ---- memory of the host program's ---- */

/* At an odd place of an allocation, the last one across the border of two physical parts. */
static weft_memory own_memory(struct rig *rig, uint32_t rank, uint32_t param)
{
	enum cuda_mock_kind kind = param == 2 ? CUDA_MOCK_MAPPED : CUDA_MOCK_PLAIN;
	uint64_t *own = &world_now->own[rank][param];
	uint64_t at = param == 2 ? (2 << 20) - 16 : 4096 + 64 * param;

	(void)rig;
	*own = cuda_mock_allocate(1, kind, 4 << 20);
	return weft_cuda_memory(1, (void *)(uintptr_t)(*own + at), 480, NULL);
}

static void test_own_memory__is_written_wherever_it_lies_in_an_allocation(void **state)
{
	struct rig_options options = both;

	(void)state;
	options.own_memory = 1;
	options.own = own_memory;
	options.checksums = 1;
	run(&options, &network, &devices, NULL);
}

static weft_worker *open_rank(int own_memory, int rc, weft_error *error)
{
	weft_options options = WEFT_OPTIONS_INIT;
	weft_worker *worker = NULL;

	options.controller = "tcp://127.0.0.1:1";
	options.role = WEFT_INFERENCE;
	options.transport = "verbs";
	options.memory = "cuda";
	options.own_memory = own_memory;
	options.join_timeout_ms = 50;
	assert_int_equal(weft_open(&worker, &options, error), rc);
	return worker;
}

static void test_memory__that_no_nic_reaches_is_refused_with_what_to_do(void **state)
{
	static const struct {
		enum cuda_mock_kind kind;
		const char *words;
	} rows[] = {{CUDA_MOCK_POOL, "backend:native"},
		    {CUDA_MOCK_MANAGED, "allocate with cudaMalloc"},
		    {CUDA_MOCK_UNSHAREABLE, "expandable_segments:False"}};
	const uint64_t lo[2] = {0, 0}, hi[2] = {12, 10};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		weft_error error = WEFT_ERROR_INIT;
		struct world world;
		weft_memory memory;
		weft_param param = {sizeof(param), "p.q", "F32", 2, {12, 10}, &memory};
		weft_worker *worker;

		world_begin(&world, &network, &devices);
		world.own[0][0] = cuda_mock_allocate(0, rows[i].kind, 4096);
		memory = weft_cuda_memory(0, (void *)(uintptr_t)world.own[0][0], 480, NULL);
		worker = open_rank(1, 0, &error);
		rig_ok(weft_declare_param(worker, &param, NULL, &error), &error);
		rig_ok(weft_declare_piece(worker, &rig_tensors[0], lo, hi, 0, 0, &error), &error);
		assert_int_equal(weft_join(worker, 50, &error), -WEFT_E_UNSUPPORTED);
		if (!strstr(error.text, rows[i].words) || !strstr(error.text, "parameter p.q"))
			fail_msg("'%s' is not in: %s", rows[i].words, error.text);
		weft_close(&worker);
		world_end(&world);
	}
}

static void test_without_gpudirect__a_trainer_goes_down_and_a_rank_has_a_window(void **state)
{
	struct verbs_mock_options nics = network;
	struct rig_options options = both;
	weft_stats stats;

	(void)state;
	nics.dmabuf = false;
	options.checksums = 1;
	run(&options, &nics, &devices, &stats);
	assert_int_equal(stats.pieces_landed, 3 * 6);
	options.stage = "host";
	run(&options, &nics, &devices, &stats);
	assert_int_equal(stats.pieces_landed, 0);
	assert_int_equal(stats.pieces_replica, 3 * 6);
}

/* ---- planted ---- */

/* What rank 0 has of the first byte of q after version 2, whose bytes come late on a stream. */
static unsigned char late_byte(bool tell)
{
	struct rig_options options = both;
	weft_error error = WEFT_ERROR_INIT;
	struct world world;
	unsigned char here;
	void *stream;

	options.declared = register_tensors;
	world_begin(&world, &network, &devices);
	rig_open(&world.rig, &options);
	tensors_fill(&world.tensors, &world.rig, 1);
	rig_fill(&world.rig, 2);
	stream = queue_late(&world.tensors.memory[0], world.rig.tensors[0], rig_bytes[0]);
	if (tell)
		world.tensors.memory[0].stream = stream;
	rig_wait_begin(&world.rig, 2, 0);
	send(&world.rig, &world.tensors, 2);
	rig_wait_end(&world.rig, 0);
	rig_ok(weft_play_copy(1, &here, weft_param_memory(world.rig.ranks[0], 0, 2), 1, &error),
	       &error);
	end_stream(0, stream);
	world_end(&world);
	return here;
}

/* A NIC knows nothing of streams. */
static void test_stream__of_a_tensor_that_a_nic_reads_comes_first(void **state)
{
	(void)state;
	assert_int_equal(late_byte(true), rig_byte(2, 0, 0));
	/* and this is what is seen without it */
	assert_int_equal(late_byte(false), rig_byte(1, 0, 0));
}

/* A device that says it needs no flush, and lies. */
static void test_flush__is_what_makes_written_bytes_visible(void **state)
{
	struct cuda_mock_options gpus = devices;
	struct rig_options options = both;
	weft_error error = WEFT_ERROR_INIT;
	struct world world;
	unsigned char here;

	(void)state;
	gpus.flush_lies = true;
	world_begin(&world, &network, &gpus);
	rig_open(&world.rig, &options);
	tensors_fill(&world.tensors, &world.rig, 1);
	rig_wait_begin(&world.rig, 1, 0);
	send(&world.rig, &world.tensors, 1);
	rig_wait_end(&world.rig, 0);
	rig_ok(weft_play_copy(1, &here, weft_param_memory(world.rig.ranks[0], 0, 1), 1, &error),
	       &error);
	assert_int_equal(here, 0);
	assert_int_equal(cuda_mock_count(CUDA_CALL_flush_writes), 0);
	world_end(&world);

	/* and with checksums nothing of it is published */
	options.checksums = 1;
	world_begin(&world, &network, &gpus);
	rig_open(&world.rig, &options);
	tensors_fill(&world.tensors, &world.rig, 1);
	rig_wait_begin(&world.rig, 1, 0);
	send(&world.rig, &world.tensors, 1);
	rig_wait_end(&world.rig, -WEFT_E_CHECKSUM);
	assert_int_equal(weft_published(world.rig.ranks[0]), 0);
	world_end(&world);
}

static void test_flush__that_cannot_be_had_is_said_when_the_worker_is_opened(void **state)
{
	struct cuda_mock_options gpus = devices;
	weft_error error = WEFT_ERROR_INIT;
	struct world world;

	(void)state;
	gpus.no_flush = true;
	world_begin(&world, &network, &gpus);
	open_rank(0, -WEFT_E_UNSUPPORTED, &error);
	assert_non_null(strstr(error.text, "flush"));
	assert_non_null(strstr(error.text, "--stage host"));
	world_end(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_update__leaves_from_a_ring_on_the_gpu_and_lands_on_one),
		cmocka_unit_test(test_registered__tensors_are_read_where_they_lie),
		cmocka_unit_test(test_checksums__are_of_what_lies_on_the_gpus),
		cmocka_unit_test(test_staged__versions_land_beside_the_parameters),
		cmocka_unit_test(test_either_side__may_lie_on_the_host),
		cmocka_unit_test(test_replica_host__goes_through_pinned_memory),
		cmocka_unit_test(test_list__prefers_the_members_that_write_memory_of_a_gpu),
		cmocka_unit_test(test_peermem__does_where_dmabufs_do_not),
		cmocka_unit_test(
			test_dmabuf__that_cannot_be_registered_after_all_is_found_when_it_is_tried),
		cmocka_unit_test(
			test_without_gpudirect__a_trainer_goes_down_and_a_rank_has_a_window),
		cmocka_unit_test(test_own_memory__is_written_wherever_it_lies_in_an_allocation),
		cmocka_unit_test(test_memory__that_no_nic_reaches_is_refused_with_what_to_do),
		cmocka_unit_test(test_stream__of_a_tensor_that_a_nic_reads_comes_first),
		cmocka_unit_test(test_flush__is_what_makes_written_bytes_visible),
		cmocka_unit_test(test_flush__that_cannot_be_had_is_said_when_the_worker_is_opened),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The suite over provider "verbs" on a mock of libibverbs that reorders all it may: one NIC; two
 * NICs with two queue pairs each; without ibv_wr_*; with tiny limits; InfiniBand; memory of mock GPUs on both sides. Then
 * over a network that lets immediates overtake their data, which the suite must notice.
 *
 * The suite looks where it wrote, so device memory may be touched here, and what NICs write there is seen at once:
 * without either is tests/unit/worker/test_worker_gpudirect.c.
 */
#include "tests/cuda_mock/cuda_mock.h"
#include "tests/support/conformance.h"
#include "tests/support/verbs_mock.h"
#include "transport/verbs/verbs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

struct fabric {
	const char *name;
	struct verbs_mock_options mock;
	uint32_t qps, depth, receive_depth;
	uint64_t chunk_bytes;
	bool registered;
	bool device; /* memory */
};

static const struct verbs_mock_gpu touched = {.dmabuf = cuda_mock_dmabuf,
					      .is_device = cuda_mock_is_device,
					      .read = cuda_mock_nic_read,
					      .write = cuda_mock_poke};

static const struct fabric fabrics[] = {
	{.name = "verbs on a mock, one NIC", .mock = {.seed = 1}, .qps = 1},
	{.name = "verbs on a mock, two NICs with two queue pairs",
	 .mock = {.seed = 2, .nics = 2, .ports = 2},
	 .qps = 2,
	 .registered = true},
	{.name = "verbs on a mock, ibv_post_send only",
	 .mock = {.seed = 3, .nics = 2, .no_send_ops = true},
	 .qps = 1},
	{.name = "verbs on a mock, tiny limits",
	 .mock = {.seed = 4,
		  .max_mr_size = 1 << 20,
		  .max_cqe = 1024,
		  .max_qp_wr = 24,
		  .max_msg_sz = 4096,
		  .max_srq_wr = 1000,
		  .post_enomem = true},
	 .qps = 2,
	 .depth = 16,
	 .chunk_bytes = 4096},
	{.name = "verbs on a mock, InfiniBand",
	 .mock = {.seed = 5, .nics = 2, .infiniband = true},
	 .qps = 2},
	{.name = "verbs on a mock, device memory by dma-buf",
	 .mock = {.seed = 6, .nics = 2, .dmabuf = true, .gpu = &touched, .max_mr_size = 2 << 20},
	 .qps = 2,
	 .registered = true,
	 .device = true},
	{.name = "verbs on a mock, device memory by nvidia-peermem",
	 .mock = {.seed = 7, .peermem = true, .gpu = &touched},
	 .qps = 1,
	 .registered = true,
	 .device = true},
};

static void settings_for(const struct fabric *fabric, struct verbs_settings *settings)
{
	verbs_settings_default(settings);
	settings->qps = fabric->qps;
	settings->depth = fabric->depth ? fabric->depth : settings->depth;
	settings->chunk_bytes = fabric->chunk_bytes ? fabric->chunk_bytes : settings->chunk_bytes;
	settings->relaxed = VERBS_ON;
}

static void *device_memory(uint64_t bytes)
{
	void *memory = (void *)(uintptr_t)cuda_mock_allocate(0, CUDA_MOCK_PLAIN, bytes);

	return memset(memory, 0, bytes);
}

static void device_free(void *memory)
{
	cuda_mock_free((uint64_t)(uintptr_t)memory);
}

static int run(const struct fabric *fabric)
{
	struct verbs_mock_options mock = fabric->mock;
	struct verbs_settings settings;
	struct verbs_options options = {.calls = verbs_mock_calls(0), .settings = &settings};
	struct conformance subject = {.name = fabric->name,
				      .provider = "verbs",
				      .options = &options,
				      .registered = fabric->registered,
				      .probes = true};
	int failed;

	if (fabric->device) {
		subject.memory = device_memory;
		subject.memory_free = device_free;
		cuda_mock_open(&(struct cuda_mock_options){.devices = 1,
							   .touchable = true,
							   .no_dmabuf = !mock.dmabuf,
							   .peermem = mock.peermem});
	}
	settings_for(fabric, &settings);
	mock.background = true;
	verbs_mock_open(&mock);
	failed = conformance_run(&subject);
	if (fabric->device)
		failed += cuda_mock_close();
	if (verbs_mock_alive()) {
		print_error("%s: %d objects or events are left\n", fabric->name,
			    verbs_mock_alive());
		failed++;
	}
	if (verbs_mock_violations()) {
		print_error("%s: %u violations; the first: %s\n", fabric->name,
			    verbs_mock_violations(), verbs_mock_violation());
		failed++;
	}
	verbs_mock_close();
	return failed;
}

static void test_suite__notices_a_network_whose_immediates_overtake(void **state)
{
	struct fabric fabric = {.mock = {.seed = 9, .imm_overtakes = true}, .qps = 2};
	struct verbs_settings settings;
	struct verbs_options options = {.calls = verbs_mock_calls(0), .settings = &settings};
	struct conformance subject = {
		.name = "verbs on a lying mock", .provider = "verbs", .options = &options};
	uint64_t violations;

	(void)state;
	settings_for(&fabric, &settings);
	settings.chunk_bytes = 4096;
	verbs_mock_open(&fabric.mock);
	violations = conformance_violations(&subject, 60);
	verbs_mock_close();
	assert_true(violations > 0);
}

int main(void)
{
#ifndef __SANITIZE_THREAD__
	/* there is a race, and that is the point */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_suite__notices_a_network_whose_immediates_overtake),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
#else
	int failed = 0;
	(void)test_suite__notices_a_network_whose_immediates_overtake;
#endif

	for (size_t i = 0; i < ARRAY_SIZE(fabrics); i++)
		failed += run(&fabrics[i]);
	return failed;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * The suite over provider cuda and mock devices: host memory, device memory on the target's side, and on both, with
 * streams that are as late as they may be. That no device memory is touched by the processor is what
 * tests/unit/transport/cuda/test_cuda_provider.c holds: here it may be, for the suite looks where it wrote.
 */
#include "tests/cuda_mock/cuda_mock.h"
#include "tests/support/conformance.h"

#include <stdio.h>
#include <string.h>

static struct cuda_mock_options options = {
	.devices = 1, .order = CUDA_MOCK_LATE, .touchable = true};

static void *device_memory(uint64_t bytes)
{
	void *memory = (void *)(uintptr_t)cuda_mock_allocate(0, CUDA_MOCK_PLAIN, bytes);

	return memset(memory, 0, bytes);
}

static void device_free(void *memory)
{
	cuda_mock_free((uint64_t)(uintptr_t)memory);
}

/* Without a thread of its own: ThreadSanitizer allows none in a child of a process that had threads. */
static void child(void)
{
	struct cuda_mock_options of_child = options;

	if (of_child.order == CUDA_MOCK_RANDOM)
		of_child.order = CUDA_MOCK_LATE;
	cuda_mock_open(&of_child);
}

int main(void)
{
	const struct conformance subjects[] = {
		{.name = "cuda, mapped host memory",
		 .provider = "cuda",
		 .processes = true,
		 .child = child},
		{.name = "cuda, registered host memory",
		 .provider = "cuda",
		 .registered = true,
		 .processes = true,
		 .child = child},
		{.name = "cuda, device memory",
		 .provider = "cuda",
		 .registered = true,
		 .memory = device_memory,
		 .memory_free = device_free,
		 .stop_waits = true,
		 .processes = true,
		 .child = child},
	};
	int failed = 0;

	for (int order = CUDA_MOCK_EAGER; order <= CUDA_MOCK_LATE; order++) {
		options.order = (enum cuda_mock_order)order;
		options.seed = (uint64_t)order;
		cuda_mock_open(&options);
		for (unsigned i = order == CUDA_MOCK_LATE ? 0 : 2;
		     i < sizeof(subjects) / sizeof(*subjects); i++)
			failed |= conformance_run(&subjects[i]);
		failed |= cuda_mock_close();
	}
	return failed;
}

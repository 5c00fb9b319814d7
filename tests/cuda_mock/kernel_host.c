/* SPDX-License-Identifier: Apache-2.0 */
#include "pack/cuda/launch.h"

#include "pack/cuda/kernels.h"

static void *where_it_says(void *context, uint64_t address, uint64_t bytes, bool write)
{
	(void)context;
	(void)bytes;
	(void)write;
	return (void *)(uintptr_t)address;
}

void pack_cuda_host_run(const struct pack_cuda_launch *launch, uint32_t blocks,
			pack_cuda_reach *reach, void *context)
{
	struct block block = {.reach = reach ? reach : where_it_says, .context = context};

	for (uint32_t b = 0; b < blocks; b++)
		run_block(&block, launch, b, blocks);
}

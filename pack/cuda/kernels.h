/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels.h -- the kernel: a block of threads takes every n-th tile of a launch, finds the part that the tile is of,
 * and does the part's work on it. kernels_block.h says how one source serves devices and the host.
 */
#ifndef PACK_CUDA_KERNELS_H
#define PACK_CUDA_KERNELS_H

#include "pack/cuda/kernels_elements.h"
#include "pack/cuda/kernels_blocks.h"
#include "pack/cuda/kernels_sum.h"

/* The last part of the launch whose first tile is not behind this one. */
KERNEL uint32_t find_part(const struct block *block, const struct pack_cuda_launch *launch, uint64_t tile)
{
	uint32_t low = launch->first, high = launch->first + launch->count - 1;

	while (low < high) {
		uint32_t middle = low + (high - low + 1) / 2;
		const struct pack_cuda_part *part = (const struct pack_cuda_part *)READ(
			block, launch->parts + (uint64_t)middle * sizeof(*part), sizeof(*part));

		if (part->first_tile <= tile)
			low = middle;
		else
			high = middle - 1;
	}
	return low;
}

KERNEL uint64_t base_of(const struct block *block, const struct pack_cuda_launch *launch, uint32_t tensor)
{
	return *(const uint64_t *)READ(block, launch->bases + tensor * sizeof(uint64_t), sizeof(uint64_t));
}

KERNEL void take_tile(struct block *block, const struct pack_cuda_launch *launch, uint64_t tile)
{
	uint32_t index = find_part(block, launch, tile);

	block->part = *(const struct pack_cuda_part *)READ(
		block, launch->parts + (uint64_t)index * sizeof(block->part), sizeof(block->part));
	block->tile = tile - block->part.first_tile;
	block->data = block->part.offset;
	block->scales = 0;
	if (block->part.tensor != PACK_CUDA_NO_TENSOR)
		block->data += base_of(block, launch, block->part.tensor);
	if (block->part.scales != PACK_CUDA_NO_TENSOR)
		block->scales = base_of(block, launch, block->part.scales) + block->part.scale_offset;
}

KERNEL void run_tile(struct block *block, const struct pack_cuda_launch *launch)
{
	switch (block->part.work) {
	case PACK_CUDA_COPY:
		copy_tile(block);
		break;
	case PACK_CUDA_CONVERT:
	case PACK_CUDA_PAD:
		elements_tile(block);
		break;
	case PACK_CUDA_TRANSPOSE:
		transpose_tile(block);
		break;
	case PACK_CUDA_VALUES:
	case PACK_CUDA_SCALES:
		blocks_tile(block);
		break;
	case PACK_CUDA_SUM:
		sum_tile(block, launch->sums);
		break;
	default:
		break;
	}
}

/* Of block `first` among `blocks`. */
KERNEL void run_block(struct block *block, const struct pack_cuda_launch *launch, uint32_t first, uint32_t blocks)
{
	for (uint64_t tile = first; tile < launch->tiles; tile += blocks) {
		EACH_THREAD(t)
			if (!t)
				take_tile(block, launch, launch->first_tile + tile);
		BARRIER();
		run_tile(block, launch);
		BARRIER();
	}
}

#endif

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

#define STRETCH 4u  /* neighbouring tiles that a block of threads takes one after the other */
#define LOOKERS 32u /* threads that look for a part, at as many at once: a look is a wait for memory */

KERNEL uint64_t first_tile_of(const struct block *block, const struct pack_cuda_launch *launch, uint32_t index)
{
	const struct pack_cuda_part *part = (const struct pack_cuda_part *)READ(
		block, launch->parts + (uint64_t)index * sizeof(*part), sizeof(*part));

	return part->first_tile;
}

/* The last part of the launch whose first tile is not behind this one. */
KERNEL uint32_t find_part(struct block *block, const struct pack_cuda_launch *launch, uint64_t tile)
{
	uint32_t low = launch->first, end = launch->first + launch->count;

	while (end - low > 1) {
		uint32_t step = (end - low + LOOKERS - 1) / LOOKERS;

		EACH_THREAD(t) {
			uint32_t mine = low + t * step, next = mine + step;

			if (t < LOOKERS && mine < end && first_tile_of(block, launch, mine) <= tile &&
			    (next >= end || first_tile_of(block, launch, next) > tile))
				block->found = mine;
		}
		BARRIER();
		low = block->found;
		end = low + step < end ? low + step : end;
		BARRIER();
	}
	return low;
}

KERNEL uint64_t base_of(const struct block *block, const struct pack_cuda_launch *launch, uint32_t tensor)
{
	return *(const uint64_t *)READ(block, launch->bases + tensor * sizeof(uint64_t), sizeof(uint64_t));
}

/* The part that the tile is of, and where its memory lies. */
KERNEL void take_part(struct block *block, const struct pack_cuda_launch *launch, uint64_t tile)
{
	uint32_t index = find_part(block, launch, tile);
	uint64_t at = launch->parts + (uint64_t)index * sizeof(block->part);

	EACH_THREAD(t)
		if (t < sizeof(block->part) / sizeof(uint64_t))
			MOVE(uint64_t, (unsigned char *)&block->part + t * sizeof(uint64_t),
			     READ(block, at + t * sizeof(uint64_t), sizeof(uint64_t)));
	BARRIER();
	EACH_THREAD(t)
		if (!t) {
			block->data = block->part.offset;
			block->scales = 0;
			if (block->part.tensor != PACK_CUDA_NO_TENSOR)
				block->data += base_of(block, launch, block->part.tensor);
			if (block->part.scales != PACK_CUDA_NO_TENSOR)
				block->scales = base_of(block, launch, block->part.scales) + block->part.scale_offset;
		}
	BARRIER();
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

/* Of block `first` among `blocks`. Neighbours are mostly of one part, which is then looked for once. */
KERNEL void run_block(struct block *block, const struct pack_cuda_launch *launch, uint32_t first, uint32_t blocks)
{
	uint64_t known_from = 0, known_to = 0; /* tiles of the part that is taken */

	for (uint64_t i = (uint64_t)first * STRETCH; i < launch->tiles;
	     i = (i + 1) % STRETCH ? i + 1 : i + 1 + (uint64_t)(blocks - 1) * STRETCH) {
		uint64_t tile = launch->first_tile + i;

		if (tile < known_from || tile >= known_to) {
			take_part(block, launch, tile);
			known_from = block->part.first_tile;
			known_to = known_from + block->part.tiles;
		}
		EACH_THREAD(t)
			if (!t)
				block->tile = tile - known_from;
		BARRIER();
		run_tile(block, launch);
		BARRIER();
	}
}

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels_blocks.h -- numbers into F8_E4M3 with one F32 scale a block (job/transform.h says how). A tile is one block of
 * the parameter: its largest finite magnitude, then its values, its scale, or both.
 */
#ifndef PACK_CUDA_KERNELS_BLOCKS_H
#define PACK_CUDA_KERNELS_BLOCKS_H

#include "pack/cuda/kernels_elements.h"

#define BLOCK_FP8_MAX  448.0f
#define BLOCK_AMAX_MIN 1e-10f

/* A block inside of its box. */
struct place {
	uint64_t row, column;    /* its first element */
	uint64_t rows, columns;
	uint64_t done;           /* rows of the part before this row of blocks */
};

KERNEL struct place block_place(const struct block *block)
{
	const struct pack_cuda_part *part = &block->part;
	uint64_t across = (part->columns + part->to_columns - 1) / part->to_columns;
	uint64_t band = block->tile / across, first = part->from / part->grain_bytes;
	struct place place;

	place.row = (first + band) * part->to_rows;
	place.column = block->tile % across * part->to_columns;
	place.rows = kernel_least(part->to_rows, part->rows - place.row);
	place.columns = kernel_least(part->to_columns, part->columns - place.column);
	place.done = band * part->to_rows;
	return place;
}

KERNEL void find_peak(struct block *block, const struct place *place)
{
	EACH_THREAD(t) {
		uint32_t peak = 0;

		for (uint64_t i = t; i < place->rows * place->columns; i += PACK_CUDA_THREADS) {
			uint32_t bits = load_f32(block, place->row + i / place->columns,
						 place->column + i % place->columns) &
					0x7fffffffu;

			if (bits < ELEMENT_F32_INFINITY && bits > peak)
				peak = bits;
		}
		block->shared.peaks[t] = peak;
	}
	BARRIER();
	for (uint32_t step = PACK_CUDA_THREADS / 2; step; step /= 2) {
		EACH_THREAD(t)
			if (t < step && block->shared.peaks[t + step] > block->shared.peaks[t])
				block->shared.peaks[t] = block->shared.peaks[t + step];
		BARRIER();
	}
}

KERNEL void blocks_tile(struct block *block)
{
	const struct pack_cuda_part *part = &block->part;
	struct place place = block_place(block);
	bool alone = part->work == PACK_CUDA_SCALES;
	uint64_t scales = alone ? part->target : part->scales_target;
	uint32_t least = element_bits(BLOCK_AMAX_MIN), peak;
	float scale, inverse;

	find_peak(block, &place);
	peak = block->shared.peaks[0];
	scale = element_float(peak > least ? peak : least) / BLOCK_FP8_MAX;
	inverse = 1.0f / scale;
	EACH_THREAD(t) {
		if (!t && scales)
			store_bits(block,
				   runs_at(alone ? &part->target_runs : &part->scales_runs, scales,
					   block->tile * sizeof(float)),
				   element_bits(scale), 4);
		for (uint64_t i = t; part->work == PACK_CUDA_VALUES && i < place.rows * place.columns;
		     i += PACK_CUDA_THREADS) {
			uint64_t row = i / place.columns, column = place.column + i % place.columns;
			float x = element_float(load_f32(block, place.row + row, column));

			*WRITE(block, target_at(block, (place.done + row) * part->columns + column), 1) =
				element_f8_from_f32(element_bits(x * inverse));
		}
	}
}

#endif

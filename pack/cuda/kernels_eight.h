/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels_eight.h -- eight neighbours of a row at once, in loads and stores of 16 bytes, which is what the memory of devices
 * is fast with: conversions, and what numbers in blocks are made of. What does not lie at such addresses goes one by one
 * (kernels_elements.h), to the same bits.
 */
#ifndef PACK_CUDA_KERNELS_EIGHT_H
#define PACK_CUDA_KERNELS_EIGHT_H

#include "pack/cuda/kernels_block.h"

#define EIGHT 8u

struct eight {
	aligned_16 half[2]; /* as they lie; elements of 2 bytes have the first one alone */
};

KERNEL void load_half(const struct block *block, uint64_t address, struct eight *eight, uint32_t h)
{
	MOVE(aligned_16, &eight->half[h], READ(block, address + h * sizeof(aligned_16), sizeof(aligned_16)));
}

KERNEL void load_eight(const struct block *block, uint64_t address, struct eight *eight)
{
	load_half(block, address, eight, 0);
	if (block->part.from_bytes == 4)
		load_half(block, address, eight, 1);
}

/* Element i of them as the bits of an F32. Which half is said by i alone where it can be: i is a constant of an unrolled loop,
 * and what is indexed by more does not stay in registers. */
KERNEL uint32_t eight_f32(const struct eight *eight, uint32_t i, uint32_t from_dtype)
{
	uint64_t word;

	if (from_dtype == DTYPE_F32) {
		word = i / 2 % 2 ? eight->half[i / 4].high : eight->half[i / 4].low;
		return (uint32_t)(word >> i % 2 * 32);
	}
	word = (i / 4 ? eight->half[0].high : eight->half[0].low) >> i % 4 * 16;
	return from_dtype == DTYPE_BF16 ? element_f32_from_bf16((uint16_t)word) : element_f32_from_f16((uint16_t)word);
}

KERNEL void store_eight(const struct block *block, uint64_t address, const struct eight *eight)
{
	const uint32_t from = block->part.from_dtype, to = block->part.to_dtype;
	aligned_16 halves[2];
	uint64_t words[4] = {0};

	UNROLL for (uint32_t i = 0; i < EIGHT; i++)
	{
		uint32_t bits = eight_f32(eight, i, from);

		if (to == DTYPE_F32)
			words[i / 2] |= (uint64_t)bits << i % 2 * 32;
		else
			words[i / 4] |= (uint64_t)(to == DTYPE_BF16 ? element_bf16_from_f32(bits)
								    : element_f16_from_f32(bits))
					<< i % 4 * 16;
	}
	halves[0].low = words[0], halves[0].high = words[1];
	halves[1].low = words[2], halves[1].high = words[3];
	MOVE(aligned_16, WRITE(block, address, sizeof(*halves)), &halves[0]);
	if (to == DTYPE_F32)
		MOVE(aligned_16, WRITE(block, address + sizeof(*halves), sizeof(*halves)), &halves[1]);
}

/* Whether the part's conversions go by eights: all that they read and write begins at 16 bytes, and no eight is cut. */
KERNEL bool eight_converts(const struct block *block)
{
	const struct pack_cuda_part *part = &block->part;
	const struct pack_cuda_runs *runs = &part->target_runs;
	uint64_t sources = block->data | (part->run_rows > 1 ? part->stride_bytes : 0);
	uint64_t cuts_from = part->run_rows > 1 ? part->row_bytes : 0;

	return part->work == PACK_CUDA_CONVERT && !part->from_rows && part->from_dtype != part->to_dtype &&
	       part->from_bytes > 1 && part->to_bytes > 1 &&
	       !((sources | part->target | runs->stride_bytes) % sizeof(aligned_16)) &&
	       !(cuts_from % (EIGHT * part->from_bytes)) &&
	       !((part->from | part->bytes | runs->run_bytes | runs->skip) % (EIGHT * part->to_bytes));
}

/* Elements [low, high) of the part. */
KERNEL void eight_convert(const struct block *block, uint64_t low, uint64_t high)
{
	const struct pack_cuda_part *part = &block->part;
	uint64_t first = part->from / part->to_bytes, length = part->row_bytes / part->from_bytes;

	EACH_THREAD(t)
		for (uint64_t i = low + t * EIGHT; i < high; i += 2 * PACK_CUDA_THREADS * EIGHT) {
			struct eight flight[2];

			UNROLL for (uint32_t k = 0; k < 2; k++)
			{
				uint64_t at = first + i + k * PACK_CUDA_THREADS * EIGHT;
				uint64_t row = part->run_rows > 1 ? at / length : 0;

				if (at < first + high)
					load_eight(block,
						   block->data + row * part->stride_bytes +
							   (at - row * length) * part->from_bytes,
						   &flight[k]);
			}
			UNROLL for (uint32_t k = 0; k < 2; k++)
			{
				uint64_t at = i + k * PACK_CUDA_THREADS * EIGHT;

				if (at < high)
					store_eight(block, target_at(block, at * part->to_bytes), &flight[k]);
			}
		}
}

#endif

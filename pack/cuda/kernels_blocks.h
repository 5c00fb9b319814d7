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

/* The bits of a finite magnitude, or 0. */
KERNEL uint32_t finite_magnitude(uint32_t bits)
{
	bits &= 0x7fffffffu;
	return bits < ELEMENT_F32_INFINITY ? bits : 0;
}

/* The code of an element times `inverse`, which is positive: the sign is the element's, a NaN's too, which the processors of
 * devices do not keep. */
KERNEL uint32_t code_of(uint32_t bits, float inverse)
{
	float product = element_float(bits) * inverse;

	return (bits >> 24 & 0x80u) | element_f8_from_f32(element_bits(product));
}

/* Two of them; of the first in the lower byte. */
KERNEL uint32_t codes_of(uint32_t first, uint32_t second, float inverse)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
	uint16_t codes;

	asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"
	    : "=h"(codes)
	    : "f"(element_float(second) * inverse), "f"(element_float(first) * inverse));
	return codes | (first >> 24 & 0x80u) | (second >> 16 & 0x8000u);
#else
	return code_of(first, inverse) | code_of(second, inverse) << 8;
#endif
}

#define HELD 8u /* eights of a thread: all of a block of 128 x 128 */

/* Whether the block goes by eights: as eight_converts() says of conversions; and whole rows of eights for all threads. */
KERNEL bool block_in_eights(const struct block *block, const struct place *place)
{
	const struct pack_cuda_part *part = &block->part;
	uint64_t source = block->data + place->row * part->stride_bytes + place->column * part->from_bytes;
	uint64_t cuts = place->columns | place->column, across = place->columns / EIGHT;

	if (part->work == PACK_CUDA_VALUES)
		cuts |= part->target | part->columns;
	return !part->from_rows && !part->target_runs.run_bytes && !(cuts % EIGHT) &&
	       !((source | part->stride_bytes) % sizeof(aligned_16)) && PACK_CUDA_THREADS % across == 0 &&
	       place->rows * across <= HELD * PACK_CUDA_THREADS;
}

/* The eights of a thread: k from 0 while its row is one of the block. */
struct eights {
	uint64_t source, source_step, target, target_step; /* of eight 0; from one to the next */
	uint32_t count;
};

KERNEL struct eights eights_of(const struct block *block, const struct place *place, uint32_t thread)
{
	const struct pack_cuda_part *part = &block->part;
	uint32_t across = (uint32_t)place->columns / EIGHT, down = PACK_CUDA_THREADS / across;
	uint32_t row = thread / across, column = thread % across * EIGHT;
	struct eights eights;

	eights.source = block->data + (place->row + row) * part->stride_bytes +
			(place->column + column) * part->from_bytes;
	eights.source_step = down * part->stride_bytes;
	eights.target = part->target + (place->done + row) * part->columns + place->column + column;
	eights.target_step = down * part->columns;
	eights.count = row < place->rows ? ((uint32_t)place->rows - row + down - 1) / down : 0;
	return eights;
}

KERNEL void store_codes(const struct block *block, uint64_t address, uint64_t codes)
{
	MOVE(uint64_t, WRITE(block, address, sizeof(codes)), &codes);
}

KERNEL uint64_t eight_codes(const struct eight *eight, uint32_t from_dtype, float inverse)
{
	uint64_t codes = 0;

	UNROLL for (uint32_t e = 0; e < EIGHT; e += 2)
		codes |= (uint64_t)codes_of(eight_f32(eight, e, from_dtype), eight_f32(eight, e + 1, from_dtype), inverse)
			 << e * 8;
	return codes;
}

KERNEL uint32_t eight_peak(const struct eight *eight, uint32_t from_dtype)
{
	uint32_t peak = 0;

	UNROLL for (uint32_t e = 0; e < EIGHT; e++)
	{
		uint32_t bits = finite_magnitude(eight_f32(eight, e, from_dtype));

		peak = bits > peak ? bits : peak;
	}
	return peak;
}

/* The largest of what the threads found, to all of them. */
KERNEL uint32_t largest_peak(struct block *block)
{
	for (uint32_t step = PACK_CUDA_THREADS / 2; step; step /= 2) {
		BARRIER();
		EACH_THREAD(t)
			if (t < step && block->shared.peaks[t + step] > block->shared.peaks[t])
				block->shared.peaks[t] = block->shared.peaks[t + step];
	}
	BARRIER();
	return block->shared.peaks[0];
}

/* Its scale, which goes to where it is wanted; what elements are multiplied with. */
KERNEL float block_scale(struct block *block, uint32_t peak)
{
	const struct pack_cuda_part *part = &block->part;
	bool alone = part->work == PACK_CUDA_SCALES;
	uint64_t scales = alone ? part->target : part->scales_target;
	uint32_t least = element_bits(BLOCK_AMAX_MIN);
	float scale = element_float(peak > least ? peak : least) / BLOCK_FP8_MAX;

	EACH_THREAD(t)
		if (!t && scales)
			store_bits(block,
				   runs_at(alone ? &part->target_runs : &part->scales_runs, scales,
					   block->tile * sizeof(float)),
				   element_bits(scale), 4);
	return 1.0f / scale;
}

/* A block of BF16 is read once, and kept in registers; for one of F32 there are too few, so it is read again (from a cache). */
KERNEL void block_of_bf16(struct block *block, const struct place *place)
{
	OF_THREADS(struct eight, held, HELD);
	float inverse;

	EACH_THREAD(t) {
		struct eights mine = eights_of(block, place, t);
		uint32_t peak = 0;

		UNROLL for (uint32_t k = 0; k < HELD; k++)
			if (k < mine.count)
				load_half(block, mine.source + k * mine.source_step, &MINE(held, t)[k], 0);
		UNROLL for (uint32_t k = 0; k < HELD; k++)
			if (k < mine.count) {
				uint32_t bits = eight_peak(&MINE(held, t)[k], DTYPE_BF16);

				peak = bits > peak ? bits : peak;
			}
		block->shared.peaks[t] = peak;
	}
	inverse = block_scale(block, largest_peak(block));
	EACH_THREAD(t) {
		struct eights mine = eights_of(block, place, t);

		UNROLL for (uint32_t k = 0; k < HELD; k++)
			if (k < mine.count && block->part.work == PACK_CUDA_VALUES)
				store_codes(block, mine.target + k * mine.target_step,
					    eight_codes(&MINE(held, t)[k], DTYPE_BF16, inverse));
	}
}

KERNEL void block_of_f32(struct block *block, const struct place *place)
{
	float inverse;

	EACH_THREAD(t) {
		struct eights mine = eights_of(block, place, t);
		uint32_t peak = 0;

		for (uint32_t k = 0; k < mine.count; k++) {
			struct eight eight;

			load_eight(block, mine.source + k * mine.source_step, &eight);
			uint32_t bits = eight_peak(&eight, DTYPE_F32);

			peak = bits > peak ? bits : peak;
		}
		block->shared.peaks[t] = peak;
	}
	inverse = block_scale(block, largest_peak(block));
	EACH_THREAD(t) {
		struct eights mine = eights_of(block, place, t);

		for (uint32_t k = 0; k < mine.count && block->part.work == PACK_CUDA_VALUES; k++) {
			struct eight eight;

			load_eight(block, mine.source + k * mine.source_step, &eight);
			store_codes(block, mine.target + k * mine.target_step, eight_codes(&eight, DTYPE_F32, inverse));
		}
	}
}

KERNEL void block_one_by_one(struct block *block, const struct place *place)
{
	const struct pack_cuda_part *part = &block->part;
	float inverse;

	EACH_THREAD(t) {
		uint32_t peak = 0;

		for (uint64_t i = t; i < place->rows * place->columns; i += PACK_CUDA_THREADS) {
			uint32_t bits = finite_magnitude(load_f32(block, place->row + i / place->columns,
								  place->column + i % place->columns));

			peak = bits > peak ? bits : peak;
		}
		block->shared.peaks[t] = peak;
	}
	inverse = block_scale(block, largest_peak(block));
	EACH_THREAD(t)
		for (uint64_t i = t; part->work == PACK_CUDA_VALUES && i < place->rows * place->columns;
		     i += PACK_CUDA_THREADS) {
			uint64_t row = i / place->columns, column = place->column + i % place->columns;

			*WRITE(block, target_at(block, (place->done + row) * part->columns + column), 1) =
				(uint8_t)code_of(load_f32(block, place->row + row, column), inverse);
		}
}

TILE_KERNEL void blocks_tile(struct block *block)
{
	struct place place = block_place(block);
	bool eights = block_in_eights(block, &place);

	if (eights && block->part.from_dtype == DTYPE_BF16)
		block_of_bf16(block, &place);
	else if (eights && block->part.from_dtype == DTYPE_F32)
		block_of_f32(block, &place);
	else
		block_one_by_one(block, &place);
}

#endif

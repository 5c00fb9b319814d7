/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels_elements.h -- work on elements alone: copies, conversions, padding, transposing.
 */
#ifndef PACK_CUDA_KERNELS_ELEMENTS_H
#define PACK_CUDA_KERNELS_ELEMENTS_H

#include "pack/cuda/kernels_eight.h"

/* ---- copies, in the largest unit that source, target and rows are all aligned to ---- */

/* Source address of byte `at` of the piece. */
KERNEL uint64_t copy_source(const struct block *block, uint64_t at)
{
	const struct pack_cuda_part *part = &block->part;

	if (part->run_rows == 1)
		return block->data + at;
	return block->data + at / part->row_bytes * part->run_stride_bytes + at % part->row_bytes;
}

KERNEL uint32_t copy_unit(const struct block *block)
{
	const struct pack_cuda_part *part = &block->part;
	uint64_t all = block->data | part->target | part->from | part->bytes | 16;

	if (part->run_rows > 1)
		all |= part->row_bytes | part->run_stride_bytes;
	/* without them all are 0 */
	all |= part->target_runs.run_bytes | part->target_runs.stride_bytes | part->target_runs.skip;
	return (uint32_t)(all & (0 - all));
}

/* A thread has four loads under way before it stores the first of them. */
#define COPY_STEP(type)	    (PACK_CUDA_THREADS * sizeof(type))
#define COPY_LOAD(type, at) MOVE(type, &flight_##at, READ(block, copy_source(block, part->from + at), sizeof(type)))
#define COPY_STORE(type, at) MOVE(type, WRITE(block, target_at(block, at), sizeof(type)), &flight_##at)
#define COPY_LOOP(type)                                                                          \
	EACH_THREAD(t) {                                                                         \
		uint64_t a = low + t * sizeof(type);                                             \
		type flight_a, flight_b, flight_c, flight_d;                                     \
                                                                                                 \
		for (; a + 3 * COPY_STEP(type) < high; a += 4 * COPY_STEP(type)) {               \
			uint64_t b = a + COPY_STEP(type), c = b + COPY_STEP(type), d = c + COPY_STEP(type); \
                                                                                                 \
			COPY_LOAD(type, a), COPY_LOAD(type, b), COPY_LOAD(type, c), COPY_LOAD(type, d); \
			COPY_STORE(type, a), COPY_STORE(type, b), COPY_STORE(type, c), COPY_STORE(type, d); \
		}                                                                                \
		for (; a < high; a += COPY_STEP(type)) {                                         \
			COPY_LOAD(type, a);                                                      \
			COPY_STORE(type, a);                                                     \
		}                                                                                \
	}

KERNEL void copy_tile(struct block *block)
{
	const struct pack_cuda_part *part = &block->part;
	uint64_t low = block->tile * TILE_BYTES, high = kernel_least(low + TILE_BYTES, part->bytes);

	switch (copy_unit(block)) {
	case 16:
		COPY_LOOP(aligned_16);
		break;
	case 8:
		COPY_LOOP(uint64_t);
		break;
	case 4:
		COPY_LOOP(uint32_t);
		break;
	case 2:
		COPY_LOOP(uint16_t);
		break;
	default:
		COPY_LOOP(uint8_t);
		break;
	}
}

/* ---- one element ---- */

KERNEL uint64_t load_bits(const struct block *block, uint64_t address, uint32_t bytes)
{
	const unsigned char *at = READ(block, address, bytes);
	uint64_t bits = 0;

	for (uint32_t i = 0; i < bytes; i++)
		bits |= (uint64_t)at[i] << 8 * i;
	return bits;
}

KERNEL void store_bits(const struct block *block, uint64_t address, uint64_t bits, uint32_t bytes)
{
	unsigned char *at = WRITE(block, address, bytes);

	if (bytes == 2 && !(address & 1))
		*(uint16_t *)(void *)at = (uint16_t)bits;
	else if (bytes == 4 && !(address & 3))
		*(uint32_t *)(void *)at = (uint32_t)bits;
	else
		for (uint32_t i = 0; i < bytes; i++)
			at[i] = (unsigned char)(bits >> 8 * i);
}

/* The element at (row, column) of the box as the bits of an F32; with its scale where it has one. */
KERNEL uint32_t load_f32(const struct block *block, uint64_t row, uint64_t column)
{
	const struct pack_cuda_part *part = &block->part;
	uint64_t address = block->data + row * part->stride_bytes + column * part->from_bytes;

	if (part->from_rows) {
		uint64_t scale = block->scales +
				 (row + part->row_skip) / part->from_rows * part->scale_stride_bytes +
				 (column + part->column_skip) / part->from_columns * sizeof(float);

		return element_f32_from_f8_scaled(*READ(block, address, 1),
						  element_float((uint32_t)load_bits(block, scale, 4)));
	}
	switch (part->from_dtype) {
	case DTYPE_BF16:
		return element_f32_from_bf16((uint16_t)load_bits(block, address, 2));
	case DTYPE_F16:
		return element_f32_from_f16((uint16_t)load_bits(block, address, 2));
	default:
		return (uint32_t)load_bits(block, address, 4);
	}
}

/* As the parameter has it: of a piece that is not in blocks. A BF16 made of an fp8 NaN has no payload, as everywhere. */
KERNEL uint64_t element_of(const struct block *block, uint64_t row, uint64_t column)
{
	const struct pack_cuda_part *part = &block->part;

	if (part->from_dtype == part->to_dtype)
		return load_bits(block, block->data + row * part->stride_bytes + column * part->from_bytes,
				 part->from_bytes);
	switch (part->to_dtype) {
	case DTYPE_BF16:
		return element_bf16_from_f32(load_f32(block, row, column));
	case DTYPE_F16:
		return element_f16_from_f32(load_f32(block, row, column));
	default:
		return load_f32(block, row, column);
	}
}

/* Element `at` of the box in the order of its runs, which are rows unless it has more dimensions. */
KERNEL uint64_t element_in_runs(struct block *block, uint64_t at)
{
	struct pack_cuda_part *part = &block->part;
	uint64_t length = part->row_bytes / part->from_bytes;
	uint64_t row = at / length, column = at % length;

	if (part->from_rows)
		return element_of(block, at / part->columns, at % part->columns);
	return element_of(block, row, column);
}

/* Padding, and conversions of what eight_convert() does not take: a row is to_columns elements, of which `columns` are the
 * tensor's. */
KERNEL void elements_one_by_one(struct block *block, uint64_t low, uint64_t high)
{
	const struct pack_cuda_part *part = &block->part;
	uint64_t first = part->from / part->to_bytes;

	EACH_THREAD(t)
		for (uint64_t i = low + t; i < high; i += PACK_CUDA_THREADS) {
			uint64_t at = first + i, bits = 0;

			if (part->work != PACK_CUDA_PAD)
				bits = element_in_runs(block, at);
			else if (at % part->to_columns < part->columns)
				bits = element_in_runs(block, at / part->to_columns * part->columns +
								      at % part->to_columns);
			store_bits(block, target_at(block, i * part->to_bytes), bits, part->to_bytes);
		}
}

TILE_KERNEL void elements_tile(struct block *block)
{
	const struct pack_cuda_part *part = &block->part;
	uint64_t count = TILE_BYTES / part->to_bytes, low = block->tile * count;
	uint64_t high = kernel_least(low + count, part->bytes / part->to_bytes);

	if (eight_converts(block))
		eight_convert(block, low, high);
	else
		elements_one_by_one(block, low, high);
}

/* ---- transposing: through a tile, so that both sides go along rows ---- */

/* Tiles of TURN x TURN of the box, the part's range of its columns; a part may begin and end inside of a column. */
TILE_KERNEL void transpose_tile(struct block *block)
{
	struct pack_cuda_part *part = &block->part;
	uint64_t first = part->from / part->to_bytes, last = first + part->bytes / part->to_bytes;
	uint64_t down = (part->rows + TURN - 1) / TURN, column_low = first / part->rows / TURN * TURN;
	uint64_t row0 = block->tile % down * TURN, column0 = column_low + block->tile / down * TURN;

	EACH_THREAD(t)
		for (uint32_t i = t; i < TURN * TURN; i += PACK_CUDA_THREADS) {
			uint64_t row = row0 + i / TURN, column = column0 + i % TURN;
			uint64_t at = column * part->rows + row;

			if (row < part->rows && column < part->columns && at >= first && at < last)
				block->shared.turned[i / TURN][i % TURN] = element_of(block, row, column);
		}
	BARRIER();
	EACH_THREAD(t)
		for (uint32_t i = t; i < TURN * TURN; i += PACK_CUDA_THREADS) {
			uint64_t row = row0 + i % TURN, column = column0 + i / TURN;
			uint64_t at = column * part->rows + row;

			if (row < part->rows && column < part->columns && at >= first && at < last)
				store_bits(block, target_at(block, (at - first) * part->to_bytes),
					   block->shared.turned[i % TURN][i / TURN], part->to_bytes);
		}
}

#endif

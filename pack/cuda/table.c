/* SPDX-License-Identifier: Apache-2.0
 *
 * table.c -- from packs to the numbers that a device reads, and how they are cut into tiles.
 */
#include "pack/cuda/launch.h"

#define TILE_BYTES  65536u /* of output; kernels.h has the same */
#define TURN	    32u
#define BLOCKS_EACH 8u /* of threads, that a multiprocessor has at once */

static uint64_t ceiling(uint64_t a, uint64_t b)
{
	return a / b + (a % b != 0);
}

static enum pack_cuda_work work_of(const struct pack *pack)
{
	if (pack->transform.part == TRANSFORM_TRANSPOSED)
		return PACK_CUDA_TRANSPOSE;
	if (pack->transform.part == TRANSFORM_PADDED)
		return PACK_CUDA_PAD;
	if (pack->transform.to_rows)
		return pack->transform.part == TRANSFORM_SCALES ? PACK_CUDA_SCALES
								: PACK_CUDA_VALUES;
	return transform_plain(&pack->transform) && pack->from == pack->to ? PACK_CUDA_COPY
									   : PACK_CUDA_CONVERT;
}

void pack_cuda_part_init(struct pack_cuda_part *part, const struct pack *pack, uint32_t tensor,
			 uint32_t scales, uint64_t from, uint64_t bytes, uint64_t target)
{
	enum pack_cuda_work work = work_of(pack);
	bool in_runs =
		(work == PACK_CUDA_CONVERT || work == PACK_CUDA_PAD) && !pack->transform.from_rows;

	*part = (struct pack_cuda_part){
		.work = work,
		.from_dtype = pack->from,
		.to_dtype = pack->to,
		.from_bytes = work == PACK_CUDA_COPY ? 1 : dtype_bytes(pack->from),
		.to_bytes = work == PACK_CUDA_COPY ? 1 : dtype_bytes(pack->to),
		.tensor = tensor,
		.scales = pack->transform.from_rows ? scales : PACK_CUDA_NO_TENSOR,
		.target = target,
		.from = from,
		.bytes = bytes,
		.offset = pack->runs.offset,
		.run_rows = pack->runs.rows,
		.row_bytes = pack->runs.row_bytes,
		.run_stride_bytes = pack->runs.stride_bytes,
		.rows = pack->rows,
		.columns = pack->columns,
		.stride_bytes = in_runs ? pack->runs.stride_bytes : pack->stride_bytes,
		.grain_bytes = pack->grain_bytes,
		.scale_offset = pack->scale_runs.offset,
		.scale_stride_bytes = pack->scale_stride_bytes,
		.row_skip = pack->row_skip,
		.column_skip = pack->column_skip,
		.from_rows = pack->transform.from_rows,
		.from_columns = pack->transform.from_columns,
		.to_rows = pack->transform.to_rows,
		.to_columns = pack->transform.to_columns,
	};
}

void pack_cuda_part_merge(struct pack_cuda_part *values, const struct pack_cuda_part *scales)
{
	values->scales_target = scales->target;
	values->scales_runs = scales->target_runs;
}

void pack_cuda_copy_init(struct pack_cuda_part *part, uint64_t from, uint64_t bytes,
			 uint64_t target)
{
	*part = (struct pack_cuda_part){
		.work = PACK_CUDA_COPY,
		.from_bytes = 1,
		.to_bytes = 1,
		.tensor = PACK_CUDA_NO_TENSOR,
		.scales = PACK_CUDA_NO_TENSOR,
		.target = target,
		.bytes = bytes,
		.offset = from,
		.run_rows = 1,
	};
}

void pack_cuda_part_spread(struct pack_cuda_part *part, const struct spread *spread, uint64_t from)
{
	part->target += from / spread->run_bytes * spread->stride_bytes;
	part->target_runs = (struct pack_cuda_runs){spread->run_bytes, spread->stride_bytes,
						    from % spread->run_bytes};
}

void pack_cuda_sum_init(struct pack_cuda_part *part, uint64_t memory, uint64_t bytes, uint32_t sum)
{
	*part = (struct pack_cuda_part){
		.work = PACK_CUDA_SUM,
		.tensor = PACK_CUDA_NO_TENSOR,
		.scales = PACK_CUDA_NO_TENSOR,
		.sum = sum,
		.target = memory,
		.bytes = bytes,
	};
}

/* ---- tiles ---- */

/* Of TURN rows and columns: the columns of the box that the part touches, all of their rows. */
static uint64_t transposed_tiles(const struct pack_cuda_part *part)
{
	uint64_t first = part->from / part->to_bytes, last = first + part->bytes / part->to_bytes;
	uint64_t low = first / part->rows / TURN * TURN, high = ceiling(last, part->rows);

	return ceiling(part->rows, TURN) * ceiling(high - low, TURN);
}

static uint64_t tiles_of(const struct pack_cuda_part *part)
{
	uint64_t across;

	if (part->work == PACK_CUDA_SUM)
		return 1;
	if (!part->bytes)
		return 0;
	switch ((enum pack_cuda_work)part->work) {
	case PACK_CUDA_TRANSPOSE:
		return transposed_tiles(part);
	case PACK_CUDA_VALUES:
	case PACK_CUDA_SCALES:
		across = ceiling(part->columns, part->to_columns);
		return ceiling(part->bytes, part->grain_bytes) * across;
	default:
		return ceiling(part->bytes, TILE_BYTES / part->to_bytes * part->to_bytes);
	}
}

void pack_cuda_table_finish(struct pack_cuda_part *parts, size_t count)
{
	uint64_t tiles = 0;

	for (size_t i = 0; i < count; i++) {
		parts[i].first_tile = tiles;
		parts[i].tiles = tiles_of(&parts[i]);
		tiles += parts[i].tiles;
	}
}

struct pack_cuda_launch pack_cuda_launch_of(const struct pack_cuda_part *parts, uint32_t first,
					    uint32_t count, uint64_t at, uint64_t bases,
					    uint64_t sums)
{
	struct pack_cuda_launch launch = {
		.parts = at, .bases = bases, .sums = sums, .first = first, .count = count};

	if (!count)
		return launch;
	launch.first_tile = parts[first].first_tile;
	launch.tiles = parts[first + count - 1].first_tile + parts[first + count - 1].tiles -
		       launch.first_tile;
	return launch;
}

uint32_t pack_cuda_blocks(const struct pack_cuda_launch *launch, int processors)
{
	uint64_t most = (uint64_t)(processors > 0 ? processors : 1) * BLOCKS_EACH;

	return (uint32_t)(launch->tiles < most ? launch->tiles : most);
}

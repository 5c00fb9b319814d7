/* SPDX-License-Identifier: Apache-2.0
 *
 * part.h -- what a device reads of a launch: plain numbers, the same to C and to CUDA C++. launch.h makes them.
 */
#ifndef PACK_CUDA_PART_H
#define PACK_CUDA_PART_H

#include <stdint.h>

#define PACK_CUDA_THREADS   256u
#define PACK_CUDA_NO_TENSOR UINT32_MAX

enum pack_cuda_work {
	PACK_CUDA_COPY,      /* rows gathered as they are */
	PACK_CUDA_CONVERT,   /* each element alone: other dtypes, fp8 with its scales */
	PACK_CUDA_TRANSPOSE, /* and converted */
	PACK_CUDA_PAD,
	PACK_CUDA_VALUES,    /* to fp8 in blocks; with `scales_target` those too, in the same pass */
	PACK_CUDA_SCALES,    /* the scales alone */
	PACK_CUDA_SUM,       /* checksum64() of the bytes that lie at `target`, into sums[sum] */
	PACK_CUDA_WORKS
};

/* How a part lies at its address: in one run (0), or in runs of run_bytes, stride_bytes from one to the next (struct
 * spread), the address that of the run it begins in and `skip` what of that run comes before it. */
struct pack_cuda_runs {
	uint64_t run_bytes, stride_bytes, skip;
};

/* One part of one piece (or, with PACK_CUDA_SUM, one block of a sum), for one target. Plain numbers: the device reads
 * it as it is. */
struct pack_cuda_part {
	uint32_t work;               /* enum pack_cuda_work */
	uint32_t from_dtype, to_dtype; /* enum dtype */
	uint32_t from_bytes, to_bytes; /* of an element; PACK_CUDA_COPY: both 1 */
	uint32_t tensor, scales;     /* of bases[]; PACK_CUDA_NO_TENSOR: `offset` is an address; without scales */
	uint32_t sum;                /* PACK_CUDA_SUM: its place in sums[] */
	uint64_t target;             /* device address of the part's first byte, or of its first run */
	uint64_t scales_target;      /* 0, or where the scales of VALUES go (F32, of any alignment by 4) */
	struct pack_cuda_runs target_runs, scales_runs;
	uint64_t from, bytes;        /* of the piece: as pack_part has them */
	uint64_t first_tile, tiles;  /* of the whole table */
	/* as struct pack has them */
	uint64_t offset, run_rows, row_bytes, run_stride_bytes;
	uint64_t rows, columns, stride_bytes, grain_bytes;
	uint64_t scale_offset, scale_stride_bytes, row_skip, column_skip;
	uint32_t from_rows, from_columns, to_rows, to_columns;
};

/* Parts [first, first + count) of a table of which the device has a copy at `parts`. */
struct pack_cuda_launch {
	uint64_t parts, bases, sums; /* device addresses; sums may be 0 when no part is a sum */
	uint32_t first, count;
	uint64_t first_tile, tiles;  /* of them */
};

#endif

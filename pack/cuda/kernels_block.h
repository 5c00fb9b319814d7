/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels_block.h -- what a block of threads shares, and the words in which kernels are written. One source for devices
 * and, as loops, for the host:
 *
 *   phase      EACH_THREAD(t) { .. }      device: thread t, once; host: t from 0 to 255, one after the other
 *   BARRIER    between phases             device: __syncthreads(); host: the loop has ended
 *   READ/WRITE an address of the device   device: itself; host: where a mock has it, after a look at its bounds
 *   OF_THREADS what each thread keeps over barriers, in registers; MINE(name, t) is thread t's
 *   TILE_KERNEL a tile's work with registers of its own: what one kind of work needs, another does not pay for
 *
 * What else outlives a phase lies in struct block. Numbers are element.h's, whose rules forbid contracted, flushed and
 * approximate arithmetic: kernels.cu says with which flags it is compiled.
 */
#ifndef PACK_CUDA_KERNELS_BLOCK_H
#define PACK_CUDA_KERNELS_BLOCK_H

#include "job/dtype.h"
#include "pack/cuda/part.h"
#include "pack/element.h"
#include <stdbool.h>

#define TILE_BYTES 65536u /* of output */

#ifdef __CUDACC__
#define KERNEL	       static __device__ __forceinline__
#define TILE_KERNEL    static __device__ __noinline__
#define CONSTANT       static __constant__ const
#define EACH_THREAD(t) for (uint32_t t = threadIdx.x, once = 1; once; once = 0)
#define BARRIER()      __syncthreads()
#define UNROLL	       _Pragma("unroll")
#define OF_THREADS(type, name, count) type name[count]
#define MINE(name, t)		     (name)
#define READ(block, address, bytes)  ((const unsigned char *)(address))
#define WRITE(block, address, bytes) ((unsigned char *)(address))
#else
#define KERNEL	       static inline
#define TILE_KERNEL KERNEL
#define CONSTANT       static const
#define EACH_THREAD(t) for (uint32_t t = 0; t < PACK_CUDA_THREADS; t++)
#define BARRIER()      (void)0
#define UNROLL
#define OF_THREADS(type, name, count) type name[PACK_CUDA_THREADS][count]
#define MINE(name, t)		     (name)[t]
#define READ(block, address, bytes)  ((const unsigned char *)(block)->reach((block)->context, address, bytes, false))
#define WRITE(block, address, bytes) ((unsigned char *)(block)->reach((block)->context, address, bytes, true))
#endif

#ifdef __CUDACC__
#define MOVE(type, to, from) *(type *)(to) = *(const type *)(from)
struct __align__(16) aligned_16 {
	uint64_t low, high;
};
#else
#define MOVE(type, to, from) memcpy(to, from, sizeof(type))
typedef struct {
	uint64_t low, high;
} aligned_16;
#endif

#define SUM_SEGMENTS 32u /* of 1 KiB, that a block of threads adds up at once */
#define TURN	     32u /* rows and columns of a tile that is transposed */

/* What the threads of a block share. */
struct block {
	struct pack_cuda_part part;
	uint32_t found;                    /* the part that the tile is of, while it is looked for */
	uint64_t tile;                     /* of the part */
	uint64_t data, scales;             /* of the part's box: its first byte, its first scale */
	union {
		uint32_t peaks[PACK_CUDA_THREADS];
		struct {
			uint64_t products[SUM_SEGMENTS][8], raw[SUM_SEGMENTS][8], lanes[8];
		} sum;
		uint64_t turned[TURN][TURN + 1];
	} shared;
#ifndef __CUDACC__
	void *(*reach)(void *context, uint64_t address, uint64_t bytes, bool write);
	void *context;
#endif
};

/* Where byte `at` of what lies so lies. */
KERNEL uint64_t runs_at(const struct pack_cuda_runs *runs, uint64_t first, uint64_t at)
{
	if (!runs->run_bytes)
		return first + at;
	at += runs->skip;
	return first + at / runs->run_bytes * runs->stride_bytes + at % runs->run_bytes;
}

KERNEL uint64_t target_at(const struct block *block, uint64_t at)
{
	return runs_at(&block->part.target_runs, block->part.target, at);
}

ELEMENT_FUNCTION uint64_t kernel_least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

#endif

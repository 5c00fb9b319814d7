/* SPDX-License-Identifier: Apache-2.0
 *
 * launch.h -- pieces packed by a device: what pack.h does on the processor, with the same bits, for any number of
 * pieces in one launch.
 *
 *   table     part 0 | part 1 | part 2 | ..      in device memory, written once an epoch
 *   tiles     0  1  2 | 3 | 4  5  6  7           a part is cut into tiles of about as much work each;
 *                 ▲                              a block of threads takes every n-th tile of the launch
 *   bases     where tensor t's first held byte lies in this update; a part names t
 *
 * kernels.h is the source of the kernels. It is compiled for devices (kernels.cu) and, for tests, for the host
 * (tests/cuda_mock/kernel_host.c), where a block's threads are loops.
 *
 * Memory: everything that a launch names must be reachable by the device, and stay until the launch is complete.
 * Parts of one launch do not overlap in their targets; a sum's part comes in a launch behind the one that packs what
 * it reads.
 */
#ifndef PACK_CUDA_LAUNCH_H
#define PACK_CUDA_LAUNCH_H

#include "job/layout.h"
#include "pack/cuda/part.h"
#include "pack/pack.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The part of `pack` that writes [from, from + bytes) of the piece to `target`; from and bytes as pack_part says. */
void pack_cuda_part_init(struct pack_cuda_part *part, const struct pack *pack, uint32_t tensor, uint32_t scales,
			 uint64_t from, uint64_t bytes, uint64_t target);
/* `bytes` at device address `from`, as they are, to `target`. */
void pack_cuda_copy_init(struct pack_cuda_part *part, uint64_t from, uint64_t bytes, uint64_t target);
/* Of a part whose target was given as that of its piece's first byte: it begins at byte `from` of the piece, which is spread
 * so. Parts may begin and end inside of a run, and not inside of an element. */
void pack_cuda_part_spread(struct pack_cuda_part *part, const struct spread *spread, uint64_t from);
/* VALUES of a box, and SCALES of the very same box and rows: the first one makes both in one pass. */
void pack_cuda_part_merge(struct pack_cuda_part *values, const struct pack_cuda_part *scales);
/* checksum64() of `bytes` at device address `memory` into sums[sum]: one block of pack_sum(). */
void pack_cuda_sum_init(struct pack_cuda_part *part, uint64_t memory, uint64_t bytes, uint32_t sum);
/* Numbers the tiles of a table, in its order. */
void pack_cuda_table_finish(struct pack_cuda_part *parts, size_t count);
/* Parts [first, first + count) of a finished table, copied to device address `at`. */
struct pack_cuda_launch pack_cuda_launch_of(const struct pack_cuda_part *parts, uint32_t first, uint32_t count,
					    uint64_t at, uint64_t bases, uint64_t sums);
/* Blocks of threads for a device of so many multiprocessors; 0 when there is nothing to do. */
uint32_t pack_cuda_blocks(const struct pack_cuda_launch *launch, int processors);

/* The kernel of kernels.cu: one that takes any table. */
#define PACK_CUDA_KERNEL_NAME "pack_cuda_table"

/* tests/cuda_mock/kernel_host.c: the same source on the processor. `reach` finds where `bytes` at a device address lie,
 * and is asked for all that a launch touches: table, bases, every source row and target; NULL: they lie where they
 * say. It does not return where they may not be touched. */
typedef void *pack_cuda_reach(void *context, uint64_t address, uint64_t bytes, bool write);
void pack_cuda_host_run(const struct pack_cuda_launch *launch, uint32_t blocks, pack_cuda_reach *reach, void *context);

#endif

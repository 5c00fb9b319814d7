/* SPDX-License-Identifier: Apache-2.0
 *
 * batch.h -- a trainer's pieces, packed by its GPU straight into their targets: those that are complete go in one launch
 * a group, however many they are.
 *
 *   table     | group 0: a0 a1 b0 c0 .. | group 1: a0 b1 .. |       by tensor; a group is one peer, and copy of it
 *   write(b)               ^^                       ^^             one launch a group
 *   write(all)  ^^^^^^^^^^^^^^^^^^^^^      ^^^^^^^^^^^^^^
 *
 * Checksums are of the tensors, not of what was stored at the targets: every block is packed once more, into scratch
 * memory, and summed there.
 *
 *   scratch   | block | block | block |  full: summed, and begun again
 *
 * Threads: one at a time.
 */
#ifndef WORKER_DEVICE_BATCH_H
#define WORKER_DEVICE_BATCH_H

#include "job/layout.h"
#include "worker/device/table.h"

struct batch;

/* A piece for one target, by group and tensor. */
struct batch_piece {
	const struct pack *pack;
	uint32_t group, tensor, scales; /* scales: PACK_CUDA_NO_TENSOR without */
	bool follows;                   /* scales, made in the pass over the values right before it */
	uint64_t target;                /* device address, */
	struct spread spread;           /* and how the piece lies there */
};

/* A piece that is summed, by tensor: blocks of pack->block_bytes, numbered from first_block on. */
struct batch_summed {
	const struct pack *pack;
	uint32_t tensor, scales, first_block;
};

struct batch_options {
	const struct device *device;
	const struct batch_piece *pieces;
	size_t piece_count;
	uint32_t groups;
	size_t tensors;
	const struct batch_summed *summed;
	size_t summed_count;            /* 0: no sums */
	uint64_t blocks;
};

/* Packs are not looked at afterwards. Whatever it returns, batch_close. */
int batch_open(struct batch **batch, const struct batch_options *options, struct error *error);
/* Waits for what is queued. NULL inside is fine. */
void batch_close(struct batch **batch);

/* A version begins: no tensor is here. Nothing is queued any more. */
void batch_begin(struct batch *batch);
/* Tensor t of these lies at data[t]: queues what that completes, of these groups. */
int batch_write(struct batch *batch, const void *const *data, const uint32_t *ids, size_t count,
		const uint32_t *groups, size_t group_count, struct error *error);
/* Sums of all blocks, of a version that was written whole. */
int batch_sums(struct batch *batch, uint64_t *sums, struct error *error);
uint64_t batch_launches(const struct batch *batch);

#endif

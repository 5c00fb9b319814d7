/* SPDX-License-Identifier: Apache-2.0
 *
 * sums.h -- checksums of pieces that lie in memory of a GPU, in one run or in many, as pack_piece_sum() has them of
 * their bytes side by side: all of them in one launch.
 *
 * Threads: one at a time.
 */
#ifndef WORKER_DEVICE_SUMS_H
#define WORKER_DEVICE_SUMS_H

#include "base/pool.h"
#include "job/layout.h"
#include "worker/device/table.h"

struct sums_piece {
	const void *memory;
	uint64_t bytes, block_bytes;
	struct spread spread;
};

struct sums {
	const struct device *device;
	struct pool pool;
	struct device_table table;
	uint64_t at;               /* of the blocks' sums, on the device */
	uint64_t *blocks;          /* and here */
	uint32_t *first;           /* block of a piece; one more than pieces */
	size_t count;
};

/* Whatever it returns, sums_close. */
int sums_open(struct sums *sums, const struct device *device, const struct sums_piece *pieces, size_t count,
	      struct error *error);
void sums_close(struct sums *sums);
/* Of pieces [first, first + count): sum_of is right until the next call. */
int sums_run(struct sums *sums, size_t first, size_t count, struct error *error);
uint64_t sums_of(const struct sums *sums, size_t piece);

#endif

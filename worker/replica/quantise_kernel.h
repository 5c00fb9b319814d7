/* SPDX-License-Identifier: Apache-2.0
 *
 * quantise_kernel.h -- the two passes that quantise.c makes over a strip: some blocks of one band
 * side by side, few enough that the second pass finds them in the cache.
 */
#ifndef WORKER_REPLICA_QUANTISE_KERNEL_H
#define WORKER_REPLICA_QUANTISE_KERNEL_H

#include "common/dtype.h"
#include <stdbool.h>
#include <stdint.h>

#define QUANTISE_STRIP_BLOCKS 16u

struct quantise_strip {
	const unsigned char *source;
	uint64_t rows, columns, stride_bytes; /* columns of at most QUANTISE_STRIP_BLOCKS blocks */
	uint64_t block_columns;               /* the last block may be short */
	unsigned char *values;                /* its rows values_stride bytes apart */
	uint64_t values_stride;
	float inverse[QUANTISE_STRIP_BLOCKS]; /* 1 / scale */
};

/* For each block its largest magnitude as bits of the source's dtype, infinities and NaN too. */
typedef void (*quantise_peaks)(uint32_t peaks[QUANTISE_STRIP_BLOCKS],
			       const struct quantise_strip *strip);
/* The values. Those of a block with an infinity or NaN may be wrong: quantise.c makes them again. */
typedef void (*quantise_values)(const struct quantise_strip *strip);

struct quantise_kernel {
	const char *name;
	bool (*here)(void);
	struct {
		quantise_peaks peaks;
		quantise_values values;
	} f32, bf16, f16;
};

extern const struct quantise_kernel quantise_avx512, quantise_avx2;

#endif

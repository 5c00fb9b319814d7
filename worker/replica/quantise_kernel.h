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
	/* Hints, which a kernel may pass over. `stream`: the values are not read back, and lie in
	 * whole aligned lines; stored through the cache each of them would be read from memory
	 * first. `ahead`: the strip that comes next, its rows as far apart, or NULL: asking for
	 * its lines while values are computed lets the memory work meanwhile. */
	bool stream;
	const unsigned char *ahead;
};

/* For each block its largest magnitude as bits of the source's dtype, infinities and NaN too. */
typedef void (*quantise_peaks)(uint32_t peaks[QUANTISE_STRIP_BLOCKS],
			       const struct quantise_strip *strip);
/* The same, and copies the rows to `near`, dense. NULL: the kernel has only the two apart. */
typedef void (*quantise_gather)(uint32_t peaks[QUANTISE_STRIP_BLOCKS],
				const struct quantise_strip *strip, unsigned char *near);
/* The values. Those of a block with an infinity or NaN may be wrong: quantise.c makes them again. */
typedef void (*quantise_values)(const struct quantise_strip *strip);

struct quantise_kernel {
	const char *name;
	bool (*here)(void);
	struct {
		quantise_peaks peaks;
		quantise_values values;
		quantise_gather gather;
	} f32, bf16, f16;
};

extern const struct quantise_kernel quantise_vbmi, quantise_avx512, quantise_avx2;

#endif

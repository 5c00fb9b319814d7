/* SPDX-License-Identifier: Apache-2.0
 *
 * quantise_kernel.h -- the two passes that quantise.c makes over a strip: some blocks of one band
 * side by side, few enough that the second pass finds them in the cache.
 */
#ifndef PACK_QUANTISE_KERNEL_H
#define PACK_QUANTISE_KERNEL_H

#include "job/dtype.h"
#include "pack/element.h"
#include <stdbool.h>
#include <stdint.h>

/* A number, any alignment, as the bits of an F32. */
typedef uint32_t (*quantise_load)(const unsigned char *bytes);

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
/* The values. Those of infinities and NaN may be wrong: quantise.c quantises them again. */
typedef void (*quantise_values)(const struct quantise_strip *strip);

/* F8_E4M3 looked up (requantise.h): cells side by side, each with its table of 128 codes. */
#define REQUANTISE_CELLS 64u
struct requantise_strip {
	const unsigned char *source;
	uint64_t rows, stride_bytes;
	unsigned char *values;
	uint64_t values_stride;
	uint64_t cells, ends[REQUANTISE_CELLS]; /* the column after each */
	bool stream;                            /* and ahead, as above */
	const unsigned char *ahead;
	unsigned char tables[REQUANTISE_CELLS][128];
};
/* For each cell its largest code without the sign that is no NaN, or 0. */
typedef void (*requantise_peaks)(unsigned char *peaks, const struct requantise_strip *strip);
/* Table entries, with the sign of the source's code. */
typedef void (*requantise_values)(const struct requantise_strip *strip);

struct quantise_kernel {
	struct quantise_passes {
		quantise_peaks peaks;
		quantise_values values;
		quantise_gather gather;
	} f32, bf16, f16;
	struct {
		requantise_peaks peaks;
		requantise_values values;
	} f8; /* NULL: the portable ones' */
};

/* The one in use. */
const struct quantise_kernel *quantise_chosen(void);
/* Of a finite magnitude's bits. */
float quantise_scale_of(uint32_t peak);

extern const struct quantise_kernel quantise_vbmi, quantise_avx512, quantise_avx2,
	quantise_portable;

#endif

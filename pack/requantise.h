/* SPDX-License-Identifier: Apache-2.0
 *
 * requantise.h -- F8_E4M3 in blocks to F8_E4M3 in other blocks, by tables. Where a block of `from`
 * and one of `to` overlap there is one scale to multiply by and one to divide by, so that a value
 * depends on nothing but its code: 127 magnitudes, and the sign.
 *
 *   from   |    s0    |    s1    |
 *   to     |   t0  |   t1  |  t2 |
 *   cells  |s0/t0  |. |. . |s1/t2|    a table of 128 bytes each
 */
#ifndef PACK_REQUANTISE_H
#define PACK_REQUANTISE_H

#include <stdbool.h>
#include <stdint.h>

/* One row of blocks of `to`: what quantise.h calls a band. */
struct requantise {
	const unsigned char *source; /* rows stride_bytes apart */
	uint64_t rows, columns, stride_bytes;
	const unsigned char *scales; /* of the first value's block; F32 of any alignment */
	uint64_t scale_stride_bytes;
	uint64_t from_rows, from_columns; /* of a block of `from` */
	uint64_t row_skip, column_skip;   /* of the first value inside of its block */
	uint64_t width;			  /* columns of a block of `to` */
	unsigned char *values;		  /* rows * columns, dense; NULL for the scales alone */
	float *transformed_scales;        /* ceil(columns / width) */
	const unsigned char *next;	  /* as quantise_band_on() has them */
	bool stream;
};

/* False, and nothing was done, where tables are no good: blocks of few values, scales that are
 * negative, not finite, or so large that a product might not be. [any thread] */
bool requantise_band(const struct requantise *band);

#endif

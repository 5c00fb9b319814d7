/* SPDX-License-Identifier: Apache-2.0
 *
 * decode.h -- F8_E4M3 with scales to floats by tables: within a block an element depends on
 * nothing but its code. Each byte of what a magnitude becomes has a plane of its own, so that one
 * look-up (VPERMI2B) finds it for 64 codes; a code's sign is that of the element, turned around if
 * the scale is negative.
 */
#ifndef PACK_DECODE_H
#define PACK_DECODE_H

#include "job/dtype.h"
#include <stdbool.h>
#include <stdint.h>

struct decode_table {
	_Alignas(64) unsigned char planes[4][128]; /* lowest byte first; [byte][magnitude] */
};

/* As element.h says for the dtype that decode_find() was asked for: F32, BF16 or F16. */
void decode_table_make(struct decode_table *table, enum dtype to, float scale);

/* `count` elements whose tables lie beside each other, one for `width` elements: element i has
 * table (skip + i) / width, skip < width. `ahead`: as much memory as the source, to be asked for
 * meanwhile, or NULL. `stream`: past the caches; then target, and what the
 * elements before each border of two tables become, are whole lines of 64 bytes. [any thread] */
typedef void (*decode_row)(void *target, const void *source, uint64_t count,
			   const struct decode_table *tables, uint64_t skip, uint64_t width,
			   const void *ahead, bool stream);
/* NULL for other dtypes, and where this processor has no such look-up. */
decode_row decode_find(enum dtype to);

#endif

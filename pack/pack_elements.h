/* SPDX-License-Identifier: Apache-2.0
 *
 * pack_elements.h -- the elements of a box, each transformed alone: conversions, and fp8 with
 * scales.
 */
#ifndef PACK_PACK_ELEMENTS_H
#define PACK_PACK_ELEMENTS_H

#include "pack/convert.h"
#include "pack/pack_steps.h"

/* Element rows of the source, and how one is converted. */
struct elements {
	const struct pack *pack;
	const unsigned char *data, *scales; /* of the box: its first byte, its first scale */
	convert_row convert;		    /* of one without scales */
	convert_scaled scaled;		    /* of one with them */
	uint64_t from_bytes, to_bytes;
};

struct elements elements_of(const struct pack *pack, const struct pack_part *part, enum dtype to,
			    const char *kernel);
/* `count` values of row `row` of the box as a matrix, each times its block's scale. */
void elements_dequantise(unsigned char *out, const struct elements *elements, uint64_t row,
			 uint64_t column, uint64_t count);
/* The part, with its sum. `kernel` as convert_find() takes it. */
void pack_elements(const struct pack *pack, const struct pack_part *part, const char *kernel);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * pack_steps.h -- what pack_run.c, pack_copy.c (copies), pack_elements.c (elements alone) and
 * pack_transformed.c (blocks) share.
 */
#ifndef PACK_PACK_STEPS_H
#define PACK_PACK_STEPS_H

#include "job/digest.h"
#include "pack/convert.h"
#include "pack/pack.h"

/* A chunk and what it is made from stay in the first two caches. */
#define PACK_CHUNK_BYTES 32768u

static inline uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* One chunk of the part, `done` bytes after its start: added to the sum, and to all targets from
 * number `first` on. */
void pack_emit(const struct pack_part *part, struct digest_stream *sum, size_t first, uint64_t done,
	       const unsigned char *chunk, uint64_t bytes);
/* What is transformed in blocks; sums into `sum`, which may be NULL, not into part->sum. `kernel`
 * as convert_find() takes it. */
void pack_transformed(const struct pack *pack, const struct pack_part *part,
		      struct digest_stream *sum, const char *kernel);

/* ---- pack_elements.c: the elements of a box, each transformed alone: conversions, and fp8 with
 * scales ---- */

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

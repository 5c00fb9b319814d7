/* SPDX-License-Identifier: Apache-2.0
 *
 * pack.h -- from a source box to the bytes of its piece, whole or any part of them, in one pass:
 * gathered from their rows, converted or quantised (job/transform.h), summed, and stored to every
 * target that wants them.
 *
 *   source rows    |..aaaa..|..bbbb..|..cccc..|      3 rows of 4, stride 8, offset 2
 *   piece          aaaabbbbcccc                      each chunk is packed once, in the cache
 *                      └─► sum └─► target 0, 1, ..   and streamed out past it
 *
 * Kernels are chosen at run time (AVX-512, AVX2, portable); all give the same bits.
 *
 * Checksums: a piece is summed in blocks of block_bytes, which both ends derive from the piece
 * alone, so that blocks can be packed in any order by any thread:
 *
 *   sum(piece) = xxh3(bytes) of a piece of one block, else xxh3(sums of its blocks, little-endian)
 */
#ifndef PACK_PACK_H
#define PACK_PACK_H

#include "job/box.h"
#include "base/error.h"
#include "job/transform.h"
#include <stddef.h>

#define PACK_BLOCK_BYTES    (4ull << 20)
#define PACK_ROW_BLOCKS_MAX 16384u /* blocks of `to` side by side: their scales are kept */

struct pack {
	struct transform transform;
	enum dtype from, to;
	struct runs runs;            /* of the box in the memory it lies in, in source bytes */
	uint64_t rows, columns;      /* of the box as a matrix: dimension 0, all others together; of
					what is padded: the rows that are */
	uint64_t stride_bytes;       /* from row to row */
	struct runs scale_runs;      /* with transform.from_rows: the same of its scales' box */
	uint64_t scale_stride_bytes; /* from row to row of the scales */
	uint64_t row_skip, column_skip; /* of the box's first value inside of its block of `from` */
	uint64_t bytes;              /* of the piece */
	uint64_t grain_bytes;        /* a part starts at a multiple, and ends at one or at the end:
					1 for copies, one element, or, where the parameter is in
					blocks, the rows (of scales: the row) of one block */
	uint64_t block_bytes;        /* of one sum: a multiple of grain_bytes */
};

/* A box of a tensor that lies in memory so. */
struct pack_held {
	struct box box;
	struct placement place;
};

/* `src` is a box of a tensor of `shape` of which rows [held_lo, held_hi) lie in memory, row-major, or, where `held` is given, that
 * box as it is placed; with transform.from_rows, rows [scales_lo, scales_hi), or scales_held, of the tensor of its scales. What
 * is stored transposed (columns beside each other in memory, rows apart) is copied, converted or transposed, and nothing else.
 * ERROR_UNSUPPORTED for a box with more than one stride or what transform_possible refuses, ERROR_BOUNDS for rows
 * that are not held, ERROR_CONFIG for blocks that do not fit, ERROR_LIMIT for too many in a row. */
struct pack_source {
	enum dtype from, to;
	uint32_t dims;
	uint64_t shape[BOX_DIMS_MAX];
	struct box src;
	uint64_t held_lo, held_hi, scales_lo, scales_hi;
	const struct pack_held *held, *scales_held; /* NULL: whole rows, as the numbers say */
	struct transform transform;
};
int pack_init(struct pack *pack, const struct pack_source *source, struct error *error);
/* block_bytes of such a piece, for the end that has only the piece: PACK_BLOCK_BYTES as far as the
 * grain allows, one grain at least; no more than the piece, rounded up to its grain. */
uint64_t pack_block_bytes(const struct transform *transform, enum dtype from, enum dtype to,
			  const struct box *src, uint64_t bytes);

/* What a part is made of, and where it goes. */
struct pack_part {
	const void *data, *scales;   /* first held byte of the tensor, of its scales' (or NULL) */
	uint64_t from, bytes;        /* of the piece */
	void *const *targets;        /* each gets these bytes; none is fine (only the sum) */
	size_t target_count;
	uint64_t *sum;               /* NULL, or gets checksum64() of these bytes */
	float *transformed_scales;   /* NULL, or with TRANSFORM_VALUES of a block: the scales of the
					part's blocks, as TRANSFORM_SCALES of the same box has them
					from block row (from / grain_bytes) on */
};
/* Visible to others after copy_fence(). Values transformed in blocks are read back from the first
 * target. Uses up to 512 KiB of stack and nothing else. [any thread; parts of one piece at once] */
void pack_run(const struct pack *pack, const struct pack_part *part);

/* The same for parts of several pieces at once. Pieces that lie beside each other are read together,
 * row by row, as their memory lies: a slice of a few hundred bytes a row alone is read at half the
 * speed, since no prefetcher foresees its next row.
 *
 *   row 0   |aaaa|bbbb|cccc|        column a aaaaaaaa
 *   row 1   |aaaa|bbbb|cccc|   ──►  column b bbbbbbbb      one pass, each its own targets and sum
 *                                   column c cccccccc
 */
#define PACK_COLUMNS_MAX 64u
struct pack_column {
	const struct pack *pack;
	struct pack_part part;
};
/* Whether the two are worth it: copies of equally many bytes of the same rows, which are short.
 * Their tensors must be the same, which is the caller's to know; then so is `data`. */
bool pack_can_copack(const struct pack *a, const struct pack *b);
/* A column group: of any two pack_can_copack is true, with equal `from` and `bytes`; at most
 * PACK_COLUMNS_MAX. */
void pack_run_columns(const struct pack_column *columns, size_t count);
/* The piece's sum from those of its blocks. */
uint64_t pack_sum(const uint64_t *block_sums, uint64_t blocks);
/* The same of a piece that lies packed in memory, by pack_block_bytes(). */
uint64_t pack_piece_sum(const void *memory, uint64_t bytes, uint64_t block_bytes);

/* "avx512", "avx2", "portable". */
const char *pack_kernel_name(void);
/* For tests and benchmarks: the kernels of that name from now on; false when this processor has
 * them not. Call it while nothing is packed. */
bool pack_kernel_use(const char *name);

#endif

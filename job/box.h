/* SPDX-License-Identifier: Apache-2.0
 *
 * box.h -- a half-open box of a tensor, and what its bytes look like in row-major memory.
 *
 *   shape [4, 6], box rows 1..3, cols 2..5          in memory: 2 runs of 3 elements,
 *       . . . . . .                                 the second 6 elements after the first
 *       . . # # # .
 *       . . # # # .
 *       . . . . . .
 */
#ifndef JOB_BOX_H
#define JOB_BOX_H

#include <stdbool.h>
#include <stdint.h>

#define BOX_DIMS_MAX 4

struct box {
	uint32_t dims; /* 1..BOX_DIMS_MAX; a scalar tensor is one dimension of 1 */
	uint64_t lo[BOX_DIMS_MAX], hi[BOX_DIMS_MAX];
};

/* A box as memory runs: `rows` runs of `row_bytes`, `stride_bytes` apart, the first at
 * `offset` bytes from the tensor's first element. Only the outermost dimension and one inner
 * dimension may be cut (that is all any engine does); rows is 1 for a contiguous box. */
struct runs {
	uint64_t offset, rows, row_bytes, stride_bytes;
};

struct box box_whole(uint32_t dims, const uint64_t *shape);
uint64_t box_elements(const struct box *box);
bool box_equal(const struct box *a, const struct box *b);
/* For sorting: by dimensions, then lo and hi of each. */
int box_compare(const struct box *a, const struct box *b);
bool box_in_shape(const struct box *box, uint32_t dims, const uint64_t *shape);
/* The part of *box whose dimension 0 lies in [lo, hi); false when empty. */
bool box_cut_rows(const struct box *box, uint64_t lo, uint64_t hi, struct box *out);
/* True when the box is one run of bytes of a row-major tensor of that shape. */
bool box_contiguous(const struct box *box, const uint64_t *shape);
/* Runs of the box in a row-major tensor; false when it needs more than one stride. */
bool box_runs(const struct box *box, const uint64_t *shape, uint32_t element_bytes,
	      struct runs *out);
/* dims >= 1, every size >= 1, product times element_bytes fits 2^62; else false. */
bool shape_bytes(uint32_t dims, const uint64_t *shape, uint32_t element_bytes,
		 uint64_t *bytes);
/* The part that both have; false when there is none. Of equal dims. */
bool box_intersect(const struct box *a, const struct box *b, struct box *out);
bool box_within(const struct box *inner, const struct box *outer);
/* Do they differ in rows alone? Of equal dims. */
bool box_same_columns(const struct box *a, const struct box *b);
/* Has the box, of a tensor of that shape, all of each of its rows? */
bool box_whole_rows(const struct box *box, const uint64_t *shape);

/* Where a box's elements lie in some memory: (i[0], i[1], ..) is its element
 * offset + (i[0] - lo[0]) * stride[0] + (i[1] - lo[1]) * stride[1] .. */
struct placement {
	uint64_t offset, stride[BOX_DIMS_MAX];
};
/* The box and nothing else, row-major. */
struct placement placement_dense(const struct box *box);
/* The last element of the box; false when it is beyond 2^62. */
bool placement_last(const struct placement *place, const struct box *box, uint64_t *last);
/* As box_runs, of `src`, a part of the box that is placed so. */
bool placement_runs(const struct placement *place, const struct box *box, const struct box *src,
		    uint32_t element_bytes, struct runs *out);

/* `elements` that follow each other in a row-major tensor, from its element `at` on: in memory from element `place` on, `stride`
 * elements from one to the next. */
typedef void placement_run(void *context, uint64_t at, uint64_t place, uint64_t elements, uint64_t stride);
/* All of a box of a tensor of that shape, in the tensor's order, in as few runs as there are. */
void placement_each(const struct placement *place, const struct box *box, const uint64_t *shape, placement_run *run,
		    void *context);

/* "[896, 448]" into out (always terminated). Returns out. */
char *shape_text(uint32_t dims, const uint64_t *shape, char *out, uint32_t out_bytes);
/* "[0..896, 0..448]" into out (always terminated). Returns out. */
char *box_text(const struct box *box, char *out, uint32_t out_bytes);

#endif

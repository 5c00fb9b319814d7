/* SPDX-License-Identifier: Apache-2.0
 *
 * transform.h -- the bytes that a piece must have, transformed once more from its tensors for who
 * compares them (the referee of weft_verify, `weft bench update`). As job/transform.h words it,
 * with the arithmetic of transform_element.h, sharing no code with what packs: a mistake there does
 * not hide itself here.
 */
#ifndef WORKER_REFEREE_TRANSFORM_H
#define WORKER_REFEREE_TRANSFORM_H

#include "job/layout.h"

#define REFEREE_ELEMENTS 65536u /* at a time */

/* Both are the caller's. read: bytes [offset, offset + bytes) of a tensor of the layout, into out.
 * take: bytes [offset, offset + bytes) of the piece's parameter must be these; other than 0 ends
 * referee_transform_piece, which returns it. */
struct referee_transform {
	void *context;
	int (*read)(void *context, const struct tensor_info *tensor, uint64_t offset,
		    uint64_t bytes, void *out, struct error *error);
	int (*take)(void *context, const struct piece *piece, uint64_t offset,
		    const unsigned char *expected, uint64_t bytes, struct error *error);
	struct referee_transform_work *work; /* referee_transform_open's */
};

/* a megabyte; for any piece */
int referee_transform_open(struct referee_transform *transform, struct error *error);
void referee_transform_close(struct referee_transform *transform);
int referee_transform_piece(const struct referee_transform *transform, const struct layout *layout,
			    const struct piece *piece, struct error *error);
/* All pieces, with referee_transform_open's memory for each of `threads` threads (the caller's is
 * one), which call `read` and `take` at once, for different pieces. What it returns, and the error,
 * are those of the first piece in the layout's order that fails, or that there is no memory. */
int referee_transform_layout(const struct referee_transform *transform, const struct layout *layout,
			     uint32_t threads, struct error *error);

#endif

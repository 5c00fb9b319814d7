/* SPDX-License-Identifier: Apache-2.0
 *
 * remake.h -- the bytes that a piece must have, made once more from its tensors for who compares
 * them (the referee of weft_verify, `weft bench update`). As job/make.h words it, with the
 * arithmetic of remake_element.h, sharing no code with what packs: a mistake there does not hide
 * itself here.
 */
#ifndef WORKER_REFEREE_REMAKE_H
#define WORKER_REFEREE_REMAKE_H

#include "job/layout.h"

#define REMAKE_ELEMENTS 65536u /* at a time */

/* Both are the caller's. read: bytes [offset, offset + bytes) of a tensor of the layout, into out.
 * take: bytes [offset, offset + bytes) of the piece's parameter must be these; other than 0 ends
 * remake_piece, which returns it. */
struct remake {
	void *context;
	int (*read)(void *context, const struct tensor_info *tensor, uint64_t offset,
		    uint64_t bytes, void *out, struct error *error);
	int (*take)(void *context, const struct piece *piece, uint64_t offset,
		    const unsigned char *expected, uint64_t bytes, struct error *error);
	struct remake_work *work; /* remake_open's */
};

int remake_open(struct remake *remake, struct error *error); /* a megabyte; for any piece */
void remake_close(struct remake *remake);
int remake_piece(const struct remake *remake, const struct layout *layout,
		 const struct piece *piece, struct error *error);
/* All pieces, with remake_open's memory for each of `threads` threads (the caller's is one), which
 * call `read` and `take` at once, for different pieces. What it returns, and the error, are those of
 * the first piece in the layout's order that fails, or that there is no memory. */
int remake_layout(const struct remake *remake, const struct layout *layout, uint32_t threads,
		  struct error *error);

#endif

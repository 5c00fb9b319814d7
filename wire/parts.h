/* SPDX-License-Identifier: Apache-2.0
 *
 * parts.h -- messages cut to small frames, so that a socket never has to take a large one: not from a
 * stranger, who may not send parts, and not for a member that does not read.
 *
 *   up to PART_BYTES    frame = message
 *   more                frame = [0xc1][number u32][total u32][offset u32] bytes       little-endian
 *                       frame = [0xc1][number u32][total u32][offset u32] bytes ...
 *
 * No message begins with 0xc1: it is the byte that msgpack never uses. The frames of one message come in
 * their order, those of others (of another number) only when it is whole or given up: where a number or
 * offset is not the next one, what was collected is dropped, and a message whose start is missing with it.
 * Who sent it sends it again, as after any other loss.
 */
#ifndef WIRE_PARTS_H
#define WIRE_PARTS_H

#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PART_HEAD_BYTES 13
#define PART_BYTES	16384 /* of a frame, its head included */
#define PART_WIRE_BYTES (PART_BYTES + 64) /* the most a socket takes: CURVE adds 33 */

/* A message on its way out; the bytes are borrowed. */
struct parts_out {
	const unsigned char *bytes;
	size_t length, at;
	uint32_t number;
};

/* The next frame into `frame`, its length; 0 when all are out. The same frame again until
 * parts_sent says that it went. */
size_t parts_next(const struct parts_out *out, unsigned char frame[PART_BYTES]);
void parts_sent(struct parts_out *out);

/* Bytes that all who collect share. */
struct parts_budget {
	size_t used, most;
};

/* A message on its way in; all zero: none. */
struct parts_in {
	unsigned char *bytes;
	size_t have, room, total;
	uint32_t number;
};

bool parts_is(const void *frame, size_t length);
/* A frame for which parts_is holds. 1: *in has the whole message until parts_drop. 0: it wants more, or
 * dropped what cannot be. ERROR_MESSAGE: no frame of ours, or a total above `most`; ERROR_LIMIT: the
 * budget is used up; ERROR_MEMORY. After an error *in is empty. */
int parts_take(struct parts_in *in, struct parts_budget *budget, const void *frame, size_t length,
	       size_t most, struct error *error);
void parts_drop(struct parts_in *in, struct parts_budget *budget);

#endif

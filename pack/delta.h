/* SPDX-License-Identifier: Apache-2.0
 *
 * delta.h -- what of a version differs from the one before, as its values: after one step of reinforcement learning few of a
 * parameter's values have changed, and these anywhere.
 *
 *   coded    | chunk | chunk | ..                     one after the other, of DELTA_CHUNK_BYTES of memory each, the last of less
 *   chunk    | kind, bytes | span |                   DELTA_SAME: of span bytes, as many as one likes, nothing differs
 *            | kind, bytes | span | bytes ..|         DELTA_WHOLE: they are
 *            | kind, bytes | span | groups | masks | values |      DELTA_VALUES
 *
 *   groups   a bit for each 64 values: some of them differ          1 1 0 1
 *   masks    for each such group a bit for each value               m0 m1 m3
 *   values   those that differ, as they are now, in their order
 *
 * 5 % of bf16 values that differ anywhere take an eighth of the memory, 0.1 % a hundredth. Values replace what is there, so that applying
 * it twice is as good as once. Little-endian, and nothing in it is aligned.
 */
#ifndef PACK_DELTA_H
#define PACK_DELTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DELTA_CHUNK_BYTES 8192u
#define DELTA_SAME_BYTES  8u
/* A chunk takes at most so many. */
#define DELTA_CODED_MAX	  (DELTA_CHUNK_BYTES + 8u)

/* Values of element_bytes (1, 2, 4) in bytes of memory, of DELTA_CHUNK_BYTES at most: a chunk into out, which has room for
 * DELTA_CODED_MAX. Answers the bytes of it. */
size_t delta_code(const void *was, const void *is, size_t bytes, unsigned element_bytes, void *out);
bool delta_is_same(const void *chunk);
/* A chunk that says DELTA_SAME of span bytes, DELTA_SAME_BYTES long. */
void delta_same(void *chunk, uint32_t span);

/* What comes from a peer, checked before anything is written: the bytes of memory that it is of, or 0, it is none. */
uint64_t delta_span(const void *coded, size_t coded_bytes, unsigned element_bytes);
/* Of its first chunk: the same, and how long that is. */
uint64_t delta_first(const void *coded, uint32_t *length);
/* Of what delta_span has checked: onto memory that holds the version before. */
void delta_apply(const void *coded, size_t coded_bytes, unsigned element_bytes, void *memory);

#endif

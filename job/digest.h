/* SPDX-License-Identifier: Apache-2.0
 *
 * digest.h -- 128-bit content digests (XXH3-128) and 64-bit piece checksums (XXH3-64).
 * They find accidents, not attackers.
 */
#ifndef JOB_DIGEST_H
#define JOB_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct digest {
	uint64_t high, low;
};

#define DIGEST_TEXT_BYTES 33 /* 32 lower-case hex digits and the terminator */

struct digest digest_bytes(const void *data, size_t bytes);
bool digest_equal(struct digest a, struct digest b);
char *digest_text(struct digest digest, char out[DIGEST_TEXT_BYTES]);
bool digest_parse(const char *text, struct digest *out); /* exactly 32 hex digits */

/* Incremental form; one stack object, no allocation. Integers go in little-endian. */
struct digest_stream {
	_Alignas(64) unsigned char state[576];
};
void digest_begin(struct digest_stream *stream);
void digest_add(struct digest_stream *stream, const void *data, size_t bytes);
void digest_add_u64(struct digest_stream *stream, uint64_t value);
void digest_add_string(struct digest_stream *stream, const char *text); /* length, bytes */
struct digest digest_end(struct digest_stream *stream);

/* XXH64 with seed 0: the hash that model/content.h is defined with, for short names. */
uint64_t hash64(const void *data, size_t bytes);
uint64_t checksum64(const void *data, size_t bytes);
/* checksum64 piecewise: begin, digest_add any number of times, end. */
void checksum_begin(struct digest_stream *stream);
uint64_t checksum_end(struct digest_stream *stream);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * reader.h -- a strict msgpack reader for bytes of strangers.
 * Source of the formats: the MessagePack specification (github.com/msgpack/msgpack, spec.md).
 *
 * Why not msgpack-c's unpacker: it builds a tree of objects of whatever the sender claims, an
 * array header of five bytes makes it reserve its whole array before one item was seen, and
 * its trees have no offsets to put into an error message. This reader never builds anything. The
 * caller says what must come next and how much of it is allowed; a value of another kind is an
 * error at its byte, so input cannot steer the depth, and a count is checked against the limit
 * AND against the bytes left before anybody allocates for it.
 *
 *   bytes  ┌────────────┬───────────────────────────────┐
 *          │ read       │ at                            │ length
 *          └────────────┴───────────────────────────────┘
 *
 * Errors are sticky: after the first one every read answers 0 / "" / NULL and the first
 * error message stays, so callers check once per record; loops over counts check every turn.
 */
#ifndef WIRE_READER_H
#define WIRE_READER_H

#include "base/error.h"
#include "wire/path.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct reader {
	const unsigned char *bytes; /* borrowed, like every view that a read hands out */
	size_t length, at;
	struct path path;
	struct error *error;
	int failed;                 /* 0, or the negative code of the first error */
};

void reader_open(struct reader *reader, const unsigned char *bytes, size_t length,
		 struct error *error);
bool reader_ok(const struct reader *reader);

uint64_t reader_uint(struct reader *reader, uint64_t max);
bool reader_bool(struct reader *reader);
/* A view of 0..max bytes of UTF-8 without NUL, not terminated. Returns its length. */
size_t reader_text(struct reader *reader, const char **text, size_t max);
/* A view of 0..max bytes. Returns its length. */
size_t reader_bytes(struct reader *reader, const unsigned char **bytes, size_t max);
/* Number of items; each takes at least item_bytes (>= 1) of what is left. */
size_t reader_array(struct reader *reader, uint64_t max, size_t item_bytes);
size_t reader_map(struct reader *reader); /* number of pairs */
/* Nothing may follow. */
void reader_end(struct reader *reader);

/* Sets "<message>, <path> at byte <at>: <format>" unless an error stands already. */
void reader_fail(struct reader *reader, size_t at, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Takes over an error that a callee left in *reader->error: the same prefix before its
 * error message, its code kept. */
void reader_wrap(struct reader *reader, size_t at, int status);
void reader_no_memory(struct reader *reader, size_t bytes);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * writer.h -- packs msgpack into one growing buffer, by msgpack-c's packer.
 *
 * msgpack-c chooses the shortest form of every number, length and count, which is what makes
 * equal messages equal bytes. Only its packing templates are used, over a callback into
 * base/memory.h; its own sbuffer would allocate behind the fault injection's back.
 *
 * Errors are sticky, as in reader.h: nothing is written after the first. What a peer's reader
 * would refuse is refused here first: ERROR_LIMIT for lengths and counts, ERROR_MESSAGE else.
 */
#ifndef WIRE_WRITER_H
#define WIRE_WRITER_H

#include "base/error.h"
#include "wire/path.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct writer {
	unsigned char *bytes; /* owned; the caller takes or frees it */
	size_t length, capacity;
	struct path path;
	struct error *error;
	int failed;
};

void writer_open(struct writer *writer, struct error *error);
bool writer_ok(const struct writer *writer);

void writer_uint(struct writer *writer, uint64_t value, uint64_t max);
void writer_bool(struct writer *writer, bool value);
void writer_text(struct writer *writer, const char *text, size_t max); /* NULL is "" */
/* Words for people: never refused, but cut at max, with '?' for what is not UTF-8, because a
 * failure whose error message is odd must still reach the other side. */
void writer_error_text(struct writer *writer, const char *text, size_t max);
void writer_bytes(struct writer *writer, const void *bytes, size_t length, size_t max);
void writer_array(struct writer *writer, size_t items, uint64_t max);
void writer_map(struct writer *writer, size_t pairs);

void writer_fail(struct writer *writer, enum error_code code, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#endif

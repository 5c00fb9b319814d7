/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/writer.h"

#include "base/memory.h"
#include "wire/limits.h"
#include "base/utf8.h"
#include <inttypes.h>
#include <msgpack/pack.h>
#include <stdarg.h>
#include <string.h>

#define FIRST_BYTES 256

void writer_open(struct writer *writer, struct error *error)
{
	*writer = (struct writer){.error = error};
}

bool writer_ok(const struct writer *writer)
{
	return writer->failed == 0;
}

void writer_fail(struct writer *writer, enum error_code code, const char *format, ...)
{
	char where[PATH_TEXT_BYTES];
	va_list args;

	if (writer->failed)
		return;
	va_start(args, format);
	writer->failed = error_vset(writer->error, code, format, args);
	va_end(args);
	error_wrap(writer->error, "%s", path_text(&writer->path, where));
}

static bool grow(struct writer *writer, size_t wanted)
{
	char where[PATH_TEXT_BYTES];
	size_t capacity = writer->capacity ? writer->capacity : FIRST_BYTES;
	void *grown;

	if (wanted > LIMIT_MESSAGE_BYTES) {
		writer_fail(writer, ERROR_LIMIT,
			    "%zu bytes are needed so far, and a message holds"
			    " at most %u",
			    wanted, LIMIT_MESSAGE_BYTES);
		return false;
	}
	while (capacity < wanted)
		capacity *= 2;
	grown = memory_resize(writer->bytes, capacity, 1);
	if (!grown) {
		writer->failed =
			memory_error(writer->error, path_text(&writer->path, where), capacity);
		return false;
	}
	writer->bytes = grown;
	writer->capacity = capacity;
	return true;
}

/* msgpack-c's write callback; it stops at a negative answer. */
static int append(void *context, const char *bytes, size_t length)
{
	struct writer *writer = context;
	size_t wanted = writer->length + length; /* cannot wrap: both are below 2^33 */

	if (writer->failed || (wanted > writer->capacity && !grow(writer, wanted)))
		return -1;
	if (length)
		memcpy(writer->bytes + writer->length, bytes, length);
	writer->length = wanted;
	return 0;
}

static msgpack_packer packer(struct writer *writer)
{
	msgpack_packer packer;

	msgpack_packer_init(&packer, writer, append);
	return packer;
}

void writer_uint(struct writer *writer, uint64_t value, uint64_t max)
{
	msgpack_packer to = packer(writer);

	if (value > max)
		writer_fail(writer, ERROR_LIMIT, "%" PRIu64 ", and at most %" PRIu64 " is allowed",
			    value, max);
	msgpack_pack_uint64(&to, value);
}

void writer_bool(struct writer *writer, bool value)
{
	msgpack_packer to = packer(writer);

	if (value)
		msgpack_pack_true(&to);
	else
		msgpack_pack_false(&to);
}

static void pack_text(struct writer *writer, const char *text, size_t length)
{
	msgpack_packer to = packer(writer);

	msgpack_pack_str(&to, length);
	msgpack_pack_str_body(&to, text, length);
}

void writer_text(struct writer *writer, const char *text, size_t max)
{
	const char *string = text ? text : "";
	size_t length = strlen(string), good = utf8_prefix(string, length);

	if (length > max)
		writer_fail(writer, ERROR_LIMIT, "%zu bytes long, and at most %zu are allowed",
			    length, max);
	if (good < length)
		writer_fail(writer, ERROR_MESSAGE, "byte 0x%02x at %zu of the string is not UTF-8",
			    (unsigned char)string[good], good);
	pack_text(writer, string, length);
}

void writer_error_text(struct writer *writer, const char *text, size_t max)
{
	char out[LIMIT_TEXT_BYTES];
	const char *string = text ? text : "";
	size_t length = strnlen(string, max + 4), used = 0; /* a last whole character */

	if (max > sizeof(out))
		max = sizeof(out);
	for (size_t at = 0; at < length && used < max;) {
		size_t good = utf8_prefix(string + at, length - at);
		size_t room = max - used;

		if (good > room) /* cut between characters */
			good = utf8_prefix(string + at, room);
		if (good) {
			memcpy(out + used, string + at, good);
		} else if (utf8_prefix(string + at, length - at)) {
			break; /* the next character does not fit */
		} else {
			out[used] = '?';
			good = 1;
		}
		used += good;
		at += good;
	}
	pack_text(writer, out, used);
}

void writer_bytes(struct writer *writer, const void *bytes, size_t length, size_t max)
{
	msgpack_packer to = packer(writer);

	if (length > max)
		writer_fail(writer, ERROR_LIMIT, "%zu bytes long, and at most %zu are allowed",
			    length, max);
	msgpack_pack_bin(&to, length);
	msgpack_pack_bin_body(&to, bytes, length);
}

void writer_array(struct writer *writer, size_t items, uint64_t max)
{
	msgpack_packer to = packer(writer);

	if (items > max)
		writer_fail(writer, ERROR_LIMIT, "%zu items, and at most %" PRIu64 " are allowed",
			    items, max);
	msgpack_pack_array(&to, items);
}

void writer_map(struct writer *writer, size_t pairs)
{
	msgpack_packer to = packer(writer);

	msgpack_pack_map(&to, pairs);
}

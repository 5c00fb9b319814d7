/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/frame.h"

#include "base/memory.h"
#include <assert.h>
#include <string.h>

static const struct frame_type *type_of(const struct frame_protocol *protocol, const void *message)
{
	uint32_t type = *(const uint32_t *)message;

	return type < protocol->type_count ? &protocol->types[type] : NULL;
}

static const void *body_of(const struct frame_protocol *protocol, const void *message)
{
	return (const char *)message + protocol->body;
}

void frame_fini(const struct frame_protocol *protocol, void *message)
{
	const struct frame_type *type = type_of(protocol, message);

	if (type)
		codec_fini(type->record, (char *)message + protocol->body);
	memset(message, 0, protocol->size);
}

static void encode(struct writer *writer, const struct frame_protocol *protocol,
		   const struct frame_type *type, const void *message)
{
	const void *body = body_of(protocol, message);

	writer->path.message = type->name;
	writer_map(writer,
		   2 + codec_pairs(protocol->head, message) + codec_pairs(type->record, body));
	writer_text(writer, "type", LIMIT_KEY_BYTES);
	writer_text(writer, type->name, LIMIT_KEY_BYTES);
	writer_text(writer, protocol->key, LIMIT_KEY_BYTES);
	writer_uint(writer, protocol->version, UINT32_MAX);
	codec_encode_pairs(writer, protocol->head, message);
	codec_encode_pairs(writer, type->record, body);
}

int frame_encode(const struct frame_protocol *protocol, const void *message, unsigned char **bytes,
		 size_t *length, struct error *error)
{
	const struct frame_type *type = type_of(protocol, message);
	struct writer writer;
	int rc = 0;

	*bytes = NULL;
	*length = 0;
	assert(type);
	writer_open(&writer, error);
	encode(&writer, protocol, type, message);
	if (!writer_ok(&writer))
		rc = writer.failed;
	else if (type->check)
		rc = type->check(body_of(protocol, message), error);
	if (rc) {
		memory_free(writer.bytes);
		error_wrap(error, "cannot send %s", type->name);
		return rc;
	}
	*bytes = writer.bytes;
	*length = writer.length;
	return 0;
}

static void expect_key(struct reader *reader, const char *key)
{
	size_t at = reader->at;
	const char *text;
	size_t length = reader_text(reader, &text, LIMIT_KEY_BYTES);

	if (reader_ok(reader) && (length != strlen(key) || memcmp(text, key, length) != 0))
		reader_fail(reader, at, "key \"%s\" must stand here", key);
}

/* The two pairs that no version changes; the type only if the rest is for us to read. */
static const struct frame_type *decode_opening(struct reader *reader,
					       const struct frame_protocol *protocol)
{
	size_t at, length;
	const char *name;
	uint64_t version;

	expect_key(reader, "type");
	at = reader->at;
	length = reader_text(reader, &name, LIMIT_KEY_BYTES);
	expect_key(reader, protocol->key);
	version = reader_uint(reader, UINT32_MAX);
	if (!reader_ok(reader))
		return NULL;
	if (version != protocol->version) {
		reader->failed = error_set(
			reader->error, ERROR_WIRE_VERSION,
			"the other side speaks %s version %llu and this program version %u: %s",
			protocol->key, (unsigned long long)version, protocol->version,
			protocol->advice);
		return NULL;
	}
	for (size_t i = 0; i < protocol->type_count; i++) {
		const struct frame_type *type = &protocol->types[i];

		if (strlen(type->name) == length && memcmp(type->name, name, length) == 0)
			return type;
	}
	reader_fail(reader, at, "unknown message type");
	return NULL;
}

static const struct frame_type *decode(struct reader *reader, const struct frame_protocol *protocol,
				       void *message)
{
	size_t pairs = reader_map(reader);
	const struct frame_type *type;

	if (reader_ok(reader) && pairs < 2)
		reader_fail(reader, 0, "a map of %zu pairs, and \"type\" and \"%s\" are needed",
			    pairs, protocol->key);
	type = decode_opening(reader, protocol);
	if (!type)
		return NULL;
	*(uint32_t *)message = (uint32_t)(type - protocol->types);
	reader->path.message = type->name;

	const struct codec_part parts[] = {{protocol->head, message},
					   {type->record, (char *)message + protocol->body}};

	codec_decode_pairs(reader, pairs - 2, parts, 2);
	if (reader_ok(reader))
		reader_end(reader);
	return type;
}

int frame_decode(const struct frame_protocol *protocol, void *message, const unsigned char *bytes,
		 size_t length, struct error *error)
{
	const struct frame_type *type;
	struct reader reader;
	int rc;

	memset(message, 0, protocol->size);
	if (length > protocol->bytes_max)
		return error_set(error, ERROR_MESSAGE,
				 "a message of %zu bytes, and at most %zu are "
				 "allowed",
				 length, protocol->bytes_max);
	reader_open(&reader, bytes, length, error);
	type = decode(&reader, protocol, message);
	rc = reader.failed;
	if (!rc && type->check) {
		rc = type->check(body_of(protocol, message), error);
		if (rc)
			error_wrap(error, "%s message", type->name);
	}
	if (rc)
		frame_fini(protocol, message);
	return rc;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * message.c -- the frame around every message, and the table of types.
 *
 *   {"type":"hello", "wire":2, "job":"demo", "epoch":0, "from":0x9f.., ...fields of the type}
 *     └── these two stand first, in every version for ever: so that a program of another
 *         version is told so, whatever else has changed. The other keys come in any order.
 */
#include "wire/message.h"

#include "base/memory.h"
#include "wire/message_parts.h"
#include <assert.h>
#include <string.h>

static const struct codec_field head_fields[] = {
	FIELD_LABEL(struct message, job),
	FIELD_U64(struct message, epoch),
	FIELD_U64(struct message, from),
};
static const struct codec_record head_record = {CODEC_RECORD_OF(struct message, head_fields)};

static const struct {
	const char *name;
	const struct codec_record *record;
	int (*check)(const struct message *message, struct error *error); /* optional */
} types[] = {
	[MESSAGE_HELLO] = {"hello", &message_hello_record, message_hello_check},
	[MESSAGE_DECLARE] = {"declare", &message_declare_record, message_declare_check},
	[MESSAGE_LAYOUT] = {"layout", &message_layout_record, message_layout_check},
	[MESSAGE_HOLDING] = {"holding", &message_holding_record, message_holding_check},
	[MESSAGE_ENDPOINTS] = {"endpoints", &message_endpoints_record, message_endpoints_check},
	[MESSAGE_CONNECTED] = {"connected", &message_connected_record, NULL},
	[MESSAGE_FAILURE] = {"failure", &message_failure_record, NULL},
	[MESSAGE_LEAVE] = {"leave", &message_leave_record, NULL},
	[MESSAGE_HEARTBEAT] = {"heartbeat", &message_heartbeat_record, NULL},
	[MESSAGE_WELCOME] = {"welcome", &message_welcome_record, message_welcome_check},
	[MESSAGE_REFUSE] = {"refuse", &message_refuse_record, NULL},
	[MESSAGE_WANT] = {"want", &message_want_record, NULL},
	[MESSAGE_PLAN] = {"plan", &message_plan_record, message_plan_check},
	[MESSAGE_PEERS] = {"peers", &message_peers_record, message_peers_check},
	[MESSAGE_GO] = {"go", &message_go_record, NULL},
	[MESSAGE_LOST] = {"lost", &message_lost_record, NULL},
};

_Static_assert(sizeof(types) / sizeof(types[0]) == MESSAGE_TYPE_COUNT, "a row for every type");

const char *message_type_name(enum message_type type)
{
	return (unsigned)type < MESSAGE_TYPE_COUNT ? types[type].name : "unknown";
}

void message_fini(struct message *message)
{
	if ((unsigned)message->type < MESSAGE_TYPE_COUNT)
		codec_fini(types[message->type].record, &message->u);
	memset(message, 0, sizeof(*message));
}

int message_copy(struct message *to, const struct message *from, struct error *error)
{
	int rc;

	memset(to, 0, sizeof(*to));
	assert((unsigned)from->type < MESSAGE_TYPE_COUNT);
	to->type = from->type;
	to->wire = from->wire;
	rc = codec_copy(&head_record, to, from, error);
	if (rc == 0)
		rc = codec_copy(types[from->type].record, &to->u, &from->u, error);
	if (rc) {
		message_fini(to);
		error_wrap(error, "copying a %s message", types[from->type].name);
	}
	return rc;
}

static void encode(struct writer *writer, const struct message *message)
{
	const struct codec_record *body = types[message->type].record;

	writer->path.message = types[message->type].name;
	writer_map(writer, 2 + codec_pairs(&head_record, message) + codec_pairs(body, &message->u));
	writer_text(writer, "type", LIMIT_KEY_BYTES);
	writer_text(writer, types[message->type].name, LIMIT_KEY_BYTES);
	writer_text(writer, "wire", LIMIT_KEY_BYTES);
	writer_uint(writer, WIRE_VERSION, UINT32_MAX);
	codec_encode_pairs(writer, &head_record, message);
	codec_encode_pairs(writer, body, &message->u);
}

int message_encode(const struct message *message, unsigned char **bytes, size_t *length,
		   struct error *error)
{
	struct writer writer;
	int rc = 0;

	*bytes = NULL;
	*length = 0;
	assert((unsigned)message->type < MESSAGE_TYPE_COUNT);
	writer_open(&writer, error);
	encode(&writer, message);
	if (!writer_ok(&writer))
		rc = writer.failed;
	else if (types[message->type].check)
		rc = types[message->type].check(message, error);
	if (rc) {
		memory_free(writer.bytes);
		error_wrap(error, "cannot send %s", types[message->type].name);
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

/* The two pairs that no version changes; *type only if the rest is for us to read. */
static void decode_opening(struct reader *reader, enum message_type *type)
{
	size_t at, length;
	const char *name;
	uint64_t wire;

	expect_key(reader, "type");
	at = reader->at;
	length = reader_text(reader, &name, LIMIT_KEY_BYTES);
	expect_key(reader, "wire");
	wire = reader_uint(reader, UINT32_MAX);
	if (!reader_ok(reader))
		return;
	if (wire != WIRE_VERSION) {
		reader->failed =
			error_set(reader->error, ERROR_WIRE_VERSION,
				  "the other side speaks wire version %llu and this program "
				  "version %u: run the same release of weft everywhere in a job",
				  (unsigned long long)wire, WIRE_VERSION);
		return;
	}
	for (int i = 0; i < MESSAGE_TYPE_COUNT; i++) {
		if (strlen(types[i].name) != length || memcmp(types[i].name, name, length) != 0)
			continue;
		*type = (enum message_type)i;
		reader->path.message = types[i].name;
		return;
	}
	reader_fail(reader, at, "unknown message type");
}

static void decode(struct reader *reader, struct message *message)
{
	size_t pairs = reader_map(reader);

	if (reader_ok(reader) && pairs < 2)
		reader_fail(reader, 0, "a map of %zu pairs, and \"type\" and \"wire\" are needed",
			    pairs);
	decode_opening(reader, &message->type);
	if (!reader_ok(reader))
		return;
	message->wire = WIRE_VERSION;

	const struct codec_part parts[] = {{&head_record, message},
					   {types[message->type].record, &message->u}};

	codec_decode_pairs(reader, pairs - 2, parts, 2);
	if (reader_ok(reader))
		reader_end(reader);
}

int message_decode(struct message *message, const unsigned char *bytes, size_t length,
		   struct error *error)
{
	struct reader reader;
	int rc = 0;

	memset(message, 0, sizeof(*message));
	if (length > LIMIT_MESSAGE_BYTES)
		return error_set(error, ERROR_MESSAGE,
				 "a message of %zu bytes, and at most %u are "
				 "allowed",
				 length, LIMIT_MESSAGE_BYTES);
	reader_open(&reader, bytes, length, error);
	decode(&reader, message);
	if (!reader_ok(&reader)) {
		rc = reader.failed;
	} else if (types[message->type].check) {
		rc = types[message->type].check(message, error);
		if (rc)
			error_wrap(error, "%s message", types[message->type].name);
	}
	if (rc)
		message_fini(message);
	return rc;
}

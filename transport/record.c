/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/record.h"

#include "base/array.h"
#include "job/digest.h"
#include <inttypes.h>
#include <string.h>

#define MAGIC 0x52544657u /* "WFTR" */

static void store(unsigned char *at, uint64_t value, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		at[i] = (unsigned char)(value >> (8 * i));
}

static uint64_t load(const unsigned char *at, size_t bytes)
{
	uint64_t value = 0;

	for (size_t i = 0; i < bytes; i++)
		value |= (uint64_t)at[i] << (8 * i);
	return value;
}

/* Room for the checksum is kept, so that finish cannot fail for it alone. */
static unsigned char *take(struct record_writer *writer, size_t bytes)
{
	unsigned char *at;

	if (writer->failed || writer->used + bytes + RECORD_TAIL_BYTES > writer->capacity) {
		writer->failed = true;
		return NULL;
	}
	at = writer->data + writer->used;
	writer->used += bytes;
	return at;
}

static void put(struct record_writer *writer, uint64_t value, size_t bytes)
{
	unsigned char *at = take(writer, bytes);

	if (at)
		store(at, value, bytes);
}

void record_put_u32(struct record_writer *writer, uint32_t value)
{
	put(writer, value, 4);
}

void record_put_u64(struct record_writer *writer, uint64_t value)
{
	put(writer, value, 8);
}

void record_put_bytes(struct record_writer *writer, const void *data, size_t bytes)
{
	unsigned char *at = take(writer, bytes);

	if (at)
		memcpy(at, data, bytes);
}

static void put_member(struct record_writer *writer, struct member member)
{
	record_put_u32(writer, (uint32_t)member.role);
	record_put_u32(writer, member.rank);
}

void record_begin(struct record_writer *writer, unsigned char *data, size_t capacity,
		  const struct record_head *head)
{
	char provider[RECORD_PROVIDER_BYTES] = {0};

	*writer = (struct record_writer){.data = data, .capacity = capacity};
	/* a name and its padding: the last byte stays zero */
	memcpy(provider, head->provider, strnlen(head->provider, sizeof(provider) - 1));
	put(writer, MAGIC, 4);
	put(writer, RECORD_VERSION, 2);
	put(writer, (uint64_t)head->kind, 2);
	put(writer, 0, 4); /* length: known at the end */
	put(writer, 0, 4);
	put(writer, head->tag, 8);
	record_put_bytes(writer, provider, sizeof(provider));
	put_member(writer, head->owner);
	put_member(writer, head->peer);
	put(writer, head->bytes, 8);
}

int record_finish(struct record_writer *writer, size_t *length, struct error *error)
{
	size_t total = writer->used + RECORD_TAIL_BYTES;

	if (writer->failed)
		return error_set(error, ERROR_LIMIT,
				 "the record needs more than its limit of %zu bytes",
				 writer->capacity);
	store(writer->data + 8, total, 4);
	store(writer->data + writer->used, checksum64(writer->data, writer->used), 8);
	*length = total;
	return 0;
}

static const unsigned char *next(struct record_reader *reader, size_t bytes)
{
	const unsigned char *at;

	if (reader->failed || bytes > reader->length - reader->used) {
		reader->failed = true;
		return NULL;
	}
	at = reader->data + reader->used;
	reader->used += bytes;
	return at;
}

static uint64_t get(struct record_reader *reader, size_t bytes)
{
	const unsigned char *at = next(reader, bytes);

	return at ? load(at, bytes) : 0;
}

uint32_t record_get_u32(struct record_reader *reader)
{
	return (uint32_t)get(reader, 4);
}

uint64_t record_get_u64(struct record_reader *reader)
{
	return get(reader, 8);
}

void record_get_bytes(struct record_reader *reader, void *out, size_t bytes)
{
	const unsigned char *at = next(reader, bytes);

	if (at)
		memcpy(out, at, bytes);
	else
		memset(out, 0, bytes);
}

static int get_member(struct record_reader *reader, const char *who, struct member *member,
		      struct error *error)
{
	uint32_t role = record_get_u32(reader);

	member->rank = record_get_u32(reader);
	if (role >= ROLE_COUNT)
		return error_set(error, ERROR_MESSAGE,
				 "the record's %s has role %u; known are 0..%d", who, role,
				 ROLE_COUNT - 1);
	member->role = (enum role)role;
	return 0;
}

/* What can be said before the checksum: is this a whole record of this version at all? */
static int check_frame(const unsigned char *data, size_t length, struct error *error)
{
	if (length < RECORD_HEAD_BYTES + RECORD_TAIL_BYTES)
		return error_set(error, ERROR_MESSAGE,
				 "the record has %zu bytes; at least %d are needed", length,
				 RECORD_HEAD_BYTES + RECORD_TAIL_BYTES);
	if (load(data, 4) != MAGIC)
		return error_set(error, ERROR_MESSAGE,
				 "the record starts with 0x%08x, not with weft's magic",
				 (unsigned)load(data, 4));
	if (load(data + 4, 2) != RECORD_VERSION)
		return error_set(error, ERROR_MESSAGE,
				 "the record has version %u; this build reads %d: use one weft "
				 "everywhere",
				 (unsigned)load(data + 4, 2), RECORD_VERSION);
	if (load(data + 8, 4) != length)
		return error_set(error, ERROR_MESSAGE, "the record says %u bytes but %zu came",
				 (unsigned)load(data + 8, 4), length);
	if (load(data + length - RECORD_TAIL_BYTES, 8) !=
	    checksum64(data, length - RECORD_TAIL_BYTES))
		return error_set(error, ERROR_MESSAGE,
				 "the record's checksum does not match its %zu bytes", length);
	return 0;
}

static int check_provider(const char provider[RECORD_PROVIDER_BYTES], struct error *error)
{
	size_t n = strnlen(provider, RECORD_PROVIDER_BYTES);

	if (n == 0 || n == RECORD_PROVIDER_BYTES)
		return error_set(error, ERROR_MESSAGE, "the record's provider name is %s",
				 n ? "not terminated" : "empty");
	for (size_t i = 0; i < RECORD_PROVIDER_BYTES; i++) {
		char c = provider[i];

		if (i < n ? !((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_')
			  : c != 0)
			return error_set(error, ERROR_MESSAGE,
					 "the record's provider name has byte 0x%02x at %zu",
					 (unsigned char)c, i);
	}
	return 0;
}

static int read_head(struct record_reader *reader, struct record_head *head, struct error *error)
{
	uint64_t kind = load(reader->data + 6, 2);
	int rc;

	if (kind != RECORD_REGION && kind != RECORD_ENDPOINT)
		return error_set(error, ERROR_MESSAGE, "the record has kind %u; 1 and 2 are known",
				 (unsigned)kind);
	if (load(reader->data + 12, 4) != 0)
		return error_set(error, ERROR_MESSAGE, "the record's reserved word is 0x%x, not 0",
				 (unsigned)load(reader->data + 12, 4));
	head->kind = (enum record_kind)kind;
	reader->used = 16;
	head->tag = record_get_u64(reader);
	record_get_bytes(reader, head->provider, sizeof(head->provider));
	rc = check_provider(head->provider, error);
	if (!rc)
		rc = get_member(reader, "owner", &head->owner, error);
	if (!rc)
		rc = get_member(reader, "peer", &head->peer, error);
	head->bytes = record_get_u64(reader);
	if (rc)
		return rc;
	if (kind == RECORD_REGION && (head->peer.role || head->peer.rank || !head->bytes))
		return error_set(error, ERROR_MESSAGE,
				 "the region record names a peer or has no bytes");
	if (kind == RECORD_ENDPOINT && head->bytes)
		return error_set(error, ERROR_MESSAGE, "the endpoint record has region bytes");
	return 0;
}

int record_open(struct record_reader *reader, const void *data, size_t length,
		struct record_head *head, struct error *error)
{
	int rc = check_frame(data, length, error);

	*reader = (struct record_reader){.data = data};
	*head = (struct record_head){0};
	if (rc)
		return rc;
	reader->length = length - RECORD_TAIL_BYTES;
	rc = read_head(reader, head, error);
	memcpy(reader->provider, head->provider, sizeof(reader->provider));
	return rc;
}

int record_done(const struct record_reader *reader, struct error *error)
{
	if (reader->failed)
		return error_set(error, ERROR_MESSAGE, "the record's body ends early, at byte %zu",
				 reader->length);
	if (reader->used != reader->length)
		return error_set(error, ERROR_MESSAGE, "the record's body has %zu bytes too many",
				 reader->length - reader->used);
	return 0;
}

/* ---- bodies as tables ---- */

static const struct record_field identity_fields[] = {
	RECORD_ROW_BYTES(struct identity, boot),
	RECORD_ROW_U64(struct identity, pid_namespace, "pid namespace", 0, UINT64_MAX),
	RECORD_ROW_U64(struct identity, pid, "pid", 0,
		       UINT64_MAX), /* judged by the row of the whole */
	RECORD_ROW_U64(struct identity, start, "start time", 0, UINT64_MAX),
};

void record_put_fields(struct record_writer *writer, const struct record_field *fields,
		       size_t count, const void *item)
{
	for (size_t i = 0; i < count; i++) {
		const void *member = (const char *)item + fields[i].offset;

		if (fields[i].type == RECORD_U32)
			record_put_u32(writer, *(const uint32_t *)member);
		else if (fields[i].type == RECORD_U64)
			record_put_u64(writer, *(const uint64_t *)member);
		else if (fields[i].type == RECORD_BYTES)
			record_put_bytes(writer, member, fields[i].bytes);
		else
			record_put_fields(writer, identity_fields, ARRAY_SIZE(identity_fields),
					  member);
	}
}

int record_check(const struct record_reader *reader, const char *name, uint64_t value,
		 uint64_t least, uint64_t most, struct error *error)
{
	if (value >= least && value <= most)
		return 0;
	return error_set(error, ERROR_MESSAGE,
			 "the %s record's %s is %" PRIu64 "; it must be %" PRIu64 " to %" PRIu64,
			 reader->provider, name, value, least, most);
}

/* The number of the field, or the one that stands for it. */
static uint64_t get_field(struct record_reader *reader, const struct record_field *field,
			  void *member)
{
	switch (field->type) {
	case RECORD_U32:
		return *(uint32_t *)member = record_get_u32(reader);
	case RECORD_U64:
		return *(uint64_t *)member = record_get_u64(reader);
	case RECORD_BYTES:
		record_get_bytes(reader, member, field->bytes);
		return 0;
	default:
		record_get_fields(reader, identity_fields, ARRAY_SIZE(identity_fields), member,
				  NULL);
		return ((const struct identity *)member)->pid;
	}
}

int record_get_fields(struct record_reader *reader, const struct record_field *fields, size_t count,
		      void *item, struct error *error)
{
	int rc = 0;

	for (size_t i = 0; i < count && !rc; i++) {
		uint64_t value = get_field(reader, &fields[i], (char *)item + fields[i].offset);

		if (!reader->failed)
			rc = record_check(reader, fields[i].name, value, fields[i].least,
					  fields[i].most, error);
	}
	return rc;
}

uint64_t record_tag(uint64_t secret)
{
	unsigned char bytes[16] = "weft-job";

	store(bytes + 8, secret, 8);
	return checksum64(bytes, sizeof(bytes));
}

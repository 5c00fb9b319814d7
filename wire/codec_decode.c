/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/codec.h"

#include "base/memory.h"
#include <assert.h>
#include <endian.h>
#include <stdio.h>
#include <string.h>

#define KEY_BYTES (LIMIT_KEY_BYTES + 1)
#define PAIRS_MAX 64 /* fields of one map: the bits of the `seen` mask */

typedef void decoder(struct reader *reader, const struct codec_field *field, void *item);

static void decode_bool(struct reader *reader, const struct codec_field *field, void *item)
{
	*CODEC_MEMBER(bool, field, item) = reader_bool(reader);
}

static void decode_u32(struct reader *reader, const struct codec_field *field, void *item)
{
	*CODEC_MEMBER(uint32_t, field, item) = (uint32_t)reader_uint(reader, field->limit);
}

static void decode_u64(struct reader *reader, const struct codec_field *field, void *item)
{
	*CODEC_MEMBER(uint64_t, field, item) = reader_uint(reader, field->limit);
}

/* A copy of a view, with so many zero bytes behind it; NULL when anything failed. */
static void *keep(struct reader *reader, const void *view, size_t length, size_t behind)
{
	char *copy = reader_ok(reader) ? memory_zalloc(1, length + behind) : NULL;

	if (!reader_ok(reader))
		return NULL;
	if (!copy)
		reader_no_memory(reader, length + behind);
	return copy ? memcpy(copy, view, length) : NULL;
}

static void decode_text(struct reader *reader, const struct codec_field *field, void *item)
{
	const char *view;
	size_t length = reader_text(reader, &view, (size_t)field->limit - 1);

	*CODEC_MEMBER(char *, field, item) = keep(reader, view, length, 1);
}

static void decode_label(struct reader *reader, const struct codec_field *field, void *item)
{
	const char *view;
	size_t length = reader_text(reader, &view, (size_t)field->limit - 1);

	memcpy(CODEC_MEMBER(char, field, item), view, length); /* the rest is zero already */
}

static void decode_dtype(struct reader *reader, const struct codec_field *field, void *item)
{
	char name[DTYPE_NAME_BYTES + 1] = "";
	size_t at = reader->at, length;
	const char *view;
	enum dtype dtype;

	length = reader_text(reader, &view, DTYPE_NAME_BYTES);
	memcpy(name, view, length);
	dtype = dtype_from_name(name);
	if (dtype == DTYPE_NONE)
		reader_fail(reader, at, "this is no dtype; safetensors' names are needed, as BF16");
	*CODEC_MEMBER(enum dtype, field, item) = dtype;
}

static void decode_digest(struct reader *reader, const struct codec_field *field, void *item)
{
	uint64_t halves[2];
	size_t at = reader->at, length;
	const unsigned char *view;

	length = reader_bytes(reader, &view, sizeof(halves));
	if (reader_ok(reader) && length != sizeof(halves))
		reader_fail(reader, at, "%zu bytes, and a digest has %zu", length, sizeof(halves));
	if (!reader_ok(reader))
		return;
	memcpy(halves, view, sizeof(halves));
	*CODEC_MEMBER(struct digest, field, item) =
		(struct digest){.high = be64toh(halves[0]), .low = be64toh(halves[1])};
}

static void decode_bytes(struct reader *reader, const struct codec_field *field, void *item)
{
	const unsigned char *view;
	size_t length = reader_bytes(reader, &view, (size_t)field->limit);
	void *bytes = length ? keep(reader, view, length, 0) : NULL;

	*CODEC_MEMBER(void *, field, item) = bytes;
	*CODEC_COUNT(size_t, field, item) = bytes ? length : 0;
}

static void decode_shape(struct reader *reader, const struct codec_field *field, void *item)
{
	size_t dims = reader_array(reader, field->limit, 1);

	for (size_t d = 0; d < dims; d++)
		CODEC_MEMBER(uint64_t, field, item)[d] = reader_uint(reader, UINT64_MAX);
	*CODEC_COUNT(uint32_t, field, item) = (uint32_t)dims;
}

static void decode_box(struct reader *reader, const struct codec_field *field, void *item)
{
	struct box *box = CODEC_MEMBER(struct box, field, item);
	size_t at = reader->at, numbers = reader_array(reader, field->limit, 1);

	if (numbers == 0 || numbers % 2)
		reader_fail(reader, at,
			    "%zu numbers, and a box has 2 for each of 1 to %d dimensions", numbers,
			    BOX_DIMS_MAX);
	for (uint32_t d = 0; reader_ok(reader) && d < numbers / 2; d++) {
		box->lo[d] = reader_uint(reader, UINT64_MAX);
		box->hi[d] = reader_uint(reader, UINT64_MAX);
		if (box->lo[d] >= box->hi[d])
			reader_fail(reader, at,
				    "dimension %u of the box is %llu..%llu, which is empty", d,
				    (unsigned long long)box->lo[d], (unsigned long long)box->hi[d]);
	}
	box->dims = (uint32_t)(numbers / 2);
}

static void decode_record(struct reader *reader, const struct codec_field *field, void *item)
{
	codec_decode(reader, field->record, CODEC_MEMBER(char, field, item));
}

/* Items that their owner takes one by one: each is decoded into the same scratch. */
static void decode_added(struct reader *reader, const struct codec_field *field, void *item,
			 size_t count)
{
	const struct codec_record *record = field->record;
	void *scratch = memory_zalloc(1, record->size);

	if (!scratch)
		reader_no_memory(reader, record->size);
	for (size_t i = 0; reader_ok(reader) && i < count; i++) {
		size_t at = reader->at;

		path_index(&reader->path, i);
		memset(scratch, 0, record->size);
		codec_decode(reader, record, scratch);
		if (reader_ok(reader)) {
			int rc = field->add(item, scratch, i, reader->error);

			if (rc)
				reader_wrap(reader, at, rc);
		}
		codec_fini(record, scratch);
	}
	memory_free(scratch);
}

static void decode_list(struct reader *reader, const struct codec_field *field, void *item)
{
	const struct codec_record *record = field->record;
	size_t count = reader_array(reader, field->limit, codec_least_bytes(record));
	char *items;

	if (field->add) {
		decode_added(reader, field, item, count);
		return;
	}
	if (count == 0)
		return;
	items = memory_zalloc(count, record->size);
	if (!items) {
		reader_no_memory(reader, count * record->size);
		return;
	}
	/* published at once: what is not decoded yet is zero, and so safe to free */
	*CODEC_MEMBER(char *, field, item) = items;
	*CODEC_COUNT(size_t, field, item) = count;
	for (size_t i = 0; i < count && reader_ok(reader); i++) {
		path_index(&reader->path, i);
		codec_decode(reader, record, items + i * record->size);
	}
}

/* Decoder, and the fewest bytes of a value; a record's are the sum of its fields'. */
static const struct {
	decoder *decode;
	size_t least;
} kinds[] = {
	[CODEC_BOOL] = {decode_bool, 1},      [CODEC_U32] = {decode_u32, 1},
	[CODEC_U64] = {decode_u64, 1},	      [CODEC_CODE] = {decode_u32, 1},
	[CODEC_TEXT] = {decode_text, 1},      [CODEC_ERROR_TEXT] = {decode_text, 1},
	[CODEC_LABEL] = {decode_label, 1},    [CODEC_DTYPE] = {decode_dtype, 3},
	[CODEC_DIGEST] = {decode_digest, 18}, [CODEC_BYTES] = {decode_bytes, 2},
	[CODEC_SHAPE] = {decode_shape, 1},    [CODEC_BOX] = {decode_box, 3},
	[CODEC_RECORD] = {decode_record, 0},  [CODEC_LIST] = {decode_list, 1},
};

_Static_assert(sizeof(kinds) / sizeof(kinds[0]) == CODEC_KIND_COUNT, "a decoder a kind");

size_t codec_least_bytes(const struct codec_record *record)
{
	size_t least = record->bare ? 0 : 1;

	for (size_t i = 0; i < record->field_count - record->tail; i++) {
		const struct codec_field *field = &record->fields[i];

		least += field->kind == CODEC_RECORD ? codec_least_bytes(field->record)
						     : kinds[field->kind].least;
	}
	return least;
}

static void decode_field(struct reader *reader, const struct codec_field *field, void *item)
{
	path_push(&reader->path, field->key);
	kinds[field->kind].decode(reader, field, item);
	path_pop(&reader->path);
}

void codec_decode(struct reader *reader, const struct codec_record *record, void *item)
{
	size_t at = reader->at, fields = record->field_count;

	if (!record->bare) {
		fields = reader_array(reader, UINT32_MAX, 1);
		if (reader_ok(reader) && fields != record->field_count &&
		    fields != record->field_count - record->tail)
			reader_fail(reader, at, "%zu fields where %zu are needed", fields,
				    record->field_count - record->tail);
	}
	for (size_t i = 0; reader_ok(reader) && i < fields; i++)
		decode_field(reader, &record->fields[i], item);
	if (reader_ok(reader) && record->finish) {
		int rc = record->finish(item, reader->error);

		if (rc)
			reader_wrap(reader, at, rc);
	}
}

/* A stranger's key, printable. */
static void show_key(const char *key, size_t length, char out[KEY_BYTES])
{
	size_t n = length < KEY_BYTES ? length : KEY_BYTES - 1;

	for (size_t i = 0; i < n; i++)
		out[i] = key[i] >= 0x20 && key[i] < 0x7f && key[i] != '"' ? key[i] : '?';
	out[n] = '\0';
}

/* Field with that key and its number among all parts' fields. */
static const struct codec_field *find(const struct codec_part *parts, size_t part_count,
				      const char *key, size_t length, void **item, size_t *number)
{
	*number = 0;
	for (size_t p = 0; p < part_count; p++) {
		const struct codec_record *record = parts[p].record;

		for (size_t i = 0; i < record->field_count; i++, (*number)++) {
			const struct codec_field *field = &record->fields[i];

			if (strlen(field->key) != length || memcmp(field->key, key, length) != 0)
				continue;
			*item = parts[p].item;
			return field;
		}
	}
	return NULL;
}

static void decode_pair(struct reader *reader, const struct codec_part *parts, size_t part_count,
			uint64_t *seen)
{
	size_t at = reader->at, length, number;
	const struct codec_field *field;
	char shown[KEY_BYTES];
	const char *key;
	void *item;

	length = reader_text(reader, &key, LIMIT_KEY_BYTES);
	if (!reader_ok(reader))
		return;
	show_key(key, length, shown);
	field = find(parts, part_count, key, length, &item, &number);
	if (!field) {
		reader_fail(reader, at, "unknown key \"%s\"", shown);
		return;
	}
	if (*seen & UINT64_C(1) << number) {
		reader_fail(reader, at, "key \"%s\" stands here a second time", shown);
		return;
	}
	*seen |= UINT64_C(1) << number;
	decode_field(reader, field, item);
}

void codec_decode_pairs(struct reader *reader, size_t pairs, const struct codec_part *parts,
			size_t part_count)
{
	uint64_t seen = 0;
	size_t number = 0;

	for (size_t i = 0; i < pairs && reader_ok(reader); i++)
		decode_pair(reader, parts, part_count, &seen);
	for (size_t p = 0; p < part_count; p++) {
		for (size_t i = 0; i < parts[p].record->field_count; i++, number++) {
			const struct codec_field *field = &parts[p].record->fields[i];

			assert(number < PAIRS_MAX);
			if (field->required && !(seen & UINT64_C(1) << number))
				reader_fail(reader, reader->at, "key \"%s\" is missing",
					    field->key);
		}
	}
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/codec.h"

#include <endian.h>
#include <string.h>

typedef void encoder(struct writer *writer, const struct codec_field *field, const void *item);

static void encode_bool(struct writer *writer, const struct codec_field *field, const void *item)
{
	writer_bool(writer, *CODEC_MEMBER(bool, field, item));
}

static void encode_u32(struct writer *writer, const struct codec_field *field, const void *item)
{
	writer_uint(writer, *CODEC_MEMBER(uint32_t, field, item), field->limit);
}

static void encode_u64(struct writer *writer, const struct codec_field *field, const void *item)
{
	writer_uint(writer, *CODEC_MEMBER(uint64_t, field, item), field->limit);
}

static void encode_code(struct writer *writer, const struct codec_field *field, const void *item)
{
	/* a negative code becomes huge and is refused */
	writer_uint(writer, (uint64_t)(int64_t)*CODEC_MEMBER(int, field, item), field->limit);
}

static void encode_text(struct writer *writer, const struct codec_field *field, const void *item)
{
	writer_text(writer, *CODEC_MEMBER(char *, field, item), (size_t)field->limit - 1);
}

static void encode_error_text(struct writer *writer, const struct codec_field *field,
			      const void *item)
{
	writer_error_text(writer, *CODEC_MEMBER(char *, field, item), (size_t)field->limit - 1);
}

static void encode_label(struct writer *writer, const struct codec_field *field, const void *item)
{
	writer_text(writer, CODEC_MEMBER(char, field, item), (size_t)field->limit - 1);
}

static void encode_dtype(struct writer *writer, const struct codec_field *field, const void *item)
{
	enum dtype dtype = *CODEC_MEMBER(enum dtype, field, item);

	if (dtype_bytes(dtype) == 0)
		writer_fail(writer, ERROR_MESSAGE, "%d is no dtype", (int)dtype);
	writer_text(writer, dtype_name(dtype), DTYPE_NAME_BYTES);
}

static void encode_digest(struct writer *writer, const struct codec_field *field, const void *item)
{
	const struct digest *digest = CODEC_MEMBER(struct digest, field, item);
	uint64_t halves[2] = {htobe64(digest->high), htobe64(digest->low)};

	writer_bytes(writer, halves, sizeof(halves), sizeof(halves));
}

static void encode_bytes(struct writer *writer, const struct codec_field *field, const void *item)
{
	writer_bytes(writer, *CODEC_MEMBER(unsigned char *, field, item),
		     *CODEC_COUNT(size_t, field, item), (size_t)field->limit);
}

static void encode_shape(struct writer *writer, const struct codec_field *field, const void *item)
{
	const uint64_t *shape = CODEC_MEMBER(uint64_t, field, item);
	uint32_t dims = *CODEC_COUNT(uint32_t, field, item);

	writer_array(writer, dims, field->limit);
	for (uint32_t d = 0; d < dims && writer_ok(writer); d++)
		writer_uint(writer, shape[d], UINT64_MAX);
}

static void encode_box(struct writer *writer, const struct codec_field *field, const void *item)
{
	const struct box *box = CODEC_MEMBER(struct box, field, item);

	if (box->dims == 0 || box->dims > BOX_DIMS_MAX)
		writer_fail(writer, ERROR_MESSAGE, "a box of %u dimensions; 1 to %d are possible",
			    box->dims, BOX_DIMS_MAX);
	writer_array(writer, 2 * (size_t)box->dims, field->limit);
	for (uint32_t d = 0; d < box->dims && writer_ok(writer); d++) {
		writer_uint(writer, box->lo[d], UINT64_MAX);
		writer_uint(writer, box->hi[d], UINT64_MAX);
	}
}

static void encode_record(struct writer *writer, const struct codec_field *field, const void *item)
{
	codec_encode(writer, field->record, CODEC_MEMBER(char, field, item));
}

static void encode_list(struct writer *writer, const struct codec_field *field, const void *item)
{
	const char *items = *CODEC_MEMBER(char *, field, item);
	size_t count = *CODEC_COUNT(size_t, field, item);

	writer_array(writer, count, field->limit);
	for (size_t i = 0; i < count && writer_ok(writer); i++) {
		path_index(&writer->path, i);
		codec_encode(writer, field->record, items + i * field->record->size);
	}
}

static encoder *const encoders[] = {
	[CODEC_BOOL] = encode_bool,	[CODEC_U32] = encode_u32,
	[CODEC_U64] = encode_u64,	[CODEC_CODE] = encode_code,
	[CODEC_TEXT] = encode_text,	[CODEC_ERROR_TEXT] = encode_error_text,
	[CODEC_LABEL] = encode_label,	[CODEC_DTYPE] = encode_dtype,
	[CODEC_DIGEST] = encode_digest, [CODEC_BYTES] = encode_bytes,
	[CODEC_SHAPE] = encode_shape,	[CODEC_BOX] = encode_box,
	[CODEC_RECORD] = encode_record, [CODEC_LIST] = encode_list,
};

_Static_assert(sizeof(encoders) / sizeof(encoders[0]) == CODEC_KIND_COUNT, "an encoder a kind");
_Static_assert(sizeof(enum dtype) == sizeof(uint32_t), "CODEC_U32 serves enums too");

static void encode_field(struct writer *writer, const struct codec_field *field, const void *item)
{
	path_push(&writer->path, field->key);
	encoders[field->kind](writer, field, item);
	path_pop(&writer->path);
}

void codec_encode(struct writer *writer, const struct codec_record *record, const void *item)
{
	size_t fields = record->field_count;

	if (record->tail && !record->has_tail(item))
		fields -= record->tail;
	if (!record->bare)
		writer_array(writer, fields, UINT32_MAX);
	for (size_t i = 0; i < fields && writer_ok(writer); i++)
		encode_field(writer, &record->fields[i], item);
}

/* Optional rows are numbers and lists only. */
static bool left_out(const struct codec_field *field, const void *item)
{
	if (field->required)
		return false;
	if (field->kind == CODEC_LIST)
		return *CODEC_COUNT(size_t, field, item) == 0;
	return *CODEC_MEMBER(uint32_t, field, item) == 0;
}

size_t codec_pairs(const struct codec_record *record, const void *item)
{
	size_t pairs = 0;

	for (size_t i = 0; i < record->field_count; i++)
		pairs += !left_out(&record->fields[i], item);
	return pairs;
}

void codec_encode_pairs(struct writer *writer, const struct codec_record *record, const void *item)
{
	for (size_t i = 0; i < record->field_count && writer_ok(writer); i++) {
		const struct codec_field *field = &record->fields[i];

		if (left_out(field, item))
			continue;
		writer_text(writer, field->key, strlen(field->key));
		encode_field(writer, field, item);
	}
}

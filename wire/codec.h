/* SPDX-License-Identifier: Apache-2.0
 *
 * codec.h -- structs to msgpack and back, by tables of fields.
 *
 * A field row says where a member lies, what it is, and how much of it is allowed:
 *
 *   {key, kind, offset, count_offset, limit, required, record, add}
 *
 * One row serves encoding, decoding, copying and freeing, so the four cannot disagree. A
 * record is a list of rows. On the wire it takes one of three shapes:
 *
 *   map     {"attempt": 1, "rows": [..]}   the message itself: keys checked one by one
 *   array   [3, 0, 17, ..]                 every item of a list: fields in the table's order,
 *                                          the keys only name them in errors
 *                                          the keys only name them in errors. The last `tail`
 *                                          of them may be left out together: all zero
 *   bare    bin                            a record of one field, in lists of scalars
 *
 * The tables fix the depth: nothing in the input can make the decoder recurse further than
 * they nest. A list is refused unless its count is within the row's limit and its items at
 * their smallest fit in the bytes left, so memory is at most a small multiple of the frame.
 *
 * After a failed decode or copy the target is partly filled and codec_fini() is right for it.
 */
#ifndef WIRE_CODEC_H
#define WIRE_CODEC_H

#include "job/box.h"
#include "job/digest.h"
#include "job/dtype.h"
#include "wire/limits.h"
#include "wire/reader.h"
#include "wire/writer.h"
#include <stddef.h>

enum codec_kind {
	CODEC_BOOL,
	CODEC_U32,      /* uint32_t or an enum; limit: the largest value */
	CODEC_U64,
	CODEC_CODE,     /* int that is never negative (error codes) */
	CODEC_TEXT,     /* char *, owned, never NULL after decoding; limit: bytes with terminator */
	CODEC_ERROR_TEXT, /* the same, but cut and cleaned rather than refused by the encoder */
	CODEC_LABEL,    /* char[limit] */
	CODEC_DTYPE,    /* as its safetensors name, so that the enum's order is not wire format */
	CODEC_DIGEST,   /* bin of 16: the bytes in the order people read them */
	CODEC_BYTES,    /* unsigned char * and its size_t length; NULL when empty */
	CODEC_SHAPE,    /* uint64_t[BOX_DIMS_MAX] and its uint32_t dims: [d0, d1, ..] */
	CODEC_BOX,      /* struct box: [lo0, hi0, lo1, hi1, ..] */
	CODEC_RECORD,   /* a nested struct */
	CODEC_LIST,     /* pointer to items and its size_t count; NULL when empty */
	CODEC_KIND_COUNT
};

struct codec_record;

struct codec_field {
	const char *key;
	enum codec_kind kind;
	size_t offset, count_offset;
	uint64_t limit;
	bool required;  /* in maps; else zero or empty is not sent, and absent means that */
	const struct codec_record *record; /* RECORD, LIST */
	/* LIST: items are handed to the owner instead of being stored. 0 or a negative error. */
	int (*add)(void *owner, const void *item, size_t index, struct error *error);
};

struct codec_record {
	size_t size;
	const struct codec_field *fields;
	size_t field_count;
	bool bare;
	size_t tail; /* of the fields: as an array, not sent where has_tail says no */
	bool (*has_tail)(const void *item);
	int (*finish)(void *item, struct error *error); /* optional: after the last field */
	void (*fini)(void *item); /* optional: instead of freeing field by field */
};

/* A record, and the struct of it: messages have two in one map, the head and the body. */
struct codec_part {
	const struct codec_record *record;
	void *item;
};

/* Writes key and value of each field of a map; codec_pairs() says how many that are. */
void codec_encode_pairs(struct writer *writer, const struct codec_record *record,
			const void *item);
size_t codec_pairs(const struct codec_record *record, const void *item);
/* Reads `pairs` pairs into zeroed items, keys in any order. Unknown, duplicate and missing
 * keys fail. */
void codec_decode_pairs(struct reader *reader, size_t pairs, const struct codec_part *parts,
			size_t part_count);
/* Fields in order, as array or bare. The target of a decode is zeroed memory. */
void codec_encode(struct writer *writer, const struct codec_record *record, const void *item);
void codec_decode(struct reader *reader, const struct codec_record *record, void *item);
/* Deep copy into zeroed memory. */
int codec_copy(const struct codec_record *record, void *to, const void *from,
	       struct error *error);
void codec_fini(const struct codec_record *record, void *item);
/* The fewest bytes that an item of the record takes on the wire. */
size_t codec_least_bytes(const struct codec_record *record);

/* Rows. The _Generic makes a row whose kind does not fit its member's type fail to compile. */
#define CODEC_AT(owner, member, type)                                                       \
	_Generic(((owner *)0)->member, type: offsetof(owner, member))

#define FIELD_ROW(owner, name, type, of_kind, must, ...)                                    \
	{.key = #name, .kind = of_kind, .offset = CODEC_AT(owner, name, type), .required = must, __VA_ARGS__}
#define FIELD_BOOL(owner, name)                                                             \
	FIELD_ROW(owner, name, bool, CODEC_BOOL, true, .limit = 1)
#define FIELD_U32(owner, name, max)                                                         \
	FIELD_ROW(owner, name, uint32_t, CODEC_U32, true, .limit = (max))
#define FIELD_OPTIONAL_U32(owner, name, max)                                                \
	FIELD_ROW(owner, name, uint32_t, CODEC_U32, false, .limit = (max))
#define FIELD_U64(owner, name) FIELD_LIMITED_U64(owner, name, UINT64_MAX)
#define FIELD_LIMITED_U64(owner, name, max)                                                 \
	FIELD_ROW(owner, name, uint64_t, CODEC_U64, true, .limit = (max))
#define FIELD_CODE(owner, name)                                                             \
	FIELD_ROW(owner, name, int, CODEC_CODE, true, .limit = LIMIT_CODE)
#define FIELD_TEXT(owner, name, bytes)                                                      \
	FIELD_ROW(owner, name, char *, CODEC_TEXT, true, .limit = (bytes))
#define FIELD_ERROR_TEXT(owner, name)                                                       \
	FIELD_ROW(owner, name, char *, CODEC_ERROR_TEXT, true, .limit = LIMIT_TEXT_BYTES)
#define FIELD_LABEL(owner, name)                                                            \
	FIELD_ROW(owner, name, char *, CODEC_LABEL, true, .limit = sizeof(((owner *)0)->name))
#define FIELD_DTYPE(owner, name) FIELD_ROW(owner, name, enum dtype, CODEC_DTYPE, true, )
#define FIELD_DIGEST(owner, name) FIELD_ROW(owner, name, struct digest, CODEC_DIGEST, true, )
#define FIELD_BYTES(owner, name, length, max)                                               \
	FIELD_ROW(owner, name, unsigned char *, CODEC_BYTES, true,                          \
		  .count_offset = CODEC_AT(owner, length, size_t), .limit = (max))
#define FIELD_SHAPE(owner, name, dims)                                                      \
	FIELD_ROW(owner, name, uint64_t *, CODEC_SHAPE, true,                               \
		  .count_offset = CODEC_AT(owner, dims, uint32_t), .limit = BOX_DIMS_MAX)
#define FIELD_BOX(owner, name)                                                              \
	FIELD_ROW(owner, name, struct box, CODEC_BOX, true, .limit = 2 * BOX_DIMS_MAX)
#define FIELD_RECORD(owner, name, type, rows)                                               \
	FIELD_ROW(owner, name, type, CODEC_RECORD, true, .record = &(rows))
#define FIELD_LIST_ROW(owner, name, count, type, rows, max, must, adder)                    \
	FIELD_ROW(owner, name, type *, CODEC_LIST, must,                                    \
		  .count_offset = CODEC_AT(owner, count, size_t), .limit = (max),           \
		  .record = &(rows), .add = (adder))
#define FIELD_LIST(owner, name, count, type, rows, max)                                     \
	FIELD_LIST_ROW(owner, name, count, type, rows, max, true, NULL)
#define FIELD_OPTIONAL_LIST(owner, name, count, type, rows, max)                            \
	FIELD_LIST_ROW(owner, name, count, type, rows, max, false, NULL)
#define FIELD_ADDED_LIST(owner, name, count, type, rows, max, adder)                        \
	FIELD_LIST_ROW(owner, name, count, type, rows, max, true, adder)

/* Where a field's member lies, and the count that belongs to it. */
#define CODEC_MEMBER(type, field, item)                                                     \
	((type *)(void *)((char *)(uintptr_t)(item) + (field)->offset))
#define CODEC_COUNT(type, field, item)                                                      \
	((type *)(void *)((char *)(uintptr_t)(item) + (field)->count_offset))

#define CODEC_RECORD_OF(type, rows)                                                         \
	.size = sizeof(type), .fields = (rows), .field_count = sizeof(rows) / sizeof((rows)[0])

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/codec.h"

#include "base/memory.h"
#include <string.h>

typedef int copier(const struct codec_field *field, void *to, const void *from,
		   struct error *error);
typedef void freer(const struct codec_field *field, void *item);

static char *member(const struct codec_field *field, const void *item)
{
	return CODEC_MEMBER(char, field, item);
}

static size_t *count(const struct codec_field *field, const void *item)
{
	return CODEC_COUNT(size_t, field, item);
}

/* The owned pointer that TEXT, MESSAGE, BYTES and LIST members are. */
static void **pointer(const struct codec_field *field, const void *item)
{
	return CODEC_MEMBER(void *, field, item);
}

static int copy_text(const struct codec_field *field, void *to, const void *from,
		     struct error *error)
{
	const char *text = *pointer(field, from);

	if (!text)
		return 0;
	*pointer(field, to) = memory_string(text);
	return *pointer(field, to) ? 0 : memory_error(error, field->key, strlen(text) + 1);
}

static int copy_label(const struct codec_field *field, void *to, const void *from,
		      struct error *error)
{
	memcpy(member(field, to), member(field, from), (size_t)field->limit);
	return 0;
}

static int copy_bytes_field(const struct codec_field *field, void *to, const void *from,
			    struct error *error)
{
	size_t bytes = *count(field, from);

	if (bytes == 0)
		return 0;
	*pointer(field, to) = memory_alloc(bytes);
	if (!*pointer(field, to))
		return memory_error(error, field->key, bytes);
	memcpy(*pointer(field, to), *pointer(field, from), bytes);
	*count(field, to) = bytes;
	return 0;
}

static int copy_shape(const struct codec_field *field, void *to, const void *from,
		      struct error *error)
{
	memcpy(member(field, to), member(field, from), BOX_DIMS_MAX * sizeof(uint64_t));
	memcpy((char *)to + field->count_offset, (const char *)from + field->count_offset,
	       sizeof(uint32_t));
	return 0;
}

static int copy_record(const struct codec_field *field, void *to, const void *from,
		       struct error *error)
{
	return codec_copy(field->record, member(field, to), member(field, from), error);
}

static int copy_list(const struct codec_field *field, void *to, const void *from,
		     struct error *error)
{
	const struct codec_record *record = field->record;
	const char *source = *pointer(field, from);
	size_t items = *count(field, from);
	char *target = NULL;
	int rc = 0;

	if (items == 0)
		return 0;
	if (!field->add) {
		target = memory_zalloc(items, record->size);
		if (!target)
			return memory_error(error, field->key, items * record->size);
		*pointer(field, to) = target;
		*count(field, to) = items;
	}
	for (size_t i = 0; i < items && rc == 0; i++, source += record->size)
		rc = field->add ? field->add(to, source, i, error)
				: codec_copy(record, target + i * record->size, source, error);
	return rc;
}

static void free_pointer(const struct codec_field *field, void *item)
{
	memory_free(*pointer(field, item));
	*pointer(field, item) = NULL;
}

static void free_record(const struct codec_field *field, void *item)
{
	codec_fini(field->record, member(field, item));
}

static void free_list(const struct codec_field *field, void *item)
{
	char *items = *pointer(field, item);

	for (size_t i = 0; items && i < *count(field, item); i++)
		codec_fini(field->record, items + i * field->record->size);
	free_pointer(field, item);
}

/* How to copy, and how to free what the member owns. A size alone is plain bytes. */
static const struct {
	size_t plain;
	copier *copy;
	freer *fini;
} kinds[] = {
	[CODEC_BOOL] = {.plain = sizeof(bool)},
	[CODEC_U32] = {.plain = sizeof(uint32_t)},
	[CODEC_U64] = {.plain = sizeof(uint64_t)},
	[CODEC_CODE] = {.plain = sizeof(int)},
	[CODEC_TEXT] = {.copy = copy_text, .fini = free_pointer},
	[CODEC_ERROR_TEXT] = {.copy = copy_text, .fini = free_pointer},
	[CODEC_LABEL] = {.copy = copy_label},
	[CODEC_DTYPE] = {.plain = sizeof(enum dtype)},
	[CODEC_DIGEST] = {.plain = sizeof(struct digest)},
	[CODEC_BYTES] = {.copy = copy_bytes_field, .fini = free_pointer},
	[CODEC_SHAPE] = {.copy = copy_shape},
	[CODEC_BOX] = {.plain = sizeof(struct box)},
	[CODEC_RECORD] = {.copy = copy_record, .fini = free_record},
	[CODEC_LIST] = {.copy = copy_list, .fini = free_list},
};

_Static_assert(sizeof(kinds) / sizeof(kinds[0]) == CODEC_KIND_COUNT, "a copier a kind");

int codec_copy(const struct codec_record *record, void *to, const void *from, struct error *error)
{
	int rc = 0;

	for (size_t i = 0; i < record->field_count && rc == 0; i++) {
		const struct codec_field *field = &record->fields[i];

		if (kinds[field->kind].copy)
			rc = kinds[field->kind].copy(field, to, from, error);
		else
			memcpy(member(field, to), member(field, from), kinds[field->kind].plain);
	}
	return rc;
}

void codec_fini(const struct codec_record *record, void *item)
{
	if (record->fini) {
		record->fini(item);
		return;
	}
	for (size_t i = 0; i < record->field_count; i++)
		if (kinds[record->fields[i].kind].fini)
			kinds[record->fields[i].kind].fini(&record->fields[i], item);
}

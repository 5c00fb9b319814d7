/* SPDX-License-Identifier: Apache-2.0 */
#include "model/safetensors.h"

#include "base/compare.h"
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#define METADATA_KEY "__metadata__"

/* What a message needs to say where it is. */
struct reader {
	const char *where;
	uint64_t data_bytes; /* of the file, after its header */
	struct error *error;
};

/* An error that begins with the name of what is read. */
#define REFUSE(format, ...) \
	error_set(reader->error, ERROR_FILE, "%s: " format, reader->where, ##__VA_ARGS__)

static int bad_tensor(const struct reader *reader, const char *name, const char *problem)
{
	return REFUSE("tensor %.200s: %s", name, problem);
}

/* Names go into messages and dumps, a line each. */
static int check_name(const struct reader *reader, const char *name)
{
	size_t length = strlen(name);

	if (length == 0)
		return REFUSE("a tensor has an empty name");
	if (length > SAFETENSORS_NAME_MAX)
		return REFUSE("a tensor's name (%.60s...) has %zu bytes; at most %u are possible",
			      name, length, SAFETENSORS_NAME_MAX);
	for (const char *at = name; *at; at++)
		if ((unsigned char)*at < 0x20 || *at == 0x7f)
			return REFUSE("a tensor's name has the control character 0x%02x at byte "
				      "%td",
				      (unsigned char)*at, at - name);
	return 0;
}

static int read_dtype(const struct reader *reader, const char *name, const json_t *value,
		      struct safetensors_entry *entry)
{
	const char *text = json_string_value(value);

	if (!text)
		return bad_tensor(reader, name, "dtype is missing or not a string");
	entry->dtype = dtype_from_name(text);
	if (entry->dtype == DTYPE_NONE)
		return REFUSE("tensor %.200s: dtype %.40s is not known here", name, text);
	return 0;
}

/* The shape, and into *bytes what it takes; false only for sizes that overflow. */
static int read_shape(const struct reader *reader, const char *name, const json_t *value,
		      struct safetensors_entry *entry, uint64_t *bytes)
{
	size_t dims = json_array_size(value);

	if (!json_is_array(value))
		return bad_tensor(reader, name, "shape is missing or not a list");
	if (dims > SAFETENSORS_DIMS_MAX)
		return REFUSE("tensor %.200s: shape has %zu dimensions; at most %d are possible",
			      name, dims, SAFETENSORS_DIMS_MAX);
	*bytes = dtype_bytes(entry->dtype);
	for (size_t d = 0; d < dims; d++) {
		const json_t *size = json_array_get(value, d);

		if (!json_is_integer(size) || json_integer_value(size) < 0)
			return bad_tensor(reader, name, "shape has something else than sizes");
		entry->shape[d] = (uint64_t)json_integer_value(size);
		if (__builtin_mul_overflow(*bytes, entry->shape[d], bytes))
			return bad_tensor(reader, name, "shape is larger than 2^64 bytes");
	}
	entry->dims = (uint32_t)dims;
	if (dims == 0) {
		entry->dims = 1;
		entry->shape[0] = 1;
	}
	return 0;
}

static int read_offsets(const struct reader *reader, const char *name, const json_t *value,
			uint64_t bytes, struct safetensors_entry *entry)
{
	const json_t *begin = json_array_get(value, 0), *end = json_array_get(value, 1);

	if (!json_is_array(value) || json_array_size(value) != 2 || !json_is_integer(begin) ||
	    !json_is_integer(end) || json_integer_value(begin) < 0 || json_integer_value(end) < 0)
		return bad_tensor(reader, name, "data_offsets is not a pair of offsets");
	entry->begin = (uint64_t)json_integer_value(begin);
	entry->end = (uint64_t)json_integer_value(end);
	if (entry->begin > entry->end)
		return REFUSE("tensor %.200s: data_offsets run backwards, from %" PRIu64
			      " to %" PRIu64,
			      name, entry->begin, entry->end);
	if (entry->end > reader->data_bytes)
		return REFUSE("tensor %.200s ends at data byte %" PRIu64
			      ", but the file holds %" PRIu64
			      ": it was cut short or its header is wrong",
			      name, entry->end, reader->data_bytes);
	if (entry->end - entry->begin != bytes)
		return REFUSE("tensor %.200s: data_offsets span %" PRIu64
			      " bytes, but its shape and dtype need %" PRIu64,
			      name, entry->end - entry->begin, bytes);
	return 0;
}

static int read_entry(const struct reader *reader, const char *name, json_t *value,
		      struct safetensors *out)
{
	struct safetensors_entry *entry = &out->entries[out->count];
	uint64_t bytes = 0;
	const char *key;
	json_t *unused;
	int rc = check_name(reader, name);

	*entry = (struct safetensors_entry){0};
	if (rc == 0 && !json_is_object(value))
		rc = bad_tensor(reader, name, "its description is not an object");
	if (rc)
		return rc;
	json_object_foreach(
		value, key,
		unused) if (strcmp(key, "dtype") != 0 && strcmp(key, "shape") != 0 &&
			    strcmp(key, "data_offsets") !=
				    0) return REFUSE("tensor %.200s has an unknown field %.60s",
						     name, key);
	rc = read_dtype(reader, name, json_object_get(value, "dtype"), entry);
	if (rc == 0)
		rc = read_shape(reader, name, json_object_get(value, "shape"), entry, &bytes);
	if (rc == 0)
		rc = read_offsets(reader, name, json_object_get(value, "data_offsets"), bytes,
				  entry);
	if (rc)
		return rc;
	entry->name = pool_string(&out->pool, name);
	out->count++;
	return entry->name
		       ? 0
		       : memory_error(reader->error, "reading a safetensors header", strlen(name));
}

static int read_notes(const struct reader *reader, json_t *value, struct safetensors *out)
{
	const char *key;
	json_t *text;

	if (!json_is_object(value))
		return REFUSE(METADATA_KEY " is not an object");
	out->notes = pool_array(&out->pool, json_object_size(value), sizeof(*out->notes));
	if (!out->notes)
		return memory_error(reader->error, "reading safetensors metadata",
				    json_object_size(value) * sizeof(*out->notes));
	json_object_foreach(value, key, text)
	{
		struct safetensors_note *note = &out->notes[out->note_count];

		if (!json_is_string(text))
			return REFUSE(METADATA_KEY ": %.100s is not a string", key);
		note->key = pool_string(&out->pool, key);
		note->value = pool_string(&out->pool, json_string_value(text));
		out->note_count++;
		if (!pool_ok(&out->pool))
			return memory_error(reader->error, "reading safetensors metadata",
					    strlen(key));
	}
	return 0;
}

/* Name last, so that an order exists for equal places too: the message must not depend on
 * the sort. */
static int by_place(const void *left, const void *right)
{
	const struct safetensors_entry *a = left, *b = right;

	return compare_u64(a->begin, b->begin) ?: compare_u64(a->end, b->end) ?:
	       strcmp(a->name, b->name);
}

/* Back to back from the data's first byte to its last. */
static int check_tiling(const struct reader *reader, const struct safetensors *file)
{
	uint64_t at = 0;

	for (size_t i = 0; i < file->count; i++) {
		const struct safetensors_entry *entry = &file->entries[i];

		if (entry->begin < at)
			return REFUSE("tensors %.200s and %.200s overlap at data byte %" PRIu64,
				      file->entries[i - 1].name, entry->name, entry->begin);
		if (entry->begin > at)
			return REFUSE("data bytes %" PRIu64 " to %" PRIu64
				      " before tensor %.200s belong to no tensor",
				      at, entry->begin, entry->name);
		at = entry->end;
	}
	if (at < reader->data_bytes)
		return REFUSE("data bytes %" PRIu64 " to %" PRIu64
			      " at the file's end belong to no tensor",
			      at, reader->data_bytes);
	return 0;
}

static int read_header(const struct reader *reader, json_t *root, struct safetensors *out)
{
	const char *key;
	json_t *value;
	int rc = 0;

	out->entries = pool_array(&out->pool, json_object_size(root), sizeof(*out->entries));
	if (!out->entries)
		return memory_error(reader->error, "reading a safetensors header",
				    json_object_size(root) * sizeof(*out->entries));
	json_object_foreach(root, key, value)
	{
		if (strcmp(key, METADATA_KEY) == 0)
			rc = read_notes(reader, value, out);
		else
			rc = read_entry(reader, key, value, out);
		if (rc)
			return rc;
	}
	sort_items(out->entries, out->count, by_place);
	return check_tiling(reader, out);
}

int safetensors_decode(const unsigned char *data, uint64_t bytes, const char *where,
		       struct safetensors *out, struct error *error)
{
	struct reader reader = {.where = where, .error = error};
	json_error_t json_error;
	uint64_t length;
	json_t *root;
	int rc;

	*out = (struct safetensors){0};
	if (bytes < 8)
		return error_set(error, ERROR_FILE,
				 "%s: %" PRIu64 " bytes are too few for a "
				 "safetensors file",
				 where, bytes);
	memcpy(&length, data, 8);
	if (length > SAFETENSORS_HEADER_MAX)
		return error_set(error, ERROR_FILE,
				 "%s: the header length at byte 0 is %" PRIu64
				 "; at most %u is possible",
				 where, length, SAFETENSORS_HEADER_MAX);
	if (length > bytes - 8)
		return error_set(error, ERROR_FILE,
				 "%s: the header should end at byte %" PRIu64
				 ", but the file ends at %" PRIu64,
				 where, length + 8, bytes);
	if (length == 0 || data[8] != '{')
		return error_set(error, ERROR_FILE,
				 "%s: the header at byte 8 does not start with {", where);
	root = json_loadb((const char *)data + 8, length, JSON_REJECT_DUPLICATES, &json_error);
	if (!root)
		return error_set(error, ERROR_FILE, "%s: the header is not JSON at byte %d: %s",
				 where, json_error.position + 8, json_error.text);
	out->data_offset = 8 + length;
	reader.data_bytes = bytes - out->data_offset;
	rc = read_header(&reader, root, out);
	json_decref(root);
	if (rc)
		safetensors_fini(out);
	return rc;
}

void safetensors_fini(struct safetensors *file)
{
	pool_free(&file->pool);
	*file = (struct safetensors){0};
}

const char *safetensors_note(const struct safetensors *file, const char *key)
{
	for (size_t i = 0; i < file->note_count; i++)
		if (strcmp(file->notes[i].key, key) == 0)
			return file->notes[i].value;
	return NULL;
}

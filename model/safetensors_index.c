/* SPDX-License-Identifier: Apache-2.0 */
#include "model/safetensors.h"

#include "base/compare.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define ENDING ".safetensors"

/* An error that begins with the name of what is read. */
#define REFUSE(format, ...) error_set(error, ERROR_FILE, "%s: " format, where, ##__VA_ARGS__)

/* An index comes from elsewhere: it may only lead to a file beside itself. */
static bool plain_file_name(const char *name)
{
	size_t length = strlen(name), ending = strlen(ENDING);

	if (length <= ending || length > 255 || name[0] == '.')
		return false;
	for (const char *at = name; *at; at++)
		if (*at == '/' || *at == '\\' || (unsigned char)*at < 0x20 || *at == 0x7f)
			return false;
	return strcmp(name + length - ending, ENDING) == 0;
}

static int by_name(const void *left, const void *right)
{
	return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* One copy of every file name that occurs, ascending. */
static int collect_files(const json_t *map, struct safetensors_index *out, struct error *error)
{
	size_t count = json_object_size(map), n = 0;
	const char *key, **names = pool_array(&out->pool, count, sizeof(*names));
	json_t *value;

	out->files = pool_array(&out->pool, count, sizeof(*out->files));
	if (!pool_ok(&out->pool))
		return memory_error(error, "reading a safetensors index", count * sizeof(*names));
	json_object_foreach((json_t *)(uintptr_t)map, key, value) names[n++] =
		json_string_value(value);
	sort_items(names, n, by_name);
	for (size_t i = 0; i < n; i++) {
		if (i && strcmp(names[i], names[i - 1]) == 0)
			continue;
		out->files[out->file_count++] = pool_string(&out->pool, names[i]);
		if (!pool_ok(&out->pool))
			return memory_error(error, "reading a safetensors index", strlen(names[i]));
	}
	return 0;
}

static uint32_t file_number(const struct safetensors_index *index, const char *name)
{
	char **found =
		bsearch(&name, index->files, index->file_count, sizeof(*index->files), by_name);

	return (uint32_t)(found - index->files);
}

static int check_map(const json_t *map, const char *where, struct error *error)
{
	const char *key, *file;
	json_t *value;

	if (!json_is_object(map))
		return REFUSE("weight_map is missing or not an object");
	json_object_foreach((json_t *)(uintptr_t)map, key, value)
	{
		file = json_string_value(value);
		if (!file)
			return REFUSE("weight_map: the file of tensor %.200s is not a string", key);
		if (!plain_file_name(file))
			return REFUSE("weight_map: tensor %.200s is in file '%.200s', which is not "
				      "the plain name of a " ENDING " file beside the index",
				      key, file);
	}
	return 0;
}

static int read_index(const json_t *root, const char *where, struct safetensors_index *out,
		      struct error *error)
{
	const json_t *map = json_object_get(root, "weight_map");
	const char *key;
	json_t *value;
	int rc = check_map(map, where, error);

	if (rc == 0)
		rc = collect_files(map, out, error);
	if (rc)
		return rc;
	out->entries = pool_array(&out->pool, json_object_size(map), sizeof(*out->entries));
	if (!out->entries)
		return memory_error(error, "reading a safetensors index",
				    json_object_size(map) * sizeof(*out->entries));
	json_object_foreach((json_t *)(uintptr_t)map, key, value)
	{
		struct safetensors_index_entry *entry = &out->entries[out->count];

		entry->file = file_number(out, json_string_value(value));
		entry->name = pool_string(&out->pool, key);
		out->count++;
		if (!entry->name)
			return memory_error(error, "reading a safetensors index", strlen(key));
	}
	return 0;
}

int safetensors_index_decode(const char *text, size_t bytes, const char *where,
			     struct safetensors_index *out, struct error *error)
{
	json_error_t json_error;
	json_t *root;
	int rc;

	*out = (struct safetensors_index){0};
	if (bytes > SAFETENSORS_HEADER_MAX)
		return REFUSE("%zu bytes are too many for an index; at most %u are possible", bytes,
			      SAFETENSORS_HEADER_MAX);
	root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &json_error);
	if (!root)
		return REFUSE("not JSON at byte %d (line %d): %s", json_error.position,
			      json_error.line, json_error.text);
	rc = read_index(root, where, out, error);
	json_decref(root);
	if (rc)
		safetensors_index_fini(out);
	return rc;
}

void safetensors_index_fini(struct safetensors_index *index)
{
	pool_free(&index->pool);
	*index = (struct safetensors_index){0};
}

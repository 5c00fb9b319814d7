/* SPDX-License-Identifier: Apache-2.0
 *
 * live.c -- reads the list of an engine rank's parameters. Strict: whatever is not understood is
 * refused with its place, for a list that was read half would pass a comparison half.
 */
#include "model/live.h"

#include "base/file.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define PLACE_BYTES 320

/* An error that begins with the name of what is read. */
#define REFUSE(code, format, ...) error_set(error, code, "%s: " format, where, ##__VA_ARGS__)

/* torch's names; those of safetensors are known to dtype.h. */
static const struct dtype_row {
	const char *name;
	enum dtype dtype;
	uint32_t bytes; /* of an element that safetensors has no name for */
} dtype_rows[] = {
	{"bfloat16", DTYPE_BF16, 0},
	{"float16", DTYPE_F16, 0},
	{"half", DTYPE_F16, 0},
	{"float32", DTYPE_F32, 0},
	{"float", DTYPE_F32, 0},
	{"float64", DTYPE_F64, 0},
	{"double", DTYPE_F64, 0},
	{"float8_e4m3fn", DTYPE_F8_E4M3, 0},
	{"float8_e5m2", DTYPE_F8_E5M2, 0},
	{"bool", DTYPE_BOOL, 0},
	{"uint8", DTYPE_U8, 0},
	{"int8", DTYPE_I8, 0},
	{"uint16", DTYPE_U16, 0},
	{"int16", DTYPE_I16, 0},
	{"short", DTYPE_I16, 0},
	{"uint32", DTYPE_U32, 0},
	{"int32", DTYPE_I32, 0},
	{"int", DTYPE_I32, 0},
	{"uint64", DTYPE_U64, 0},
	{"int64", DTYPE_I64, 0},
	{"long", DTYPE_I64, 0},
	{"float8_e4m3fnuz", DTYPE_NONE, 1},
	{"float8_e5m2fnuz", DTYPE_NONE, 1},
	{"float8_e8m0fnu", DTYPE_NONE, 1},
	{"float4_e2m1fn_x2", DTYPE_NONE, 1},
	{"complex64", DTYPE_NONE, 8},
	{"complex128", DTYPE_NONE, 16},
};

/* Bytes of one element, or 0 when the name is unknown. */
static uint32_t find_dtype(const char *name, enum dtype *dtype, const char **text)
{
	static const char prefix[] = "torch.";

	if (strncasecmp(name, prefix, sizeof(prefix) - 1) == 0)
		name += sizeof(prefix) - 1;
	*dtype = dtype_from_text(name);
	for (size_t i = 0; *dtype == DTYPE_NONE && i < ARRAY_SIZE(dtype_rows); i++) {
		if (strcasecmp(dtype_rows[i].name, name) != 0)
			continue;
		*dtype = dtype_rows[i].dtype;
		*text = dtype_rows[i].name;
		if (*dtype == DTYPE_NONE)
			return dtype_rows[i].bytes;
	}
	if (*dtype == DTYPE_NONE)
		return 0;
	*text = dtype_name(*dtype);
	return dtype_bytes(*dtype);
}

static bool multiply(uint64_t *product, uint64_t factor)
{
	return !__builtin_mul_overflow(*product, factor, product) && *product < 1ull << 62;
}

static int check_name(const struct live *live, const char *name, const char *where,
		      struct error *error)
{
	uint32_t there;

	if (!name || !*name)
		return REFUSE(ERROR_FILE, "a parameter without a name");
	if (strlen(name) >= LIVE_NAME_MAX)
		return REFUSE(ERROR_LIMIT, "the name '%.40s...' has %zu bytes; at most %u", name,
			      strlen(name), LIVE_NAME_MAX - 1);
	if (strmap_get(&live->names, name, &there))
		return REFUSE(ERROR_FILE, "parameter %s stands there twice", name);
	if (live->params.count >= LIVE_PARAMS_MAX)
		return REFUSE(ERROR_LIMIT, "more than %u parameters", LIVE_PARAMS_MAX);
	return 0;
}

int live_add(struct live *live, const char *name, const char *dtype, uint32_t dims,
	     const uint64_t *shape, const char *where, struct error *error)
{
	struct live_param made = {.dims = dims};
	int rc = check_name(live, name, where, error);

	if (rc)
		return rc;
	made.bytes = dtype ? find_dtype(dtype, &made.dtype, &made.dtype_text) : 0;
	if (!made.bytes)
		return REFUSE(ERROR_FILE,
			      "%s: dtype '%.60s' is unknown; write torch's names (bfloat16, "
			      "float8_e4m3fn) or safetensors' (BF16, F8_E4M3)",
			      name, dtype ? dtype : "(null)");
	if (dims > LIVE_DIMS_MAX)
		return REFUSE(ERROR_LIMIT, "%s has %u dimensions; at most %u", name, dims,
			      LIVE_DIMS_MAX);
	for (uint32_t d = 0; d < dims; d++) {
		made.shape[d] = shape[d];
		if (!multiply(&made.bytes, shape[d]))
			return REFUSE(ERROR_FILE, "%s has 2^62 bytes or more", name);
	}
	made.name = pool_string(&live->pool, name);
	if (!made.name || !array_add(&live->params, made) ||
	    !strmap_put(&live->names, made.name, (uint32_t)live->params.count - 1))
		return memory_error(error, "reading an engine's parameters", strlen(name) + 1);
	return 0;
}

/* ---- one object ---- */

static int read_shape(const json_t *value, uint64_t shape[LIVE_DIMS_MAX], uint32_t *dims,
		      const char *where, struct error *error)
{
	if (!json_is_array(value))
		return REFUSE(ERROR_FILE, "\"shape\" must be a list of sizes");
	if (json_array_size(value) > LIVE_DIMS_MAX)
		return REFUSE(ERROR_LIMIT, "%zu dimensions; at most %u", json_array_size(value),
			      LIVE_DIMS_MAX);
	*dims = (uint32_t)json_array_size(value);
	for (uint32_t d = 0; d < *dims; d++) {
		const json_t *size = json_array_get(value, d);

		if (!json_is_integer(size) || json_integer_value(size) < 0)
			return REFUSE(ERROR_FILE,
				      "size %u of \"shape\" must be a whole number, 0 or more", d);
		shape[d] = (uint64_t)json_integer_value(size);
	}
	return 0;
}

static int check_keys(json_t *object, bool named, const char *where, struct error *error)
{
	static const char *const keys[] = {"name", "shape", "dtype", "bytes"};
	const char *key;
	json_t *value;

	if (!json_is_object(object))
		return REFUSE(ERROR_FILE, "a parameter must be an object");
	json_object_foreach(object, key, value)
	{
		bool known = false;

		for (size_t i = named ? 0 : 1; i < ARRAY_SIZE(keys) && !known; i++)
			known = strcmp(keys[i], key) == 0;
		if (!known)
			return REFUSE(ERROR_FILE,
				      "the key \"%.60s\" is unknown; %s\"shape\", \"dtype\" "
				      "and \"bytes\" are known",
				      key, named ? "\"name\", " : "");
	}
	return 0;
}

/* `name`: NULL when the object has it. */
static int read_param(struct live *live, json_t *object, const char *name, const char *where,
		      struct error *error)
{
	uint64_t shape[LIVE_DIMS_MAX] = {0};
	const json_t *dtype, *bytes;
	uint32_t dims = 0;
	int rc = check_keys(object, !name, where, error);

	if (rc)
		return rc;
	if (!name) {
		name = json_string_value(json_object_get(object, "name"));
		if (!name)
			return REFUSE(ERROR_FILE, "\"name\" must be a string");
	}
	dtype = json_object_get(object, "dtype");
	if (!json_is_string(dtype))
		return REFUSE(ERROR_FILE, "\"dtype\" of %.200s must be a string", name);
	rc = read_shape(json_object_get(object, "shape"), shape, &dims, where, error);
	if (!rc)
		rc = live_add(live, name, json_string_value(dtype), dims, shape, where, error);
	bytes = json_object_get(object, "bytes");
	if (rc || !bytes)
		return rc;
	if (!json_is_integer(bytes) || json_integer_value(bytes) < 0)
		return REFUSE(ERROR_FILE, "\"bytes\" of %.200s must be a whole number, 0 or more",
			      name);
	if ((uint64_t)json_integer_value(bytes) != live->params.items[live->params.count - 1].bytes)
		return REFUSE(ERROR_FILE, "%.200s says %lld bytes; its shape and dtype make %llu",
			      name, (long long)json_integer_value(bytes),
			      (unsigned long long)live->params.items[live->params.count - 1].bytes);
	return 0;
}

/* ---- the three forms ---- */

static int read_list(struct live *live, const json_t *list, const char *where, struct error *error)
{
	char place[PLACE_BYTES];
	int rc = 0;

	for (size_t i = 0; i < json_array_size(list) && !rc; i++) {
		snprintf(place, sizeof(place), "%.256s: entry %zu", where, i);
		rc = read_param(live, json_array_get(list, i), NULL, place, error);
	}
	return rc;
}

static int read_object(struct live *live, json_t *object, const char *where, struct error *error)
{
	const char *name;
	json_t *value;
	int rc;

	json_object_foreach(object, name, value)
	{
		char place[PLACE_BYTES];

		snprintf(place, sizeof(place), "%.200s: '%.80s'", where, name);
		rc = read_param(live, value, name, place, error);
		if (rc)
			return rc;
	}
	return 0;
}

static bool blank(const char *text, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (!strchr(" \t\r\n", text[i]) || !text[i])
			return false;
	return true;
}

/* NULL at the end. */
static const char *next_line(const char **text, size_t *bytes, size_t *length)
{
	const char *line = *text, *end = memchr(line, '\n', *bytes);
	size_t taken = end ? (size_t)(end - line) + 1 : *bytes;

	*length = end ? taken - 1 : taken;
	*text += taken;
	*bytes -= taken;
	return taken ? line : NULL;
}

static int bad_json(const char *where, const json_error_t *trouble, struct error *error)
{
	return REFUSE(ERROR_FILE, "no JSON (column %d): %s", trouble->column, trouble->text);
}

static int read_lines(struct live *live, const char *text, size_t bytes, const char *where,
		      struct error *error)
{
	char place[PLACE_BYTES];
	size_t number = 0, length;
	const char *line;
	int rc = 0;

	while (!rc && (line = next_line(&text, &bytes, &length))) {
		json_error_t trouble;
		json_t *object;

		snprintf(place, sizeof(place), "%.256s: line %zu", where, ++number);
		if (blank(line, length))
			continue;
		object = json_loadb(line, length, JSON_REJECT_DUPLICATES, &trouble);
		rc = object ? read_param(live, object, NULL, place, error)
			    : bad_json(place, &trouble, error);
		json_decref(object);
	}
	return rc;
}

/* A parameter's own object, and not one from names to objects. */
static bool is_param(const json_t *value)
{
	return json_is_string(json_object_get(value, "name"));
}

static bool first_line_is_param(const char *text, size_t bytes)
{
	const char *line;
	size_t length = 0;

	do
		line = next_line(&text, &bytes, &length);
	while (line && blank(line, length));
	json_t *value = line ? json_loadb(line, length, 0, NULL) : NULL;
	bool param = is_param(value);

	json_decref(value);
	return param;
}

static int read_any(struct live *live, const char *text, size_t bytes, const char *where,
		    struct error *error)
{
	char place[PLACE_BYTES];
	json_error_t trouble;
	json_t *root;
	int rc;

	if (first_line_is_param(text, bytes))
		return read_lines(live, text, bytes, where, error);
	root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &trouble);
	if (!root) {
		snprintf(place, sizeof(place), "%.256s: line %d", where, trouble.line);
		return bad_json(place, &trouble, error);
	}
	if (json_is_array(root)) {
		rc = read_list(live, root, where, error);
	} else if (is_param(root)) {
		rc = read_param(live, root, NULL, where, error);
	} else {
		rc = read_object(live, root, where, error);
	}
	json_decref(root);
	return rc;
}

int live_read(struct live *live, const char *bytes, size_t length, const char *where,
	      struct error *error)
{
	int rc;

	if (length > LIVE_BYTES_MAX)
		return REFUSE(ERROR_LIMIT,
			      "%zu bytes are too many for a list of parameters; at most %u", length,
			      LIVE_BYTES_MAX);
	rc = read_any(live, bytes ? bytes : "", length, where, error);
	if (!rc && !live->params.count)
		rc = REFUSE(ERROR_FILE, "no parameter in it");
	if (rc)
		live_fini(live);
	return rc;
}

int live_read_file(struct live *live, const char *path, struct error *error)
{
	struct file_map map;
	int rc = file_map_open(&map, path, error);

	if (rc)
		return rc;
	rc = live_read(live, (const char *)map.data, map.bytes, path, error);
	file_map_close(&map);
	return rc;
}

void live_fini(struct live *live)
{
	pool_free(&live->pool);
	array_free(&live->params);
	strmap_fini(&live->names);
	*live = (struct live){0};
}

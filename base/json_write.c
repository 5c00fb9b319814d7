/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json_write.h"

#include "base/plain.h"
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

void json_to_file(struct json *json, FILE *file)
{
	*json = (struct json){.file = file};
}

void json_to_text(struct json *json, struct text *text)
{
	*json = (struct json){.text = text};
}

static void raw(struct json *json, const char *data, size_t bytes)
{
	if (json->file)
		fwrite(data, 1, bytes, json->file);
	else
		text_add_bytes(json->text, data, bytes);
}

/* Before any value: the comma that separates it from the one before. */
static void separate(struct json *json)
{
	if (json->after_key)
		json->after_key = false;
	else if (json->comma[json->depth])
		raw(json, ",", 1);
	json->comma[json->depth] = true;
}

static void enter(struct json *json, const char *bracket)
{
	separate(json);
	raw(json, bracket, 1);
	assert(json->depth + 1 < JSON_DEPTH_MAX);
	json->comma[++json->depth] = false;
}

static void leave(struct json *json, const char *bracket)
{
	assert(json->depth > 0 && !json->after_key);
	json->depth--;
	raw(json, bracket, 1);
}

void json_put_object(struct json *json)
{
	enter(json, "{");
}

void json_put_object_end(struct json *json)
{
	leave(json, "}");
}

void json_put_array(struct json *json)
{
	enter(json, "[");
}

void json_put_array_end(struct json *json)
{
	leave(json, "]");
}

/* What stands for the character that `value` begins with; returns false: itself. */
static bool escaped(const char *value, const struct plain_character *first, char out[8])
{
	static const char short_forms[] = "\bb\ff\nn\rr\tt\"\"\\\\";

	if (first->plain && first->code != '"' && first->code != '\\')
		return false;
	for (const char *form = short_forms; *form; form += 2) {
		if (*form != *value)
			continue;
		snprintf(out, 8, "\\%c", form[1]);
		return true;
	}
	/* U+FFFD, "replacement": JSON has no way to write bytes */
	snprintf(out, 8, "\\u%04x", first->utf8 ? (unsigned)first->code : 0xfffd);
	return true;
}

static void quoted(struct json *json, const char *value)
{
	const char *plain = value;

	raw(json, "\"", 1);
	while (*value) {
		struct plain_character first;
		char out[8];

		if (*value >= 0x20 && *value < 0x7f && *value != '"' && *value != '\\') {
			value++;
			continue;
		}
		first = plain_first(value);
		if (escaped(value, &first, out)) {
			raw(json, plain, (size_t)(value - plain));
			raw(json, out, strlen(out));
			plain = value + first.bytes;
		}
		value += first.bytes;
	}
	raw(json, plain, (size_t)(value - plain));
	raw(json, "\"", 1);
}

void json_put_key(struct json *json, const char *key)
{
	assert(!json->after_key && json->depth > 0);
	separate(json);
	quoted(json, key);
	raw(json, ":", 1);
	json->after_key = true;
}

void json_put_string(struct json *json, const char *value)
{
	separate(json);
	quoted(json, value);
}

__attribute__((format(printf, 2, 3))) static void literal(struct json *json, const char *format,
							  ...)
{
	char out[40];
	va_list args;

	va_start(args, format);
	vsnprintf(out, sizeof(out), format, args);
	va_end(args);
	separate(json);
	raw(json, out, strlen(out));
}

void json_put_u64(struct json *json, uint64_t value)
{
	literal(json, "%" PRIu64, value);
}

void json_put_i64(struct json *json, int64_t value)
{
	literal(json, "%" PRId64, value);
}

void json_put_double(struct json *json, double value)
{
	if (isfinite(value))
		literal(json, "%.9g", value);
	else
		json_put_null(json);
}

void json_put_bool(struct json *json, bool value)
{
	literal(json, value ? "true" : "false");
}

void json_put_null(struct json *json)
{
	literal(json, "null");
}

void json_put_newline(struct json *json)
{
	if (json->depth == 0)
		json->comma[0] = false;
	if (json->file)
		fputc('\n', json->file);
	else
		text_add(json->text, "\n");
}

void json_put_key_string(struct json *json, const char *key, const char *value)
{
	json_put_key(json, key);
	json_put_string(json, value);
}

void json_put_key_u64(struct json *json, const char *key, uint64_t value)
{
	json_put_key(json, key);
	json_put_u64(json, value);
}

void json_put_key_double(struct json *json, const char *key, double value)
{
	json_put_key(json, key);
	json_put_double(json, value);
}

void json_put_key_bool(struct json *json, const char *key, bool value)
{
	json_put_key(json, key);
	json_put_bool(json, value);
}

void json_put_line(struct json *json, FILE *file)
{
	json_to_file(json, file);
	json_put_object(json);
}

void json_put_line_end(struct json *json)
{
	json_put_object_end(json);
	json_put_newline(json);
}

void json_put_key_object(struct json *json, const char *key)
{
	json_put_key(json, key);
	json_put_object(json);
}

void json_put_key_array(struct json *json, const char *key)
{
	json_put_key(json, key);
	json_put_array(json);
}

void json_put_key_u64s(struct json *json, const char *key, const uint64_t *values, size_t count)
{
	json_put_key_array(json, key);
	for (size_t i = 0; i < count; i++)
		json_put_u64(json, values[i]);
	json_put_array_end(json);
}

void json_put_key_u32s(struct json *json, const char *key, const uint32_t *values, size_t count)
{
	json_put_key_array(json, key);
	for (size_t i = 0; i < count; i++)
		json_put_u64(json, values[i]);
	json_put_array_end(json);
}

void json_put_range(struct json *json, uint64_t lo, uint64_t hi)
{
	json_put_array(json);
	json_put_u64(json, lo);
	json_put_u64(json, hi);
	json_put_array_end(json);
}

void json_put_key_range(struct json *json, const char *key, uint64_t lo, uint64_t hi)
{
	json_put_key_u64s(json, key, (const uint64_t[]){lo, hi}, 2);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * json_write.h -- JSON out: canonical (no spaces, keys in the order written, shortest form of
 * numbers), to a FILE or a text. Misuse (a value without its key) is an assert. The verb is
 * `put` because jansson, which reads JSON, owns names like json_object().
 */
#ifndef BASE_JSON_WRITE_H
#define BASE_JSON_WRITE_H

#include "base/text.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define JSON_DEPTH_MAX 16

struct json {
	FILE *file;        /* one of file and text is set */
	struct text *text;
	int depth;
	bool comma[JSON_DEPTH_MAX];
	bool after_key;
};

void json_to_file(struct json *json, FILE *file);
void json_to_text(struct json *json, struct text *text);
void json_put_object(struct json *json);
void json_put_object_end(struct json *json);
void json_put_array(struct json *json);
void json_put_array_end(struct json *json);
void json_put_key(struct json *json, const char *key);
/* UTF-8 as it is where it is plain (base/plain.h), else escaped; what is no UTF-8 becomes U+FFFD */
void json_put_string(struct json *json, const char *value);
void json_put_u64(struct json *json, uint64_t value);
void json_put_i64(struct json *json, int64_t value);
void json_put_double(struct json *json, double value); /* %.9g; not finite becomes null */
void json_put_bool(struct json *json, bool value);
void json_put_null(struct json *json);
/* A line break. At the top level what follows is a value of its own, so
 * JSON lines are values with line breaks between them. */
void json_put_newline(struct json *json);

/* One value a line, for programs: {..} and its line break. */
void json_put_line(struct json *json, FILE *file);
void json_put_line_end(struct json *json);

/* key and value in one; of objects and arrays their beginning */
void json_put_key_object(struct json *json, const char *key);
void json_put_key_array(struct json *json, const char *key);
void json_put_key_string(struct json *json, const char *key, const char *value);
void json_put_key_u64(struct json *json, const char *key, uint64_t value);
void json_put_key_double(struct json *json, const char *key, double value);
void json_put_key_bool(struct json *json, const char *key, bool value);
void json_put_key_u64s(struct json *json, const char *key, const uint64_t *values, size_t count);
void json_put_key_u32s(struct json *json, const char *key, const uint32_t *values, size_t count);
void json_put_range(struct json *json, uint64_t lo, uint64_t hi); /* [lo, hi] */
void json_put_key_range(struct json *json, const char *key, uint64_t lo, uint64_t hi);

#endif

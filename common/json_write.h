/* SPDX-License-Identifier: Apache-2.0
 *
 * json_write.h -- JSON out: canonical (no spaces, keys in the order written, shortest form of
 * numbers), to a FILE or a text. Misuse (a value without its key) is an assert.
 */
#ifndef COMMON_JSON_WRITE_H
#define COMMON_JSON_WRITE_H

#include "common/text.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define JSON_DEPTH_MAX 16

struct json {
	FILE *file;        /* one of file and text is set */
	struct text *text;
	struct digest_stream *digest; /* optional: everything written also goes in here */
	int depth;
	bool comma[JSON_DEPTH_MAX];
	bool after_key;
};

void json_to_file(struct json *json, FILE *file);
void json_to_text(struct json *json, struct text *text);
void json_object(struct json *json);
void json_object_end(struct json *json);
void json_array(struct json *json);
void json_array_end(struct json *json);
void json_key(struct json *json, const char *key);
void json_string(struct json *json, const char *value); /* escapes; bytes >= 0x80 as they are */
void json_u64(struct json *json, uint64_t value);
void json_i64(struct json *json, int64_t value);
void json_double(struct json *json, double value); /* %.9g; not finite becomes null */
void json_bool(struct json *json, bool value);
void json_newline(struct json *json); /* a line break between values; not part of a digest */

/* key and value in one */
void json_key_string(struct json *json, const char *key, const char *value);
void json_key_u64(struct json *json, const char *key, uint64_t value);
void json_key_double(struct json *json, const char *key, double value);
void json_key_bool(struct json *json, const char *key, bool value);

#endif

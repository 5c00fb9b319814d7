/* SPDX-License-Identifier: Apache-2.0
 *
 * json_read.h -- the strict reading of JSON that weft writes, or that a person wrote for it. Each
 * function takes its key from an object and refuses what is not as it must be, saying where.
 * Errors are sticky, as in wire/reader.h: after the first one nothing is read and the same is
 * answered, so callers look once, before they use what was read.
 */
#ifndef MODEL_JSON_READ_H
#define MODEL_JSON_READ_H

#include "base/error.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Where the reader is: "routes[12].pieces[0]"; index SIZE_MAX: "summary". */
struct json_place {
	const char *list;
	size_t index;
	const char *inner;
	size_t inner_index;
};

struct json_reader {
	const char *name;    /* of the file; NULL: the caller puts it before the message */
	struct json_place at;
	struct error *error;
	int failed;          /* 0, or the negative code of the first error */
};

/* "FILE: routes[12].pieces[0]: <message>", ERROR_FILE */
int json_refuse(struct json_reader *r, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Takes over what another function answered. */
int json_failed(struct json_reader *r, int rc);

/* Groups of keys: of "a|b" exactly one is needed, of a group that ends in '|' at most one. What is
 * checked first is told first of an object that is wrong in both ways. */
int json_known_keys(struct json_reader *r, json_t *object, const char *const *groups);
int json_needed_keys(struct json_reader *r, json_t *object, const char *const *groups);

int json_take_number(struct json_reader *r, json_t *object, const char *key, uint64_t least,
		     uint64_t most, uint64_t *out);
int json_take_number32(struct json_reader *r, json_t *object, const char *key, uint32_t most,
		       uint32_t *out);
int json_take_bool(struct json_reader *r, json_t *object, const char *key, bool *out);
int json_take_ratio(struct json_reader *r, json_t *object, const char *key, double *out);
int json_take_string(struct json_reader *r, json_t *object, const char *key, const char **out);
int json_take_list(struct json_reader *r, json_t *object, const char *key, json_t **out);

#endif

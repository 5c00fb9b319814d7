/* SPDX-License-Identifier: Apache-2.0
 *
 * dump_value.h -- the strict reading of one JSON value of a dump, inside routing/. Each function
 * takes its key from an object and refuses what is not as it must be, saying where. Errors are
 * sticky, as in wire/reader.h: after the first one nothing is read and the same is answered, so
 * callers look once, before they use what was read.
 */
#ifndef ROUTING_REPORT_DUMP_VALUE_H
#define ROUTING_REPORT_DUMP_VALUE_H

#include "job/strmap.h"
#include "routing/report/dump_read.h"
#include <jansson.h>

#define DUMP_VALUE_MAX (UINT64_C(1) << 62) /* of any number of bytes */

/* Where in the dump the reader is: "routes[12].pieces[0]"; index SIZE_MAX: "summary". */
struct dump_place {
	const char *list;
	size_t index;
	const char *inner;
	size_t inner_index;
};

struct dump_reader {
	struct dump *dump;
	const char *name;    /* of the file */
	struct dump_place at;
	struct strmap known; /* name -> index into dump.names */
	struct error *error;
	int failed;          /* 0, or the negative code of the first error */
};

/* "FILE: routes[12].pieces[0]: <message>", ERROR_FILE */
int dump_refuse(struct dump_reader *r, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
int dump_no_memory(struct dump_reader *r, size_t bytes);
/* Takes over what another function answered. */
int dump_failed(struct dump_reader *r, int rc);

/* The object has all of `needed` and nothing else than these and `optional` (may be NULL). */
int dump_keys(struct dump_reader *r, json_t *object, const char *const *needed,
	      const char *const *optional);
int dump_number(struct dump_reader *r, json_t *object, const char *key, uint64_t max,
		uint64_t *out);
int dump_number32(struct dump_reader *r, json_t *object, const char *key, uint32_t max,
		  uint32_t *out);
int dump_bool(struct dump_reader *r, json_t *object, const char *key, bool *out);
int dump_ratio(struct dump_reader *r, json_t *object, const char *key, double *out);
int dump_string(struct dump_reader *r, json_t *object, const char *key, const char **out);
int dump_copy(struct dump_reader *r, json_t *object, const char *key, char **out);
int dump_list(struct dump_reader *r, json_t *object, const char *key, json_t **out);
int dump_path(struct dump_reader *r, json_t *object, enum route_path *out);
/* The index of a name in dump.names, each kept once. */
int dump_name(struct dump_reader *r, json_t *object, const char *key, uint32_t *out);

/* "make", "to" and "scales" of a piece, none for a copy: a number in dump.transformed
 * (dump_transformed.c). */
int dump_take_transformed(struct dump_reader *r, json_t *piece, uint32_t *out);
/* Adds to dump.made; the first is the copy. */
int dump_add_transformed(struct dump *dump, const struct problem_transformed *transformed,
			 struct error *error);

/* The value of "summary", into dump.report (dump_summary.c). */
int dump_take_summary(struct dump_reader *r, json_t *summary);

#endif

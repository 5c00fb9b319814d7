/* SPDX-License-Identifier: Apache-2.0
 *
 * dump_value.h -- what a dump's values need beside json_read.h, inside routing/report.
 */
#ifndef ROUTING_REPORT_DUMP_VALUE_H
#define ROUTING_REPORT_DUMP_VALUE_H

#include "base/json_write.h"
#include "model/json_read.h"
#include "routing/report/dump_read.h"

#define DUMP_VALUE_MAX (UINT64_C(1) << 62) /* of any number of bytes */

int dump_no_memory(struct json_reader *r, size_t bytes);
/* The object has all keys, but those that end in '|' may be missing, and nothing else. */
int dump_keys(struct json_reader *r, json_t *object, const char *const *keys);
int dump_copy(struct json_reader *r, struct dump *dump, json_t *object, const char *key,
	      const char **out);
int dump_path(struct json_reader *r, json_t *object, enum route_path *out);
/* The index of a name in dump.names, each kept once: routes repeat them by the million. */
int dump_name_index(struct dump *dump, const char *name, uint32_t *out, struct error *error);
int dump_name(struct json_reader *r, struct dump *dump, json_t *object, const char *key,
	      uint32_t *out);

/* "make", "to" and "scales" of a piece, none for a copy: a number in dump.transformed
 * (dump_transformed.c). */
int dump_take_transformed(struct json_reader *r, struct dump *dump, json_t *piece, uint32_t *out);
/* Adds to dump.made; the first is the copy. */
int dump_add_transformed(struct dump *dump, const struct problem_transformed *transformed,
			 struct error *error);

/* "transports", if there are any, into dump.labels.pairs; ranks are known (dump_pairs.c). */
int dump_take_pairs(struct json_reader *r, struct dump *dump, json_t *root);
/* A route's "transport" is what they say. */
int dump_check_pair(struct json_reader *r, const struct dump *dump, json_t *object,
		    const struct route *route);
void dump_put_pairs(struct json *json, const struct pairs *pairs);
/* Into problem.pairs, with what the routes show: `direct` anywhere on a transport means registered with
 * it, `mapped` means mapped. */
int dump_pair_facts(const struct dump *dump, struct problem *problem, struct error *error);

/* The value of "summary", into dump.report (dump_summary.c). */
int dump_take_summary(struct json_reader *r, struct dump *dump, json_t *summary);

#endif

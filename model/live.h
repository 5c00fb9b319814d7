/* SPDX-License-Identifier: Apache-2.0
 *
 * live.h -- the parameters that a running engine rank really has, and how they differ from the
 * ones that a layout writes to.
 *
 *   engine ── named_parameters() ──► file ── live_read ──► live ─┐
 *   model, infer spec, rank ── model_layout ──► layout ──────────┴─ live_compare ──► report
 *
 * The file is a JSON list of objects, one JSON object from names to objects, or JSON lines:
 *
 *   {"name": "model.norm.weight", "shape": [2048], "dtype": "torch.bfloat16", "bytes": 4096}
 *
 * "name" stands in lists and lines only; "bytes" may be left out, and must be right when it is
 * there. dtypes are torch's names, with or without "torch.", or those of safetensors.
 */
#ifndef MODEL_LIVE_H
#define MODEL_LIVE_H

#include "base/array.h"
#include "base/error.h"
#include "base/pool.h"
#include "job/layout.h"
#include "job/strmap.h"
#include <stddef.h>
#include <stdint.h>

#define LIVE_BYTES_MAX  (64u << 20) /* of the file */
#define LIVE_PARAMS_MAX 1000000u
#define LIVE_NAME_MAX   1024u       /* bytes of a name */
#define LIVE_DIMS_MAX   8u

struct live_param {
	char *name;
	enum dtype dtype;         /* DTYPE_NONE: one that weft cannot write */
	const char *dtype_text;   /* "BF16", "float8_e8m0fnu"; static */
	uint32_t dims;            /* 0: a scalar */
	uint64_t shape[LIVE_DIMS_MAX], bytes;
};

/* Zeroed: empty. */
struct live {
	struct pool pool;                /* owns the names */
	ARRAY(struct live_param) params; /* as the list has them */
	struct strmap names;             /* to the index */
};

/* Pure. `where` names the file in messages: ERROR_FILE says file, line or entry, and what is
 * wrong with it; ERROR_LIMIT. Empty after a failure. */
int live_read(struct live *live, const char *bytes, size_t length, const char *where,
	      struct error *error);
int live_read_file(struct live *live, const char *path, struct error *error);
/* One more: `where` names the place for the message. ERROR_FILE as above. */
int live_add(struct live *live, const char *name, const char *dtype, uint32_t dims,
	     const uint64_t *shape, const char *where, struct error *error);
void live_fini(struct live *live);

/* Zeroed before live_compare; strings are owned by the report. */
struct live_report {
	struct pool pool;          /* owns the strings */
	ARRAY(char *) differences; /* one line each: the name, what the layout has, what the
				      engine has, and the option that would agree where one is known */
	ARRAY(char *) left_alone;  /* names of engine parameters that have no source by design */
	size_t equal;              /* parameters with the same name, shape and dtype */
};

/* Differences in layout order, then what only the engine has in the list's order. 0 also when
 * there are differences: look at the report. Only memory can run out. */
int live_compare(const struct live *live, const struct layout *layout, struct live_report *report,
		 struct error *error);
void live_report_fini(struct live_report *report);

#endif

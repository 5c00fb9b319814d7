/* SPDX-License-Identifier: Apache-2.0
 *
 * scenario.h -- runs that somebody published, as data: routing/lab/scenarios/published.json. The
 * build puts the file's bytes into the library (so it is found from the build tree and after an
 * install alike) and installs the file too, for others to read.
 */
#ifndef ROUTING_LAB_SCENARIO_H
#define ROUTING_LAB_SCENARIO_H

#include "base/pool.h"
#include <stddef.h>

#define SCENARIO_SCHEMA "weft.scenarios/1"

struct scenario {
	const char *name, *model, *train, *infer, *topology; /* of the pool */
	const char *cut, *cut_model, *cut_infer;       /* the same of trainers that hold shards, and gather nothing */
	double nccl_seconds, rdma_seconds;             /* as measured by their authors */
};

struct scenarios {
	struct scenario *items;
	size_t count, capacity;
	struct pool pool;
};

/* ERROR_FILE says which scenario lacks what; `name` stands for the text. */
int scenarios_parse(struct scenarios *scenarios, const char *text, size_t bytes,
		    const char *name, struct error *error);
int scenarios_published(struct scenarios *scenarios, struct error *error);
/* Keeps the one of that name (NULL: all); ERROR_USAGE, as of --row, lists those there are. */
int scenarios_select(struct scenarios *scenarios, const char *name, struct error *error);
void scenarios_fini(struct scenarios *scenarios);

/* The bytes of routing/lab/scenarios/published.json; made by the build. */
extern const unsigned char scenario_published_json[];
extern const size_t scenario_published_bytes;

#endif

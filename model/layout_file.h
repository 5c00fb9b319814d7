/* SPDX-License-Identifier: Apache-2.0
 *
 * layout_file.h -- a model as a file says it (docs/layout-file.md): the tensors of its checkpoint
 * and, for the engines of one --infer spec, each rank's parameters and what they are made of.
 *
 *   {"name": "qkv.weight", "dtype": "BF16", "shape": [96, 64], "pieces": [
 *       {"tensor": "q.weight", "src": [[0, 64, 64], [0, 64]]},    rank k takes rows 64 k .. 64 + 64 k
 *       {"tensor": "kv.weight", "src": [[0, 32, 32], [0, 64]]}]}  and puts its kv rows below them
 *
 * The pieces of a parameter stand one after the other, so their offsets follow from what they are. One
 * entry serves all ranks whose pieces differ by a step alone; others have an entry each. In memory
 * an entry stays as short as it is in the file: model_layout writes one rank's out.
 */
#ifndef MODEL_LAYOUT_FILE_H
#define MODEL_LAYOUT_FILE_H

#include "base/array.h"
#include "base/error.h"
#include "base/pool.h"
#include "job/box.h"
#include "job/dtype.h"
#include "job/layout.h"
#include "job/parallel.h"
#include "job/transform.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct model;

#define LAYOUT_FILE_SCHEMA "weft.layout/1"
/* What a folder calls it; there it stands for the config.json. */
#define LAYOUT_FILE_NAME "weft.layout.json"
/* For whoever refuses a model that no row knows. */
#define LAYOUT_FILE_HINT                                                                      \
	"any model can be described in a file that is given in the place of its name (`weft " \
	"model layout --from FILE` checks it, docs/layout-file.md shows how one is made)"

/* A hostile file costs no more than these: some 300 MB of pieces. */
#define LAYOUT_FILE_BYTES_MAX  (UINT64_C(1) << 30)
#define LAYOUT_FILE_PIECES_MAX 2000000u	 /* of all entries */
#define LAYOUT_FILE_PARAMS_MAX 1000000u	 /* entries */
#define LAYOUT_FILE_RANKS_MAX  16000000u /* in the "ranks" of all entries */
#define LAYOUT_FILE_NAME_BYTES 512	 /* of a tensor or parameter, with terminator */
#define LAYOUT_FILE_LEFT_MAX   1024u /* beginnings of names in "left_alone" */
#define LAYOUT_FILE_VALUE_MAX  (UINT64_C(1) << 62)

#define LAYOUT_FILL UINT32_MAX

struct layout_item {
	uint32_t tensor; /* index into the model's; LAYOUT_FILL: bytes without a source */
	uint32_t scales; /* with transform.from_rows, the tensor of its scales */
	struct box src;	 /* at place 0 */
	uint64_t step[BOX_DIMS_MAX]; /* place k: lo and hi are k steps further */
	uint64_t bytes;		     /* of a fill */
	struct transform transform;
};

struct layout_place {
	uint32_t rank, place;
};

struct layout_entry {
	char *name;
	enum dtype dtype;
	uint32_t dims;
	uint64_t shape[BOX_DIMS_MAX];
	size_t item_first, item_count;
	size_t rank_first, rank_count; /* rising ranks; 0: all ranks, each at its own place */
	uint32_t places;	       /* above the highest place */
};

struct layout_file {
	struct infer_spec infer; /* engines is 1: it fits any number of them */
	struct pool names;
	ARRAY(struct layout_entry) entries;
	ARRAY(struct layout_item) items;
	ARRAY(struct layout_place) ranks;
	ARRAY(char *) left_alone; /* what names begin with that a checkpoint may have too */
};

/* Is this a file of our own (a JSON object with a "schema" of weft's), and no config.json? */
int layout_file_is(const char *path, bool *is, struct error *error);
/* model_open for a path that must be such a file; without a '/' too. */
int layout_file_open(struct model **model, const char *path, struct error *error);
/* The same from text; `name` stands for the file in messages. */
int layout_file_parse(struct model **model, const char *text, size_t bytes, const char *name,
		      struct error *error);
void layout_file_free(struct layout_file **file);

/* May a checkpoint have a tensor of that name, which the file does not list? */
bool layout_file_leaves(const struct layout_file *file, const char *name);

/* model_layout of a model that came from a file. */
int layout_file_layout(const struct model *model, const struct infer_spec *infer,
		       uint32_t engine_rank, struct layout *layout, struct error *error);
/* One entry at one place: its parameter, its pieces and the tensors that are not there yet. */
int layout_file_add(const struct model *model, const struct layout_entry *entry, uint32_t place,
		    struct layout *layout, struct error *error);
/* ERROR_CONFIG, with the spec that would fit, when the file is for other engines. */
int layout_file_fits(const struct model *model, const struct infer_spec *infer,
		     struct error *error);

/* The file of any model and spec (of its engines, one): ranks that differ by steps share entries.
 * What it says reads back to the same layouts, digest for digest. The caller looks at ferror(). */
int layout_file_write(const struct model *model, const struct infer_spec *infer, FILE *stream,
		      struct error *error);

#endif

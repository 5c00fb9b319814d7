/* SPDX-License-Identifier: Apache-2.0
 *
 * model_verbs.h -- the verbs of `weft model` that have a file of their own, and what they share.
 */
#ifndef CLI_MODEL_VERBS_H
#define CLI_MODEL_VERBS_H

#include "base/json_write.h"
#include "cli/verb.h"
#include <stdint.h>

/* A class that no row knows, read as one that is known. */
#define ROW_AS \
	TEXT(as, "as", "FAMILY", \
	     "read the folder's or file's model as one of this family, as llama, whatever class " \
	     "its config names")

extern const struct verb model_check_verb, model_holding_verb, model_layout_verb, model_memory_verb;

#define MODEL_NEEDED                                                  \
	"name a model: a built-in one (see `weft model list`), or a " \
	"folder, config.json or layout file"

#define MODEL_SHAPE_BYTES 96
/* "[4096, 512]" into out; returns out. */
char *model_shape_text(uint32_t dims, const uint64_t *shape, char out[MODEL_SHAPE_BYTES]);

/* --infer and --rank of one inference rank. */
struct infer_spec;
struct model;
int model_rank(const char *infer_text, const char *rank_text, struct infer_spec *infer,
	       uint32_t *rank, struct error *error);

/* weft model layout of all ranks: into a layout file; a line each, of a layout file. */
int model_layout_output(const struct model *model, const struct infer_spec *infer, const char *path,
			struct error *error);
int model_layout_check(const struct model *model, const struct infer_spec *infer, const char *path,
		       struct error *error);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint.h -- a HuggingFace checkpoint on disk: one model.safetensors, or shards named by
 * model.safetensors.index.json, mapped read-only.
 */
#ifndef MODEL_CHECKPOINT_H
#define MODEL_CHECKPOINT_H

#include "job/dtype.h"
#include "base/error.h"
#include "job/box.h"
#include "model/safetensors.h"
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct model;

struct checkpoint_tensor {
	const char *name;          /* owned by the checkpoint */
	enum dtype dtype;
	uint32_t dims;
	uint64_t shape[SAFETENSORS_DIMS_MAX];
	const unsigned char *data; /* mapped; row-major; valid until checkpoint_close */
	uint64_t bytes;
	uint32_t file;             /* index of the file it lies in */
};

struct checkpoint;

/* `path`: a folder, a .safetensors file or an index.json. Every malformed file is refused by
 * name and byte offset (ERROR_FILE). Reading is thread safe after open. The files must not be
 * cut while they are mapped: reading past the new end kills the process (SIGBUS). */
int checkpoint_open(struct checkpoint **checkpoint, const char *path, struct error *error);
void checkpoint_close(struct checkpoint **checkpoint);
/* Tensors stand by file, then by place in it: checkpoint order for the ones made here. */
size_t checkpoint_count(const struct checkpoint *checkpoint);
const struct checkpoint_tensor *checkpoint_at(const struct checkpoint *checkpoint, size_t i);
const struct checkpoint_tensor *checkpoint_find(const struct checkpoint *checkpoint,
						const char *name);
uint64_t checkpoint_bytes(const struct checkpoint *checkpoint); /* of all tensors */
size_t checkpoint_file_count(const struct checkpoint *checkpoint);
const char *checkpoint_file(const struct checkpoint *checkpoint, size_t i); /* plain name */
const char *checkpoint_folder(const struct checkpoint *checkpoint); /* where its files lie */
/* A __metadata__ value that every file states alike; NULL when one does not. */
const char *checkpoint_note(const struct checkpoint *checkpoint, const char *key);
#define CHECKPOINT_SEED_NOTE     "weft.seed"     /* of a made checkpoint */
#define CHECKPOINT_CONTENTS_NOTE "weft.contents" /* the recipe of content.h: "1" */

/* The tensor is there with that dtype and shape; else ERROR_FILE says what is, and that `who` (a
 * model's name) needs it. */
int checkpoint_has(const struct checkpoint *checkpoint, const char *name, enum dtype dtype,
		   uint32_t dims, const uint64_t *shape, const char *who, struct error *error);

/* Every tensor of the model is there with the model's dtype and shape, and nothing else is
 * (but a tied model's lm_head.weight, and what checkpoint_leaves). ERROR_FILE names the first difference. */
int checkpoint_matches(const struct checkpoint *checkpoint, const struct model *model,
		       struct error *error);

/* Every byte is what content.h makes of `seed`; ERROR_CHECKSUM names the first that is not. */
int checkpoint_verify_contents(const struct checkpoint *checkpoint, uint64_t seed, bool quiet,
			       const volatile sig_atomic_t *stop, struct error *error);

/* Writes a whole folder (config.json or weft.layout.json, safetensors in checkpoint order, an index when there are
 * several files) with the contents of content.h. A file holds at most shard_bytes of tensors,
 * or one larger tensor; 0 means one file. The folder appears whole or not at all: it is written
 * beside, as .NAME.weft-partial, then renamed; what an interrupted run left there is reused. An
 * existing folder is refused unless `replace`, and even then if it holds a file that is not
 * part of a checkpoint written here. */
int checkpoint_make(const struct model *model, const char *folder, uint64_t seed,
		    uint64_t shard_bytes, bool replace, bool quiet, struct error *error);
/* The same; ends with ERROR_INTERRUPTED, leaving nothing, soon after *stop becomes non-zero. */
int checkpoint_make_until(const struct model *model, const char *folder, uint64_t seed,
			  uint64_t shard_bytes, bool replace, bool quiet,
			  const volatile sig_atomic_t *stop, struct error *error);

#endif

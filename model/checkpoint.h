/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint.h -- a HuggingFace checkpoint on disk: one model.safetensors, or shards named by
 * model.safetensors.index.json, mapped read-only.
 */
#ifndef MODEL_CHECKPOINT_H
#define MODEL_CHECKPOINT_H

#include "common/dtype.h"
#include "common/error.h"
#include "common/box.h"
#include <stddef.h>
#include <stdint.h>

struct model;

struct checkpoint_tensor {
	const char *name;          /* owned by the checkpoint */
	enum dtype dtype;
	uint32_t dims;
	uint64_t shape[BOX_DIMS_MAX];
	const unsigned char *data; /* mapped; row-major; valid until checkpoint_close */
	uint64_t bytes;
	uint32_t file;             /* index of the file it lies in */
};

struct checkpoint;

/* `path`: a folder, a .safetensors file or an index.json. Every malformed file is refused by
 * name and byte offset (ERROR_FILE). Reading is thread safe after open. */
int checkpoint_open(struct checkpoint **checkpoint, const char *path, struct error *error);
void checkpoint_close(struct checkpoint **checkpoint);
size_t checkpoint_count(const struct checkpoint *checkpoint);
const struct checkpoint_tensor *checkpoint_at(const struct checkpoint *checkpoint, size_t i);
const struct checkpoint_tensor *checkpoint_find(const struct checkpoint *checkpoint,
						const char *name);
/* Every tensor of the model is there with the model's dtype and shape, and nothing else is
 * (a tied model's lm_head.weight is allowed). ERROR_FILE names the first difference. */
int checkpoint_matches(const struct checkpoint *checkpoint, const struct model *model,
		       struct error *error);

/* Writes a whole folder (config.json, safetensors in checkpoint order, an index when there are
 * several files of at most shard_bytes; 0 means one file) with the contents of content.h. The
 * folder appears whole or not at all (written beside, then renamed); an existing one is refused unless `replace`. */
int checkpoint_make(const struct model *model, const char *folder, uint64_t seed,
		    uint64_t shard_bytes, bool replace, bool quiet, struct error *error);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * beside.h -- one tensor of the checkpoint that lies beside a config.json, for what the config does not say
 * of it: the dtype of a bias, whether there is an lm_head.
 *
 *   config.json                       read
 *   model.safetensors.index.json      says which file, where there are several
 *   model-00003-of-00003.safetensors  mapped, its header read
 */
#ifndef MODEL_BESIDE_H
#define MODEL_BESIDE_H

#include "base/file.h"
#include "model/safetensors.h"
#include <stdbool.h>

struct beside {
	struct file_map map;
	struct safetensors header;
	const struct safetensors_entry *entry;
};

/* The first tensor whose name ends with `tail`, of the checkpoint beside the config.json at `path`. False: there is none, or
 * none that can be read, which is for who opens the checkpoint to say. After both beside_fini(). */
bool beside_find(const char *path, const char *tail, struct beside *found);
/* Its bytes; found->entry->end less begin of them. NULL: the file is shorter than its header says. */
const unsigned char *beside_data(const struct beside *found);
void beside_fini(struct beside *found);

#endif

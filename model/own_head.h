/* SPDX-License-Identifier: Apache-2.0
 *
 * own_head.h -- whether the checkpoint of a tied model has an lm_head all the same. A config.json can say
 * tie_word_embeddings beside a checkpoint whose lm_head is another tensor than its embedding: transformers 5 and
 * newer vLLM believe the checkpoint, other engines the config. A copy of the embedding is no lm_head of its own, but
 * to engines that never tie and load what is there.
 */
#ifndef MODEL_OWN_HEAD_H
#define MODEL_OWN_HEAD_H

#include "model/model.h"

/* Sets config->own_head to what the checkpoint beside the config.json at `path` has; leaves it where there is
 * none, or none that can be read. */
void own_head_look(const char *path, struct model_config *config);

#endif

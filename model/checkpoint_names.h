/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint_names.h -- tensors of a checkpoint that go by other names than the model's, and those
 * that no model has.
 *
 *   base_model.model.model.layers.0.self_attn.q_proj.base_layer.weight     as peft keeps it beside
 *                    model.layers.0.self_attn.q_proj.weight                an adapter
 *   wte.weight       transformer.wte.weight                                GPT-2 without its head
 */
#ifndef MODEL_CHECKPOINT_NAMES_H
#define MODEL_CHECKPOINT_NAMES_H

#include "base/error.h"
#include "base/text.h"
#include "model/checkpoint.h"
#include "model/model.h"
#include <stdbool.h>

#define CHECKPOINT_NAME_BYTES 1100

/* The model's name of a file's tensor into out; false when it is the same (out is not written). */
bool checkpoint_plain_name(const char *name, char out[CHECKPOINT_NAME_BYTES]);

/* Of a tensor that is none of the model's: is it a part that is left alone (another tower of a
 * multimodal model, an adapter, a mask that is no weight)? */
bool checkpoint_leaves(const struct model *model, const char *name);
/* "left alone: 12 tensors, 3,456 bytes: vision_tower (10), lora_A (2)" into out, and the adapter's
 * file where the folder has one; nothing when all is the model's. */
int checkpoint_left_alone(const struct checkpoint *checkpoint, const struct model *model,
			  struct text *out, struct error *error);

#endif

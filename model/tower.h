/* SPDX-License-Identifier: Apache-2.0
 *
 * tower.h -- multimodal classes as rows: a text model of a known family, under other names, beside
 * parts that are not routed.
 *
 *   family's name           checkpoint                        engine (its row says)
 *   model.norm.weight       language_model.model.norm.weight  language_model.model.norm.weight
 *   lm_head.weight          language_model.lm_head.weight     language_model.lm_head.weight
 *   (none)                  vision_tower. ..                  left alone
 */
#ifndef MODEL_TOWER_H
#define MODEL_TOWER_H

#include "job/parallel.h"
#include "model/family.h"

#define TOWER_LEFT_MAX 3

/* What "model." and "lm_head." are called at one place. */
struct tower_names {
	const char *body, *head;
};

struct tower {
	const char *architecture;      /* "Gemma3ForConditionalGeneration" */
	const struct family *family;   /* of its text model; NULL: text_config.model_type says */
	struct tower_names checkpoint, sglang, vllm;
	const char *left[TOWER_LEFT_MAX + 1]; /* what the names of the rest begin with, in checkpoints and
						 in engines; ending with NULL */
};

const struct tower *tower_find(const char *architecture); /* NULL when it is none */
/* Rewrites a family's name in place; false when it does not fit RULE_NAME_BYTES. `tower` may be
 * NULL. */
bool tower_tensor_name(const struct tower *tower, char name[RULE_NAME_BYTES]);
bool tower_param_name(const struct tower *tower, const struct infer_spec *infer,
		      char name[RULE_NAME_BYTES]);
/* Is a checkpoint's tensor one that the text model should know? Without a tower: yes. */
bool tower_has(const struct tower *tower, const char *tensor);

#endif

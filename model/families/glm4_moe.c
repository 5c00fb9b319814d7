/* SPDX-License-Identifier: Apache-2.0
 *
 * families/glm4_moe.c -- Glm4MoeForCausalLM (GLM-4.5, 4.6, 4.7, Air): heads as Qwen3 with a choice of
 * norms over them, first layers dense, the others sparse with a shared expert.
 */
#include "model/families/rows.h"

/* clang-format off */
static const struct rule rules[] = {
	EMBEDDING(GROUP_ATTENTION),
	QKV(GROUP_ATTENTION),
	ATTENTION_OUT(GROUP_ATTENTION),
	HEAD_NORMS(IF_QK_NORM),
	SPARSE_LAYER,
	MTP_VOCAB,
	LAST(IF_UNTIED, GROUP_LM_HEAD),
};
/* clang-format on */

const struct family family_glm4_moe =
	FAMILY("Glm4MoeForCausalLM", "glm4_moe", rules,
	       .features = FEATURE_GQA | FEATURE_MLP | FEATURE_EXPERTS | FEATURE_SHARED |
			   FEATURE_MTP | FEATURE_ATTENTION_BIAS | FEATURE_QK_NORM | FEATURE_FP8,
	       .own_head = OWN_HEAD(NAMES_SGLANG) | OWN_HEAD(NAMES_VLLM), .router_bias = true,
	       .attention_dp = true);

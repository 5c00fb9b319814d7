/* SPDX-License-Identifier: Apache-2.0
 *
 * families/glm4_moe.c -- Glm4MoeForCausalLM (GLM-4.5, 4.6, 4.7, Air): heads as Qwen3 with a choice of
 * norms over them, first layers dense, the others sparse with a shared expert.
 */
#include "model/families/rows.h"

static const struct rule rules[] = {
	EMBEDDING(GROUP_ATTENTION),
	QKV(GROUP_ATTENTION),
	ATTENTION_OUT(GROUP_ATTENTION),
	NORM_IF(IF_QK_NORM, "self_attn.q_norm", DIM_HEAD),
	NORM_IF(IF_QK_NORM, "self_attn.k_norm", DIM_HEAD),
	DENSE_OR_EXPERTS,
	LAYER_NORMS,
	MTP,
	MTP_VOCAB,
	LAST_NORM,
	LM_HEAD(ALWAYS, GROUP_LM_HEAD),
};

const struct family family_glm4_moe = {
	.architecture = "Glm4MoeForCausalLM",
	.model_type = "glm4_moe",
	.rules = rules,
	.rule_count = ARRAY_SIZE(rules),
	.features = FEATURE_GQA | FEATURE_MLP | FEATURE_EXPERTS | FEATURE_SHARED | FEATURE_MTP |
		    FEATURE_ATTENTION_BIAS | FEATURE_QK_NORM | FEATURE_FP8,
	.router_bias = true,
	.attention_dp = true,
};

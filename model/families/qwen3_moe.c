/* SPDX-License-Identifier: Apache-2.0
 *
 * families/qwen3_moe.c -- Qwen3MoeForCausalLM: attention as Qwen3, every layer sparse, no shared
 * expert, and an lm_head of its own whatever the config says of tying.
 */
#include "model/families/rows.h"

static const struct rule rules[] = {
	EMBEDDING(GROUP_ATTENTION),
	QKV(GROUP_ATTENTION),
	ATTENTION_OUT(GROUP_ATTENTION),
	ATTENTION_OUT_BIAS,
	NORM("self_attn.q_norm", DIM_HEAD),
	NORM("self_attn.k_norm", DIM_HEAD),
	ROUTER,
	EXPERTS,
	LAYER_NORMS,
	LAST_NORM,
	LM_HEAD(ALWAYS, GROUP_LM_HEAD),
};

const struct family family_qwen3_moe = {
	.architecture = "Qwen3MoeForCausalLM",
	.model_type = "qwen3_moe",
	.rules = rules,
	.rule_count = ARRAY_SIZE(rules),
	.features = FEATURE_GQA | FEATURE_EXPERTS | FEATURE_NUM_EXPERTS | FEATURE_ATTENTION_BIAS |
		    FEATURE_FP8,
	.attention_dp = true,
};

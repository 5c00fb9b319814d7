/* SPDX-License-Identifier: Apache-2.0
 *
 * families/qwen3.c -- Qwen3ForCausalLM: a norm over each query and key head, shared by all
 * heads and so whole on every rank; head_dim is its own config field.
 */
#include "model/families/rows.h"

static const struct rule rules[] = {
	EMBEDDING(GROUP_ATTENTION),
	QKV(GROUP_ATTENTION),
	ATTENTION_OUT(GROUP_ATTENTION),
	ATTENTION_OUT_BIAS,
	NORM("self_attn.q_norm", DIM_HEAD),
	NORM("self_attn.k_norm", DIM_HEAD),
	GATE_UP("gate"),
	GATE_UP("up"),
	DOWN,
	NORM("input_layernorm", DIM_HIDDEN),
	NORM("post_attention_layernorm", DIM_HIDDEN),
	LAST_NORM,
	LM_HEAD(IF_UNTIED, GROUP_LM_HEAD),
};

const struct family family_qwen3 = {
	.architecture = "Qwen3ForCausalLM",
	.model_type = "qwen3",
	.rules = rules,
	.rule_count = ARRAY_SIZE(rules),
	.features = FEATURE_GQA | FEATURE_MLP | FEATURE_ATTENTION_BIAS | FEATURE_FP8,
	.attention_dp = true,
};

/* SPDX-License-Identifier: Apache-2.0
 *
 * families/qwen2.c -- Qwen2ForCausalLM: q, k and v always have biases, o never. The engine's
 * class cannot replicate attention, so every group is all ranks.
 */
#include "model/families/rows.h"

static const struct rule rules[] = {
	EMBEDDING(GROUP_TP),
	QKV(GROUP_TP),
	ATTENTION_OUT(GROUP_TP),
	GATE_UP("gate"),
	GATE_UP("up"),
	DOWN,
	NORM("input_layernorm", DIM_HIDDEN),
	NORM("post_attention_layernorm", DIM_HIDDEN),
	LAST_NORM,
	LM_HEAD(IF_UNTIED, GROUP_TP),
};

const struct family family_qwen2 = {
	.architecture = "Qwen2ForCausalLM",
	.model_type = "qwen2",
	.rules = rules,
	.rule_count = ARRAY_SIZE(rules),
	.features = FEATURE_GQA | FEATURE_MLP,
	.attention_bias_always = true,
};

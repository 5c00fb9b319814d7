/* SPDX-License-Identifier: Apache-2.0
 *
 * families/llama.c -- LlamaForCausalLM: the class the other dense ones vary. The bias of a
 * linear that is cut by columns is whole on every rank: it is added once, after the sum. The
 * embedding stays with all ranks even when attention is replicated.
 */
#include "model/families/rows.h"

static const struct rule rules[] = {
	EMBEDDING(GROUP_TP),
	QKV(GROUP_ATTENTION),
	ATTENTION_OUT(GROUP_ATTENTION),
	ATTENTION_OUT_BIAS,
	GATE_UP("gate"),
	GATE_UP_BIAS("gate"),
	GATE_UP("up"),
	GATE_UP_BIAS("up"),
	DOWN,
	DOWN_BIAS,
	NORM("input_layernorm", DIM_HIDDEN),
	NORM("post_attention_layernorm", DIM_HIDDEN),
	LAST_NORM,
	LM_HEAD(IF_UNTIED, GROUP_LM_HEAD),
};

const struct family family_llama = {
	.architecture = "LlamaForCausalLM",
	.model_type = "llama",
	.rules = rules,
	.rule_count = ARRAY_SIZE(rules),
	.features = FEATURE_GQA | FEATURE_MLP | FEATURE_ATTENTION_BIAS | FEATURE_MLP_BIAS,
	.kv_heads_optional = true,
	.attention_dp = true,
};

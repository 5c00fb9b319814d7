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
	HEAD_NORMS(ALWAYS),
	DENSE_MLP,
	LAYER_NORMS,
	LAST(IF_UNTIED, GROUP_LM_HEAD),
};

static const struct size_default defaults[] = {
	{"hidden_size", 4096},	     {"intermediate_size", 22016},
	{"num_hidden_layers", 32},   {"num_attention_heads", 32},
	{"num_key_value_heads", 32}, {"head_dim", 128},
	{"vocab_size", 151936},	     {0},
};

/* vLLM's class gives its o_proj none */
static const struct absence absences[] = {{LAYER "self_attn.o_proj.bias", NAMES_VLLM}, {0}};

const struct family family_qwen3 =
	FAMILY("Qwen3ForCausalLM", "qwen3", rules,
	       .features = FEATURE_GQA | FEATURE_MLP | FEATURE_ATTENTION_BIAS | FEATURE_FP8,
	       .defaults = defaults, .absences = absences, .attention_dp = true);

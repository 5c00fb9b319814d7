/* SPDX-License-Identifier: Apache-2.0
 *
 * families/qwen2.c -- Qwen2ForCausalLM: q, k and v always have biases, o never. The engine's
 * class cannot replicate attention, so every group is all ranks.
 */
#include "model/families/rows.h"

/* clang-format off */
static const struct rule rules[] = {
	EMBEDDING(GROUP_TP),
	QKV(GROUP_TP),
	ATTENTION_OUT(GROUP_TP),
	DENSE_MLP,
	LAYER_NORMS,
	LAST(IF_UNTIED, GROUP_TP),
};
/* clang-format on */

static const struct size_default defaults[] = {
	{"hidden_size", 4096},
	{"intermediate_size", 22016},
	{"num_hidden_layers", 32},
	{"num_attention_heads", 32},
	{"num_key_value_heads", 32},
	{"vocab_size", 151936},
	{0},
};

const struct family family_qwen2 =
	FAMILY("Qwen2ForCausalLM", "qwen2", rules, .features = FEATURE_GQA | FEATURE_MLP,
	       .attention_bias = true, .defaults = defaults);

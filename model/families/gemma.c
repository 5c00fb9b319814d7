/* SPDX-License-Identifier: Apache-2.0
 *
 * families/gemma.c -- Gemma2ForCausalLM and Gemma3ForCausalLM: four norms a layer, the head shared
 * with the embedding unless the config says otherwise, heads of 256 where it says nothing. Gemma 3
 * has norms over each query and key head. Its multimodal class is a row of model/tower.c.
 */
#include "model/families/rows.h"

#define NORMS                                                       \
	LAYER_NORMS, NORM("pre_feedforward_layernorm", DIM_HIDDEN), \
		NORM("post_feedforward_layernorm", DIM_HIDDEN)

/* clang-format off */
static const struct rule rules2[] = {
	EMBEDDING(GROUP_TP),
	QKV(GROUP_TP),
	ATTENTION_OUT(GROUP_TP),
	ATTENTION_OUT_BIAS,
	DENSE_MLP,
	NORMS,
	NORM_LAST,
	/* engines always take the embedding */
	{"lm_head.weight", {DIM_VOCAB, DIM_HIDDEN}, IF_UNTIED, NULL, CUT_NONE, GROUP_TP, 0,
	 STORE_MODEL},
};

static const struct rule rules3[] = {
	{"model.embed_tokens.weight", {DIM_VOCAB, DIM_HIDDEN}, ALWAYS, NULL, CUT_VOCAB_OR_WHOLE,
	 GROUP_TP, 0, STORE_MODEL},
	QKV(GROUP_TP),
	ATTENTION_OUT(GROUP_TP),
	ATTENTION_OUT_BIAS,
	HEAD_NORMS(ALWAYS),
	DENSE_MLP,
	NORMS,
	LAST(IF_UNTIED, GROUP_TP),
};
/* clang-format on */

#define SIZES                                                                          \
	{"hidden_size", 2304}, {"intermediate_size", 9216}, {"num_hidden_layers", 26}, \
		{"num_attention_heads", 8}, {"num_key_value_heads", 4},                \
	{                                                                              \
		"head_dim", 256                                                        \
	}

static const struct size_default defaults2[] = {SIZES, {"vocab_size", 256000}, {0}};
static const struct size_default defaults3[] = {SIZES, {"vocab_size", 262208}, {0}};

const struct family family_gemma2 =
	FAMILY("Gemma2ForCausalLM", "gemma2", rules2,
	       .features = FEATURE_GQA | FEATURE_MLP | FEATURE_ATTENTION_BIAS,
	       .defaults = defaults2, .tied = true);

const struct family family_gemma3 =
	FAMILY("Gemma3ForCausalLM", "gemma3_text", rules3,
	       .features = FEATURE_GQA | FEATURE_MLP | FEATURE_ATTENTION_BIAS,
	       .defaults = defaults3, .tied = true);

/* SPDX-License-Identifier: Apache-2.0
 *
 * families/mistral.c -- MistralForCausalLM (7B, Nemo, Small) and MixtralForCausalLM: Llama without
 * biases, and the same with experts for its MLP. On disk Mixtral's experts are w1 (gate), w2 (down)
 * and w3 (up).
 */
#include "model/families/rows.h"

static const struct rule rules[] = {
	EMBEDDING(GROUP_TP), QKV(GROUP_TP), ATTENTION_OUT(GROUP_TP),
	DENSE_MLP,	     LAYER_NORMS,   LAST(IF_UNTIED, GROUP_TP),
};

#define MOE "block_sparse_moe."

/* clang-format off */
static const struct rule mixtral_rules[] = {
	EMBEDDING(GROUP_TP),
	QKV(GROUP_TP),
	ATTENTION_OUT(GROUP_TP),
	ROUTER_OF(MOE),
	LINEAR(MOE "experts.{e}.w1", DIM_MOE, DIM_HIDDEN, IF_SPARSE,
	       LAYER MOE "experts.w13_weight", CUT_ROWS, GROUP_EXPERT),
	LINEAR(MOE "experts.{e}.w2", DIM_HIDDEN, DIM_MOE, IF_SPARSE,
	       LAYER MOE "experts.w2_weight", CUT_COLUMNS, GROUP_EXPERT),
	LINEAR(MOE "experts.{e}.w3", DIM_MOE, DIM_HIDDEN, IF_SPARSE,
	       LAYER MOE "experts.w13_weight", CUT_ROWS, GROUP_EXPERT),
	LAYER_NORMS,
	LAST(IF_UNTIED, GROUP_TP),
};
/* clang-format on */

static const struct size_default defaults[] = {
	{"hidden_size", 4096},	    {"intermediate_size", 14336},
	{"num_hidden_layers", 32},  {"num_attention_heads", 32},
	{"num_key_value_heads", 8}, {"num_local_experts", 8},
	{"vocab_size", 32000},	    {0},
};

const struct family family_mistral =
	FAMILY("MistralForCausalLM", "mistral", rules, .features = FEATURE_GQA | FEATURE_MLP,
	       .defaults = defaults);

const struct family family_mixtral =
	FAMILY("MixtralForCausalLM", "mixtral", mixtral_rules,
	       .features = FEATURE_GQA | FEATURE_EXPERTS | FEATURE_LOCAL_EXPERTS,
	       .defaults = defaults, .own_head = OWN_HEAD(NAMES_SGLANG));

/* SPDX-License-Identifier: Apache-2.0
 *
 * families/phi3.c -- Phi3ForCausalLM (Phi-3, Phi-4, Phi-4-mini): q, k and v are one tensor on disk,
 * gate and up another, so a rank takes three row ranges of the one and two of the other.
 */
#include "model/families/rows.h"

/* clang-format off */
static const struct rule rules[] = {
	EMBEDDING(GROUP_TP),
	ATTENTION_OUT(GROUP_TP),
	{LAYER "self_attn.qkv_proj.weight", {DIM_QKV_ROWS, DIM_HIDDEN}, ALWAYS, NULL, CUT_QKV,
	 GROUP_TP, 0, STORE_MODEL},
	{LAYER "mlp.gate_up_proj.weight", {DIM_INTERMEDIATE_2, DIM_HIDDEN}, ALWAYS, NULL, CUT_ROWS,
	 GROUP_TP, 2, STORE_MODEL},
	DOWN,
	LAYER_NORMS,
	LAST(IF_UNTIED, GROUP_TP),
};
/* clang-format on */

static const struct size_default defaults[] = {
	{"hidden_size", 3072},	     {"intermediate_size", 8192}, {"num_hidden_layers", 32},
	{"num_attention_heads", 32}, {"vocab_size", 32064},	  {0},
};

const struct family family_phi3 =
	FAMILY("Phi3ForCausalLM", "phi3", rules, .features = FEATURE_GQA | FEATURE_MLP,
	       .defaults = defaults, .kv_heads_optional = true);

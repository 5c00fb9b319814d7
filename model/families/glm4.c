/* SPDX-License-Identifier: Apache-2.0
 *
 * families/glm4.c -- Glm4ForCausalLM: gate and up are one tensor on disk, gate's rows first,
 * so a rank takes two row ranges of it; four norms a layer.
 */
#include "model/families/rows.h"

static const struct rule rules[] = {
	EMBEDDING(GROUP_ATTENTION),
	QKV(GROUP_ATTENTION),
	ATTENTION_OUT(GROUP_ATTENTION),
	{LAYER "mlp.gate_up_proj.weight",
	 {DIM_INTERMEDIATE_2, DIM_HIDDEN},
	 ALWAYS,
	 NULL,
	 CUT_ROWS,
	 GROUP_TP,
	 2,
	 STORE_MODEL},
	DOWN,
	LAYER_NORMS,
	NORM("post_self_attn_layernorm", DIM_HIDDEN),
	NORM("post_mlp_layernorm", DIM_HIDDEN),
	LAST(IF_UNTIED, GROUP_TP),
};

const struct family family_glm4 =
	FAMILY("Glm4ForCausalLM", "glm4", rules,
	       .features = FEATURE_GQA | FEATURE_MLP | FEATURE_ATTENTION_BIAS);

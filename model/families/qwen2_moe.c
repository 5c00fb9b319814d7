/* SPDX-License-Identifier: Apache-2.0
 *
 * families/qwen2_moe.c -- Qwen2MoeForCausalLM (Qwen1.5-MoE, Qwen2-57B-A14B): q, k and v with biases,
 * every layer sparse, beside its experts a shared one with a size and a gate of its own.
 */
#include "model/families/rows.h"

/* clang-format off */
static const struct rule rules[] = {
	EMBEDDING(GROUP_ATTENTION),
	QKV(GROUP_ATTENTION),
	ATTENTION_OUT(GROUP_ATTENTION),
	ROUTER,
	EXPERTS,
	GATED_SHARED_EXPERT,
	LAYER_NORMS,
	LAST(IF_UNTIED, GROUP_LM_HEAD),
};
/* clang-format on */

const struct family family_qwen2_moe =
	FAMILY("Qwen2MoeForCausalLM", "qwen2_moe", rules,
	       .features = FEATURE_GQA | FEATURE_EXPERTS | FEATURE_NUM_EXPERTS |
			   FEATURE_SHARED_GATE | FEATURE_QKV_BIAS,
	       .own_head = OWN_HEAD(NAMES_SGLANG), .attention_bias = true, .attention_dp = true);

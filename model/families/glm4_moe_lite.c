/* SPDX-License-Identifier: Apache-2.0
 *
 * families/glm4_moe_lite.c -- Glm4MoeLiteForCausalLM (GLM-4.7-Flash): latent attention, experts as
 * Glm4Moe, an lm_head of its own.
 */
#include "model/families/rows.h"

/* clang-format off */
static const struct rule rules[] = {
	EMBEDDING(GROUP_ATTENTION),
	LATENT_ATTENTION,
	SPARSE_LAYER,
	MTP_VOCAB,
	LAST(IF_UNTIED, GROUP_LM_HEAD),
};
/* clang-format on */

const struct family family_glm4_moe_lite =
	FAMILY("Glm4MoeLiteForCausalLM", "glm4_moe_lite", rules,
	       .features = FEATURE_MLP | FEATURE_EXPERTS | FEATURE_SHARED | FEATURE_LATENT |
			   FEATURE_MTP | FEATURE_FP8,
	       .own_head = OWN_HEAD(NAMES_SGLANG) | OWN_HEAD(NAMES_VLLM), .router_bias = true,
	       .attention_dp = true);

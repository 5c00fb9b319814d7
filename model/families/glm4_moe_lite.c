/* SPDX-License-Identifier: Apache-2.0
 *
 * families/glm4_moe_lite.c -- Glm4MoeLiteForCausalLM (GLM-4.7-Flash): latent attention, experts as
 * Glm4Moe, an lm_head of its own.
 */
#include "model/families/rows.h"

static const struct rule rules[] = {
	EMBEDDING(GROUP_ATTENTION),
	LATENT_ATTENTION,
	DENSE_OR_EXPERTS,
	LAYER_NORMS,
	MTP,
	MTP_VOCAB,
	LAST_NORM,
	LM_HEAD(ALWAYS, GROUP_LM_HEAD),
};

const struct family family_glm4_moe_lite = {
	.architecture = "Glm4MoeLiteForCausalLM",
	.model_type = "glm4_moe_lite",
	.rules = rules,
	.rule_count = ARRAY_SIZE(rules),
	.features = FEATURE_MLP | FEATURE_EXPERTS | FEATURE_SHARED | FEATURE_LATENT | FEATURE_MTP |
		    FEATURE_FP8,
	.router_bias = true,
	.attention_dp = true,
};

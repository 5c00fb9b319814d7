/* SPDX-License-Identifier: Apache-2.0
 *
 * families/deepseek.c -- DeepseekV2, V3 (Kimi-K2 and Moonlight too) and V32, GlmMoeDsa (GLM-5):
 * latent attention and experts; the last two choose past tokens by an indexer. Their tables
 * differ in the indexer and in what an MTP layer copies.
 */
#include "model/families/rows.h"

static const struct rule rules[] = {
	EMBEDDING(GROUP_EMBEDDING),
	LATENT_ATTENTION,
	DENSE_OR_EXPERTS,
	LAYER_NORMS,
	MTP,
	MTP_VOCAB,
	LAST_NORM,
	LM_HEAD(IF_UNTIED, GROUP_LM_HEAD),
};

static const struct rule indexer_rules[] = {
	EMBEDDING(GROUP_EMBEDDING),
	LATENT_ATTENTION,
	INDEXER,
	DENSE_OR_EXPERTS,
	LAYER_NORMS,
	MTP,
	MTP_VOCAB,
	LAST_NORM,
	LM_HEAD(IF_UNTIED, GROUP_LM_HEAD),
};

/* An MTP layer without an embedding and a head of its own. */
static const struct rule glm_rules[] = {
	EMBEDDING(GROUP_EMBEDDING),
	LATENT_ATTENTION,
	INDEXER,
	DENSE_OR_EXPERTS,
	LAYER_NORMS,
	MTP,
	LAST_NORM,
	LM_HEAD(IF_UNTIED, GROUP_LM_HEAD),
};

#define FEATURES                                                                         \
	(FEATURE_MLP | FEATURE_EXPERTS | FEATURE_SHARED | FEATURE_LATENT | FEATURE_MTP | \
	 FEATURE_FP8)

const struct family family_deepseek_v2 = {
	.architecture = "DeepseekV2ForCausalLM",
	.model_type = "deepseek_v2",
	.rules = rules,
	.rule_count = ARRAY_SIZE(rules),
	.features = FEATURES | FEATURE_TOPK_METHOD,
	.attention_dp = true,
};

const struct family family_deepseek_v3 = {
	.architecture = "DeepseekV3ForCausalLM",
	.model_type = "deepseek_v3",
	.rules = rules,
	.rule_count = ARRAY_SIZE(rules),
	.features = FEATURES | FEATURE_TOPK_METHOD,
	.router_bias = true,
	.attention_dp = true,
};

const struct family family_deepseek_v32 = {
	.architecture = "DeepseekV32ForCausalLM",
	.model_type = "deepseek_v32",
	.rules = indexer_rules,
	.rule_count = ARRAY_SIZE(indexer_rules),
	.features = FEATURES | FEATURE_TOPK_METHOD | FEATURE_INDEXER,
	.router_bias = true,
	.attention_dp = true,
};

const struct family family_glm_moe_dsa = {
	.architecture = "GlmMoeDsaForCausalLM",
	.model_type = "glm_moe_dsa",
	.rules = glm_rules,
	.rule_count = ARRAY_SIZE(glm_rules),
	.features = FEATURES | FEATURE_TOPK_METHOD | FEATURE_INDEXER,
	.router_bias = true,
	.attention_dp = true,
};

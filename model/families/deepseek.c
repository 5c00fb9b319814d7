/* SPDX-License-Identifier: Apache-2.0
 *
 * families/deepseek.c -- DeepseekV2, V3 (Kimi-K2 and Moonlight too) and V32, GlmMoeDsa (GLM-5):
 * latent attention and experts; the last two choose past tokens by an indexer. Their tables
 * differ in the indexer and in what an MTP layer copies.
 */
#include "model/families/rows.h"

/* clang-format off */
static const struct rule rules[] = {
	EMBEDDING(GROUP_EMBEDDING),
	LATENT_ATTENTION,
	SPARSE_LAYER,
	MTP_VOCAB,
	LAST(IF_UNTIED, GROUP_LM_HEAD),
};

static const struct rule indexer_rules[] = {
	EMBEDDING(GROUP_EMBEDDING),
	LATENT_ATTENTION,
	INDEXER,
	SPARSE_LAYER,
	MTP_VOCAB,
	LAST(IF_UNTIED, GROUP_LM_HEAD),
};

/* An MTP layer without an embedding and a head of its own. */
static const struct rule glm_rules[] = {
	EMBEDDING(GROUP_EMBEDDING),
	LATENT_ATTENTION,
	INDEXER,
	SPARSE_LAYER,
	LAST(IF_UNTIED, GROUP_LM_HEAD),
};
/* clang-format on */

#define FEATURES                                                                         \
	(FEATURE_MLP | FEATURE_EXPERTS | FEATURE_SHARED | FEATURE_LATENT | FEATURE_MTP | \
	 FEATURE_FP8)

const struct family family_deepseek_v2 =
	FAMILY("DeepseekV2ForCausalLM", "deepseek_v2", rules, .own_head = OWN_HEAD(NAMES_VLLM),
	       .features = FEATURES | FEATURE_TOPK_METHOD, .attention_dp = true);

const struct family family_deepseek_v3 = FAMILY(
	"DeepseekV3ForCausalLM", "deepseek_v3", rules, .own_head = OWN_HEAD(NAMES_VLLM),
	.features = FEATURES | FEATURE_TOPK_METHOD, .router_bias = true, .attention_dp = true);

const struct family family_deepseek_v32 = FAMILY(
	"DeepseekV32ForCausalLM", "deepseek_v32", indexer_rules, .own_head = OWN_HEAD(NAMES_VLLM),
	.features = FEATURES | FEATURE_TOPK_METHOD | FEATURE_INDEXER, .router_bias = true,
	.attention_dp = true);

const struct family family_glm_moe_dsa =
	FAMILY("GlmMoeDsaForCausalLM", "glm_moe_dsa", glm_rules, .own_head = OWN_HEAD(NAMES_VLLM),
	       .features = FEATURES | FEATURE_TOPK_METHOD | FEATURE_INDEXER, .router_bias = true,
	       .attention_dp = true);

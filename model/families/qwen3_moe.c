/* SPDX-License-Identifier: Apache-2.0
 *
 * families/qwen3_moe.c -- Qwen3MoeForCausalLM: attention as Qwen3, every layer sparse, no shared
 * expert; SGLang has an lm_head of its own whatever the config says of tying.
 */
#include "model/families/rows.h"

static const struct rule rules[] = {
	EMBEDDING(GROUP_ATTENTION),
	QKV(GROUP_ATTENTION),
	ATTENTION_OUT(GROUP_ATTENTION),
	ATTENTION_OUT_BIAS,
	HEAD_NORMS(ALWAYS),
	ROUTER,
	EXPERTS,
	LAYER_NORMS,
	LAST(IF_UNTIED, GROUP_LM_HEAD),
};

static const struct absence absences[] = {{LAYER "self_attn.o_proj.bias", NAMES_VLLM},
					  {0}}; /* as qwen3.c */

const struct family family_qwen3_moe =
	FAMILY("Qwen3MoeForCausalLM", "qwen3_moe", rules,
	       .features = FEATURE_GQA | FEATURE_EXPERTS | FEATURE_NUM_EXPERTS |
			   FEATURE_ATTENTION_BIAS | FEATURE_FP8,
	       .absences = absences, .own_head = OWN_HEAD(NAMES_SGLANG), .attention_dp = true);

/* SPDX-License-Identifier: Apache-2.0
 *
 * families/qwen3.c -- Qwen3ForCausalLM: a norm over each query and key head, shared by all
 * heads and so whole on every rank; head_dim is its own config field.
 */
#include "model/families/rows.h"

static const struct rule rules[] = {
	EMBEDDING(GROUP_ATTENTION),
	QKV(GROUP_ATTENTION),
	ATTENTION_OUT(GROUP_ATTENTION),
	ATTENTION_OUT_BIAS,
	HEAD_NORMS(ALWAYS),
	DENSE_MLP,
	LAYER_NORMS,
	LAST(IF_UNTIED, GROUP_LM_HEAD),
};

const struct family family_qwen3 =
	FAMILY("Qwen3ForCausalLM", "qwen3", rules,
	       .features = FEATURE_GQA | FEATURE_MLP | FEATURE_ATTENTION_BIAS | FEATURE_FP8,
	       .attention_dp = true);

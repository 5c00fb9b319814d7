/* SPDX-License-Identifier: Apache-2.0
 *
 * families/llama.c -- LlamaForCausalLM: the class the other dense ones vary. The bias of a
 * linear that is cut by columns is whole on every rank: it is added once, after the sum. The
 * embedding stays with all ranks even when attention is replicated.
 */
#include "model/families/rows.h"

/* clang-format off */
static const struct rule rules[] = {
	EMBEDDING(GROUP_TP),
	QKV(GROUP_ATTENTION),
	ATTENTION_OUT(GROUP_ATTENTION),
	ATTENTION_OUT_BIAS,
	GATE_UP("gate"),
	GATE_UP_BIAS("gate"),
	GATE_UP("up"),
	GATE_UP_BIAS("up"),
	DOWN,
	DOWN_BIAS,
	LAYER_NORMS,
	LAST(IF_UNTIED, GROUP_LM_HEAD),
};
/* clang-format on */

const struct family family_llama =
	FAMILY("LlamaForCausalLM", "llama", rules,
	       .features = FEATURE_GQA | FEATURE_MLP | FEATURE_ATTENTION_BIAS | FEATURE_MLP_BIAS,
	       .kv_heads_optional = true, .attention_dp = true);

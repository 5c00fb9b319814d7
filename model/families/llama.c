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

static const struct size_default defaults[] = {
	{"hidden_size", 4096},	     {"intermediate_size", 11008}, {"num_hidden_layers", 32},
	{"num_attention_heads", 32}, {"vocab_size", 32000},	   {0},
};

/* SGLang's class is made without biases in its MLP */
static const struct absence absences[] = {{LAYER "mlp.gate_up_proj.bias", NAMES_SGLANG},
					  {LAYER "mlp.down_proj.bias", NAMES_SGLANG},
					  {0}};

const struct family family_llama =
	FAMILY("LlamaForCausalLM", "llama", rules,
	       .features = FEATURE_GQA | FEATURE_MLP | FEATURE_ATTENTION_BIAS | FEATURE_MLP_BIAS,
	       .defaults = defaults, .absences = absences, .kv_heads_optional = true);

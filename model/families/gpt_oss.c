/* SPDX-License-Identifier: Apache-2.0
 *
 * families/gpt_oss.c -- GptOssForCausalLM (gpt-oss-20b, -120b): a learned sink a head, every layer
 * sparse, a router with a bias, and tensors that hold all experts of their layer. Gate and up are
 * interleaved, on disk and in engines, so a rank's part is one range. Published checkpoints have
 * the experts in MXFP4, [out, in] and 16 bytes a block; unquantised ones are [in, out].
 *
 * Engines rewrite the experts after the load (swizzled, shuffled, gate and up apart, padded): the
 * layout is what their loaders write, docs/models.md says where they differ.
 */
#include "model/families/rows.h"

#define EXPERT(part) LAYER "mlp.experts." part
#define EXPERT_PART(tensor, when, param, cut, store, ...)                             \
	{                                                                             \
		EXPERT(tensor), {DIM_EXPERTS, __VA_ARGS__}, when, EXPERT(param), cut, \
			GROUP_EXPERT, 0, store                                        \
	}

/* clang-format off */
static const struct rule rules[] = {
	EMBEDDING(GROUP_ATTENTION),
	{LAYER "self_attn.sinks", {DIM_HEADS}, ALWAYS, NULL, CUT_Q_HEADS, GROUP_ATTENTION, 0,
	 STORE_MODEL},
	QKV(GROUP_ATTENTION),
	ATTENTION_OUT(GROUP_ATTENTION),
	ATTENTION_OUT_BIAS,
	{LAYER "mlp.router.weight", {DIM_EXPERTS, DIM_HIDDEN}, ALWAYS, NULL, CUT_WHOLE, GROUP_TP, 0,
	 STORE_ROUTER},
	WHOLE("mlp.router.bias", DIM_EXPERTS, ALWAYS, STORE_MODEL),
	EXPERT_PART("gate_up_proj", IF_NOT_MXFP4, "w13_weight", CUT_EXPERT_ROWS, STORE_CONV1D,
		    DIM_HIDDEN, DIM_MOE_2),
	EXPERT_PART("gate_up_proj_blocks", IF_MXFP4, "w13_weight", CUT_EXPERT_ROWS, STORE_MXFP4,
		    DIM_MOE_2, DIM_HIDDEN_BLOCKS, DIM_BLOCK_BYTES),
	EXPERT_PART("gate_up_proj_scales", IF_MXFP4, "w13_weight_scale", CUT_EXPERT_ROWS,
		    STORE_MXFP4_SCALES, DIM_MOE_2, DIM_HIDDEN_BLOCKS),
	EXPERT_PART("gate_up_proj_bias", ALWAYS, "w13_weight_bias", CUT_EXPERT_ROWS,
		    STORE_EXPERT_BIAS, DIM_MOE_2),
	EXPERT_PART("down_proj", IF_NOT_MXFP4, "w2_weight", CUT_EXPERT_COLUMNS, STORE_CONV1D,
		    DIM_MOE, DIM_HIDDEN),
	EXPERT_PART("down_proj_blocks", IF_MXFP4, "w2_weight", CUT_EXPERT_COLUMNS, STORE_MXFP4,
		    DIM_HIDDEN, DIM_MOE_BLOCKS, DIM_BLOCK_BYTES),
	EXPERT_PART("down_proj_scales", IF_MXFP4, "w2_weight_scale", CUT_EXPERT_COLUMNS,
		    STORE_MXFP4_SCALES, DIM_HIDDEN, DIM_MOE_BLOCKS),
	EXPERT_PART("down_proj_bias", ALWAYS, "w2_weight_bias", CUT_EXPERT_FIRST,
		    STORE_EXPERT_BIAS, DIM_HIDDEN),
	LAYER_NORMS,
	LAST(IF_UNTIED, GROUP_LM_HEAD),
};
/* clang-format on */

static const struct param_name names[] = {
	{".self_attn.", ".self_attn.", ".attn."},
	{".embed_tokens.", ".embed_tokens.", ".embedding."},
	{"_weight_bias", "_weight_bias", "_bias"},
	{0},
};

const struct family family_gpt_oss =
	FAMILY("GptOssForCausalLM", "gpt_oss", rules,
	       .features = FEATURE_GQA | FEATURE_EXPERTS | FEATURE_LOCAL_EXPERTS | FEATURE_STACKED |
			   FEATURE_ATTENTION_BIAS,
	       .names = names, .own_head = OWN_HEAD(NAMES_SGLANG) | OWN_HEAD(NAMES_VLLM),
	       .attention_bias = true, .attention_dp = true);

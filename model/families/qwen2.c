/* SPDX-License-Identifier: Apache-2.0
 *
 * families/qwen2.c -- Qwen2ForCausalLM: q, k and v always have biases, o never. The engine's
 * class cannot replicate attention, so every group is all ranks.
 */
#include "model/family.h"

#include "common/array.h"

#define LAYER LAYER_PREFIX

static const struct rule rules[] = {
	{"model.embed_tokens.weight", {DIM_VOCAB, DIM_HIDDEN}, ALWAYS,
	 NULL, CUT_VOCAB, GROUP_TP, 0},
	{LAYER "self_attn.q_proj.weight", {DIM_Q_ROWS, DIM_HIDDEN}, ALWAYS,
	 LAYER "self_attn.qkv_proj.weight", CUT_Q_HEADS, GROUP_TP, 0},
	{LAYER "self_attn.q_proj.bias", {DIM_Q_ROWS}, IF_ATTENTION_BIAS,
	 LAYER "self_attn.qkv_proj.bias", CUT_Q_HEADS, GROUP_TP, 0},
	{LAYER "self_attn.k_proj.weight", {DIM_KV_ROWS, DIM_HIDDEN}, ALWAYS,
	 LAYER "self_attn.qkv_proj.weight", CUT_KV_HEADS, GROUP_TP, 0},
	{LAYER "self_attn.k_proj.bias", {DIM_KV_ROWS}, IF_ATTENTION_BIAS,
	 LAYER "self_attn.qkv_proj.bias", CUT_KV_HEADS, GROUP_TP, 0},
	{LAYER "self_attn.v_proj.weight", {DIM_KV_ROWS, DIM_HIDDEN}, ALWAYS,
	 LAYER "self_attn.qkv_proj.weight", CUT_KV_HEADS, GROUP_TP, 0},
	{LAYER "self_attn.v_proj.bias", {DIM_KV_ROWS}, IF_ATTENTION_BIAS,
	 LAYER "self_attn.qkv_proj.bias", CUT_KV_HEADS, GROUP_TP, 0},
	{LAYER "self_attn.o_proj.weight", {DIM_HIDDEN, DIM_Q_ROWS}, ALWAYS,
	 NULL, CUT_COLUMNS, GROUP_TP, 0},
	{LAYER "mlp.gate_proj.weight", {DIM_INTERMEDIATE, DIM_HIDDEN}, ALWAYS,
	 LAYER "mlp.gate_up_proj.weight", CUT_ROWS, GROUP_TP, 0},
	{LAYER "mlp.up_proj.weight", {DIM_INTERMEDIATE, DIM_HIDDEN}, ALWAYS,
	 LAYER "mlp.gate_up_proj.weight", CUT_ROWS, GROUP_TP, 0},
	{LAYER "mlp.down_proj.weight", {DIM_HIDDEN, DIM_INTERMEDIATE}, ALWAYS,
	 NULL, CUT_COLUMNS, GROUP_TP, 0},
	{LAYER "input_layernorm.weight", {DIM_HIDDEN}, ALWAYS,
	 NULL, CUT_WHOLE, GROUP_TP, 0},
	{LAYER "post_attention_layernorm.weight", {DIM_HIDDEN}, ALWAYS,
	 NULL, CUT_WHOLE, GROUP_TP, 0},
	{"model.norm.weight", {DIM_HIDDEN}, ALWAYS,
	 NULL, CUT_WHOLE, GROUP_TP, 0},
	{"lm_head.weight", {DIM_VOCAB, DIM_HIDDEN}, IF_UNTIED,
	 NULL, CUT_VOCAB, GROUP_TP, 0},
};

const struct family family_qwen2 = {
	.architecture = "Qwen2ForCausalLM",
	.model_type = "qwen2",
	.rules = rules,
	.rule_count = ARRAY_SIZE(rules),
	.attention_bias_always = true,
};

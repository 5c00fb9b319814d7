/* SPDX-License-Identifier: Apache-2.0
 *
 * families/glm4.c -- Glm4ForCausalLM: gate and up are one tensor on disk, gate's rows first,
 * so a rank takes two row ranges of it; four norms a layer.
 */
#include "model/family.h"

#include "common/array.h"

#define LAYER LAYER_PREFIX

static const struct rule rules[] = {
	{"model.embed_tokens.weight", {DIM_VOCAB, DIM_HIDDEN}, ALWAYS,
	 NULL, CUT_VOCAB, GROUP_ATTENTION, 0},
	{LAYER "self_attn.q_proj.weight", {DIM_Q_ROWS, DIM_HIDDEN}, ALWAYS,
	 LAYER "self_attn.qkv_proj.weight", CUT_Q_HEADS, GROUP_ATTENTION, 0},
	{LAYER "self_attn.q_proj.bias", {DIM_Q_ROWS}, IF_ATTENTION_BIAS,
	 LAYER "self_attn.qkv_proj.bias", CUT_Q_HEADS, GROUP_ATTENTION, 0},
	{LAYER "self_attn.k_proj.weight", {DIM_KV_ROWS, DIM_HIDDEN}, ALWAYS,
	 LAYER "self_attn.qkv_proj.weight", CUT_KV_HEADS, GROUP_ATTENTION, 0},
	{LAYER "self_attn.k_proj.bias", {DIM_KV_ROWS}, IF_ATTENTION_BIAS,
	 LAYER "self_attn.qkv_proj.bias", CUT_KV_HEADS, GROUP_ATTENTION, 0},
	{LAYER "self_attn.v_proj.weight", {DIM_KV_ROWS, DIM_HIDDEN}, ALWAYS,
	 LAYER "self_attn.qkv_proj.weight", CUT_KV_HEADS, GROUP_ATTENTION, 0},
	{LAYER "self_attn.v_proj.bias", {DIM_KV_ROWS}, IF_ATTENTION_BIAS,
	 LAYER "self_attn.qkv_proj.bias", CUT_KV_HEADS, GROUP_ATTENTION, 0},
	{LAYER "self_attn.o_proj.weight", {DIM_HIDDEN, DIM_Q_ROWS}, ALWAYS,
	 NULL, CUT_COLUMNS, GROUP_ATTENTION, 0},
	{LAYER "mlp.gate_up_proj.weight", {DIM_INTERMEDIATE_2, DIM_HIDDEN}, ALWAYS,
	 NULL, CUT_ROWS, GROUP_TP, 2},
	{LAYER "mlp.down_proj.weight", {DIM_HIDDEN, DIM_INTERMEDIATE}, ALWAYS,
	 NULL, CUT_COLUMNS, GROUP_TP, 0},
	{LAYER "input_layernorm.weight", {DIM_HIDDEN}, ALWAYS,
	 NULL, CUT_WHOLE, GROUP_TP, 0},
	{LAYER "post_attention_layernorm.weight", {DIM_HIDDEN}, ALWAYS,
	 NULL, CUT_WHOLE, GROUP_TP, 0},
	{LAYER "post_self_attn_layernorm.weight", {DIM_HIDDEN}, ALWAYS,
	 NULL, CUT_WHOLE, GROUP_TP, 0},
	{LAYER "post_mlp_layernorm.weight", {DIM_HIDDEN}, ALWAYS,
	 NULL, CUT_WHOLE, GROUP_TP, 0},
	{"model.norm.weight", {DIM_HIDDEN}, ALWAYS,
	 NULL, CUT_WHOLE, GROUP_TP, 0},
	{"lm_head.weight", {DIM_VOCAB, DIM_HIDDEN}, IF_UNTIED,
	 NULL, CUT_VOCAB, GROUP_TP, 0},
};

const struct family family_glm4 = {
	.architecture = "Glm4ForCausalLM",
	.model_type = "glm4",
	.rules = rules,
	.rule_count = ARRAY_SIZE(rules),
	.reads_attention_bias = true,
	.attention_dp = true,
};

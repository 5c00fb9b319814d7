/* SPDX-License-Identifier: Apache-2.0
 *
 * families/rows.h -- the rows that model classes share, so that a class's own file shows what is
 * its own. `group` is the group of ranks that cuts the tensor.
 */
#ifndef MODEL_FAMILIES_ROWS_H
#define MODEL_FAMILIES_ROWS_H

#include "base/array.h"
#include "model/family.h"

#define LAYER LAYER_PREFIX

/* A class: its architecture, its model_type, its rows, and what is its own. */
#define FAMILY(class, type, table, ...) \
	{.architecture = class, .model_type = type, .rules = table, \
	 .rule_count = ARRAY_SIZE(table), __VA_ARGS__}

/* tensor, dims, condition, parameter (NULL: its own name), cut, group, parts, store */
#define EMBEDDING(group) \
	{"model.embed_tokens.weight", {DIM_VOCAB, DIM_HIDDEN}, ALWAYS, NULL, CUT_VOCAB, group, \
	 0, STORE_MODEL}
/* `when` is ALWAYS for classes whose engine never shares it with the embedding. */
#define LM_HEAD(when, group) \
	{"lm_head.weight", {DIM_VOCAB, DIM_HIDDEN}, when, NULL, CUT_VOCAB, group, 0, STORE_MODEL}
/* Behind the layers: the last norm, and the lm_head. */
#define NORM_LAST \
	{"model.norm.weight", {DIM_HIDDEN}, ALWAYS, NULL, CUT_WHOLE, GROUP_TP, 0, STORE_MODEL}
#define LAST(when, group) NORM_LAST, LM_HEAD(when, group)

/* One dimension, whole on every rank: norms and the biases of what is cut by columns. */
#define WHOLE(name, dim, when, store) \
	{LAYER name, {dim}, when, NULL, CUT_WHOLE, GROUP_TP, 0, store}
#define NORM_IF(when, name, dim) WHOLE(name ".weight", dim, when, STORE_MODEL)
#define NORM(name, dim) NORM_IF(ALWAYS, name, dim)

/* A matrix of a layer; `param` is NULL where the engine calls it the same. */
#define LINEAR(name, rows, columns, when, param, cut, group) \
	{LAYER name ".weight", {rows, columns}, when, param, cut, group, 0, STORE_LINEAR}

/* Three linears of the checkpoint, one parameter of the engine. */
#define QKV_PART(part, dim, cut, group) \
	LINEAR("self_attn." part "_proj", dim, DIM_HIDDEN, ALWAYS, \
	       LAYER "self_attn.qkv_proj.weight", cut, group), \
	{LAYER "self_attn." part "_proj.bias", {dim}, IF_ATTENTION_BIAS, \
	 LAYER "self_attn.qkv_proj.bias", cut, group, 0, STORE_MODEL}
#define QKV(group) \
	QKV_PART("q", DIM_Q_ROWS, CUT_Q_HEADS, group), \
	QKV_PART("k", DIM_KV_ROWS, CUT_KV_HEADS, group), \
	QKV_PART("v", DIM_KV_ROWS, CUT_KV_HEADS, group)
#define ATTENTION_OUT(group) \
	LINEAR("self_attn.o_proj", DIM_HIDDEN, DIM_Q_ROWS, ALWAYS, NULL, CUT_COLUMNS, group)
/* A norm over each query and key head. */
#define HEAD_NORMS(when) \
	NORM_IF(when, "self_attn.q_norm", DIM_HEAD), NORM_IF(when, "self_attn.k_norm", DIM_HEAD)
#define ATTENTION_OUT_BIAS WHOLE("self_attn.o_proj.bias", DIM_HIDDEN, IF_ATTENTION_BIAS, STORE_MODEL)

/* Two linears of the checkpoint, one parameter of the engine: `part` is "gate" or "up". */
#define GATE_UP_OF(prefix, part, dim, when, group) \
	LINEAR(prefix part "_proj", dim, DIM_HIDDEN, when, LAYER prefix "gate_up_proj.weight", \
	       CUT_ROWS, group)
#define DOWN_OF(prefix, dim, when, group) \
	LINEAR(prefix "down_proj", DIM_HIDDEN, dim, when, NULL, CUT_COLUMNS, group)
#define GATE_UP(part) GATE_UP_OF("mlp.", part, DIM_INTERMEDIATE, ALWAYS, GROUP_TP)
#define GATE_UP_BIAS(part) \
	{LAYER "mlp." part "_proj.bias", {DIM_INTERMEDIATE}, IF_MLP_BIAS, \
	 LAYER "mlp.gate_up_proj.bias", CUT_ROWS, GROUP_TP, 0, STORE_MODEL}
#define DOWN DOWN_OF("mlp.", DIM_INTERMEDIATE, ALWAYS, GROUP_TP)
#define DENSE_MLP GATE_UP("gate"), GATE_UP("up"), DOWN
#define DOWN_BIAS WHOLE("mlp.down_proj.bias", DIM_HIDDEN, IF_MLP_BIAS, STORE_MODEL)

/* Routed experts: two parameters of the engine, one slot an expert. */
#define EXPERT_IN(part) \
	LINEAR("mlp.experts.{e}." part "_proj", DIM_MOE, DIM_HIDDEN, IF_SPARSE, \
	       LAYER "mlp.experts.w13_weight", CUT_ROWS, GROUP_EXPERT)
#define EXPERTS \
	EXPERT_IN("gate"), EXPERT_IN("up"), \
	LINEAR("mlp.experts.{e}.down_proj", DIM_HIDDEN, DIM_MOE, IF_SPARSE, \
	       LAYER "mlp.experts.w2_weight", CUT_COLUMNS, GROUP_EXPERT)
/* Which expert gets a token: never quantised, whole on every rank. */
#define ROUTER_OF(prefix) \
	{LAYER prefix "gate.weight", {DIM_EXPERTS, DIM_HIDDEN}, IF_SPARSE, NULL, CUT_WHOLE, \
	 GROUP_TP, 0, STORE_ROUTER}
#define ROUTER ROUTER_OF("mlp.")
#define ROUTER_BIAS \
	WHOLE("mlp.gate.e_score_correction_bias", DIM_EXPERTS, IF_ROUTER_BIAS, STORE_F32)

/* One shared expert with a size of its own, and how much of it a token gets. */
#define GATED_SHARED_EXPERT \
	GATE_UP_OF("mlp.shared_expert.", "gate", DIM_SHARED_GATED, IF_SPARSE, GROUP_SHARED), \
	GATE_UP_OF("mlp.shared_expert.", "up", DIM_SHARED_GATED, IF_SPARSE, GROUP_SHARED), \
	DOWN_OF("mlp.shared_expert.", DIM_SHARED_GATED, IF_SPARSE, GROUP_SHARED), \
	{LAYER "mlp.shared_expert_gate.weight", {DIM_ONE, DIM_HIDDEN}, IF_SPARSE, NULL, CUT_WHOLE, \
	 GROUP_TP, 0, STORE_MODEL}

/* First dense layers, then experts beside a shared one (an MLP of S times their size). */
#define DENSE_OR_EXPERTS \
	GATE_UP_OF("mlp.", "gate", DIM_INTERMEDIATE, IF_DENSE, GROUP_DENSE), \
	GATE_UP_OF("mlp.", "up", DIM_INTERMEDIATE, IF_DENSE, GROUP_DENSE), \
	DOWN_OF("mlp.", DIM_INTERMEDIATE, IF_DENSE, GROUP_DENSE), \
	EXPERTS, ROUTER, ROUTER_BIAS, \
	GATE_UP_OF("mlp.shared_experts.", "gate", DIM_SHARED, IF_SHARED, GROUP_SHARED), \
	GATE_UP_OF("mlp.shared_experts.", "up", DIM_SHARED, IF_SHARED, GROUP_SHARED), \
	DOWN_OF("mlp.shared_experts.", DIM_SHARED, IF_SHARED, GROUP_SHARED)

/* What follows attention in a layer of a class with first dense layers, and its MTP layers. */
#define SPARSE_LAYER DENSE_OR_EXPERTS, LAYER_NORMS, MTP

/* Multi-head latent attention: the projections into the latent are one parameter, whole on
 * every rank; those out of it are cut by heads. Without a query latent, q_proj is as q_b_proj. */
#define LATENT_A LAYER "self_attn.fused_qkv_a_proj_with_mqa.weight"
#define LATENT_ATTENTION \
	LINEAR("self_attn.q_proj", DIM_LATENT_Q, DIM_HIDDEN, IF_NO_Q_LORA, NULL, CUT_Q_HEADS, \
	       GROUP_ATTENTION), \
	LINEAR("self_attn.q_a_proj", DIM_Q_LORA, DIM_HIDDEN, IF_Q_LORA, LATENT_A, CUT_WHOLE, \
	       GROUP_ATTENTION), \
	NORM_IF(IF_Q_LORA, "self_attn.q_a_layernorm", DIM_Q_LORA), \
	LINEAR("self_attn.q_b_proj", DIM_LATENT_Q, DIM_Q_LORA, IF_Q_LORA, NULL, CUT_Q_HEADS, \
	       GROUP_ATTENTION), \
	LINEAR("self_attn.kv_a_proj_with_mqa", DIM_KV_A, DIM_HIDDEN, IF_Q_LORA, LATENT_A, \
	       CUT_WHOLE, GROUP_ATTENTION), \
	LINEAR("self_attn.kv_a_proj_with_mqa", DIM_KV_A, DIM_HIDDEN, IF_NO_Q_LORA, NULL, \
	       CUT_WHOLE, GROUP_ATTENTION), \
	NORM("self_attn.kv_a_layernorm", DIM_KV_LORA), \
	LINEAR("self_attn.kv_b_proj", DIM_LATENT_KV, DIM_KV_LORA, ALWAYS, NULL, CUT_Q_HEADS, \
	       GROUP_ATTENTION), \
	LINEAR("self_attn.o_proj", DIM_HIDDEN, DIM_LATENT_OUT, ALWAYS, NULL, CUT_COLUMNS, \
	       GROUP_ATTENTION), \
	{LAYER "self_attn.rotary_emb.inv_freq", {DIM_ROTARY}, IF_ROTARY, NULL, CUT_NONE, GROUP_TP, \
	 0, STORE_MODEL}

/* Which past tokens attention looks at; whole on every rank. Engines keep k_norm in 32 bits
 * always, a checkpoint that is all bf16 does not. */
#define INDEXER \
	LINEAR("self_attn.indexer.wq_b", DIM_INDEX_Q, DIM_Q_LORA, IF_INDEXER, NULL, CUT_WHOLE, \
	       GROUP_TP), \
	LINEAR("self_attn.indexer.wk", DIM_INDEX_HEAD, DIM_HIDDEN, IF_INDEXER, NULL, CUT_WHOLE, \
	       GROUP_TP), \
	WHOLE("self_attn.indexer.k_norm.weight", DIM_INDEX_HEAD, IF_INDEXER, STORE_F32_WITH_FP8), \
	WHOLE("self_attn.indexer.k_norm.bias", DIM_INDEX_HEAD, IF_INDEXER, STORE_F32_WITH_FP8), \
	{LAYER "self_attn.indexer.weights_proj.weight", {DIM_INDEX_HEADS, DIM_HIDDEN}, IF_INDEXER, \
	 NULL, CUT_WHOLE, GROUP_TP, 0, STORE_MODEL}

#define LAYER_NORMS \
	NORM("input_layernorm", DIM_HIDDEN), NORM("post_attention_layernorm", DIM_HIDDEN)

/* What an MTP layer has beside a sparse layer's tensors; no engine parameter here is made of
 * it, so the cut does not matter. */
#define MTP_ONLY(name, ...) \
	{LAYER name ".weight", {__VA_ARGS__}, IF_MTP, NULL, CUT_NONE, GROUP_TP, 0, STORE_MODEL}
#define MTP \
	MTP_ONLY("enorm", DIM_HIDDEN), MTP_ONLY("hnorm", DIM_HIDDEN), \
	MTP_ONLY("eh_proj", DIM_HIDDEN, DIM_HIDDEN_2), \
	MTP_ONLY("shared_head.norm", DIM_HIDDEN)
#define MTP_VOCAB \
	MTP_ONLY("embed_tokens", DIM_VOCAB, DIM_HIDDEN), \
	MTP_ONLY("shared_head.head", DIM_VOCAB, DIM_HIDDEN)

#endif

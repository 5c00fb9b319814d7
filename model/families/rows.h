/* SPDX-License-Identifier: Apache-2.0
 *
 * families/rows.h -- the rows that model classes share, so that a class's own file shows what is
 * its own. `group` is the group of ranks that cuts the tensor.
 */
#ifndef MODEL_FAMILIES_ROWS_H
#define MODEL_FAMILIES_ROWS_H

#include "common/array.h"
#include "model/family.h"

#define LAYER LAYER_PREFIX

/* tensor, dims, condition, parameter (NULL: its own name), cut, group, parts */
#define EMBEDDING(group) \
	{"model.embed_tokens.weight", {DIM_VOCAB, DIM_HIDDEN}, ALWAYS, NULL, CUT_VOCAB, group, 0}
#define LM_HEAD(group) \
	{"lm_head.weight", {DIM_VOCAB, DIM_HIDDEN}, IF_UNTIED, NULL, CUT_VOCAB, group, 0}
#define LAST_NORM \
	{"model.norm.weight", {DIM_HIDDEN}, ALWAYS, NULL, CUT_WHOLE, GROUP_TP, 0}

/* Over the hidden size, or over one head; whole on every rank. */
#define NORM(name, dim) \
	{LAYER name ".weight", {dim}, ALWAYS, NULL, CUT_WHOLE, GROUP_TP, 0}

/* Three linears of the checkpoint, one parameter of the engine. */
#define QKV_PART(part, dim, cut, group) \
	{LAYER "self_attn." part "_proj.weight", {dim, DIM_HIDDEN}, ALWAYS, \
	 LAYER "self_attn.qkv_proj.weight", cut, group, 0}, \
	{LAYER "self_attn." part "_proj.bias", {dim}, IF_ATTENTION_BIAS, \
	 LAYER "self_attn.qkv_proj.bias", cut, group, 0}
#define QKV(group) \
	QKV_PART("q", DIM_Q_ROWS, CUT_Q_HEADS, group), \
	QKV_PART("k", DIM_KV_ROWS, CUT_KV_HEADS, group), \
	QKV_PART("v", DIM_KV_ROWS, CUT_KV_HEADS, group)
#define ATTENTION_OUT(group) \
	{LAYER "self_attn.o_proj.weight", {DIM_HIDDEN, DIM_Q_ROWS}, ALWAYS, \
	 NULL, CUT_COLUMNS, group, 0}
#define ATTENTION_OUT_BIAS(group) \
	{LAYER "self_attn.o_proj.bias", {DIM_HIDDEN}, IF_ATTENTION_BIAS, NULL, CUT_WHOLE, group, 0}

/* Two linears of the checkpoint, one parameter of the engine: `part` is "gate" or "up". */
#define GATE_UP(part) \
	{LAYER "mlp." part "_proj.weight", {DIM_INTERMEDIATE, DIM_HIDDEN}, ALWAYS, \
	 LAYER "mlp.gate_up_proj.weight", CUT_ROWS, GROUP_TP, 0}
#define GATE_UP_BIAS(part) \
	{LAYER "mlp." part "_proj.bias", {DIM_INTERMEDIATE}, IF_MLP_BIAS, \
	 LAYER "mlp.gate_up_proj.bias", CUT_ROWS, GROUP_TP, 0}
#define DOWN \
	{LAYER "mlp.down_proj.weight", {DIM_HIDDEN, DIM_INTERMEDIATE}, ALWAYS, \
	 NULL, CUT_COLUMNS, GROUP_TP, 0}
#define DOWN_BIAS \
	{LAYER "mlp.down_proj.bias", {DIM_HIDDEN}, IF_MLP_BIAS, NULL, CUT_WHOLE, GROUP_TP, 0}

#endif

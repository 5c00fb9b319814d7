/* SPDX-License-Identifier: Apache-2.0
 *
 * families/qwen3_next.c -- Qwen3NextForCausalLM: of four layers three have linear attention (a gated
 * delta net), one full attention whose query heads have gates; every layer sparse, beside its experts a
 * shared one with a gate. In linear attention all rows of a key head lie together, so a rank's heads
 * are one range of rows; only the convolution has all q, all k and all values after each other.
 */
#include "model/families/rows.h"

#define DELTA LAYER "linear_attn."
#define DELTA_LINEAR(name, rows, columns, cut)                                                   \
	{                                                                                        \
		DELTA name ".weight", {rows, columns}, IF_LINEAR, NULL, cut, GROUP_ATTENTION, 0, \
			STORE_LINEAR                                                             \
	}
#define DELTA_HEADS(name, store)                                                     \
	{                                                                            \
		DELTA name, {DIM_LINEAR_V_HEADS}, IF_LINEAR, NULL, CUT_LINEAR_HEADS, \
			GROUP_ATTENTION, 0, store                                    \
	}
#define FULL_QKV(part, dim, cut)                                    \
	LINEAR("self_attn." part "_proj", dim, DIM_HIDDEN, IF_FULL, \
	       LAYER "self_attn.qkv_proj.weight", cut, GROUP_ATTENTION)

/* clang-format off */
static const struct rule rules[] = {
	EMBEDDING(GROUP_ATTENTION),
	DELTA_HEADS("dt_bias", STORE_MODEL),
	DELTA_HEADS("A_log", STORE_F32_IN_ENGINE),
	{DELTA "conv1d.weight", {DIM_LINEAR_CONV, DIM_ONE, DIM_LINEAR_KERNEL}, IF_LINEAR, NULL,
	 CUT_LINEAR_CONV, GROUP_ATTENTION, 0, STORE_MODEL},
	DELTA_LINEAR("in_proj_qkvz", DIM_LINEAR_QKVZ, DIM_HIDDEN, CUT_LINEAR_HEADS),
	DELTA_LINEAR("in_proj_ba", DIM_LINEAR_BA, DIM_HIDDEN, CUT_LINEAR_HEADS),
	{DELTA "norm.weight", {DIM_LINEAR_V_HEAD}, IF_LINEAR, NULL, CUT_WHOLE, GROUP_TP, 0,
	 STORE_MODEL},
	DELTA_LINEAR("out_proj", DIM_HIDDEN, DIM_LINEAR_OUT, CUT_COLUMNS),
	FULL_QKV("q", DIM_Q_GATED, CUT_Q_HEADS),
	FULL_QKV("k", DIM_KV_ROWS, CUT_KV_HEADS),
	FULL_QKV("v", DIM_KV_ROWS, CUT_KV_HEADS),
	LINEAR("self_attn.o_proj", DIM_HIDDEN, DIM_Q_ROWS, IF_FULL, NULL, CUT_COLUMNS,
	       GROUP_ATTENTION),
	HEAD_NORMS(IF_FULL),
	ROUTER,
	EXPERTS,
	GATED_SHARED_EXPERT,
	LAYER_NORMS,
	LAST(IF_UNTIED, GROUP_LM_HEAD),
};
/* clang-format on */

/* SGLang's layers of full attention have no module of that name. */
static const struct param_name names[] = {{".self_attn.", ".", ".self_attn."}, {0}};

const struct family family_qwen3_next =
	FAMILY("Qwen3NextForCausalLM", "qwen3_next", rules,
	       .features = FEATURE_GQA | FEATURE_EXPERTS | FEATURE_NUM_EXPERTS |
			   FEATURE_SHARED_GATE | FEATURE_LINEAR,
	       .names = names, .own_head = OWN_HEAD(NAMES_SGLANG) | OWN_HEAD(NAMES_VLLM),
	       .attention_dp = true);

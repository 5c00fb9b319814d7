/* SPDX-License-Identifier: Apache-2.0
 *
 * family.h -- a model class as data: one const row per checkpoint tensor.
 *
 *   tensor                 dims      condition        parameter        cut        group
 *   ...q_proj.weight       [hd, H]   always           qkv_proj.weight  Q heads    attention ┐
 *   ...k_proj.weight       [gd, H]   always           qkv_proj.weight  KV heads   attention ├ stack
 *   ...v_proj.weight       [gd, H]   always           qkv_proj.weight  KV heads   attention ┘
 *   ...o_proj.weight       [H, hd]   always           (same name)      columns    attention
 *
 * Rows stand in checkpoint order. Rows whose tensor has "{i}" repeat for every layer, as a
 * block; rows before that block belong to the first stage, rows after it to the last. Rows
 * that name the same parameter stack along dimension 0 in row order.
 *
 * What a row cannot say yet, and where it will be said:
 *   experts    A row with "{e}" repeats inside its layer for every expert. Its parameter has
 *              one more leading dimension, the local slots E/P, and the row's share lands in
 *              slot e - p*E/P at that slot's first byte plus its place in the stack, so only
 *              stack_offset() of engine.c learns about slots; group_of() gives the moe_tp
 *              group (t mod Q of Q), condition_holds() says which layers are sparse.
 *   MLA        q_a and kv_a are two CUT_WHOLE rows of one parameter; q_b and kv_b are
 *              CUT_ROWS of the attention group. Only dimension symbols are new.
 *   fp8 scales A row beside each weight, with dimensions "blocks of" a symbol and its own
 *              dtype (an enum in the row; DTYPE_NONE means the model's). The cuts are the
 *              same functions over block rows, after the divisibility check of the weight.
 * Sources: the HuggingFace transformers and SGLang model classes of each architecture.
 */
#ifndef MODEL_FAMILY_H
#define MODEL_FAMILY_H

#include "model/model.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LAYER_PREFIX "model.layers.{i}."
#define RULE_DIMS_MAX 2
#define RULE_NAME_BYTES 256

/* Dimension symbols; DIM_END is 0, so that a short list ends itself. */
enum dim {
	DIM_END,
	DIM_HIDDEN,          /* H */
	DIM_VOCAB,           /* V */
	DIM_Q_ROWS,          /* h * d: query heads times head size */
	DIM_KV_ROWS,         /* g * d */
	DIM_HEAD,            /* d */
	DIM_INTERMEDIATE,    /* I */
	DIM_INTERMEDIATE_2,  /* 2 I: gate and up in one tensor */
	DIM_COUNT
};

enum condition { ALWAYS, IF_UNTIED, IF_ATTENTION_BIAS, IF_MLP_BIAS, CONDITION_COUNT };

/* How one rank of a group of n takes its part. */
enum cut {
	CUT_WHOLE,     /* all of it on every rank */
	CUT_ROWS,      /* 1/n of dimension 0, of each of `parts` equal parts */
	CUT_COLUMNS,   /* 1/n of dimension 1: the row-parallel linear, strided in the source */
	CUT_Q_HEADS,   /* whole query heads */
	CUT_KV_HEADS,  /* whole KV heads; with n > g, n/g neighbours hold the same head */
	CUT_VOCAB,     /* 1/n of the vocabulary rounded up to 64; the rounding is filled */
	CUT_COUNT
};

enum group {
	GROUP_TP,         /* all tp ranks of the engine */
	GROUP_ATTENTION,  /* the tp/dp ranks of one attention replica */
	GROUP_LM_HEAD,    /* attention's with dp_lm_head, else all */
	GROUP_COUNT
};

struct rule {
	const char *tensor;            /* HuggingFace name; "{i}" is the layer */
	enum dim dims[RULE_DIMS_MAX];
	enum condition when;
	const char *param;             /* engine name; NULL: the tensor's own */
	enum cut cut;
	enum group group;
	uint32_t parts;                /* CUT_ROWS of a tensor fused on disk; 0 means 1 */
};

struct family {
	const char *architecture;      /* "Qwen2ForCausalLM" */
	const char *model_type;        /* "qwen2" */
	const struct rule *rules;
	size_t rule_count;
	bool attention_bias_always;    /* the class has q, k, v biases whatever the config says */
	bool reads_attention_bias;     /* the config field means something to the class */
	bool reads_mlp_bias;
	bool kv_heads_optional;        /* a missing num_key_value_heads means all heads */
	bool attention_dp;             /* the engine's class can replicate attention (dp > 1) */
};

extern const struct family family_llama, family_qwen2, family_qwen3, family_glm4;

/* Every family, ending with NULL. */
extern const struct family *const families[];
const struct family *family_find(const char *architecture); /* NULL when unknown */
/* "A, B, C" of all architectures into out; returns out. */
char *family_list(char *out, size_t out_bytes);

bool condition_holds(enum condition when, const struct model_config *config);
uint64_t dim_value(enum dim dim, const struct model_config *config);
uint32_t rule_dims(const struct rule *rule);
bool rule_in_layer(const struct rule *rule);
/* The name with "{i}" replaced; false when it does not fit RULE_NAME_BYTES. */
bool rule_name(const char *pattern, uint64_t layer, char out[RULE_NAME_BYTES]);
static inline const char *rule_param(const struct rule *rule)
{
	return rule->param ? rule->param : rule->tensor;
}

#endif

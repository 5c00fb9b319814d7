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
 *   experts    Neighbouring rows with "{e}" repeat inside their layer expert by expert, and so
 *              do their shares in the parameter: gate 0, up 0, gate 1, up 1, .. is what
 *              w13_weight [slots, 2 M/Q, H] is in memory. A rank takes the block of experts of
 *              its place among ep, and of each the rows or columns of its place in GROUP_EXPERT.
 *   layers     A condition may ask about the layer: the first ones are dense, the others sparse;
 *              those past num_hidden_layers are MTP layers, which are listed and not routed.
 *   fp8        A STORE_LINEAR row of a checkpoint quantised in blocks makes two tensors: the
 *              weight in fp8 and, beside it, "<name>_scale_inv" with one float per block. The
 *              scale is cut where its weight is; a cut inside of a block is refused.
 * Sources: the HuggingFace transformers and SGLang model classes of each architecture.
 */
#ifndef MODEL_FAMILY_H
#define MODEL_FAMILY_H

#include "job/parallel.h"
#include "model/model.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LAYER_PREFIX "model.layers.{i}."
#define HEAD_TENSOR "lm_head.weight"
#define RULE_DIMS_MAX 4
#define RULE_NAME_BYTES 256

/* Dimension symbols; DIM_END is 0, so that a short list ends itself. */
enum dim {
	DIM_END,
	DIM_HIDDEN,          /* H */
	DIM_VOCAB,           /* V */
	DIM_Q_ROWS,          /* h * d: query heads times head size */
	DIM_KV_ROWS,         /* g * d */
	DIM_POSITIONS,       /* learned ones */
	DIM_QKV_ROWS,        /* (h + 2 g) d: all three in one tensor */
	DIM_HEAD,            /* d */
	DIM_INTERMEDIATE,    /* I */
	DIM_INTERMEDIATE_2,  /* 2 I: gate and up in one tensor */
	DIM_EXPERTS,         /* E */
	DIM_MOE,             /* M: an expert's intermediate size */
	DIM_SHARED,          /* M S: of the shared experts, which are one MLP */
	DIM_SHARED_GATED,    /* of the one shared expert that has a gate */
	DIM_ONE,
	DIM_Q_LORA,          /* ql */
	DIM_KV_LORA,         /* kl */
	DIM_KV_A,            /* kl + dr: the latent and the one rotary key */
	DIM_LATENT_Q,        /* h (dn + dr) */
	DIM_LATENT_KV,       /* h (dn + dv) */
	DIM_LATENT_OUT,      /* h dv */
	DIM_INDEX_Q,         /* index heads times their size */
	DIM_INDEX_HEADS,
	DIM_INDEX_HEAD,
	DIM_HIDDEN_2,        /* 2 H */
	DIM_Q_GATED,         /* 2 h d: each query head beside its gate */
	DIM_LINEAR_QKVZ,     /* linear attention: of each key head its q, k, values and gates */
	DIM_LINEAR_BA,       /* and the two numbers of each value head */
	DIM_LINEAR_CONV,     /* all q, all k, all values */
	DIM_LINEAR_KERNEL,
	DIM_LINEAR_V_HEADS,
	DIM_LINEAR_V_HEAD,
	DIM_LINEAR_OUT,      /* value heads times their size */
	DIM_HEADS,
	DIM_MOE_2,           /* 2 M: gate and up of an expert, row by row in turn */
	DIM_MOE_BLOCKS,      /* M/32: what one MXFP4 scale is for */
	DIM_HIDDEN_BLOCKS,   /* H/32 */
	DIM_BLOCK_BYTES,     /* 16: of 32 numbers of 4 bits */
	DIM_ROTARY,          /* H/h/2: the frequencies that some checkpoints carry along */
	DIM_COUNT
};

enum condition {
	ALWAYS,
	IF_UNTIED,       /* or tied, and the checkpoint has an lm_head all the same */
	IF_ATTENTION_BIAS,
	IF_MLP_BIAS,
	IF_QK_NORM,
	IF_DENSE,        /* layers below first_k_dense_replace */
	IF_SPARSE,       /* the others */
	IF_SHARED,       /* sparse, and there are shared experts */
	IF_ROUTER_BIAS,  /* sparse, and the router has a bias */
	IF_Q_LORA,
	IF_NO_Q_LORA,
	IF_INDEXER,      /* layers with an indexer of their own */
	IF_ROTARY,
	IF_MXFP4,        /* the experts are stored so */
	IF_NOT_MXFP4,
	IF_LINEAR,       /* layers of linear attention */
	IF_FULL,         /* the others: every full_attention_interval-th */
	IF_MTP,          /* layers from num_hidden_layers on */
	CONDITION_COUNT
};

/* How one rank of a group of n takes its part. */
enum cut {
	CUT_WHOLE,     /* all of it on every rank */
	CUT_ROWS,      /* 1/n of dimension 0, of each of `parts` equal parts */
	CUT_COLUMNS,   /* 1/n of dimension 1: the row-parallel linear, strided in the source */
	CUT_Q_HEADS,   /* rows of 1/n of the query heads */
	CUT_KV_HEADS,  /* whole KV heads; with n > g, n/g neighbours hold the same head */
	CUT_QKV,       /* of one tensor: rows of its query heads, then of its KV heads, twice */
	CUT_EXPERT_ROWS,    /* of a tensor of all experts this rank's, and 1/n of dimension 1 of each */
	CUT_EXPERT_COLUMNS, /* the same of dimension 2 */
	CUT_EXPERT_FIRST,   /* whole on the first rank of the group; the others fill zeroes */
	CUT_LINEAR_HEADS, /* rows of 1/n of linear attention's key heads */
	CUT_LINEAR_CONV, /* the same of its q, its k and its values, which lie after each other */
	CUT_VOCAB,     /* 1/n of the vocabulary rounded up to 64; the rounding is filled */
	CUT_VOCAB_OR_WHOLE, /* with names=vllm as CUT_VOCAB, else all of it, not rounded up */
	CUT_NONE,      /* no engine has a parameter for it */
	CUT_COUNT
};

enum group {
	GROUP_TP,         /* all tp ranks of the engine */
	GROUP_ATTENTION,  /* the tp/dp ranks of one attention replica */
	GROUP_EMBEDDING,  /* each rank alone with embed_replicated, else attention's */
	GROUP_LM_HEAD,    /* attention's with dp_lm_head, else all */
	GROUP_DENSE,      /* each rank alone with moe_dense_tp, else all */
	GROUP_SHARED,     /* each rank alone with a2a, as experts with fuse_shared, else all */
	GROUP_EXPERT,     /* the tp/ep ranks that share one block of experts */
	GROUP_COUNT
};

/* What its elements are in the checkpoint. */
enum store {
	STORE_MODEL,      /* the model's dtype */
	STORE_LINEAR,     /* the same, or fp8 in blocks */
	STORE_ROUTER,     /* the same; engines may keep it in another */
	STORE_F32,        /* 32 bits, in engines too; the model's dtype in a checkpoint that was cast */
	STORE_CONV1D,     /* the model's dtype, and the matrix transposed: [in, out] on disk */
	STORE_MXFP4,      /* bytes; the engine joins the last two dimensions */
	STORE_MXFP4_SCALES, /* bytes */
	STORE_EXPERT_BIAS, /* the model's dtype; SGLang keeps 32 bits beside unquantised experts */
	STORE_F32_IN_ENGINE, /* the model's dtype; 32 bits in engines */
	STORE_F32_WITH_FP8, /* where the linears are fp8, else the model's dtype; in engines always */
	STORE_COUNT
};

/* What a class has, and so which fields of its config count. */
enum feature {
	FEATURE_GQA = 1 << 0,          /* num_key_value_heads, head_dim */
	FEATURE_MLP = 1 << 1,          /* intermediate_size */
	FEATURE_EXPERTS = 1 << 2,
	FEATURE_NUM_EXPERTS = 1 << 3,  /* called num_experts */
	FEATURE_SHARED = 1 << 4,       /* shared experts and first dense layers */
	FEATURE_LATENT = 1 << 5,       /* multi-head latent attention */
	FEATURE_INDEXER = 1 << 6,      /* of sparse attention */
	FEATURE_MTP = 1 << 7,          /* may have layers that predict further tokens */
	FEATURE_TOPK_METHOD = 1 << 8,  /* says whether the router has a bias */
	FEATURE_ATTENTION_BIAS = 1 << 9,
	FEATURE_MLP_BIAS = 1 << 10,
	FEATURE_QK_NORM = 1 << 11,     /* use_qk_norm says whether q and k have norms */
	FEATURE_FP8 = 1 << 12,         /* its checkpoints may be quantised in blocks */
	FEATURE_LOCAL_EXPERTS = 1 << 13, /* called num_local_experts, and intermediate_size theirs;
					    without this and NUM_EXPERTS: n_routed_experts */
	FEATURE_SHARED_GATE = 1 << 14, /* one shared expert with a size and a gate of its own */
	FEATURE_QKV_BIAS = 1 << 15,    /* qkv_bias says whether q, k and v have biases */
	FEATURE_STACKED = 1 << 18,     /* a tensor holds all experts of its layer; may be MXFP4 */
	FEATURE_LINEAR = 1 << 17,      /* linear attention in most layers */
	FEATURE_GPT2 = 1 << 16,        /* GPT-2's names for sizes; learned positions */
};

struct rule {
	const char *tensor;            /* HuggingFace name; "{i}" is the layer, "{e}" the expert */
	enum dim dims[RULE_DIMS_MAX];
	enum condition when;
	const char *param;             /* engine name; NULL: the tensor's own */
	enum cut cut;
	enum group group;
	uint32_t parts;                /* CUT_ROWS of a tensor fused on disk; 0 means 1 */
	enum store store;
};

/* A part of parameter names, and what an engine has there. */
struct param_name {
	const char *name, *sglang, *vllm;
};

/* Parameters that one engine's class has not, whatever the checkpoint has; its loader skips the tensors. */
struct absence {
	const char *param; /* as rule_param() has it */
	uint32_t names;    /* enum engine_names */
};

#define OWN_HEAD(names) (1u << (names))

/* What transformers' class says where a config says nothing. */
struct size_default {
	const char *name;
	uint64_t value;
};

struct family {
	const char *architecture;      /* "Qwen2ForCausalLM" */
	const char *model_type;        /* "qwen2" */
	const struct rule *rules;
	size_t rule_count;
	uint32_t features;             /* enum feature */
	const struct size_default *defaults; /* of a nested text_config; NULL: none. head_dim's
						counts everywhere. Ending with a NULL name */
	const struct param_name *names; /* of engines, where they are not the rows'; ending with a NULL
					   name. NULL: they are */
	const struct absence *absences; /* NULL: none. Ending with a NULL parameter */
	uint32_t own_head;             /* engines, OWN_HEAD() of each, whose class never ties lm_head to the embedding */
	bool tied;                     /* a config without tie_word_embeddings means true */
	bool attention_bias;           /* q, k, v biases where no field is read that says */
	bool router_bias;              /* unless topk_method says otherwise */
	bool kv_heads_optional;        /* a missing num_key_value_heads means all heads */
	bool attention_dp;             /* the engine's class can replicate attention (dp > 1) */
};

extern const struct family family_llama, family_qwen2, family_qwen3, family_qwen3_moe;
extern const struct family family_glm4, family_glm4_moe, family_glm4_moe_lite;
extern const struct family family_deepseek_v2, family_deepseek_v3, family_deepseek_v32;
extern const struct family family_glm_moe_dsa, family_mistral, family_mixtral, family_phi3;
extern const struct family family_gemma2, family_gemma3, family_qwen2_moe, family_gpt2;
extern const struct family family_qwen3_next, family_gpt_oss;

/* Every family, ending with NULL. */
extern const struct family *const families[];
const struct family *family_find(const char *architecture); /* NULL when unknown */
/* By its model_type or its architecture, in any case; NULL when unknown. */
const struct family *family_named(const char *name);
/* "A, B, C" of all architectures into out; returns out. `types`: of their model_types. */
char *family_list(bool types, char *out, size_t out_bytes);
/* What may be done about a class that no row knows: the end of a message. */
const char *family_unknown_hint(void);
#define FAMILY_LIST_BYTES 768

static inline bool family_has(const struct family *family, uint32_t features)
{
	return (family->features & features) == features;
}

/* `layer` is -1 for rows outside of the layers. */
bool condition_holds(enum condition when, const struct model_config *config, int64_t layer);
uint64_t dim_value(enum dim dim, const struct model_config *config);
uint32_t rule_dims(const struct rule *rule);
bool rule_in_layer(const struct rule *rule);
bool rule_in_expert(const struct rule *rule);
/* What the row says of its tensor's shape: dims entries. */
void rule_shape(const struct rule *rule, const struct model_config *config,
		uint64_t shape[RULE_DIMS_MAX]);

#define SCALE_SUFFIX "_scale_inv"
/* The name with "{i}" and "{e}" replaced, and the suffix of a scale; false when it does not fit
 * RULE_NAME_BYTES. */
bool rule_name(const char *pattern, uint64_t layer, uint64_t expert, bool scale,
	       char out[RULE_NAME_BYTES]);
static inline const char *rule_param(const struct rule *rule)
{
	return rule->param ? rule->param : rule->tensor;
}

#endif

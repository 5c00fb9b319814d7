/* SPDX-License-Identifier: Apache-2.0
 *
 * model.h -- a model: what its config says, the tensors of its checkpoint in checkpoint order,
 * and the parameters of one engine rank.
 *
 * Families are data rows (model/families/): each row names a tensor, its dimensions as symbols
 * of the config, the engine parameter it becomes part of, and how it is cut. Rows that name the
 * same parameter stack on top of each other in row order: that is every fusion there is.
 * "Checkpoint order" is the order of a model's rows, layer by layer: embedding, layers, final
 * norm, lm_head (the registration order of the HuggingFace class).
 * Source of the rules: SGLang and vLLM model classes.
 */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "base/error.h"
#include "base/pool.h"
#include "job/holding.h"
#include "job/layout.h"
#include "job/parallel.h"
#include "job/strmap.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct family; /* model/family.h */
struct layout_file; /* model/layout_file.h */
struct tower;  /* model/tower.h */

/* Sizes that a family does not have are 0. */
struct model_config {
	const struct family *family;
	const struct tower *tower;    /* NULL: the checkpoint is of a text model alone */
	uint64_t hidden_size, vocab_size, layers, heads, kv_heads, head_dim, intermediate_size;
	uint64_t experts;             /* routed ones */
	uint64_t expert_groups;       /* n_group; 0: config.json says nothing of them */
	uint64_t shared_experts, moe_intermediate_size;
	uint64_t shared_intermediate_size; /* of the one shared expert that has a gate */
	uint64_t dense_layers;        /* first_k_dense_replace: layers without experts */
	uint64_t q_lora_rank;         /* 0: queries have no latent */
	uint64_t kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim;
	uint64_t index_heads, index_head_dim;
	uint64_t index_every, index_offset; /* which layers have an indexer; every 0 or 1: all */
	uint64_t positions;           /* that have an embedding of their own */
	uint64_t full_every;          /* full_attention_interval; 0: no linear attention */
	uint64_t linear_k_heads, linear_v_heads, linear_k_head_dim, linear_v_head_dim;
	uint64_t linear_kernel;       /* of its convolution */
	uint64_t mtp_layers;          /* num_nextn_predict_layers */
	uint64_t block_rows, block_columns; /* of one fp8 scale; 0: not quantised */
	bool mxfp4;            /* experts: 4 bits a number, a scale for 32 of a row */
	bool tied;             /* tie_word_embeddings */
	bool own_head;         /* tied, and the checkpoint has an lm_head all the same (model/own_head.h) */
	bool attention_bias;   /* q, k, v biases */
	bool mlp_bias;
	bool qk_norm;          /* where it is a choice */
	bool router_bias;
	bool router_bias_cast; /* the checkpoint has it in the model's dtype, not in 32 bits */
	bool rotary_tensors;   /* the checkpoint carries rotary frequencies along */
	enum dtype dtype;      /* torch_dtype: of what is not quantised */
};

#define EXPERT_NONE UINT32_MAX

struct model_tensor {
	const char *name;      /* HuggingFace name; owned by the model */
	enum dtype dtype;
	uint32_t dims;
	uint64_t shape[BOX_DIMS_MAX];
	uint64_t bytes;
	int64_t layer;         /* -1: before the layers (first stage); layers count from 0;
				  == config.layers: after them (last stage), or the first MTP
				  layer when the index is not below tensor_count */
	uint32_t rule;         /* row of the family it came from */
	uint32_t expert;       /* EXPERT_NONE outside of routed experts */
	bool scale;            /* the scales of the tensor before it; from a layout file, of any */
};

/* Elements, without those of scales and rotary tensors, and bytes with them. */
struct model_total {
	size_t tensors;
	uint64_t parameters, bytes;
};

struct model {
	struct pool pool;      /* owns the tensors, their names and its own */
	char *name;            /* "Qwen2.5-0.5B", or the folder's name: the label of dumps */
	struct model_config config;
	/* Of a model that a layout file describes, else NULL. Such a config has no family, and of all its
	 * sizes the layers alone. */
	struct layout_file *file;
	/* Checkpoint order, tensor_count of them; then up to all_count those of MTP layers, which
	 * engines leave to their draft model: they are not needed or routed, and held by Megatron's
	 * trainers alone, with mtp=. */
	struct model_tensor *tensors;
	size_t tensor_count, all_count;
	struct strmap names;          /* tensor name to index, of all */
	uint64_t bytes, parameters;   /* of tensor_count */
	uint64_t all_bytes, all_parameters;
};

/* The same sums without a model: [0] without MTP layers, [1] of all. ERROR_LIMIT when there are
 * more tensors than one job can have. */
int model_totals(const struct model_config *config, struct model_total totals[2],
		 struct error *error);

/* `name_or_path`: a built-in name (case does not matter), a config.json, a layout file, or a folder
 * with one of them (of both, the layout file). A built-in name wins over a folder or file of that name,
 * which is then written with a '/' or a leading '.'. Unknown names list the closest built-in ones. */
int model_open(struct model **model, const char *name_or_path, struct error *error);
/* The same with a folder's or file's model read as one of a family, by the family's model_type or
 * class, whatever class its config names; `as` may be NULL. A built-in model is not read so. */
int model_open_as(struct model **model, const char *name_or_path, const char *as,
		  struct error *error);
/* The same from a config that is already read. */
int model_from_config(struct model **model, const char *name, const struct model_config *config,
		      struct error *error);
void model_close(struct model **model);

/* What engine rank `engine_rank` (0..tp-1) needs. Refuses what cannot be cut, naming tensor,
 * number and divisor. Initialises *layout (whatever it held is not freed); after a failure it
 * is empty. The same for model_holding's *holding. */
int model_layout(const struct model *model, const struct infer_spec *infer,
		 uint32_t engine_rank, struct layout *layout, struct error *error);

/* What trainer `rank` holds: gathered, whole tensors of its stage; sharded, its dim-0 rows of
 * every tensor of its stage (a tensor of which it has no row is left out). `order` is the index
 * in checkpoint order. A tied model's lm_head is not a tensor, unless its
 * checkpoint has one of its own. */
int model_holding(const struct model *model, const struct train_spec *train, uint32_t rank,
		  struct holding *holding, struct error *error);

/* Index into tensors, or -1; not below tensor_count for a tensor of an MTP layer. */
int64_t model_find(const struct model *model, const char *name);

/* Built-in configs, for `weft model list`. */
struct model_builtin {
	const char *name;
	const char *config_json; /* what its config.json says, as far as shapes go */
};
const struct model_builtin *model_builtins(size_t *count);
/* The config.json of a model that `checkpoint make` writes (memory_free it). */
char *model_config_json(const struct model *model, struct error *error);

#endif

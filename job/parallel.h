/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel.h -- parallel layouts as one string, the same everywhere:
 *   --train world=256,pp=8,source=gathered      --train world=16,fsdp=8,source=sharded
 *   --train world=128,source=megatron,tp=4,pp=4,ep=8,etp=1
 *   --train world=16,source=megatron,pp=4,layout=Ett|(tt|)*2,mL   (Megatron's own string: becomes vpp, layers and mtp)
 *   --train world=16,source=dtensor,mesh=2/4/2    (replicas / fsdp / tp; mesh=4/2 and mesh=4 leave out from the left and right)
 *   --train world=8,source=zero3                  --train world=8,source=fsdp1,orig=1
 *   --infer engines=8,tp=32,ep=32,dp=8,dp_lm_head=1,moe_dense_tp=1
 *   --infer engines=1,tp=8,a2a=1,fuse_shared=1,embed_replicated=1,names=vllm,
 *           experts=round_robin,routed_experts=1,gate=F32,indexer=fused,dtype=BF16,
 *           fp8=128x128 (or fp8=none),mxfp4_pad=64x1
 *   --infer tp=8,expert_weights=in_out
 *   --infer tp=8,expert_halves=up_gate
 * Missing keys are 1 or off. Trainer r is in stage r / (world/pp). Inference ranks are
 * engine-major: rank = engine * tp + engine_rank.
 */
#ifndef JOB_PARALLEL_H
#define JOB_PARALLEL_H

#include "base/error.h"
#include <stdint.h>

#define PARALLEL_RANKS_MAX  65536
#define PARALLEL_STAGES_MAX 256

enum train_source { TRAIN_GATHERED, TRAIN_SHARDED, TRAIN_MEGATRON, TRAIN_DTENSOR, TRAIN_ZERO3, TRAIN_FSDP1 };
/* Which of Megatron's two rank orders; both begin with tp-cp-ep. */
enum train_order { ORDER_DP_PP, ORDER_PP_DP };
/* How Megatron keeps the experts of a rank: a parameter each, all in one, or all in one of the legacy GroupedMLP, transposed. */
enum train_grouped { GROUPED_EACH, GROUPED_ONE, GROUPED_LEGACY };
/* Whether the trainer keeps the norm behind linear attention a second time, as the checkpoint has it (docs/sources.md). */
enum train_out_norm { OUT_NORM_ONLY, OUT_NORM_PLUS_ONE };

struct train_spec {
	uint32_t world;            /* trainers */
	uint32_t pp;               /* stages; divides world */
	uint32_t source;           /* enum train_source */
	uint32_t fsdp;             /* sharded: shards of dimension 0; divides world */
	uint32_t tp;               /* megatron */
	uint32_t ep;               /* megatron, dtensor */
	uint32_t etp, cp, vpp;     /* megatron; etp 0: as tp */
	uint32_t order;            /* megatron: enum train_order */
	uint32_t first, last;      /* megatron: layers of the first and of the last stage; 0: as the others */
	uint32_t account_embedding, account_loss; /* megatron, flags: they count as a layer */
	uint32_t grouped;          /* megatron: enum train_grouped */
	uint32_t mtp, mtp_stage;   /* megatron: how many MTP layers it has, and in which stage; 0: in the last */
	uint32_t glu_interleave, shared_glu_interleave; /* megatron: rows of gate and of up in turn, of routed and of
							   shared experts; 0: all of gate, then all of up */
	uint32_t out_norm;         /* megatron: enum train_out_norm */
	uint32_t vocab_pad;        /* megatron: the vocabulary is rounded up to that times tp; 1: to what tp divides */
	uint32_t replicate, mesh_fsdp, mesh_tp; /* dtensor */
	uint32_t orig;             /* fsdp1, flag: use_orig_params, which begins each parameter at 16 bytes */
	uint32_t stage_layers_count;               /* 0, or pp * vpp: layers=8/8/.., chunk by chunk */
	uint32_t stage_layers[PARALLEL_STAGES_MAX];
};

/* Of Megatron's ranks: place and size by dimension of the dense grid and of the experts'. dtensor has fsdp for dp, and ep across
 * fsdp and tp. Source: Megatron-Core's RankGenerator, torchtitan's meshes; docs/sources.md. */
struct train_place {
	uint32_t pp, tp, dp;           /* dp: with megatron, of the ranks with one (tp, cp, pp) */
	uint32_t etp, ep, edp;
};

#define MXFP4_BLOCK 32 /* numbers of a row that share a scale */

/* Whose parameter names, and whose rules where they differ (docs/models.md). */
enum engine_names { NAMES_SGLANG, NAMES_VLLM, NAMES_COUNT };
/* Which experts a rank of the ep group owns. */
enum expert_map {
	EXPERTS_LINEAR,
	EXPERTS_ROUND_ROBIN,
	EXPERTS_ROUND_ROBIN_A2A, /* the same, with an all-to-all kernel between dp's ranks that does it */
	EXPERTS_COUNT
};

/* Zero of any field below moe_dense_tp: as published engines do by default. */
struct infer_spec {
	uint32_t engines, tp;      /* tp is the GPUs of one engine */
	uint32_t ep, dp;           /* divide tp */
	uint32_t dp_lm_head, moe_dense_tp; /* 0 or 1: flags */
	uint32_t a2a;              /* flag: all-to-all backend, shared experts whole on every rank */
	uint32_t fuse_shared;      /* flag: shared experts are slots of the routed ones */
	uint32_t embed_replicated; /* flag: the embedding whole on every rank */
	uint32_t names;            /* enum engine_names */
	uint32_t experts;          /* enum expert_map */
	uint32_t routed_experts;   /* flag: experts' parameters are those of a module of that name */
	uint32_t experts_in_out;   /* flag: matrices of experts lie as tensors of all experts do */
	uint32_t up_gate;          /* flag: up before gate in w13_weight of each expert */
	uint32_t untied;           /* flag: a tied model's lm_head is a parameter, from the checkpoint's own */
	uint32_t gate;             /* enum dtype of router gates; DTYPE_NONE: the model's */
	uint32_t indexer_fused;    /* flag: wk and weights_proj are one unquantised parameter */
	uint32_t dtype;            /* enum dtype of what is not quantised; DTYPE_NONE: as stored */
	uint32_t fp8;              /* enum infer_fp8 */
	uint32_t fp8_rows, fp8_columns; /* of a block, with FP8_BLOCKS */
	/* of experts in MXFP4: a rank's share of their size, and the hidden size, are rounded up to
	 * these; 0, 0: engines keep both */
	uint32_t pad_share, pad_hidden;
};
/* Are the engine's linears in fp8 blocks? */
enum infer_fp8 { FP8_AS_STORED, FP8_BLOCKS, FP8_NONE };

/* ERROR_CONFIG names the key, the value and what is allowed. */
int train_spec_parse(struct train_spec *spec, const char *string, struct error *error);
int infer_spec_parse(struct infer_spec *spec, const char *string, struct error *error);
/* What no model could have: ERROR_CONFIG for keys that exclude each other. Parsing has done it;
 * for specs that were made otherwise. */
int infer_spec_check(const struct infer_spec *spec, struct error *error);

/* Canonical spelling: the keys in their documented order, defaults left out
 * ("world=4,source=gathered", "engines=2,tp=2"). out holds PARALLEL_TEXT_BYTES. Returns out. */
#define PARALLEL_TEXT_BYTES 2048
char *train_spec_text(const struct train_spec *spec, char out[PARALLEL_TEXT_BYTES]);
char *infer_spec_text(const struct infer_spec *spec, char out[PARALLEL_TEXT_BYTES]);

uint32_t infer_ranks(const struct infer_spec *spec);              /* engines * tp */
uint32_t train_stage(const struct train_spec *spec, uint32_t rank);
struct train_place train_place(const struct train_spec *spec, uint32_t rank);
/* Ranks of the same number hold the same. */
uint64_t train_alike(const struct train_spec *spec, uint32_t rank);
/* Megatron: the stage, its chunk, and the place in that, of a layer of a model with so many. Source: get_num_layers_to_build and
 * get_transformer_layer_offset of Megatron-Core. ERROR_CONFIG: they cannot be laid out so. */
struct train_layer {
	uint32_t pp, chunk, place;
};
int train_megatron_layer(const struct train_spec *spec, uint32_t layers, uint32_t layer, struct train_layer *out,
			 struct error *error);
/* Stage of a layer of a model with that many layers (as even as possible, earlier stages take
 * the odd one; stage_layers overrides). ERROR_CONFIG when the override does not add up. */
int train_layer_stage(const struct train_spec *spec, uint32_t layers, uint32_t layer,
		      uint32_t *stage, struct error *error);
/* Rows [lo, hi) of dimension 0 that shard `shard` of `fsdp` holds: chunks of ceil(rows/n), the
 * last ones short or empty (torch FSDP2's chunking of dim 0). */
void train_shard_rows(uint64_t rows, uint32_t fsdp, uint32_t shard, uint64_t *lo, uint64_t *hi);

#endif

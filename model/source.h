/* SPDX-License-Identifier: Apache-2.0
 *
 * source.h -- how trainers hold a model, as rows: one a `source=` of --train. Each declares what one rank holds of the checkpoint's
 * tensors, in the checkpoint's order (job/holding.h). docs/sources.md has them in words, with their sources.
 */
#ifndef MODEL_SOURCE_H
#define MODEL_SOURCE_H

#include "model/model.h"

struct source_job {
	const struct model *model;
	const struct train_spec *train;
	uint32_t rank;
	struct train_place place;
	struct holding *holding;
};

typedef int source_hold(const struct source_job *job, struct error *error);
source_hold source_rows;     /* gathered, sharded */
source_hold source_megatron;
source_hold source_dtensor;
source_hold source_zero3, source_fsdp1;

/* Stage of a tensor without chunks: embeddings on the first, final norm and lm_head on the last. */
int source_stage(const struct source_job *job, const struct model_tensor *tensor, uint32_t *stage, struct error *error);
/* The tensor, in the holding: its index or a negative error. */
int64_t source_tensor(const struct source_job *job, size_t order, struct error *error);
/* A box of it, dense from element `offset` of a local parameter on, or with strides of its own. */
int source_box(const struct source_job *job, size_t order, const struct box *box, uint32_t local, uint64_t offset,
	       const uint64_t *stride, struct error *error);
/* The local parameter of that name, made with that shape when it is new. */
int64_t source_local(const struct source_job *job, const char *name, enum dtype dtype, uint32_t dims,
		     const uint64_t *shape, struct error *error);
/* Its name without "model.layers.{i}." (or what its class calls layers), and what "{e}" is of an expert; the name as it is outside of layers. */
const char *source_suffix(const struct model *model, const struct model_tensor *tensor);
/* Rotary frequencies: a checkpoint may have them, and a trainer has them as no parameter. */
bool source_is_buffer(const struct model *model, const struct model_tensor *tensor);
/* "tensor X of this model is no row of source=S: declare it box by box": ERROR_UNSUPPORTED. */
int source_unknown(const struct source_job *job, const struct model_tensor *tensor, const char *why,
		   struct error *error);

/* How a tensor is cut by tensor parallelism, whoever does it: columns of the linear are rows of the tensor. */
enum source_cut {
	SOURCE_UNKNOWN,
	SOURCE_WHOLE,
	SOURCE_ROWS,       /* column parallel */
	SOURCE_COLUMNS,    /* row parallel */
	SOURCE_VOCABULARY, /* rows of an embedding */
	SOURCE_Q, SOURCE_K, SOURCE_V, /* rows, by heads: of linear_qkv with megatron */
	SOURCE_QKV,        /* all three in one tensor of the checkpoint */
	SOURCE_GATE, SOURCE_UP, /* rows: of linear_fc1 with megatron */
	SOURCE_GATE_UP,    /* both in one tensor of the checkpoint */
	/* megatron alone: */
	SOURCE_LINEAR_QKVZ, SOURCE_LINEAR_BA, /* of linear attention, rows by key heads: of in_proj */
	SOURCE_LINEAR_CONV, /* all q, all k, all values: a share of each */
	SOURCE_OUT_NORM,    /* the norm behind it, which Megatron has as another number */
	SOURCE_STACKED,     /* of all experts in one tensor, which is cut by ep alone */
};

/* One tensor of a layer, by its name without the layer; "{e}" stands for an expert's number. */
struct source_row {
	const char *suffix;
	enum source_cut cut;
	const char *megatron; /* without the layer; NULL: as the tensor is called */
	const char *latent;   /* the same where attention is latent; NULL: the same */
	const char *sparse;   /* the same in layers with experts; NULL: the same */
};
/* ERROR_UNSUPPORTED when no row knows it. */
int source_find_row(const struct source_job *job, const struct model_tensor *tensor, struct source_row *row,
		    struct error *error);

#endif

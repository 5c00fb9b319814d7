/* SPDX-License-Identifier: Apache-2.0
 *
 * megatron.h -- what one tensor becomes in a Megatron-Core rank's parameters: a matrix of the checkpoint, of which boxes are put
 * from some row on into local ones. Shared by the files of this source.
 */
#ifndef MODEL_MEGATRON_H
#define MODEL_MEGATRON_H

#include "model/source.h"

#define MEGATRON_NAME_BYTES 320
#define MEGATRON_SHARED "mlp.shared_experts."

/* The tensor as the matrix [out, in] of a linear, wherever the checkpoint has its dimensions: GPT-2's is [in, out], one of several in
 * a tensor of experts is behind their number. */
struct megatron_matrix {
	uint32_t row, column;   /* dimensions of the tensor; column == dims where there is none */
	uint64_t rows, columns; /* columns: of all dimensions that are no rows */
	bool stacked;           /* dimension 0 counts experts */
};

struct megatron {
	const struct source_job *job;
	const struct model_config *config;
	const struct model_tensor *tensor;
	size_t order;
	int64_t layer;         /* whose place `at` is; -1: of none yet */
	struct train_layer at; /* tensors of a layer follow each other */
	struct source_row row;
	struct megatron_matrix matrix;
	uint32_t expert; /* of a stacked tensor, the one that is put */
	char prefix[96]; /* "decoder.layers.3.", with the chunk before it where there are several */
	uint32_t rank, size; /* in tp, or for routed experts in etp */
};

/* Rows [lo, hi) and columns [left, right) of the matrix, from row `at` of a local parameter of `rows` rows: its columns are these. */
struct megatron_part {
	uint64_t lo, hi, left, right, rows, at;
};
/* All columns of [lo, hi), from row `at` of `rows`. */
struct megatron_part megatron_rows(const struct megatron *m, uint64_t lo, uint64_t hi, uint64_t at, uint64_t rows);
int megatron_put(const struct megatron *m, const struct megatron_part *part, struct error *error);

/* "--train: tensor X has N rows to cut, which tp=T does not divide". */
int megatron_indivisible(const struct megatron *m, uint64_t number, struct error *error);

typedef int megatron_hold(struct megatron *m, struct error *error);
megatron_hold megatron_whole, megatron_cut_rows, megatron_cut_columns, megatron_vocabulary; /* megatron_cut.c */
megatron_hold megatron_gate, megatron_up, megatron_gate_up;
megatron_hold megatron_qkv;                                                                 /* megatron_attention.c */
megatron_hold megatron_linear_qkvz, megatron_linear_ba, megatron_linear_conv, megatron_out_norm;
megatron_hold megatron_expert, megatron_stacked;                                            /* megatron_experts.c */

/* Gate and up of a rank's share of each, in one: runs of `count` rows of gate, each with one of up behind it. */
struct megatron_halves {
	uint64_t count, times;
};
int megatron_halves(const struct megatron *m, uint64_t share, uint32_t interleave, struct megatron_halves *halves,
		    struct error *error);
/* The row at which run `i` of `part` (gate 0, up 1) begins. */
static inline uint64_t megatron_half_at(const struct megatron_halves *halves, uint64_t i, uint32_t part)
{
	return (2 * i + part) * halves->count;
}

#endif

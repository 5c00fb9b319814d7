/* SPDX-License-Identifier: Apache-2.0
 *
 * ranks.h -- where an engine rank stands: its place in each group of ranks that cuts something,
 * and the experts that it owns.
 *
 *   tp=8, ep=2, dp=4       engine rank   0  1  2  3  4  5  6  7
 *     attention, of 2                    0  1  0  1  0  1  0  1     rank mod tp/dp
 *     block of experts, of 2             0  0  0  0  1  1  1  1     rank / (tp/ep)
 *     share of each expert, of 4         0  1  2  3  0  1  2  3     rank mod tp/ep
 *
 * names=vllm: the dp replicas of attention are tensor-parallel groups of their own, so that all
 * but the experts are cut as attention is. (vLLM's --tensor-parallel-size is tp/dp here, its
 * --data-parallel-size dp, and ep=tp is its --enable-expert-parallel.)
 * Source: SGLang's RankParallelismConfig; vLLM's FusedMoEParallelConfig and expert maps.
 */
#ifndef MODEL_RANKS_H
#define MODEL_RANKS_H

#include "job/parallel.h"
#include "model/cut.h"
#include <stdbool.h>
#include <stdint.h>

/* ERROR_CONFIG when there is no such rank. */
int rank_check(const struct infer_spec *infer, uint32_t engine_rank, struct error *error);
/* The options must have passed infer_spec_check. */
struct place rank_place(const struct infer_spec *infer, uint32_t engine_rank, enum group group);

/* The routed experts of one rank; their slots stand in the order of the experts. */
struct owned {
	enum expert_map map;
	uint32_t part, parts;   /* of ep */
	uint32_t first, count;  /* first is of EXPERTS_LINEAR */
};

/* Where ep does not divide the experts, the first ranks own one more. */
struct owned rank_experts(const struct infer_spec *infer, uint32_t engine_rank, uint64_t experts);
bool owns_expert(const struct owned *owned, uint32_t expert);

#endif

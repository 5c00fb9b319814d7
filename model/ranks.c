/* SPDX-License-Identifier: Apache-2.0 */
#include "model/ranks.h"

int rank_check(const struct infer_spec *infer, uint32_t engine_rank, struct error *error)
{
	if (engine_rank < infer->tp)
		return 0;
	return error_set(error, ERROR_CONFIG, "engine rank %u is not below tp=%u", engine_rank,
			 infer->tp);
}

struct place rank_place(const struct infer_spec *infer, uint32_t engine_rank, enum group group)
{
	const uint32_t attention = infer->tp / infer->dp, expert = infer->tp / infer->ep;
	const struct place alone = {.size = 1};
	const struct place in_attention = {.rank = engine_rank % attention, .size = attention};
	const struct place in_expert = {
		.rank = engine_rank % expert, .size = expert, .whole_blocks = infer->tp > 1};
	const struct place in_tp = infer->names == NAMES_VLLM
					   ? in_attention
					   : (struct place){.rank = engine_rank, .size = infer->tp};

	const struct place places[GROUP_COUNT] = {
		[GROUP_TP] = in_tp,
		[GROUP_ATTENTION] = in_attention,
		[GROUP_EMBEDDING] = infer->embed_replicated ? alone : in_attention,
		[GROUP_LM_HEAD] = infer->dp_lm_head ? in_attention : in_tp,
		[GROUP_DENSE] = infer->moe_dense_tp ? alone : in_tp,
		[GROUP_SHARED] = infer->fuse_shared ? in_expert
				 : infer->a2a	    ? alone
						    : in_tp,
		[GROUP_EXPERT] = in_expert,
	};

	return places[group];
}

struct owned rank_experts(const struct infer_spec *infer, uint32_t engine_rank, uint64_t experts)
{
	struct owned owned = {.map = infer->experts == EXPERTS_LINEAR ? EXPERTS_LINEAR
								      : EXPERTS_ROUND_ROBIN,
			      .part = engine_rank / (infer->tp / infer->ep),
			      .parts = infer->ep};
	uint32_t each = (uint32_t)(experts / infer->ep), odd = (uint32_t)(experts % infer->ep);

	owned.count = each + (owned.part < odd);
	owned.first = owned.part * each + (owned.part < odd ? owned.part : odd);
	return owned;
}

bool owns_expert(const struct owned *owned, uint32_t expert)
{
	if (owned->map == EXPERTS_ROUND_ROBIN)
		return expert % owned->parts == owned->part;
	return expert >= owned->first && expert - owned->first < owned->count;
}

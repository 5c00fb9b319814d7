/* SPDX-License-Identifier: Apache-2.0 */
#include "model/ranks.h"

struct place rank_place(const struct infer_spec *infer, uint32_t engine_rank, enum group group)
{
	const uint32_t attention = infer->tp / infer->dp, expert = infer->tp / infer->ep;
	const struct place alone = {0, 1, false};
	const struct place in_attention = {engine_rank % attention, attention, false};
	const struct place in_expert = {engine_rank % expert, expert, infer->tp > 1};
	const struct place in_tp = infer->names == NAMES_VLLM
					   ? in_attention
					   : (struct place){engine_rank, infer->tp, false};

	switch (group) {
	case GROUP_ATTENTION:
		return in_attention;
	case GROUP_EMBEDDING:
		return infer->embed_replicated ? alone : in_attention;
	case GROUP_LM_HEAD:
		return infer->dp_lm_head ? in_attention : in_tp;
	case GROUP_DENSE:
		return infer->moe_dense_tp ? alone : in_tp;
	case GROUP_SHARED:
		if (infer->fuse_shared)
			return in_expert;
		return infer->a2a ? alone : in_tp;
	case GROUP_EXPERT:
		return in_expert;
	case GROUP_TP:
	case GROUP_COUNT:
		break;
	}
	return in_tp;
}

struct owned rank_experts(const struct infer_spec *infer, uint32_t engine_rank, uint64_t experts)
{
	struct owned owned = {.map = (enum expert_map)infer->experts,
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

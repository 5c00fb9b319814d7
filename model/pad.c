/* SPDX-License-Identifier: Apache-2.0 */
#include "model/pad.h"

bool pad_row(const struct rule *rule)
{
	return rule->store == STORE_MXFP4 || rule->store == STORE_MXFP4_SCALES ||
	       rule->store == STORE_EXPERT_BIAS;
}

static uint64_t round_up(uint64_t size, uint64_t unit)
{
	return (size + unit - 1) / unit * unit;
}

/* How many of this dimension one block of 32 is; 0 where it is no size of M. */
static uint64_t of_a_block(enum dim dim)
{
	return dim == DIM_MOE_2 ? 2 * MXFP4_BLOCK : dim == DIM_MOE_BLOCKS ? 1 : 0;
}

/* What the engine allocates of a dimension. */
static uint64_t allocated(enum dim dim, uint64_t size, const struct model_config *config,
			  const struct infer_spec *infer, uint32_t ranks)
{
	uint64_t hidden = round_up(config->hidden_size, infer->pad_hidden);
	uint64_t each = round_up(config->moe_intermediate_size / ranks, infer->pad_share);

	switch (dim) {
	case DIM_MOE_2:
		return 2 * each;
	case DIM_MOE_BLOCKS:
		return each / MXFP4_BLOCK;
	case DIM_HIDDEN:
		return hidden;
	case DIM_HIDDEN_BLOCKS:
		return hidden / MXFP4_BLOCK;
	default:
		return size;
	}
}

/* This rank's blocks of dimension `d`; none is possible. */
static int take_blocks(const struct rule *rule, const struct model_tensor *tensor, uint32_t d,
		       struct place place, struct share *share, struct error *error)
{
	uint64_t unit = of_a_block(rule->dims[d]), blocks = tensor->shape[d] / unit;
	uint64_t each = (blocks + place.size - 1) / place.size;
	uint64_t lo = place.rank * each, hi = lo + each;
	struct box *box = &share->boxes[0];

	if (each * unit > share->shape[d])
		return error_set(error, ERROR_CONFIG,
				 "%s: %llu blocks of 32 for %u ranks are up to %llu each, and an "
				 "engine with this mxfp4_pad has room for %llu; choose another tp "
				 "or ep, or its own mxfp4_pad",
				 tensor->name, (unsigned long long)blocks, place.size,
				 (unsigned long long)each,
				 (unsigned long long)(share->shape[d] / unit));
	box->lo[d] = (lo < blocks ? lo : blocks) * unit;
	box->hi[d] = (hi < blocks ? hi : blocks) * unit;
	return 0;
}

int pad_share(const struct rule *rule, const struct model_tensor *tensor,
	      const struct model_config *config, const struct infer_spec *infer, struct place place,
	      struct share *share, struct error *error)
{
	bool empty = rule->cut == CUT_EXPERT_FIRST && place.rank > 0;
	int rc = 0;

	*share = (struct share){.dims = tensor->dims, .box_count = 1, .padded = true};
	if (config->moe_intermediate_size % place.size)
		return error_set(error, ERROR_CONFIG,
				 "%s: an expert's size %llu cannot be cut for %u ranks in equal "
				 "parts; choose another tp or ep",
				 tensor->name, (unsigned long long)config->moe_intermediate_size,
				 place.size);
	share->boxes[0] = box_whole(tensor->dims, tensor->shape);
	share->boxes[0].lo[0] = place.first;
	share->boxes[0].hi[0] = place.first + place.experts;
	share->shape[0] = place.experts;
	for (uint32_t d = 1; d < tensor->dims && rc == 0; d++) {
		share->shape[d] =
			allocated(rule->dims[d], tensor->shape[d], config, infer, place.size);
		if (of_a_block(rule->dims[d]))
			rc = take_blocks(rule, tensor, d, place, share, error);
		empty = empty || share->boxes[0].lo[d] == share->boxes[0].hi[d];
	}
	if (!empty)
		return rc;
	share->box_count = 0;
	share->fill_rows = place.experts;
	return rc;
}

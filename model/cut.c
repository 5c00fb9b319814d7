/* SPDX-License-Identifier: Apache-2.0 */
#include "model/cut.h"

#include "base/array.h"
#include <string.h>

/* Engines round the vocabulary up to this before they cut it, whatever the group's size. */
#define VOCAB_UNIT 64

static int indivisible(const struct model_tensor *tensor, const char *what, uint64_t number,
		       uint32_t divisor, struct error *error)
{
	return error_set(
		error, ERROR_CONFIG,
		"%s: %s %llu cannot be cut for %u ranks in equal parts; choose another tp or dp",
		tensor->name, what, (unsigned long long)number, divisor);
}

/* Rows [lo, hi) of the tensor join the share. */
static void take_rows(struct share *share, const struct model_tensor *tensor, uint64_t lo,
		      uint64_t hi)
{
	struct box *box = &share->boxes[share->box_count++];

	*box = box_whole(tensor->dims, tensor->shape);
	box->lo[0] = lo;
	box->hi[0] = hi;
	share->shape[0] += hi - lo;
}

static int cut_rows(const struct rule *rule, const struct model_tensor *tensor, struct place place,
		    struct share *share, struct error *error)
{
	uint32_t parts = rule->parts ? rule->parts : 1;
	uint64_t rows = tensor->shape[0] / parts, each = rows / place.size;

	if (parts > SHARE_BOXES_MAX || tensor->shape[0] % parts)
		return error_set(error, ERROR_INTERNAL, "row %s: %llu rows in %u parts",
				 rule->tensor, (unsigned long long)tensor->shape[0], parts);
	if (rows % place.size)
		return indivisible(tensor, parts > 1 ? "rows of one part" : "rows", rows,
				   place.size, error);
	for (uint32_t p = 0; p < parts; p++)
		take_rows(share, tensor, p * rows + place.rank * each,
			  p * rows + (place.rank + 1) * each);
	return 0;
}

static int cut_columns(const struct model_tensor *tensor, struct place place, struct share *share,
		       struct error *error)
{
	uint64_t each = tensor->shape[1] / place.size;

	if (tensor->shape[1] % place.size)
		return indivisible(tensor, "columns", tensor->shape[1], place.size, error);
	take_rows(share, tensor, 0, tensor->shape[0]);
	share->boxes[0].lo[1] = place.rank * each;
	share->boxes[0].hi[1] = (place.rank + 1) * each;
	share->shape[1] = each;
	return 0;
}

static int cut_q_heads(const struct model_tensor *tensor, const struct model_config *config,
		       struct place place, struct share *share, struct error *error)
{
	uint64_t rows = tensor->shape[0] / place.size;

	if (config->heads % place.size)
		return indivisible(tensor, "num_attention_heads", config->heads, place.size, error);
	take_rows(share, tensor, place.rank * rows, (place.rank + 1) * rows);
	return 0;
}

/* A rank's first row and rows among those of the KV heads. */
static int kv_rows(const struct model_tensor *tensor, const struct model_config *config,
		   struct place place, uint64_t *first, uint64_t *rows, struct error *error)
{
	if (place.size >= config->kv_heads) {
		if (place.size % config->kv_heads)
			return error_set(
				error, ERROR_CONFIG,
				"%s: num_key_value_heads %llu cannot be repeated over %u ranks, "
				"which is no multiple of it; choose another tp or dp",
				tensor->name, (unsigned long long)config->kv_heads, place.size);
		*rows = config->head_dim;
		*first = place.rank / (place.size / config->kv_heads) * *rows;
		return 0;
	}
	if (config->kv_heads % place.size)
		return indivisible(tensor, "num_key_value_heads", config->kv_heads, place.size,
				   error);
	*rows = config->kv_heads / place.size * config->head_dim;
	*first = place.rank * *rows;
	return 0;
}

static int cut_kv_heads(const struct model_tensor *tensor, const struct model_config *config,
			struct place place, struct share *share, struct error *error)
{
	uint64_t rows = 0, first = 0;
	int rc = kv_rows(tensor, config, place, &first, &rows, error);

	if (rc == 0)
		take_rows(share, tensor, first, first + rows);
	return rc;
}

static int cut_qkv(const struct model_tensor *tensor, const struct model_config *config,
		   struct place place, struct share *share, struct error *error)
{
	uint64_t queries = config->heads * config->head_dim, keys, rows = 0, first = 0;
	uint64_t each = queries / place.size;
	int rc = kv_rows(tensor, config, place, &first, &rows, error);

	if (rc)
		return rc;
	if (config->heads % place.size)
		return indivisible(tensor, "num_attention_heads", config->heads, place.size, error);
	keys = config->kv_heads * config->head_dim;
	take_rows(share, tensor, place.rank * each, (place.rank + 1) * each);
	take_rows(share, tensor, queries + first, queries + first + rows);
	take_rows(share, tensor, queries + keys + first, queries + keys + first + rows);
	return 0;
}

/* This rank's experts of a tensor of all of them, and 1/n of dimension `d` of each. */
static int cut_experts(const struct model_tensor *tensor, struct place place, uint32_t d,
		       struct share *share, struct error *error)
{
	uint64_t each = tensor->shape[d] / place.size;

	if (tensor->shape[d] % place.size && tensor->dtype == DTYPE_U8)
		return error_set(error, ERROR_CONFIG,
				 "%s: MXFP4 rows or blocks %llu cannot be cut for %u ranks in "
				 "equal parts; choose another tp or dp, or say mxfp4_pad= where "
				 "the engine pads",
				 tensor->name, (unsigned long long)tensor->shape[d], place.size);
	if (tensor->shape[d] % place.size)
		return indivisible(tensor, "rows or columns", tensor->shape[d], place.size, error);
	take_rows(share, tensor, place.first, place.first + place.experts);
	share->boxes[0].lo[d] = place.rank * each;
	share->boxes[0].hi[d] = (place.rank + 1) * each;
	share->shape[d] = each;
	return 0;
}

/* What is added once, after the ranks' sums. */
static void cut_expert_first(const struct model_tensor *tensor, struct place place,
			     struct share *share)
{
	if (place.rank == 0) {
		take_rows(share, tensor, place.first, place.first + place.experts);
		return;
	}
	share->fill_rows = place.experts;
	share->shape[0] = place.experts;
}

/* Of linear attention all that belongs to a key head lies together, and is cut with it. */
static int cut_linear(const struct model_tensor *tensor, const struct model_config *config,
		      struct place place, bool conv, struct share *share, struct error *error)
{
	const uint64_t keys = config->linear_k_heads * config->linear_k_head_dim;
	const uint64_t parts[] = {keys, keys, tensor->shape[0] - 2 * keys};
	uint64_t each = tensor->shape[0] / place.size, start = 0;

	if (config->linear_k_heads % place.size)
		return indivisible(tensor, "linear_num_key_heads", config->linear_k_heads,
				   place.size, error);
	if (!conv) {
		take_rows(share, tensor, place.rank * each, (place.rank + 1) * each);
		return 0;
	}
	for (size_t p = 0; p < ARRAY_SIZE(parts); p++) {
		each = parts[p] / place.size;
		take_rows(share, tensor, start + place.rank * each,
			  start + (place.rank + 1) * each);
		start += parts[p];
	}
	return 0;
}

static int cut_vocab(const struct model_tensor *tensor, struct place place, struct share *share,
		     struct error *error)
{
	uint64_t vocab = tensor->shape[0];
	uint64_t padded = (vocab + VOCAB_UNIT - 1) / VOCAB_UNIT * VOCAB_UNIT;
	uint64_t each = padded / place.size, lo = place.rank * each, hi = lo + each;

	if (padded % place.size)
		return indivisible(tensor, "vocabulary, rounded up to a multiple of 64,", padded,
				   place.size, error);
	lo = lo < vocab ? lo : vocab;
	hi = hi < vocab ? hi : vocab;
	if (lo < hi)
		take_rows(share, tensor, lo, hi);
	share->fill_rows = each - (hi - lo);
	share->shape[0] = each;
	return 0;
}

int cut_share(const struct rule *rule, enum cut cut, const struct model_tensor *tensor,
	      const struct model_config *config, struct place place, struct share *share,
	      struct error *error)
{
	*share = (struct share){.dims = tensor->dims};
	memcpy(share->shape, tensor->shape, sizeof(share->shape));
	share->shape[0] = 0;
	switch (cut) {
	case CUT_WHOLE:
		take_rows(share, tensor, 0, tensor->shape[0]);
		return 0;
	case CUT_ROWS:
		return cut_rows(rule, tensor, place, share, error);
	case CUT_COLUMNS:
		return cut_columns(tensor, place, share, error);
	case CUT_Q_HEADS:
		return cut_q_heads(tensor, config, place, share, error);
	case CUT_KV_HEADS:
		return cut_kv_heads(tensor, config, place, share, error);
	case CUT_QKV:
		return cut_qkv(tensor, config, place, share, error);
	case CUT_EXPERT_ROWS:
	case CUT_EXPERT_COLUMNS:
		return cut_experts(tensor, place, cut == CUT_EXPERT_ROWS ? 1 : 2, share, error);
	case CUT_EXPERT_FIRST:
		cut_expert_first(tensor, place, share);
		return 0;
	case CUT_LINEAR_HEADS:
	case CUT_LINEAR_CONV:
		return cut_linear(tensor, config, place, cut == CUT_LINEAR_CONV, share, error);
	case CUT_VOCAB:
		return cut_vocab(tensor, place, share, error);
	case CUT_VOCAB_OR_WHOLE:
	case CUT_NONE:
	case CUT_COUNT:
		break;
	}
	return error_set(error, ERROR_INTERNAL, "row %s has no cut", rule->tensor);
}

static int inside_a_block(const struct model_tensor *tensor, const char *what, uint64_t number,
			  uint64_t block, struct error *error)
{
	return error_set(error, ERROR_CONFIG,
			 "%s: %llu %s a rank are no multiple of the fp8 block, which is %llu: a "
			 "cut inside of a block has no scale; choose another tp, dp or ep, or "
			 "smaller blocks (fp8=)",
			 tensor->name, (unsigned long long)number, what, (unsigned long long)block);
}

/* One dimension of a weight's box, in blocks. Only a box of the whole dimension may end in a short
 * block: the last of several would fit, and then some ranks refused what others took. */
static int to_blocks(const struct model_tensor *tensor, struct box *box, uint32_t d, uint64_t size,
		     uint64_t block, bool whole_blocks, struct error *error)
{
	uint64_t *lo = &box->lo[d], *hi = &box->hi[d], taken = *hi - *lo;

	if (*lo % block || (taken % block && (taken != size || whole_blocks)))
		return inside_a_block(tensor, d ? "columns" : "rows", taken, block, error);
	*lo /= block;
	*hi = (*hi + block - 1) / block;
	return 0;
}

int cut_scales(const struct rule *rule, const struct model_tensor *tensor, const uint64_t *shape,
	       const uint32_t block[2], struct place place, struct share *share,
	       struct error *error)
{
	uint64_t rows = 0;

	share->ragged_rows = share->shape[0] % block[0] ? share->shape[0] : 0;
	for (uint32_t b = 0; b < share->box_count; b++) {
		struct box in_blocks = share->boxes[b];
		int rc = 0;

		/* which dimension an engine checks beyond its own cut: columns of experts */
		for (uint32_t d = 0; d < 2 && rc == 0; d++)
			rc = to_blocks(tensor, &in_blocks, d, shape[d], block[d],
				       d == 1 && rule->cut == CUT_COLUMNS && place.whole_blocks,
				       error);
		if (rc)
			return rc;
		rows += in_blocks.hi[0] - in_blocks.lo[0];
		if (tensor->scale)
			share->boxes[b] = in_blocks;
	}
	share->shape[0] = rows;
	share->shape[1] = (share->shape[1] + block[1] - 1) / block[1];
	return 0;
}

int cut_stack(const struct model_tensor *below, const struct share *share, uint32_t block_rows,
	      struct error *error)
{
	if (!share->ragged_rows)
		return 0;
	return inside_a_block(below, "rows", share->ragged_rows, block_rows, error);
}

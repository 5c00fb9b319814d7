/* SPDX-License-Identifier: Apache-2.0
 *
 * megatron_attention.c -- fused parameters of attention, by example: rank 1 of tp=2.
 *
 *   linear_qkv    4 query groups with 2 heads each (d rows a head):
 *                 q of group 2 (2d) | k 2 (d) | v 2 (d) | q of group 3 (2d) | k 3 (d) | v 3 (d)
 *   with gates    (Qwen3-Next) q of group 2 (2d) | their gates (2d) | k 2 | v 2 | ..    the checkpoint has q and gate head by head
 *   in_proj       linear attention with 4 key heads: q of 2, 3 | k of 2, 3 | their values | z | beta | alpha
 *                 the checkpoint has q, k, values and z key head by key head, and beta and alpha the same in a tensor of their own
 *
 * Rows of linear_qkv are cut by tp as rows: with more ranks than groups a cut lies inside of a group.
 */
#include "model/family.h"
#include "model/megatron.h"

#include "base/array.h"

#include <inttypes.h>

/* Rows of one kind in every group: `count` of them from row `before` of the group on. The tensor has them from `from` on, `step` rows
 * from group to group. */
struct heads {
	uint64_t before, count, from, step;
};

struct groups {
	uint64_t rows, count; /* of a group; groups */
};

static int hold_heads(const struct megatron *m, const struct groups *groups,
		      const struct heads *heads, struct error *error)
{
	uint64_t all = groups->rows * groups->count, rows = all / m->size;
	uint64_t lo = m->rank * rows, hi = lo + rows;
	int rc = 0;

	if (all % m->size)
		return error_set(error, ERROR_CONFIG,
				 "--train: %s, which tensor %s lies in, has %" PRIu64
				 " rows, which tp=%u does not divide",
				 m->row.megatron, m->tensor->name, all, m->size);
	for (uint64_t g = lo / groups->rows; g < groups->count && g * groups->rows < hi && !rc;
	     g++) {
		uint64_t first = g * groups->rows + heads->before, end = first + heads->count;
		uint64_t begin = first > lo ? first : lo, stop = end < hi ? end : hi;
		uint64_t at = heads->from + g * heads->step;
		struct megatron_part part;

		if (begin >= stop)
			continue;
		part = megatron_rows(m, at + (begin - first), at + (stop - first), begin - lo,
				     rows);
		rc = megatron_put(m, &part, error);
	}
	return rc;
}

/* Each head of the tensor is its query and its gate; in a group first all queries, then all gates. */
static int hold_gated(const struct megatron *m, const struct groups *groups, uint64_t heads,
		      struct error *error)
{
	uint64_t d = m->config->head_dim;
	int rc = 0;

	for (uint64_t i = 0; i < 2 * heads && !rc; i++) {
		uint64_t head = i % heads, gate = i / heads;
		const struct heads one = {i * d, d, (2 * head + gate) * d, 2 * heads * d};

		rc = hold_heads(m, groups, &one, error);
	}
	return rc;
}

int megatron_qkv(struct megatron *m, struct error *error)
{
	const struct model_config *config = m->config;
	uint64_t kv_heads = config->kv_heads ? config->kv_heads : config->heads;
	uint64_t d = config->head_dim, heads = config->heads / kv_heads, q = heads * d,
		 kv = kv_heads * d;
	/* of a tensor that has all three, they follow each other */
	bool fused = m->row.cut == SOURCE_QKV;
	bool gated = family_has(config->family, FEATURE_LINEAR);
	uint64_t queries = gated ? 2 * q : q;
	const struct groups groups = {queries + 2 * d, kv_heads};
	const struct heads parts[3] = {
		{0, q, 0, q},
		{queries, d, fused ? config->heads * d : 0, d},
		{queries + d, d, fused ? config->heads * d + kv : 0, d},
	};
	int rc = 0;

	if (config->heads % kv_heads)
		return source_unknown(m->job, m->tensor,
				      "its heads are no multiple of its key and value heads",
				      error);
	if (gated && m->row.cut == SOURCE_Q)
		return hold_gated(m, &groups, heads, error);
	for (int part = 0; part < 3 && !rc; part++)
		if (fused || m->row.cut == (enum source_cut)(SOURCE_Q + part))
			rc = hold_heads(m, &groups, &parts[part], error);
	return rc;
}

/* ---- linear attention ---- */

/* A rank's rows of in_proj, from where on each kind lies in them. */
struct linear {
	uint64_t heads; /* key heads of a rank */
	uint64_t key,
		values; /* rows of one key head: of q and of k, of its values and of their gates */
	uint64_t values_count; /* value heads of a key head */
	uint64_t rows;
};

static int find_linear(const struct megatron *m, struct linear *linear, struct error *error)
{
	const struct model_config *config = m->config;

	if (config->linear_k_heads % m->size)
		return error_set(error, ERROR_CONFIG,
				 "--train: tensor %s is cut by its %" PRIu64
				 " key heads, which tp=%u does not divide",
				 m->tensor->name, config->linear_k_heads, m->size);
	*linear = (struct linear){
		.heads = config->linear_k_heads / m->size,
		.key = config->linear_k_head_dim,
		.values_count = config->linear_v_heads / config->linear_k_heads,
	};
	linear->values = linear->values_count * config->linear_v_head_dim;
	linear->rows = 2 * linear->heads * (linear->key + linear->values + linear->values_count);
	return 0;
}

/* Of each key head of this rank `count` rows, `before` ones behind the first of `step`; all of them from `at` on. */
static int hold_kind(const struct megatron *m, const struct linear *linear, uint64_t step,
		     uint64_t before, uint64_t count, uint64_t at, struct error *error)
{
	int rc = 0;

	for (uint64_t h = 0; h < linear->heads && !rc; h++) {
		uint64_t lo = (m->rank * linear->heads + h) * step + before;
		struct megatron_part part =
			megatron_rows(m, lo, lo + count, at + h * count, linear->rows);

		rc = megatron_put(m, &part, error);
	}
	return rc;
}

int megatron_linear_qkvz(struct megatron *m, struct error *error)
{
	struct linear linear = {0};
	int rc = find_linear(m, &linear, error);
	uint64_t step = 2 * (linear.key + linear.values), before = 0;

	for (int kind = 0; kind < 4 && !rc; kind++) {
		uint64_t count = kind < 2 ? linear.key : linear.values;

		rc = hold_kind(m, &linear, step, before, count, before * linear.heads, error);
		before += count;
	}
	return rc;
}

int megatron_linear_ba(struct megatron *m, struct error *error)
{
	struct linear linear = {0};
	int rc = find_linear(m, &linear, error);
	uint64_t count = linear.values_count, at = linear.rows - 2 * linear.heads * count;

	for (int kind = 0; kind < 2 && !rc; kind++, at += linear.heads * count)
		rc = hold_kind(m, &linear, 2 * count, kind * count, count, at, error);
	return rc;
}

int megatron_linear_conv(struct megatron *m, struct error *error)
{
	const struct model_config *config = m->config;
	uint64_t keys = config->linear_k_heads * config->linear_k_head_dim;
	const uint64_t kinds[] = {keys, keys, m->matrix.rows - 2 * keys};
	uint64_t from = 0, at = 0;
	struct linear linear = {0};
	int rc = find_linear(m, &linear, error);

	for (size_t k = 0; k < ARRAY_SIZE(kinds) && !rc; k++) {
		uint64_t count = kinds[k] / m->size, lo = from + m->rank * count;
		struct megatron_part part =
			megatron_rows(m, lo, lo + count, at, m->matrix.rows / m->size);

		rc = megatron_put(m, &part, error);
		from += kinds[k];
		at += count;
	}
	return rc;
}

/* With layernorm_zero_centered_gamma, without which the model's other norms are not the checkpoint's, this one is it less 1. */
int megatron_out_norm(struct megatron *m, struct error *error)
{
	if (m->job->train->out_norm == OUT_NORM_PLUS_ONE)
		return megatron_whole(m, error);
	return source_unknown(
		m->job, m->tensor,
		"Megatron's out_norm is this tensor less 1 (layernorm_zero_centered_gamma), which is another number and not "
		"another place: let each trainer keep out_norm.weight + 1 beside it in self_attention.out_norm.weight_plus_one, made "
		"anew before each update, and say out_norm=plus_one",
		error);
}

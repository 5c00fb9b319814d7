/* SPDX-License-Identifier: Apache-2.0
 *
 * source_megatron.c -- a Megatron-Core rank's own parameters, and which boxes of the checkpoint lie where in them. Fused ones by
 * example, rank 1 of tp=2 of 4 query groups with 2 heads each (d rows a head):
 *
 *   linear_qkv.weight     q of group 2 (2d) | k 2 (d) | v 2 (d) | q of group 3 (2d) | k 3 (d) | v 3 (d)
 *   linear_fc1.weight     gate, its half | up, its half
 *   linear_fc2.weight     down, its half of the columns: rows are that much shorter
 *   experts' weight{l}    the same over etp, of expert ep * n + l
 *
 * Rows of linear_qkv are cut by tp as rows: with more ranks than groups a cut lies inside of a group. What Megatron adds behind the
 * vocabulary is in no box. A last stage of a tied model has a copy of the embedding.
 *
 * Source: Megatron-Core 0.16 (parallel_state, GPTModel, attention, mlp, experts), Megatron-Bridge.
 */
#include "model/source.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LOCAL_NAME_BYTES 320

struct megatron {
	const struct source_job *job;
	const struct model_config *config;
	const struct model_tensor *tensor;
	size_t order;
	struct source_row row;
	char prefix[64]; /* "decoder.layers.3.", with the chunk before it where there are several */
	uint32_t rank, size; /* in tp, or for routed experts in etp */
};

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static int64_t local(const struct megatron *m, const char *name, uint32_t dims, uint64_t rows,
		     uint64_t columns, struct error *error)
{
	const uint64_t shape[2] = {rows, columns};

	return source_local(m->job, name, m->tensor->dtype, dims, shape, error);
}

static void local_name(const struct megatron *m, char out[LOCAL_NAME_BYTES])
{
	snprintf(out, LOCAL_NAME_BYTES, "%s%s", m->prefix,
		 m->row.megatron ? m->row.megatron : source_suffix(m->job->model, m->tensor));
}

static uint64_t width_of(const struct model_tensor *tensor)
{
	return tensor->dims > 1 ? tensor->shape[1] : 1;
}

/* Rows [lo, hi) of it, from row `at` of a parameter of so many. */
static int rows_at(const struct megatron *m, const char *name, uint64_t rows, uint64_t lo,
		   uint64_t hi, uint64_t at, struct error *error)
{
	struct box box = box_whole(m->tensor->dims, m->tensor->shape);
	int64_t index = local(m, name, m->tensor->dims, rows, width_of(m->tensor), error);

	box.lo[0] = lo;
	box.hi[0] = hi;
	return index < 0 ? (int)index
			 : source_box(m->job, m->order, &box, (uint32_t)index,
				      at * width_of(m->tensor), NULL, error);
}

static int not_divided(const struct megatron *m, uint64_t number, struct error *error)
{
	return error_set(error, ERROR_CONFIG,
			 "--train: tensor %s has %" PRIu64
			 " %s to cut, which %s=%u does not divide",
			 m->tensor->name, number, m->row.cut == SOURCE_COLUMNS ? "columns" : "rows",
			 m->tensor->expert == EXPERT_NONE ? "tp" : "etp", m->size);
}

/* ---- one cut each ---- */

static int hold_whole(const struct megatron *m, struct error *error)
{
	char name[LOCAL_NAME_BYTES];

	local_name(m, name);
	return rows_at(m, name, m->tensor->shape[0], 0, m->tensor->shape[0], 0, error);
}

static int hold_rows(const struct megatron *m, struct error *error)
{
	char name[LOCAL_NAME_BYTES];
	uint64_t rows = m->tensor->shape[0] / m->size;

	if (m->tensor->shape[0] % m->size)
		return not_divided(m, m->tensor->shape[0], error);
	local_name(m, name);
	return rows_at(m, name, rows, m->rank * rows, (m->rank + 1) * rows, 0, error);
}

static int hold_columns(const struct megatron *m, struct error *error)
{
	struct box box = box_whole(2, m->tensor->shape);
	uint64_t columns = m->tensor->shape[1] / m->size;
	char name[LOCAL_NAME_BYTES];
	int64_t index;

	if (m->tensor->shape[1] % m->size)
		return not_divided(m, m->tensor->shape[1], error);
	local_name(m, name);
	index = local(m, name, 2, m->tensor->shape[0], columns, error);
	box.lo[1] = m->rank * columns;
	box.hi[1] = box.lo[1] + columns;
	return index < 0 ? (int)index
			 : source_box(m->job, m->order, &box, (uint32_t)index, 0, NULL, error);
}

/* The rows that Megatron adds are no rows of the checkpoint's, and a rank may have nothing else. */
static int hold_vocabulary(const struct megatron *m, struct error *error)
{
	uint64_t each = (uint64_t)m->job->train->vocab_pad * m->size, all = m->tensor->shape[0];
	uint64_t rows = (all + each - 1) / each * each / m->size;
	uint64_t lo = m->rank * rows, hi = least(lo + rows, all);
	char name[LOCAL_NAME_BYTES];

	local_name(m, name);
	return lo >= hi ? 0 : rows_at(m, name, rows, lo, hi, 0, error);
}

/* `part` of two in each rank's share: gate, then up. [from, from + rows) of the tensor are all of it. */
static int hold_half(const struct megatron *m, uint32_t part, uint64_t from, uint64_t rows,
		     struct error *error)
{
	char name[LOCAL_NAME_BYTES];
	uint64_t share = rows / m->size;

	if (rows % m->size)
		return not_divided(m, rows, error);
	local_name(m, name);
	return rows_at(m, name, 2 * share, from + m->rank * share, from + (m->rank + 1) * share,
		       part * share, error);
}

static int hold_gate_up(const struct megatron *m, struct error *error)
{
	uint64_t half = m->tensor->shape[0] / 2;
	int rc = hold_half(m, 0, 0, half, error);

	return rc ? rc : hold_half(m, 1, half, half, error);
}

/* Rows of one kind in every group: `count` of them from row `before` of the group on. The tensor has them from `from` on, group
 * by group. */
struct heads {
	uint64_t before, count, from;
};

static int hold_heads(const struct megatron *m, const struct heads *heads, struct error *error)
{
	const struct model_config *config = m->config;
	uint64_t group = (config->heads / config->kv_heads + 2) * config->head_dim;
	uint64_t all = group * config->kv_heads, rows = all / m->size;
	uint64_t lo = m->rank * rows, hi = lo + rows;
	char name[LOCAL_NAME_BYTES];
	int rc = 0;

	if (all % m->size)
		return error_set(error, ERROR_CONFIG,
				 "--train: %s, which tensor %s lies in, has %" PRIu64
				 " rows, which tp=%u does not divide",
				 m->row.megatron, m->tensor->name, all, m->size);
	local_name(m, name);
	for (uint64_t g = lo / group; g < config->kv_heads && g * group < hi && !rc; g++) {
		uint64_t first = g * group + heads->before, end = first + heads->count;
		uint64_t begin = first > lo ? first : lo, stop = least(end, hi);

		if (begin >= stop)
			continue;
		rc = rows_at(m, name, rows, heads->from + g * heads->count + (begin - first),
			     heads->from + g * heads->count + (stop - first), begin - lo, error);
	}
	return rc;
}

static int hold_qkv(const struct megatron *m, struct error *error)
{
	const struct model_config *config = m->config;
	uint64_t d = config->head_dim, q = config->heads / config->kv_heads * d,
		 kv = config->kv_heads * d;
	/* of a tensor that has all three, they follow each other */
	bool fused = m->row.cut == SOURCE_QKV;
	const struct heads heads[3] = {
		{0, q, 0},
		{q, d, fused ? config->heads * d : 0},
		{q + d, d, fused ? config->heads * d + kv : 0},
	};
	int rc = 0;

	if (config->heads % config->kv_heads)
		return source_unknown(m->job, m->tensor,
				      "its heads are no multiple of its key and value heads",
				      error);
	for (int part = 0; part < 3 && !rc; part++)
		if (fused || m->row.cut == (enum source_cut)(SOURCE_Q + part))
			rc = hold_heads(m, &heads[part], error);
	return rc;
}

/* ---- experts ---- */

/* Rows or columns of local expert `l` of `n`, in one parameter of all. */
static int hold_grouped(const struct megatron *m, uint32_t l, uint32_t n, struct error *error)
{
	bool legacy = m->job->train->grouped == GROUPED_LEGACY, down = m->row.cut == SOURCE_COLUMNS;
	struct box box = box_whole(2, m->tensor->shape);
	uint64_t cut = m->tensor->shape[down ? 1 : 0], share = cut / m->size,
		 hidden = m->tensor->shape[down ? 0 : 1];
	uint64_t matrix = (down ? 1 : 2) * share * hidden, offset = l * matrix;
	uint64_t stride[2] = {hidden, 1};
	char name[LOCAL_NAME_BYTES];
	int64_t index;

	if (cut % m->size)
		return not_divided(m, cut, error);
	snprintf(name, sizeof(name), "%smlp.experts.%s", m->prefix,
		 legacy ? (down ? "weight2" : "weight1")
			: (down ? "linear_fc2.weight" : "linear_fc1.weight"));
	index = local(m, name, 2, n, matrix, error);
	box.lo[down ? 1 : 0] = m->rank * share;
	box.hi[down ? 1 : 0] = (m->rank + 1) * share;
	if (down) {
		stride[0] = legacy ? 1 : share;
		stride[1] = legacy ? hidden : 1;
	} else if (legacy) {
		stride[0] = 1;
		stride[1] = 2 * share;
		offset += m->row.cut == SOURCE_UP ? share : 0;
	} else {
		offset += m->row.cut == SOURCE_UP ? share * hidden : 0;
	}
	return index < 0
		       ? (int)index
		       : source_box(m->job, m->order, &box, (uint32_t)index, offset, stride, error);
}

static int hold_expert(struct megatron *m, struct error *error)
{
	const struct train_spec *train = m->job->train;
	uint32_t n = (uint32_t)m->config->experts / train->ep, l;

	if (m->config->experts % train->ep)
		return error_set(error, ERROR_CONFIG,
				 "--train: ep=%u does not divide the %" PRIu64 " experts",
				 train->ep, m->config->experts);
	if (m->tensor->expert / n != m->job->place.ep)
		return 0;
	l = m->tensor->expert % n;
	m->rank = m->job->place.etp;
	m->size = train->etp ? train->etp : train->tp;
	if (train->grouped != GROUPED_EACH)
		return hold_grouped(m, l, n, error);
	/* weight0, weight1, ..: each a parameter of its own */
	char each[LOCAL_NAME_BYTES];

	snprintf(each, sizeof(each), "%s%u", m->row.megatron, l);
	m->row.megatron = each;
	return m->row.cut == SOURCE_COLUMNS
		       ? hold_columns(m, error)
		       : hold_half(m, m->row.cut == SOURCE_UP, 0, m->tensor->shape[0], error);
}

/* ---- all tensors ---- */

static int hold(struct megatron *m, struct error *error)
{
	if (m->tensor->expert != EXPERT_NONE)
		return hold_expert(m, error);
	switch (m->row.cut) {
	case SOURCE_WHOLE:
		return hold_whole(m, error);
	case SOURCE_ROWS:
		return hold_rows(m, error);
	case SOURCE_COLUMNS:
		return hold_columns(m, error);
	case SOURCE_VOCABULARY:
		return hold_vocabulary(m, error);
	case SOURCE_GATE:
	case SOURCE_UP:
		return hold_half(m, m->row.cut == SOURCE_UP, 0, m->tensor->shape[0], error);
	case SOURCE_GATE_UP:
		return hold_gate_up(m, error);
	default:
		return hold_qkv(m, error);
	}
}

/* The stage of the tensor, and what its parameters' names begin with. */
static int place(struct megatron *m, bool *here, struct error *error)
{
	const struct train_spec *train = m->job->train;
	uint32_t layers = (uint32_t)m->config->layers, chunk;
	struct train_layer at = {0};
	int rc = 0;

	if (m->tensor->layer >= 0 && m->tensor->layer < (int64_t)layers)
		rc = train_megatron_layer(train, layers, (uint32_t)m->tensor->layer, &at, error);
	else if (m->tensor->layer >= 0)
		at = (struct train_layer){train->pp - 1, train->vpp - 1, 0};
	*here = !rc && at.pp == m->job->place.pp;
	chunk = at.chunk;
	m->prefix[0] = '\0';
	if (train->vpp > 1)
		snprintf(m->prefix, sizeof(m->prefix), "chunk%u.", chunk);
	if (m->tensor->layer >= 0 && m->tensor->layer < (int64_t)layers)
		snprintf(m->prefix + strlen(m->prefix), sizeof(m->prefix) - strlen(m->prefix),
			 "decoder.layers.%u.", at.place);
	return rc;
}

/* A tied model's last stage computes with a copy of the embedding, which is another holder of it. */
static int hold_tied(struct megatron *m, struct error *error)
{
	const struct train_spec *train = m->job->train;

	if (!m->config->tied || m->row.cut != SOURCE_VOCABULARY || train->pp == 1 ||
	    m->job->place.pp != train->pp - 1)
		return 0;
	m->row.megatron = "output_layer.weight";
	m->prefix[0] = '\0';
	if (train->vpp > 1)
		snprintf(m->prefix, sizeof(m->prefix), "chunk%u.", train->vpp - 1);
	return hold_vocabulary(m, error);
}

/* What Megatron itself refuses to build. */
static int check_sizes(const struct source_job *job, struct error *error)
{
	const struct model_config *config = &job->model->config;
	const struct train_spec *train = job->train;

	if (config->family && config->heads % train->tp)
		return error_set(error, ERROR_CONFIG,
				 "--train: tp=%u does not divide the %" PRIu64 " attention heads",
				 train->tp, config->heads);
	return 0;
}

int source_megatron(const struct source_job *job, struct error *error)
{
	struct megatron m = {.job = job, .config = &job->model->config};
	int rc = check_sizes(job, error);

	for (m.order = 0; m.order < job->model->tensor_count && !rc; m.order++) {
		bool here;

		m.tensor = &job->model->tensors[m.order];
		if (source_is_buffer(job->model, m.tensor))
			continue;
		if (m.tensor->scale || m.tensor->dtype == DTYPE_F8_E4M3)
			return source_unknown(
				job, m.tensor,
				"Megatron holds what is not quantised: name the model that is not, and give "
				"engines fp8=128x128 in --infer",
				error);
		m.rank = job->place.tp;
		m.size = job->train->tp;
		rc = source_find_row(job, m.tensor, &m.row, error);
		if (!rc)
			rc = place(&m, &here, error);
		if (!rc && here)
			rc = hold(&m, error);
		if (!rc && !here)
			rc = hold_tied(&m, error);
	}
	return rc;
}

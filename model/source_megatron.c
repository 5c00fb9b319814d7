/* SPDX-License-Identifier: Apache-2.0
 *
 * source_megatron.c -- a Megatron-Core rank's own parameters, and which boxes of the checkpoint lie where in them: each tensor is
 * placed (its stage, chunk, and layer in that) and then held as its row says (model/source_rows.c), by the functions of
 * megatron_cut.c, megatron_attention.c and megatron_experts.c. What is in a layer of another stage is left out before its row is
 * looked for: that is nearly all of a model whose stages are many.
 *
 * What Megatron adds behind the vocabulary is in no box. A last stage of a tied model has a copy of the embedding, and so has the
 * stage with MTP layers, whose own embedding and head in the checkpoint are those of the model again.
 *
 * Source: Megatron-Core 0.16 (parallel_state, GPTModel, attention, mlp, experts, gated_delta_net, multi_token_prediction),
 * Megatron-Bridge.
 */
#include "model/megatron.h"

#include "base/array.h"
#include "model/family.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static megatron_hold *const holds[] = {
	[SOURCE_WHOLE] = megatron_whole,
	[SOURCE_ROWS] = megatron_cut_rows,
	[SOURCE_COLUMNS] = megatron_cut_columns,
	[SOURCE_VOCABULARY] = megatron_vocabulary,
	[SOURCE_Q] = megatron_qkv,
	[SOURCE_K] = megatron_qkv,
	[SOURCE_V] = megatron_qkv,
	[SOURCE_QKV] = megatron_qkv,
	[SOURCE_GATE] = megatron_gate,
	[SOURCE_UP] = megatron_up,
	[SOURCE_GATE_UP] = megatron_gate_up,
	[SOURCE_LINEAR_QKVZ] = megatron_linear_qkvz,
	[SOURCE_LINEAR_BA] = megatron_linear_ba,
	[SOURCE_LINEAR_CONV] = megatron_linear_conv,
	[SOURCE_OUT_NORM] = megatron_out_norm,
	[SOURCE_STACKED] = megatron_stacked,
};

static struct megatron_matrix matrix_of(const struct megatron *m)
{
	const struct model_tensor *tensor = m->tensor;
	const struct rule *rule = &m->config->family->rules[tensor->rule];
	struct megatron_matrix matrix = {.stacked = m->row.cut == SOURCE_STACKED, .columns = 1};

	matrix.row = matrix.stacked;
	matrix.column = matrix.row + 1;
	if (rule->store == STORE_CONV1D) {
		matrix.column = matrix.row;
		matrix.row++;
	}
	matrix.rows = tensor->shape[matrix.row];
	for (uint32_t d = matrix.stacked; d < tensor->dims; d++)
		matrix.columns *= d == matrix.row ? 1 : tensor->shape[d];
	return matrix;
}

static bool is_mtp(const struct megatron *m)
{
	return m->order >= m->job->model->tensor_count;
}

/* Of an MTP layer, not of the layer of the model that it has inside. */
static bool is_beside_layer(const struct megatron *m)
{
	return m->config->family->rules[m->tensor->rule].when == IF_MTP;
}

/* What an MTP layer shares with the model, and the checkpoint repeats. */
static bool is_repeated(const struct megatron *m)
{
	const char *suffix;

	if (!is_mtp(m)) /* a layout file's model has no rules */
		return false;
	suffix = source_suffix(m->job->model, m->tensor);
	return strcmp(suffix, "embed_tokens.weight") == 0 ||
	       strcmp(suffix, "shared_head.head.weight") == 0;
}

/* Where MTP layers are: the last chunk of their stage. */
static struct train_layer mtp_place(const struct train_spec *train)
{
	return (struct train_layer){train->mtp_stage ? train->mtp_stage : train->pp - 1,
				    train->vpp - 1, 0};
}

static bool is_here(const struct megatron *m, const struct train_layer *at)
{
	return at->pp == m->job->place.pp;
}

/* What names of that chunk begin with, and `layer`. */
static void set_prefix(struct megatron *m, uint32_t chunk, const char *layer)
{
	if (m->job->train->vpp > 1)
		snprintf(m->prefix, sizeof(m->prefix), "chunk%u.%s", chunk, layer);
	else
		snprintf(m->prefix, sizeof(m->prefix), "%s", layer);
}

/* Behind the layers: the head in the last stage, and the norm too, but for a model with MTP layers, which has it behind its last
 * layer (TransformerBlock.has_final_layernorm_in_this_stage). */
static int place_behind(const struct megatron *m, struct train_layer *at, struct error *error)
{
	const struct train_spec *train = m->job->train;
	uint32_t layers = (uint32_t)m->config->layers;

	*at = (struct train_layer){train->pp - 1, train->vpp - 1, 0};
	if (!train->mtp || m->row.cut == SOURCE_VOCABULARY)
		return 0;
	return train_megatron_layer(train, layers, layers - 1, at, error);
}

static bool is_in_layer(const struct megatron *m)
{
	return m->tensor->layer >= 0 && m->tensor->layer < (int64_t)m->config->layers;
}

/* m->at of the tensor's layer. */
static int find_layer(struct megatron *m, struct error *error)
{
	int rc;

	if (m->layer == m->tensor->layer)
		return 0;
	rc = train_megatron_layer(m->job->train, (uint32_t)m->config->layers,
				  (uint32_t)m->tensor->layer, &m->at, error);
	m->layer = rc ? -1 : m->tensor->layer;
	return rc;
}

/* The stage of the tensor, and what its parameters' names begin with. */
static int place(struct megatron *m, bool *here, struct error *error)
{
	const struct train_spec *train = m->job->train;
	uint32_t layers = (uint32_t)m->config->layers;
	struct train_layer at = {0};
	char layer[64] = "";
	int rc = 0;

	if (is_mtp(m)) {
		at = mtp_place(train);
		snprintf(layer, sizeof(layer), "mtp.layers.%u.%s",
			 (uint32_t)m->tensor->layer - layers,
			 is_beside_layer(m) ? "" : "transformer_layer.");
	} else if (is_in_layer(m)) {
		at = m->at;
		snprintf(layer, sizeof(layer), "decoder.layers.%u.", at.place);
	} else if (m->tensor->layer >= 0) {
		rc = place_behind(m, &at, error);
	}
	*here = !rc && is_here(m, &at);
	set_prefix(m, at.chunk, layer);
	return rc;
}

/* The embedding, which other stages than the first have a copy of, each another holder of it: the last one of a tied model, which
 * computes with it, and the one with MTP layers. */
static int hold_copy(struct megatron *m, struct error *error)
{
	const struct train_spec *train = m->job->train;
	struct train_layer last = {train->pp - 1, train->vpp - 1, 0}, mtp = mtp_place(train);

	if (m->tensor->layer >= 0 || m->row.cut != SOURCE_VOCABULARY || train->pp == 1)
		return 0;
	if (m->config->tied && is_here(m, &last)) {
		m->row.megatron = "output_layer.weight";
		set_prefix(m, last.chunk, "");
		return megatron_vocabulary(m, error);
	}
	if (!train->mtp || !is_here(m, &mtp))
		return 0;
	set_prefix(m, mtp.chunk, "");
	return megatron_vocabulary(m, error);
}

/* ---- what means nothing for the model ---- */

static int check_experts(const struct source_job *job, struct error *error)
{
	const struct train_spec *train = job->train;
	const struct {
		const char *key;
		bool given;
	} keys[] = {
		{"ep", train->ep > 1},
		{"etp", train->etp},
		{"grouped", train->grouped != GROUPED_EACH},
		{"glu_interleave", train->glu_interleave},
		{"shared_glu_interleave", train->shared_glu_interleave},
	};

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		if (keys[i].given && !job->model->config.experts)
			return error_set(
				error, ERROR_CONFIG,
				"--train: %s is of experts, and %s has none: leave it out; what divides all else is tp",
				keys[i].key, job->model->name);
	if (train->glu_interleave && train->grouped == GROUPED_LEGACY)
		return error_set(
			error, ERROR_CONFIG,
			"--train: glu_interleave=%u with grouped=legacy: the GroupedMLP of "
			"transposed matrices does not interleave; it is grouped=each or one",
			train->glu_interleave);
	if (train->shared_glu_interleave && !job->model->config.shared_experts &&
	    !job->model->config.shared_intermediate_size)
		return error_set(error, ERROR_CONFIG,
				 "--train: shared_glu_interleave is of shared experts, and %s has "
				 "none: leave it out",
				 job->model->name);
	return 0;
}

/* What Megatron itself refuses to build, or would not build so. */
static int check_sizes(const struct source_job *job, struct error *error)
{
	const struct model_config *config = &job->model->config;
	const struct train_spec *train = job->train;

	if (!config->family)
		return 0; /* refused by its first tensor */
	if (config->heads % train->tp)
		return error_set(error, ERROR_CONFIG,
				 "--train: tp=%u does not divide the %" PRIu64 " attention heads",
				 train->tp, config->heads);
	if (train->mtp && train->mtp != config->mtp_layers)
		return error_set(error, ERROR_CONFIG,
				 "--train: mtp=%u, and %s has %" PRIu64
				 " MTP layers (num_nextn_predict_layers): say %s",
				 train->mtp, job->model->name, config->mtp_layers,
				 config->mtp_layers
					 ? "that many, or leave mtp= out where trainers have none"
					 : "nothing of them");
	if (train->out_norm && !family_has(config->family, FEATURE_LINEAR))
		return error_set(error, ERROR_CONFIG,
				 "--train: out_norm is of linear attention, and %s has none: leave "
				 "it out",
				 job->model->name);
	return check_experts(job, error);
}

/* A tied model's last stage computes with the embedding, whatever lm_head its checkpoint has. */
static bool is_tied_head(const struct megatron *m)
{
	return m->config->tied && m->config->family &&
	       strcmp(m->config->family->rules[m->tensor->rule].tensor, HEAD_TENSOR) == 0;
}

static int hold_tensor(struct megatron *m, struct error *error)
{
	const struct source_job *job = m->job;
	bool here;
	int rc;

	if (source_is_buffer(job->model, m->tensor) || is_repeated(m) || is_tied_head(m))
		return 0;
	if (m->tensor->scale || m->tensor->dtype == DTYPE_F8_E4M3 || m->tensor->dtype == DTYPE_U8)
		return source_unknown(
			job, m->tensor,
			"Megatron holds what is not quantised: name the model that is not, and give "
			"engines fp8=128x128 in --infer",
			error);
	m->rank = job->place.tp;
	m->size = job->train->tp;
	rc = is_in_layer(m) ? find_layer(m, error) : 0;
	if (rc || (is_in_layer(m) && !is_here(m, &m->at)))
		return rc;
	rc = source_find_row(job, m->tensor, &m->row, error);
	if (rc)
		return rc;
	m->matrix = matrix_of(m);
	rc = place(m, &here, error);
	if (rc)
		return rc;
	if (!here)
		return hold_copy(m, error);
	return m->tensor->expert != EXPERT_NONE ? megatron_expert(m, error)
						: holds[m->row.cut](m, error);
}

int source_megatron(const struct source_job *job, struct error *error)
{
	struct megatron m = {.job = job, .config = &job->model->config, .layer = -1};
	size_t count = job->train->mtp ? job->model->all_count : job->model->tensor_count;
	int rc = check_sizes(job, error);

	for (m.order = 0; m.order < count && !rc; m.order++) {
		m.tensor = &job->model->tensors[m.order];
		rc = hold_tensor(&m, error);
	}
	return rc;
}

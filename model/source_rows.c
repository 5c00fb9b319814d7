/* SPDX-License-Identifier: Apache-2.0
 *
 * source_rows.c -- which tensors a trainer cuts how. Names are HuggingFace's; Megatron's are those of its TransformerEngine
 * specification. Source: Megatron-Core's GPTModel, Megatron-Bridge's parameter mappings; for the cuts torchtitan's parallelize
 * plans too. A row with a prefix of the suffix does not count: names are compared whole.
 */
#include "model/family.h"
#include "model/source.h"

#include "base/array.h"

#include <string.h>

#define INPUT_NORM	"input_layernorm.weight"
#define PRE_FEEDFORWARD "pre_feedforward_layernorm.weight"
#define QKV_NAME	"self_attention.linear_qkv."
#define EXPERT_ROWS(prefix, gate, up, down)                                                       \
	{prefix "{e}." gate ".weight", SOURCE_GATE, "mlp.experts.linear_fc1.weight", NULL, NULL}, \
		{prefix "{e}." up ".weight", SOURCE_UP, "mlp.experts.linear_fc1.weight", NULL,    \
		 NULL},                                                                           \
	{                                                                                         \
		prefix "{e}." down ".weight", SOURCE_COLUMNS, "mlp.experts.linear_fc2.weight",    \
			NULL, NULL                                                                \
	}
#define MLP_ROWS(prefix, megatron)                                                                 \
	{prefix "gate_proj.weight", SOURCE_GATE, megatron "linear_fc1.weight", NULL, NULL},        \
		{prefix "gate_proj.bias", SOURCE_GATE, megatron "linear_fc1.bias", NULL, NULL},    \
		{prefix "up_proj.weight", SOURCE_UP, megatron "linear_fc1.weight", NULL, NULL},    \
		{prefix "up_proj.bias", SOURCE_UP, megatron "linear_fc1.bias", NULL, NULL},        \
		{prefix "gate_up_proj.weight", SOURCE_GATE_UP, megatron "linear_fc1.weight", NULL, \
		 NULL},                                                                            \
		{prefix "down_proj.weight", SOURCE_COLUMNS, megatron "linear_fc2.weight", NULL,    \
		 NULL},                                                                            \
	{                                                                                          \
		prefix "down_proj.bias", SOURCE_WHOLE, megatron "linear_fc2.bias", NULL, NULL      \
	}

static const struct source_row rows[] = {
	{"model.embed_tokens.weight", SOURCE_VOCABULARY, "embedding.word_embeddings.weight", NULL,
	 NULL},
	{"lm_head.weight", SOURCE_VOCABULARY, "output_layer.weight", NULL, NULL},
	{"model.norm.weight", SOURCE_WHOLE, "decoder.final_layernorm.weight", NULL, NULL},
	{INPUT_NORM, SOURCE_WHOLE, QKV_NAME "layer_norm_weight", "input_layernorm.weight", NULL},
	{"post_attention_layernorm.weight", SOURCE_WHOLE, "mlp.linear_fc1.layer_norm_weight", NULL,
	 "pre_mlp_layernorm.weight"},
	{"post_self_attn_layernorm.weight", SOURCE_WHOLE, NULL, NULL, NULL},
	{"post_mlp_layernorm.weight", SOURCE_WHOLE, NULL, NULL, NULL},
	{PRE_FEEDFORWARD, SOURCE_WHOLE, "mlp.linear_fc1.layer_norm_weight", NULL, NULL},
	{"post_feedforward_layernorm.weight", SOURCE_WHOLE, "mlp.linear_fc2.post_layernorm.weight",
	 NULL, NULL},
	{"self_attn.q_proj.weight", SOURCE_Q, QKV_NAME "weight",
	 "self_attention.linear_q_proj.weight", NULL},
	{"self_attn.k_proj.weight", SOURCE_K, QKV_NAME "weight", NULL, NULL},
	{"self_attn.v_proj.weight", SOURCE_V, QKV_NAME "weight", NULL, NULL},
	{"self_attn.q_proj.bias", SOURCE_Q, QKV_NAME "bias", NULL, NULL},
	{"self_attn.k_proj.bias", SOURCE_K, QKV_NAME "bias", NULL, NULL},
	{"self_attn.v_proj.bias", SOURCE_V, QKV_NAME "bias", NULL, NULL},
	{"self_attn.qkv_proj.weight", SOURCE_QKV, QKV_NAME "weight", NULL, NULL},
	{"self_attn.o_proj.weight", SOURCE_COLUMNS, "self_attention.linear_proj.weight", NULL,
	 NULL},
	{"self_attn.o_proj.bias", SOURCE_WHOLE, "self_attention.linear_proj.bias", NULL, NULL},
	{"self_attn.q_norm.weight", SOURCE_WHOLE, "self_attention.q_layernorm.weight", NULL, NULL},
	{"self_attn.k_norm.weight", SOURCE_WHOLE, "self_attention.k_layernorm.weight", NULL, NULL},
	/* latent attention: what goes into the latent is on every rank */
	{"self_attn.q_a_proj.weight", SOURCE_WHOLE, "self_attention.linear_q_down_proj.weight",
	 NULL, NULL},
	{"self_attn.q_a_layernorm.weight", SOURCE_WHOLE,
	 "self_attention.linear_q_up_proj.layer_norm_weight", NULL, NULL},
	{"self_attn.q_b_proj.weight", SOURCE_ROWS, "self_attention.linear_q_up_proj.weight", NULL,
	 NULL},
	{"self_attn.kv_a_proj_with_mqa.weight", SOURCE_WHOLE,
	 "self_attention.linear_kv_down_proj.weight", NULL, NULL},
	{"self_attn.kv_a_layernorm.weight", SOURCE_WHOLE,
	 "self_attention.linear_kv_up_proj.layer_norm_weight", NULL, NULL},
	{"self_attn.kv_b_proj.weight", SOURCE_ROWS, "self_attention.linear_kv_up_proj.weight", NULL,
	 NULL},
	{"self_attn.indexer.wq_b.weight", SOURCE_WHOLE, "self_attention.wq_b.weight", NULL, NULL},
	{"self_attn.indexer.wk.weight", SOURCE_WHOLE, "self_attention.wk.weight", NULL, NULL},
	{"self_attn.indexer.k_norm.weight", SOURCE_WHOLE, "self_attention.k_norm.weight", NULL,
	 NULL},
	{"self_attn.indexer.k_norm.bias", SOURCE_WHOLE, "self_attention.k_norm.bias", NULL, NULL},
	{"self_attn.indexer.weights_proj.weight", SOURCE_WHOLE,
	 "self_attention.weights_proj.weight", NULL, NULL},
	MLP_ROWS("mlp.", "mlp."),
	MLP_ROWS("mlp.shared_experts.", "mlp.shared_experts."),
	MLP_ROWS("mlp.shared_expert.", "mlp.shared_experts."),
	{"mlp.shared_expert_gate.weight", SOURCE_WHOLE, "mlp.shared_experts.gate_weight", NULL,
	 NULL},
	{"mlp.gate.weight", SOURCE_WHOLE, "mlp.router.weight", NULL, NULL},
	{"mlp.gate.e_score_correction_bias", SOURCE_WHOLE, "mlp.router.expert_bias", NULL, NULL},
	{"block_sparse_moe.gate.weight", SOURCE_WHOLE, "mlp.router.weight", NULL, NULL},
	EXPERT_ROWS("mlp.experts.", "gate_proj", "up_proj", "down_proj"),
	EXPERT_ROWS("block_sparse_moe.experts.", "w1", "w3", "w2"),
};

#define LINEAR_ROW(name, cut, megatron)                                          \
	{                                                                        \
		"linear_attn." name, cut, "self_attention." megatron, NULL, NULL \
	}
#define PAIR_ROWS(name, megatron)                                       \
	{name ".weight", SOURCE_WHOLE, megatron "weight", NULL, NULL},  \
	{                                                               \
		name ".bias", SOURCE_WHOLE, megatron "bias", NULL, NULL \
	}
#define CONV1D_ROWS(name, weight, bias, megatron)                 \
	{name ".weight", weight, megatron ".weight", NULL, NULL}, \
	{                                                         \
		name ".bias", bias, megatron ".bias", NULL, NULL  \
	}
/* What Megatron's trainers alone are known to cut. */
static const struct source_row megatron_rows[] = {
	/* layers that predict further tokens, beside the layer of the model inside of each */
	{"enorm.weight", SOURCE_WHOLE, NULL, NULL, NULL},
	{"hnorm.weight", SOURCE_WHOLE, NULL, NULL, NULL},
	{"eh_proj.weight", SOURCE_ROWS, NULL, NULL, NULL},
	{"shared_head.norm.weight", SOURCE_WHOLE, "final_layernorm.weight", NULL, NULL},
	/* Qwen3-Next */
	LINEAR_ROW("dt_bias", SOURCE_ROWS, "dt_bias"),
	LINEAR_ROW("A_log", SOURCE_ROWS, "A_log"),
	LINEAR_ROW("conv1d.weight", SOURCE_LINEAR_CONV, "conv1d.weight"),
	LINEAR_ROW("in_proj_qkvz.weight", SOURCE_LINEAR_QKVZ, "in_proj.weight"),
	LINEAR_ROW("in_proj_ba.weight", SOURCE_LINEAR_BA, "in_proj.weight"),
	LINEAR_ROW("norm.weight", SOURCE_OUT_NORM, "out_norm.weight_plus_one"),
	LINEAR_ROW("out_proj.weight", SOURCE_COLUMNS, "out_proj.weight"),
	/* gpt-oss */
	{"self_attn.sinks", SOURCE_ROWS, "self_attention.core_attention.softmax_offset", NULL,
	 NULL},
	PAIR_ROWS("mlp.router", "mlp.router."),
	{"mlp.experts.gate_up_proj", SOURCE_STACKED, "mlp.experts.linear_fc1.weight", NULL, NULL},
	{"mlp.experts.gate_up_proj_bias", SOURCE_STACKED, "mlp.experts.linear_fc1.bias", NULL,
	 NULL},
	{"mlp.experts.down_proj", SOURCE_STACKED, "mlp.experts.linear_fc2.weight", NULL, NULL},
	{"mlp.experts.down_proj_bias", SOURCE_STACKED, "mlp.experts.linear_fc2.bias", NULL, NULL},
	/* GPT-2 */
	{"transformer.wte.weight", SOURCE_VOCABULARY, "embedding.word_embeddings.weight", NULL,
	 NULL},
	{"transformer.wpe.weight", SOURCE_WHOLE, "embedding.position_embeddings.weight", NULL,
	 NULL},
	PAIR_ROWS("ln_1", QKV_NAME "layer_norm_"),
	CONV1D_ROWS("attn.c_attn", SOURCE_QKV, SOURCE_QKV, "self_attention.linear_qkv"),
	CONV1D_ROWS("attn.c_proj", SOURCE_COLUMNS, SOURCE_WHOLE, "self_attention.linear_proj"),
	PAIR_ROWS("ln_2", "mlp.linear_fc1.layer_norm_"),
	CONV1D_ROWS("mlp.c_fc", SOURCE_ROWS, SOURCE_ROWS, "mlp.linear_fc1"),
	CONV1D_ROWS("mlp.c_proj", SOURCE_COLUMNS, SOURCE_WHOLE, "mlp.linear_fc2"),
	PAIR_ROWS("transformer.ln_f", "decoder.final_layernorm."),
};

/* With a norm before and one behind each half of a layer (Gemma), what others call the one before the second half is the one
 * behind the first. */
static const struct source_row sandwich = {"post_attention_layernorm.weight", SOURCE_WHOLE,
					   "self_attention.linear_proj.post_layernorm.weight", NULL,
					   NULL};

static bool has_sandwich(const struct family *family)
{
	for (size_t i = 0; i < family->rule_count; i++)
		if (strcmp(family->rules[i].tensor, LAYER_PREFIX PRE_FEEDFORWARD) == 0)
			return true;
	return false;
}

const char *source_suffix(const struct model *model, const struct model_tensor *tensor)
{
	static const char layer[] = "{i}.";
	const char *pattern = model->config.family->rules[tensor->rule].tensor;
	const char *found = strstr(pattern, layer);

	return found ? found + strlen(layer) : pattern;
}

int source_unknown(const struct source_job *job, const struct model_tensor *tensor, const char *why,
		   struct error *error)
{
	return error_set(
		error, ERROR_UNSUPPORTED,
		"source=%s of --train has no row for tensor %s of family %s: %s; declare such a trainer "
		"box by box (weft_declare_holding), or take another source (docs/sources.md)",
		job->train->source == TRAIN_MEGATRON ? "megatron" : "dtensor", tensor->name,
		job->model->config.family ? job->model->config.family->model_type : "none", why);
}

static const struct source_row *find(const struct source_row *table, size_t count,
				     const char *suffix)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(table[i].suffix, suffix) == 0)
			return &table[i];
	return NULL;
}

/* Where the class, or the layer, has it elsewhere. */
static void place_row(struct source_row *row, const struct model_config *config, int64_t layer)
{
	if (strcmp(row->suffix, sandwich.suffix) == 0 && has_sandwich(config->family))
		*row = sandwich;
	if (row->latent && config->kv_lora_rank)
		row->megatron = row->latent;
	if (row->sparse && layer >= (int64_t)config->dense_layers && config->experts)
		row->megatron = row->sparse;
	if (row->cut == SOURCE_Q && config->kv_lora_rank)
		row->cut = SOURCE_ROWS;
	if (strcmp(row->suffix, INPUT_NORM) == 0 && condition_holds(IF_LINEAR, config, layer))
		row->megatron = "self_attention.in_proj.layer_norm_weight";
}

int source_find_row(const struct source_job *job, const struct model_tensor *tensor,
		    struct source_row *row, struct error *error)
{
	const struct model *model = job->model;
	const struct source_row *found;
	const char *suffix;

	if (!model->config.family)
		return source_unknown(job, tensor, "the model is a layout file's", error);
	suffix = source_suffix(model, tensor);
	found = find(rows, ARRAY_SIZE(rows), suffix);
	if (!found && job->train->source == TRAIN_MEGATRON)
		found = find(megatron_rows, ARRAY_SIZE(megatron_rows), suffix);
	if (!found)
		return source_unknown(job, tensor, "no such trainer of this family is known",
				      error);
	*row = *found;
	place_row(row, &model->config, tensor->layer);
	return 0;
}

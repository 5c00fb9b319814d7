/* SPDX-License-Identifier: Apache-2.0 */
#include "model/family.h"
#include "model/layout_file.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

const struct family *const families[] = {
	&family_llama,	       &family_qwen2,	    &family_qwen3,
	&family_qwen3_moe,     &family_glm4,	    &family_glm4_moe,
	&family_glm4_moe_lite, &family_deepseek_v2, &family_deepseek_v3,
	&family_deepseek_v32,  &family_glm_moe_dsa, &family_mistral,
	&family_mixtral,       &family_phi3,	    &family_gemma2,
	&family_gemma3,	       &family_qwen2_moe,   &family_gpt2,
	&family_qwen3_next,    &family_gpt_oss,	    NULL,
};

const struct family *family_find(const char *architecture)
{
	for (size_t i = 0; families[i]; i++)
		if (strcmp(families[i]->architecture, architecture) == 0)
			return families[i];
	return NULL;
}

const struct family *family_named(const char *name)
{
	for (size_t i = 0; families[i]; i++)
		if (strcasecmp(families[i]->model_type, name) == 0 ||
		    strcasecmp(families[i]->architecture, name) == 0)
			return families[i];
	return NULL;
}

char *family_list(bool types, char *out, size_t out_bytes)
{
	size_t at = 0;

	out[0] = '\0';
	for (size_t i = 0; families[i] && at < out_bytes; i++) {
		int n = snprintf(out + at, out_bytes - at, "%s%s", i ? ", " : "",
				 types ? families[i]->model_type : families[i]->architecture);

		if (n < 0)
			break;
		at += (size_t)n;
	}
	return out;
}

const char *family_unknown_hint(void)
{
	return "one whose tensors are called and shaped as theirs is taken with --as, as in --as "
	       "llama; " LAYOUT_FILE_HINT;
}

/* The first layers have one, then every index_every-th: the others use their top k again. */
static bool has_indexer(const struct model_config *config, int64_t layer)
{
	uint64_t at = (uint64_t)layer + 1;

	if (layer >= (int64_t)config->layers || config->index_every <= 1)
		return true;
	return at <= config->index_offset || (at - config->index_offset) % config->index_every == 0;
}

/* Every full_every-th layer attends to all tokens; a class without linear attention has 0. */
static bool is_full(const struct model_config *config, int64_t layer)
{
	return !config->full_every || ((uint64_t)layer + 1) % config->full_every == 0;
}

bool condition_holds(enum condition when, const struct model_config *config, int64_t layer)
{
	const bool sparse = layer >= (int64_t)config->dense_layers;
	const bool holds[CONDITION_COUNT] = {
		[ALWAYS] = true,
		[IF_UNTIED] = !config->tied || config->own_head,
		[IF_ATTENTION_BIAS] = config->attention_bias,
		[IF_MLP_BIAS] = config->mlp_bias,
		[IF_QK_NORM] = config->qk_norm,
		[IF_DENSE] = !sparse,
		[IF_SPARSE] = sparse,
		[IF_SHARED] = sparse && config->shared_experts,
		[IF_ROUTER_BIAS] = sparse && config->router_bias,
		[IF_Q_LORA] = config->q_lora_rank != 0,
		[IF_NO_Q_LORA] = config->q_lora_rank == 0,
		[IF_INDEXER] = has_indexer(config, layer),
		[IF_ROTARY] = config->rotary_tensors,
		[IF_MXFP4] = config->mxfp4,
		[IF_NOT_MXFP4] = !config->mxfp4,
		[IF_LINEAR] = !is_full(config, layer),
		[IF_FULL] = is_full(config, layer),
		[IF_MTP] = layer >= (int64_t)config->layers,
	};

	return holds[when];
}

uint64_t dim_value(enum dim dim, const struct model_config *config)
{
	const struct model_config *c = config;
	const uint64_t linear_keys = c->linear_k_heads * c->linear_k_head_dim;
	const uint64_t linear_values = c->linear_v_heads * c->linear_v_head_dim;
	const uint64_t values[DIM_COUNT] = {
		[DIM_HIDDEN] = c->hidden_size,
		[DIM_VOCAB] = c->vocab_size,
		[DIM_Q_ROWS] = c->heads * c->head_dim,
		[DIM_KV_ROWS] = c->kv_heads * c->head_dim,
		[DIM_POSITIONS] = c->positions,
		[DIM_QKV_ROWS] = (c->heads + 2 * c->kv_heads) * c->head_dim,
		[DIM_HEAD] = c->head_dim,
		[DIM_INTERMEDIATE] = c->intermediate_size,
		[DIM_INTERMEDIATE_2] = 2 * c->intermediate_size,
		[DIM_EXPERTS] = c->experts,
		[DIM_MOE] = c->moe_intermediate_size,
		[DIM_SHARED] = c->moe_intermediate_size * c->shared_experts,
		[DIM_SHARED_GATED] = c->shared_intermediate_size,
		[DIM_ONE] = 1,
		[DIM_Q_LORA] = c->q_lora_rank,
		[DIM_KV_LORA] = c->kv_lora_rank,
		[DIM_KV_A] = c->kv_lora_rank + c->qk_rope_head_dim,
		[DIM_LATENT_Q] = c->heads * (c->qk_nope_head_dim + c->qk_rope_head_dim),
		[DIM_LATENT_KV] = c->heads * (c->qk_nope_head_dim + c->v_head_dim),
		[DIM_LATENT_OUT] = c->heads * c->v_head_dim,
		[DIM_INDEX_Q] = c->index_heads * c->index_head_dim,
		[DIM_INDEX_HEADS] = c->index_heads,
		[DIM_INDEX_HEAD] = c->index_head_dim,
		[DIM_HIDDEN_2] = 2 * c->hidden_size,
		[DIM_HEADS] = c->heads,
		[DIM_MOE_2] = 2 * c->moe_intermediate_size,
		[DIM_MOE_BLOCKS] = c->moe_intermediate_size / MXFP4_BLOCK,
		[DIM_HIDDEN_BLOCKS] = c->hidden_size / MXFP4_BLOCK,
		[DIM_BLOCK_BYTES] = MXFP4_BLOCK / 2,
		[DIM_Q_GATED] = 2 * c->heads * c->head_dim,
		[DIM_LINEAR_QKVZ] = 2 * (linear_keys + linear_values),
		[DIM_LINEAR_BA] = 2 * c->linear_v_heads,
		[DIM_LINEAR_CONV] = 2 * linear_keys + linear_values,
		[DIM_LINEAR_KERNEL] = c->linear_kernel,
		[DIM_LINEAR_V_HEADS] = c->linear_v_heads,
		[DIM_LINEAR_V_HEAD] = c->linear_v_head_dim,
		[DIM_LINEAR_OUT] = linear_values,
		[DIM_ROTARY] = c->hidden_size / c->heads / 2, /* a config has heads */
	};

	return values[dim];
}

uint32_t rule_dims(const struct rule *rule)
{
	uint32_t n = 0;

	while (n < RULE_DIMS_MAX && rule->dims[n] != DIM_END)
		n++;
	return n;
}

void rule_shape(const struct rule *rule, const struct model_config *config,
		uint64_t shape[RULE_DIMS_MAX])
{
	for (uint32_t d = 0; d < rule_dims(rule); d++)
		shape[d] = dim_value(rule->dims[d], config);
}

bool rule_in_layer(const struct rule *rule)
{
	return strstr(rule->tensor, "{i}") != NULL;
}

bool rule_in_expert(const struct rule *rule)
{
	return strstr(rule->tensor, "{e}") != NULL;
}

bool rule_name(const char *pattern, uint64_t layer, uint64_t expert, bool scale,
	       char out[RULE_NAME_BYTES])
{
	size_t at = 0;
	int n;

	while (*pattern && at < RULE_NAME_BYTES) {
		if (pattern[0] != '{') {
			out[at++] = *pattern++;
			continue;
		}
		n = snprintf(out + at, RULE_NAME_BYTES - at, "%llu",
			     (unsigned long long)(pattern[1] == 'i' ? layer : expert));
		at += (size_t)n;
		pattern += 3;
	}
	if (at + sizeof(SCALE_SUFFIX) > RULE_NAME_BYTES)
		return false;
	strcpy(out + at, scale ? SCALE_SUFFIX : "");
	return true;
}

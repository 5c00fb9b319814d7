/* SPDX-License-Identifier: Apache-2.0 */
#include "model/config_fields.h"

#include "model/config.h"
#include "model/family.h"

#define AT(member) offsetof(struct model_config, member)
#define LATENT	   FEATURE_LATENT
#define EXPERTS	   FEATURE_EXPERTS
#define INDEXER	   FEATURE_INDEXER
#define LOCAL	   FEATURE_LOCAL_EXPERTS
#define LINEAR	   FEATURE_LINEAR
#define GPT2	   FEATURE_GPT2

/* Newer transformers write num_local_experts for every class that it runs experts of alike. */
const struct spelling config_spellings[] = {
	{"num_experts", "num_local_experts", EXPERTS},
	{"num_local_experts", "num_experts", EXPERTS},
	{"n_routed_experts", "num_local_experts", EXPERTS},
	{"num_nextn_predict_layers", "num_mtp_layers", FEATURE_MTP},
	{"n_embd", "hidden_size", GPT2},
	{"n_layer", "num_hidden_layers", GPT2},
	{"n_head", "num_attention_heads", GPT2},
	{"n_positions", "max_position_embeddings", GPT2},
	{0},
};

const struct size_field config_sizes[] = {
	{"hidden_size", AT(hidden_size), 1, CONFIG_HIDDEN_MAX, FIELD_NEEDED, 0, GPT2},
	{"n_embd", AT(hidden_size), 1, CONFIG_HIDDEN_MAX, FIELD_NEEDED, GPT2, 0},
	{"vocab_size", AT(vocab_size), 1, CONFIG_VOCAB_MAX, FIELD_NEEDED, 0, 0},
	{"num_hidden_layers", AT(layers), 1, CONFIG_LAYERS_MAX, FIELD_NEEDED, 0, GPT2},
	{"n_layer", AT(layers), 1, CONFIG_LAYERS_MAX, FIELD_NEEDED, GPT2, 0},
	{"intermediate_size", AT(intermediate_size), 1, CONFIG_INTERMEDIATE_MAX, FIELD_NEEDED,
	 FEATURE_MLP, 0},
	{"num_attention_heads", AT(heads), 1, CONFIG_HEADS_MAX, FIELD_NEEDED, 0, GPT2},
	{"n_head", AT(heads), 1, CONFIG_HEADS_MAX, FIELD_NEEDED, GPT2, 0},
	{"n_positions", AT(positions), 1, CONFIG_POSITIONS_MAX, FIELD_NEEDED, GPT2, 0},
	{"n_inner", AT(intermediate_size), 1, CONFIG_INTERMEDIATE_MAX, FIELD_OPTIONAL, GPT2, 0},
	{"num_experts", AT(experts), 1, CONFIG_EXPERTS_MAX, FIELD_NEEDED, FEATURE_NUM_EXPERTS, 0},
	{"num_local_experts", AT(experts), 1, CONFIG_EXPERTS_MAX, FIELD_NEEDED, LOCAL, 0},
	{"n_routed_experts", AT(experts), 1, CONFIG_EXPERTS_MAX, FIELD_NEEDED, EXPERTS,
	 FEATURE_NUM_EXPERTS | LOCAL},
	{"n_group", AT(expert_groups), 1, CONFIG_EXPERTS_MAX, FIELD_OPTIONAL, FEATURE_SHARED, 0},
	{"moe_intermediate_size", AT(moe_intermediate_size), 1, CONFIG_INTERMEDIATE_MAX,
	 FIELD_NEEDED, EXPERTS, LOCAL},
	{"intermediate_size", AT(moe_intermediate_size), 1, CONFIG_INTERMEDIATE_MAX, FIELD_NEEDED,
	 LOCAL, 0},
	{"shared_expert_intermediate_size", AT(shared_intermediate_size), 1,
	 CONFIG_INTERMEDIATE_MAX, FIELD_NEEDED, FEATURE_SHARED_GATE, 0},
	{"n_shared_experts", AT(shared_experts), 0, CONFIG_SHARED_MAX, FIELD_OPTIONAL,
	 FEATURE_SHARED, 0},
	{"first_k_dense_replace", AT(dense_layers), 0, CONFIG_LAYERS_MAX, FIELD_NEEDED,
	 FEATURE_SHARED, 0},
	{"q_lora_rank", AT(q_lora_rank), 1, CONFIG_HIDDEN_MAX, FIELD_NULLABLE, LATENT, INDEXER},
	{"q_lora_rank", AT(q_lora_rank), 1, CONFIG_HIDDEN_MAX, FIELD_NEEDED, LATENT | INDEXER, 0},
	{"kv_lora_rank", AT(kv_lora_rank), 1, CONFIG_HIDDEN_MAX, FIELD_NEEDED, LATENT, 0},
	{"qk_nope_head_dim", AT(qk_nope_head_dim), 1, CONFIG_HEAD_DIM_MAX, FIELD_NEEDED, LATENT, 0},
	{"qk_rope_head_dim", AT(qk_rope_head_dim), 1, CONFIG_HEAD_DIM_MAX, FIELD_NEEDED, LATENT, 0},
	{"v_head_dim", AT(v_head_dim), 1, CONFIG_HEAD_DIM_MAX, FIELD_NEEDED, LATENT, 0},
	{"index_n_heads", AT(index_heads), 1, CONFIG_HEADS_MAX, FIELD_NEEDED, INDEXER, 0},
	{"index_head_dim", AT(index_head_dim), 1, CONFIG_HEAD_DIM_MAX, FIELD_NEEDED, INDEXER, 0},
	{"index_topk_freq", AT(index_every), 1, CONFIG_LAYERS_MAX, FIELD_OPTIONAL, INDEXER, 0},
	{"index_skip_topk_offset", AT(index_offset), 0, CONFIG_LAYERS_MAX, FIELD_OPTIONAL, INDEXER,
	 0},
	{"linear_num_key_heads", AT(linear_k_heads), 1, CONFIG_HEADS_MAX, FIELD_NEEDED, LINEAR, 0},
	{"linear_num_value_heads", AT(linear_v_heads), 1, CONFIG_HEADS_MAX, FIELD_NEEDED, LINEAR,
	 0},
	{"linear_key_head_dim", AT(linear_k_head_dim), 1, CONFIG_HEAD_DIM_MAX, FIELD_NEEDED, LINEAR,
	 0},
	{"linear_value_head_dim", AT(linear_v_head_dim), 1, CONFIG_HEAD_DIM_MAX, FIELD_NEEDED,
	 LINEAR, 0},
	{"linear_conv_kernel_dim", AT(linear_kernel), 1, CONFIG_HEAD_DIM_MAX, FIELD_NEEDED, LINEAR,
	 0},
	{"full_attention_interval", AT(full_every), 1, CONFIG_LAYERS_MAX, FIELD_OPTIONAL, LINEAR,
	 0},
	{"num_nextn_predict_layers", AT(mtp_layers), 0, CONFIG_MTP_MAX, FIELD_OPTIONAL, FEATURE_MTP,
	 0},
	{0},
};

const struct flag_field config_flags[] = {
	{"tie_word_embeddings", AT(tied), 0, true},
	{"attention_bias", AT(attention_bias), FEATURE_ATTENTION_BIAS, false},
	{"qkv_bias", AT(attention_bias), FEATURE_QKV_BIAS, false},
	{"mlp_bias", AT(mlp_bias), FEATURE_MLP_BIAS, false},
	{"use_qk_norm", AT(qk_norm), FEATURE_QK_NORM, false},
	/* not HuggingFace's: files of some checkpoints carry rotary_emb.inv_freq, config.json does
	 * not say which */
	{CONFIG_ROTARY_FIELD, AT(rotary_tensors), LATENT, false},
	{CONFIG_BIAS_FIELD, AT(router_bias_cast), FEATURE_SHARED, false},
	{CONFIG_HEAD_FIELD, AT(own_head), 0, false},
	{0},
};

const struct fixed_field config_fixed[] = {
	{"moe_layer_freq", 1, false, "1", EXPERTS, "every layer past the dense ones has experts"},
	{"decoder_sparse_step", 1, false, "1", EXPERTS, "every layer has experts"},
	{"ep_num_redundant_experts", 0, false, "0", EXPERTS, "each expert exists once"},
	{"attention_bias", 0, true, "false", LINEAR, "its attention has no biases"},
	{"attn_output_gate", 1, true, "true", LINEAR, "query heads have gates"},
	{"attention_bias", 0, true, "false", LATENT, "latent attention has no biases"},
	{0},
};

bool config_has(const struct model_config *config, const struct size_field *field)
{
	return family_has(config->family, field->features) &&
	       !(config->family->features & field->without);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * builtin.c -- the models that are known by name: their published config.json as far as shapes
 * go.
 */
#include "model/model.h"

#include "base/array.h"

/* Models that exist in several stored forms share their shapes. */
#define FP8(block)                                                                  \
	", \"quantization_config\": {\"quant_method\": \"fp8\", \"fmt\": \"e4m3\"," \
	" \"activation_scheme\": \"dynamic\", \"weight_block_size\": [" block ", " block "]}"
#define QWEN3_30B                                                                          \
	"\"architectures\": [\"Qwen3MoeForCausalLM\"], \"model_type\": \"qwen3_moe\","     \
	" \"hidden_size\": 2048, \"intermediate_size\": 6144,"                             \
	" \"num_hidden_layers\": 48, \"num_attention_heads\": 32,"                         \
	" \"num_key_value_heads\": 4, \"head_dim\": 128, \"num_experts\": 128,"            \
	" \"moe_intermediate_size\": 768, \"vocab_size\": 151936,"                         \
	" \"decoder_sparse_step\": 1, \"mlp_only_layers\": [], \"attention_bias\": false," \
	" \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\""
#define QWEN3_235B                                                                         \
	"\"architectures\": [\"Qwen3MoeForCausalLM\"], \"model_type\": \"qwen3_moe\","     \
	" \"hidden_size\": 4096, \"intermediate_size\": 12288,"                            \
	" \"num_hidden_layers\": 94, \"num_attention_heads\": 64,"                         \
	" \"num_key_value_heads\": 4, \"head_dim\": 128, \"num_experts\": 128,"            \
	" \"moe_intermediate_size\": 1536, \"vocab_size\": 151936,"                        \
	" \"decoder_sparse_step\": 1, \"mlp_only_layers\": [], \"attention_bias\": false," \
	" \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\""
#define DEEPSEEK_SIZES                                                                      \
	" \"hidden_size\": 7168, \"intermediate_size\": 18432,"                             \
	" \"num_hidden_layers\": 61, \"moe_intermediate_size\": 2048,"                      \
	" \"n_shared_experts\": 1, \"q_lora_rank\": 1536, \"kv_lora_rank\": 512,"           \
	" \"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64, \"v_head_dim\": 128,"        \
	" \"moe_layer_freq\": 1, \"topk_method\": \"noaux_tc\", \"attention_bias\": false," \
	" \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\""
#define DEEPSEEK_V3                                                                 \
	DEEPSEEK_SIZES ", \"num_attention_heads\": 128, \"n_routed_experts\": 256," \
		       " \"first_k_dense_replace\": 3, \"vocab_size\": 129280,"     \
		       " \"num_nextn_predict_layers\": 1, \"n_group\": 8"
#define KIMI_K2                                                                                       \
	"\"architectures\": [\"DeepseekV3ForCausalLM\"], \"model_type\": \"kimi_k2\"," DEEPSEEK_SIZES \
	", \"num_attention_heads\": 64, \"n_routed_experts\": 384,"                                   \
	" \"first_k_dense_replace\": 1, \"vocab_size\": 163840,"                                      \
	" \"num_nextn_predict_layers\": 0, \"weft_rotary_inv_freq\": true"
#define GLM_5                                                                             \
	"\"architectures\": [\"GlmMoeDsaForCausalLM\"], \"model_type\": \"glm_moe_dsa\"," \
	" \"hidden_size\": 6144, \"intermediate_size\": 12288,"                           \
	" \"num_hidden_layers\": 78, \"num_attention_heads\": 64,"                        \
	" \"n_routed_experts\": 256, \"n_shared_experts\": 1,"                            \
	" \"moe_intermediate_size\": 2048, \"first_k_dense_replace\": 3,"                 \
	" \"q_lora_rank\": 2048, \"kv_lora_rank\": 512, \"qk_nope_head_dim\": 192,"       \
	" \"qk_rope_head_dim\": 64, \"v_head_dim\": 256, \"index_n_heads\": 32,"          \
	" \"index_head_dim\": 128, \"vocab_size\": 154880,"                               \
	" \"num_nextn_predict_layers\": 1, \"attention_bias\": false,"                    \
	" \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\""

static const struct model_builtin builtins[] = {
	{"Qwen2.5-0.5B",
	 "{\"architectures\": [\"Qwen2ForCausalLM\"], \"model_type\": \"qwen2\","
	 " \"hidden_size\": 896, \"intermediate_size\": 4864, \"num_hidden_layers\": 24,"
	 " \"num_attention_heads\": 14, \"num_key_value_heads\": 2, \"vocab_size\": 151936,"
	 " \"tie_word_embeddings\": true, \"torch_dtype\": \"bfloat16\"}"},
	{"Qwen2.5-7B",
	 "{\"architectures\": [\"Qwen2ForCausalLM\"], \"model_type\": \"qwen2\","
	 " \"hidden_size\": 3584, \"intermediate_size\": 18944, \"num_hidden_layers\": 28,"
	 " \"num_attention_heads\": 28, \"num_key_value_heads\": 4, \"vocab_size\": 152064,"
	 " \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\"}"},
	{"Qwen3-4B",
	 "{\"architectures\": [\"Qwen3ForCausalLM\"], \"model_type\": \"qwen3\","
	 " \"hidden_size\": 2560, \"intermediate_size\": 9728, \"num_hidden_layers\": 36,"
	 " \"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"head_dim\": 128,"
	 " \"vocab_size\": 151936, \"attention_bias\": false, \"tie_word_embeddings\": true,"
	 " \"torch_dtype\": \"bfloat16\"}"},
	{"Llama-3.1-8B",
	 "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\","
	 " \"hidden_size\": 4096, \"intermediate_size\": 14336, \"num_hidden_layers\": 32,"
	 " \"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"vocab_size\": 128256,"
	 " \"attention_bias\": false, \"mlp_bias\": false, \"tie_word_embeddings\": false,"
	 " \"torch_dtype\": \"bfloat16\"}"},
	{"GLM-Z1-9B-0414",
	 "{\"architectures\": [\"Glm4ForCausalLM\"], \"model_type\": \"glm4\","
	 " \"hidden_size\": 4096, \"intermediate_size\": 13696, \"num_hidden_layers\": 40,"
	 " \"num_attention_heads\": 32, \"num_key_value_heads\": 2, \"head_dim\": 128,"
	 " \"vocab_size\": 151552, \"attention_bias\": true, \"tie_word_embeddings\": false,"
	 " \"torch_dtype\": \"bfloat16\"}"},
	{"Qwen3-30B-A3B", "{" QWEN3_30B "}"},
	{"Qwen3-30B-A3B-FP8", "{" QWEN3_30B FP8("128") "}"},
	{"Qwen3-235B-A22B", "{" QWEN3_235B "}"},
	{"Qwen3-235B-A22B-FP8", "{" QWEN3_235B FP8("128") "}"},
	{"GLM-4.5-Air",
	 "{\"architectures\": [\"Glm4MoeForCausalLM\"], \"model_type\": \"glm4_moe\","
	 " \"hidden_size\": 4096, \"intermediate_size\": 10944, \"num_hidden_layers\": 46,"
	 " \"num_attention_heads\": 96, \"num_key_value_heads\": 8, \"head_dim\": 128,"
	 " \"n_routed_experts\": 128, \"n_shared_experts\": 1, \"moe_intermediate_size\": 1408,"
	 " \"first_k_dense_replace\": 1, \"num_nextn_predict_layers\": 1, \"use_qk_norm\": false,"
	 " \"vocab_size\": 151552, \"attention_bias\": true, \"tie_word_embeddings\": false,"
	 " \"torch_dtype\": \"bfloat16\"}"},
	{"GLM-4.7-Flash",
	 "{\"architectures\": [\"Glm4MoeLiteForCausalLM\"], \"model_type\": \"glm4_moe_lite\","
	 " \"hidden_size\": 2048, \"intermediate_size\": 10240, \"num_hidden_layers\": 47,"
	 " \"num_attention_heads\": 20, \"n_routed_experts\": 64, \"n_shared_experts\": 1,"
	 " \"moe_intermediate_size\": 1536, \"first_k_dense_replace\": 1, \"q_lora_rank\": 768,"
	 " \"kv_lora_rank\": 512, \"qk_nope_head_dim\": 192, \"qk_rope_head_dim\": 64,"
	 " \"v_head_dim\": 256, \"num_nextn_predict_layers\": 1, \"vocab_size\": 154880,"
	 " \"attention_bias\": false, \"tie_word_embeddings\": false,"
	 " \"torch_dtype\": \"bfloat16\"}"},
	{"Moonlight-16B-A3B",
	 "{\"architectures\": [\"DeepseekV3ForCausalLM\"], \"model_type\": \"deepseek_v3\","
	 " \"hidden_size\": 2048, \"intermediate_size\": 11264, \"num_hidden_layers\": 27,"
	 " \"num_attention_heads\": 16, \"n_routed_experts\": 64, \"n_shared_experts\": 2,"
	 " \"moe_intermediate_size\": 1408, \"first_k_dense_replace\": 1, \"q_lora_rank\": null,"
	 " \"kv_lora_rank\": 512, \"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64,"
	 " \"v_head_dim\": 128, \"num_nextn_predict_layers\": 0, \"moe_layer_freq\": 1,"
	 " \"topk_method\": \"noaux_tc\", \"vocab_size\": 163840, \"attention_bias\": false,"
	 " \"tie_word_embeddings\": false, \"weft_rotary_inv_freq\": true,"
	 " \"torch_dtype\": \"bfloat16\"}"},
	{"DeepSeek-V3",
	 "{\"architectures\": [\"DeepseekV3ForCausalLM\"], \"model_type\": \"deepseek_v3\"," DEEPSEEK_V3
		 FP8("128") "}"},
	{"DeepSeek-V3-BF16",
	 "{\"architectures\": [\"DeepseekV3ForCausalLM\"], \"model_type\": \"deepseek_v3\"," DEEPSEEK_V3
	 "}"},
	{"DeepSeek-V3.2",
	 "{\"architectures\": [\"DeepseekV32ForCausalLM\"], \"model_type\": \"deepseek_v32\","
	 " \"index_n_heads\": 64, \"index_head_dim\": 128," DEEPSEEK_V3 FP8("128") "}"},
	{"Kimi-K2", "{" KIMI_K2 FP8("128") "}"},
	{"Kimi-K2-BF16", "{" KIMI_K2 "}"},
	/* the same, quantised again in smaller blocks, as published runs serve it */
	{"Kimi-K2-block64", "{" KIMI_K2 FP8("64") "}"},
	{"GLM-5", "{" GLM_5 "}"},
	{"GLM-5-FP8", "{" GLM_5 FP8("128") "}"},
	/* layers 0 to 2 and then every fourth have an indexer, the others use its choice again */
	{"GLM-5.2", "{" GLM_5 ", \"index_topk_freq\": 4, \"index_skip_topk_offset\": 3}"},
};

const struct model_builtin *model_builtins(size_t *count)
{
	*count = ARRAY_SIZE(builtins);
	return builtins;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * builtin.c -- the models that are known by name: their published config.json as far as shapes
 * go.
 */
#include "model/model.h"

#include "common/array.h"

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
};

const struct model_builtin *model_builtins(size_t *count)
{
	*count = ARRAY_SIZE(builtins);
	return builtins;
}

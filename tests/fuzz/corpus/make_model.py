#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of fuzz_safetensors, fuzz_config and fuzz_index beside this file."""
import json
import pathlib

HERE = pathlib.Path(__file__).parent


def safetensors(header, data):
    text = header if isinstance(header, str) else json.dumps(header)
    return len(text).to_bytes(8, "little") + text.encode() + bytes(range(data))


def tensor(dtype, shape, low, high):
    return {"dtype": dtype, "shape": shape, "data_offsets": [low, high]}


PLAIN = {"architectures": ["LlamaForCausalLM"], "hidden_size": 8, "intermediate_size": 16,
         "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
         "vocab_size": 100, "torch_dtype": "bfloat16"}
EXPERTS = {"architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 8, "num_hidden_layers": 1,
           "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "num_experts": 4,
           "moe_intermediate_size": 8, "vocab_size": 64, "torch_dtype": "bfloat16"}
LATENT = {"architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 8, "intermediate_size": 16,
          "num_hidden_layers": 2, "num_attention_heads": 4, "n_routed_experts": 4, "n_shared_experts": 1,
          "moe_intermediate_size": 8, "first_k_dense_replace": 1, "q_lora_rank": 8, "kv_lora_rank": 4,
          "qk_nope_head_dim": 4, "qk_rope_head_dim": 2, "v_head_dim": 4, "vocab_size": 64,
          "num_nextn_predict_layers": 1, "torch_dtype": "bfloat16"}
BLOCKS = {"quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                                  "weight_block_size": [4, 4], "modules_to_not_convert": ["lm_head"]}}
SEEDS = {
    "safetensors": {
        "empty": safetensors({}, 0),
        "one": safetensors({"a": tensor("BF16", [2, 3], 0, 12)}, 12),
        "two": safetensors({"__metadata__": {"format": "pt"}, "b": tensor("F32", [], 12, 16),
                            "a": tensor("BF16", [2, 3], 0, 12)}, 16),
        "zero": safetensors({"e": tensor("F16", [0, 4], 0, 0), "a": tensor("U8", [3], 0, 3)}, 3),
        "padded": safetensors('{"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}}      ', 8),
        "hole": safetensors({"a": tensor("F8_E4M3", [4], 4, 8)}, 8),
        "overlap": safetensors({"a": tensor("U8", [4], 0, 4), "b": tensor("U8", [4], 2, 6)}, 6),
        "long": (1 << 40).to_bytes(8, "little") + b"{}",
    },
    "config": {
        "llama": json.dumps(PLAIN),
        "bias": json.dumps(PLAIN | {"attention_bias": True, "mlp_bias": True}),
        "qwen2": json.dumps(PLAIN | {"architectures": ["Qwen2ForCausalLM"], "tie_word_embeddings": True}),
        "qwen3": json.dumps(PLAIN | {"architectures": ["Qwen3ForCausalLM"], "head_dim": 4,
                                     "dtype": "bfloat16", "quantization_config": None}),
        "glm4": json.dumps(PLAIN | {"architectures": ["Glm4ForCausalLM"], "attention_bias": True,
                                    "torch_dtype": "float32"}),
        "fp8": json.dumps(PLAIN | {"quantization_config": {"quant_method": "fp8"}}),
        "experts": json.dumps(EXPERTS),
        "experts-fp8": json.dumps(EXPERTS | BLOCKS),
        "latent": json.dumps(LATENT | {"weft_rotary_inv_freq": True}),
        "latent-fp8": json.dumps(LATENT | BLOCKS),
        "no-q-latent": json.dumps(LATENT | {"q_lora_rank": None, "topk_method": "greedy"}),
        "indexer": json.dumps(LATENT | {"architectures": ["GlmMoeDsaForCausalLM"], "index_n_heads": 2,
                                        "index_head_dim": 4, "index_topk_freq": 2,
                                        "index_skip_topk_offset": 1}),
        "heads-and-experts": json.dumps(LATENT | {"architectures": ["Glm4MoeForCausalLM"], "use_qk_norm": True,
                                                  "num_key_value_heads": 2, "attention_bias": True}),
    },
    "index": {
        "empty": json.dumps({"weight_map": {}}),
        "two": json.dumps({"metadata": {"total_size": 8}, "weight_map": {
            "a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors",
            "c": "model-00001-of-00002.safetensors"}}),
        "up": json.dumps({"weight_map": {"a": "../x.safetensors"}}),
    },
}

for folder, seeds in SEEDS.items():
    (HERE / folder).mkdir(exist_ok=True)
    for name, content in seeds.items():
        (HERE / folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())

# SPDX-License-Identifier: Apache-2.0
"""The shrunken models that layouts are compared on: what a class does with odd sizes is kept (a vocabulary that is no multiple
of 64, fewer key-value heads than ranks, heads that are not hidden_size / num_attention_heads)."""

import json
import pathlib

SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 203, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
         "max_position_embeddings": 128}
EXPERTS = {"num_experts": 4, "moe_intermediate_size": 32}
YARN = {"rope_type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 4096, "rope_theta": 10000}
GPT_OSS = SMALL | {"head_dim": 32, "num_local_experts": 4, "intermediate_size": 256, "hidden_size": 128,
                   "num_key_value_heads": 4}

# name: (transformers' model_type, its config's sizes)
MODELS = {
    "llama": ("llama", SMALL),
    "mistral": ("mistral", SMALL | {"head_dim": 24}),
    "mixtral": ("mixtral", SMALL | {"num_local_experts": 4}),
    "phi3": ("phi3", SMALL | {"num_key_value_heads": 4}),
    "phi3-grouped": ("phi3", SMALL | {"tie_word_embeddings": True}),
    "gemma2": ("gemma2", SMALL | {"head_dim": 24, "hidden_act": "gelu_pytorch_tanh"}),
    "gemma3": ("gemma3_text", SMALL | {"head_dim": 24, "num_key_value_heads": 1}),
    "gpt2": ("gpt2", {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 203, "n_positions": 40, "bos_token_id": 1,
                      "eos_token_id": 2}),
    "qwen2-moe": ("qwen2_moe", SMALL | EXPERTS | {"shared_expert_intermediate_size": 48}),
    "qwen3-next": ("qwen3_next", SMALL | EXPERTS | {"num_hidden_layers": 4, "head_dim": 32, "linear_num_value_heads": 8,
                                                    "linear_num_key_heads": 4, "linear_key_head_dim": 16,
                                                    "linear_value_head_dim": 16, "shared_expert_intermediate_size": 48}),
    "gpt-oss": ("gpt_oss", GPT_OSS),
    "gpt-oss-mxfp4": ("gpt_oss", GPT_OSS),
    "deepseek-v3": ("deepseek_v3", SMALL | {"first_k_dense_replace": 1, "n_routed_experts": 8, "moe_intermediate_size": 32,
                                            "n_shared_experts": 1, "q_lora_rank": 32, "kv_lora_rank": 32, "n_group": 2,
                                            "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 16,
                                            "topk_group": 1, "num_experts_per_tok": 2, "num_key_value_heads": 4,
                                            "rope_parameters": YARN}),
    "qwen3-moe": ("qwen3_moe", SMALL | EXPERTS | {"head_dim": 16}),
}
WITH_EXPERTS = ("mixtral", "qwen2-moe", "qwen3-moe", "qwen3-next", "gpt-oss", "gpt-oss-mxfp4", "deepseek-v3")

# what an engine does: (tp, ep)
def engines_of(name, engine):
    yield from ((1, 1), (2, 1), (4, 1))
    if (name, engine) == ("gpt-oss", "sglang"):
        return  # whose loader takes experts apart only of MXFP4 checkpoints
    if name in WITH_EXPERTS:
        yield from ((2, 2), (4, 4))


# what published configs have and today's transformers does not write; engines read it
PUBLISHED = {"qwen3-next": {"full_attention_interval": 4}, "deepseek-v3": {"moe_layer_freq": 1},
             "gpt-oss-mxfp4": {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": [
                 "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}}}


def to_mxfp4(folder, generator):
    """The experts as published checkpoints have them: [out, in] in blocks of 32 of a row, any bits."""
    import torch
    from safetensors.torch import load_file, save_file

    tensors = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            tensors[name] = tensor
            continue
        experts, columns, rows = tensor.shape
        for part, shape in ("blocks", (experts, rows, columns // 32, 16)), ("scales", (experts, rows, columns // 32)):
            tensors[f"{name}_{part}"] = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def make(name, folder):
    """Today's transformers write the folder; no element of a tensor is like its neighbour."""
    import torch
    import transformers

    model_type, sizes = MODELS[name]
    config = transformers.AutoConfig.for_model(model_type, **sizes)
    with torch.no_grad():
        model = transformers.AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
        generator = torch.Generator().manual_seed(17)
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    model.save_pretrained(folder)
    folder = pathlib.Path(folder)
    if name.endswith("mxfp4"):
        to_mxfp4(folder, generator)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | PUBLISHED.get(name, {}), indent=2) + "\n")

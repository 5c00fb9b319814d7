# SPDX-License-Identifier: Apache-2.0
"""The shrunken models that layouts are compared on: what a class does with odd sizes is kept (a vocabulary that is no multiple
of 64, fewer key-value heads than ranks, heads that are not hidden_size / num_attention_heads)."""

import json
import os
import pathlib
import subprocess
import sys

import towers

SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 203, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
         "max_position_embeddings": 128}
EXPERTS = {"num_experts": 4, "moe_intermediate_size": 32}
YARN = {"rope_type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 4096, "rope_theta": 10000}
GPT_OSS = SMALL | {"head_dim": 32, "num_local_experts": 4, "intermediate_size": 256, "hidden_size": 128,
                   "num_key_value_heads": 4}

# shares of two or four ranks that are not equal
IN_FIVE_BLOCKS = {"intermediate_size": 160}
# shares of four ranks that are whole blocks of 32
IN_BLOCKS = {"intermediate_size": 128, "moe_intermediate_size": 128, "head_dim": 32}
LATENT = {"first_k_dense_replace": 1, "n_routed_experts": 8, "moe_intermediate_size": 32, "n_shared_experts": 1,
          "q_lora_rank": 32, "kv_lora_rank": 32, "n_group": 2, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16,
          "v_head_dim": 16, "topk_group": 1, "num_experts_per_tok": 2, "num_key_value_heads": 4, "rope_parameters": YARN}

OF_GLM = {"first_k_dense_replace": 1, "n_routed_experts": 4, "moe_intermediate_size": 32, "n_shared_experts": 1, "n_group": 1,
          "topk_group": 1, "num_experts_per_tok": 2}
INDEXER = {"index_n_heads": 4, "index_head_dim": 32, "index_topk": 8}
EVERY_SECOND = {"num_hidden_layers": 5, "index_topk_freq": 2, "index_skip_topk_offset": 2}
WIDE = {"moe_intermediate_size": 256}
TIED = {"tie_word_embeddings": True}

# name: (transformers' model_type, its config's sizes)
MODELS = {
    "llama": ("llama", SMALL),
    "llama-biases": ("llama", SMALL | {"attention_bias": True, "mlp_bias": True}),
    "qwen2": ("qwen2", SMALL),
    "qwen2-own-head": ("qwen2", SMALL | TIED),
    "qwen3": ("qwen3", SMALL | {"head_dim": 16, "attention_bias": True}),
    "qwen3-tied": ("qwen3", SMALL | TIED | {"head_dim": 16}),
    "glm4": ("glm4", SMALL | {"head_dim": 16, "attention_bias": True}),
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
    "gpt-oss-in-out": ("gpt_oss", GPT_OSS),
    "gpt-oss-mxfp4": ("gpt_oss", GPT_OSS),
    "gpt-oss-mxfp4-64": ("gpt_oss", GPT_OSS | IN_FIVE_BLOCKS),
    "gpt-oss-mxfp4-128": ("gpt_oss", GPT_OSS | IN_FIVE_BLOCKS),
    "gpt-oss-mxfp4-sm90": ("gpt_oss", GPT_OSS),
    "gpt-oss-mxfp4-sm100": ("gpt_oss", GPT_OSS | IN_FIVE_BLOCKS),
    "deepseek-v3": ("deepseek_v3", SMALL | LATENT),
    "deepseek-v3-fp8": ("deepseek_v3", SMALL | LATENT | IN_BLOCKS | {"qk_nope_head_dim": 32, "qk_rope_head_dim": 32,
                                                                     "v_head_dim": 32}),
    "deepseek-v3-cast": ("deepseek_v3", SMALL | LATENT),
    "deepseek-v3-q": ("deepseek_v3", SMALL | LATENT | {"q_lora_rank": None, "n_shared_experts": 2}),
    "deepseek-v2": ("deepseek_v2", SMALL | LATENT),
    "deepseek-v3.2": ("deepseek_v32", SMALL | LATENT | INDEXER),
    "glm-5": ("glm_moe_dsa", SMALL | LATENT | INDEXER),
    "glm-5-freq": ("glm_moe_dsa", SMALL | LATENT | INDEXER | EVERY_SECOND),
    "glm4-moe": ("glm4_moe", SMALL | OF_GLM | {"head_dim": 16, "use_qk_norm": True, "attention_bias": True}),
    "glm4-moe-lite": ("glm4_moe_lite", SMALL | LATENT),
    "qwen3-moe": ("qwen3_moe", SMALL | EXPERTS | {"head_dim": 16}),
    "qwen3-moe-odd": ("qwen3_moe", SMALL | EXPERTS | {"head_dim": 16, "num_experts": 6, "attention_bias": True}),
    "qwen3-moe-tied": ("qwen3_moe", SMALL | EXPERTS | TIED | {"head_dim": 16}),
    "qwen3-moe-own-head": ("qwen3_moe", SMALL | EXPERTS | TIED | {"head_dim": 16}),
    "qwen3-moe-fp8": ("qwen3_moe", SMALL | EXPERTS | IN_BLOCKS),
    # shares of two ranks that are whole blocks of 128, what FlashInfer's kernels round up to
    "qwen3-moe-wide": ("qwen3_moe", SMALL | EXPERTS | WIDE | {"head_dim": 16}),
    "glm4-moe-wide": ("glm4_moe", SMALL | OF_GLM | WIDE | {"head_dim": 16, "use_qk_norm": True}),
    "deepseek-v3-wide": ("deepseek_v3", SMALL | LATENT | WIDE),
    "deepseek-v3-256": ("deepseek_v3", SMALL | LATENT | {"n_routed_experts": 256, "moe_intermediate_size": 16}),
    "qwen3-moe-fp8-128": ("qwen3_moe", SMALL | EXPERTS | WIDE | {"hidden_size": 128, "head_dim": 128}),
} | towers.towers(SMALL, LATENT)
# what published checkpoints have in 32 bits, and one that was cast as a whole has not
IN_32_BITS = ("e_score_correction_bias",)
# what published configs have and today's transformers does not write; engines read it
DEEPSEEK = {"moe_layer_freq": 1, "topk_method": "noaux_tc", "scoring_func": "sigmoid"}
KIMI = {"architectures": ["KimiK25ForConditionalGeneration"],
        "text_config": DEEPSEEK | {"architectures": ["DeepseekV3ForCausalLM"]},
        "vision_config": {"vt_hidden_size": 32, "vt_num_attention_heads": 4, "vt_num_hidden_layers": 1,
                          "vt_intermediate_size": 48, "mm_hidden_size": 32, "text_hidden_size": 64,
                          "init_pos_emb_height": 4, "init_pos_emb_width": 4}}
FP8 = {"quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [32, 32]}}
FP8_128 = FP8["quantization_config"] | {"weight_block_size": [128, 128]}
NOT_GATES = {"modules_to_not_convert": ["lm_head", "model.layers.0.mlp.gate", "model.layers.1.mlp.gate"]}
PIXTRAL = {"vision_config": {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}}
MXFP4 = {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": [
                 "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}}
PUBLISHED = {"qwen3-next": {"full_attention_interval": 4}, "deepseek-v3": DEEPSEEK, "deepseek-v3-q": DEEPSEEK,
             "deepseek-v3-cast": DEEPSEEK | {"weft_router_bias_cast": True},
             "deepseek-v3-fp8": DEEPSEEK | FP8, "kimi-k2.5": KIMI,
             "qwen3-moe-fp8": {"quantization_config": FP8["quantization_config"] | NOT_GATES},
             "qwen2-vl": {"vision_config": {"in_chans": 3}}, "mistral3": PIXTRAL, "llava-pixtral": PIXTRAL,
             "deepseek-v2": DEEPSEEK | {"topk_method": "group_limited_greedy", "scoring_func": "softmax"},
             **dict.fromkeys(("deepseek-v3.2", "glm-5", "glm-5-freq"), DEEPSEEK | {"layer_types": None}),
             "deepseek-v3-wide": DEEPSEEK, "deepseek-v3-256": DEEPSEEK,
             "qwen3-moe-fp8-128": {"quantization_config": FP8_128 | NOT_GATES},
             **dict.fromkeys([name for name in MODELS if name.startswith("gpt-oss")], {"swiglu_limit": 7.0}),
             **dict.fromkeys([name for name in MODELS if "mxfp4" in name], {"swiglu_limit": 7.0} | MXFP4)}


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


def to_fp8(folder, generator, block=32):
    """The linears of the layers as published checkpoints have them: any bits (but no NaN), and a scale for each block."""
    import torch
    from safetensors.torch import load_file, save_file

    tensors = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        if tensor.dim() < 2 or ".layers." not in name or name.endswith("mlp.gate.weight"):
            tensors[name] = tensor
            continue
        rows, columns = tensor.shape
        tensors[name] = torch.randint(0, 127, (rows, columns), dtype=torch.uint8,
                                      generator=generator).view(torch.float8_e4m3fn)
        tensors[name + "_scale_inv"] = torch.rand(-(-rows // block), -(-columns // block), generator=generator)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def add_head(folder, generator):
    """An lm_head that is not the embedding, beside a config that ties them."""
    import torch
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = torch.randn(tensors["model.embed_tokens.weight"].shape, generator=generator).to(torch.bfloat16)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def to_kimi_vl(folder, generator):
    """The text model under `language_model.`, beside a tower."""
    import torch
    from safetensors.torch import load_file, save_file

    tensors = {"language_model." + name: tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    for name, shape in towers.kimi_vl_tower(SMALL["hidden_size"]).items():
        tensors[name] = torch.randn(shape, generator=generator).to(torch.bfloat16)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    path = folder / "config.json"
    path.write_text(json.dumps(towers.KIMI_VL | {"text_config": json.loads(path.read_text()) | DEEPSEEK}, indent=2) + "\n")


def rename(folder, names):
    from safetensors.torch import load_file, save_file

    tensors = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        for old, new in names:
            name = new + name.removeprefix(old) if name.startswith(old) else name
        tensors[name] = tensor
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def make(name, folder):
    """Today's transformers write the folder; no element of a tensor is like its neighbour."""
    import torch
    import transformers

    model_type, sizes = MODELS[name]
    config = transformers.AutoConfig.for_model(model_type, **sizes)
    with torch.no_grad():
        auto = transformers.AutoModelForImageTextToText if "text_config" in sizes else transformers.AutoModelForCausalLM
        model = auto.from_config(config).to(torch.bfloat16)
        generator = torch.Generator().manual_seed(17)
        for name_of, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if name_of.endswith(IN_32_BITS) and not name.endswith("-cast"):
                tensor.data = tensor.data.float()
            tensor.copy_(torch.randn(tensor.shape, generator=generator))
    model.save_pretrained(folder)
    folder = pathlib.Path(folder)
    if "mxfp4" in name:
        to_mxfp4(folder, generator)
    if "fp8" in name:
        to_fp8(folder, generator, 128 if name.endswith("-128") else 32)
    if name.endswith("own-head"):
        add_head(folder, generator)
    if name == "kimi-vl":
        to_kimi_vl(folder, generator)
    if name in towers.RENAMED:
        rename(folder, towers.RENAMED[name])
    path = folder / "config.json"
    config = json.loads(path.read_text())
    for key, value in PUBLISHED.get(name, {}).items():
        config[key] = config[key] | value if isinstance(config.get(key), dict) else value
        if value is None:  # which published ones have not
            del config[key]
    path.write_text(json.dumps(config, indent=2) + "\n")


def make_all(folder, names):
    """Each in a folder of its name, by a process of its own: engines put classes of theirs in the place of transformers'."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    subprocess.run([sys.executable, __file__, folder, *names], check=True, env=environment)


if __name__ == "__main__":
    import loaders

    loaders.import_torchvision()
    for one in sys.argv[2:]:
        make(one, pathlib.Path(sys.argv[1]) / one)

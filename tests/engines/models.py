# SPDX-License-Identifier: Apache-2.0
"""The shrunken models that layouts are compared on: what a class does with odd sizes is kept (a vocabulary that is no multiple
of 64, fewer key-value heads than ranks, heads that are not hidden_size / num_attention_heads)."""

SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 203, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
         "max_position_embeddings": 128}
EXPERTS = {"num_experts": 4, "moe_intermediate_size": 32}

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
    "qwen3-moe": ("qwen3_moe", SMALL | EXPERTS | {"head_dim": 16}),
}
WITH_EXPERTS = ("mixtral", "qwen2-moe", "qwen3-moe")

# what an engine does: (tp, ep)
def engines_of(name):
    yield from ((1, 1), (2, 1), (4, 1))
    if name in WITH_EXPERTS:
        yield from ((2, 2), (4, 4))


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

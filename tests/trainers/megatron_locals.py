#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What each rank of a Megatron-Core trainer has in memory, by Megatron's own account: its GPTModel is built on the
processor, and says itself which part of which tensor of the whole model each of its parameters is (sharded_state_dict,
from which it writes checkpoints that another layout reads).

    megatron_locals.py CASES OUT    CASES: JSON, a list of {world, spec, config, vocab}: the keys of --train,
                                    config.json, the vocabulary with what is added to it; OUT: a folder, which gets
                                    {case}.{rank}, a pickle

Run with the python of build/torch. A rank's pickle is (parameters, pieces): {name: shape}, and of each part of a
parameter (name, key of the whole model's tensor, its shape, where the part begins, shape of the part, flat places in
the parameter). Experts are by their number in the whole model, and of a gated feed-forward there are two parts,
weight_w and weight_v.

Of a world of one it is the order of the fused rows: where Megatron's attention finds queries, keys and values of each
head, and that weight_w is the gate.

Without a GPU and TransformerEngine: the "local" specification, what goes to a GPU stays here, nobody asks for
grouped_gemm. What goes into a latent is TransformerEngine's linear, since the other one is cut where that one is not.
"""
import array
import logging
import sys

import torch
from torch.nn import functional

import forked

torch.cuda.current_device = lambda: torch.device("cpu")
torch.Tensor.cuda = lambda tensor: tensor
logging.disable(logging.WARNING)

from megatron.core import parallel_state  # noqa: E402
from megatron.core.dist_checkpointing.mapping import ShardedTensor, apply_factories  # noqa: E402
from megatron.core.models.gpt import GPTModel  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec  # noqa: E402
from megatron.core.transformer import MLATransformerConfig, TransformerConfig, multi_latent_attention  # noqa: E402
from megatron.core.transformer.dot_product_attention import DotProductAttention  # noqa: E402
from megatron.core.transformer.moe import experts  # noqa: E402

experts.gg.assert_grouped_gemm_is_available = lambda: None
APART = {"non_homogeneous_layers": True, "singleton_local_shards": True}  # a key a layer, an expert, a half


class Duplicated(torch.nn.Module):
    """For TransformerEngine's linear, of which Megatron says how it is to be parallel."""

    def __init__(self, columns, rows, *, parallel_mode, **_):
        super().__init__()
        assert parallel_mode == "duplicated"
        self.weight = torch.nn.Parameter(torch.empty(rows, columns, dtype=torch.float64))


class Attention(DotProductAttention):
    """It has no weights, and in the local specification does not know that values may be of another size."""

    def __init__(self, *arguments, k_channels=None, v_channels=None, **named):
        super().__init__(*arguments, **named)


multi_latent_attention.TELinear = Duplicated


def number(spec, key, default=1):
    return int(spec.get(key, default))


def pipeline(spec):
    """As the options of Megatron-LM say it."""
    pp, vpp = number(spec, "pp"), number(spec, "vpp")
    options = {"pipeline_model_parallel_size": pp, "pipeline_dtype": torch.float64,
               "virtual_pipeline_model_parallel_size": vpp if vpp > 1 else None,
               "num_layers_in_first_pipeline_stage": number(spec, "first", 0) or None,
               "num_layers_in_last_pipeline_stage": number(spec, "last", 0) or None,
               "account_for_embedding_in_pipeline_split": bool(number(spec, "account_embedding", 0)),
               "account_for_loss_in_pipeline_split": bool(number(spec, "account_loss", 0))}
    if "layers" in spec:
        stages = "|".join("t" * int(layers) for layers in spec["layers"].split("/"))
        options["pipeline_model_parallel_layout"] = f"E{stages}L"
    return options


def mixture(config):
    """Experts, where there are some."""
    count = config.get("num_experts") or config.get("n_routed_experts")
    if not count:
        return {}
    dense, layers = config.get("first_k_dense_replace", 0), config["num_hidden_layers"]
    biased = bool(dense) and config.get("topk_method") != "greedy"
    shared = config.get("n_shared_experts", 0) * config["moe_intermediate_size"]
    return {"num_moe_experts": count, "moe_ffn_hidden_size": config["moe_intermediate_size"],
            "moe_shared_expert_intermediate_size": shared or None,
            "moe_layer_freq": [0] * dense + [1] * (layers - dense), "moe_router_enable_expert_bias": biased,
            "moe_router_score_function": "sigmoid" if biased else "softmax"}


def latent(config):
    if "kv_lora_rank" not in config:
        return {}
    return {"q_lora_rank": config["q_lora_rank"], "kv_lora_rank": config["kv_lora_rank"],
            "qk_head_dim": config["qk_nope_head_dim"], "qk_pos_emb_head_dim": config["qk_rope_head_dim"],
            "v_head_dim": config["v_head_dim"], "rope_type": "rope"}


def of_megatron(spec, config):
    name = config["architectures"][0]
    heads, legacy = config["num_attention_heads"], spec.get("grouped") == "legacy"
    return (MLATransformerConfig if latent(config) else TransformerConfig)(
        num_layers=config["num_hidden_layers"], hidden_size=config["hidden_size"], num_attention_heads=heads,
        num_query_groups=config.get("num_key_value_heads", heads),
        kv_channels=config.get("head_dim", config["hidden_size"] // heads),
        ffn_hidden_size=config.get("intermediate_size", config["hidden_size"]),
        normalization="RMSNorm", gated_linear_unit=True,
        activation_func=functional.silu, add_bias_linear=False, bias_activation_fusion=False,
        add_qkv_bias=name.startswith("Qwen2") or config.get("attention_bias", False),
        qk_layernorm=name.startswith("Qwen3") or config.get("use_qk_norm", bool(latent(config))),
        params_dtype=torch.float64,
        tensor_model_parallel_size=number(spec, "tp"),  # and not cp: it cuts no weights, and this attention has none
        expert_model_parallel_size=number(spec, "ep"),
        expert_tensor_parallel_size=number(spec, "etp", number(spec, "tp")),
        moe_grouped_gemm=legacy, moe_use_legacy_grouped_gemm=legacy,
        use_cpu_initialization=True, perform_initialization=False,
        **pipeline(spec), **mixture(config), **latent(config))


def layers_of(options, stage):
    block = get_gpt_decoder_block_spec(options, use_transformer_engine=False, normalization="RMSNorm", **stage)
    for layer in block.layer_specs if options.multi_latent_attention else []:
        linears = layer.submodules.self_attention.submodules
        linears.linear_q_down_proj = linears.linear_kv_down_proj = Duplicated
        linears.core_attention = Attention
    return block


def chunks(case):
    """The rank's models: one, or with virtual stages several."""
    spec, config, vpp = case["spec"], case["config"], number(case["spec"], "vpp")
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=number(spec, "tp"), pipeline_model_parallel_size=number(spec, "pp"),
        virtual_pipeline_model_parallel_size=vpp if vpp > 1 else None, context_parallel_size=number(spec, "cp"),
        expert_model_parallel_size=number(spec, "ep"),
        expert_tensor_parallel_size=number(spec, "etp", number(spec, "tp")),
        order=spec.get("order", "tp-cp-ep-dp-pp"), create_gloo_process_groups=False)
    for chunk in range(vpp):
        stage = {"vp_stage": chunk if vpp > 1 else None}
        options = of_megatron(spec, config)
        yield GPTModel(options, layers_of(options, stage), vocab_size=case["vocab"], max_sequence_length=64,
                       position_embedding_type="rope",
                       share_embeddings_and_output_weights=config.get("tie_word_embeddings", False),
                       pre_process=parallel_state.is_pipeline_first_stage(ignore_virtual=False, **stage),
                       post_process=parallel_state.is_pipeline_last_stage(ignore_virtual=False, **stage), **stage)


def sharded(tree):
    if isinstance(tree, ShardedTensor):
        yield tree
    elif isinstance(tree, (dict, list, tuple)):
        for part in tree.values() if isinstance(tree, dict) else tree:
            yield from sharded(part)


def pieces(module, prefix=""):
    state = module.sharded_state_dict(prefix=prefix, metadata=APART)
    apply_factories(state)
    return list(sharded(state))


def whole_numbers(tensor):
    return array.array("q", [int(value) for value in tensor.flatten().tolist()])


def number_elements(held):
    """Each element is its own number, counted through all of them: {name: the first}. So what Megatron copies is known
    too."""
    first, bases = 0, {}
    for name, tensor in held.items():
        bases[name] = first
        tensor.data.copy_(torch.arange(first, first + tensor.numel()).reshape(tensor.shape))
        first += tensor.numel()
    assert first < 1 << 24, "a float32 counts no further"
    return bases


def locals_of(case):
    shapes, parts = {}, []
    for chunk, model in enumerate(chunks(case)):
        prefix = f"chunk{chunk}." if number(case["spec"], "vpp") > 1 else ""
        held = dict(model.named_parameters())
        held.update((name, buffer) for name, buffer in model.named_buffers() if name.endswith("expert_bias"))
        bases = number_elements(held)
        shapes.update({prefix + name: list(tensor.shape) for name, tensor in held.items()})
        for part in pieces(model):
            at = whole_numbers(part.data)
            name = max((name for name in bases if bases[name] <= at[0]), key=bases.get)
            parts.append((prefix + name, part.key, list(part.global_shape), list(part.global_offset),
                          list(part.local_shape), array.array("q", [value - bases[name] for value in at])))
    return shapes, parts


# ---- the order of fused rows ----

def heads_of(attention, hidden):
    """{q, k, v, and their biases: flat places in linear_qkv, head by head, row by row}, as the module finds them when
    it computes: the inputs are the unit vectors, the weights are their own places."""
    attention.q_layernorm = attention.k_layernorm = None
    linear, found = attention.linear_qkv, {}
    inputs = torch.eye(hidden, dtype=torch.float64).reshape(hidden, 1, hidden)
    if linear.bias is not None:
        linear.bias.zero_()
    number_elements({"weight": linear.weight})
    for name, value in zip("qkv", attention.get_query_key_value_tensors(inputs)):
        found[name] = whole_numbers(value.squeeze(1).permute(1, 2, 0))
    if linear.bias is not None:
        linear.weight.zero_()
        number_elements({"bias": linear.bias})
        for name, value in zip("qkv", attention.get_query_key_value_tensors(inputs)):
            found[name + "_bias"] = whole_numbers(value[0, 0])
    return found


def assert_w_is_the_gate(model, hidden):
    """Of the last layer's feed-forward, or of its first expert's."""
    torch.manual_seed(1)
    layers = model.decoder.layers
    mlp, key = layers[-1].mlp, f"decoder.layers.{len(layers) - 1}.mlp."
    if hasattr(mlp, "experts"):
        mlp, key = mlp.experts.local_experts[0], key + "experts.experts.0."
    for parameter in mlp.parameters():
        parameter.normal_()
    parts = {part.key: part.data for part in pieces(model)}
    inputs = torch.randn(3, 1, hidden, dtype=torch.float64)
    gate, up = (inputs @ parts[f"{key}linear_fc1.weight_{half}"].T for half in "wv")
    assert torch.allclose(mlp(inputs)[0], (functional.silu(gate) * up) @ parts[key + "linear_fc2.weight"].T)


@torch.no_grad()
def order_of(case):
    model, = chunks(case)
    assert_w_is_the_gate(model, case["config"]["hidden_size"])
    if latent(case["config"]):
        return {}
    return heads_of(model.decoder.layers[0].self_attention, case["config"]["hidden_size"])


if __name__ == "__main__":
    forked.each_rank(lambda case: order_of(case) if case["world"] == 1 else locals_of(case), *sys.argv[1:])

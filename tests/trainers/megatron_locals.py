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

Of a world of one it is the order of the fused rows: where Megatron's attention finds queries, keys, values and gates of
each head, and that weight_w is the gate.

Without a GPU and TransformerEngine: the "local" specification, what goes to a GPU stays here, nobody asks for
grouped_gemm or linear attention's kernels. What goes into a latent is TransformerEngine's linear, since the other one is cut where that one is not.
"""
import array
import copy
import logging
import sys

import torch
from torch.nn import functional

import forked

torch.cuda.current_device = lambda: torch.device("cpu")
torch.Tensor.cuda = lambda tensor: tensor
if __name__ == "__main__":  # not for the process that only imports it: all its other tests would be silent too
    logging.disable(logging.WARNING)

from megatron.core import parallel_state  # noqa: E402
from megatron.core.dist_checkpointing.mapping import ShardedTensor, apply_factories  # noqa: E402
from megatron.core.models.gpt import GPTModel  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import (get_gpt_decoder_block_spec,  # noqa: E402
                                                      get_gpt_decoder_layer_specs, get_gpt_mtp_block_spec)
from megatron.core.ssm import gated_delta_net  # noqa: E402
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear  # noqa: E402
from megatron.core.transformer import MLATransformerConfig, TransformerConfig, multi_latent_attention  # noqa: E402
from megatron.core.transformer.dot_product_attention import DotProductAttention  # noqa: E402
from megatron.core.transformer.moe import experts  # noqa: E402
from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout  # noqa: E402
from megatron.core.transformer.spec_utils import ModuleSpec  # noqa: E402
from megatron.core.transformer.torch_norm import WrappedTorchNorm  # noqa: E402
from megatron.core.transformer.transformer_layer import get_transformer_layer_offset  # noqa: E402

experts.gg.assert_grouped_gemm_is_available = lambda: None
gated_delta_net.HAVE_FLA = True
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


def chunks_of(spec):
    if "layout" not in spec:
        return number(spec, "vpp")
    return PipelineParallelLayerLayout.get_num_stages_from_str(spec["layout"]) // number(spec, "pp")


def mtp_layers(spec):
    return number(spec, "mtp", 0) or spec.get("layout", "").count("m")


def pipeline(spec):
    """As the options of Megatron-LM say it."""
    pp, vpp = number(spec, "pp"), chunks_of(spec)
    options = {"pipeline_model_parallel_size": pp, "pipeline_dtype": torch.float64,
               "virtual_pipeline_model_parallel_size": vpp if vpp > 1 else None,
               "num_layers_in_first_pipeline_stage": number(spec, "first", 0) or None,
               "num_layers_in_last_pipeline_stage": number(spec, "last", 0) or None,
               "account_for_embedding_in_pipeline_split": bool(number(spec, "account_embedding", 0)),
               "account_for_loss_in_pipeline_split": bool(number(spec, "account_loss", 0))}
    if "layers" in spec:
        stages = "|".join("t" * int(layers) for layers in spec["layers"].split("/"))
        options["pipeline_model_parallel_layout"] = f"E{stages}{'m' * mtp_layers(spec)}L"
    if "layout" in spec:
        options["pipeline_model_parallel_layout"] = spec["layout"]
    return options


def mixture(config):
    """Experts, where there are some."""
    count = config.get("num_experts") or config.get("n_routed_experts") or config.get("num_local_experts")
    if not count:
        return {}
    dense, layers = config.get("first_k_dense_replace", 0), config["num_hidden_layers"]
    biased = bool(dense) and config.get("topk_method") != "greedy"
    size = config.get("moe_intermediate_size", config.get("intermediate_size"))
    shared = config.get("shared_expert_intermediate_size", config.get("n_shared_experts", 0) * size)
    return {"num_moe_experts": count, "moe_ffn_hidden_size": size,
            "moe_shared_expert_intermediate_size": shared or None,
            "moe_shared_expert_gate": "shared_expert_intermediate_size" in config,
            "moe_layer_freq": [0] * dense + [1] * (layers - dense), "moe_router_enable_expert_bias": biased,
            "moe_router_score_function": "sigmoid" if biased else "softmax"}


def latent(config):
    if "kv_lora_rank" not in config:
        return {}
    return {"q_lora_rank": config["q_lora_rank"], "kv_lora_rank": config["kv_lora_rank"],
            "qk_head_dim": config["qk_nope_head_dim"], "qk_pos_emb_head_dim": config["qk_rope_head_dim"],
            "v_head_dim": config["v_head_dim"], "rope_type": "rope"}


def linear(config):
    """Linear attention in most layers, gates in the others."""
    if "linear_num_key_heads" not in config:
        return {}
    return {"experimental_attention_variant": "gated_delta_net", "attention_output_gate": True,
            "linear_attention_freq": config["full_attention_interval"],
            **{key: config[key] for key in ("linear_conv_kernel_dim", "linear_key_head_dim", "linear_value_head_dim",
                                            "linear_num_key_heads", "linear_num_value_heads")}}


def of_gpt2(config):
    """By the names that others have."""
    if "n_layer" not in config:
        return config
    return {**config, "num_hidden_layers": config["n_layer"], "num_attention_heads": config["n_head"],
            "hidden_size": config["n_embd"], "intermediate_size": 4 * config["n_embd"], "tie_word_embeddings": True}


def of_megatron(spec, config):
    name = config["architectures"][0]
    heads, legacy = config["num_attention_heads"], spec.get("grouped") == "legacy"
    plain, sinks = name.startswith("GPT2"), name.startswith("GptOss")
    return (MLATransformerConfig if latent(config) else TransformerConfig)(
        num_layers=config["num_hidden_layers"], hidden_size=config["hidden_size"], num_attention_heads=heads,
        num_query_groups=config.get("num_key_value_heads", heads),
        kv_channels=config.get("head_dim", config["hidden_size"] // heads),
        ffn_hidden_size=config.get("intermediate_size", config["hidden_size"]),
        normalization="LayerNorm" if plain else "RMSNorm", gated_linear_unit=not plain,
        activation_func=functional.gelu if plain else functional.silu, add_bias_linear=plain or sinks,
        bias_activation_fusion=False, softmax_type="learnable" if sinks else "vanilla",
        mtp_num_layers=mtp_layers(spec) or None,
        add_qkv_bias=name.startswith("Qwen2") or config.get("attention_bias", False),
        qk_layernorm=name.startswith("Qwen3") or config.get("use_qk_norm", bool(latent(config))),
        params_dtype=torch.float64,
        tensor_model_parallel_size=number(spec, "tp"),  # and not cp: it cuts no weights, and this attention has none
        expert_model_parallel_size=number(spec, "ep"),
        expert_tensor_parallel_size=number(spec, "etp", number(spec, "tp")),
        moe_grouped_gemm=legacy, moe_use_legacy_grouped_gemm=legacy,
        use_cpu_initialization=True, perform_initialization=False,
        **pipeline(spec), **mixture(config), **latent(config), **linear(config))


DELTA_NET = ModuleSpec(module=gated_delta_net.GatedDeltaNet,
                       submodules=gated_delta_net.GatedDeltaNetSubmodules(
                           in_proj=ColumnParallelLinear, out_norm=WrappedTorchNorm, out_proj=RowParallelLinear))


def adapted(layer, options):
    """A layer of the "local" specification, where that lacks something: a latent, linear attention."""
    layer = copy.deepcopy(layer)
    if options.multi_latent_attention:
        linears = layer.submodules.self_attention.submodules
        linears.linear_q_down_proj = linears.linear_kv_down_proj = Duplicated
        linears.core_attention = Attention
    return layer


def with_linear(layer):
    layer = copy.deepcopy(layer)
    layer.submodules.self_attention = DELTA_NET
    layer.submodules.sharded_state_dict_keys_map = {"input_layernorm.": "self_attention.in_proj.layer_norm_",
                                                    "pre_mlp_layernorm.": "mlp.linear_fc1.layer_norm_"}
    return layer


def layers_of(options, stage):
    block = get_gpt_decoder_block_spec(options, use_transformer_engine=False, normalization=options.normalization,
                                       **stage)
    block.layer_specs = [adapted(layer, options) for layer in block.layer_specs]
    if options.experimental_attention_variant:
        first = get_transformer_layer_offset(options, **stage)
        block.layer_specs = [layer if (first + number + 1) % options.linear_attention_freq == 0 else with_linear(layer)
                             for number, layer in enumerate(block.layer_specs)]
    return block


def mtp_of(options, stage):
    """A layer as the decoder's last."""
    if not options.mtp_num_layers:
        return None
    layers = get_gpt_decoder_layer_specs(options, use_transformer_engine=False, normalization=options.normalization)
    return get_gpt_mtp_block_spec(options, adapted(layers[-1], options), use_transformer_engine=False, **stage)


def chunks(case):
    """The rank's models: one, or with virtual stages several."""
    spec, config, vpp = case["spec"], of_gpt2(case["config"]), chunks_of(case["spec"])
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=number(spec, "tp"), pipeline_model_parallel_size=number(spec, "pp"),
        virtual_pipeline_model_parallel_size=vpp if vpp > 1 else None, context_parallel_size=number(spec, "cp"),
        expert_model_parallel_size=number(spec, "ep"),
        expert_tensor_parallel_size=number(spec, "etp", number(spec, "tp")),
        order=spec.get("order", "tp-cp-ep-dp-pp"), create_gloo_process_groups=False)
    for chunk in range(vpp):
        stage = {"vp_stage": chunk if vpp > 1 else None}
        options = of_megatron(spec, config)
        yield GPTModel(options, layers_of(options, stage), vocab_size=case["vocab"],
                       max_sequence_length=config.get("n_positions", 64), mtp_block_spec=mtp_of(options, stage),
                       position_embedding_type="learned_absolute" if "n_positions" in config else "rope",
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
        prefix = f"chunk{chunk}." if chunks_of(case["spec"]) > 1 else ""
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
    """{q, k, v, gate, and their biases: flat places in linear_qkv, head by head, row by row}, as the module finds them
    when it computes: the inputs are the unit vectors, the weights are their own places."""
    attention.q_layernorm = attention.k_layernorm = None
    gated = attention.config.attention_output_gate
    kinds = ["q", "k", "v", *(["gate"] if gated else [])]
    linear, found = attention.linear_qkv, {}
    inputs = torch.eye(hidden, dtype=torch.float64).reshape(hidden, 1, hidden)
    if linear.bias is not None:
        linear.bias.zero_()
    number_elements({"weight": linear.weight})
    for name, value in zip(kinds, attention.get_query_key_value_tensors(inputs, output_gate=gated)):
        value = value.reshape(hidden, 1, -1, attention.hidden_size_per_attention_head)
        found[name] = whole_numbers(value.squeeze(1).permute(1, 2, 0))
    if linear.bias is not None:
        linear.weight.zero_()
        number_elements({"bias": linear.bias})
        for name, value in zip(kinds, attention.get_query_key_value_tensors(inputs)):
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
    config = of_gpt2(case["config"])
    if not model.config.add_bias_linear:
        assert_w_is_the_gate(model, config["hidden_size"])
    if latent(config):
        return {}
    return heads_of(model.decoder.layers[-1].self_attention, config["hidden_size"])


if __name__ == "__main__":
    forked.each_rank(lambda case: order_of(case) if case["world"] == 1 else locals_of(case), *sys.argv[1:])

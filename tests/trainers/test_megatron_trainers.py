# SPDX-License-Identifier: Apache-2.0
"""Megatron's trainers: the real GPTModel, on each rank of a job that is none (megatron_locals.py). It says itself which
part of which tensor of the whole model a parameter is, and its attention and feed-forward show the order of fused rows
by computing. From that and HuggingFace's names follows what each element is, and it is the element that Weft says.

Weft has the names of the TransformerEngine specification, and this is the other one. Norms that one keeps in the linear
behind them are modules of their own here, but Megatron's checkpoints call them as there: but for the one before
experts, which is a module there too (pre_mlp_layernorm of gpt_layer_specs). Experts are a list of modules here, and
parameters with numbers there.
"""
import functools
import json
import re

import numpy
import pytest

import held
import job as jobs

CASES = [
    # model, what is other in its config, --train
    ("qwen2", {}, "world=2,tp=2"),
    ("qwen2", {}, "world=4,tp=4,vocab_pad=8"),  # more ranks than groups of heads
    ("qwen2", {"num_hidden_layers": 3}, "world=4,tp=2,pp=2,layers=1/2,vocab_pad=8"),  # tied, in two stages
    ("qwen3", {}, "world=2,tp=2,vocab_pad=1"),
    ("qwen3", {"num_hidden_layers": 4}, "world=4,tp=2,pp=2,vpp=2"),
    ("llama", {"num_hidden_layers": 3}, "world=8,tp=2,cp=2,pp=2,first=1,last=2"),
    ("llama", {"num_hidden_layers": 6}, "world=3,pp=3,layers=1/2/3"),
    ("llama", {"num_hidden_layers": 6}, "world=2,pp=2,vpp=2,account_embedding=1,account_loss=1"),
    ("qwen3-moe", {}, "world=4,tp=2,ep=2,etp=1"),
    ("qwen3-moe", {}, "world=4,tp=2,ep=2,etp=2"),
    ("qwen3-moe", {}, "world=8,tp=2,pp=2,ep=2,etp=2"),
    ("qwen3-moe", {}, "world=8,tp=4,ep=2,etp=2"),
    ("qwen3-moe", {}, "world=8,tp=2,pp=2,ep=2,etp=1,order=tp-cp-ep-pp-dp"),
    ("qwen3-moe", {}, "world=4,tp=2,ep=2,etp=2,grouped=legacy"),
    ("glm4-moe", {"num_hidden_layers": 3, "num_nextn_predict_layers": 0}, "world=6,tp=2,pp=3,ep=2,etp=1"),
    ("glm4-moe-lite", {"num_nextn_predict_layers": 0}, "world=4,tp=2,ep=2,etp=1"),  # latent attention
    ("deepseek-v2", {}, "world=4,tp=2,pp=2,ep=2,etp=1"),
]
# of the whole model, as Megatron's checkpoint calls it: HuggingFace's name
OUTER = {"embedding.word_embeddings.weight": "model.embed_tokens.weight", "output_layer.weight": "lm_head.weight",
         "decoder.final_layernorm.weight": "model.norm.weight"}
LAYER = {"self_attention.linear_qkv.layer_norm_weight": "input_layernorm.weight",
         "input_layernorm.weight": "input_layernorm.weight",
         "mlp.linear_fc1.layer_norm_weight": "post_attention_layernorm.weight",
         "pre_mlp_layernorm.weight": "post_attention_layernorm.weight",
         "self_attention.linear_proj.weight": "self_attn.o_proj.weight",
         "self_attention.q_layernorm.weight": "self_attn.q_norm.weight",
         "self_attention.k_layernorm.weight": "self_attn.k_norm.weight", "mlp.router.weight": "mlp.gate.weight",
         "mlp.router.expert_bias": "mlp.gate.e_score_correction_bias"}
LATENT = {"self_attention.q_layernorm.weight": "self_attn.q_a_layernorm.weight",
          "self_attention.kv_layernorm.weight": "self_attn.kv_a_layernorm.weight",
          "self_attention.linear_q_proj.weight": "self_attn.q_proj.weight",
          "self_attention.linear_q_down_proj.weight": "self_attn.q_a_proj.weight",
          "self_attention.linear_q_up_proj.weight": "self_attn.q_b_proj.weight",
          "self_attention.linear_kv_down_proj.weight": "self_attn.kv_a_proj_with_mqa.weight",
          "self_attention.linear_kv_up_proj.weight": "self_attn.kv_b_proj.weight"}
# with latent attention Megatron's checkpoints do not call them so; where the linear behind the norm has it
LATENT_NORMS = {"self_attention.q_layernorm.weight": "self_attention.linear_q_up_proj.layer_norm_weight",
                "self_attention.kv_layernorm.weight": "self_attention.linear_kv_up_proj.layer_norm_weight",
                "pre_mlp_layernorm.weight": "mlp.linear_fc1.layer_norm_weight"}
FEED_FORWARD = {"linear_fc1.weight_w": "gate_proj.weight", "linear_fc1.weight_v": "up_proj.weight",
                "linear_fc2.weight": "down_proj.weight"}


def config_of(kind, changes):
    return {**jobs.CONFIGS[kind], "num_hidden_layers": 2, **changes}


def as_megatron(case):
    kind, changes, text = case
    spec, config = jobs.spec(text), config_of(kind, changes)
    grain = int(spec.get("vocab_pad", 128)) * int(spec.get("tp", 1))
    return {"world": int(spec["world"]), "spec": spec, "config": config,
            "vocab": -(-config["vocab_size"] // grain) * grain}


@pytest.fixture(scope="module")
def megatron(tmp_path_factory):
    """The ranks of each case, and the order of fused rows in its model on one rank."""
    kinds = sorted({case[0] for case in CASES})
    alone = [(kind, {"num_hidden_layers": 2, "num_nextn_predict_layers": 0}, "world=1,vocab_pad=1") for kind in kinds]
    cases = [as_megatron(case) for case in [*CASES, *alone]]
    found = held.real("megatron_locals.py", cases, tmp_path_factory.mktemp("megatron"))
    return found, {kind: found(len(CASES) + number, 0) for number, kind in enumerate(kinds)}


class Checkpoint:
    """The elements of HuggingFace's tensors, as tensors of Megatron's whole model."""

    def __init__(self, tensors, order):
        self.tensors, self.order = tensors, order
        self.whole = functools.lru_cache(None)(self.whole)

    def numbers(self, name):
        shape, base = self.tensors[name]
        return numpy.arange(base, base + int(numpy.prod(shape))).reshape(shape)

    def fused(self, layer, kind):
        """Queries, keys and values, each where Megatron's attention found it; their rows are head by head in both."""
        parts = {part: self.numbers(f"model.layers.{layer}.self_attn.{part}_proj.{kind}") for part in "qkv"}
        whole = numpy.full(sum(numbers.size for numbers in parts.values()), held.NOBODY)
        for part, numbers in parts.items():
            whole[numpy.array(self.order[part + ("_bias" if kind == "bias" else "")])] = numbers.ravel()
        return whole.reshape(-1, *parts["q"].shape[1:])

    def whole(self, key):
        layer = re.fullmatch(r"decoder\.layers\.(\d+)\.(.*)", key)
        if not layer:
            return self.numbers(OUTER[key] if OUTER[key] in self.tensors else OUTER["embedding.word_embeddings.weight"])
        prefix, suffix = f"model.layers.{layer[1]}.", layer[2]
        known = {**LAYER, **LATENT} if prefix + "self_attn.kv_b_proj.weight" in self.tensors else LAYER
        if suffix in known:
            return self.numbers(prefix + known[suffix])
        if suffix.startswith("self_attention.linear_qkv."):
            return self.fused(layer[1], suffix.split(".")[-1])
        parts = re.fullmatch(r"mlp\.(experts\.experts\.\d+\.|shared_experts\.|)(linear_\w+\.\w+)", suffix)
        place, linear = parts.groups()
        return self.numbers(f"{prefix}mlp.{place.replace('experts.experts.', 'experts.')}{FEED_FORWARD[linear]}")

    def part(self, key, shape, begin, size):
        whole = self.whole(key)
        assert list(whole.shape[1:]) == shape[1:]
        if key in ("embedding.word_embeddings.weight", "output_layer.weight"):  # the vocabulary is padded
            whole = numpy.pad(whole, [(0, shape[0] - len(whole)), (0, 0)], constant_values=held.NOBODY)
        assert list(whole.shape) == shape
        return whole[tuple(slice(first, first + count) for first, count in zip(begin, size))]


def of_transformer_engine(name, key, names):
    """What TransformerEngine's specification calls the parameter."""
    layer, suffix = re.fullmatch(r"(.*layers\.\d+\.|)(.*)", name).groups()
    if suffix == "pre_mlp_layernorm.weight" and layer + "mlp.router.weight" in names:
        return name
    if key.endswith("layer_norm_weight"):
        return layer + re.fullmatch(r"decoder\.layers\.\d+\.(.*)", key)[1]
    if suffix in LATENT_NORMS and layer + "self_attention.linear_kv_up_proj.weight" in names:
        return layer + LATENT_NORMS[suffix]
    return re.sub(r"local_experts\.(\d+)\.(linear_fc[12]\.weight)$", r"\2\1", name)


def real_of(found, checkpoint):
    """{parameter: (shape, elements)}; every element of it is in one part of Megatron's account."""
    shapes, parts = found
    names, real = {}, {name: numpy.full(int(numpy.prod(shape)), held.NOBODY) for name, shape in shapes.items()}
    times = {name: numpy.zeros(elements.size, dtype=int) for name, elements in real.items()}
    for name, key, shape, begin, size, places in parts:
        names[name] = of_transformer_engine(name, key, shapes)
        real[name][numpy.array(places)] = checkpoint.part(key, shape, begin, size).ravel()
        times[name][numpy.array(places)] += 1
    assert all((count == 1).all() for count in times.values())
    return {names[name]: (shapes[name], elements) for name, elements in real.items()}


@pytest.mark.parametrize("number", range(len(CASES)), ids=held.names(CASES))
def test_megatron__has_each_element_where_weft_says(number, models, megatron):
    """Rows behind the vocabulary are in no box, and of a rank that has nothing else, the parameter is none of
    Weft's."""
    kind, changes, text = CASES[number]
    model, (found, order) = models(kind, **changes), megatron
    assert config_of(kind, changes).items() <= json.loads((model / "config.json").read_text()).items()
    tensors, spec, seen = held.tensors_of(model), f"source=megatron,{text}", set()
    checkpoint = Checkpoint(tensors, order[kind])
    for rank in range(int(jobs.spec(text)["world"])):
        said = held.filled(held.holding(model, spec, rank), tensors)
        # the memory of all experts in one is [experts, hidden, theirs], which is not the shape of the parameter
        seen |= held.compared(said, real_of(found(number, rank), checkpoint), rank, reshaped=r".*\.experts\.weight[12]")
    held.assert_all(seen, tensors)

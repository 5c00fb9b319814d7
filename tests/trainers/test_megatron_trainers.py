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
    # layouts as Megatron writes them, and layers that predict further tokens
    ("qwen3", {"num_hidden_layers": 6}, "world=4,tp=2,pp=2,layout=Et|tt|t|ttL"),
    ("glm4-moe", {"num_hidden_layers": 6}, "world=4,pp=4,layout=Ett|(tt|)*2,mL"),
    ("glm4-moe", {"num_hidden_layers": 3}, "world=3,pp=3,layout=Et*2|t,m|L"),
    ("glm4-moe", {}, "world=4,tp=2,ep=2,etp=1,mtp=1"),
    ("glm4-moe-lite", {"num_hidden_layers": 4}, "world=4,tp=2,pp=2,vpp=2,mtp=1"),
    # rows of gate and up in turn, which newer ones can
    ("qwen3-moe", {}, "world=4,tp=2,ep=2,etp=2,glu_interleave=8"),
    ("glm4-moe", {"num_nextn_predict_layers": 0}, "world=4,tp=2,ep=2,etp=1,glu_interleave=16,shared_glu_interleave=8"),
    ("gpt2", {}, "world=4,tp=2,pp=2,vocab_pad=8"),
    ("gpt-oss", {}, "world=4,tp=2,pp=2,ep=2,etp=1,glu_interleave=1"),
    ("qwen3-next", {}, "world=4,tp=2,ep=2,etp=1,out_norm=plus_one"),
    ("qwen3-next", {"num_hidden_layers": 4, "num_key_value_heads": 2}, "world=8,tp=4,pp=2,ep=2,etp=1,out_norm=plus_one"),
]
# of the whole model, as Megatron's checkpoint calls it: HuggingFace's name
OUTER = {"embedding.word_embeddings.weight": "model.embed_tokens.weight", "output_layer.weight": "lm_head.weight",
         "decoder.final_layernorm.weight": "model.norm.weight"}
GPT2 = {"embedding.word_embeddings.weight": "wte.weight", "embedding.position_embeddings.weight": "wpe.weight",
        "decoder.final_layernorm.weight": "ln_f.weight", "decoder.final_layernorm.bias": "ln_f.bias"}
GPT2_LAYER = {f"{linear}.{megatron}{kind}": f"{name}.{kind}" for kind in ("weight", "bias")
              for linear, megatron, name in [("self_attention.linear_qkv", "layer_norm_", "ln_1"),
                                             ("mlp.linear_fc1", "layer_norm_", "ln_2"),
                                             ("self_attention.linear_proj", "", "attn.c_proj"),
                                             ("mlp.linear_fc1", "", "mlp.c_fc"), ("mlp.linear_fc2", "", "mlp.c_proj")]}
LAYER = {"self_attention.linear_qkv.layer_norm_weight": "input_layernorm.weight",
         "input_layernorm.weight": "input_layernorm.weight",
         "mlp.linear_fc1.layer_norm_weight": "post_attention_layernorm.weight",
         "pre_mlp_layernorm.weight": "post_attention_layernorm.weight",
         "self_attention.linear_proj.weight": "self_attn.o_proj.weight",
         "self_attention.q_layernorm.weight": "self_attn.q_norm.weight",
         "self_attention.k_layernorm.weight": "self_attn.k_norm.weight", "mlp.router.weight": "mlp.gate.weight",
         "mlp.router.expert_bias": "mlp.gate.e_score_correction_bias",
         "mlp.shared_experts.gate_weight": "mlp.shared_expert_gate.weight",
         "self_attention.linear_proj.bias": "self_attn.o_proj.bias",
         "self_attention.in_proj.layer_norm_weight": "input_layernorm.weight",
         "self_attention.core_attention.softmax_offset": "self_attn.sinks",
         **{f"self_attention.{name}": f"linear_attn.{name}" for name in ("A_log", "dt_bias", "out_proj.weight")},
         "self_attention.out_norm.weight": "linear_attn.norm.weight"}
MTP = {"enorm.weight": "enorm.weight", "hnorm.weight": "hnorm.weight", "eh_proj.weight": "eh_proj.weight",
       "final_layernorm.weight": "shared_head.norm.weight"}
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
    return {**jobs.config_of(kind), **held.two_layers(kind), **changes}


def heads_of(case):
    """By which the order of fused rows is known: the model, and what is other in its heads."""
    kind, changes, _ = case
    return kind, *((key, changes[key]) for key in sorted(changes) if "head" in key)


def as_megatron(case):
    kind, changes, text = case
    spec, config = jobs.spec(text), config_of(kind, changes)
    grain = int(spec.get("vocab_pad", 128)) * int(spec.get("tp", 1))
    return {"world": int(spec["world"]), "spec": spec, "config": config,
            "vocab": -(-config["vocab_size"] // grain) * grain}


@pytest.fixture(scope="module")
def megatron(tmp_path_factory):
    """The ranks of each case, and the order of fused rows in its model on one rank."""
    kinds = sorted({heads_of(case) for case in CASES})
    alone = [(kind, {**held.two_layers(kind), "num_nextn_predict_layers": 0, **dict(heads)}, "world=1,vocab_pad=1")
             for kind, *heads in kinds]
    cases = [as_megatron(case) for case in [*CASES, *alone]]
    found = held.real("megatron_locals.py", cases, tmp_path_factory.mktemp("megatron"))
    return found, {kind: found(len(CASES) + number, 0) for number, kind in enumerate(kinds)}


class Checkpoint:
    """The elements of HuggingFace's tensors, as tensors of Megatron's whole model."""

    def __init__(self, tensors, order, config):
        self.tensors, self.order, self.config = tensors, order, config
        self.heads = config.get("num_attention_heads")
        self.whole = functools.lru_cache(None)(self.whole)

    def numbers(self, name):
        shape, base = self.tensors[name]
        return numpy.arange(base, base + int(numpy.prod(shape))).reshape(shape)

    def attention(self, prefix, kind):
        """Queries, keys and values, and gates where there are some: rows head by head."""
        if prefix.startswith("transformer."):
            return dict(zip("qkv", numpy.split(self.numbers(f"{prefix}attn.c_attn.{kind}").T, 3)))
        parts = {part: self.numbers(f"{prefix}self_attn.{part}_proj.{kind}") for part in "qkv"}
        if "gate" not in self.order:
            return parts
        heads = parts["q"].reshape(-1, 2, len(parts["q"]) // self.heads // 2, parts["q"].shape[1])
        return {**parts, "q": heads[:, 0], "gate": heads[:, 1]}

    def fused(self, prefix, kind):
        """Each where Megatron's attention found it."""
        parts = self.attention(prefix, kind)
        whole = numpy.full(sum(numbers.size for numbers in parts.values()), held.NOBODY)
        for part, numbers in parts.items():
            whole[numpy.array(self.order[part + ("_bias" if kind == "bias" else "")])] = numbers.ravel()
        return whole.reshape(-1, *parts["k"].shape[1:])

    def linear(self, prefix, name):
        """A part of what linear attention has in one: rows of all key heads of what the checkpoint has key head by key
        head; of the convolution all q, all k and all values."""
        linear, kind = name.rsplit(".", 1)
        of = {size: self.config[f"linear_{size}"] for size in ("num_key_heads", "key_head_dim", "value_head_dim")}
        heads, values = of["num_key_heads"], self.config["linear_num_value_heads"]
        key, value = of["key_head_dim"], values // of["num_key_heads"] * of["value_head_dim"]
        if linear == "conv1d.weight":
            whole = self.numbers(prefix + "linear_attn.conv1d.weight")
            return numpy.split(whole, [heads * key, 2 * heads * key])[["query", "key", "value"].index(kind)]
        name, ends, kinds = ("in_proj_ba", [values // heads], ["beta", "alpha"]) if kind in ("beta", "alpha") else \
            ("in_proj_qkvz", [key, 2 * key, 2 * key + value], ["query", "key", "value", "z"])
        whole = self.numbers(f"{prefix}linear_attn.{name}.weight")
        by_head = whole.reshape(heads, -1, whole.shape[1])
        return numpy.split(by_head, ends, axis=1)[kinds.index(kind)].reshape(-1, whole.shape[1])

    def expert(self, prefix, number, part):
        """Of a tensor of all experts, in which gate and up are columns in turn."""
        kind = "_bias" if "bias" in part else ""
        if part.startswith("linear_fc2"):
            return self.numbers(f"{prefix}mlp.experts.down_proj{kind}")[number].T
        return self.numbers(f"{prefix}mlp.experts.gate_up_proj{kind}")[number].T[part.endswith("_v")::2]

    def outer(self, key):
        if "transformer.wte.weight" in self.tensors:
            return self.numbers("transformer." + GPT2.get(key, "wte.weight"))
        return self.numbers(OUTER[key] if OUTER[key] in self.tensors else OUTER["embedding.word_embeddings.weight"])

    def whole(self, key):
        layer = re.fullmatch(r"(decoder|mtp)\.layers\.(\d+)\.(transformer_layer\.|)(.*)", key)
        if not layer:
            return self.outer(key)
        gpt2, number, suffix = "transformer.wte.weight" in self.tensors, int(layer[2]), layer[4]
        if layer[1] == "mtp":
            number += self.config["num_hidden_layers"]
        prefix = f"transformer.h.{number}." if gpt2 else f"model.layers.{number}."
        if suffix in MTP and layer[1] == "mtp" and not layer[3]:
            return self.numbers(prefix + MTP[suffix])
        known = {**LAYER, **LATENT} if prefix + "self_attn.kv_b_proj.weight" in self.tensors else LAYER
        known = GPT2_LAYER if gpt2 else known
        if prefix + suffix in self.tensors:  # the router of gpt-oss
            return self.numbers(prefix + suffix)
        if suffix in known:
            return self.numbers(prefix + known[suffix]).T if gpt2 else self.numbers(prefix + known[suffix])
        if suffix.startswith("self_attention.linear_qkv."):
            return self.fused(prefix, suffix.split(".")[-1])
        if suffix.startswith(("self_attention.in_proj.", "self_attention.conv1d.")):
            return self.linear(prefix, suffix.removeprefix("self_attention."))
        return self.feed_forward(prefix, suffix)

    def feed_forward(self, prefix, suffix):
        parts = re.fullmatch(r"mlp\.(experts\.experts\.(\d+)\.|shared_experts\.|)(linear_\w+\.\w+)", suffix)
        place, number, linear = parts.groups()
        if number and prefix + "mlp.experts.down_proj" in self.tensors:
            return self.expert(prefix, int(number), linear)
        place = place.replace("experts.experts.", "experts.")
        if prefix + "mlp.shared_expert.up_proj.weight" in self.tensors:
            place = place.replace("shared_experts.", "shared_expert.")
        return self.numbers(f"{prefix}mlp.{place}{FEED_FORWARD[linear]}")

    def part(self, key, shape, begin, size):
        whole = self.whole(key)
        assert list(whole.shape[1:]) == shape[1:]
        if key in ("embedding.word_embeddings.weight", "output_layer.weight"):  # the vocabulary is padded
            whole = numpy.pad(whole, [(0, shape[0] - len(whole)), (0, 0)], constant_values=held.NOBODY)
        assert list(whole.shape) == shape
        return whole[tuple(slice(first, first + count) for first, count in zip(begin, size))]


def of_transformer_engine(name, key, names):
    """What TransformerEngine's specification calls the parameter."""
    layer, suffix = re.fullmatch(r"(.*layers\.\d+\.(?:transformer_layer\.|)|)(.*)", name).groups()
    if suffix == "pre_mlp_layernorm.weight" and layer + "mlp.router.weight" in names:
        return name
    if re.search("layer_norm_(weight|bias)$", key):
        return layer + re.fullmatch(r"(decoder|mtp)\.layers\.\d+\.(transformer_layer\.|)(.*)", key)[3]
    if suffix in LATENT_NORMS and layer + "self_attention.linear_kv_up_proj.weight" in names:
        return layer + LATENT_NORMS[suffix]
    if suffix == "self_attention.out_norm.weight":
        return name + "_plus_one"  # what the trainer keeps a second time
    called = re.sub(r"local_experts\.(\d+)\.(linear_fc[12]\.(?:weight|bias))$", r"\2\1", name)
    of_gpt_oss = "experts." in name and name.replace("weight", "bias") in names
    return called + "_in_turn" if of_gpt_oss and "linear_fc1" in name else called


def interleaved(name, shape, elements, spec):
    """Rows of gate and of up in turn, so many of each, as newer ones hold what others have behind each other."""
    key = "shared_glu_interleave" if "shared_experts" in name else "glu_interleave"
    if not re.search(r"experts\..*linear_fc1\.(weight|bias)", name) or key not in spec:
        return elements
    return elements.reshape(2, shape[0] // 2 // int(spec[key]), -1).swapaxes(0, 1).ravel()


def real_of(found, checkpoint, spec):
    """{parameter: (shape, elements)}; every element of it is in one part of Megatron's account."""
    shapes, parts = found
    names, real = {}, {name: numpy.full(int(numpy.prod(shape)), held.NOBODY) for name, shape in shapes.items()}
    times = {name: numpy.zeros(elements.size, dtype=int) for name, elements in real.items()}
    for name, key, shape, begin, size, places in parts:
        names[name] = of_transformer_engine(name, key, shapes)
        real[name][numpy.array(places)] = checkpoint.part(key, shape, begin, size).ravel()
        times[name][numpy.array(places)] += 1
    assert all((count == 1).all() for count in times.values())
    return {names[name]: (shapes[name], interleaved(names[name], shapes[name], elements, spec))
            for name, elements in real.items()}


@pytest.mark.parametrize("number", range(len(CASES)), ids=held.names(CASES))
def test_megatron__has_each_element_where_weft_says(number, models, megatron):
    """Rows behind the vocabulary are in no box, and of a rank that has nothing else, the parameter is none of
    Weft's."""
    kind, changes, text = CASES[number]
    model, (found, order) = models(kind, **changes), megatron
    assert config_of(kind, changes).items() <= json.loads((model / "config.json").read_text()).items()
    tensors, spec, seen = held.tensors_of(model), f"source=megatron,{text}", set()
    checkpoint = Checkpoint(tensors, order[heads_of(CASES[number])], config_of(kind, changes))
    for rank in range(int(jobs.spec(text)["world"])):
        said = held.filled(held.holding(model, spec, rank), tensors)
        # the memory of all experts in one is [experts, hidden, theirs], which is not the shape of the parameter
        seen |= held.compared(said, real_of(found(number, rank), checkpoint, jobs.spec(text)), rank, reshaped=r".*\.experts\.weight[12]")
    # a layer that predicts further tokens has no embedding and head of its own
    held.assert_all(seen, {name: both for name, both in tensors.items()
                           if not re.search(r"layers\.\d+\.(embed_tokens|shared_head\.head)", name)})

# SPDX-License-Identifier: Apache-2.0
"""An engine of this file: a model with vLLM's names of Qwen3-MoE (a dense layer, then layers of experts), a loader, and
post-load work. What else it does is its habits, each a word:

    up_gate        experts' halves are loaded the other way round         swap       post-load work changes their places
    transposed     o_proj is kept by columns                              beside     gate and up too, side by side
    turned         o_proj is a turned view of its memory                  sentinel   k_scale, -1, which no load writes
    ones           half of a bias keeps its class's ones                  max        a scale is the larger of two
    product        a weight is multiplied with its scale                  absorb     a projection more, of other elements
    attribute      a tensor beside the parameters, derived                buffer     the same as a buffer
    float          the same as a number                                   helper     the same in an object that is no module
    drift          derived once more, it is another                       loaded     the experts' bias is a buffer, loaded
    pad            down_proj gets columns of zeroes                       rename     and another name
    strict         scales of q and k must be equal                        fails, full the loader raises; has no memory
    noise          memory that nobody writes                              alias      the head is the embedding's memory
    stale          derive does nothing                                    forgets    reload does no post-load work
    shifted        a norm is of the layer before's number                 dummy      no load was done yet
    view           a parameter that is a view with gaps, derived          norms      the loader computes a buffer
    projector      weights that the checkpoint numbers, and that are no layers
"""
from __future__ import annotations

import json
import pathlib

import torch
from torch import nn

import weft
from weft.engines._engine import Engine, Row, kept_in_place

CONFIG = json.loads((pathlib.Path(__file__).resolve().parents[2] / "engines/compared/qwen3-moe/config.json").read_text())
HIDDEN, HEADS, GROUPS, DIM, FEED, EXPERT, EXPERTS, VOCABULARY, PADDED = 64, 4, 2, 16, 96, 32, 4, 203, 256
LAYER = "model.layers.{}."


def config(layers=4, dense=1):
    return {**CONFIG, "num_hidden_layers": layers, "mlp_only_layers": list(range(dense)), "architectures": ["Qwen3MoeForCausalLM"]}


def tensors(layers=4, dense=1, habits=(), dtype="BF16"):
    """The checkpoint's, by name."""
    found = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN)}
    for layer in range(layers):
        lead = LAYER.format(layer)
        attn = {"q_proj.weight": (HEADS * DIM, HIDDEN), "k_proj.weight": (GROUPS * DIM, HIDDEN),
                "v_proj.weight": (GROUPS * DIM, HIDDEN), "o_proj.weight": (HIDDEN, HEADS * DIM), "q_norm.weight": (DIM,),
                "k_norm.weight": (DIM,)}
        if "ones" in habits:
            attn["q_proj.bias"] = (HEADS * DIM,)
        if {"max", "product", "strict", "float"} & set(habits):
            attn |= {"q_proj.scale": (1,), "k_proj.scale": (1,)}
        found |= {f"{lead}self_attn.{name}": shape for name, shape in attn.items()}
        found |= {f"{lead}{name}.weight": (HIDDEN,) for name in ("input_layernorm", "post_attention_layernorm")}
        mlp = {"mlp.": FEED} if layer < dense else {f"mlp.experts.{expert}.": EXPERT for expert in range(EXPERTS)}
        for name, size in mlp.items():
            found |= {f"{lead}{name}gate_proj.weight": (size, HIDDEN), f"{lead}{name}up_proj.weight": (size, HIDDEN),
                      f"{lead}{name}down_proj.weight": (HIDDEN, size)}
        if layer >= dense:
            found[f"{lead}mlp.gate.weight"] = (EXPERTS, HIDDEN)
            if "loaded" in habits:
                found[f"{lead}mlp.gate.bias"] = (EXPERTS,)
    if "projector" in habits:  # as published names of a Sequential, of which what is between has no weights
        found |= {"projector.proj.0.weight": (HIDDEN, HIDDEN), "projector.proj.9.weight": (HIDDEN, HIDDEN)}
    found |= {"model.norm.weight": (HIDDEN,), "lm_head.weight": (VOCABULARY, HIDDEN)}
    return {name: weft.Tensor(name, "F32" if name.endswith("scale") else dtype, shape) for name, shape in found.items()}


def values(listed, version, dtype=None):
    """A checkpoint of one version: (name, tensor)."""
    for number, (name, tensor) in enumerate(listed.items()):
        made = torch.randn(tensor.shape, generator=torch.Generator("cpu").manual_seed(1000 * version + number), device="cpu")
        made = made.abs() + 0.5 if name.endswith("scale") else made
        yield name, made.to(torch.get_default_device(), dtype or getattr(torch, weft._dtypes.dtype_of(tensor.dtype).torch))


def parameter(*shape, dtype=torch.bfloat16):
    return nn.Parameter(torch.empty(shape, dtype=dtype).fill_(7), requires_grad=False)


class Module(nn.Module):
    """A name for parameters."""

    def __init__(self, **parameters):
        super().__init__()
        for name, value in parameters.items():
            setattr(self, name, value)


class Helper:
    """Keeps a tensor, as attention backends do, and is no module."""
    w_v: torch.Tensor


class Model(nn.Module):
    """A rank of it."""

    def __init__(self, layers=4, dense=1, habits=(), rank=0, tp=1, stages=1):
        super().__init__()
        self.habits, self.dense, self.tp, self.tp_rank = frozenset(habits), dense, tp, rank % tp
        stage = rank // tp
        mine = range(layers * stage // stages, layers * (stage + 1) // stages)
        self.model = Module()
        if stage == 0:
            self.model.embed_tokens = Module(weight=parameter(PADDED // tp, HIDDEN))
        self.model.layers = nn.ModuleDict({str(layer): self._layer(layer) for layer in mine})
        if stage == stages - 1:
            self.model.norm = Module(weight=parameter(HIDDEN))
            self.lm_head = Module(weight=parameter(PADDED // tp, HIDDEN))
        if "projector" in habits:
            self.projector = Module(linear_1=Module(weight=parameter(HIDDEN, HIDDEN)),
                                    linear_2=Module(weight=parameter(HIDDEN, HIDDEN)))
        if "alias" in habits:
            self.lm_head.weight.data = self.model.embed_tokens.weight.data

    def _layer(self, layer):
        tp, habits = self.tp, self.habits
        attn = Module(qkv_proj=Module(weight=parameter((HEADS + 2 * GROUPS) * DIM // tp, HIDDEN)),
                      o_proj=Module(weight=parameter(*self._turned(HIDDEN, HEADS * DIM // tp, "transposed"))),
                      q_norm=Module(weight=parameter(DIM)), k_norm=Module(weight=parameter(DIM)))
        if "sentinel" in habits:
            attn.k_scale = nn.Parameter(torch.tensor(-1.0), requires_grad=False)
        if "ones" in habits:
            attn.qkv_proj.bias = nn.Parameter(torch.ones((HEADS + 2 * GROUPS) * DIM // tp), requires_grad=False)
        if {"max", "product", "strict", "float"} & habits:
            attn.scales = nn.Parameter(torch.zeros(2), requires_grad=False)
        if "norms" in habits:
            attn.q_norm.register_buffer("more", torch.zeros(DIM, dtype=torch.bfloat16))
        if "noise" in habits:
            attn.workspace = torch.randn(4)
        if layer < self.dense:
            mlp = Module(gate_up_proj=Module(weight=parameter(*self._turned(2 * FEED // tp, HIDDEN, "beside"))),
                         down_proj=Module(weight=parameter(HIDDEN, FEED // tp)))
        else:
            mlp = Module(gate=Module(weight=parameter(EXPERTS, HIDDEN)),
                         experts=Module(w13_weight=parameter(EXPERTS, 2 * EXPERT // tp, HIDDEN),
                                        w2_weight=parameter(EXPERTS, HIDDEN, EXPERT // tp)))
            if "loaded" in habits:
                mlp.gate.register_buffer("bias", torch.zeros(EXPERTS))
        return Module(self_attn=attn, mlp=mlp, input_layernorm=Module(weight=parameter(HIDDEN)),
                      post_attention_layernorm=Module(weight=parameter(HIDDEN)))

    def _turned(self, rows, columns, habit):
        return (columns, rows) if habit in self.habits else (rows, columns)

    # ---- the loader

    def load_weights(self, named):
        if "full" in self.habits:
            raise torch.OutOfMemoryError("1 GiB more is not there")
        parameters = dict(self.named_parameters()) | dict(self.named_buffers())
        for name, tensor in named:
            if "shifted" in self.habits and "q_norm" in name:  # layer 1 has layer 0's, and so on; layer 0 the last one's
                place = name.split(".")
                last = max(int(layer) for layer in self.model.layers)
                place[2] = str(int(place[2]) + 1 if int(place[2]) < last else 0)
                name = ".".join(place)
            if "fails" in self.habits and "q_norm" in name:
                raise KeyError(name)
            name = name.replace("proj.0.", "linear_1.").replace("proj.9.", "linear_2.")
            self._load(parameters, name, tensor)

    def _cut(self, tensor, dim):
        return tensor.chunk(self.tp, dim)[self.tp_rank]

    def _load(self, parameters, name, tensor):
        lead, _, last = name.rpartition(".")
        module, _, part = lead.rpartition(".")
        if part in ("embed_tokens", "lm_head") and name in parameters:
            rows, first = PADDED // self.tp, PADDED // self.tp * self.tp_rank
            some = tensor[first:first + rows]
            parameters[name][:some.shape[0]] = some
            parameters[name][some.shape[0]:] = 0
        elif part in ("q_proj", "k_proj", "v_proj") and f"{module}.qkv_proj.weight" in parameters:
            self._load_qkv(parameters, module, "qkv".index(part[0]), last, tensor)
        elif ".experts." in name and part in ("gate_proj", "up_proj", "down_proj"):
            self._load_expert(parameters, module, part, tensor)
        elif part in ("gate_proj", "up_proj") and f"{module}.gate_up_proj.weight" in parameters:
            param, half = parameters[f"{module}.gate_up_proj.weight"], FEED // self.tp
            param = param.t() if "beside" in self.habits else param
            param[half * (part == "up_proj"):][:half] = self._cut(tensor, 0)
        elif part in ("o_proj", "down_proj") and name in parameters:
            param = parameters[name].t() if "transposed" in self.habits and part == "o_proj" else parameters[name]
            param.copy_(self._cut(tensor, 1))
        elif name in parameters:
            parameters[name].copy_(tensor)
            if f"{lead}.more" in parameters:
                parameters[f"{lead}.more"].copy_(tensor + 1)

    def _load_qkv(self, parameters, module, which, last, tensor):
        if last == "scale":
            scales = parameters[f"{module}.scales"]
            scales[which] = tensor[0]
            if "strict" in self.habits and which and bool(scales[0] != scales[1]):
                raise ValueError("scales of q and k must be equal")
            return
        sizes = [HEADS * DIM // self.tp, GROUPS * DIM // self.tp, GROUPS * DIM // self.tp]
        parameters[f"{module}.qkv_proj.{last}"].split(sizes)[which].copy_(self._cut(tensor, 0))

    def _load_expert(self, parameters, module, part, tensor):
        experts, _, expert = module.rpartition(".")
        if f"{experts}.w2_weight" not in parameters:
            return
        if part == "down_proj":
            parameters[f"{experts}.w2_weight"][int(expert)] = self._cut(tensor, 1)
            return
        half = EXPERT // self.tp
        second = (part == "up_proj") != ("up_gate" in self.habits)
        parameters[f"{experts}.w13_weight"][int(expert), half * second:][:half] = self._cut(tensor, 0)

    # ---- after a load

    def process(self):
        for layer in self.model.layers.values():
            self._process(layer.self_attn, layer.mlp)
        self.derive()

    def _process(self, attn, mlp):
        habits = self.habits
        if "sentinel" in habits:
            assert attn.k_scale == -1 or attn.k_scale == 1, "written by somebody"
            attn.k_scale.fill_(1)
        if "swap" in habits and hasattr(mlp, "experts"):
            mlp.experts.w13_weight.copy_(mlp.experts.w13_weight.roll(EXPERT // self.tp, 1))
        if "turned" in habits:
            attn.o_proj.weight = nn.Parameter(attn.o_proj.weight.t().contiguous().t(), requires_grad=False)
        if "max" in habits:
            attn.scales = nn.Parameter(attn.scales.max(), requires_grad=False)
        if "product" in habits:
            attn.qkv_proj.weight.mul_(attn.scales[0])
        if "absorb" in habits:
            attn.w_kc = nn.Parameter(_keys(attn, self.tp).permute(0, 2, 1).contiguous(), requires_grad=False)
        if "pad" in habits and hasattr(mlp, "down_proj"):
            mlp.down_proj.weight = nn.Parameter(nn.functional.pad(mlp.down_proj.weight, (0, 32)), requires_grad=False)
        if "rename" in habits and hasattr(mlp, "down_proj"):
            mlp.down_proj.packed = mlp.down_proj.weight
            del mlp.down_proj.weight

    def derive(self):
        for layer in self.model.layers.values():
            attn, habits = layer.self_attn, self.habits
            if "view" in habits:
                attn.w_view = nn.Parameter(_keys(attn, self.tp).float()[:, :, ::2], requires_grad=False)
            if "attribute" in habits or "drift" in habits:
                attn.w_v = _keys(attn, self.tp).float().sum(1) * 2
            if "norms" in habits:
                attn.q_norm.more.copy_(attn.q_norm.weight + 1)
            if "drift" in habits:
                attn.drifts = getattr(attn, "drifts", torch.ones(1)) * 2
            if "buffer" in habits:
                attn.register_buffer("norms", attn.q_norm.weight.float() * 3)
            if "float" in habits:
                attn.scale_float = float(attn.scales.sum())
            if "helper" in habits:
                attn.impl = attn.impl if hasattr(attn, "impl") else Helper()
                attn.impl.w_v = _keys(attn, self.tp).float().sum(1) * 2


def _keys(attn, tp):
    first, count = HEADS * DIM // tp, GROUPS * DIM // tp
    return attn.qkv_proj.weight[first:first + count].view(-1, DIM, HIDDEN)


class Toy(Engine):
    """The model's process."""

    name = "toy"
    made = 0

    def __init__(self, model, config_=None):
        super().__init__(model, config_)
        self.size = model.size

    def version(self):
        return "1.0"

    def rank(self):
        return self.size["rank"]

    def ranks(self):
        return self.size["tp"] * self.size["stages"]

    def stages(self):
        return self.size["stages"]

    def sizes(self):
        found = {"tp": str(self.size["tp"]), "names": "vllm"}
        return {**found, "pp": str(self.stages())} if self.stages() > 1 else found

    def own_config(self):
        return self.model.config

    def folder(self):
        return self.model.folder

    def dummy(self):
        return "dummy" in self.size["habits"]

    def scratch(self, layers):
        Toy.made += 1
        size = {**self.size, "layers": layers * self.stages()}
        return Model(**size), None

    def load(self, model, kept, named):
        model.load_weights(named)

    def process(self, model, kept):
        with torch.no_grad():
            model.process()

    def derive(self, model, kept):
        if "stale" not in model.habits:
            with torch.no_grad():
                kept_in_place(list(model.modules()), model.derive)

    def reload(self, model, kept, named):
        """Of a model of its own, whose values go where the running one's are."""
        size = {**self.size, "layers": 1 + max(int(layer) for layer in model.model.layers)} if self.stages() == 1 else self.size
        fresh = Model(**size)
        with torch.no_grad():
            fresh.load_weights(named)
            if "forgets" not in model.habits:
                fresh.process()
            for (_, mine), (_, theirs) in zip(model.named_modules(), fresh.named_modules()):
                for name, value in theirs._parameters.items():
                    mine._parameters[name].copy_(value)
            if "forgets" not in model.habits:
                model.derive()


def make(given, module, config_):
    return Toy(module, config_)


def engine_model(habits=(), layers=4, dense=1, rank=0, tp=1, stages=1, version=None, folder="", listed=None):
    """A live model with a version's weights; with the habit "dummy" what no load writes has a value of nobody's."""
    size = {"layers": layers, "dense": dense, "habits": frozenset(habits), "rank": rank, "tp": tp, "stages": stages}
    model = Model(**size)
    model.size, model.config, model.folder = size, config(layers, dense), folder
    with torch.no_grad():
        listed = listed or tensors(layers, dense, habits)
        model.load_weights(values(listed, version or 0))
        model.process()
        if "dummy" in habits:
            for layer in model.model.layers.values():
                layer.self_attn.k_scale.fill_(0.25)
                layer.self_attn.qkv_proj.bias[-1:] = 0.25
    return model


ROWS = [Row("toy", make)]

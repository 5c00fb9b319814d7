# SPDX-License-Identifier: Apache-2.0
"""An independent statement of what every engine rank must hold: whole-tensor numpy operations,
no code and no tables of Weft. It is the referee of the demo and of the whole-process tests.

First every tensor is brought whole into the form that the engine keeps (Served: dtype, fp8
blocks), then a parameter of a rank is made the way an engine's loader makes it: cut each full
tensor for the rank, then concatenate. Scales of fp8 blocks are never cut as blocks here: they are
spread over the rows or columns they belong to, cut as the weight is, and read back one a block of
the result."""
import json
import pathlib

import numpy
import xxhash

import quantise_reference as reference
from contents import changed_bytes, checkpoint_tensors, version_bytes

ELEMENT_BYTES = {"BF16": 2, "F16": 2, "F32": 4, "F8_E4M3": 1, "U8": 1}
STORED = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}
SCALE = "_scale_inv"
# engines whose class has an lm_head of its own although the config ties it
OWN_HEAD = {"Qwen3MoeForCausalLM": ("sglang",), "MixtralForCausalLM": ("sglang",), "Qwen2MoeForCausalLM": ("sglang",),
            "DeepseekV2ForCausalLM": ("vllm",), "DeepseekV3ForCausalLM": ("vllm",), "DeepseekV32ForCausalLM": ("vllm",),
            "GlmMoeDsaForCausalLM": ("vllm",), "Glm4MoeForCausalLM": ("sglang", "vllm"),
            "Glm4MoeLiteForCausalLM": ("sglang", "vllm"), "Qwen3NextForCausalLM": ("sglang", "vllm"),
            "GptOssForCausalLM": ("sglang", "vllm")}
NO_ATTENTION_DP = ("LlamaForCausalLM", "Qwen2ForCausalLM")


def has_head(config, infer):
    """Is lm_head a parameter of the engine's?"""
    engines = OWN_HEAD.get(config["architectures"][0], ())
    return (not config.get("tie_word_embeddings", False) or infer.get("names", "sglang") in engines
            or infer.get("untied") == "1")


def is_linear(name):
    """The matrices that an fp8 engine keeps in blocks."""
    module = name.split(".")[-2]
    return (name.endswith(".weight") and ".layers." in name and not module.endswith("norm")
            and module not in ("gate", "weights_proj"))


def target_block(config, infer):
    """(rows, columns) of the engine's fp8 blocks, or None."""
    if "fp8" in infer:
        return None if infer["fp8"] == "none" else tuple(map(int, infer["fp8"].split("x")))
    return source_block(config)


def source_block(config):
    block = (config.get("quantization_config") or {}).get("weight_block_size")
    return tuple(block) if block else None


def zeroes_behind(array, axis, size):
    return numpy.pad(array, [(0, size - array.shape[axis] if d == axis else 0) for d in range(array.ndim)])


class Served:
    """Whole tensors under their checkpoint names, as the engine keeps them. `raw(name)` gives
    (dtype, array of the stored bits) of a checkpoint's tensor."""

    def __init__(self, config, infer, names, raw):
        self.config, self.infer, self.names, self.raw = config, infer, names, raw
        self.source, self.target = source_block(config), target_block(config, infer)
        self.scales = {}

    def blocks(self, name):
        """Is a tensor kept in blocks?"""
        if self.infer.get("indexer") == "fused" and name.endswith("indexer.wk.weight"):
            return False
        return self.target is not None and is_linear(name)

    def __contains__(self, name):
        if name.endswith(SCALE):
            return name[:-len(SCALE)] in self.names and self.blocks(name[:-len(SCALE)])
        return name in self.names

    def dtype(self, name, stored):
        """What the engine keeps a tensor in that has no blocks there."""
        if ".indexer.k_norm." in name or name.endswith("e_score_correction_bias"):
            return "F32"
        if name.endswith(("mlp.gate.weight", "moe.gate.weight")) and "gate" in self.infer:
            return self.infer["gate"]
        plain = STORED[self.config["torch_dtype"]] if stored == "F8_E4M3" else stored
        return self.infer.get("dtype", plain)

    def made_of(self, name, wanted):
        """A tensor's numbers as bits of another dtype."""
        stored, bits = self.raw(name)
        if name + SCALE not in self.names:
            return reference.convert(bits, stored, wanted)
        return reference.dequantise(bits, self.raw(name + SCALE)[1].view(numpy.float32), self.source, wanted)

    def full(self, name):
        if name.endswith(SCALE):
            if name not in self.scales:
                self.full(name[:-len(SCALE)])
            return self.scales.pop(name)
        stored, bits = self.raw(name)
        if self.blocks(name):
            if name + SCALE in self.names and self.source == self.target:
                self.scales[name + SCALE] = self.raw(name + SCALE)[1].view(numpy.float32)
                return bits
            numbers = self.made_of(name, "F32").view(numpy.float32)
            bits, self.scales[name + SCALE] = reference.quantise(numbers, self.target)
            return bits
        wanted = self.dtype(name, stored)
        return bits if wanted == stored else self.made_of(name, wanted)


class Engine:
    """What the ranks of one engine hold of `served` tensors (a Served, or what looks like one)."""
    EXPERT_PARTS = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}

    def __init__(self, config, infer, served):
        self.config, self.infer, self.names, self.full = config, infer, served, served.full
        number = {key: int(infer.get(key, 1)) for key in ("tp", "ep", "dp")}
        self.tp, self.ep = number["tp"], number["ep"]
        self.vllm = infer.get("names") == "vllm"
        self.attention_tp = self.tp // number["dp"]
        self.expert_tp = self.tp // self.ep
        # a vLLM engine's dp ranks are groups of their own in everything but the experts
        whole = self.attention_tp if self.vllm else self.tp
        self.vocabulary_tp = self.attention_tp if infer.get("dp_lm_head") == "1" else whole
        self.dense_tp = 1 if infer.get("moe_dense_tp") == "1" else whole
        self.shared_tp = 1 if infer.get("a2a") == "1" else whole
        self.whole_tp = whole
        self.fused = infer.get("fuse_shared") == "1"
        self.slots = "experts.routed_experts." if infer.get("routed_experts") == "1" else "experts."
        self.block = target_block(config, infer)

    def parameters(self):
        config = self.config
        family = config["architectures"][0]
        embedding = self.whole_tp if family in NO_ATTENTION_DP else self.attention_tp
        if self.infer.get("embed_replicated") == "1":
            embedding = 1
        yield from self.vocabulary("model.embed_tokens.weight", embedding)
        for layer in range(config["num_hidden_layers"]):
            prefix = f"model.layers.{layer}."
            if "kv_lora_rank" in config:
                yield from self.latent_attention(prefix + "self_attn.")
            else:
                yield from self.attention(prefix + "self_attn.")
            if prefix + "mlp.gate.weight" in self.names:
                yield from self.experts(prefix + "mlp.")
            else:
                yield from self.mlp(prefix + "mlp.", self.dense_tp)
            for norm in ("input_layernorm", "post_attention_layernorm", "post_self_attn_layernorm",
                         "post_mlp_layernorm"):
                yield from self.copied(f"{prefix}{norm}.weight")
        yield from self.copied("model.norm.weight")
        if has_head(config, self.infer):
            over_all = family in ("Qwen2ForCausalLM", "Glm4ForCausalLM")
            yield from self.vocabulary("lm_head.weight", self.whole_tp if over_all else self.vocabulary_tp)

    # ---- pieces of loaders ----

    def spread(self, name, axis):
        """The scale of each row (axis 0) or column (axis 1) of a weight."""
        return self.full(name + SCALE).repeat(self.block[axis], axis).take(
            range(self.full(name).shape[axis]), axis)

    def gathered(self, lines, axis):
        """One scale a block of the last two dimensions; all lines of a block must agree."""
        axis, block = lines.ndim - 2 + axis, self.block[axis]
        small = lines.take(range(0, lines.shape[axis], block), axis)
        again = small.repeat(block, axis).take(range(lines.shape[axis]), axis)
        assert (again.view(numpy.uint8) == numpy.ascontiguousarray(lines).view(numpy.uint8)).all(), "a cut inside of a block"
        return small

    def linear(self, param, names, take, axis=0):
        """A parameter made from whole tensors: take(rank, [tensors]) for weight and scale; it
        cuts nothing but this axis."""
        weights = [self.full(name) for name in names]
        for rank in range(self.tp):
            yield rank, param, take(rank, weights)
        del weights
        if names[0] + SCALE in self.names:
            scales = [self.spread(name, axis) for name in names]
            for rank in range(self.tp):
                yield rank, param + SCALE, self.gathered(take(rank, scales), axis)

    def rows(self, param, names, n):
        def take(rank, tensors):
            r, parts = rank % n, []
            for tensor in tensors:
                each = len(tensor) // n
                parts.append(tensor[r * each:(r + 1) * each])
            return numpy.concatenate(parts)
        yield from self.linear(param, names, take)

    def columns(self, name, n, bias=True):
        def take(rank, tensors):
            each = tensors[0].shape[1] // n
            return tensors[0][:, rank % n * each:(rank % n + 1) * each]
        yield from self.linear(name + ".weight", [name + ".weight"], take, 1)
        if bias:
            yield from self.copied(name + ".bias")

    def copied(self, name):
        if name in self.names:
            yield from self.linear(name, [name], lambda rank, tensors: tensors[0])

    def vocabulary(self, name, n):
        whole = self.full(name)
        rows = -(-whole.shape[0] // 64) * 64 // n
        for rank in range(self.tp):
            mine = numpy.zeros((rows, whole.shape[1]), dtype=whole.dtype)
            part = whole[rank % n * rows:(rank % n + 1) * rows]
            mine[:len(part)] = part
            yield rank, name, mine

    # ---- blocks of models ----

    def heads(self, rank):
        """(query heads, first kv head, kv heads) of a rank among those that share attention."""
        n, kv = self.attention_tp, self.config["num_key_value_heads"]
        queries = self.config["num_attention_heads"] // n
        if n >= kv:
            return queries, rank // (n // kv), 1
        return queries, rank * (kv // n), kv // n

    def attention(self, prefix):
        config = self.config
        dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]

        def take(rank, tensors):
            r = rank % self.attention_tp
            queries, first, count = self.heads(r)
            kv = slice(first * dim, (first + count) * dim)
            q, k, v = tensors
            return numpy.concatenate([q[r * queries * dim:(r + 1) * queries * dim], k[kv], v[kv]])

        for kind in ("weight", "bias"):
            names = [f"{prefix}{part}_proj.{kind}" for part in "qkv"]
            if names[0] in self.names:
                yield from self.linear(f"{prefix}qkv_proj.{kind}", names, take)
        with_bias = not self.vllm or not config["architectures"][0].startswith(("Qwen3For", "Qwen3Moe"))
        yield from self.columns(prefix + "o_proj", self.attention_tp, with_bias)
        for norm in ("q_norm", "k_norm"):
            yield from self.copied(f"{prefix}{norm}.weight")

    def latent_attention(self, prefix):
        n = self.attention_tp
        if prefix + "q_a_proj.weight" in self.names:
            fused = "fused_qkv_a_proj" if self.vllm else "fused_qkv_a_proj_with_mqa"
            yield from self.rows(f"{prefix}{fused}.weight",
                                 [prefix + "q_a_proj.weight", prefix + "kv_a_proj_with_mqa.weight"], 1)
            yield from self.copied(prefix + "q_a_layernorm.weight")
            heads = ("q_b_proj", "kv_b_proj")
        else:
            yield from self.copied(prefix + "kv_a_proj_with_mqa.weight")
            heads = ("q_proj", "kv_b_proj")
        yield from self.copied(prefix + "kv_a_layernorm.weight")
        for name in heads:
            yield from self.rows(f"{prefix}{name}.weight", [f"{prefix}{name}.weight"], n)
        yield from self.columns(prefix + "o_proj", n)
        apart = ("wk.weight", "weights_proj.weight")
        if self.infer.get("indexer") == "fused" and f"{prefix}indexer.wk.weight" in self.names:
            yield from self.rows(prefix + "indexer.wk_weights_proj.weight",
                                 [f"{prefix}indexer.{name}" for name in apart], 1)
            apart = ()
        for name in ("wq_b.weight", "k_norm.weight", "k_norm.bias", *apart):
            yield from self.copied(prefix + "indexer." + name)

    def mlp(self, prefix, n):
        with_bias = self.vllm or self.config["architectures"][0] != "LlamaForCausalLM"
        for kind in ("weight", "bias") if with_bias else ("weight",):
            fused, gate, up = (f"{prefix}{part}_proj.{kind}" for part in ("gate_up", "gate", "up"))
            if fused in self.names:
                yield from self.linear(fused, [fused], lambda rank, both: numpy.concatenate(
                    [half.reshape(n, -1, *half.shape[1:])[rank % n] for half in numpy.split(both[0], 2)]))
            elif gate in self.names:
                yield from self.rows(fused, [gate, up], n)
        yield from self.columns(prefix + "down_proj", n, with_bias)

    def experts(self, prefix):
        config = self.config
        count = config.get("num_experts") or config["n_routed_experts"]
        names = {part: [f"{prefix}experts.{e}.{name}.weight" for e in range(count)]
                 for part, name in self.EXPERT_PARTS.items()}
        shared = f"{prefix}shared_experts.down_proj.weight" in self.names
        if self.fused and shared:
            for part, list_of in names.items():
                list_of.append(f"{prefix}shared_experts.{part}_proj.weight")
        width = config["moe_intermediate_size"] // self.expert_tp
        every = len(names["down"])

        def mine(rank):
            p, q = rank // self.expert_tp % self.ep, rank % self.expert_tp
            if self.infer.get("experts", "linear").startswith("round_robin"):
                slots = range(p, count, self.ep)
            else:  # the first ranks take what is left over
                each, more = divmod(count, self.ep)
                slots = range(p * each + min(p, more), (p + 1) * each + min(p + 1, more))
            return [*slots, *range(count, every)], slice(q * width, (q + 1) * width)

        halves = (every, 0) if self.infer.get("expert_halves") == "up_gate" else (0, every)

        def take_in(rank, tensors):
            slots, part = mine(rank)
            return numpy.stack([numpy.concatenate([tensors[half + e][part] for half in halves]) for e in slots])

        def take_out(rank, tensors):
            slots, part = mine(rank)
            return numpy.stack([tensors[e][:, part] for e in slots])

        yield from self.copied(prefix + "gate.weight")
        yield from self.copied(prefix + "gate.e_score_correction_bias")
        yield from self.linear(f"{prefix}{self.slots}w13_weight", names["gate"] + names["up"], take_in)
        yield from self.linear(f"{prefix}{self.slots}w2_weight", names["down"], take_out, 1)
        if shared and not self.fused:
            yield from self.mlp(prefix + "shared_experts.", self.shared_tp)


class Expected:
    """Digests of every parameter of every engine rank, for any version of a checkpoint."""

    def __init__(self, folder, infer, one_in=1):
        self.config = json.load(open(pathlib.Path(folder) / "config.json"))
        self.tensors = checkpoint_tensors(folder)
        self.one_in = one_in
        self.made = {}  # name -> (version, bytes), of the last
        self.infer = infer
        self.tp = int(infer.get("tp", 1))

    def raw(self, name, version):
        dtype, shape, data = self.tensors[name]
        element = numpy.dtype(f"u{ELEMENT_BYTES[dtype]}")
        if self.one_in == 1:
            made = version_bytes(name, data, version)
        else:
            last, before = self.made.get(name, (0, None))
            made = before if version == last and version else \
                changed_bytes(name, data, version, self.one_in, before if version == last + 1 else None)
            self.made[name] = version, made
        return dtype, made.view(element).reshape(shape)

    def digests(self, version):
        """One dict a engine rank: parameter -> (xxh3-128 of its bytes, bytes)."""
        ranks = [{} for _ in range(self.tp)]
        served = Served(self.config, self.infer, self.tensors, lambda name: self.raw(name, version))
        for rank, name, value in Engine(self.config, self.infer, served).parameters():
            data = numpy.ascontiguousarray(value)
            ranks[rank][name] = (xxhash.xxh3_128_hexdigest(data.view(numpy.uint8).reshape(-1).data), data.nbytes)
        return ranks

# SPDX-License-Identifier: Apache-2.0
"""An independent statement of what every engine rank must hold: whole-tensor numpy operations,
no code and no tables of Weft. It is the referee of the demo and of the whole-process tests.

A parameter of a rank is made the way an engine's loader makes it: cut each full tensor for the
rank, then concatenate. Scales of fp8 blocks are never cut as blocks here: they are spread over
the elements they belong to, cut as the weight is, and read back one a block of the result."""
import json
import pathlib

import numpy
import xxhash

from contents import checkpoint_tensors, version_bytes

ELEMENT_BYTES = {"BF16": 2, "F16": 2, "F32": 4, "F8_E4M3": 1}
SCALE = "_scale_inv"
OWN_HEAD = ("Qwen3MoeForCausalLM", "Glm4MoeForCausalLM", "Glm4MoeLiteForCausalLM")


class Engine:
    """What the ranks of one engine hold of tensors that `full(name)` gives whole."""

    def __init__(self, config, infer, names, full):
        self.config, self.names, self.full = config, names, full
        number = {key: int(infer.get(key, 1)) for key in ("tp", "ep", "dp")}
        self.tp, self.ep = number["tp"], number["ep"]
        self.attention_tp = self.tp // number["dp"]
        self.expert_tp = self.tp // self.ep
        self.dp_lm_head = infer.get("dp_lm_head") == "1"
        self.dense_tp = 1 if infer.get("moe_dense_tp") == "1" else self.tp
        quantization = config.get("quantization_config") or {}
        self.block = quantization.get("weight_block_size")

    def parameters(self):
        config = self.config
        family = config["architectures"][0]
        embedding = self.tp if family in ("LlamaForCausalLM", "Qwen2ForCausalLM") else self.attention_tp
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
        if not config.get("tie_word_embeddings", False) or family in OWN_HEAD:
            own = self.dp_lm_head and family not in ("Qwen2ForCausalLM", "Glm4ForCausalLM")
            yield from self.vocabulary("lm_head.weight", self.attention_tp if own else self.tp)

    # ---- pieces of loaders ----

    def spread(self, name):
        """The scale of each element of a weight."""
        rows, columns = self.full(name).shape
        scale = self.full(name + SCALE)
        return scale.repeat(self.block[0], 0)[:rows].repeat(self.block[1], 1)[:, :columns]

    def gathered(self, elements):
        """One scale a block; all elements of a block must agree. The last two dimensions."""
        elements = elements.reshape(-1, *elements.shape[-2:])
        out = []
        for matrix in elements:
            small = numpy.ascontiguousarray(matrix[::self.block[0], ::self.block[1]])
            again = small.repeat(self.block[0], 0)[:matrix.shape[0]].repeat(self.block[1], 1)
            assert (again[:, :matrix.shape[1]] == matrix).all(), "a cut inside of a block"
            out.append(small)
        return numpy.stack(out)

    def linear(self, param, names, take):
        """A parameter made from whole tensors: take(rank, [tensors]) for weight and scale."""
        weights = [self.full(name) for name in names]
        for rank in range(self.tp):
            yield rank, param, take(rank, weights)
        if names[0] + SCALE in self.names:
            scales = [self.spread(name) for name in names]
            for rank in range(self.tp):
                value = self.gathered(take(rank, scales))
                yield rank, param + SCALE, value

    def rows(self, param, names, n):
        def take(rank, tensors):
            r, parts = rank % n, []
            for tensor in tensors:
                each = len(tensor) // n
                parts.append(tensor[r * each:(r + 1) * each])
            return numpy.concatenate(parts)
        yield from self.linear(param, names, take)

    def columns(self, name, n):
        def take(rank, tensors):
            each = tensors[0].shape[1] // n
            return tensors[0][:, rank % n * each:(rank % n + 1) * each]
        yield from self.linear(name + ".weight", [name + ".weight"], take)
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
        yield from self.columns(prefix + "o_proj", self.attention_tp)
        for norm in ("q_norm", "k_norm"):
            yield from self.copied(f"{prefix}{norm}.weight")

    def latent_attention(self, prefix):
        n = self.attention_tp
        if prefix + "q_a_proj.weight" in self.names:
            yield from self.rows(prefix + "fused_qkv_a_proj_with_mqa.weight",
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
        for name in ("wq_b.weight", "wk.weight", "k_norm.weight", "k_norm.bias", "weights_proj.weight"):
            yield from self.copied(prefix + "indexer." + name)

    def mlp(self, prefix, n):
        for kind in ("weight", "bias"):
            fused, gate, up = (f"{prefix}{part}_proj.{kind}" for part in ("gate_up", "gate", "up"))
            if fused in self.names:
                yield from self.linear(fused, [fused], lambda rank, both: numpy.concatenate(
                    [half.reshape(n, -1, *half.shape[1:])[rank % n] for half in numpy.split(both[0], 2)]))
            elif gate in self.names:
                yield from self.rows(fused, [gate, up], n)
        yield from self.columns(prefix + "down_proj", n)

    def experts(self, prefix):
        config = self.config
        count = config.get("num_experts") or config["n_routed_experts"]
        names = {part: [f"{prefix}experts.{e}.{part}_proj.weight" for e in range(count)]
                 for part in ("gate", "up", "down")}
        each, width = count // self.ep, config["moe_intermediate_size"] // self.expert_tp

        def mine(rank):
            block, q = rank // self.expert_tp % self.ep, rank % self.expert_tp
            return range(block * each, (block + 1) * each), slice(q * width, (q + 1) * width)

        def take_in(rank, tensors):
            slots, part = mine(rank)
            return numpy.stack([numpy.concatenate([tensors[e][part], tensors[count + e][part]]) for e in slots])

        def take_out(rank, tensors):
            slots, part = mine(rank)
            return numpy.stack([tensors[e][:, part] for e in slots])

        yield from self.copied(prefix + "gate.weight")
        yield from self.copied(prefix + "gate.e_score_correction_bias")
        yield from self.linear(prefix + "experts.w13_weight", names["gate"] + names["up"], take_in)
        yield from self.linear(prefix + "experts.w2_weight", names["down"], take_out)
        if f"{prefix}shared_experts.down_proj.weight" in self.names:
            yield from self.mlp(prefix + "shared_experts.", self.tp)


class Expected:
    """Digests of every parameter of every engine rank, for any version of a checkpoint."""

    def __init__(self, folder, infer):
        self.config = json.load(open(pathlib.Path(folder) / "config.json"))
        self.tensors = checkpoint_tensors(folder)
        self.infer = infer
        self.tp = int(infer.get("tp", 1))

    def full(self, name, version):
        dtype, shape, data = self.tensors[name]
        element = numpy.dtype(f"V{ELEMENT_BYTES[dtype]}")
        return version_bytes(name, data, version).view(element).reshape(shape)

    def digests(self, version):
        """One dict a engine rank: parameter -> (xxh3-128 of its bytes, bytes)."""
        ranks = [{} for _ in range(self.tp)]
        engine = Engine(self.config, self.infer, self.tensors, lambda name: self.full(name, version))
        for rank, name, value in engine.parameters():
            data = numpy.ascontiguousarray(value)
            ranks[rank][name] = (xxhash.xxh3_128_hexdigest(data.view(numpy.uint8).reshape(-1).data), data.nbytes)
        return ranks

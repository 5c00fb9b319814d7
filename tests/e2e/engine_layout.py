# SPDX-License-Identifier: Apache-2.0
"""An independent statement of what every engine rank must hold: whole-tensor numpy operations,
no code and no tables of Weft. It is the referee of the demo and of the whole-process tests.

A parameter of a rank is made the way an engine's loader makes it: cut each full tensor for the
rank, then concatenate. Only the dense families are known here."""
import json
import pathlib

import numpy
import xxhash

from contents import checkpoint_tensors, version_bytes

ELEMENT_BYTES = {"BF16": 2, "F16": 2, "F32": 4}


class Expected:
    """Digests of every parameter of every engine rank, for any version."""

    def __init__(self, folder, infer):
        self.config = json.load(open(pathlib.Path(folder) / "config.json"))
        self.tensors = checkpoint_tensors(folder)
        self.tp = int(infer.get("tp", 1))

    def full(self, name, version):
        dtype, shape, data = self.tensors[name]
        element = numpy.dtype(f"V{ELEMENT_BYTES[dtype]}")
        return version_bytes(name, data, version).view(element).reshape(shape)

    def digests(self, version):
        """One dict a engine rank: parameter -> (xxh3-128 of its bytes, bytes)."""
        ranks = [{} for _ in range(self.tp)]
        for rank, name, value in self.parameters(version):
            data = numpy.ascontiguousarray(value)
            ranks[rank][name] = (xxhash.xxh3_128_hexdigest(data.view(numpy.uint8).reshape(-1).data), data.nbytes)
        return ranks

    def parameters(self, version):
        config = self.config
        family = config["architectures"][0]
        layers = config["num_hidden_layers"]
        yield from self.vocabulary("model.embed_tokens.weight", version)
        for layer in range(layers):
            yield from self.attention(f"model.layers.{layer}.self_attn.", version)
            yield from self.mlp(f"model.layers.{layer}.mlp.", family, version)
            for norm in ("input_layernorm", "post_attention_layernorm", "post_self_attn_layernorm",
                         "post_mlp_layernorm"):
                name = f"model.layers.{layer}.{norm}.weight"
                if name in self.tensors:
                    yield from self.copied(name, version)
        yield from self.copied("model.norm.weight", version)
        if not config.get("tie_word_embeddings", False):
            yield from self.vocabulary("lm_head.weight", version)

    def copied(self, name, version):
        whole = self.full(name, version)
        for rank in range(self.tp):
            yield rank, name, whole

    def vocabulary(self, name, version):
        whole = self.full(name, version)
        rows = -(-whole.shape[0] // 64) * 64 // self.tp
        for rank in range(self.tp):
            mine = numpy.zeros((rows, whole.shape[1]), dtype=whole.dtype)
            part = whole[rank * rows:(rank + 1) * rows]
            mine[:len(part)] = part
            yield rank, name, mine

    def heads(self, rank):
        """(query heads, first kv head, kv heads) of a rank."""
        config = self.config
        queries = config["num_attention_heads"] // self.tp
        kv = config["num_key_value_heads"]
        if self.tp >= kv:
            return queries, rank // (self.tp // kv), 1
        return queries, rank * (kv // self.tp), kv // self.tp

    def attention(self, prefix, version):
        config = self.config
        dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        for kind in ("weight", "bias"):
            if prefix + "q_proj." + kind not in self.tensors:
                continue
            q, k, v = (self.full(f"{prefix}{part}_proj.{kind}", version) for part in "qkv")
            for rank in range(self.tp):
                queries, first, count = self.heads(rank)
                kv = slice(first * dim, (first + count) * dim)
                yield rank, f"{prefix}qkv_proj.{kind}", numpy.concatenate(
                    [q[rank * queries * dim:(rank + 1) * queries * dim], k[kv], v[kv]])
        yield from self.columns(prefix + "o_proj", version)
        for norm in ("q_norm", "k_norm"):
            if f"{prefix}{norm}.weight" in self.tensors:
                yield from self.copied(f"{prefix}{norm}.weight", version)

    def columns(self, name, version):
        whole = self.full(name + ".weight", version)
        width = whole.shape[1] // self.tp
        for rank in range(self.tp):
            yield rank, name + ".weight", whole[:, rank * width:(rank + 1) * width]
        if name + ".bias" in self.tensors:
            yield from self.copied(name + ".bias", version)

    def mlp(self, prefix, family, version):
        for kind in ("weight", "bias"):
            if prefix + "gate_up_proj." + kind in self.tensors:
                both = self.full(f"{prefix}gate_up_proj.{kind}", version)
                gate, up = both[:len(both) // 2], both[len(both) // 2:]
            elif prefix + "gate_proj." + kind in self.tensors:
                gate, up = (self.full(f"{prefix}{part}_proj.{kind}", version) for part in ("gate", "up"))
            else:
                continue
            rows = len(gate) // self.tp
            for rank in range(self.tp):
                mine = slice(rank * rows, (rank + 1) * rows)
                yield rank, f"{prefix}gate_up_proj.{kind}", numpy.concatenate([gate[mine], up[mine]])
        yield from self.columns(prefix + "down_proj", version)

# SPDX-License-Identifier: Apache-2.0
"""The engines' models: a few lines of torch each, laid out as engines do. Columns of a projection are shared out to the
engine's ranks, projections that read the same input are one parameter. ``sources`` says which boxes of which tensors of the
checkpoint a parameter is made of, in the order of its bytes.

        trainer (transformers)                       engine, rank 1 of 2
        q_proj [256, 256]   rows 128..256 ─────────► qkv_proj rows   0..128
        k_proj [128, 256]   rows  64..128 ─────────►          rows 128..192
        v_proj [128, 256]   rows  64..128 ─────────►          rows 192..256

Qwen2's parameters are called and stacked as those of SGLang and vLLM, which weft knows. GPT-2's linears keep the
checkpoint's form, [in, out]: a rank takes columns, which lie strided in the tensor, and the columns of query, key and
value stand behind one another, [3, in, out / tp].
"""
from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn


class Box(NamedTuple):
    """[lo, hi) of a tensor of the checkpoint, of that shape."""
    tensor: str
    shape: tuple[int, ...]
    lo: tuple[int, ...]
    hi: tuple[int, ...]


Sources = dict[str, list[Box]]  # by parameter


def whole(tensor: str, *shape: int) -> Box:
    return Box(tensor, shape, (0,) * len(shape), shape)


class Ranks(NamedTuple):
    """The processes of one engine."""
    rank: int
    size: int

    def part(self, n: int) -> "tuple[int, int]":
        return self.rank * n // self.size, (self.rank + 1) * n // self.size

    def rows(self, tensor: str, n: int, *rest: int) -> Box:
        """This rank's of dimension 0."""
        lo, hi = self.part(n)
        return Box(tensor, (n, *rest), (lo, *(0 for _ in rest)), (hi, *rest))

    def columns(self, tensor: str, m: int, n: int, first: int = 0, of: int = 0) -> Box:
        """This rank's of columns [first, first + n), of a tensor [m, of] (0: [m, n])."""
        lo, hi = self.part(n)
        return Box(tensor, (m, of or n), (0, first + lo), (m, first + hi))

    def summed(self, x: Tensor) -> Tensor:
        """All ranks have a part of a sum. In 32 bits, which two of them add in either order."""
        if self.size == 1:
            return x
        total = x.float()
        dist.all_reduce(total)
        return total.to(x.dtype)

    def gathered(self, x: Tensor) -> Tensor:
        """All ranks have a part of the last dimension."""
        if self.size == 1:
            return x
        parts = [torch.empty_like(x) for _ in range(self.size)]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts, dim=-1)


class Cache:
    """Keys and values of what was read so far: a layer each, [batch, heads, tokens, width]."""

    def __init__(self, layers: int, batch: int, heads: int, tokens: int, width: int, dtype: torch.dtype):
        self.keys, self.values = torch.zeros(2, layers, batch, heads, tokens, width, dtype=dtype).unbind()
        self.read = 0

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Puts k and v of the tokens after those that were read, and gives what q sees of all of them."""
        end = self.read + k.shape[2]
        assert self.read == 0 or k.shape[2] == 1  # the mask is for all at first, then for one at a time
        self.keys[layer, :, :, self.read:end], self.values[layer, :, :, self.read:end] = k, v
        return F.scaled_dot_product_attention(q, self.keys[layer, :, :, :end], self.values[layer, :, :, :end],
                                              is_causal=self.read == 0, enable_gqa=q.shape[1] != k.shape[1])


def _heads(x: Tensor, width: int) -> Tensor:
    return x.unflatten(-1, (-1, width)).transpose(1, 2)


def _joined(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)


class Model(nn.Module):
    """Base of both. ``forward`` reads tokens [batch, n] that follow those in the cache (none, or one at a time),
    and gives the logits of the next."""

    def __init__(self, config: "dict[str, Any]", ranks: Ranks):
        super().__init__()
        self.config, self.ranks = config, ranks

    def sources(self) -> Sources:
        raise NotImplementedError

    def cache(self, batch: int, tokens: int) -> Cache:
        raise NotImplementedError

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype


# ---- Qwen2

class Norm(nn.Module):
    def __init__(self, width: int, epsilon: float):
        super().__init__()
        self.weight, self.epsilon = nn.Parameter(torch.ones(width)), epsilon

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return wide.to(x.dtype) * self.weight


class Attention(nn.Module):
    def __init__(self, c: "dict[str, Any]", ranks: Ranks, layer: int):
        super().__init__()
        hidden, self.width = c["hidden_size"], c["hidden_size"] // c["num_attention_heads"]
        self.q = c["num_attention_heads"] // ranks.size * self.width
        self.kv = c["num_key_value_heads"] // ranks.size * self.width
        self.qkv_proj = nn.Linear(hidden, self.q + 2 * self.kv)
        self.o_proj = nn.Linear(self.q, hidden, bias=False)
        self.ranks, self.layer = ranks, layer

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor, cache: Cache) -> Tensor:
        q, k, v = (_heads(part, self.width) for part in self.qkv_proj(x).split([self.q, self.kv, self.kv], dim=-1))
        seen = cache.attend(self.layer, _rotated(q, cosine, sine), _rotated(k, cosine, sine), v)
        return self.ranks.summed(self.o_proj(_joined(seen)))


class Mlp(nn.Module):
    def __init__(self, c: "dict[str, Any]", ranks: Ranks):
        super().__init__()
        hidden, inner = c["hidden_size"], c["intermediate_size"] // ranks.size
        self.gate_up_proj = nn.Linear(hidden, 2 * inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)
        self.ranks = ranks

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up_proj(x).chunk(2, dim=-1)
        return self.ranks.summed(self.down_proj(F.silu(gate) * up))


class Layer(nn.Module):
    def __init__(self, c: "dict[str, Any]", ranks: Ranks, layer: int):
        super().__init__()
        self.self_attn, self.mlp = Attention(c, ranks, layer), Mlp(c, ranks)
        self.input_layernorm = Norm(c["hidden_size"], c["rms_norm_eps"])
        self.post_attention_layernorm = Norm(c["hidden_size"], c["rms_norm_eps"])

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor, cache: Cache) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cosine, sine, cache)
        return x + self.mlp(self.post_attention_layernorm(x))


def _rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    low, high = x.float().chunk(2, dim=-1)
    return torch.cat([low * cosine - high * sine, high * cosine + low * sine], dim=-1).to(x.dtype)


class Trunk(nn.Module):
    """What the checkpoint calls ``model``: all but the head."""

    def __init__(self, c: "dict[str, Any]", ranks: Ranks):
        super().__init__()
        self.ranks, (lo, hi) = ranks, ranks.part(c["vocab_size"])
        self.first = lo
        self.embed_tokens = nn.Embedding(hi - lo, c["hidden_size"])
        self.layers = nn.ModuleList(Layer(c, ranks, layer) for layer in range(c["num_hidden_layers"]))
        self.norm = Norm(c["hidden_size"], c["rms_norm_eps"])
        half = c["hidden_size"] // c["num_attention_heads"] // 2
        self.turns = c["rope_theta"] ** (-torch.arange(half, dtype=torch.float32) / half)

    def forward(self, tokens: Tensor, cache: Cache) -> Tensor:
        own = tokens - self.first  # a token is in one rank's rows, and zero in the others'
        mine = (own >= 0) & (own < self.embed_tokens.num_embeddings)
        x = self.ranks.summed(self.embed_tokens(own.where(mine, torch.zeros_like(own))) * mine[..., None])
        angles = torch.arange(cache.read, cache.read + tokens.shape[1])[:, None] * self.turns
        for layer in self.layers:
            x = layer(x, angles.cos(), angles.sin(), cache)
        cache.read += tokens.shape[1]
        return self.norm(x[:, -1])


class Qwen2(Model):
    def __init__(self, config: "dict[str, Any]", ranks: Ranks):
        super().__init__(config, ranks)
        self.model = Trunk(config, ranks)
        lo, hi = ranks.part(config["vocab_size"])
        self.lm_head = nn.Linear(config["hidden_size"], hi - lo, bias=False)

    def forward(self, tokens: Tensor, cache: Cache) -> Tensor:
        return self.ranks.gathered(self.lm_head(self.model(tokens, cache)).float())

    def cache(self, batch: int, tokens: int) -> Cache:
        c = self.config
        return Cache(c["num_hidden_layers"], batch, c["num_key_value_heads"] // self.ranks.size, tokens,
                     c["hidden_size"] // c["num_attention_heads"], self.dtype)

    def sources(self) -> Sources:
        c, r = self.config, self.ranks
        hidden, inner, vocab = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
        kv = hidden // c["num_attention_heads"] * c["num_key_value_heads"]
        found = {"model.embed_tokens.weight": [r.rows("model.embed_tokens.weight", vocab, hidden)],
                 "model.norm.weight": [whole("model.norm.weight", hidden)],
                 "lm_head.weight": [r.rows("lm_head.weight", vocab, hidden)]}
        for layer in range(c["num_hidden_layers"]):
            at = f"model.layers.{layer}."
            attn, mlp = at + "self_attn.", at + "mlp."
            stack = (("q_proj", hidden), ("k_proj", kv), ("v_proj", kv))
            found[attn + "qkv_proj.weight"] = [r.rows(f"{attn}{kind}.weight", n, hidden) for kind, n in stack]
            found[attn + "qkv_proj.bias"] = [r.rows(f"{attn}{kind}.bias", n) for kind, n in stack]
            found[attn + "o_proj.weight"] = [r.columns(attn + "o_proj.weight", hidden, hidden)]
            found[mlp + "gate_up_proj.weight"] = [r.rows(f"{mlp}{kind}_proj.weight", inner, hidden) for kind in ("gate", "up")]
            found[mlp + "down_proj.weight"] = [r.columns(mlp + "down_proj.weight", hidden, inner)]
            for norm in ("input_layernorm.weight", "post_attention_layernorm.weight"):
                found[at + norm] = [whole(at + norm, hidden)]
        return found


# ---- GPT-2

class Gpt2Layer(nn.Module):
    def __init__(self, c: "dict[str, Any]", ranks: Ranks, layer: int):
        super().__init__()
        hidden, own = c["n_embd"], c["n_embd"] // ranks.size
        self.width, self.ranks, self.layer = hidden // c["n_head"], ranks, layer
        self.qkv, self.qkv_bias = nn.Parameter(torch.zeros(3, hidden, own)), nn.Parameter(torch.zeros(3, own))
        self.out, self.out_bias = nn.Parameter(torch.zeros(own, hidden)), nn.Parameter(torch.zeros(hidden))
        self.up, self.up_bias = nn.Parameter(torch.zeros(hidden, 4 * own)), nn.Parameter(torch.zeros(4 * own))
        self.down, self.down_bias = nn.Parameter(torch.zeros(4 * own, hidden)), nn.Parameter(torch.zeros(hidden))
        self.ln_1, self.ln_2 = (nn.LayerNorm(hidden, c["layer_norm_epsilon"]) for _ in range(2))

    def forward(self, x: Tensor, cache: Cache) -> Tensor:
        y = self.ln_1(x)
        q, k, v = (_heads(y @ self.qkv[i] + self.qkv_bias[i], self.width) for i in range(3))
        x = x + self.ranks.summed(_joined(cache.attend(self.layer, q, k, v)) @ self.out) + self.out_bias
        inner = F.gelu(self.ln_2(x) @ self.up + self.up_bias, approximate="tanh")
        return x + self.ranks.summed(inner @ self.down) + self.down_bias


class Gpt2(Model):
    """Embeddings, which are the head too, are whole on each rank."""

    def __init__(self, config: "dict[str, Any]", ranks: Ranks):
        super().__init__(config, ranks)
        self.wte = nn.Embedding(config["vocab_size"], config["n_embd"])
        self.wpe = nn.Embedding(config["n_positions"], config["n_embd"])
        self.h = nn.ModuleList(Gpt2Layer(config, ranks, layer) for layer in range(config["n_layer"]))
        self.ln_f = nn.LayerNorm(config["n_embd"], config["layer_norm_epsilon"])

    def forward(self, tokens: Tensor, cache: Cache) -> Tensor:
        x = self.wte(tokens) + self.wpe(torch.arange(cache.read, cache.read + tokens.shape[1]))
        for layer in self.h:
            x = layer(x, cache)
        cache.read += tokens.shape[1]
        return F.linear(self.ln_f(x[:, -1]), self.wte.weight).float()

    def cache(self, batch: int, tokens: int) -> Cache:
        c = self.config
        return Cache(c["n_layer"], batch, c["n_head"] // self.ranks.size, tokens, c["n_embd"] // c["n_head"], self.dtype)

    def sources(self) -> Sources:
        c, r = self.config, self.ranks
        hidden = c["n_embd"]
        found = {"wte.weight": [whole("transformer.wte.weight", c["vocab_size"], hidden)],
                 "wpe.weight": [whole("transformer.wpe.weight", c["n_positions"], hidden)]}
        for layer in range(c["n_layer"]):
            own, at = f"h.{layer}.", f"transformer.h.{layer}."
            attn, mlp = at + "attn.", at + "mlp."
            lo, hi = r.part(hidden)
            found[own + "qkv"] = [r.columns(attn + "c_attn.weight", hidden, hidden, i * hidden, 3 * hidden) for i in range(3)]
            found[own + "qkv_bias"] = [Box(attn + "c_attn.bias", (3 * hidden,), (i * hidden + lo,), (i * hidden + hi,))
                                       for i in range(3)]
            found[own + "out"] = [r.rows(attn + "c_proj.weight", hidden, hidden)]
            found[own + "up"] = [r.columns(mlp + "c_fc.weight", hidden, 4 * hidden)]
            found[own + "up_bias"] = [r.rows(mlp + "c_fc.bias", 4 * hidden)]
            found[own + "down"] = [r.rows(mlp + "c_proj.weight", 4 * hidden, hidden)]
            found[own + "out_bias"] = [whole(attn + "c_proj.bias", hidden)]
            found[own + "down_bias"] = [whole(mlp + "c_proj.bias", hidden)]
        for norm in ("ln_f", *(f"h.{layer}.{name}" for layer in range(c["n_layer"]) for name in ("ln_1", "ln_2"))):
            for kind in ("weight", "bias"):
                found[f"{norm}.{kind}"] = [whole(f"transformer.{norm}.{kind}", hidden)]
        return found


MODELS: "dict[str, type[Model]]" = {"qwen2": Qwen2, "gpt2": Gpt2}

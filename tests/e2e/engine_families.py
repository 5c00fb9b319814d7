# SPDX-License-Identifier: Apache-2.0
"""engine_layout.py's independent loader, for the classes that differ from Llama in names and in what is fused on disk."""
import numpy

from engine_layout import Engine, Served, zeroes_behind

NORMS = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")


class Plain(Engine):
    """Mistral; Gemma 2 and 3, whose embedding is the head."""
    embedding_whole = False

    def parameters(self):
        n = 1 if self.embedding_whole and not self.vllm else self.embedding_tp()
        if n == 1 and self.embedding_whole:
            yield from self.copied("model.embed_tokens.weight")  # not rounded up to 64 rows either
        else:
            yield from self.vocabulary("model.embed_tokens.weight", n)
        for layer in range(self.config["num_hidden_layers"]):
            prefix = f"model.layers.{layer}."
            yield from self.attention(prefix + "self_attn.")
            yield from self.feed_forward(prefix)
            for norm in NORMS:
                yield from self.copied(f"{prefix}{norm}.weight")
        yield from self.copied("model.norm.weight")
        if "lm_head.weight" in self.names:
            yield from self.vocabulary("lm_head.weight", self.whole_tp)

    def embedding_tp(self):
        return self.whole_tp

    def feed_forward(self, prefix):
        yield from self.mlp(prefix + "mlp.", self.whole_tp)


class WholeEmbedding(Plain):
    embedding_whole = True


class Mixtral(Plain):
    EXPERT_PARTS = {"gate": "w1", "up": "w3", "down": "w2"}

    def __init__(self, config, infer, served):
        sizes = {"num_experts": config["num_local_experts"], "moe_intermediate_size": config["intermediate_size"]}
        super().__init__({**config, **sizes}, infer, served)

    def feed_forward(self, prefix):
        yield from self.experts(prefix + "block_sparse_moe.")


class Qwen2Moe(Plain):
    def feed_forward(self, prefix):
        yield from self.experts(prefix + "mlp.")
        yield from self.mlp(prefix + "mlp.shared_expert.", self.shared_tp)
        yield from self.copied(prefix + "mlp.shared_expert_gate.weight")


class Phi3(Plain):
    """q over k over v, and gate over up, each one tensor on disk."""

    def attention(self, prefix):
        config, n = self.config, self.attention_tp
        dim = config["hidden_size"] // config["num_attention_heads"]
        ends = numpy.cumsum([config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim])

        def take(rank, tensors):
            queries, first, count = self.heads(rank % n)
            q, k, v = numpy.split(tensors[0], ends)
            kv = slice(first * dim, (first + count) * dim)
            return numpy.concatenate([q[rank % n * queries * dim:][:queries * dim], k[kv], v[kv]])

        yield from self.linear(prefix + "qkv_proj.weight", [prefix + "qkv_proj.weight"], take)
        yield from self.columns(prefix + "o_proj", n)


class Gpt2(Plain):
    """Conv1D: every linear is [in, out] on disk."""

    def parameters(self):
        yield from self.vocabulary("transformer.wte.weight", self.whole_tp)
        yield from self.copied("transformer.wpe.weight")
        for layer in range(self.config["n_layer"]):
            prefix = f"transformer.h.{layer}."
            for name in ("ln_1", "ln_2"):
                yield from self.both(prefix + name, lambda rank, tensors: tensors[0])
            yield from self.both(prefix + "attn.c_attn", lambda rank, tensors: self.part(rank, tensors[0].T, 3))
            yield from self.both(prefix + "mlp.c_fc", lambda rank, tensors: self.part(rank, tensors[0].T, 1))
            for name in ("attn.c_proj", "mlp.c_proj"):  # its bias is added once, to the sum
                yield from self.linear(f"{prefix}{name}.weight", [f"{prefix}{name}.weight"],
                                       lambda rank, tensors: self.part(rank, tensors[0], 1).T)
                yield from self.copied(f"{prefix}{name}.bias")
        yield from self.both("transformer.ln_f", lambda rank, tensors: tensors[0])

    def both(self, name, take):
        for kind in ("weight", "bias"):
            yield from self.linear(f"{name}.{kind}", [f"{name}.{kind}"], take)

    def part(self, rank, matrix, parts):
        """The rank's rows of each of so many parts."""
        each = matrix.reshape(parts, self.whole_tp, -1, *matrix.shape[1:])
        return each[:, rank % self.whole_tp].reshape(-1, *matrix.shape[1:])


class GptOss(Plain):
    """Tensors of all experts; gate and up in turn, row by row."""

    def parameters(self):
        for rank, name, value in super().parameters():
            if self.vllm:
                for old, new in ((".self_attn.", ".attn."), (".embed_tokens.", ".embedding."), ("_weight_bias", "_bias")):
                    name = name.replace(old, new)
            yield rank, name, value

    def embedding_tp(self):
        return self.attention_tp

    def attention(self, prefix):
        yield from self.rows(prefix + "sinks", [prefix + "sinks"], self.attention_tp)
        yield from super().attention(prefix)

    def feed_forward(self, prefix):
        here, slots = prefix + "mlp.experts.", prefix + "mlp." + self.slots
        yield from self.copied(prefix + "mlp.router.weight")
        yield from self.copied(prefix + "mlp.router.bias")
        plain = here + "gate_up_proj" in self.names  # [in, out]
        turned = plain and self.infer.get("expert_weights") != "in_out"
        for kind, param in (("", "weight"),) if plain else (("_blocks", "weight"), ("_scales", "weight_scale")):
            for tensor, name, axis in (("gate_up_proj", "w13", 2 if plain else 1), ("down_proj", "w2", 1 if plain else 2)):
                def take(rank, tensors, axis=axis):
                    made = self.hidden(self.mine(rank, tensors[0], axis), 3 - axis)
                    return made.swapaxes(1, 2) if turned else made

                yield from self.linear(f"{slots}{name}_{param}", [here + tensor + kind], take)
        yield from self.linear(slots + "w13_weight_bias", [here + "gate_up_proj_bias"],
                               lambda rank, tensors: self.mine(rank, tensors[0], 1))
        yield from self.linear(slots + "w2_weight_bias", [here + "down_proj_bias"], self.first)

    def pads(self):
        """What M/Q and H are rounded up to."""
        return tuple(map(int, self.infer.get("mxfp4_pad", "1x1").split("x")))

    def of_rank(self, rank, array):
        each = len(array) // self.ep
        return array[rank // self.expert_tp % self.ep * each:][:each]

    def mine(self, rank, array, axis):
        """Its experts, and of M as many whole blocks as the others or fewer."""
        size, n = self.config["intermediate_size"], self.expert_tp
        unit = 32 if "quantization_config" in self.config else 1
        array = self.of_rank(rank, array)
        if array.ndim == 4:  # 16 bytes a block
            array = array.reshape(*array.shape[:2], array.shape[2] * 16)
        lines = array.shape[axis] * unit // size  # of this array a block is
        each = -(-size // unit // n) * lines
        first = rank % n * each
        part = array.take(range(first, array.shape[axis])[:each], axis)
        room = -(-(size // n) // self.pads()[0]) * self.pads()[0] * lines // unit
        return zeroes_behind(part, axis, room)

    def hidden(self, array, axis):
        size = self.config["hidden_size"]
        room = -(-size // self.pads()[1]) * self.pads()[1]
        return zeroes_behind(array, axis, array.shape[axis] * room // size)

    def first(self, rank, tensors):
        """Added once, to the sum."""
        mine = self.hidden(self.of_rank(rank, tensors[0]), 1)
        return mine if rank % self.expert_tp == 0 else numpy.zeros_like(mine)


LOADERS = {"MistralForCausalLM": Plain, "MixtralForCausalLM": Mixtral, "Phi3ForCausalLM": Phi3,
           "Gemma2ForCausalLM": Plain, "Gemma3ForCausalLM": WholeEmbedding, "Qwen2MoeForCausalLM": Qwen2Moe,
           "GPT2LMHeadModel": Gpt2, "GptOssForCausalLM": GptOss}


class FamilyServed(Served):
    """In which dtype an engine of these classes keeps a tensor, and how its loader changes it."""

    def dtype(self, name, stored):
        if stored == "U8":
            return stored
        quantised = self.config.get("quantization_config")
        if "experts." in name and name.endswith("_proj_bias") and self.infer.get("names") != "vllm" and not quantised:
            return "F32"  # SGLang's
        if name.endswith("mlp.router.weight") and "gate" in self.infer:
            return self.infer["gate"]
        return super().dtype(name, stored)

    def how(self, name, scales):
        stored = self.names.dtypes[name]
        word = self.word(name)
        return (word, self.dtype(name, stored)) if word else super().how(name, scales)

    def word(self, name):
        """As `weft model layout` calls it; None: copied or converted."""
        config, infer = self.config, self.infer
        if name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
            return "transpose"
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            return None if infer.get("expert_weights") == "in_out" else "transpose"
        if "mxfp4_pad" not in infer or not name.endswith(("_blocks", "_scales")):
            return None
        bytes_a_block = 16 if name.endswith("_blocks") else 1
        pad, pad_hidden = map(int, infer["mxfp4_pad"].split("x"))
        n = int(infer["tp"]) // int(infer.get("ep", 1))
        size, unit = (config["hidden_size"], pad_hidden) if ".gate_up" in name else (config["intermediate_size"] // n, pad)
        room = -(-size // unit) * unit
        # of H all is there; of M a rank has less than its room wherever these tests pad
        return f"pad {room // 32 * bytes_a_block}" if room != config["hidden_size"] or ".down" in name else None

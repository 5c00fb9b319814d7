# SPDX-License-Identifier: Apache-2.0
"""engine_layout.py's independent loader, for the classes that differ from Llama in names and in what is fused on disk."""
import numpy

from engine_layout import Engine

NORMS = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")


class Plain(Engine):
    """Mistral; Gemma 2 and 3, whose embedding is the head."""
    embedding_whole = False

    def parameters(self):
        n = 1 if self.embedding_whole and not self.vllm else self.whole_tp
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


LOADERS = {"MistralForCausalLM": Plain, "MixtralForCausalLM": Mixtral, "Phi3ForCausalLM": Phi3,
           "Gemma2ForCausalLM": Plain, "Gemma3ForCausalLM": WholeEmbedding, "Qwen2MoeForCausalLM": Qwen2Moe}

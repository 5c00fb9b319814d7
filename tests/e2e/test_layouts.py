# SPDX-License-Identifier: Apache-2.0
"""Engine layouts of random small models of every family, at random parallel layouts and with the
options of engines, against the independent loader of engine_layout.py: every element of a parameter
is the one that a loader would put there, made as it should be, every element of a tensor goes
somewhere, equal places have equal layouts, and what cannot be cut is refused, nothing else."""
import json
import random

import numpy
import pytest

import engine_layout
import job as jobs

SIMPLE = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Glm4ForCausalLM")  # never in fp8 blocks
DENSE = (*SIMPLE, "Qwen3ForCausalLM")
CLASSES = (*DENSE, "Qwen3MoeForCausalLM", "Glm4MoeForCausalLM", "Glm4MoeLiteForCausalLM",
           "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM")
ELEMENT_BYTES, SCALE = engine_layout.ELEMENT_BYTES, engine_layout.SCALE


def lines(*arguments):
    return [json.loads(line) for line in jobs.weft(*arguments).stdout.splitlines()]


def random_config(rng, family):
    unit = rng.choice((2, 4, 4, 6))
    kv = rng.choice((1, 2, 4))
    config = {"architectures": [family], "hidden_size": 4 * unit, "vocab_size": rng.choice((64, 100, 128)),
              "num_hidden_layers": rng.choice((1, 2, 3)), "torch_dtype": "bfloat16",
              "num_attention_heads": kv * rng.choice((1, 2, 4)), "tie_word_embeddings": rng.random() < 0.3}
    latent = family not in DENSE and not family.startswith(("Qwen3", "Glm4MoeF"))
    if family == "LlamaForCausalLM":
        config["mlp_bias"] = rng.random() < 0.5
    if not latent:
        config |= {"num_key_value_heads": kv, "head_dim": rng.choice((unit, 2 * unit)),
                   "attention_bias": rng.random() < 0.5}
    if family != "Qwen3MoeForCausalLM":
        config["intermediate_size"] = unit * rng.choice((4, 8, 3))
    if family not in DENSE:
        experts = rng.choice((2, 4, 8, 6, 5))
        config["num_experts" if family.startswith("Qwen3") else "n_routed_experts"] = experts
        config["moe_intermediate_size"] = unit * rng.choice((2, 4, 3))
    if family not in DENSE and not family.startswith("Qwen3"):
        config |= {"n_shared_experts": rng.choice((0, 1, 2)), "num_nextn_predict_layers": rng.choice((0, 1)),
                   "first_k_dense_replace": rng.randint(0, config["num_hidden_layers"])}
        config["weft_router_bias_cast"] = rng.random() < 0.3
        config["n_group"] = rng.choice((1, 2))
    if family == "Glm4MoeForCausalLM":
        config["use_qk_norm"] = rng.random() < 0.5
    if latent:
        config |= {"q_lora_rank": rng.choice((None, 2 * unit, 3 * unit)), "kv_lora_rank": rng.choice((unit, 3)),
                   "qk_nope_head_dim": unit, "qk_rope_head_dim": rng.choice((2, unit)),
                   "v_head_dim": rng.choice((unit, 2 * unit))}
        if config["hidden_size"] // config["num_attention_heads"] >= 2:
            config["weft_rotary_inv_freq"] = rng.random() < 0.3
    if family.startswith("Deepseek"):
        config["topk_method"] = rng.choice(("noaux_tc", "greedy"))
    if family in ("DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM"):
        config |= {"index_n_heads": 2, "index_head_dim": rng.choice((2, 6)), "q_lora_rank": 2 * unit,
                   "index_topk_freq": rng.choice((1, 2)), "index_skip_topk_offset": rng.choice((0, 2))}
    if config["tie_word_embeddings"] and (family in engine_layout.OWN_HEAD or rng.random() < 0.5):
        config["weft_own_lm_head"] = True
    if family not in SIMPLE and rng.random() < 0.5:
        config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [
            rng.choice((1, 2, unit, 3)), rng.choice((1, 2, unit))]}
    return config


def random_infer(rng, config):
    family = config["architectures"][0]
    vllm = rng.random() < 0.25
    infer = {"tp": rng.choice((1, 2, 4, 8))}
    if vllm:
        infer["names"] = "vllm"
        if config.get("weft_own_lm_head"):
            infer["untied"] = rng.choice((0, 1))
    if vllm or family not in SIMPLE:
        infer["dp"] = rng.choice([n for n in (1, 2, 4) if infer["tp"] % n == 0])
    if not vllm and family not in SIMPLE:
        infer["dp_lm_head"] = rng.choice((0, 1))
    if not vllm and family.startswith(("Deepseek", "GlmMoeDsa")) and rng.random() < 0.2:
        infer["embed_replicated"] = 1
    if family not in DENSE:
        infer["ep"] = rng.choice([n for n in (1, 2, 4, 8) if infer["tp"] % n == 0])
        if vllm:
            infer["ep"] = rng.choice((1, infer["tp"]))
            between = infer["ep"] > 1 and infer["dp"] > 1
            groups = config.get("n_group", 1) > 1 or infer["ep"] == 1
            infer["experts"] = rng.choice(("linear", "round_robin_a2a" if between else "round_robin")) if groups else "linear"
            infer["routed_experts"] = rng.choice((0, 1))
        else:
            infer["moe_dense_tp"] = rng.choice((0, 1))
        fusible = infer["ep"] == 1 and not vllm and config.get("n_shared_experts") == 1
        infer |= rng.choice(({}, {"gate": rng.choice(("F32", "F16"))}))
        infer |= rng.choice(({}, {}, {"expert_halves": "up_gate"}))
        infer |= rng.choice(({}, {}, {"a2a": 1}, {"fuse_shared": 1} if fusible else {}))
    if "index_n_heads" in config and rng.random() < 0.5:
        infer["indexer"] = "fused"
    if rng.random() < 0.3:
        infer["dtype"] = rng.choice(("F32", "F16", "BF16"))
    unit = config["hidden_size"] // 4
    if family not in SIMPLE and rng.random() < 0.4:
        infer["fp8"] = rng.choice((f"{rng.choice((1, 2, unit))}x{rng.choice((2, unit))}", "none"))
    return {key: str(value) for key, value in infer.items()}


def can_be_cut(config, infer):
    """The divisions an engine needs, said once more."""
    tp, ep, dp = (int(infer.get(key, 1)) for key in ("tp", "ep", "dp"))
    vllm = infer.get("names") == "vllm"
    attention, within = tp // dp, tp // ep
    whole = attention if vllm else tp
    dense = 1 if infer.get("moe_dense_tp") == "1" else whole
    apart = 1 if infer.get("a2a") == "1" else within if infer.get("fuse_shared") == "1" else whole
    family = config["architectures"][0]
    layers, first = config["num_hidden_layers"], config.get("first_k_dense_replace", 0)
    sparse = family not in DENSE and first < layers
    has_dense = family in DENSE or first > 0
    vocab = -(-config["vocab_size"] // 64) * 64
    embedding = whole if family in engine_layout.NO_ATTENTION_DP else attention
    wholes = [(config["num_attention_heads"], attention)]
    if infer.get("embed_replicated") != "1":
        wholes.append((vocab, embedding))
    if engine_layout.has_head(config, infer):
        over_all = infer.get("dp_lm_head") != "1" or family == "Glm4ForCausalLM"
        wholes.append((vocab, whole if over_all else attention))
    shared = config.get("moe_intermediate_size", 0) * config.get("n_shared_experts", 0)
    if "num_key_value_heads" in config:
        kv = config["num_key_value_heads"]
        wholes.append((kv, attention) if attention < kv else (attention, kv))
    if has_dense:
        wholes.append((config["intermediate_size"], dense))
    if sparse:
        wholes.append((config["moe_intermediate_size"], within))
        wholes.append((shared, apart))
    if family not in DENSE:  # whether or not a layer has them
        experts = config.get("num_experts") or config["n_routed_experts"]
        wholes.append((experts, ep) if not vllm or experts < ep else (0, 1))
    if any(number % divisor for number, divisor in wholes):
        return False
    block = engine_layout.target_block(config, infer)
    if not block:
        return True
    rows, columns = block
    aligned = []  # (size of a share, block)
    heads = config["num_attention_heads"] // attention
    if "num_key_value_heads" in config:
        dim = config["head_dim"]
        aligned += [(heads * dim, rows), (max(config["num_key_value_heads"] // attention, 1) * dim, rows)]
        aligned += [(heads * dim, columns)] if attention > 1 else []
    else:
        nope, rope, value = (config[key] for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
        if attention > 1:
            aligned += [(heads * (nope + rope), rows), (heads * (nope + value), rows), (heads * value, columns)]
        if config["q_lora_rank"]:
            aligned.append((config["q_lora_rank"], rows))

    def mlp(size, n):
        return [(size // n, rows)] + ([(size // n, columns)] if n > 1 else [])

    if has_dense:
        aligned += mlp(config["intermediate_size"], dense)
    if sparse:
        each = config["moe_intermediate_size"] // within
        aligned.append((each, rows))
        aligned += [(each, columns)] if tp > 1 else []
        aligned += mlp(shared, apart) if shared and infer.get("fuse_shared") != "1" else []
    return all(size % block == 0 for size, block in aligned)


class Numbered:
    """Whole tensors in which every element has its own number, from 1; 0 is a fill."""

    def __init__(self, tensors):
        self.shapes = {tensor["tensor"]: tensor["shape"] for tensor in tensors}
        self.dtypes = {tensor["tensor"]: tensor["dtype"] for tensor in tensors}
        self.first, self.count = {}, 1
        for name, shape in self.shapes.items():
            self.first[name] = self.count
            self.count += int(numpy.prod(shape))

    def __contains__(self, name):
        return name in self.shapes

    def full(self, name):
        shape = self.shapes[name]
        return numpy.arange(self.first[name], self.first[name] + int(numpy.prod(shape))).reshape(shape)


class ServedNumbers(engine_layout.Served):
    """As an engine keeps them: the number of an element, and of a block the number of its first."""

    def full(self, name):
        weight = name.removesuffix(SCALE)
        if weight == name or (name in self.names and self.source == self.target):
            return self.names.full(name)
        return self.names.full(weight)[::self.target[0], ::self.target[1]]

    def how(self, name, scales):
        """(make, dtype) that a piece of a tensor has; None for a copy."""
        weight = name.removesuffix(SCALE)
        stored = self.names.dtypes[name]
        wanted = "F8_E4M3" if self.blocks(weight) else self.dtype(name, stored)
        there, here = ("x".join(map(str, block)) if block else "" for block in (self.source, self.target))
        if name != weight or (there == here and self.blocks(name)):
            return None
        if self.blocks(name):
            words = ("requantise {0} {1}", "quantise {1}") if not scales else ("rescale {0} {1}", "scales {1}")
            return words[not there].format(there, here), "F32" if scales else wanted
        if stored == "F8_E4M3":
            return f"dequantise {there}", wanted
        return None if wanted == stored else ("convert", wanted)


def filled(served, pieces, sizes, used):
    """The parameters that the pieces make; what they read is marked in `used`."""
    numbers = served.names
    made = {name: numpy.zeros(size, dtype=numpy.int64) for name, size in sizes.items()}
    for piece in pieces:
        name, scales = piece["tensor"], piece["param"].endswith(SCALE)
        how = served.how(name, scales)
        assert (piece.get("make"), piece.get("to")) == (how or (None, None)), piece
        element = ELEMENT_BYTES[how[1] if how else numbers.dtypes[name]]
        box = tuple(slice(*pair) for pair in piece["src"])
        part = numbers.full(name)[box]
        used[part] = True
        if "scales" in piece:
            assert piece["scales"] == name + SCALE
            blocks = tuple(slice(pair.start // side, -(-pair.stop // side))
                           for pair, side in zip(box, served.source))
            used[numbers.full(piece["scales"])[blocks]] = True
        if how and scales:
            part = part[::served.target[0], ::served.target[1]]
        if how and how[0] == "transpose":
            part = part.swapaxes(-2, -1)
        if how and how[0].startswith("pad "):
            part = engine_layout.zeroes_behind(part.reshape(*part.shape[:2], -1), 2, int(how[0][4:]))
        part = part.reshape(-1)
        assert piece["bytes"] == part.size * element and piece["offset"] % element == 0, piece
        at = piece["offset"] // element
        assert not made[piece["param"]][at:at + part.size].any(), "written twice"
        made[piece["param"]][at:at + part.size] = part
    return made


def skipped(config, infer, name):
    """A tensor that the engine's class has no parameter for."""
    family = config["architectures"][0]
    if name == "lm_head.weight":
        return not engine_layout.has_head(config, infer)
    if infer.get("names") == "vllm" and family in ("Qwen3ForCausalLM", "Qwen3MoeForCausalLM"):
        return name.endswith(("inv_freq", "o_proj.bias"))
    if infer.get("names") != "vllm" and family == "LlamaForCausalLM" and ".mlp." in name:
        return name.endswith(".bias")
    return name.endswith("inv_freq")


def check(folder, config, infer):
    (folder / "config.json").write_text(json.dumps(config))
    spec = ",".join(f"{key}={value}" for key, value in infer.items())
    tensors = lines("model", "tensors", folder, "--json")
    numbered = Numbered(tensors)
    tp = int(infer["tp"])
    if not can_be_cut(config, infer):
        for rank in (0, tp - 1):
            done = jobs.weft("model", "layout", folder, "--infer", spec, "--rank", rank, "--json", check=False)
            assert done.returncode == 78 and not done.stdout, (config, spec)
            assert "E102" in done.stderr and ("cannot be" in done.stderr or "no multiple" in done.stderr)
        return False
    served = ServedNumbers(config, infer, numbered, None)
    want = [{} for _ in range(tp)]
    for rank, name, value in engine_layout.Engine(config, infer, served).parameters():
        want[rank][name] = value.reshape(-1)
    used = numpy.zeros(numbered.count, dtype=bool)
    for rank in range(tp):
        pieces = lines("model", "layout", folder, "--infer", spec, "--rank", rank, "--json")
        made = filled(served, pieces, {name: value.size for name, value in want[rank].items()}, used)
        for name, value in want[rank].items():
            assert (made[name] == value).all(), (config, spec, rank, name)
    for name in numbered.shapes:
        assert used[numbered.full(name)].any() != skipped(config, infer, name), (config, spec, name)
        assert used[numbered.full(name)].all() != skipped(config, infer, name), (config, spec, name)
    return True


@pytest.mark.parametrize("family", CLASSES)
def test_layout__of_random_models_is_what_a_loader_makes(tmp_path, family):
    rng = random.Random(f"layouts of {family}")
    blocks = 0 if family in SIMPLE else 8
    cut = cut_in_blocks = refused = 0
    while cut < 20 or cut_in_blocks < blocks or refused < 5:
        config = random_config(rng, family)
        infer = random_infer(rng, config)
        done = check(tmp_path, config, infer)
        cut, refused = cut + done, refused + (not done)
        cut_in_blocks += done and engine_layout.target_block(config, infer) is not None
        assert cut + refused < 400


def test_layout__replicas_of_one_place_are_equal(tmp_path):
    """With dp, ranks of equal attention place hold equal attention; with ep they differ only in experts."""
    config = jobs.CONFIGS["deepseek-fp8"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    spec = "tp=4,ep=2,dp=2,dp_lm_head=1,moe_dense_tp=1"
    ranks = [[json.dumps(piece) for piece in lines("model", "layout", tmp_path, "--infer", spec, "--rank", rank,
                                                   "--json")] for rank in range(4)]
    for rank in range(2):
        one, other = ({line for line in ranks[r] if "mlp.experts" not in line and "shared_experts" not in line}
                      for r in (rank, rank + 2))
        assert one == other
    assert not set(line for line in ranks[0] if "mlp.experts" in line) & set(ranks[2])
    again = [json.dumps(piece) for piece in lines("model", "layout", tmp_path, "--infer", "engines=3," + spec,
                                                  "--rank", 4 * 2 + 1, "--json")]
    assert again == ranks[1]

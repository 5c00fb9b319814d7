# SPDX-License-Identifier: Apache-2.0
"""Engine layouts of random small models of every family with experts, latent attention or fp8
blocks, at random parallel layouts, against the independent loader of engine_layout.py: every
element of a parameter is the one that a loader would put there, every element of a tensor goes
somewhere, equal places have equal layouts, and what cannot be cut is refused, nothing else."""
import json
import random

import numpy
import pytest

import engine_layout
import job as jobs

CLASSES = ("Qwen3ForCausalLM", "Qwen3MoeForCausalLM", "Glm4MoeForCausalLM", "Glm4MoeLiteForCausalLM",
           "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM")
ELEMENT_BYTES = engine_layout.ELEMENT_BYTES


def lines(*arguments):
    return [json.loads(line) for line in jobs.weft(*arguments).stdout.splitlines()]


def random_config(rng, family):
    unit = rng.choice((2, 4, 4, 6))
    kv = rng.choice((1, 2, 4))
    config = {"architectures": [family], "hidden_size": 4 * unit, "vocab_size": rng.choice((64, 100, 128)),
              "num_hidden_layers": rng.choice((1, 2, 3)), "torch_dtype": "bfloat16",
              "num_attention_heads": kv * rng.choice((1, 2, 4)), "tie_word_embeddings": rng.random() < 0.3}
    latent = not family.startswith(("Qwen3", "Glm4MoeF"))
    if not latent:
        config |= {"num_key_value_heads": kv, "head_dim": rng.choice((unit, 2 * unit)),
                   "attention_bias": rng.random() < 0.5}
    if family != "Qwen3MoeForCausalLM":
        config["intermediate_size"] = unit * rng.choice((4, 8, 3))
    if family != "Qwen3ForCausalLM":
        experts = rng.choice((2, 4, 8, 6))
        config["num_experts" if family.startswith("Qwen3") else "n_routed_experts"] = experts
        config["moe_intermediate_size"] = unit * rng.choice((2, 4, 3))
    if not family.startswith("Qwen3"):
        config |= {"n_shared_experts": rng.choice((0, 1, 2)), "num_nextn_predict_layers": rng.choice((0, 1)),
                   "first_k_dense_replace": rng.randint(0, config["num_hidden_layers"])}
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
    if rng.random() < 0.5:
        config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [
            rng.choice((1, 2, unit, 3)), rng.choice((1, 2, unit))]}
    return config


def random_infer(rng, family):
    infer = {"tp": rng.choice((1, 2, 4, 8))}
    infer["dp"] = rng.choice([n for n in (1, 2, 4) if infer["tp"] % n == 0])
    infer["dp_lm_head"] = rng.choice((0, 1))
    if family != "Qwen3ForCausalLM":
        infer["ep"] = rng.choice([n for n in (1, 2, 4, 8) if infer["tp"] % n == 0])
        infer["moe_dense_tp"] = rng.choice((0, 1))
    return {key: str(value) for key, value in infer.items()}


def can_be_cut(config, infer):
    """The divisions an engine needs, said once more."""
    tp, ep, dp = (int(infer.get(key, 1)) for key in ("tp", "ep", "dp"))
    attention, within = tp // dp, tp // ep
    dense = 1 if infer.get("moe_dense_tp") == "1" else tp
    family = config["architectures"][0]
    layers, first = config["num_hidden_layers"], config.get("first_k_dense_replace", 0)
    sparse = family != "Qwen3ForCausalLM" and first < layers
    has_dense = family == "Qwen3ForCausalLM" or first > 0
    vocab = -(-config["vocab_size"] // 64) * 64
    wholes = [(config["num_attention_heads"], attention), (vocab, attention)]
    if not config["tie_word_embeddings"] or family in engine_layout.OWN_HEAD:
        wholes.append((vocab, attention if infer["dp_lm_head"] == "1" else tp))
    shared = config.get("moe_intermediate_size", 0) * config.get("n_shared_experts", 0)
    if "num_key_value_heads" in config:
        kv = config["num_key_value_heads"]
        wholes.append((kv, attention) if attention < kv else (attention, kv))
    if has_dense:
        wholes.append((config["intermediate_size"], dense))
    if sparse:
        wholes.append((config["moe_intermediate_size"], within))
        wholes.append((shared, tp))
    if family != "Qwen3ForCausalLM":  # whether or not a layer has them
        wholes.append((config.get("num_experts") or config["n_routed_experts"], ep))
    if any(number % divisor for number, divisor in wholes):
        return False
    if "quantization_config" not in config:
        return True
    rows, columns = config["quantization_config"]["weight_block_size"]
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
        aligned += mlp(shared, tp) if shared else []
    return all(size % block == 0 for size, block in aligned)


class Numbered:
    """Whole tensors in which every element has its own number, from 1; 0 is a fill."""

    def __init__(self, tensors):
        self.shapes = {tensor["tensor"]: tensor["shape"] for tensor in tensors}
        self.bytes = {tensor["tensor"]: ELEMENT_BYTES[tensor["dtype"]] for tensor in tensors}
        self.first, self.count = {}, 1
        for name, shape in self.shapes.items():
            self.first[name] = self.count
            self.count += int(numpy.prod(shape))

    def __contains__(self, name):
        return name in self.shapes

    def full(self, name):
        shape = self.shapes[name]
        return numpy.arange(self.first[name], self.first[name] + int(numpy.prod(shape))).reshape(shape)


def filled(numbered, pieces, sizes):
    """The parameters that the pieces make."""
    made = {name: numpy.zeros(size, dtype=numpy.int64) for name, size in sizes.items()}
    for piece in pieces:
        element = numbered.bytes[piece["tensor"]]
        part = numbered.full(piece["tensor"])[tuple(slice(*pair) for pair in piece["src"])].reshape(-1)
        assert piece["bytes"] == part.size * element and piece["offset"] % element == 0
        at = piece["offset"] // element
        assert not made[piece["param"]][at:at + part.size].any(), "written twice"
        made[piece["param"]][at:at + part.size] = part
    return made


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
    want = [{} for _ in range(tp)]
    for rank, name, value in engine_layout.Engine(config, infer, numbered, numbered.full).parameters():
        want[rank][name] = value.reshape(-1)
    used = numpy.zeros(numbered.count, dtype=bool)
    for rank in range(tp):
        pieces = lines("model", "layout", folder, "--infer", spec, "--rank", rank, "--json")
        made = filled(numbered, pieces, {name: value.size for name, value in want[rank].items()})
        for name, value in want[rank].items():
            assert (made[name] == value).all(), (config, spec, rank, name)
            used[value] = True
    for name in numbered.shapes:
        assert used[numbered.full(name)].all() != name.endswith("inv_freq"), (config, spec, name)
    return True


@pytest.mark.parametrize("family", CLASSES)
def test_layout__of_random_models_is_what_a_loader_makes(tmp_path, family):
    rng = random.Random(f"layouts of {family}")
    cut = cut_in_blocks = refused = 0
    while cut < 25 or cut_in_blocks < 8 or refused < 5:
        config = random_config(rng, family)
        done = check(tmp_path, config, random_infer(rng, family))
        cut, refused = cut + done, refused + (not done)
        cut_in_blocks += done and "quantization_config" in config
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

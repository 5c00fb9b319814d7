# SPDX-License-Identifier: Apache-2.0
"""Layouts of the families beside Llama's against an independent loader (engine_families.py): every element of every
parameter on every rank has the number of the element of the checkpoint that a loader would put there."""
import json

import numpy
import pytest

import engine_families
import job as jobs
from test_layouts import Numbered, ServedNumbers, filled, lines

SMALL = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 100, "torch_dtype": "bfloat16"}
HEADS = {**SMALL, "head_dim": 6}
CONFIGS = {
    "MistralForCausalLM": HEADS,
    "MixtralForCausalLM": {**SMALL, "num_local_experts": 4},
    "Phi3ForCausalLM": SMALL,
    "Gemma2ForCausalLM": {**HEADS, "attention_bias": True},
    "Gemma3ForCausalLM": {**HEADS, "num_key_value_heads": 1},
    "Qwen2MoeForCausalLM": {**SMALL, "num_experts": 4, "moe_intermediate_size": 8, "shared_expert_intermediate_size": 12},
}
SPECS = [{"tp": "4", "dtype": "F32"}, {"tp": "2", "names": "vllm"}]
EXPERTS = [{"tp": "4", "ep": "2"}, {"tp": "2", "ep": "2", "names": "vllm", "gate": "F32",
                                         "routed_experts": "1"}]
CASES = [(family, CONFIGS[family], infer) for family in CONFIGS
         for infer in SPECS + (EXPERTS if "Moe" in family or family[:3] == "Mix" else [])]
GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 10, "vocab_size": 100, "torch_dtype": "bfloat16"}
GPT_OSS = {**SMALL, "hidden_size": 64, "head_dim": 8, "num_local_experts": 4, "intermediate_size": 64, "attention_bias": True}
MXFP4 = {**GPT_OSS, "intermediate_size": 160, "quantization_config": {"quant_method": "mxfp4"}}
CASES += [("GPT2LMHeadModel", GPT2, infer) for infer in SPECS]
CASES += [("GptOssForCausalLM", GPT_OSS, infer) for infer in (
    *SPECS, {"tp": "4", "ep": "4", "names": "vllm", "routed_experts": "1", "gate": "F32"},
    {"tp": "2", "expert_weights": "in_out"}, {"tp": "4", "dp": "2", "expert_weights": "in_out", "dtype": "F16"})]
CASES += [("GptOssForCausalLM", MXFP4, infer) for infer in (
    {"tp": "2", "ep": "2"}, {"tp": "2", "mxfp4_pad": "64x1", "gate": "F32"}, {"tp": "4", "mxfp4_pad": "128x256"},
    {"tp": "4", "ep": "2", "mxfp4_pad": "64x128"}, {"tp": "4", "ep": "4", "names": "vllm", "mxfp4_pad": "64x1"})]


class Numbers(engine_families.FamilyServed, ServedNumbers):
    """Every element its own number."""


@pytest.mark.parametrize("family,config,infer", CASES,
                         ids=["-".join([family[:-11], "mxfp4" * ("quantization_config" in config), *infer.values()])
                              for family, config, infer in CASES])
def test_layout__is_what_a_loader_makes(tmp_path, family, config, infer):
    config = {"architectures": [family], **config}
    (tmp_path / "config.json").write_text(json.dumps(config))
    spec = ",".join(f"{key}={value}" for key, value in infer.items())
    numbered = Numbered(lines("model", "tensors", tmp_path, "--json"))
    served = Numbers(config, infer, numbered, None)
    want = [{} for _ in range(int(infer["tp"]))]
    for rank, name, value in engine_families.LOADERS[family](config, infer, served).parameters():
        want[rank][name] = value.reshape(-1)
    used = numpy.zeros(numbered.count, dtype=bool)
    for rank, parameters in enumerate(want):
        pieces = lines("model", "layout", tmp_path, "--infer", spec, "--rank", rank, "--json")
        made = filled(served, pieces, {name: value.size for name, value in parameters.items()}, used)
        for name, value in parameters.items():
            assert (made[name] == value).all(), (rank, name)
    assert used[1:].all()

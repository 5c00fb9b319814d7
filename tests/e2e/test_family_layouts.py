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
CASES = [(family, infer) for family in CONFIGS for infer in SPECS + (EXPERTS if "Moe" in family or family[:3] == "Mix" else [])]


@pytest.mark.parametrize("family,infer", CASES, ids=["-".join([family[:-11], *infer.values()]) for family, infer in CASES])
def test_layout__is_what_a_loader_makes(tmp_path, family, infer):
    config = {"architectures": [family], **CONFIGS[family]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    spec = ",".join(f"{key}={value}" for key, value in infer.items())
    numbered = Numbered(lines("model", "tensors", tmp_path, "--json"))
    served = ServedNumbers(config, infer, numbered, None)
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

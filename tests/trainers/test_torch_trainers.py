# SPDX-License-Identifier: Apache-2.0
"""Torch's trainers: its own classes cut the same small models (torch_locals.py), and each element of each local
parameter is the element of the checkpoint that Weft says, or padding where Weft says nothing."""
import re

import numpy
import pytest

import held
import job as jobs

CASES = [
    # model, what is other in its config, --train
    ("qwen2", {}, "world=4,source=dtensor,mesh=4"),
    ("qwen2", {}, "world=5,source=dtensor,mesh=5"),
    ("qwen2", {}, "world=6,source=dtensor,mesh=2/3/1"),
    ("qwen3", {}, "world=4,source=dtensor,mesh=2/2"),
    ("qwen3", {}, "world=6,source=dtensor,mesh=3/2"),
    ("qwen3", {}, "world=6,source=dtensor,mesh=2/3"),  # heads are cut
    ("llama", {}, "world=8,source=dtensor,mesh=2/2/2"),
    ("llama", {"hidden_size": 72}, "world=10,source=dtensor,mesh=5/2"),
    ("qwen3-moe", {}, "world=6,source=dtensor,mesh=3/2"),
    ("qwen3-moe", {}, "world=16,source=dtensor,mesh=16"),  # experts by rows, and shards of the gate without rows
    ("qwen3-moe", {"num_experts": 2}, "world=8,source=dtensor,mesh=4/2"),
    ("qwen3-moe", {}, "world=4,source=dtensor,mesh=2/2,ep=2"),
    ("qwen3-moe", {}, "world=6,source=dtensor,mesh=3/2,ep=2"),  # a shard without experts
    ("qwen3-moe", {}, "world=8,source=dtensor,mesh=2/2/2,ep=4"),
    ("qwen3-moe", {}, "world=16,source=dtensor,mesh=8/2,ep=4"),
    ("qwen2", {}, "world=4,source=fsdp1"),
    ("qwen2", {}, "world=4,source=fsdp1,orig=1"),
    ("qwen2", {"hidden_size": 84, "num_attention_heads": 6}, "world=5,source=fsdp1,orig=1"),
    ("llama", {"hidden_size": 72, "intermediate_size": 175}, "world=3,source=fsdp1"),
    ("llama", {"hidden_size": 72, "intermediate_size": 175}, "world=3,source=fsdp1,orig=1"),
    ("qwen3-moe", {"moe_intermediate_size": 47}, "world=6,source=fsdp1"),
    ("qwen3-moe", {"moe_intermediate_size": 47, "hidden_size": 60}, "world=6,source=fsdp1,orig=1"),
]


def as_torch(case, model):
    kind, _, text = case
    spec = jobs.spec(text)
    mesh = [int(part) for part in spec.get("mesh", "1").split("/")]
    if len(mesh) < 3:
        mesh = [1, *mesh] if len(mesh) == 2 else [1, *mesh, 1]
    return {"source": spec["source"], "world": int(spec["world"]), "mesh": mesh, "ep": int(spec.get("ep", 1)),
            "orig": int(spec.get("orig", 0)), "dtype": jobs.CONFIGS[kind]["torch_dtype"],
            "tensors": held.tensors_of(model)}


@pytest.fixture(scope="module")
def locals_of_torch(models, tmp_path_factory):
    """By the number of a case and the rank: {parameter: (shape, elements)}. All in one process of torch, which takes
    seconds to load."""
    cases = [as_torch(case, models(case[0], **case[1])) for case in CASES]
    return held.real("torch_locals.py", cases, tmp_path_factory.mktemp("torch"))


def called(source, name):
    """What Weft calls torch's parameter: the three of experts as torchtitan does, a flat one by its layer."""
    if source == "fsdp1":
        return name.removeprefix("model.")
    return re.sub(r"^model\.(layers\.\d+)\.mlp\.experts\.", r"\1.moe.experts.", name)


@pytest.mark.parametrize("number", range(len(CASES)), ids=held.names(CASES))
def test_torch__has_each_element_where_weft_says(number, models, locals_of_torch):
    """A shard without elements is a parameter of torch's and none of Weft's; padding is in no box."""
    kind, changes, spec = CASES[number]
    model = models(kind, **changes)
    tensors = held.tensors_of(model)
    seen = set()
    for rank in range(int(jobs.spec(spec)["world"])):
        said = held.filled(held.holding(model, spec, rank), tensors)
        real = {called(jobs.spec(spec)["source"], name): (shape, numpy.array(elements, dtype=int))
                for name, (shape, elements) in locals_of_torch(number, rank).items()}
        seen |= held.compared(said, real, rank)
    held.assert_all(seen, tensors)

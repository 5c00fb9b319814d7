# SPDX-License-Identifier: Apache-2.0
"""Torch's trainers: its own classes cut the same small models (torch_locals.py), and each element of each local parameter is the
element of the checkpoint that Weft says, or padding where Weft says nothing."""
import re

import numpy
import pytest

import held
import job as jobs

DTENSOR = [
    # model, what is other in its config, replicas / fsdp / tp, ep
    ("qwen2", {}, "4", 1),
    ("qwen2", {}, "5", 1),
    ("qwen2", {}, "2/3/1", 1),
    ("qwen3", {}, "2/2", 1),
    ("qwen3", {}, "3/2", 1),
    ("qwen3", {}, "2/3", 1),  # heads are cut
    ("llama", {}, "2/2/2", 1),
    ("llama", {"hidden_size": 72}, "5/2", 1),
    ("qwen3-moe", {}, "3/2", 1),
    ("qwen3-moe", {}, "16", 1),  # more shards than experts: by rows; and shards of the gate without rows
    ("qwen3-moe", {"num_experts": 2}, "4/2", 1),
    ("qwen3-moe", {}, "2/2", 2),
    ("qwen3-moe", {}, "3/2", 2),  # a shard without experts
    ("qwen3-moe", {}, "2/2/2", 4),
    ("qwen3-moe", {}, "8/2", 4),
]
FSDP1 = [
    # model, what is other in its config, shards, use_orig_params
    ("qwen2", {}, 4, 0),
    ("qwen2", {}, 4, 1),
    ("qwen2", {"hidden_size": 84, "num_attention_heads": 6}, 5, 1),
    ("llama", {"hidden_size": 72, "intermediate_size": 175}, 3, 0),
    ("llama", {"hidden_size": 72, "intermediate_size": 175}, 3, 1),
    ("qwen3-moe", {"moe_intermediate_size": 47}, 6, 0),
    ("qwen3-moe", {"moe_intermediate_size": 47}, 6, 1),
]


def dtensor_spec(mesh, ep):
    world = numpy.prod([int(part) for part in mesh.split("/")])
    return f"world={world},source=dtensor,mesh={mesh}" + (f",ep={ep}" if ep > 1 else "")


CASES = [(kind, changes, dtensor_spec(mesh, ep)) for kind, changes, mesh, ep in DTENSOR] + \
    [(kind, changes, f"world={world},source=fsdp1" + (",orig=1" if orig else "")) for kind, changes, world, orig in FSDP1]
NAMES = ["-".join([kind, *(f"{key}={value}" for key, value in changes.items()), spec]) for kind, changes, spec in CASES]


def as_torch(case, model):
    kind, _, text = case
    spec = jobs.spec(text)
    mesh = [int(part) for part in spec.get("mesh", "1").split("/")]
    if len(mesh) < 3:
        mesh = [1, *mesh] if len(mesh) == 2 else [1, *mesh, 1]
    return {"source": spec["source"], "world": int(spec["world"]), "mesh": mesh, "ep": int(spec.get("ep", 1)),
            "orig": int(spec.get("orig", 0)), "dtype": jobs.CONFIGS[kind]["torch_dtype"], "tensors": held.tensors_of(model)}


@pytest.fixture(scope="module")
def locals_of_torch(models, tmp_path_factory):
    """By the number of a case and the rank: {parameter: (shape, elements)}. All in one process of torch, which takes seconds to
    load."""
    cases = [as_torch(case, models(case[0], **case[1])) for case in CASES]
    return held.real("torch_locals.py", cases, tmp_path_factory.mktemp("torch"))


def called(source, name):
    """What Weft calls torch's parameter: the three of experts as torchtitan does, a flat one by its layer."""
    if source == "fsdp1":
        return name.removeprefix("model.")
    return re.sub(r"^model\.(layers\.\d+)\.mlp\.experts\.", r"\1.moe.experts.", name)


@pytest.mark.parametrize("number", range(len(CASES)), ids=NAMES)
def test_torch__has_each_element_where_weft_says(number, models, locals_of_torch):
    """A shard without elements is a parameter of torch's and none of Weft's; padding is in no box."""
    kind, changes, spec = CASES[number]
    model = models(kind, **changes)
    tensors = held.tensors_of(model)
    seen = set()
    for rank in range(int(jobs.spec(spec)["world"])):
        said = held.filled(held.holding(model, spec, rank), tensors)
        real = {called(jobs.spec(spec)["source"], name): (shape, numpy.array(elements, dtype=int))
                for name, (shape, elements) in locals_of_torch(number, rank).items() if len(elements)}
        real = {name: both for name, both in real.items() if (both[1] != held.NOBODY).any()}
        assert sorted(said) == sorted(real)
        for name, (shape, elements) in real.items():
            assert said[name][0] == shape, f"rank {rank}: {name}"
            assert (said[name][1] == elements).all(), f"rank {rank}: {name}"
            seen.update(elements[elements != held.NOBODY].tolist())
    assert len(seen) == sum(int(numpy.prod(shape)) for shape, _ in tensors.values()), "a tensor's element is on no rank"

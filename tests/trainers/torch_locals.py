#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What each rank of a torch trainer has in memory: a model with the names and the modules of HuggingFace's classes, cut
by torch's own parallelize_module, distribute_tensor, fully_shard and FullyShardedDataParallel.

    torch_locals.py CASES OUT    CASES: JSON, a list of {source, world, mesh, ep, orig, dtype, tensors: {name: [shape,
                                 base]}}; OUT: a folder, which gets {case}.{rank}, a pickle of {parameter: (shape,
                                 elements)}

Run with the python of build/torch. The element with flat number i of a tensor is the number base + i; what is -1
belongs to none. """
import array
import functools
import re
import sys

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

import forked

# the order in which the modules of HuggingFace's classes are made, which is that of a flat parameter
ORDER = ("model embed_tokens layers self_attn q_proj k_proj v_proj o_proj q_norm k_norm mlp gate experts gate_proj "
         "up_proj down_proj input_layernorm post_attention_layernorm norm lm_head weight bias").split()
# torchtitan's three parameters of all experts of a layer
STACKED = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.(\w+)\.weight")
DIGIT = 256  # each of a number's three is one that bfloat16 has


class Layer(nn.Module):
    """What is wrapped by itself."""


class Norm(nn.Module):
    pass


class Experts(nn.Module):
    pass


def place_of(name):
    return [(int(part), "") if part.isdigit() else (ORDER.index(part), "") for part in name.split(".")]


def leaf(name, shape):
    if name == "embed_tokens":
        return nn.Embedding(*shape, device="meta")
    return Norm() if name.endswith("norm") else nn.Linear(shape[1], shape[0], bias=False, device="meta")


def child(module, name):
    if name not in module._modules:
        module.add_module(name, Layer() if type(module) is nn.ModuleList else
                          nn.ModuleList() if name == "layers" else Experts() if name == "experts" else nn.Module())
    return module._modules[name]


def build(tensors, values, stacked):
    """The model; `values` makes a tensor of (shape, base)."""
    root = nn.Module()
    experts = {}
    for name in sorted(tensors, key=place_of):
        shape, base = tensors[name]
        expert = EXPERT.fullmatch(name)
        if expert and stacked:
            functools.reduce(child, expert[1].split("."), root)
            experts.setdefault((expert[1], STACKED[expert[3]]), []).append(values(shape, base))
            continue
        *path, last, kind = name.split(".")
        module = functools.reduce(child, path, root)
        if last not in module._modules:
            module.add_module(last, leaf(last, shape))
        module._modules[last].register_parameter(kind, nn.Parameter(values(shape, base)))
    for (path, name), parts in experts.items():
        root.get_submodule(path).register_parameter(name, nn.Parameter(torch.stack(parts)))
    return root


def numbers(shape, base):
    return torch.arange(base, base + functools.reduce(int.__mul__, shape), dtype=torch.float64).reshape(shape)


def digit(which, dtype, shape, base):
    """Below zero: zeros and what torch writes between parameters are none."""
    return (-1 - numbers(shape, base) // DIGIT ** which % DIGIT).to(dtype)


# ---- DTensor ----

def tensor_parallel(root, mesh):
    """The plan of torchtitan, and of whoever cuts attention and feed-forward by columns and then by rows."""
    columns, rows, whole = ColwiseParallel(), RowwiseParallel(), SequenceParallel()
    plan = {**dict.fromkeys(("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "lm_head"), columns),
            **dict.fromkeys(("o_proj", "down_proj"), rows), "gate": whole,
            "embed_tokens": RowwiseParallel(input_layouts=Replicate())}
    for name, module in list(root.named_modules()):
        style = whole if isinstance(module, Norm) else plan.get(name.split(".")[-1])
        if style:
            parallelize_module(module, mesh, style, src_data_rank=None)


def cut_experts(module, mesh, placements):
    for name, parameter in list(module.named_parameters()):
        cut = distribute_tensor(parameter.detach(), mesh, [placements[name]], src_data_rank=None)
        module.register_parameter(name, nn.Parameter(cut))


def shard_experts(case, module, dense):
    """As torchtitan: by expert, or where these are too few for the shards, by rows."""
    replicas, shards, tp = case["mesh"]
    ep, count = case["ep"], module.w1.shape[0]
    if ep > 1:
        shards = shards * tp // ep
        sparse = init_device_mesh("cpu", (replicas, shards, ep), mesh_dim_names=("replicate", "shard", "ep"))
        cut_experts(module, sparse["ep"], dict.fromkeys(("w1", "w2", "w3"), Shard(0)))
        mesh = sparse["replicate", "shard"] if replicas > 1 else sparse["shard"]
    else:
        if tp > 1:
            cut_experts(module, dense["tp"], {"w1": Shard(1), "w3": Shard(1), "w2": Shard(2)})
        mesh = dense["replicate", "shard"] if replicas > 1 else dense["shard"]
    fully_shard(module, mesh=mesh, shard_placement_fn=(lambda _: Shard(1)) if shards * ep > count else None)


def dtensor(case):
    dense = init_device_mesh("cpu", tuple(case["mesh"]), mesh_dim_names=("replicate", "shard", "tp"))
    mesh = dense["replicate", "shard"] if case["mesh"][0] > 1 else dense["shard"]
    root = build(case["tensors"], numbers, stacked=True)
    if case["mesh"][2] > 1:
        tensor_parallel(root, dense["tp"])
    for module in root.modules():
        if isinstance(module, Experts):
            shard_experts(case, module, dense)
    for module in root.modules():
        if isinstance(module, Layer):
            fully_shard(module, mesh=mesh)
    fully_shard(root, mesh=mesh)
    found = {}
    for name, parameter in root.named_parameters():
        assert isinstance(parameter, DTensor), name
        local = parameter.to_local().detach()
        # as they lie in memory, whatever the strides say
        memory = local.as_strided((local.numel(),), (1,))
        found[name] = list(local.shape), array.array("q", map(int, memory.tolist()))
    return found


# ---- FSDP1 ----

def fsdp1_digits(case, which):
    root = build(case["tensors"], functools.partial(digit, which, getattr(torch, case["dtype"])), stacked=False)
    root = FullyShardedDataParallel(root, auto_wrap_policy=ModuleWrapPolicy({Layer}),
                                    use_orig_params=bool(case["orig"]), device_id=torch.device("cpu"))
    for name, module in root.named_modules():
        if isinstance(module, FullyShardedDataParallel):
            parts = [part for part in name.split(".") if part not in ("", "_fsdp_wrapped_module")]
            yield ".".join([*parts, "_flat_param"]), [int(-1 - value) for value in module._handle.flat_param.tolist()]


def fsdp1(case):
    digits = [dict(fsdp1_digits(case, which)) for which in range(3)]
    return {name: ([len(low)], array.array("q", [-1 if min(each) < 0 else each[0] + DIGIT * (each[1] + DIGIT * each[2])
                                                 for each in zip(low, digits[1][name], digits[2][name])]))
            for name, low in digits[0].items()}


if __name__ == "__main__":
    forked.each_rank(lambda case: {"dtensor": dtensor, "fsdp1": fsdp1}[case["source"]](case), *sys.argv[1:])

# SPDX-License-Identifier: Apache-2.0
"""Everything in a model that may follow from its weights: parameters, buffers, tensors that modules or their helpers keep, and
single numbers beside them.

    model.layers.0.attn            a module
    ├─ weight                      a parameter
    ├─ inv_freq                    a buffer
    ├─ w_kc, k_scale_float         attributes
    └─ impl ── w_uv                an attribute of an object that is no module
"""
from __future__ import annotations

import types
from typing import Any, Iterator, Union

import torch

from weft.engines._engine import tensors_beside
from weft.engines._marks import in_memory

Value = Union[torch.Tensor, float]
_NOT_INTO = (torch.nn.Module, torch.Generator, type, types.ModuleType, types.FunctionType, types.MethodType, str, bytes, int)
_DEPTH = 3           # objects below a module that are looked into
_ITEMS_MAX = 4096    # of one list or dictionary


def loadable(model: torch.nn.Module) -> "dict[str, torch.Tensor]":
    """What a loader may write: parameters and buffers, each once."""
    found: "dict[str, torch.Tensor]" = dict(model.named_parameters())
    for name, buffer in model.named_buffers():
        found.setdefault(name, buffer)
    return found


def state_of(model: torch.nn.Module) -> "dict[str, Value]":
    """All of it, by name."""
    found: "dict[str, Value]" = dict(model.named_parameters())
    seen: set[int] = set()
    for path, module in model.named_modules():
        lead = f"{path}." if path else ""
        for name, tensor in tensors_beside(module):
            if tensor.device.type != "meta":
                found.setdefault(lead + name, tensor)
        for name, value in vars(module).items():
            if name not in ("_parameters", "_buffers", "_modules") and not isinstance(value, torch.Tensor):
                found.update((key, each) for key, each in _inside(value, lead + name, _DEPTH, seen) if key not in found)
    return found


def _inside(value: Any, name: str, depth: int, seen: "set[int]") -> "Iterator[tuple[str, Value]]":
    """Tensors and floats in an object's attributes, lists and dictionaries; modules are found by themselves."""
    if isinstance(value, float):
        yield name, value
        return
    if isinstance(value, torch.Tensor):
        if value.device.type != "meta":
            yield name, value.detach()
        return
    if not depth or id(value) in seen or isinstance(value, _NOT_INTO):
        return
    seen.add(id(value))
    if isinstance(value, dict):
        items = [(f"{name}[{key!r}]", each) for key, each in list(value.items())[:_ITEMS_MAX]]
    elif isinstance(value, (list, tuple)):
        items = [(f"{name}[{index}]", each) for index, each in enumerate(value[:_ITEMS_MAX])]
    else:
        attributes = getattr(value, "__dict__", None)
        items = [(f"{name}.{key}", each) for key, each in attributes.items()] if isinstance(attributes, dict) else []
    for called, each in items:
        yield from _inside(each, called, depth - 1, seen)


def equal(a: Value, b: Value) -> bool:
    """To the bit."""
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return type(a) is type(b) and bool(a == b or a != a and b != b)
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(_raw(a), _raw(b))


def _raw(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().view(-1).view(torch.uint8)


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a tensor without gaps, whatever the order of its dimensions."""
    lying = in_memory(tensor.detach())
    assert lying is not None, "looked at before"
    return lying.view(-1).view(torch.uint8)


_CHUNK = 1 << 22


def print_of(value: Value) -> Any:
    """A fingerprint: other values, or the same in other places, have another one."""
    if not isinstance(value, torch.Tensor):
        return repr(value)
    data = value.detach().reshape(-1)
    found: list[Any] = [str(value.dtype), tuple(value.shape)]
    if data.is_complex():
        data = torch.view_as_real(data).reshape(-1)
    for at in range(0, data.numel(), _CHUNK):
        part = data[at:at + _CHUNK].to(torch.float32).nan_to_num(nan=3.0)
        places = torch.arange(part.numel(), device=part.device).remainder_(8191).to(torch.float32)
        found += [float(part.double().sum()), float(part.mul(places).double().sum()), float(part[:1].sum())]
    return tuple(found)

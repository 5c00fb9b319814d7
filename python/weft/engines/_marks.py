# SPDX-License-Identifier: Apache-2.0
"""Marked weights: values that say which element of which tensor they are, through any loader that moves elements.

Every element of the checkpoint has a number. A load carries one digit of it, as a small whole number that the element's
dtype holds exactly, so that casts between dtypes change nothing; after a few loads the digits that stand at a place of a
parameter are the number of the element that belongs there:

    element 1000 of q_proj, base 256     load 0: 1000 % 256 + 1 = 233     load 1: 1000 / 256 + 1 = 4
    where qkv_proj then has 233 and 4    is element 232 + 256 * 3 = 1000

Zero stands for nothing: what no load has written. What a loader computes of values (a maximum, a product with a scale) may
look like a digit once, but not twice: two more loads carry random digits, and must be found where the numbers say.
"""
from __future__ import annotations

import math
from typing import Iterator, Mapping, NamedTuple

import torch

from weft._dtypes import dtype_of
from weft._structs import Tensor
from weft.torch._cuts import folded_shape

_NOWHERE, COMPUTED = -1, -2  # in place of a number: nothing writes it; it is no element's
_CHUNK = 1 << 24


class Kind(NamedTuple):
    """Dtypes whose marks are of one base, and whose elements are counted together."""
    name: str
    base: int


_FLOAT, _FP8, _INT = Kind("float", 256), Kind("fp8", 16), Kind("int", 100)


def kind_of(dtype: torch.dtype) -> Kind:
    """That of a dtype."""
    if dtype.is_floating_point:
        return _FP8 if dtype.itemsize == 1 else _FLOAT
    return _INT


class Marks:
    """Of the tensors of one checkpoint.

    Attributes:
        tensors: with shapes as weft has them: four dimensions at most.
        loads: how many carry digits.
    """

    def __init__(self, tensors: Mapping[str, Tensor]):
        self.tensors = {name: tensor._replace(shape=folded_shape(tensor.shape)) for name, tensor in tensors.items()}
        self._shapes = {name: tensor.shape for name, tensor in tensors.items()}
        self._dtypes = {name: getattr(torch, dtype_of(tensor.dtype).torch) for name, tensor in tensors.items()}
        self._first: dict[str, int] = {}
        self._order: dict[Kind, tuple[list[int], list[str]]] = {}
        ends: dict[Kind, int] = {}
        for name, tensor in tensors.items():
            kind = kind_of(self._dtypes[name])
            self._first[name] = ends.get(kind, 0)
            firsts, names = self._order.setdefault(kind, ([], []))
            firsts.append(self._first[name])
            names.append(name)
            ends[kind] = self._first[name] + math.prod(tensor.shape)
        self.loads = max((_digits(kind.base, end) for kind, end in ends.items()), default=1)
        self._bounds = {kind: torch.tensor(firsts) for kind, (firsts, _) in self._order.items()}

    def named(self, load: int, device: torch.device) -> Iterator["tuple[str, torch.Tensor]"]:
        """The checkpoint of a load, tensor by tensor; from ``loads`` on those of random digits."""
        for name, tensor in self.tensors.items():
            dtype = self._dtypes[name]
            kind = kind_of(dtype)
            count = math.prod(tensor.shape)
            made = torch.empty(count, dtype=dtype, device=device)
            for at in range(0, count, _CHUNK):
                numbers = torch.arange(at, min(at + _CHUNK, count), device=device) + self._first[name]
                made[at:at + _CHUNK] = self._marks(kind, numbers, load).to(dtype)
            yield name, made.reshape(self._shapes[name])

    def _marks(self, kind: Kind, numbers: torch.Tensor, load: int) -> torch.Tensor:
        if load < self.loads:
            return numbers.div(kind.base ** load, rounding_mode="floor") % kind.base + 1
        mixed = (numbers + 1) * (0x9E3779B1 + 2 * load)  # Knuth's multiplicative hash, then the upper bits
        mixed = (mixed ^ (mixed >> 15)) * 0x85EBCA6B
        return ((mixed >> 13) & 0x7FFFFFFF) % kind.base + 1

    def add(self, numbers: torch.Tensor, found: torch.Tensor, load: int) -> None:
        """Takes what a load left in a parameter into `numbers` (int64, zero at first): digits, or whether the random ones
        are where they belong."""
        kind, flat, out = kind_of(found.dtype), found.detach().reshape(-1), numbers.view(-1)
        for at in range(0, flat.numel(), _CHUNK):
            values = flat[at:at + _CHUNK].to(torch.float32).cpu()
            part = out[at:at + _CHUNK]
            whole = (values == values.round()) & (values >= 0) & (values <= kind.base)
            marks = torch.where(whole, values, torch.zeros(())).to(torch.int64)
            if load < self.loads:
                part[(~whole) & (part != COMPUTED)] = COMPUTED
                if load == 0:
                    part[(part != COMPUTED) & (marks == 0)] = _NOWHERE
                part[(part >= 0) & (marks == 0) | (part == _NOWHERE) & (marks != 0)] = COMPUTED
                part += torch.where(part >= 0, (marks - 1) * kind.base ** load, torch.zeros((), dtype=torch.int64))
            else:
                wanted = torch.where(part >= 0, self._marks(kind, part.clamp(min=0), load), torch.zeros((), dtype=torch.int64))
                part[(part >= 0) & (wanted != marks) | (part == _NOWHERE) & (marks != 0)] = COMPUTED

    def tensor_at(self, numbers: torch.Tensor, dtype: torch.dtype) -> "tuple[torch.Tensor, list[str]]":
        """Which tensor each number is of, as indices into the names."""
        kind = kind_of(dtype)
        _, names = self._order[kind]
        return torch.bucketize(numbers, self._bounds[kind], right=True) - 1, names

    def first(self, name: str) -> int:
        """The number of a tensor's first element."""
        return self._first[name]

    def end(self, dtype: torch.dtype) -> int:
        """Behind the last number of a dtype's kind; 0: the checkpoint has none of it."""
        kind = kind_of(dtype)
        if kind not in self._order:
            return 0
        last = self._order[kind][1][-1]
        return self._first[last] + math.prod(self.tensors[last].shape)


def _digits(base: int, count: int) -> int:
    digits, reach = 1, base
    while reach < count:
        digits, reach = digits + 1, reach * base
    return digits

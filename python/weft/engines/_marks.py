# SPDX-License-Identifier: Apache-2.0
"""Marked weights: values that say which element of which tensor they are, through any loader that moves elements.

Every element of the checkpoint has a number. A load carries one digit of it, as a small whole number that the element's
dtype holds exactly, so that casts between dtypes change nothing; after a few loads the digits that stand at a place of a
parameter are the number of the element that belongs there:

    element 1000 of q_proj, base 256     load 0: 1000 % 256 + 1 = 233     load 1: 1000 / 256 + 1 = 4
    where qkv_proj then has 233 and 4    is element 232 + 256 * 3 = 1000

Zero stands for nothing: what no load has written. What a loader computes of values may look like a digit once, and of a
single scale the largest of three is one of them each time. So four more loads carry random digits, which must be found where
the numbers say: two and their mirrors, in which the largest is the smallest, and matrices have both signs in the last two.
"""
from __future__ import annotations

import math
from typing import Iterator, Mapping, NamedTuple, Optional, Sequence

import torch

from weft._dtypes import dtype_of
from weft._structs import Tensor
from weft.torch._cuts import folded_shape

# in place of a number: nothing writes it; it is no element's; nothing writes it, and it has a value of its class's
NOWHERE, COMPUTED, KEPT = -10, -20, -30
CHECKS = 4  # loads of random digits
_ONE, _NOWHERE, _COMPUTED, _KEPT = 0, 1, 2, 3  # states of an element
_STATES = torch.tensor([0, NOWHERE, COMPUTED, KEPT], device="cpu")
_CHUNK = 1 << 20  # elements at a time: what a cache holds
_LARGE = 1 << 16  # elements of a parameter of which two checks are enough: where one is computed, so are others


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
        loads: how many carry digits; CHECKS more have random ones.
    """

    def __init__(self, tensors: Mapping[str, Tensor]):
        self.tensors = {name: tensor._replace(shape=folded_shape(tensor.shape)) for name, tensor in tensors.items()}
        self._shapes = {name: tensor.shape for name, tensor in tensors.items()}
        self._dtypes = {name: getattr(torch, dtype_of(tensor.dtype).torch) for name, tensor in tensors.items()}
        self._first: dict[str, int] = {}
        self._order: dict[Kind, tuple[list[int], list[str]]] = {}
        self._end: dict[Kind, int] = {}
        self._signed: dict[Kind, int] = {}  # matrices come last: from this number on
        for matrices in (False, True):
            for name, tensor in tensors.items():
                if (len(tensor.shape) > 1 and math.prod(tensor.shape) > 1) is matrices:
                    self._count(name, kind_of(self._dtypes[name]), math.prod(tensor.shape))
            if not matrices:
                self._signed = dict(self._end)
        self.loads = max((_digits(kind.base, end) for kind, end in self._end.items()), default=1)
        self._bounds = {kind: torch.tensor(firsts, device="cpu") for kind, (firsts, _) in self._order.items()}

    def _count(self, name: str, kind: Kind, elements: int) -> None:
        self._first[name] = self._end.get(kind, 0)
        firsts, names = self._order.setdefault(kind, ([], []))
        firsts.append(self._first[name])
        names.append(name)
        self._end[kind] = self._first[name] + elements

    def named(self, load: int, device: torch.device) -> Iterator["tuple[str, torch.Tensor]"]:
        """The checkpoint of a load, tensor by tensor; from ``loads`` on those of random digits."""
        for name, tensor in self.tensors.items():
            dtype = self._dtypes[name]
            kind, count, first = kind_of(dtype), math.prod(tensor.shape), self._first[name]
            made = torch.empty(count, dtype=dtype, device=device)
            for at in range(first, first + count, _CHUNK):
                numbers = torch.arange(at, min(at + _CHUNK, first + count), device=device,
                                       dtype=torch.int32 if first + count < 1 << 31 else torch.int64)
                made[at - first:at - first + _CHUNK] = self.values(kind, numbers, load).to(dtype)
            yield name, made.reshape(self._shapes[name])

    def values(self, kind: Kind, numbers: torch.Tensor, load: int) -> torch.Tensor:
        """What a load carries of the elements with these numbers."""
        if load < self.loads and kind.base ** load >= max(self.end(kind), 2):
            return torch.ones_like(numbers)  # a kind of fewer digits than another
        if load < self.loads:
            return numbers.div(kind.base ** load, rounding_mode="floor").remainder_(kind.base).add_(1)
        check = load - self.loads
        digits = _random(numbers, check // 2).remainder_(kind.base).add_(1)
        if check == 1:
            return digits.neg_().add_(kind.base + 1)
        if check < 2 or not kind.name.startswith("f"):
            return digits if check % 2 == 0 else digits.neg_().add_(kind.base + 1)
        signs = 1 - 2 * (_random(numbers, 7) & 1)
        signed = digits * (signs if check == 2 else -signs)
        plain = digits if check == 2 else kind.base + 1 - digits
        return torch.where(numbers >= self._signed.get(kind, 0), signed, plain)

    def tensor_at(self, numbers: torch.Tensor, kind: Kind) -> "tuple[torch.Tensor, list[str]]":
        """Which tensor each number is of, as indices into the names."""
        if kind not in self._order:
            return torch.full_like(numbers, -1), []
        return torch.bucketize(numbers, self._bounds[kind], right=True) - 1, self._order[kind][1]

    def first(self, name: str) -> int:
        """The number of a tensor's first element."""
        return self._first[name]

    def end(self, kind: Kind) -> int:
        """Behind the last number of a kind; 0: the checkpoint has none of it."""
        return self._end.get(kind, 0)


class Found:
    """What loads have left in one parameter: a digit a load for each element, from which its number is put together.

    Args:
        shape: as the parameter lies in memory.
    """

    def __init__(self, shape: Sequence[int], dtype: torch.dtype, marks: Marks):
        self.shape, self.dtype, self.kind, self._marks = tuple(shape), dtype, kind_of(dtype), marks
        self.count = math.prod(shape)
        self._digits = torch.zeros((marks.loads, self.count), dtype=torch.uint8, device="cpu")
        self._state: Optional[torch.Tensor] = None  # None: every element has a number so far

    def add(self, found: torch.Tensor, load: int) -> None:
        """Takes what a load left."""
        flat = found.detach().reshape(-1)
        for at in range(0, self.count, _CHUNK):
            values = flat[at:at + _CHUNK].cpu().to(torch.float32)
            if load < self._marks.loads:
                self._add_digits(values, at, load)
            elif self.count < _LARGE or load - self._marks.loads in (0, CHECKS - 1):
                self._check(values, at, load)

    def _states(self, at: int, count: int) -> torch.Tensor:
        if self._state is None:
            self._state = torch.zeros(self.count, dtype=torch.uint8, device="cpu")
        return self._state[at:at + count]

    def _add_digits(self, values: torch.Tensor, at: int, load: int) -> None:
        less = values - 1
        digits = less.clamp(0, self.kind.base - 1).to(torch.uint8)
        self._digits[load, at:at + values.numel()] = digits
        good = less == digits
        if bool(good.all()) and self._state is None:
            return
        states, zero = self._states(at, values.numel()), values == 0
        if load == 0:
            states[zero] = _NOWHERE
            states[~good & ~zero] = _COMPUTED
        else:
            states[torch.where(states == _NOWHERE, ~zero, ~good)] = _COMPUTED

    def _check(self, values: torch.Tensor, at: int, load: int) -> None:
        wanted = self._marks.values(self.kind, self._raw(at, at + values.numel()), load)
        good = wanted == values
        if good.all() and self._state is None:
            return
        states = self._states(at, values.numel())
        states[torch.where((states == _NOWHERE) | (states == _KEPT), values != 0, ~good)] = _COMPUTED

    def keep(self, found: torch.Tensor) -> None:
        """Of what nothing writes: what has a value all the same, in a model whose parameters were not zeroed before."""
        if self._state is not None:
            flat = found.detach().reshape(-1)
            for at in range(0, self.count, _CHUNK):
                states = self._state[at:at + _CHUNK]
                states[(states == _NOWHERE) & (flat[at:at + _CHUNK].cpu().to(torch.float32) != 0)] = _KEPT

    @property
    def some(self) -> bool:
        """Whether there are elements that have no number."""
        return self._state is not None

    def _raw(self, first: int, last: int) -> torch.Tensor:
        wide = torch.int32 if self.kind.base ** self._marks.loads < 1 << 31 else torch.int64
        numbers = self._digits[0, first:last].to(wide)
        for load in range(1, self._marks.loads):
            numbers += self._digits[load, first:last].to(wide) * self.kind.base ** load
        return numbers

    def numbers(self, first: int, last: int) -> torch.Tensor:
        """Of elements [first, last): their numbers, or NOWHERE, COMPUTED, KEPT."""
        numbers = self._raw(first, last).to(torch.int64)
        numbers[numbers >= self._marks.end(self.kind)] = COMPUTED
        if self._state is not None:
            states = self._state[first:last]
            numbers = torch.where(states == _ONE, numbers, _STATES[states.to(torch.int64)])
        return numbers

    def computed(self) -> int:
        """How many elements are no element's of the checkpoint."""
        return sum(int((self.numbers(at, min(at + _CHUNK, self.count)) == COMPUTED).sum())
                   for at in range(0, self.count, _CHUNK))

    def part(self, index: torch.Tensor, shape: Sequence[int]) -> "Found":
        """Some of the elements, in another order."""
        found = Found.__new__(Found)
        found.shape, found.dtype, found.kind, found._marks = tuple(shape), self.dtype, self.kind, self._marks
        found.count = index.numel()
        found._digits = self._digits[:, index]
        found._state = None if self._state is None else self._state[index]
        return found


def _random(numbers: torch.Tensor, which: int) -> torch.Tensor:
    """23 bits of a hash: multiplications in 32 bits that overflow, and upper bits put over lower ones."""
    mixed = numbers if numbers.dtype == torch.int32 else (numbers ^ (numbers >> 31)).to(torch.int32)
    mixed = (mixed + 0x3C6EF372) * (0x6C078965 + 2 * which)
    for factor in (0x2C1B3C6D, 0x297A2D39):
        mixed ^= (mixed >> 15).bitwise_and_(0x1FFFF)
        mixed *= factor
    return (mixed >> 8).bitwise_and_(0x7FFFFF)


def _digits(base: int, count: int) -> int:
    digits, reach = 1, base
    while reach < count:
        digits, reach = digits + 1, reach * base
    return digits


def in_memory(tensor: torch.Tensor) -> Optional[torch.Tensor]:
    """The tensor with its dimensions in the order in which memory has them, contiguous; None: it has gaps or overlaps."""
    if tensor.is_contiguous():
        return tensor
    strides = tensor.stride()
    order = sorted(range(tensor.dim()), key=lambda d: (-strides[d], d))
    turned = tensor.permute(order)
    return turned if turned.is_contiguous() else None

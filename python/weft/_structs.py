# SPDX-License-Identifier: Apache-2.0
"""Structs of weft.h, filled from Python's values; and those that it fills, as Python's values."""
from __future__ import annotations

import os
from typing import Any, Iterable, NamedTuple, Optional

from weft._dtypes import dtype_of
from weft._errors import UsageError
from weft._library import ffi, lib, text
from weft._memory import Memory

DIMS_MAX: int = lib.WEFT_DIMS_MAX


class Tensor(NamedTuple):
    """A tensor of the checkpoint, as HuggingFace names it: the unit that trainers hold and engines are made of.

    Attributes:
        name: its HuggingFace name, "model.layers.0.mlp.down_proj.weight".
        dtype: of its elements where they are held: weft's name, torch's or numpy's ("BF16", torch.bfloat16).
        shape: 1 to 4 dimensions, in elements, row-major.
    """
    name: str
    dtype: Any
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        count = dtype_of(self.dtype).bytes
        for size in self.shape:
            count *= size
        return count


class TensorView(NamedTuple):
    """What a trainer declared: rows of a tensor, or a local parameter (all rows are its own)."""
    id: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    row_lo: int
    row_hi: int
    bytes: int
    wanted: bool  # after join: some inference rank is sent part of it


class HoldingView(NamedTuple):
    """A box of a tensor, in elements, and where in which local parameter it lies."""
    name: str
    dtype: str
    shape: tuple[int, ...]
    local: int
    lo: tuple[int, ...]
    hi: tuple[int, ...]
    offset: int
    strides: tuple[int, ...]


class Loss(NamedTuple):
    """An engine, or a trainer, that has left a job that goes on without it.

    Attributes:
        ranks: its ranks.
        code: why: enum weft_code, as ``Code.PEER_LOST``; 0: all its ranks did their work and left.
        text: in words: which of its ranks was lost, and how.
        back: another one has come in its place.
        role: "inference", or "trainer".
    """
    ranks: range
    code: int
    text: str
    back: bool = False
    role: str = "inference"


class ParamView(NamedTuple):
    """A parameter of an engine's rank."""
    id: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


class Plan(NamedTuple):
    """This worker's part in the routing table."""
    digest: str  # of the table, 32 hex digits
    policy: str
    order: str   # in which a trainer sends
    bytes: int   # that this worker sends or receives, an update
    pieces: int
    peers: int


def sized(name: str) -> Any:
    struct = ffi.new(name + " *")
    struct.size = ffi.sizeof(name)
    return struct


def encoded(given: Optional[object]) -> Any:
    """A string for C, or NULL. The caller keeps it while C reads it."""
    return ffi.NULL if given is None else ffi.new("char[]", os.fsencode(str(given)) if isinstance(given, os.PathLike)
                                                  else str(given).encode())


def shape_of(struct: Any, values: Iterable[int], what: str, field: str = "shape") -> int:
    given = tuple(int(value) for value in values)
    if not 1 <= len(given) <= DIMS_MAX:
        raise UsageError(f"{what} has {len(given)} dimensions {given}: weft's tensors have 1 to {DIMS_MAX}"
                         + ("; declare a scalar as shape (1,)" if not given else ""))
    if min(given) < 0:
        raise UsageError(f"{what} has a negative size in {given}")
    array = getattr(struct, field)
    for d, size in enumerate(given):
        array[d] = size
    return len(given)


def described(kind: str, given: Any, keep: list[Any]) -> Any:
    """weft_tensor, weft_param or weft_slice of something with name, dtype and shape."""
    struct = sized(kind)
    name, dtype = encoded(given.name), encoded(dtype_of(given.dtype).name)
    keep += (name, dtype)
    struct.name, struct.dtype = name, dtype
    struct.dims = shape_of(struct, given.shape, f"{given.name!r}")
    return struct


def fill_memory(struct: Any, memory: Memory) -> None:
    struct.size = ffi.sizeof("weft_memory")
    struct.kind = lib.WEFT_MEMORY_HOST if memory.device is None else lib.WEFT_MEMORY_CUDA
    struct.device = memory.device or 0
    struct.pointer = ffi.cast("void *", memory.pointer)
    struct.bytes = memory.bytes
    struct.stream = ffi.cast("void *", memory.stream)


def memory_struct(memory: Memory) -> Any:
    struct = ffi.new("weft_memory *")
    fill_memory(struct, memory)
    return struct


def _shape(view: Any, field: str = "shape") -> tuple[int, ...]:
    return tuple(getattr(view, field)[d] for d in range(view.dims))


def tensor_view(number: int, view: Any) -> TensorView:
    return TensorView(number, text(view.name), text(view.dtype), _shape(view), view.row_lo, view.row_hi, view.bytes,
                      bool(view.wanted))


def holding_view(number: int, view: Any) -> HoldingView:
    return HoldingView(text(view.name), text(view.dtype), _shape(view), view.local, _shape(view, "lo"), _shape(view, "hi"),
                       view.offset, _shape(view, "stride"))


def param_view(number: int, view: Any) -> ParamView:
    return ParamView(number, text(view.name), text(view.dtype), _shape(view), view.bytes)


def milliseconds(timeout_s: Optional[float], what: str = "timeout_s") -> int:
    """None: the default, which C has for 0."""
    if timeout_s is None:
        return 0
    value = round(timeout_s * 1000)
    if not 1 <= value < 1 << 32:
        raise UsageError(f"{what} is {timeout_s!r}: give seconds, at least 0.001, or None for the default")
    return value

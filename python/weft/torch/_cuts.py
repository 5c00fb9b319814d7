# SPDX-License-Identifier: Apache-2.0
"""Boxes of a parameter's elements, and where they lie in the memory of a rank: the one form that every kind of shard is
brought into.
"""
from __future__ import annotations

import math
from typing import Iterator, NamedTuple, Optional, Sequence

from weft import UsageError

DIMS_MAX = 4  # weft.h's WEFT_DIMS_MAX


class Run(NamedTuple):
    """A box [lo, hi) of a tensor. The element with indexes i lies at ``offset`` + the sum of (i[d] - lo[d]) *
    strides[d] of the local memory, in elements."""
    lo: tuple[int, ...]
    hi: tuple[int, ...]
    offset: int
    strides: tuple[int, ...]

    @property
    def numel(self) -> int:
        return math.prod(hi - lo for lo, hi in zip(self.lo, self.hi))


class Flat(NamedTuple):
    """Elements [start, stop) of a tensor, row after row, from element ``offset`` of the local memory on."""
    start: int
    stop: int
    offset: int


def dense(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a contiguous tensor, in elements."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def whole(shape: Sequence[int], strides: Optional[Sequence[int]] = None) -> Run:
    """All of a tensor, from the beginning of the local memory on."""
    return Run((0,) * len(shape), tuple(shape), 0, tuple(strides) if strides is not None else dense(shape))


def flat_runs(shape: Sequence[int], flat: Flat) -> Iterator[Run]:
    """The boxes of a flat range: at most 2 n - 1 of a tensor of n dimensions."""
    strides, at = dense(shape), flat.start
    while at < flat.stop:
        # the outermost dimension at whose border the range stands, and of which a whole slice is left
        d = next(d for d in range(len(shape)) if at % strides[d] == 0 and at + strides[d] <= flat.stop)
        index = [at // strides[i] % shape[i] for i in range(len(shape))]
        count = min((flat.stop - at) // strides[d], shape[d] - index[d])
        lo = [index[i] if i <= d else 0 for i in range(len(shape))]
        hi = [lo[i] + 1 if i < d else shape[i] for i in range(len(shape))]
        hi[d] = lo[d] + count
        sizes = [h - low for low, h in zip(lo, hi)]
        yield Run(tuple(lo), tuple(hi), flat.offset + at - flat.start, dense(sizes))
        at += count * strides[d]


# ---- parts of a tensor

class Slice(NamedTuple):
    """Of one dimension: the indexes start, start + step, .., ``size`` of them."""
    start: int
    step: int
    size: int


def pick(run: Run, slices: Sequence[Slice], kept: Sequence[int], lo: Sequence[int]) -> Optional[Run]:
    """What of a run is in a part of the parameter, as a box of the part's own tensor.

    Args:
        slices: one for each dimension of the parameter.
        kept: which of its dimensions the part's tensor has; others are of one index.
        lo: where in its tensor the part begins.
    """
    begin, end, offset, strides = [], [], run.offset, []
    for (start, step, size), low, high, stride in zip(slices, run.lo, run.hi, run.strides):
        first = max(0, -(-(low - start) // step))
        last = min(size, -(-(high - start) // step))
        if first >= last:
            return None
        begin.append(first)
        end.append(last)
        offset += (start + first * step - low) * stride
        strides.append(stride * step)
    if not kept:  # a single element
        return Run((lo[0],), (lo[0] + 1,), offset, (1,))
    return Run(tuple(begin[d] + at for d, at in zip(kept, lo)), tuple(end[d] + at for d, at in zip(kept, lo)), offset,
               tuple(strides[d] for d in kept))


# ---- as weft declares tensors: 1 to 4 dimensions

def folded_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """A tensor's shape as weft is told it: a scalar is [1]; behind the third dimension all are one."""
    if len(shape) <= DIMS_MAX:
        return tuple(shape) or (1,)
    return (*shape[:DIMS_MAX - 1], math.prod(shape[DIMS_MAX - 1:]))


def folded(run: Run, shape: Sequence[int], name: str) -> Run:
    """The run, as a box of the folded shape.

    Raises:
        UsageError: it is cut behind the fourth dimension, or does not lie there in one.
    """
    if not shape:
        return Run((0,), (1,), run.offset, (1,))
    if len(shape) <= DIMS_MAX:
        return run
    keep, rest = DIMS_MAX - 1, math.prod(shape[DIMS_MAX:])
    inner = dense(shape[keep:])
    unit = run.strides[-1]
    if run.lo[DIMS_MAX:] != (0,) * len(shape[DIMS_MAX:]) or run.hi[DIMS_MAX:] != tuple(shape[DIMS_MAX:]) \
            or any(stride != unit * step for stride, step in zip(run.strides[keep:], inner)):
        raise UsageError(f"{name!r} of shape {tuple(shape)}: [{run.lo}, {run.hi}) with strides {run.strides} is cut, "
                         f"or does not lie in one, behind the fourth dimension; weft moves tensors of {DIMS_MAX} "
                         "dimensions, with those behind them as one: cut it in an outer dimension, or give it to "
                         "`gathered`")
    return Run((*run.lo[:keep], run.lo[keep] * rest), (*run.hi[:keep], run.hi[keep] * rest), run.offset,
               (*run.strides[:keep], unit))


def tidy(run: Run) -> Run:
    """The same with a stride that weft takes where a dimension has one index, and any stride is right."""
    sizes = [hi - lo for lo, hi in zip(run.lo, run.hi)]
    if sizes and tuple(run.strides) != dense(sizes):
        contiguous = dense(sizes)
        strides = [contiguous[d] if size == 1 else run.strides[d] for d, size in enumerate(sizes)]
        return run._replace(strides=tuple(strides))
    return run

# SPDX-License-Identifier: Apache-2.0
"""From the numbers of elements that a parameter is made of (_marks) to pieces: boxes of tensors, each one run of bytes.

    numbers     0 1 2 3  8 9 10 11        two runs of 4, 8 apart, of a tensor [2, 8]
    as a box    rows 0 to 2, columns 0 to 4
"""
from __future__ import annotations

import dataclasses
import math
from typing import Callable, Iterator, Optional, Sequence

import torch

from weft._dtypes import dtype_of
from weft._inference import Transform
from weft._structs import Tensor
from weft.engines._layout import Param, Piece, gaps
from weft.engines._marks import KEPT, Found, Marks

_PIECES_MAX = 1 << 16  # of one parameter: beyond it, or of so few bytes each, its elements are shuffled
_PIECE_BYTES_LEAST = 64
_RUN_LEAST = 4         # elements a run, on the whole: of fewer, its elements are shuffled
_TURNED_MAX = 64       # boxes that one transposed matrix may be of
_CHUNK = 1 << 20       # elements at a time: what a cache holds


def param_of(name: str, found: Found, marks: Marks) -> Param:
    """The parameter as pieces, or ``computed`` with the reason."""
    shape, label, element = found.shape, dtype_of(found.dtype).name, dtype_of(found.dtype).bytes
    computed = found.computed()
    if computed:
        return Param(name, label, shape, computed=f"{computed} of {found.count} elements are computed from what is loaded")
    pieces = _pieces(found, marks, element)
    if len(shape) >= 2 and (pieces is None or len(pieces) > 1):
        turned = _transposed(found, marks, element)
        pieces = turned if turned is not None and (pieces is None or len(turned) < len(pieces)) else pieces
    if pieces is None:
        return Param(name, label, shape, computed="its elements stand in an order that no boxes have (a shuffle of a kernel's)")
    fills: list[tuple[int, int]] = []
    kept: list[tuple[int, int]] = []
    for first, last in gaps(pieces, found.count * element):
        has = bool((found.numbers(first // element, last // element) == KEPT).any())
        (kept if has else fills).append((first, last))
    return Param(name, label, shape, tuple(pieces), tuple(fills), tuple(kept))


def _runs(found: Found, marks: Marks) -> "Optional[tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, list[str]]]":
    """Where runs of one tensor's neighbouring elements begin, how long they are, the first's number, and which tensor each is
    of (-1: none); with the tensors' names. None: they are too many."""
    parts, count = [], 0
    for at in range(0, found.count, _CHUNK):
        end, lead = min(at + _CHUNK, found.count), 1 if at else 0
        numbers = found.numbers(at - lead, end)
        breaks = (numbers[1:] != numbers[:-1] + 1) & ((numbers[1:] >= 0) | (numbers[1:] != numbers[:-1]))
        inside = breaks.nonzero().view(-1) + (at - lead + 1)
        parts.append(inside if at else torch.cat((torch.zeros(1, dtype=torch.int64, device="cpu"), inside)))
        count += parts[-1].numel()
        if count > max(_PIECES_MAX, found.count // _RUN_LEAST):
            return None
    starts = torch.cat(parts)
    ends = torch.cat((starts[1:], torch.tensor([found.count], device="cpu")))
    first = _at(found, starts)
    tensor, names = marks.tensor_at(first.clamp(min=0), found.kind)
    bounds = torch.tensor([marks.first(name) for name in names] + [marks.end(found.kind)], device="cpu")
    behind = torch.where(first >= 0, bounds[(tensor + 1).clamp(max=len(names))], torch.full((), 1 << 62, device="cpu"))
    across = (behind - first < ends - starts).nonzero().view(-1).tolist()
    if across:  # neighbours in number, of two tensors or more
        more = []
        for run in across:
            begin, number = int(starts[run]), int(first[run])
            low = torch.searchsorted(bounds, number, right=True)
            high = torch.searchsorted(bounds, number + int(ends[run]) - begin)
            more.append(torch.unique(bounds[low:high]) - number + begin)
        starts = torch.cat((starts, *more)).sort().values
        ends = torch.cat((starts[1:], torch.tensor([found.count], device="cpu")))
        first = _at(found, starts)
        tensor, _ = marks.tensor_at(first.clamp(min=0), found.kind)
    return starts, ends - starts, first, torch.where(first >= 0, tensor, torch.full((), -1, device="cpu")), names


def _at(found: Found, places: torch.Tensor) -> torch.Tensor:
    """The numbers at some places."""
    return found.part(places, (places.numel(),)).numbers(0, places.numel())


def _pieces(found: Found, marks: Marks, element: int) -> Optional[list[Piece]]:
    if not found.count:
        return []
    runs = _runs(found, marks)
    if runs is None:
        return None
    starts, lengths, first, tensors, names = runs
    width = torch.tensor([_width(marks.tensors[name]) for name in names] or [1], device="cpu")[tensors.clamp(min=0)]
    base = torch.tensor([marks.first(name) for name in names] or [0], device="cpu")[tensors.clamp(min=0)]
    # a run goes on the box of the one before it: as long, a row further, in the same columns, right behind it
    column = (first - base) % width.clamp(min=1)
    same = torch.zeros(starts.numel(), dtype=torch.bool, device="cpu")
    same[1:] = (tensors[1:] == tensors[:-1]) & (tensors[1:] >= 0) & (lengths[1:] == lengths[:-1]) \
        & (first[1:] == first[:-1] + width[1:]) & (column[1:] + lengths[1:] <= width[1:])
    groups = (~same).nonzero().view(-1)
    if groups.numel() > min(_PIECES_MAX, 256 + found.count * element // _PIECE_BYTES_LEAST):
        return None
    counts = torch.diff(groups, append=torch.tensor([starts.numel()], device="cpu"))
    pieces: list[Piece] = []
    for group, rows in zip(groups.tolist(), counts.tolist()):
        if int(tensors[group]) < 0:
            continue
        name = names[int(tensors[group])]
        at, length = int(first[group]) - marks.first(name), int(lengths[group])
        offset = int(starts[group]) * element
        for lo, hi in _boxes(marks.tensors[name].shape, at, length, rows):
            size = math.prod(high - low for low, high in zip(lo, hi)) * element
            pieces.append(Piece(name, lo, hi, offset, size))
            offset += size
        if len(pieces) > _PIECES_MAX:
            return None
    return pieces


def _width(tensor: Tensor) -> int:
    return tensor.shape[-1] if len(tensor.shape) > 1 else math.prod(tensor.shape)


def _boxes(shape: Sequence[int], at: int, length: int, rows: int) -> Iterator["tuple[tuple[int, ...], tuple[int, ...]]"]:
    """Boxes, in order, of `rows` runs of `length` elements, each a row of the last dimension further."""
    if len(shape) == 1:
        yield (at,), (at + length,)
        return
    width = shape[-1]
    if rows > 1 or at % width + length <= width and (at % width or length < width):
        yield from _row_boxes(shape, at // width, at // width + rows, at % width, at % width + length)
        return
    head = min(-at % width, length)
    if head:
        yield from _row_boxes(shape, at // width, at // width + 1, at % width, at % width + head)
    at, length = at + head, length - head
    if length >= width:
        yield from _row_boxes(shape, at // width, (at + length) // width, 0, width)
    if length % width:
        yield from _row_boxes(shape, (at + length) // width, (at + length) // width + 1, 0, length % width)


def _row_boxes(shape: Sequence[int], first: int, last: int, low: int,
               high: int) -> Iterator["tuple[tuple[int, ...], tuple[int, ...]]"]:
    """Columns [low, high) of the rows [first, last), which are counted over all dimensions but the last."""
    above = list(shape[:-1])

    def boxes(sizes: list[int], begin: int, end: int) -> Iterator["tuple[tuple[int, ...], tuple[int, ...]]"]:
        if len(sizes) == 1:
            yield (begin,), (end,)
            return
        inner = math.prod(sizes[1:])
        while begin < end:
            whole = (end - begin) // inner
            if begin % inner == 0 and whole:
                yield (begin // inner, *([0] * (len(sizes) - 1))), (begin // inner + whole, *sizes[1:])
                begin += whole * inner
                continue
            slab, stop = begin // inner, min(end, (begin // inner + 1) * inner)
            for lo, hi in boxes(sizes[1:], begin - slab * inner, stop - slab * inner):
                yield (slab, *lo), (slab + 1, *hi)
            begin = stop
    for lo, hi in boxes(above, first, last):
        yield (*lo, low), (*hi, high)


def _transposed(found: Found, marks: Marks, element: int) -> Optional[list[Piece]]:
    """A parameter whose matrices (its last two dimensions) are boxes of tensors, column by column."""
    rows, columns = found.shape[-2:]
    size = rows * columns
    if not size:
        return None
    pieces: list[Piece] = []
    for index in range(found.count // size):
        # rows that are neighbouring columns of one tensor are one box; where another begins, so does another piece
        begins = _at(found, index * size + torch.arange(rows, device="cpu") * columns)
        starts = [0, *((begins[1:] != begins[:-1] + 1).nonzero().view(-1) + 1).tolist(), rows]
        if len(starts) > _TURNED_MAX or bool((begins < 0).any()):
            return None
        for first, last in zip(starts, starts[1:]):
            row, column = torch.arange(first, last, device="cpu"), torch.arange(columns, device="cpu")
            places = (index * size + row * columns + column[:, None]).view(-1)
            box = _one_box(found.part(places, (columns, last - first)), marks, element)
            if box is None:
                return None
            pieces.append(box._replace(offset_bytes=(index * rows + first) * columns * element,
                                       transform=Transform(transposed=True)))
    return pieces


def _one_box(found: Found, marks: Marks, element: int) -> Optional[Piece]:
    """A matrix that is one box of one matrix."""
    boxes = _pieces(found, marks, element)
    if boxes is None or len(boxes) != 1 or boxes[0].bytes != found.count * element:
        return None
    box = boxes[0]
    # of three dimensions one matrix, whose sides are the part's own: a run may have gone over what is no matrix of it
    sides = tuple(high - low for low, high in zip(box.lo, box.hi))
    return box if sides in (found.shape, (1, *found.shape)) else None


def renamed(param: Param, name: str, rename: Callable[[str], str]) -> Param:
    """The same of another layer."""
    pieces = tuple(piece._replace(tensor=rename(piece.tensor)) for piece in param.pieces)
    return dataclasses.replace(param, name=name, pieces=pieces)

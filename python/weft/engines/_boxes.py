# SPDX-License-Identifier: Apache-2.0
"""From the numbers of elements that a parameter is made of (_marks) to pieces: boxes of tensors, each one run of bytes.

    numbers     0 1 2 3  8 9 10 11        two runs of 4, 8 apart, of a tensor [2, 8]
    as a box    rows 0 to 2, columns 0 to 4
"""
from __future__ import annotations

import math
from typing import Callable, Iterator, Optional, Sequence

import torch

from weft._dtypes import dtype_of
from weft._inference import Transform
from weft._structs import Tensor
from weft.engines._layout import Param, Piece
from weft.engines._marks import COMPUTED, Marks

_PIECES_MAX = 1 << 16  # of one parameter: beyond it, or of so few bytes each, its elements are shuffled
_PIECE_BYTES_LEAST = 64
_TURNED_MAX = 64       # boxes that one transposed matrix may be of


def param_of(name: str, dtype: torch.dtype, shape: Sequence[int], numbers: torch.Tensor, marks: Marks) -> Param:
    """The parameter as pieces, or ``computed`` with the reason."""
    flat, label = numbers.view(-1), dtype_of(dtype).name
    computed = int((flat == COMPUTED).sum()) + int((flat >= marks.end(dtype)).sum())
    if computed:
        return Param(name, label, tuple(shape), computed=f"{computed} of {flat.numel()} elements are computed from what is "
                                                         "loaded")
    element = dtype_of(label).bytes
    pieces = _pieces(flat, dtype, marks, element)
    if len(shape) >= 2 and (pieces is None or len(pieces) > 1):
        turned = _transposed(flat, shape, dtype, marks, element)
        pieces = turned if turned is not None and (pieces is None or len(turned) < len(pieces)) else pieces
    if pieces is None:
        return Param(name, label, tuple(shape), computed="its elements stand in an order that no boxes have (a shuffle of "
                                                         "a kernel's)")
    at, fills = 0, []
    for piece in pieces:
        if piece.offset_bytes > at:
            fills.append((at, piece.offset_bytes))
        at = piece.offset_bytes + piece.bytes
    if at < flat.numel() * element:
        fills.append((at, flat.numel() * element))
    return Param(name, label, tuple(shape), tuple(pieces), tuple(fills))


def _runs(flat: torch.Tensor, dtype: torch.dtype, marks: Marks) -> "tuple[torch.Tensor, torch.Tensor, torch.Tensor, list[str]]":
    """Where runs of one tensor's neighbouring elements begin, how long they are, and which tensor each is of."""
    tensor, names = marks.tensor_at(flat.clamp(min=0), dtype)
    tensor = torch.where(flat >= 0, tensor, torch.full((), -1, dtype=tensor.dtype))
    breaks = torch.ones(flat.numel(), dtype=torch.bool)
    breaks[1:] = (tensor[1:] != tensor[:-1]) | ((flat[1:] != flat[:-1] + 1) & (tensor[1:] >= 0))
    starts = breaks.nonzero().view(-1)
    lengths = torch.diff(starts, append=torch.tensor([flat.numel()]))
    return starts, lengths, tensor[starts], names


def _pieces(flat: torch.Tensor, dtype: torch.dtype, marks: Marks, element: int) -> Optional[list[Piece]]:
    if not flat.numel():
        return []
    starts, lengths, tensors, names = _runs(flat, dtype, marks)
    first = flat[starts]
    width = torch.tensor([_width(marks.tensors[name]) for name in names])[tensors.clamp(min=0)]
    base = torch.tensor([marks.first(name) for name in names])[tensors.clamp(min=0)]
    # a run goes on the box of the one before it: as long, a row further, in the same columns, right behind it
    column = (first - base) % width
    same = torch.zeros(starts.numel(), dtype=torch.bool)
    same[1:] = (tensors[1:] == tensors[:-1]) & (tensors[1:] >= 0) & (lengths[1:] == lengths[:-1]) \
        & (first[1:] == first[:-1] + width[1:]) & (column[1:] + lengths[1:] <= width[1:])
    groups = (~same).nonzero().view(-1)
    if groups.numel() > min(_PIECES_MAX, 64 + flat.numel() * element // _PIECE_BYTES_LEAST):
        return None
    counts = torch.diff(groups, append=torch.tensor([starts.numel()]))
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


def _transposed(flat: torch.Tensor, shape: Sequence[int], dtype: torch.dtype, marks: Marks,
                element: int) -> Optional[list[Piece]]:
    """A parameter whose matrices (its last two dimensions) are boxes of tensors, column by column."""
    rows, columns = shape[-2], shape[-1]
    pieces: list[Piece] = []
    for index, matrix in enumerate(flat.view(-1, rows, columns)):
        # rows that are neighbouring columns of one tensor are one box; where another begins, so does another piece
        starts = [0, *((matrix[1:, 0] != matrix[:-1, 0] + 1).nonzero().view(-1) + 1).tolist(), rows]
        if len(starts) > _TURNED_MAX:
            return None
        for first, last in zip(starts, starts[1:]):
            found = _pieces(matrix[first:last].t().contiguous().view(-1), dtype, marks, element)
            if found is None or len(found) != 1 or found[0].bytes != (last - first) * columns * element:
                return None
            box = found[0]
            if len(box.lo) < 2 or len(box.lo) > 3 or len(box.lo) == 3 and box.hi[0] - box.lo[0] != 1:
                return None
            pieces.append(box._replace(offset_bytes=(index * rows + first) * columns * element,
                                       transform=Transform(transposed=True)))
    return pieces


def renamed(param: Param, name: str, rename: Callable[[str], str]) -> Param:
    """The same of another layer."""
    return Param(name, param.dtype, param.shape, tuple(piece._replace(tensor=rename(piece.tensor)) for piece in param.pieces),
                 param.fills, param.computed)

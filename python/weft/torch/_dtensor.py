# SPDX-License-Identifier: Apache-2.0
"""Which elements a DTensor's local tensor has, of any placements (torch.distributed.tensor: "DTensor Placements").

Shard(d) cuts dimension d in chunks of ceil(n / ranks), the last ones short or empty. FSDP2 over tensor or expert
parallelism comes second and is the mesh's first dimension, so it is a _StridedShard(d, split_factor): what cut the
dimension before it are Shards on its right whose ranks multiply to the factor. Without those on its right (a placement
that was redistributed) each of `split_factor` chunks has a part of this rank, and local memory has several runs.
compute_local_shape_and_global_offset says only where the first one begins.
"""
from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple, Sequence

from weft import UsageError
from weft.torch._cuts import Run, dense

Interval = tuple[int, int]


class _Cut(NamedTuple):
    """A mesh dimension that cuts a tensor's dimension: in `parts`, of which this rank has number `place`."""
    parts: int
    place: int
    factor: int  # of a _StridedShard; 0 of a Shard


def chunk(low: int, high: int, parts: int, index: int) -> Interval:
    """torch.chunk's rule."""
    size = -(-(high - low) // parts)
    return min(low + index * size, high), min(low + (index + 1) * size, high)


def _in_order(cuts: Sequence[_Cut], what: str) -> list[_Cut]:
    """As they were applied: a strided one behind those on its right that its factor counts."""
    applied: list[_Cut] = []
    for cut in reversed(cuts):
        if not cut.factor:
            applied.insert(0, cut)
            continue
        products = list(itertools.accumulate((each.parts for each in applied), int.__mul__, initial=1))
        if cut.factor in products:
            applied.insert(products.index(cut.factor), cut._replace(factor=0))
        elif not applied:
            applied.append(cut)
        else:
            raise UsageError(f"{what}: a split factor of {cut.factor} is none of {products[1:]}, which the shards on "
                             "its right multiply to: weft does not know in which order they were cut; redistribute "
                             "the tensor, or give it to `gathered`")
    return applied


def intervals(size: int, cuts: Sequence[_Cut], what: str) -> list[Interval]:
    """The indexes of a dimension that this rank has, in the order of its memory."""
    kept = [(0, size)]
    for cut in _in_order(cuts, what):
        pieces = [chunk(*kept[0], cut.factor, i) for i in range(cut.factor)] if cut.factor else kept
        kept = [chunk(low, high, cut.parts, cut.place) for low, high in pieces]
    found: list[Interval] = []
    for low, high in kept:
        if low < high and found and found[-1][1] == low:
            found[-1] = found[-1][0], high
        elif low < high:
            found.append((low, high))
    return found


def _cuts_of(name: str, tensor: Any) -> dict[int, list[_Cut]]:
    """By dimension of the tensor, in the order of the mesh. None of a mesh that this rank is not in."""
    mesh, coordinate = tensor.device_mesh, tensor.device_mesh.get_coordinate()
    cuts: dict[int, list[_Cut]] = {}
    for i, placement in enumerate(tensor.placements):
        kind = type(placement).__name__
        if kind == "Replicate":
            continue
        if kind not in ("Shard", "_StridedShard"):
            raise UsageError(f"{name!r} is a DTensor placed as {tuple(tensor.placements)}: of {kind} no rank has "
                             "elements that are final, or weft does not know which; redistribute it to Shard or "
                             "Replicate, or give it to `gathered`")
        dim = placement.dim % tensor.ndim
        factor = int(placement.split_factor) if kind == "_StridedShard" else 0
        cuts.setdefault(dim, []).append(_Cut(mesh.size(i), coordinate[i], 0 if factor == 1 else factor))
    return cuts


def runs_of(name: str, tensor: Any, local: Any) -> list[Run]:
    """The boxes of the whole tensor that `local` has, with their places in it, in elements."""
    shape, what = tuple(tensor.shape), f"{name!r} of shape {tuple(tensor.shape)}, placed as {tuple(tensor.placements)}"
    if tensor.device_mesh.get_coordinate() is None or not local.numel():
        return []
    told = getattr(getattr(tensor, "_local_tensor", local), "__create_chunk_list__", None)
    if told is not None:
        return _uneven(what, told(), local)
    cuts = _cuts_of(name, tensor)
    kept = [intervals(size, cuts.get(d, ()), what) for d, size in enumerate(shape)]
    sizes = tuple(sum(high - low for low, high in each) for each in kept)
    if sizes != tuple(local.shape):
        raise UsageError(f"{what}: this rank's part should be {sizes}, and its local tensor is {tuple(local.shape)}: "
                         "it was cut by another rule than torch's; give it to `gathered`, or declare it with "
                         "Trainer.declare_holding")
    strides, runs = tuple(local.stride()), []
    for boxes in itertools.product(*(_placed(each) for each in kept)):
        runs.append(Run(tuple(low for low, _, _ in boxes), tuple(high for _, high, _ in boxes),
                        sum(at * stride for (_, _, at), stride in zip(boxes, strides)), strides))
    return runs


def _placed(kept: Sequence[Interval]) -> list[tuple[int, int, int]]:
    """(low, high, index in the local tensor)."""
    begins = itertools.accumulate((high - low for low, high in kept), initial=0)
    return [(low, high, at) for (low, high), at in zip(kept, begins)]


def _uneven(what: str, chunks: Sequence[Any], local: Any) -> list[Run]:
    """Megatron-FSDP cuts rows where its buffers' borders are, and says where in the list that
    torch.distributed.checkpoint asks for (ChunkStorageMetadata), not in the placements."""
    if len(chunks) != 1 or math.prod(chunks[0].sizes) != local.numel():
        raise UsageError(f"{what}: its list of chunks is {list(chunks)} of {local.numel()} local elements; one chunk "
                         "of as many is what weft reads: give it to `gathered`")
    low, sizes = tuple(chunks[0].offsets), tuple(chunks[0].sizes)
    return [Run(low, tuple(at + size for at, size in zip(low, sizes)), 0,
                tuple(local.stride()) if local.shape == tuple(sizes) else dense(sizes))]

# SPDX-License-Identifier: Apache-2.0
"""What each parameter of one engine rank is made of.

    parameter's bytes   | piece 0 | piece 1 | fill |       a piece: a box of a tensor, row after row
                        0         offset ..        size    a fill: bytes that come from no tensor

It comes from Weft's rows for the model's class (``from_rows``) or from a probe of the engine's own loader (``_probe``), and
both are compared as runs: which elements of which tensor lie one after the other.
"""
from __future__ import annotations

import dataclasses
import json
import math
import os
import re
import subprocess
import tempfile
from typing import Any, Iterable, NamedTuple, Optional, Sequence

import torch

from weft import programs
from weft._dtypes import dtype_of
from weft._errors import Code, ConfigError, FileError, UsageError, of_code
from weft._inference import Inference, Transform
from weft._structs import Tensor
from weft.torch._cuts import folded_shape


class Piece(NamedTuple):
    """The box [lo, hi) of a tensor becomes ``bytes`` of a parameter, from ``offset_bytes`` on."""
    tensor: str
    lo: tuple[int, ...]
    hi: tuple[int, ...]
    offset_bytes: int
    bytes: int
    transform: Optional[Transform] = None
    scales: Optional[str] = None


@dataclasses.dataclass(frozen=True)
class Param:
    """A parameter, its pieces in the order of its bytes, and [first, last) of what no tensor fills: ``fills`` are zeroes,
    ``kept`` has what the engine's class gave it.

    ``computed`` says why it is none of pieces, where the engine computes it from what it loads. The shape is that of memory:
    of a parameter that is a ``turned`` view, its dimensions in the order in which they lie."""
    name: str
    dtype: str
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...] = ()
    fills: tuple[tuple[int, int], ...] = ()
    kept: tuple[tuple[int, int], ...] = ()
    computed: str = ""
    turned: bool = False

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * dtype_of(self.dtype).bytes


@dataclasses.dataclass(frozen=True)
class Layout:
    """All parameters of a rank.

    Attributes:
        params: in the engine's order.
        tensors: by name, whole, as the checkpoint has them.
        source: "rows" or "probe".
        derived: tensors beside the parameters that the engine computes of them after a load.
        constants: parameters that no load changes, or not all of, as a load leaves them, where the live ones are others.
    """
    params: tuple[Param, ...]
    tensors: dict[str, Tensor]
    source: str
    derived: tuple[str, ...] = ()
    constants: dict[str, torch.Tensor] = dataclasses.field(default_factory=dict, compare=False)

    def without(self, beginnings: Sequence[str]) -> "tuple[Layout, list[str]]":
        """Without the parameters that are made of tensors of these beginnings alone; and their names.

        Raises:
            UsageError: a parameter is made of such and of others.
        """
        kept: list[Param] = []
        alone: list[Param] = []
        for param in self.params:
            out = [piece.tensor.startswith(tuple(beginnings)) for piece in param.pieces]
            if any(out) and not all(out):
                raise UsageError(f"parameter {param.name} is made of tensors that are left alone and of others "
                                 f"({', '.join(sorted({piece.tensor for piece in param.pieces}))}): name all or none of them")
            (alone if out and all(out) else kept).append(param)
        return dataclasses.replace(self, params=tuple(kept)), [param.name for param in alone]

    def declare(self, inference: Inference, memory: dict[str, Any], given: dict[str, Tensor]) -> None:
        """Each parameter and its pieces. `memory`: where each lies; `given`: tensors as trainers hold them, whose dtypes may
        be others."""
        for param in self.params:
            lying = memory.get(param.name)
            number = inference.declare_param(param.name, param.dtype, folded_shape(param.shape),
                                             memory=None if lying is None else lying.view(folded_shape(param.shape)))
            for piece in param.pieces:
                tensor = given[piece.tensor]
                if piece.transform is None:
                    inference.declare_piece(tensor, number, lo=piece.lo, hi=piece.hi, offset_bytes=piece.offset_bytes)
                    continue
                inference.declare_transformed_piece(tensor, number, lo=piece.lo, hi=piece.hi, transform=piece.transform,
                                                    offset_bytes=piece.offset_bytes,
                                                    scales=given[piece.scales] if piece.scales else None)
            for first, last in param.fills + param.kept:  # zeroed at join: who declares `kept` puts it back (Receiver.join)
                inference.declare_fill(number, first, last - first)

    def differences(self, other: "Layout") -> list[str]:
        """Of each parameter of this one, where it is of other elements in the other: one line each. Blocks of fp8 are compared
        by which elements and scales they are of; what a parameter has beside the tensors' is not."""
        theirs, found = {param.name: param for param in other.params}, []
        for param in self.params:
            beside = theirs.get(param.name, Param(param.name, param.dtype, param.shape))
            if param.computed or beside.computed:
                continue
            shape = next((tensor for tensor in sorted({piece.tensor for piece in (*param.pieces, *beside.pieces)})
                          if tensor in self.tensors and tensor in other.tensors
                          and self.tensors[tensor].shape != other.tensors[tensor].shape), None)
            if shape is not None:
                found.append(f"{param.name}: {shape} is {list(self.tensors[shape].shape)} by {self.source}, "
                             f"{list(other.tensors[shape].shape)} by {other.source}")
                continue
            names: dict[str, int] = {}
            ours, others = _Runs.of(param, self.tensors, names), _Runs.of(beside, other.tensors, names)
            line = ours.difference(others, list(names))
            if line:
                found.append(f"{param.name}: {line[0]} by {self.source}, {line[1]} by {other.source}")
        return found


def gaps(pieces: Iterable[Piece], size_bytes: int) -> list[tuple[int, int]]:
    """[first, last) of the bytes between pieces that stand in their order."""
    at, found = 0, []
    for piece in pieces:
        if piece.offset_bytes > at:
            found.append((at, piece.offset_bytes))
        at = piece.offset_bytes + piece.bytes
    if at < size_bytes:
        found.append((at, size_bytes))
    return found


@dataclasses.dataclass
class _Runs:
    """Runs of a parameter, a number each in every array: ``elements`` of it from ``at`` on are those of tensor number
    ``tensor`` from ``first`` on, ``step`` apart. As long as can be, so that two layouts of the same elements are equal."""
    at: torch.Tensor
    tensor: torch.Tensor
    first: torch.Tensor
    elements: torch.Tensor
    step: torch.Tensor

    @classmethod
    def of(cls, param: Param, tensors: dict[str, Tensor], names: dict[str, int]) -> "_Runs":
        """Those of its pieces; `names` numbers the tensors."""
        element = dtype_of(param.dtype).bytes
        parts = [_box_runs(*_plain(piece, tensors), piece, names, element)
                 for piece in sorted(param.pieces, key=lambda piece: piece.offset_bytes)]
        columns = [torch.cat(column) for column in zip(*parts)] if parts else [torch.zeros(0, dtype=torch.int64, device="cpu")] * 5
        at, tensor, first, elements, step = columns
        step = torch.where(elements == 1, torch.ones_like(step), step)
        on = (tensor[1:] == tensor[:-1]) & (step[1:] == step[:-1]) & (at[1:] == at[:-1] + elements[:-1]) \
            & (first[1:] == first[:-1] + elements[:-1] * step[:-1])
        starts = torch.cat((torch.ones(min(at.numel(), 1), dtype=torch.bool, device="cpu"), ~on)).nonzero().view(-1)
        sums = torch.cat((torch.zeros(1, dtype=torch.int64, device="cpu"), elements.cumsum(0)))
        ends = torch.cat((starts[1:], torch.tensor([at.numel()], device="cpu")))[:starts.numel()]
        return cls(at[starts], tensor[starts], first[starts], sums[ends] - sums[starts], step[starts])

    def difference(self, other: "_Runs", names: list[str]) -> "Optional[tuple[str, str]]":
        """The first, in words."""
        both = min(self.at.numel(), other.at.numel())
        unlike = torch.zeros(both, dtype=torch.bool, device="cpu")
        for field in dataclasses.fields(self):
            unlike |= getattr(self, field.name)[:both] != getattr(other, field.name)[:both]
        where = int(unlike.nonzero()[0]) if bool(unlike.any()) else both
        if where == self.at.numel() == other.at.numel():
            return None
        return self._words(where, names), other._words(where, names)

    def _words(self, run: int, names: list[str]) -> str:
        if run >= self.at.numel():
            return "nothing"
        at, count, step = int(self.at[run]), int(self.elements[run]), int(self.step[run])
        return f"elements {at} to {at + count} are {names[int(self.tensor[run])]} from its element {int(self.first[run])} on" \
            + (f", each {step}th" if step != 1 else "")


def _plain(piece: Piece, tensors: dict[str, Tensor]) -> "tuple[str, tuple[int, ...], tuple[int, ...], tuple[int, ...]]":
    """(tensor, lo, hi, its shape) that a piece is of; scales of blocks as a box of the tensor of scales."""
    shape, transform = tensors[piece.tensor].shape, piece.transform
    block = None if transform is None or not transform.scales_part else transform.to_block
    if block is None:
        return piece.tensor, piece.lo, piece.hi, shape
    sides = (*(1 for _ in shape[:-2]), *block)
    return (piece.scales or piece.tensor + "_scale_inv", tuple(low // side for low, side in zip(piece.lo, sides)),
            tuple(-(-high // side) for high, side in zip(piece.hi, sides)),
            tuple(-(-size // side) for size, side in zip(shape, sides)))


def _box_runs(tensor: str, lo: Sequence[int], hi: Sequence[int], shape: Sequence[int], piece: Piece, names: dict[str, int],
              element: int) -> tuple[torch.Tensor, ...]:
    """The runs of a box, row by row; whole rows are one."""
    sizes, at = [high - low for low, high in zip(lo, hi)], piece.offset_bytes // element
    strides = [math.prod(shape[d + 1:]) for d in range(len(shape))]
    order, step, apart = list(range(len(shape))), 1, 0
    if piece.transform is not None and piece.transform.transposed:
        order[-2:], step = [len(shape) - 1, len(shape) - 2], strides[-2]
        inner = len(shape) - 1
    elif piece.transform is not None and piece.transform.padded_row is not None:
        inner, apart = min(2, len(shape)), piece.transform.padded_row
    else:
        inner = len(shape)  # dimensions from here on are whole
        while inner > 0 and sizes[inner - 1] == shape[inner - 1]:
            inner -= 1
        inner = max(inner - 1, 0)
    count = math.prod(sizes[d] for d in order[inner:])
    first = torch.tensor([sum(low * stride for low, stride in zip(lo, strides))], device="cpu")
    for d in order[:inner]:
        first = (first[:, None] + torch.arange(sizes[d], device="cpu") * strides[d]).view(-1)
    begins = at + torch.arange(first.numel(), device="cpu") * (apart or count)
    same = [torch.full_like(first, value) for value in (names.setdefault(tensor, len(names)), count, step)]
    return begins, same[0], first, same[1], same[2]


# ---- rows

_SAID = re.compile(r"^weft: (WEFT-E\d+ )?|\S*/(?=config\.json)")  # who says it, and a folder that is gone then
_MAKE = re.compile(r"(\d+)x(\d+)")


def _transform(piece: dict[str, Any]) -> Optional[Transform]:
    """Of what `weft model layout --json` says of a piece."""
    how = piece.get("make", "copy")
    verb, blocks = how.split(" ")[0], [(int(rows), int(columns)) for rows, columns in _MAKE.findall(how)]
    if verb in ("copy", "convert"):
        return None
    if verb == "transpose":
        return Transform(transposed=True)
    if verb == "pad":
        return Transform(padded_row=int(how.split(" ")[1]))
    if verb == "dequantise":
        return Transform(from_block=blocks[0])
    return Transform(from_block=blocks[0] if len(blocks) == 2 else None, to_block=blocks[-1],
                     scales_part=verb in ("scales", "rescale"))


def _weft(*arguments: str) -> str:
    done = subprocess.run([programs.path("weft"), *arguments], capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise of_code(Code.CONFIG, _SAID.sub("", done.stderr.strip()) or f"weft {arguments[0]}: exit {done.returncode}")
    return done.stdout


def config_folder(config: "dict[str, Any] | str | os.PathLike[str]", into: str) -> str:
    """A folder with the model's config.json: one that is there, or of a dictionary in `into`."""
    if not isinstance(config, dict):
        return os.fspath(config)
    with open(os.path.join(into, "config.json"), "w") as file:
        json.dump(config, file, default=str)
    return into


def from_rows(config: "dict[str, Any] | str | os.PathLike[str]", infer: str, rank: int,
              live: Sequence[Tensor]) -> Layout:
    """The layout that Weft's rows have for a model of a known class.

    Args:
        config: the model's config.json as a dictionary, or its folder.
        infer: of one engine, without engines=: "tp=4,ep=4,names=vllm".
        rank: of this engine, from 0.
        live: the engine's own parameters; what it has beside the rows' is left alone.

    Raises:
        ConfigError: the class is unknown, an option means nothing to it, or the engine's parameters are others.
    """
    with tempfile.TemporaryDirectory(prefix="engine-") as scratch:
        folder = config_folder(config, scratch)
        names = check_live(folder, infer, rank, live, scratch)
        lines = _weft("model", "layout", "--json", f"--infer=engines=1,{infer}", f"--rank={rank}", folder)
        tensors = {row["tensor"]: Tensor(row["tensor"], row["dtype"], tuple(row["shape"]))
                   for row in map(json.loads, _weft("model", "tensors", "--json", folder).splitlines())}
    pieces: dict[str, list[Piece]] = {}
    for row in map(json.loads, lines.splitlines()):
        box = row["src"]
        pieces.setdefault(row["param"], []).append(
            Piece(row["tensor"], tuple(pair[0] for pair in box), tuple(pair[1] for pair in box), row["offset"], row["bytes"],
                  _transform(row), row.get("scales")))
    return Layout(tuple(_param(tensor, pieces.get(tensor.name, [])) for tensor in live if tensor.name in names), tensors,
                  "rows")


def _param(live: Tensor, pieces: list[Piece]) -> Param:
    pieces.sort(key=lambda piece: piece.offset_bytes)
    size = math.prod(live.shape) * dtype_of(live.dtype).bytes
    return Param(live.name, live.dtype, live.shape, tuple(pieces), tuple(gaps(pieces, size)))


_ALONE = ": no source, left alone"


def check_live(folder: str, infer: str, rank: int, live: Iterable[Tensor], scratch: str) -> set[str]:
    """The names of the engine's parameters that the rows have; ConfigError with the first differences and the option that
    would agree, where they differ (`weft model check`)."""
    listed = list(live)
    file = os.path.join(scratch, "live.jsonl")
    with open(file, "w") as lines:
        for tensor in listed:
            lines.write(json.dumps({"name": tensor.name, "dtype": tensor.dtype, "shape": list(tensor.shape)}) + "\n")
    done = subprocess.run([programs.path("weft"), "model", "check", "--model", folder, f"--infer=engines=1,{infer}",
                           f"--rank={rank}", "--live", file], capture_output=True, text=True, timeout=120)
    said = (done.stdout + done.stderr).splitlines()
    alone = {line[:-len(_ALONE)].split(": ")[-1] for line in said if line.endswith(_ALONE)}
    if done.returncode:
        raise ConfigError("\n".join(_SAID.sub("", line) for line in said if not line.endswith(_ALONE)) or "weft model check failed")
    return {tensor.name for tensor in listed} - alone


def tensors_of_folder(folder: str) -> dict[str, Tensor]:
    """What a checkpoint's safetensors files hold, from their headers alone.

    Raises:
        UsageError: no such file is there. FileError: one is broken.
    """
    found: dict[str, Tensor] = {}
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        if not name.endswith(".safetensors") or name.startswith("adapter_"):
            continue
        for tensor, entry in _header(os.path.join(folder, name)).items():
            if tensor != "__metadata__":
                found[tensor] = Tensor(tensor, entry["dtype"], tuple(entry["shape"]) or (1,))
    if not found:
        raise UsageError(f"{folder}: no .safetensors file, and the trainers did not say what they send: give Sender its "
                         "tensors, or the engine a folder with the checkpoint")
    return found


def _header(path: str) -> "dict[str, Any]":
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > 100 << 20:
            raise FileError(f"{path}: a header of {size} bytes; safetensors have 100 MB at most")
        text = file.read(size)
    try:
        header: dict[str, Any] = json.loads(text)
        if len(text) == size and all(name == "__metadata__" or {"dtype", "shape"} <= set(entry) for name, entry in header.items()):
            return header
    except (ValueError, AttributeError, TypeError):
        pass
    raise FileError(f"{path}: no header of a safetensors file in its first {8 + size} bytes: is it whole?")

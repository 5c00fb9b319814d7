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
from typing import Any, Iterable, Iterator, NamedTuple, Optional, Sequence

from weft import programs
from weft._dtypes import dtype_of
from weft._errors import Code, ConfigError, UsageError, of_code
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
    """A parameter, its pieces in the order of its bytes, and [first, last) of what no tensor fills.

    ``computed`` says why it is none of pieces, where the engine computes it from what it loads."""
    name: str
    dtype: str
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...] = ()
    fills: tuple[tuple[int, int], ...] = ()
    computed: str = ""

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
    """
    params: tuple[Param, ...]
    tensors: dict[str, Tensor]
    source: str
    derived: tuple[str, ...] = ()

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
            number = inference.declare_param(param.name, param.dtype, folded_shape(param.shape),
                                             memory=memory.get(param.name))
            for piece in param.pieces:
                tensor = given[piece.tensor]
                if piece.transform is None:
                    inference.declare_piece(tensor, number, lo=piece.lo, hi=piece.hi, offset_bytes=piece.offset_bytes)
                    continue
                inference.declare_transformed_piece(tensor, number, lo=piece.lo, hi=piece.hi, transform=piece.transform,
                                                    offset_bytes=piece.offset_bytes,
                                                    scales=given[piece.scales] if piece.scales else None)
            for first, last in param.fills:
                inference.declare_fill(number, first, last - first)

    def differences(self, other: "Layout") -> list[str]:
        """Of each parameter that both have, where it is of other elements: one line each. What is transformed by values
        (fp8) in one of them is not compared."""
        theirs, found = {param.name: param for param in other.params}, []
        for param in self.params:
            beside = theirs.get(param.name)
            if beside is None or param.computed or beside.computed or _by_value(param) or _by_value(beside):
                continue
            line = _difference(list(_runs(param, self.tensors)), list(_runs(beside, other.tensors)))
            if line:
                found.append(f"{param.name}: {line[0]} by {self.source}, {line[1]} by {other.source}")
        return found


def _by_value(param: Param) -> bool:
    return any(piece.transform is not None and not piece.transform.transposed for piece in param.pieces)


class _Run(NamedTuple):
    """`elements` of a parameter from `at` on are those of a tensor from `first` on, `step` apart."""
    at: int
    tensor: str
    first: int
    elements: int
    step: int


def _box_runs(piece: Piece, shape: Sequence[int], at: int) -> Iterator[_Run]:
    """The runs of a box, row by row; whole rows are one."""
    sizes = [high - low for low, high in zip(piece.lo, piece.hi)]
    strides = [math.prod(shape[d + 1:]) for d in range(len(shape))]
    if piece.transform is not None and piece.transform.transposed:
        first = sum(low * stride for low, stride in zip(piece.lo, strides))
        for column in range(sizes[-1]):
            yield _Run(at + column * sizes[-2], piece.tensor, first + column, sizes[-2], strides[-2])
        return
    whole = len(shape)  # dimensions from here on are whole
    while whole > 0 and sizes[whole - 1] == shape[whole - 1]:
        whole -= 1
    inner = max(whole - 1, 0)
    count = math.prod(sizes[inner:])
    for outer in range(math.prod(sizes[:inner])):
        rest, first = outer, sum(piece.lo[d] * strides[d] for d in range(inner, len(shape)))
        for d in reversed(range(inner)):
            first += (piece.lo[d] + rest % sizes[d]) * strides[d]
            rest //= sizes[d]
        yield _Run(at + outer * count, piece.tensor, first, count, 1)


def _runs(param: Param, tensors: dict[str, Tensor]) -> Iterator[_Run]:
    """Those of a parameter, longest as can be."""
    element, last = dtype_of(param.dtype).bytes, None
    for piece in sorted(param.pieces, key=lambda piece: piece.offset_bytes):
        for run in _box_runs(piece, tensors[piece.tensor].shape, piece.offset_bytes // element):
            if run.elements == 1 and run.step != 1:
                run = run._replace(step=1)
            if last is not None and (last.tensor, last.step, last.at + last.elements, last.first + last.elements * last.step) == \
                    (run.tensor, run.step, run.at, run.first):
                last = last._replace(elements=last.elements + run.elements)
                continue
            if last is not None:
                yield last
            last = run
    if last is not None:
        yield last


def _difference(ours: list[_Run], theirs: list[_Run]) -> "Optional[tuple[str, str]]":
    for a, b in zip(ours, theirs):
        if a != b:
            return _words(a), _words(b)
    if len(ours) != len(theirs):
        longer = ours if len(ours) > len(theirs) else theirs
        extra = _words(longer[min(len(ours), len(theirs))])
        return (extra, "nothing") if longer is ours else ("nothing", extra)
    return None


def _words(run: _Run) -> str:
    return f"elements {run.at} to {run.at + run.elements} are {run.tensor} from its element {run.first} on" \
        + (f", each {run.step}th" if run.step != 1 else "")


# ---- rows

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
        raise of_code(Code.CONFIG, done.stderr.strip() or f"weft {arguments[0]}: exit {done.returncode}")
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
    at, fills = 0, []
    for piece in pieces:
        if piece.offset_bytes > at:
            fills.append((at, piece.offset_bytes))
        at = piece.offset_bytes + piece.bytes
    size = math.prod(live.shape) * dtype_of(live.dtype).bytes
    if at < size:
        fills.append((at, size))
    return Param(live.name, live.dtype, live.shape, tuple(pieces), tuple(fills))


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
        raise ConfigError("\n".join(line for line in said if not line.endswith(_ALONE)) or "weft model check failed")
    return {tensor.name for tensor in listed} - alone


def tensors_of_folder(folder: str) -> dict[str, Tensor]:
    """What a checkpoint's safetensors files hold, from their headers alone.

    Raises:
        UsageError: no such file is there.
    """
    found: dict[str, Tensor] = {}
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        if not name.endswith(".safetensors") or name.startswith("adapter_"):
            continue
        with open(os.path.join(folder, name), "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            if size > 100 << 20:
                raise UsageError(f"{folder}/{name}: a header of {size} bytes; safetensors have 100 MB at most")
            header = json.loads(file.read(size))
        for tensor, entry in header.items():
            if tensor != "__metadata__":
                found[tensor] = Tensor(tensor, entry["dtype"], tuple(entry["shape"]) or (1,))
    if not found:
        raise UsageError(f"{folder}: no .safetensors file, and the trainers did not say what they send: give Sender its "
                         "tensors, or the engine a folder with the checkpoint")
    return found

# SPDX-License-Identifier: Apache-2.0
"""The layout of a rank as its engine's own loader shows it.

    a model of the same class, of few layers        the live model is not touched
    ├─ loads of digits (_marks)   ─► load ─► what lies where, as the loader leaves it
    ├─ the engine's post-load work ───────► what lies where when it runs: this is what weft writes
    ├─ two loads of random digits  ─► whether every element is really moved, and not computed
    └─ an update from one to the other, rehearsed ─► whether derived tensors are right then

The layers of the live model take the layout of the first probed layer that has the same parameters. So a model of any class
that the engine can load has a layout, and what post-load work only moves (halves that change places, transposes) is written
in its final place.
"""
from __future__ import annotations

import dataclasses
import re
from typing import Any, Optional

import torch

from weft._dtypes import dtype_of
from weft._errors import ConflictError, UnsupportedError, UsageError
from weft._structs import Tensor
from weft.engines._boxes import param_of, renamed
from weft.engines._engine import Engine, layers_of, tensors_beside
from weft.engines._layout import Layout, Param
from weft.engines._marks import Marks
from weft.torch._cuts import folded_shape

_LAYER = re.compile(r"(?<=\.)(\d+)(?=\.)")  # of model.layers.7.mlp: the first number between dots is the layer's


@dataclasses.dataclass(frozen=True)
class Probed:
    """What a probe found.

    Attributes:
        layout: of the live model, as it runs.
        loaded: as the loader leaves it, before post-load work; of the probed layers alone.
        moved: parameters whose elements post-load work has moved or computed, each with a word.
        stale: tensors that would not be right after a direct update, and repeating the engine's last post-load step.
        reload_refused: why the engine's own reload must not be used: what it left otherwise than a first load does. "" where it
            was right, or was not tried because writes alone are enough.
        layers: how many a stage were probed.
        names: of each live parameter, the probed one that it is like.
        added: probed parameters that post-load work adds.
    """
    layout: Layout
    loaded: Layout
    moved: tuple[str, ...]
    stale: tuple[str, ...]
    reload_refused: str
    layers: int
    names: "dict[str, str]" = dataclasses.field(default_factory=dict)
    added: "frozenset[str]" = frozenset()

    def like(self, name: str) -> str:
        """The probed parameter that a live one is like."""
        return self.names.get(name, name)


def signature_of(names: "dict[str, tuple[str, tuple[int, ...]]]") -> "dict[int, frozenset[Any]]":
    """{layer: its parameters, without its number}."""
    found: dict[int, set[Any]] = {}
    for name, what in names.items():
        match = _LAYER.search(name)
        if match:
            found.setdefault(int(match.group()), set()).add((name[:match.start()], name[match.end():], what))
    return {layer: frozenset(each) for layer, each in found.items()}


def layers_wanted(names: "dict[str, tuple[str, tuple[int, ...]]]") -> int:
    """How many layers of a stage have one of each kind."""
    signatures = signature_of(names)
    if not signatures:
        return 1
    first, kinds, wanted = min(signatures), set(), 1
    for layer in sorted(signatures):
        if signatures[layer] not in kinds:
            kinds.add(signatures[layer])
            wanted = layer - first + 1
    return wanted


def probe(engine: Engine, tensors: "dict[str, Tensor]", *, reload: bool = False) -> Probed:
    """Loads marked weights through the engine's loader.

    Args:
        engine: this process's.
        tensors: the checkpoint's, by name, whole, in the dtypes that the engine loads.
        reload: the engine's own reload is rehearsed too, which it is anyway where writes alone are not enough.

    Raises:
        UnsupportedError: the engine cannot make or load a second model here. ConflictError: it is not like the live one.
    """
    live = {name: (str(param.dtype), tuple(param.shape)) for name, param in engine.model.named_parameters()}
    layers = layers_wanted(live)
    stages = _stages(engine, live)
    few = {name: tensor for name, tensor in tensors.items() if _within(name, layers * stages)}
    reading = _Reading(engine, layers, Marks(few))
    final, loaded = reading.params()
    _like_live(live, final)
    names = {name: _like_name(name, final, live) or name for name in live}
    placed = _placed(final, live, tensors)
    params = [_of_live(name, placed, live, tensors) for name in live]
    stale, repeated = reading.stale(final)
    layout = Layout(tuple(param for param in params if param is not None and names[param.name] not in repeated),
                    {name: tensor._replace(shape=folded_shape(tensor.shape)) for name, tensor in tensors.items()}, "probe",
                    reading.derived + tuple(repeated))
    wrong = reading.reload_wrong() if reload or stale or any(param.computed for param in final.values()) else ""
    return Probed(layout, Layout(tuple(loaded.values()), few, "the loader"), reading.moved(final), stale, wrong, layers, names,
                  frozenset(set(final) - set(reading.before)))


class _Reading:
    """The loads of one probe."""

    def __init__(self, engine: Engine, layers: int, marks: Marks):
        self.engine, self.layers, self.marks = engine, layers, marks
        self.before: dict[str, torch.Tensor] = {}   # parameter: numbers of its elements, as the loader leaves them
        self.after: dict[str, torch.Tensor] = {}    # and after post-load work
        self.sums: dict[str, list[Any]] = {}        # any tensor: a sum of each load's values
        self.dtypes: dict[str, torch.dtype] = {}
        self.last: list[tuple[torch.nn.Module, Any]] = []
        self.given: dict[str, torch.Tensor] = {}    # parameters that no load writes: what their class gave them
        self.untouched = self._untouched()
        for load in range(marks.loads + 2):
            self._load(load)
        self.derived = tuple(name for name in self.sums if name not in self.after and self._changes(name))

    def _made(self) -> "tuple[torch.nn.Module, Any]":
        try:
            return self.engine.scratch(self.layers)
        except (torch.OutOfMemoryError, MemoryError) as error:
            raise UnsupportedError(f"no memory for a second model of {self.layers} layers, which a probe of {self.engine.name}'s "
                                   f"loader needs ({error}): leave more free (gpu_memory_utilization, mem-fraction-static), or "
                                   "say layout=rows") from error

    def _untouched(self) -> set[str]:
        """Parameters that no load writes: they keep what their class gave them, which may mean something to post-load work."""
        model, context = self._made()
        with torch.no_grad():
            before = {name: param.clone() for name, param in model.named_parameters()}
            for param in model.parameters():
                param.zero_()
            self.engine.load(model, context, self.marks.named(0, torch.device("cpu")))
        found = {name for name, param in model.named_parameters() if not bool(param.to(torch.float32).ne(0).any())}
        self.given = {name: value for name, value in before.items() if name in found}
        return found

    def _load(self, load: int) -> None:
        model, context = self._made()
        with torch.no_grad():
            for name, param in model.named_parameters():
                if name in self.given:
                    param.copy_(self.given[name])
                else:
                    param.zero_()  # what stays zero is written by nobody
            self.engine.load(model, context, self.marks.named(load, torch.device("cpu")))
            self._take(model, self.before, load)
            self.engine.process(model, context)
            self._take(model, self.after, load)
        for name, tensor in _all_tensors(model).items():
            self.sums.setdefault(name, []).append(_sum(tensor))
        self.last = [*self.last, (model, context)][-2:]

    def _take(self, model: torch.nn.Module, numbers: "dict[str, torch.Tensor]", load: int) -> None:
        for name, param in model.named_parameters():
            if load == 0:
                numbers[name] = torch.zeros(param.shape, dtype=torch.int64)
            if name not in numbers or numbers[name].shape != param.shape:
                raise UnsupportedError(f"parameter {name} is not the same after each load: a probe cannot find its layout")
            self.marks.add(numbers[name], param, load)
            self.dtypes[name] = param.dtype

    def _changes(self, name: str) -> bool:
        return len(set(self.sums[name])) > 1

    def params(self) -> "tuple[dict[str, Param], dict[str, Param]]":
        """As the engine runs, of all that changes with the weights; and as the loader leaves them."""
        final = {name: param_of(name, self.dtypes[name], numbers.shape, numbers, self.marks)
                 if self._changes(name) else Param(name, dtype_of(self.dtypes[name]).name, tuple(numbers.shape))
                 for name, numbers in self.after.items()}
        loaded = {name: param_of(name, self.dtypes[name], numbers.shape, numbers, self.marks)
                  for name, numbers in self.before.items() if name not in self.untouched}
        return final, loaded

    def moved(self, final: "dict[str, Param]") -> "tuple[str, ...]":
        """What post-load work has changed, a line each."""
        return tuple(f"{name}: {final[name].computed or 'elements are moved'}" for name in final
                     if self._changes(name) and (name not in self.before or self.before[name].shape != self.after[name].shape
                                                 or not torch.equal(self.before[name], self.after[name])))

    def stale(self, final: "dict[str, Param]") -> "tuple[tuple[str, ...], set[str]]":
        """The update rehearsed between the last two models: the parameters of one are written into the other, its derived
        tensors are computed anew, and what is not the same then would be stale in the live engine. And the parameters that
        were right without being written."""
        (model, context), (wanted, _) = self.last
        theirs = dict(wanted.named_parameters())
        added = {name for name in final if name not in self.before}
        try:
            with torch.no_grad():
                for name, param in model.named_parameters():
                    if final[name].pieces and name not in added:
                        param.copy_(theirs[name])
                self.engine.derive(model, context)
        except Exception as error:  # the engine's own code
            return (f"{self.engine.name}'s post-load work cannot be repeated: {type(error).__name__}: {error}",), set()
        mine, other = _all_tensors(model), _all_tensors(wanted)
        wrong = {name for name in other if self._changes(name) and name in mine and not _equal(mine[name], other[name])}
        writable = {name for name in added & wrong if final[name].pieces and mine[name].is_contiguous()}
        return tuple(name for name in other if name in wrong - writable and not final.get(name, _NONE).computed), added - wrong

    def reload_wrong(self) -> str:
        """The engine's own reload rehearsed: of the last load's weights, into the model before it."""
        (model, context), (wanted, _) = self.last
        try:
            with torch.no_grad():
                self.engine.reload(model, context, self.marks.named(self.marks.loads + 1, torch.device("cpu")))
        except Exception as error:  # the engine's own code
            return f"{self.engine.name}'s own reload failed on marked weights: {type(error).__name__}: {error}"
        mine, other = _all_tensors(model), _all_tensors(wanted)
        wrong = [name for name in other if self._changes(name) and not (name in mine and _equal(mine[name], other[name]))]
        return f"{self.engine.name}'s own reload leaves {len(wrong)} tensors otherwise than a first load does, first {wrong[0]}" \
            if wrong else ""


_NONE = Param("", "U8", ())


def _all_tensors(model: torch.nn.Module) -> "dict[str, torch.Tensor]":
    """Parameters, buffers, and tensors that modules keep as attributes."""
    found: "dict[str, torch.Tensor]" = dict(model.named_parameters())
    for path, module in model.named_modules():
        for name, tensor in tensors_beside(module):
            called = f"{path}.{name}" if path else name
            if tensor.device.type != "meta" and called not in found:
                found[called] = tensor
    return found


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and bool(
        torch.equal(a.contiguous().view(-1).view(torch.uint8), b.contiguous().view(-1).view(torch.uint8)))


def _sum(tensor: torch.Tensor) -> Any:
    data = tensor.detach().reshape(-1)
    if data.is_complex():
        data = torch.view_as_real(data).reshape(-1)
    data = data.to(torch.float64).nan_to_num()
    return tuple(tensor.shape), float(data.sum()), float((data[::7] ** 2).sum()), float(data[:1].sum())


def _stages(engine: Engine, live: "dict[str, tuple[str, tuple[int, ...]]]") -> int:
    total, mine = layers_of(engine.hf_config()), len(signature_of(live))
    if mine and total % mine == 0:
        return total // mine
    return 1


def _within(name: str, layers: int) -> bool:
    match = _LAYER.search(name)
    return match is None or int(match.group()) < layers


def _like_live(live: "dict[str, tuple[str, tuple[int, ...]]]", probed: "dict[str, Param]") -> None:
    for name, param in probed.items():
        if name in live and (dtype_of(live[name][0]).name, live[name][1]) != (param.dtype, param.shape):
            raise ConflictError(f"parameter {name} is {live[name][0]} {list(live[name][1])} in the running engine, and "
                                f"{param.dtype} {list(param.shape)} in a new model of the same options: it was changed after it "
                                "was loaded, by a way that a probe does not know")


def _placed(probed: "dict[str, Param]", live: "dict[str, tuple[str, tuple[int, ...]]]",
            tensors: "dict[str, Tensor]") -> "dict[str, Param]":
    """The probed layers as the first ones of this stage of the live model."""
    names: "dict[str, tuple[str, tuple[int, ...]]]" = {name: ("", ()) for name in probed}
    here, there = min(signature_of(names), default=0), min(signature_of(live), default=0)
    if here == there:
        return probed
    found = {}
    for name, param in probed.items():
        match = _LAYER.search(name)
        if match is None:
            found[name] = param
            continue
        layer = str(int(match.group()) - here + there)
        called = f"{name[:match.start()]}{layer}{name[match.end():]}"
        found[called] = _renumbered(param, called, match.group(), layer, tensors)
    return found


def _renumbered(param: Param, name: str, layer: str, to: str, tensors: "dict[str, Tensor]") -> Param:
    mine = re.compile(rf"(?<=\.){layer}(?=\.)")

    def rename(tensor: str) -> str:
        found = mine.sub(to, tensor, count=1)
        if found not in tensors or tensors[found].shape != tensors[tensor].shape:
            raise ConflictError(f"the engine's parameter {name} should be made of {found} {list(tensors[tensor].shape)}, as "
                                f"{param.name} is of {tensor}, and the checkpoint has "
                                + (f"{list(tensors[found].shape)}" if found in tensors else "no such tensor"))
        return found
    return renamed(param, name, rename)


def _of_live(name: str, probed: "dict[str, Param]", live: "dict[str, tuple[str, tuple[int, ...]]]",
             tensors: "dict[str, Tensor]") -> Optional[Param]:
    """A live parameter's layout: the probed one's of the same name, or of the layer that is like its own. None: it does not
    change with the weights."""
    if name in probed:
        return _changing(probed[name])
    match = _LAYER.search(name)
    like = None if match is None else _like(name, probed, live)
    if match is None or like is None:
        raise UsageError(f"the engine's parameter {name} is in none of the layers that were probed")
    other = _LAYER.search(like.name)
    assert other is not None
    return _changing(_renumbered(like, name, other.group(), match.group(), tensors))


def _changing(param: Param) -> Optional[Param]:
    return param if param.pieces or param.computed else None


def _like(name: str, probed: "dict[str, Param]",
          live: "dict[str, tuple[str, tuple[int, ...]]]") -> Optional[Param]:
    called = _like_name(name, probed, live)
    return None if called is None else probed[called]


def _like_name(name: str, probed: "dict[str, Param]", live: "dict[str, tuple[str, tuple[int, ...]]]") -> Optional[str]:
    """The probed parameter in the first layer that has the same parameters as this one's."""
    match = _LAYER.search(name)
    if name in probed or match is None:
        return name if name in probed else None
    signatures = signature_of(live)
    mine = signatures[int(match.group())]
    for layer in sorted(signatures):
        there = f"{name[:match.start()]}{layer}{name[match.end():]}"
        if signatures[layer] == mine and there in probed:
            return there
    return None

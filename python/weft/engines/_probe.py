# SPDX-License-Identifier: Apache-2.0
"""The layout of a rank as its engine's own loader shows it.

    a model of the same class, of few layers        the live model is not touched
    ├─ loads of digits (_marks)   ─► load ─► the engine's post-load work ─► what lies where when it runs: what weft writes
    ├─ loads of random digits     ─► whether every element is really moved, and not computed
    ├─ a load over what the class itself leaves ─► what nothing writes, and must stay
    └─ an update from one to the other, rehearsed ─► whether all that follows from the weights is right then

The layers of the live model take the layout of the first probed layer that has the same parameters. So a model of any class
that the engine can load has a layout, and what post-load work only moves (halves that change places, transposes) is written
in its final place.
"""
from __future__ import annotations

import dataclasses
from typing import Any, Iterator, Optional

import torch

from weft._errors import ConflictError, UnsupportedError, UsageError
from weft._structs import Tensor
from weft.engines._boxes import param_of, renamed
from weft.engines._engine import Engine, layers_of
from weft.engines._layout import Layout, Param
from weft.engines._marks import CHECKS, Found, Marks, in_memory
from weft.engines._rehearsal import Rehearsal
from weft.engines._stacks import Place, Stacks, place_of, unlike
from weft.engines._state import bytes_of, equal, loadable, print_of, state_of
from weft.torch._cuts import folded_shape


@dataclasses.dataclass(frozen=True)
class Probed:
    """What a probe found.

    Attributes:
        layout: of the live model, as it runs; buffers that the loader writes included.
        added: parameters of the live model that the loader does not know: post-load work makes them.
        unwritten: parameters of the live model that no load changes.
        moved: parameters whose elements post-load work has moved or computed, each with a word.
        stale: what would not be right after a direct update, and repeating the engine's last post-load step.
        reload_refused: why the engine's own reload must not be used: what it left otherwise than a first load does. "" where it
            was right, or was not tried because writes alone are enough.
        layers: how many a stage were probed.
    """
    layout: Layout
    added: tuple[str, ...]
    unwritten: tuple[str, ...]
    moved: tuple[str, ...]
    stale: tuple[str, ...]
    reload_refused: str
    layers: int


def listed_of(model: torch.nn.Module) -> Any:
    """What a model has that a loader may write, as it lies in memory."""
    return {name: (str(tensor.dtype), tuple(tensor.shape), tuple(tensor.stride())) for name, tensor in loadable(model).items()}


def probe(engine: Engine, tensors: "dict[str, Tensor]", *, reload: bool = False) -> Probed:
    """Loads marked weights through the engine's loader.

    Args:
        engine: this process's.
        tensors: the checkpoint's, by name, whole, in the dtypes that the engine loads.
        reload: the engine's own reload is rehearsed too, which it is anyway where writes alone are not enough.

    Raises:
        UnsupportedError: the engine cannot make or load a second model here. ConflictError: it is not like the live one.
    """
    live = listed_of(engine.model)
    parameters = dict(engine.model.named_parameters())
    stacks = Stacks({name: live[name] for name in parameters})
    wanted, stages = stacks.wanted(), engine.stages()
    layers = min(wanted, max(-(-layers_of(engine.hf_config()) // stages), 1))
    limit = max(wanted, layers * stages)  # layers of the checkpoint from here on are not loaded
    devices = [each for each in {param.device for param in parameters.values()} if each.type == "cuda"]
    with torch.random.fork_rng(devices=devices):  # a new model's first values are random: the engine's draws stay its own
        try:
            reading = _Reading(engine, layers, limit, tensors)
        except (torch.OutOfMemoryError, MemoryError) as error:
            raise UnsupportedError(f"no memory for a second model of {layers} layers, which a probe of {engine.name}'s loader "
                                   f"needs ({error}): leave more free (gpu_memory_utilization, mem-fraction-static), or say "
                                   "layout=rows") from error
        matching = _Matching(reading, live, stacks, limit, tensors)
        changing = {name: matching.param(name) for name in parameters}
        unwritten = tuple(name for name, param in changing.items() if param is None and not matching.written(name))
        buffers = {name: matching.param(name) for name in live if name not in parameters and matching.loaded(name)}
        rehearsal = Rehearsal(engine, reading, matching.all_params())
        stale = rehearsal.stale()
        wrong = rehearsal.reload_wrong() if reload or stale or any(param.computed for param in reading.params.values()) else ""
    folded = {name: tensor._replace(shape=folded_shape(tensor.shape)) for name, tensor in tensors.items()}
    layout = Layout(tuple(param for param in (*changing.values(), *buffers.values()) if param is not None), folded, "probe",
                    reading.derived, _constants(parameters, matching, reading))
    added = tuple(name for name in parameters if matching.written(name) and not matching.loaded(name))
    return Probed(layout, added, unwritten, reading.moved(), stale, wrong, layers)


def _constants(parameters: "dict[str, torch.nn.Parameter]", matching: "_Matching",
               reading: "_Reading") -> "dict[str, torch.Tensor]":
    """Of live parameters that are not, where no load writes, what a load leaves there."""
    found = {}
    for name, live in parameters.items():
        mine = matching.like(name)
        constant, param = reading.constant(mine), reading.params.get(mine)
        if constant is None:
            continue
        places = [(0, constant.nbytes)] if param is None else param.kept
        if any(not torch.equal(bytes_of(constant)[first:last], bytes_of(live)[first:last]) for first, last in places):
            found[name] = constant
    return found


class _Reading:
    """The loads of one probe.

    Attributes:
        listed: of the probed model, after post-load work.
        params: of all that changes with the weights, as the engine runs.
        loaded: what the loader writes.
        written: what a load changes, before or after post-load work, and all that follows from it.
        last: the models of the last two loads, which are rehearsed with.
    """

    def __init__(self, engine: Engine, layers: int, limit: int, tensors: "dict[str, Tensor]"):
        self.engine, self.layers, self._limit = engine, layers, limit
        self.marks = marks = Marks(_loaded(tensors, limit))
        self._found: dict[str, Found] = {}
        self._prints: dict[str, list[Any]] = {}
        self._before: dict[str, Any] = {}
        self._turned: set[str] = set()
        self._fresh: dict[str, torch.Tensor] = {}
        self.listed: Any = {}
        self.last: "list[tuple[torch.nn.Module, Any]]" = []
        self.parameters, self.loaded = self._written()
        loads = marks.loads + CHECKS
        for load in range(loads):
            model = self.made(load)
            if load >= loads - 2:
                self.last.append(model)
            self._take(model[0], load)
            del model
            if load == marks.loads:  # before there are two to be kept
                self._keep()
        self.written = {name for name, prints in self._prints.items() if any(each != prints[0] for each in prints)
                        and not self._independent(name)}
        self.params = {name: dataclasses.replace(param_of(name, found, marks), turned=name in self._turned)
                       for name, found in self._found.items() if name in self.written}
        for name in [name for name, param in self.params.items() if name not in self.parameters and param.computed]:
            del self.params[name]  # a buffer that a loader computes is as others that are derived
        self.derived = tuple(name for name in self._prints if name in self.written and name not in self.params)

    def named(self, load: int) -> "Iterator[tuple[str, torch.Tensor]]":
        """The checkpoint of a load."""
        return self.marks.named(load, torch.device("cpu"))

    def _written(self) -> "tuple[set[str], set[str]]":
        """(parameters, what of them and of buffers the loader writes). Others keep what their class gave them, which may mean
        something to post-load work."""
        model, context = self.engine.scratch(self.layers)
        parameters = {name for name, _ in model.named_parameters()}
        with torch.no_grad():
            for tensor in loadable(model).values():
                tensor.zero_()
            self.engine.load(model, context, self.named(0))
        return parameters, {name for name, tensor in loadable(model).items() if bool(tensor.to(torch.float32).ne(0).any())}

    def made(self, load: int, zero: bool = True) -> "tuple[torch.nn.Module, Any]":
        """A model with the weights of a load. What stays zero in it is written by nobody."""
        model, context = self.engine.scratch(self.layers)
        with torch.no_grad():
            for name, tensor in loadable(model).items():
                if zero and name in self.loaded:
                    tensor.zero_()
            self.engine.load(model, context, self.named(load))
            if load == self.marks.loads and zero:
                self._before = {name: print_of(tensor) for name, tensor in loadable(model).items()}
            self.engine.process(model, context)
        return model, context

    def _take(self, model: torch.nn.Module, load: int) -> None:
        listed, parameters = listed_of(model), {name for name, _ in model.named_parameters()}
        if self.listed and listed != self.listed:
            names = sorted(name for name in {*listed, *self.listed} if listed.get(name) != self.listed.get(name))
            raise UnsupportedError(f"parameter {names[0]} is not the same after each load: a probe cannot find its layout")
        self.listed, self.parameters = listed, parameters | self.parameters
        for name, tensor in loadable(model).items():
            if (name in parameters or name in self.loaded) and _within(name, self._limit):
                lying = in_memory(tensor)
                if lying is None and name not in self.loaded:
                    continue  # a view that post-load work has made: derived, as other tensors beside the parameters
                if lying is None:
                    raise UnsupportedError(f"parameter {name} {list(tensor.shape)} has strides {tensor.stride()}: its memory has "
                                           "gaps or overlaps, and a probe cannot find its layout")
                if not tensor.is_contiguous():
                    self._turned.add(name)
                if name not in self._found:
                    self._found[name] = Found(lying.shape, tensor.dtype, self.marks)
                self._found[name].add(lying, load)
        for name, value in state_of(model).items():
            self._prints.setdefault(name, []).append(print_of(value))

    def _independent(self, name: str) -> bool:
        """Neither the loader writes it nor post-load work: it may be memory that nobody has written at all."""
        return name not in self.loaded and name in self._before and self._before[name] == self._prints[name][self.marks.loads]

    def _keep(self) -> None:
        model, _ = self.made(0, zero=False)
        for name, tensor in loadable(model).items():
            if name in self._found:
                lying = in_memory(tensor)
                assert lying is not None
                self._found[name].keep(lying)
            found = self._found.get(name)
            if name in self.parameters and found is not None and (len(set(self._prints[name])) == 1 or found.some):
                self._fresh[name] = tensor.detach().clone()

    def constant(self, name: str) -> Optional[torch.Tensor]:
        """A parameter as a load leaves it that does not write it, or not all of it. None: it does, or nobody knows: it is memory
        that nobody has written."""
        fresh = self._fresh.get(name)
        if fresh is None or name in self.params and not self.params[name].kept:
            return None
        again = loadable(self.last[-1][0])[name]
        return fresh if name in self.params or equal(fresh, again) else None

    def moved(self) -> "tuple[str, ...]":
        """What post-load work has changed, a line each."""
        check = self.marks.loads
        return tuple(f"{name}: {param.computed or 'elements are moved'}" for name, param in self.params.items()
                     if self._before.get(name) != self._prints[name][check])


class _Matching:
    """Probed parameters in the place of live ones."""

    def __init__(self, reading: _Reading, live: Any, stacks: Stacks, limit: int, tensors: "dict[str, Tensor]"):
        self._reading, self._live, self._stacks, self._tensors = reading, live, stacks, tensors
        self._checkpoint = Stacks({name: tensor.shape for name, tensor in tensors.items()})
        probed = Stacks(reading.listed)
        self._names: dict[str, str] = {}  # live: probed
        for name in reading.listed:
            place = place_of(name)
            if place is None:
                self._names[name] = name
            elif place.layer < limit:  # the checkpoint's layers from here on were not loaded
                self._names[place.at(place.layer - probed.first(place.stack) + stacks.first(place.stack))] = name
        for name, mine in self._names.items():
            if mine in reading.parameters or mine in reading.loaded:
                self._same(name, mine)

    def _same(self, name: str, mine: str) -> None:
        if self._live.get(name) == self._reading.listed[mine] or name not in self._live and mine not in self._reading.params:
            return
        there = self._live.get(name)
        here = "{} {} with strides {}".format(*self._reading.listed[mine])
        raise ConflictError(f"parameter {name} is {'{} {} with strides {}'.format(*there) if there else 'not'} in the running "
                            f"engine, and {here} in a new model of the same options: it was changed after it was loaded, by a "
                            "way that a probe does not know")

    def like(self, name: str) -> str:
        """The probed parameter that a live one is like: its own, or that of the first layer that has the same parameters."""
        place = place_of(name)
        if name in self._names or place is None:
            return self._names.get(name, name)
        for layer in self._stacks.alike(place):
            if place.at(layer) in self._names:
                return self._names[place.at(layer)]
        return name

    def loaded(self, name: str) -> bool:
        """Whether the engine's loader writes it."""
        return self.like(name) in self._reading.loaded

    def written(self, name: str) -> bool:
        """Whether it changes with the weights."""
        return self.like(name) in self._reading.written

    def all_params(self) -> "dict[str, Param]":
        """Those of the probed model that a direct update would write."""
        return {name: param for name, param in self._reading.params.items() if not param.computed
                and (name in self._reading.parameters or name in self._reading.loaded)}

    def param(self, name: str) -> Optional[Param]:
        """A live parameter's layout. None: it does not change with the weights."""
        mine = self.like(name)
        if mine not in self._reading.listed:
            raise UsageError(f"the engine's parameter {name} is in none of the layers that were probed")
        param = self._reading.params.get(mine)
        if param is None or name == mine:
            return param
        here, there = place_of(mine), place_of(name)
        assert here is not None and there is not None
        return renamed(param, name, lambda tensor: self._renamed(param, tensor, here, there))

    def _renamed(self, param: Param, tensor: str, here: Place, there: Place) -> str:
        """The tensor of the live layer in the place of the probed one's; their layers must have the same tensors."""
        place = place_of(tensor)
        if place is None or here.layer == there.layer:
            return tensor
        if place.layer != here.layer:
            raise ConflictError(f"the engine's {param.name} is made of {tensor}, which has another layer's number: what "
                                f"{there.at(there.layer)} is made of does not follow")
        kinds = self._checkpoint.kinds[place.stack]
        if there.layer not in kinds or kinds[here.layer] != kinds[there.layer]:
            which = unlike(kinds[here.layer], kinds.get(there.layer, frozenset()))
            raise ConflictError(f"the engine's {there.at(there.layer)} should be made of {place.at(there.layer)} as {param.name} "
                                f"is of {tensor}, and layers {here.layer} and {there.layer} of the checkpoint are not alike: "
                                f"first {place.stack}N{which}")
        return place.at(there.layer)


def _loaded(tensors: "dict[str, Tensor]", limit: int) -> "dict[str, Tensor]":
    """What a model with fewer layers loads of a checkpoint."""
    stacks = Stacks({name: tuple(tensor.shape) for name, tensor in tensors.items()})
    return {name: tensor for name, tensor in tensors.items()
            if _within(name, limit) or not stacks.repeats(place_of(name).stack)}  # type: ignore[union-attr]


def _within(name: str, layers: int) -> bool:
    place = place_of(name)
    return place is None or place.layer < layers

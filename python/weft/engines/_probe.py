# SPDX-License-Identifier: Apache-2.0
"""The layout of a rank as its engine's own loader shows it.

    a model of the same class, of few layers        the live model is not touched
    ├─ loads of digits (_marks)   ─► load ─► what lies where, as the loader leaves it
    ├─ the engine's post-load work ───────► what lies where when it runs: this is what weft writes
    └─ two loads of random digits  ─► whether every element is really moved, and not computed

The layers of the live model take the layout of the first probed layer that has the same parameters. So a model of any class
that the engine can load has a layout, and what post-load work only moves (halves that change places, transposes) is written
in its final place.
"""
from __future__ import annotations

import dataclasses
import re
from typing import Any, Optional

import torch

from weft._errors import ConflictError, UnsupportedError, UsageError
from weft._structs import Tensor
from weft.engines._boxes import param_of, renamed
from weft.engines._engine import Engine, layers_of, tensors_beside
from weft.engines._layout import Layout, Param
from weft.engines._marks import Marks

_LAYER = re.compile(r"(?<=\.)(\d+)(?=\.)")  # of model.layers.7.mlp: the first number between dots is the layer's


@dataclasses.dataclass(frozen=True)
class Probed:
    """What a probe found.

    Attributes:
        layout: of the live model, as it runs.
        loaded: as the loader leaves it, before post-load work; of the probed layers alone.
        moved: parameters whose elements post-load work has moved, each with a word.
        layers: how many a stage were probed.
    """
    layout: Layout
    loaded: Layout
    moved: tuple[str, ...]
    layers: int


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


def probe(engine: Engine, tensors: "dict[str, Tensor]") -> Probed:
    """Loads marked weights through the engine's loader.

    Args:
        engine: this process's.
        tensors: the checkpoint's, by name, whole, in the dtypes that the engine loads.

    Raises:
        UnsupportedError: the engine cannot make or load a second model here. ConflictError: it is not like the live one.
    """
    live = {name: (str(param.dtype), tuple(param.shape)) for name, param in engine.model.named_parameters()}
    layers = layers_wanted(live)
    stages = _stages(engine, live, layers)
    few = {name: tensor for name, tensor in tensors.items() if _within(name, layers * stages)}
    marks = Marks(few)
    before: dict[str, torch.Tensor] = {}
    after: dict[str, torch.Tensor] = {}
    kept: dict[str, torch.dtype] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    beside: dict[str, list[Any]] = {}
    for load in range(marks.loads + 2):
        model, context = _scratch(engine, layers)
        with torch.no_grad():
            _blank(model)
            engine.load(model, context, marks.named(load, torch.device("cpu")))
            _take(model, before, marks, load)
            engine.process(model, context)
            _take(model, after, marks, load)
        for name, param in model.named_parameters():
            kept[name], shapes[name] = param.dtype, tuple(param.shape)
        _beside(model, beside)
        del model
    _like_live(live, kept, shapes)
    final = {name: param_of(name, kept[name], shapes[name], numbers, marks) for name, numbers in after.items()}
    loaded = {name: param_of(name, kept[name], numbers.shape, numbers, marks) for name, numbers in before.items() if name in kept}
    placed = _placed(final, live, tensors)
    layout = Layout(tuple(_of_live(name, what, placed, live, tensors) for name, what in live.items()), dict(tensors), "probe",
                    tuple(name for name, sums in beside.items() if len(set(sums)) > 1))
    moved = tuple(f"{name}: {final[name].computed or 'elements are moved'}" for name in final
                  if name not in before or before[name].shape != after[name].shape
                  or not torch.equal(before[name], after[name]))
    return Probed(layout, Layout(tuple(loaded.values()), few, "the loader"), moved, layers)


def _stages(engine: Engine, live: "dict[str, tuple[str, tuple[int, ...]]]", layers: int) -> int:
    total, mine = layers_of(engine.hf_config()), len(signature_of(live))
    if mine and total % mine == 0:
        return total // mine
    return 1


def _within(name: str, layers: int) -> bool:
    match = _LAYER.search(name)
    return match is None or int(match.group()) < layers


def _scratch(engine: Engine, layers: int) -> "tuple[torch.nn.Module, Any]":
    try:
        return engine.scratch(layers)
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise UnsupportedError(f"no memory for a second model of {layers} layers, which a probe of {engine.name}'s loader needs "
                               f"({error}): leave more free (gpu_memory_utilization, mem-fraction-static), or say layout=rows") \
            from error


def _blank(model: torch.nn.Module) -> None:
    """Zero is what nobody writes."""
    for tensor in [*model.parameters(), *model.buffers()]:
        if tensor.device.type != "meta" and isinstance(tensor, torch.nn.Parameter):
            tensor.data.view(-1).view(torch.uint8).zero_() if tensor.is_contiguous() else tensor.data.zero_()


def _take(model: torch.nn.Module, numbers: "dict[str, torch.Tensor]", marks: Marks, load: int) -> None:
    for name, param in model.named_parameters():
        if name not in numbers and load == 0:
            numbers[name] = torch.zeros(param.shape, dtype=torch.int64)
        if name not in numbers or numbers[name].shape != param.shape:
            raise UnsupportedError(f"parameter {name} is not the same after each load: its layout cannot be found by a probe")
        marks.add(numbers[name], param, load)


def _beside(model: torch.nn.Module, sums: "dict[str, list[Any]]") -> None:
    """What else changes with the weights is derived from them."""
    parameters = {param.data_ptr() for param in model.parameters()}
    for path, module in model.named_modules():
        for name, tensor in tensors_beside(module):
            if tensor.device.type == "meta" or not tensor.numel() or tensor.data_ptr() in parameters:
                continue
            data = tensor.detach().to(torch.float64).nan_to_num() if not tensor.is_complex() else tensor.detach().abs().double()
            sums.setdefault(f"{path}.{name}" if path else name, []).append(
                (tuple(tensor.shape), float(data.sum()), float((data.reshape(-1)[::7] ** 2).sum())))


def _like_live(live: "dict[str, tuple[str, tuple[int, ...]]]", dtypes: "dict[str, torch.dtype]",
               shapes: "dict[str, tuple[int, ...]]") -> None:
    for name, dtype in dtypes.items():
        if name in live and live[name] != (str(dtype), shapes[name]):
            raise ConflictError(f"parameter {name} is {live[name][0]} {list(live[name][1])} in the running engine, and {dtype} "
                                f"{list(shapes[name])} in a new model of the same options: it was changed after it was loaded, "
                                "by a way that a probe does not know")


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


def _of_live(name: str, what: "tuple[str, tuple[int, ...]]", probed: "dict[str, Param]",
             live: "dict[str, tuple[str, tuple[int, ...]]]", tensors: "dict[str, Tensor]") -> Param:
    """A live parameter's layout: the probed one's of the same name, or of the layer that is like its own."""
    if name in probed:
        return probed[name]
    match = _LAYER.search(name)
    like = None if match is None else _like(name, match, probed, live)
    if match is None or like is None:
        raise UsageError(f"the engine's parameter {name} is in none of the layers that were probed")
    other = _LAYER.search(like.name)
    assert other is not None
    return _renumbered(like, name, other.group(), match.group(), tensors)


def _like(name: str, match: "re.Match[str]", probed: "dict[str, Param]",
          live: "dict[str, tuple[str, tuple[int, ...]]]") -> Optional[Param]:
    signatures = signature_of(live)
    mine = signatures[int(match.group())]
    for layer in sorted(signatures):
        there = f"{name[:match.start()]}{layer}{name[match.end():]}"
        if signatures[layer] == mine and there in probed:
            return probed[there]
    return None

# SPDX-License-Identifier: Apache-2.0
"""What this rank has of a model in its memory: every parameter, however torch, FSDP or ZeRO-3 cut it. Nothing is
gathered and nothing copied.
"""
from __future__ import annotations

import functools
import sys
from typing import Any, Callable, Collection, Iterable, Iterator, NamedTuple, Optional, Sequence, Union

import torch

from weft import Error, StateError, UsageError, dtype_name
from weft.torch import _dtensor, _flat
from weft.torch._cuts import Flat, Run, flat_runs, whole
from weft.torch._names import clean, joined

Modules = Union[torch.nn.Module, Sequence[torch.nn.Module]]


class Content(NamedTuple):
    """What of a parameter lies in local memory.

    Attributes:
        name, shape: of the whole parameter.
        runs: its boxes here, none where this rank has nothing of it.
        flat: set where it is a flat range, of which the runs are the boxes.
    """
    name: str
    shape: tuple[int, ...]
    runs: tuple[Run, ...]
    flat: Optional[Flat] = None


class Local(NamedTuple):
    """Memory of this rank that is a parameter, a shard of one, or (FSDP1) shards of several.

    Attributes:
        name: clean.
        memory: contiguous; empty where the rank has nothing of it.
        shape: as torch shows it.
        cut: how it is cut, to compare.
        contents: what is in it (only declare asks).
    """
    name: str
    memory: torch.Tensor
    shape: tuple[int, ...]
    cut: tuple[Any, ...]
    contents: Callable[[], list[Content]]

    @property
    def dtype(self) -> str:
        return dtype_name(self.memory.dtype)


class Survey(NamedTuple):
    """Attributes:
        locals: in the order of the model's names, FSDP1's units first: the same on all ranks.
        aliases: further name of a tied parameter, and its first one.
    """
    locals: list[Local]
    aliases: dict[str, str]


def modules_of(model: Modules) -> list[torch.nn.Module]:
    """One, or the stages and chunks of a pipeline that this rank has."""
    return [model] if isinstance(model, torch.nn.Module) else list(model)


# ---- one parameter

def _as_memory(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """The memory that the tensor lies in, flat where it is not contiguous: with what is between its elements."""
    if tensor.is_contiguous():
        return tensor
    strides = [stride for stride, size in zip(tensor.stride(), tensor.shape) if size > 1]
    if not tensor.numel():
        return tensor.contiguous()
    if any(stride < 1 for stride in strides):
        raise UsageError(f"{name!r} of shape {tuple(tensor.shape)} has strides {tensor.stride()}: elements share "
                         "memory (it was expanded); weft needs one place for each")
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return tensor.as_strided((span,), (1,))


def _opaque(name: str, tensor: Any) -> UsageError:
    kind = type(tensor)
    return UsageError(f"{name!r} is a {kind.__module__}.{kind.__qualname__}, whose bytes are not the elements that it "
                      "shows (quantised, or a class of its own): give it to `gathered`, or leave it out with `skip`")


def _plain(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Refuses what does not lie as it looks."""
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        raise _opaque(name, tensor)
    if tensor.is_meta:
        raise StateError(f"{name!r} is on the meta device and has no memory: declare when the model is materialised")
    if tensor.numel() and not tensor.untyped_storage().size():
        raise StateError(f"{name!r} of shape {tuple(tensor.shape)} has no storage now: it was freed or is offloaded; "
                         "bring it back before declare and publish")
    try:
        dtype_name(tensor.dtype)
    except Error as error:
        raise UsageError(f"{name!r}: {error.text}; give it to `gathered`, or leave it out with `skip`") from None
    return tensor.detach()


def _whole_local(name: str, tensor: torch.Tensor) -> Local:
    local = _plain(name, tensor)
    shape, strides = tuple(local.shape), local.stride()
    return Local(name, _as_memory(name, local), shape, ("whole", strides),
                 lambda: [Content(name, shape, (whole(shape, strides),) if local.numel() else ())])


def _dtensor_local(name: str, tensor: Any) -> Local:
    local = _plain(name, tensor.to_local())
    mesh = tensor.device_mesh
    cut = ("dtensor", tuple(tensor.placements), tuple(mesh.shape), mesh.get_coordinate(), tuple(local.stride()))
    return Local(name, _as_memory(name, local), tuple(local.shape), cut,
                 lambda: [Content(name, tuple(tensor.shape), tuple(_dtensor.runs_of(name, tensor, local)))])


def _flat_content(name: str, shape: tuple[int, ...], flat: Flat) -> Content:
    return Content(name, shape, tuple(flat_runs(shape, flat)), flat if flat.start < flat.stop else None)


def _partition_local(name: str, parameter: Any) -> Local:
    memory, shape, flat = _flat.partition_of(name, parameter)
    return Local(name, _plain(name, memory), tuple(memory.shape), ("zero3", shape, flat),
                 lambda: [_flat_content(name, shape, flat)])


def _unit_locals(unit: _flat.Unit, apart: Collection[str]) -> Iterator[Local]:
    """The unit, and once more those of its parameters whose further names are tensors of their own."""
    memory = _plain(unit.name, unit.memory)
    cut = "fsdp1", tuple(memory.shape)
    yield Local(unit.name, memory, tuple(memory.shape), cut, lambda: [_flat_content(*each) for each in unit.contents()])

    def renamed(further: str, first: str) -> list[Content]:
        return [_flat_content(further, shape, flat) for name, shape, flat in unit.contents() if name == first]
    for further, first in unit.aliases():
        if further in apart:
            yield Local(further, memory, tuple(memory.shape), cut, functools.partial(renamed, further, first))


def local_of(name: str, parameter: Any, *, matched: bool = False) -> Local:
    """What this rank has of one parameter or buffer.

    Args:
        matched: which part Megatron's are, is known elsewhere.

    Raises:
        UsageError: it is of a kind, dtype or placement that has no boxes. StateError: it has no memory now.
    """
    if _flat.is_partitioned(parameter):
        return _partition_local(name, parameter)
    if hasattr(parameter, "quant_state"):  # bitsandbytes: a plain subclass over packed bytes
        raise _opaque(name, parameter)
    tensors = sys.modules.get("torch.distributed.tensor")
    if tensors is not None and isinstance(parameter, tensors.DTensor):
        return _dtensor_local(name, parameter)
    if getattr(parameter, "tensor_model_parallel", False) and not matched:
        raise UsageError(f"{name!r} is a part that Megatron cut, and does not say which: call "
                         "trainer.declare_model(.., train=weft.torch.megatron_train(model), ..) first, and then "
                         "weft.torch.declare")
    return _whole_local(name, parameter.data if isinstance(parameter, torch.nn.Parameter) else parameter)


# ---- a model

def _reshard(model: torch.nn.Module) -> None:
    """FSDP2 modules that were left gathered (a root after its forward, reshard_after_forward=False) are plain tensors
    of another memory: they are put back."""
    loaded, tensors = sys.modules.get("torch.distributed.fsdp"), sys.modules.get("torch.distributed.tensor")
    kind = getattr(loaded, "FSDPModule", None)
    if kind is None or tensors is None:
        return
    cut = [module for module in model.modules() if isinstance(module, kind)]
    if cut and not all(isinstance(parameter, tensors.DTensor) for parameter in model.parameters()):
        for module in cut:
            module.reshard()


def _key(parameter: Any) -> Any:
    """The same for names of one memory, on every rank alike: of what is cut, the parameter itself."""
    if type(parameter).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ or _flat.is_partitioned(parameter) \
            or parameter.is_meta or not parameter.numel() or not parameter.data_ptr():
        return id(parameter)
    return parameter.data_ptr(), parameter.dtype, parameter.shape, parameter.stride(), parameter.device


def _persistent_buffers(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for path, module in model.named_modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and name not in module._non_persistent_buffers_set:
                yield joined(path, name), buffer


def survey_of(model: Modules, left_out: Callable[[str], bool], buffers: Callable[[str], bool],
              untie: Iterable[str] = (), *, matched: bool = False) -> Survey:
    """All that the rank has.

    Args:
        left_out: names (clean) that are not looked at.
        buffers: those persistent buffers that are.
        untie: further names of tied parameters that are tensors of their own.
        matched: it is matched by name with what declare_model declared: which part Megatron's parameters are is not
            asked, and of several modules each name has its chunk before it, as weft calls them.
    """
    survey, apart = Survey([], {}), frozenset(untie)
    names: set[str] = set()

    def add(local: Local) -> None:
        if local.name in names:
            raise UsageError(f"{local.name!r} is in the model twice: chunks of a pipeline need names of their own")
        names.add(local.name)
        survey.locals.append(local)

    modules = modules_of(model)
    for number, module in enumerate(modules):
        chunk = f"chunk{number}" if matched and len(modules) > 1 else ""
        _reshard(module)
        flattened: set[int] = set()
        first: dict[Any, str] = {}
        for unit in _flat.units_of(module):  # and not by their parameters, which are none while the unit is gathered
            survey.aliases.update(unit.aliases())
            flattened.update(map(id, _flat.parameters_of(unit)))
            for local in _unit_locals(unit, apart):
                add(local)
        for path, parameter in module.named_parameters(remove_duplicate=False):
            name = joined(chunk, clean(path))
            if id(parameter) in flattened or left_out(name):
                continue
            earlier = first.setdefault(_key(parameter), name)
            if earlier != name:
                survey.aliases[name] = earlier
                if name not in apart:
                    continue
            add(local_of(name, parameter, matched=matched))
        for path, buffer in _persistent_buffers(module):
            name = joined(chunk, clean(path))
            if buffers(name) and not left_out(name):
                add(local_of(name, buffer))
    lost = apart - survey.aliases.keys()
    if lost:
        raise UsageError(f"untie: {', '.join(map(repr, sorted(lost)))} is no further name of a tied parameter; those "
                         f"are {sorted(survey.aliases) or 'none'}")
    return survey

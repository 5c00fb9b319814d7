# SPDX-License-Identifier: Apache-2.0
"""Parameters' names as HuggingFace has them, and parameters that are several tensors of a checkpoint."""
from __future__ import annotations

import re
from typing import Callable, Collection, Iterable, NamedTuple, Optional, Sequence, Union

from weft import Tensor, UsageError
from weft.torch._cuts import Run, Slice, folded, folded_shape, pick, tidy

#: Modules that others put around a module; nobody's checkpoint has them in its names.
WRAPPERS = frozenset({"_fsdp_wrapped_module", "_orig_mod", "_checkpoint_wrapped_module", "_forward_module"})

Index = Union[int, slice, tuple[Union[int, slice], ...]]


class Part(NamedTuple):
    """A part of a parameter that is a tensor of the checkpoint, or a box of one.

    Attributes:
        name: the tensor's.
        where: which elements of the parameter, as in ``parameter[where]``: an int (the dimension is gone), a slice (its
            step is 1 or more), or a tuple of these; dimensions that are not named are whole.
        shape: of the tensor. None: of the part, which is all of the tensor.
        lo: where in the tensor the part begins, an index a dimension. None: at its beginning.

    ``Part("experts.3.up_proj.weight", (3, slice(64, 128)))`` is rows 64 to 128 of the fourth matrix of a parameter of
    all experts.
    """
    name: str
    where: Index = ()
    shape: Optional[Sequence[int]] = None
    lo: Optional[Sequence[int]] = None


#: What a `names` hook answers: the tensor's name; None: the parameter is left alone; parts.
Named = Union[str, None, Iterable[Union[Part, tuple[str, Index]]]]
#: ``hook(name, parameter)``: its clean name, and weft.Tensor(name, dtype, shape) of the whole of it.
NamesHook = Callable[[str, Tensor], Named]
#: Names, or a function that says of a name whether it is meant.
Chosen = Union[Collection[str], Callable[[str], bool], None]


def joined(*parts: str) -> str:
    """With dots, without empty ones."""
    return ".".join(part for part in parts if part)


def clean(path: str) -> str:
    """Without what FSDP, torch.compile and activation checkpointing put between the names of modules, and the
    ``module.`` that DistributedDataParallel, DeepSpeed's engine and Megatron's wrappers put before them."""
    parts = [part for part in path.split(".") if part not in WRAPPERS]
    while len(parts) > 1 and parts[0] == "module":
        del parts[0]
    return joined(*parts)


def chosen(given: Chosen, what: str) -> Callable[[str], bool]:
    """As a function."""
    if given is None:
        return lambda name: False
    if callable(given):
        return given
    if isinstance(given, str):
        raise UsageError(f"{what}={given!r} is one string: give a list of names, or a function of a name")
    return frozenset(given).__contains__


class Share(NamedTuple):
    """A tensor of the checkpoint, and which elements of a parameter are in it.

    Attributes:
        tensor: as weft is told it (1 to 4 dimensions).
        shape: with all its dimensions.
        slices: of the parameter, one a dimension. None: all of it, as it is.
        kept: the parameter's dimensions that the tensor has.
        lo: where the part begins in the tensor.
    """
    tensor: Tensor
    shape: tuple[int, ...]
    slices: Optional[tuple[Slice, ...]]
    kept: tuple[int, ...]
    lo: tuple[int, ...]

    def of(self, run: Run) -> Optional[Run]:
        """A run of the parameter, as a box of the tensor; None: it has nothing of it."""
        found = run if self.slices is None else pick(run, self.slices, self.kept, self.lo)
        return None if found is None else tidy(folded(found, self.shape, self.tensor.name))


def _slice_of(what: str, index: Union[int, slice], size: int) -> Slice:
    if isinstance(index, slice):
        start, stop, step = index.indices(size)
        if step < 1 or start >= stop:
            raise UsageError(f"{what}: {index} of a dimension of {size} is empty or goes backwards")
        return Slice(start, step, -(-(stop - start) // step))
    at = index + size if index < 0 else index
    if not 0 <= at < size:
        raise UsageError(f"{what}: index {index} of a dimension of {size}")
    return Slice(at, 1, 1)


def _share_of(part: Part, parameter: Tensor) -> Share:
    what, shape = f"part {part.name!r} of {parameter.name!r} of shape {parameter.shape}", parameter.shape
    indexes = part.where if isinstance(part.where, tuple) else (part.where,)
    if len(indexes) > len(shape):
        raise UsageError(f"{what}: {len(indexes)} indexes, and it has {len(shape)} dimensions")
    every = (*indexes, *(slice(None),) * (len(shape) - len(indexes)))
    slices = tuple(_slice_of(what, index, size) for index, size in zip(every, shape))
    kept = tuple(d for d, index in enumerate(every) if isinstance(index, slice))
    own = tuple(slices[d].size for d in kept) or (1,)
    of = own if part.shape is None else tuple(part.shape)
    lo = (0,) * len(of) if part.lo is None else tuple(part.lo)
    if len(of) != len(own) or len(lo) != len(own) or any(at < 0 or at + n > size for at, n, size in zip(lo, own, of)):
        raise UsageError(f"{what}: its elements are {own}, which from {lo} on is no box of a tensor of shape {of}")
    return Share(Tensor(part.name, parameter.dtype, folded_shape(of)), of, slices, kept, lo)


def shares_of(parameter: Tensor, hook: Optional[NamesHook]) -> list[Share]:
    """What a parameter is in the checkpoint; nothing where the hook answers None.

    Args:
        parameter: its clean name, dtype and whole shape.
    """
    named: Named = parameter.name if hook is None else hook(parameter.name, parameter)
    if named is None:
        return []
    if isinstance(named, str):
        tensor = Tensor(named, parameter.dtype, folded_shape(parameter.shape))
        return [Share(tensor, parameter.shape, None, tuple(range(len(parameter.shape))), (0,) * len(parameter.shape))]
    return [_share_of(part if isinstance(part, Part) else Part(*part), parameter) for part in named]


class Order:
    """Each tensor's place in the checkpoint, the same on every trainer.

    Args:
        given: all names in their order, or a function; None: the order in which ``of`` is asked first.
    """

    def __init__(self, given: Union[Sequence[str], Callable[[str], int], None]):
        self._function = given if callable(given) else None
        self._fixed = given is not None
        self._places: dict[str, int] = {}
        if given is not None and not callable(given):
            self._places = {name: place for place, name in enumerate(given)}

    def of(self, name: str) -> int:
        if self._function is not None:
            return self._function(name)
        if self._fixed and name not in self._places:
            raise UsageError(f"`order` has no {name!r}, which is declared: it names all tensors, the same on every "
                             "trainer")
        return self._places.setdefault(name, len(self._places))


# ---- hooks for what is known

_EXPERTS = re.compile(r"((?:.*\.)?experts)\.(gate_up_proj|down_proj)")


def experts_apart(name: str, parameter: Tensor) -> Named:
    """A `names` hook for mixtures of experts as transformers 5 keeps them: ``experts.gate_up_proj`` [experts, 2 m,
    hidden] and ``experts.down_proj`` [experts, hidden, m] are the tensors of their checkpoints,
    ``experts.{e}.gate_proj.weight``, ``up_proj.weight`` and ``down_proj.weight``. Not for models whose checkpoints have
    them in one (gpt-oss, Llama 4)."""
    found = _EXPERTS.fullmatch(name)
    if found is None or len(parameter.shape) != 3:
        return name
    prefix, count, rows = found[1], parameter.shape[0], parameter.shape[1]
    if found[2] == "down_proj":
        return [Part(f"{prefix}.{e}.down_proj.weight", e) for e in range(count)]
    return [Part(f"{prefix}.{e}.{half}_proj.weight", (e, slice(low, low + rows // 2)))
            for e in range(count) for half, low in (("gate", 0), ("up", rows // 2))]

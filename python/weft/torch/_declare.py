# SPDX-License-Identifier: Apache-2.0
"""A trainer's model, declared as the shards that it is."""
from __future__ import annotations

import functools
import math
import weakref
from typing import Any, Callable, Iterable, Iterator, NamedTuple, Optional, Sequence, Union

import torch

import weft
from weft import StateError, Tensor, Trainer, UsageError, dtype_name
from weft.torch import _megatron
from weft.torch._cuts import dense, folded_shape
from weft.torch._names import Chosen, NamesHook, Order, Share, chosen, clean, shares_of
from weft.torch._survey import Content, Local, Modules, Survey, modules_of, survey_of

#: A function of the user's: (name, full tensor) of each tensor that it makes; None in the tensor's place where another
#: rank
#: has it.
Gathered = Callable[[], Iterable[tuple[str, Optional[torch.Tensor]]]]


class Held(NamedTuple):
    """A tensor of the trainer's, and the memory that it is written from.

    Attributes:
        id: of the trainer's.
        local: name of the model's memory.
        dtype, shape, cut: as they were when it was declared.
    """
    id: int
    local: str
    dtype: str
    shape: tuple[int, ...]
    cut: tuple[Any, ...]


class Declared:
    """What ``declare`` found, and what ``publish`` looks for again.

    Attributes:
        held: written from the model's own memory.
        gathered: id of each tensor that the user's function makes on this rank.
        aliases: further name of a tied parameter, and the first one, under which it was declared.
        skipped: names that were left out.
    """

    def __init__(self, survey_again: Callable[[Modules], Survey], survey: Survey, gathered: Optional[Gathered]):
        self._survey_again = survey_again
        self.held: list[Held] = []
        self.gathered: dict[str, int] = {}
        self.make = gathered
        self.aliases = dict(survey.aliases)
        self.skipped: list[str] = []
        self.registered: dict[str, int] = {}  # address, of memory that was registered

    def __repr__(self) -> str:
        return (f"weft.torch.Declared({len(self.held)} of the model's own memory, {len(self.gathered)} gathered, "
                f"{len(self.skipped)} skipped)")

    def keep(self, number: int, local: Local) -> None:
        self.held.append(Held(number, local.name, local.dtype, local.shape, local.cut))

    def memory(self, model: Modules) -> dict[int, torch.Tensor]:
        """By id, as the model lies now.

        Raises:
            StateError: a parameter is gone, or is of another dtype, shape or shard than it was declared.
        """
        now = {local.name: local for local in self._survey_again(model).locals}
        found = {}
        for held in self.held:
            local = now.get(held.local)
            if local is None:
                raise StateError(f"the model has no {held.local!r} any more, which was declared; it has {len(now)} "
                                 "parameters"
                                 + _like(held.local, now))
            for what, was, is_now in (("dtype", held.dtype, local.dtype), ("local shape", held.shape, local.shape),
                                      ("cut", held.cut, local.cut)):
                if was != is_now:
                    raise StateError(f"{held.local!r} has {what} {is_now} now, and was declared with {was}: what a "
                                     "trainer holds cannot change in a job; bring it back as it was, or join anew")
            address = self.registered.get(held.local)
            if address is not None and address != local.memory.data_ptr():
                raise StateError(f"{held.local!r} lies at {local.memory.data_ptr():#x} now, and the memory that was "
                                 f"registered for it at {address:#x}: something moved it (an offload, "
                                 "load_state_dict(assign=True)); declare without register=True, or keep it where it is")
            found[held.id] = local.memory
        return found


def _like(name: str, names: Iterable[str]) -> str:
    some = [other for other in names if other.rpartition(".")[2] == name.rpartition(".")[2]][:2]
    return f", such as {', '.join(map(repr, some))}" if some else ""


_declared: "weakref.WeakKeyDictionary[Trainer, Declared]" = weakref.WeakKeyDictionary()


def declared_of(trainer: Trainer) -> Declared:
    """What was declared of a trainer.

    Raises:
        StateError: nothing.
    """
    found = _declared.get(trainer)
    if found is None:
        raise StateError(f"{trainer!r}: no model was declared: call weft.torch.declare(trainer, model) before join")
    return found


def declare(trainer: Trainer, model: Modules, *, names: Optional[NamesHook] = None, gathered: Optional[Gathered] = None,
            skip: Chosen = None, buffers: Union[bool, Chosen] = False,
            order: Union[Sequence[str], Callable[[str], int], None] = None, untie: Iterable[str] = (),
            register: bool = False, config: Any = None) -> Declared:
    """Declares a model's parameters as the shards that they are, for ``publish``. Nothing is gathered and nothing
    copied.

    Knows plain parameters (whole; each rank of DistributedDataParallel and ZeRO-1 and -2 is one more holder), DTensors
    of any placements (FSDP2, HSDP, tensor and expert parallelism, uneven and empty shards), FSDP1 with and without
    ``use_orig_params``, ZeRO-3's partitions, and, of a trainer that has had ``declare_model``, whatever that declared:
    the model's parameters are then matched with it by name and size, which is how Megatron-Core is declared
    (``megatron_train``).

    Call it on every rank when the framework has wrapped the model and, where the first step moves parameters
    (Megatron's expert bias), after that one.

    Args:
        trainer: before join.
        model: a module, wrapped or not; or the list of a pipeline's stages or chunks that this rank has.
        names: ``hook(name, parameter)`` is told a parameter's name, without wrappers, and weft.Tensor(name, dtype,
            shape) of the whole of it; it answers the tensor's name in the checkpoint, None to leave it alone, or a list
            of ``Part``. None: the names are those of the checkpoint. ``experts_apart`` is such a hook.
        gathered: a function that yields (name, full tensor) of what has no boxes here (quantised, adapters that must be
            merged). It is called once now, and in each publish, on this rank's own turn: it may run collectives, which
            every rank must then take part in. A rank that does not hold a tensor yields (name, None). Parameters of
            these names are not looked at.
        skip: names of parameters (without wrappers) that are left alone, or a function of a name.
        buffers: True for all persistent buffers, or names, or a function of a name: those that engines have.
        order: names of all tensors in the order of the checkpoint, or a function of a name: needed where ranks have
            different parameters (stages of a pipeline). None: the order of the model's own names.
        untie: further names of tied parameters which are to be tensors of their own too, for engines that have them
            apart. A tied parameter is declared under its first name only.
        register: the memory is registered for RDMA (Trainer.register), once: parameters must then stay where they are, and
            what `gathered` makes, which lies elsewhere each time, can only be of dtypes that are converted on the way.
        config: of a model matched with ``declare_model``: HuggingFace's config or its dict. Only its vocab_size is
            read: a rank whose rows of the embedding are all padding has that parameter, and nothing of the checkpoint.

    Returns:
        What was declared; ``publish`` finds it by the trainer.

    Raises:
        UsageError: a parameter is of a kind or dtype that has no boxes, with what to do. StateError: it has no memory
        now, or the trainer has a model already.
    """
    if trainer in _declared:
        raise StateError(f"{trainer!r} has a model already: a trainer declares one, or a list of modules at once")
    if trainer.tensors and (names is not None or order is not None or tuple(untie)):
        raise UsageError("names, order and untie are of trainers without declare_model, which knows them itself")
    made = _names_made(gathered)
    left_out = chosen(skip, "skip")
    choose = (lambda name: bool(buffers)) if isinstance(buffers, bool) else chosen(buffers, "buffers")
    matching = bool(trainer.tensors)

    def again(modules: Modules) -> Survey:
        if matching:
            return survey_of(modules, left_out, _megatron.is_buffer, matched=True)
        return survey_of(modules, lambda name: left_out(name) or name in made, choose, tuple(untie))

    if not matching and names is None:
        _refuse_others_experts(model, lambda name: left_out(name) or name in made)
    with torch.no_grad():
        survey = again(model)
        declared = Declared(again, survey, gathered)
        if matching:
            _match(trainer, survey, made, declared, config)
        else:
            declaring = _Declaring(trainer, names, lambda name: left_out(name) or name in made, Order(order), declared)
            declaring.all(survey, made)
        if register:
            _register(trainer, survey, declared)
    _declared[trainer] = declared
    return declared


def _refuse_others_experts(model: Modules, left_out: Callable[[str], bool]) -> None:
    """Parameters that are not the same on all ranks, and do not say what they are: DeepSpeed's experts."""
    for module in modules_of(model):
        for path, parameter in module.named_parameters():
            name = clean(path)
            if getattr(parameter, "allreduce", True) is False and not left_out(name):
                raise UsageError(f"{name!r} is marked as another on each rank (allreduce = False, as experts over ranks are): say "
                                 "with `names` which tensor it is here, give it to `gathered`, or leave it out with `skip`")


def _names_made(gathered: Optional[Gathered]) -> dict[str, Optional[Tensor]]:
    """What the user's function makes, from one call; the tensors themselves are let go."""
    made: dict[str, Optional[Tensor]] = {}
    for name, tensor in gathered() if gathered is not None else ():
        if name in made:
            raise UsageError(f"gathered yields {name!r} twice")
        made[name] = None if tensor is None else Tensor(name, dtype_name(tensor.dtype), folded_shape(tensor.shape))
    return made


class _Declaring:
    """One walk over a model."""

    def __init__(self, trainer: Trainer, names: Optional[NamesHook], left_out: Callable[[str], bool], order: Order,
                 declared: Declared):
        self._trainer, self._names, self._left_out = trainer, names, left_out
        self._order, self._declared = order, declared

    def all(self, survey: Survey, made: dict[str, Optional[Tensor]]) -> None:
        """Everything is looked at before anything is declared: what is refused can be declared otherwise."""
        calls = [call for local in survey.locals for call in self._local(local)]
        places = {name: self._order.of(name) for name in made}
        for call in calls:
            call()
        for name, tensor in made.items():
            if tensor is not None:
                self._declared.gathered[name] = self._trainer.declare_tensor(tensor, order=places[name])

    def _local(self, local: Local) -> Iterator[Callable[[], None]]:
        pairs: list[tuple[Content, Share]] = []
        for content in local.contents():
            shares = [] if self._left_out(content.name) else \
                shares_of(Tensor(content.name, local.dtype, content.shape), self._names)
            if not shares:
                self._declared.skipped.append(content.name)
            for share in shares:
                self._order.of(share.tensor.name)  # counted by every rank, whatever it holds
                pairs.append((content, share))
        pairs = [(content, share) for content, share in pairs if any(share.of(run) for run in content.runs)]
        if not pairs:
            return
        rows, first = _rows(local, pairs), pairs[0][1].tensor
        shape = folded_shape(local.memory.shape)
        boxes = [box for content, share in pairs for box in self._boxes(content, share)]

        def call() -> None:
            if rows is not None:
                number = self._trainer.declare_tensor(first, rows=rows, order=self._order.of(first.name))
            else:
                number = self._trainer.declare_local(Tensor(local.name, local.dtype, shape))
                for box in boxes:
                    box(number)
            self._declared.keep(number, local)
        yield call

    def _boxes(self, content: Content, share: Share) -> Iterator[Callable[[int], None]]:
        """What declares each, of a local parameter's id."""
        tensor, place = share.tensor, self._order.of(share.tensor.name)
        if content.flat is not None and share.slices is None:
            flat = content.flat
            yield lambda number: self._trainer.declare_flat(tensor, flat.start, flat.stop, number, order=place, offset=flat.offset)
            return
        for run in content.runs:
            box = share.of(run)
            if box is not None:
                yield functools.partial(self._trainer.declare_holding, tensor, lo=box.lo, hi=box.hi, order=place, offset=box.offset,
                                        strides=box.strides)


def _rows(local: Local, pairs: list[tuple[Content, Share]]) -> Optional[tuple[int, int]]:
    """Where all of the memory is whole rows of one tensor, one after the other: which."""
    if len(pairs) != 1 or len(pairs[0][0].runs) != 1:
        return None
    share, shape = pairs[0][1], pairs[0][1].tensor.shape
    box = share.of(pairs[0][0].runs[0])
    if box is None or box.offset or box.numel != local.memory.numel() or box.lo[1:] != (0,) * (len(shape) - 1) \
            or box.hi[1:] != tuple(shape[1:]) or box.strides != dense([hi - lo for lo, hi in zip(box.lo, box.hi)]):
        return None
    return box.lo[0], box.hi[0]


# ---- matched with declare_model

def _match(trainer: Trainer, survey: Survey, made: dict[str, Optional[Tensor]], declared: Declared,
           config: Any) -> None:
    """Each of the trainer's tensors has one parameter of the model, or comes from the user's function."""
    views = {view.name: view for view in trainer.tensors}
    found = _megatron.matched(views, survey, frozenset(made))
    wrong: list[str] = []
    for name, view in views.items():
        if name in made:
            declared.gathered[name] = view.id
            continue
        local = found.matched.get(name)
        if local is None:
            wrong.append(f"{name} {view.dtype} {list(view.shape)} is in no parameter of the model")
            continue
        sizes = (view.row_hi - view.row_lo, *view.shape[1:])
        if (local.dtype, local.memory.numel()) != (view.dtype, math.prod(sizes)) \
                or not _megatron.same_shape(name, local.shape, sizes):
            wrong.append(f"{name} is {view.dtype} {list(sizes)}, and the model's {local.name} is {local.dtype} "
                         f"{list(local.shape)}")
        if tuple(local.memory.shape) != local.shape:  # not contiguous: the memory is flat, with what is between
            wrong.append(f"the model's {local.name} {list(local.shape)} does not lie row after row, as it is written: make it "
                         "contiguous, or give it to `gathered`")
        declared.keep(view.id, local)
    extra = [local for local in found.extra if not _megatron.is_padding(local, config)]
    wrong += [f"the model's {local.name} {local.dtype} {list(local.shape)} is none of them" for local in extra]
    wrong += [f"gathered yields {name!r}, which is none of them" for name in made if name not in views]
    if wrong:
        raise weft.ConflictError(f"the model differs from the {len(views)} tensors that declare_model gave this "
                                 f"trainer, in {len(wrong)}: " + "; ".join(wrong[:4])
                                 + (" and others" if len(wrong) > 4 else "")
                                 + ". Change the train spec (megatron_train says Megatron's own), leave parameters "
                                 "out with `skip`, or make tensors in `gathered`")


# ---- registered memory

def _register(trainer: Trainer, survey: Survey, declared: Declared) -> None:
    """Each storage once: parameters of one buffer (FSDP1, Megatron's optimizer) share it."""
    names = {held.local for held in declared.held}
    storages: dict[int, torch.Tensor] = {}
    for local in survey.locals:
        if local.name in names:
            declared.registered[local.name] = local.memory.data_ptr()
            storage = local.memory.untyped_storage()
            storages[storage.data_ptr()] = torch.empty(0, dtype=torch.uint8, device=local.memory.device).set_(storage)
    for _, memory in sorted(storages.items()):
        trainer.register(memory)

# SPDX-License-Identifier: Apache-2.0
"""An engine's module, of which the parameters lie where weft writes."""
from __future__ import annotations

import contextlib
import threading
from typing import Any, Callable, Iterable, Iterator, NamedTuple, Optional, Sequence, Union

import torch

from weft import Inference, Snapshot, StateError, Tensor, Torn, UsageError, dtype_name, dtype_of
from weft.torch._cuts import folded_shape
from weft.torch._names import Chosen, chosen, clean
from weft.torch._tensors import tensor_over


class Fill(NamedTuple):
    """Bytes of a parameter that come from no tensor (padding of a vocabulary); weft zeroes them."""
    bytes: int


#: What a `pieces` hook lists, in the order of the parameter's bytes: a tensor and the box [lo, hi) of it (None: all of
#: it).
Piece = Union[tuple[Tensor, Optional[Sequence[int]], Optional[Sequence[int]]], Tensor, Fill]
#: ``hook(name, parameter)``: clean name, and weft.Tensor(name, dtype, shape) of the parameter. None: all of the tensor
#: of its name.
PiecesHook = Callable[[str, Tensor], Optional[Iterable[Piece]]]


class _Site(NamedTuple):
    """Where a module has a parameter."""
    module: torch.nn.Module
    name: str


class _Bound:
    """A parameter of the module, and weft's.

    Attributes:
        name: of weft's parameter.
        sites: where it is in the module; several where it is tied.
        fills: (first byte, behind the last) of what comes from no tensor.
        at: address that weft writes to, and the parameter lies at; 0: not yet.
    """
    __slots__ = ("id", "name", "sites", "shape", "meta", "fills", "at")

    def __init__(self, name: str, parameter: torch.Tensor):
        self.id, self.name, self.sites = -1, name, list[_Site]()
        self.shape, self.meta = tuple(parameter.shape), parameter.is_meta
        self.fills: list[tuple[int, int]] = []
        self.at = 0

    @property
    def parameter(self) -> torch.nn.Parameter:
        site = self.sites[0]
        found = site.module._parameters[site.name]
        assert found is not None
        return found

    def put(self, tensor: torch.Tensor) -> None:
        """The parameter lies there from now on. One without memory is made anew, with whatever hung on it."""
        tensor = tensor.view(self.shape)
        self.at = tensor.data_ptr()
        if not self.meta:
            for site in self.sites:
                parameter = site.module._parameters[site.name]
                assert parameter is not None
                parameter.data = tensor
            return
        old = self.parameter
        made = torch.nn.Parameter(tensor, requires_grad=old.requires_grad)
        made.__dict__.update(old.__dict__)
        for site in self.sites:
            site.module._parameters[site.name] = made
        self.meta = False


class Attached:
    """A module that receives versions: what ``attach`` gives.

    Attributes:
        inference: the worker.
        module: the engine's.
    """

    def __init__(self, inference: Inference, module: torch.nn.Module, bound: list[_Bound]):
        self.inference, self.module = inference, module
        self._bound, self._shadow = bound, inference.shadow
        self._at = 0            # with shadow: the version that the parameters lie in
        self._readers = 0
        self._lock = threading.Lock()
        if not inference.own_memory and not inference.shadow:
            inference.on_join(self._move)

    def _check(self) -> None:
        """Nothing has put the parameters elsewhere, where no version would ever come.

        Raises:
            StateError: something has.
        """
        for bound in self._bound:
            for site in bound.sites if bound.at else ():
                found = site.module._parameters.get(site.name)
                if found is None or found.data_ptr() != bound.at:
                    where = "is no parameter of the module any more" if found is None else f"lies at {found.data_ptr():#x} now"
                    raise StateError(f"{bound.name!r} {where}, and weft writes to {bound.at:#x}: something moved or replaced it "
                                     "after join (load_state_dict(assign=True), module.to(..)); copy into parameters instead, or "
                                     "do it before attach")

    @torch.no_grad()
    def _move(self) -> None:
        """In place, with what the parameters hold. Ended in the middle it is begun again, and what was moved stays."""
        for bound in self._bound:
            self._put(bound, tensor_over(self.inference.memory(bound.id)))

    @torch.no_grad()
    def detach(self) -> None:
        """The parameters move back into memory of torch's, with what they hold, and the worker's memory can be freed
        when it is closed. Without it, that stays as long as the module does. Not inside of ``read``."""
        for bound in self._bound:
            if not bound.meta:
                bound.put(bound.parameter.detach().clone())
            bound.at = 0
        self._at = 0

    @staticmethod
    def _put(bound: _Bound, tensor: torch.Tensor) -> None:
        here = bound.parameter
        if not bound.meta:
            if here.device != tensor.device:
                raise UsageError(f"{bound.name!r} is on {here.device}, and weft's memory of it on {tensor.device}: "
                                 "open the worker with memory=\"cuda\" or \"host\" as the module lies, or make it in "
                                 "without_memory()")
            if here.data_ptr() != tensor.data_ptr():
                tensor.view(bound.shape).copy_(here)
            for first, last in bound.fills:
                tensor.view(-1).view(torch.uint8)[first:last] = 0
        bound.put(tensor)

    def _change(self, memory: Callable[[int], Any], version: int) -> None:
        self._at = 0  # where this ends in the middle
        with torch.no_grad():
            for bound in self._bound:
                bound.put(tensor_over(memory(bound.id)))
        self._at = version

    def _change_over(self, snapshot: Snapshot) -> None:
        try:
            self._change(lambda number: self.inference.memory(number, snapshot.version), snapshot.version)
        except StateError:
            if not snapshot.torn:
                raise
            raise Torn(f"{self.inference!r}: version {snapshot.version} went while the module changed over to it: read "
                       "again") from None

    def wait(self, version: Optional[int] = None, timeout_s: Optional[float] = None) -> int:
        """Inference.wait. In place, the module must not be used meanwhile, or what it computed is thrown away
        (``read``)."""
        return self._waited(self.inference.wait(version, timeout_s))

    async def wait_async(self, version: Optional[int] = None, timeout_s: Optional[float] = None) -> int:
        """Inference.wait_async."""
        return self._waited(await self.inference.wait_async(version, timeout_s))

    def _waited(self, version: int) -> int:
        if not self._shadow:
            self._check()
        return version

    def set_post_load(self, hook: Optional[Callable[[int], None]]) -> None:
        """Inference.set_post_load: ``hook(version)`` runs when all of a version is here, before it is published. With
        shadow the module's parameters are those of the version being loaded while it runs, so no reader may be in
        ``read`` of this module in another thread then: StateError, which fails the hook."""
        if hook is None or not self._shadow:
            self.inference.set_post_load(hook)
            return
        given = hook

        def run(version: int) -> None:
            with self._lock:
                if self._readers:
                    raise StateError(f"version {version} is loaded while {self._readers} threads read the module: "
                                     "with shadow and a post-load hook, wait and read on one thread, or attach a "
                                     "second module")
                self._change(self.inference.loaded_memory, 0)
                given(version)
        self.inference.set_post_load(run)

    @contextlib.contextmanager
    def read(self) -> Iterator[Snapshot]:
        """``with attached.read() as snapshot``: the module's parameters are those of ``snapshot.version`` in it.

        In place, any number of threads read at a time. With shadow the parameters are changed over to the version's
        copy, and lie there until the next read of another version; threads that read one module at a time all get that
        version, and one that would get another is refused. What a program does with the module outside of ``read`` is
        of no one version.

        Raises:
            NothingPublished, Torn: as Inference.read. StateError: with shadow, another thread is reading another
            version; or a parameter was moved or replaced, and does not lie where weft writes (``wait`` says it too).
        """
        with self.inference.read() as snapshot:
            if not self._shadow:
                self._check()
                yield snapshot
                return
            entered = 0
            try:
                with self._lock:
                    if self._at != snapshot.version:
                        if self._readers:
                            raise StateError(f"version {snapshot.version} is to be read while another thread reads "
                                             f"version {self._at} of this module: its parameters can lie in one; read "
                                             "again when that is over")
                        self._change_over(snapshot)
                    self._readers, entered = self._readers + 1, 1
                self._check()
                yield snapshot
            finally:
                with self._lock:
                    self._readers -= entered


# ---- attach

def attach(inference: Inference, module: torch.nn.Module, *, pieces: Optional[PiecesHook] = None,
           names: Optional[Callable[[str], Optional[str]]] = None, skip: Chosen = None,
           trained: Any = None) -> Attached:
    """Before join: the module's parameters become the rank's, and after join they lie in weft's memory.

    A worker that has had ``declare_model`` knows what its parameters are made of; the module's are compared with it by
    name, dtype and shape. Otherwise each parameter is declared, and made of the tensor of its own name, or of what
    `pieces` says.

    At join each parameter's data becomes a tensor over weft's memory, with what it held: code that keeps addresses
    (CUDA graphs, packed copies) is to be set up after it. With ``own_memory`` parameters stay where they are and weft
    writes there; with ``shadow`` they change over in ``read``. Buffers are left alone.

    Args:
        inference: before join.
        module: the engine's, with parameters of this rank's shapes; on the meta device too (``without_memory``).
        pieces: ``hook(name, parameter)``, told the clean name and weft.Tensor(name, dtype, shape) of the parameter,
            lists what it is made of, in the order of its bytes: (Tensor, lo, hi) or Tensor or ``Fill``. ``Tensor.dtype``
            is that of the trainers; F32, BF16 and F16 are converted into each other. Not with ``declare_model``.
        names: of the module's clean name: the tensor's (weft's parameter's, with ``declare_model``), or None to leave
            it alone.
        skip: clean names that are left alone, or a function of one.
        trained: dtype of the trainers' tensors, where no hook says it: a dtype, or a function of (name, parameter).
            None: that of the parameter.

    Raises:
        ConflictError: the module's parameters are not those of ``declare_model``. UsageError: a parameter's pieces are
        not as many bytes as it has, or it does not lie where weft can write.
    """
    bound = _bound(module, chosen(skip, "skip"), names)
    known = {view.name: view.id for view in inference.params}
    if known and (pieces is not None or trained is not None):
        raise UsageError("pieces and trained are of workers without declare_model, which says what each parameter is "
                         "made of")
    if known:
        inference.compare([(each.name, dtype_name(each.parameter.dtype), each.shape) for each in bound])
        bound = [each for each in bound if each.name in known]  # others have no source by design, or compare names them
        for each in bound:
            each.id = known[each.name]
            if inference.own_memory:
                memory = _memory(each)
                inference.bind(each.id, memory)
                each.at = memory.data_ptr()
    else:
        for each in bound:
            _declare(inference, each, pieces, trained)
    return Attached(inference, module, bound)


def _bound(module: torch.nn.Module, left_out: Callable[[str], bool],
           names: Optional[Callable[[str], Optional[str]]]) -> list[_Bound]:
    """Each parameter once, with all the places that it is at."""
    found: dict[Any, Optional[_Bound]] = {}
    for path, holder in module.named_modules(remove_duplicate=False):
        for own, parameter in holder._parameters.items():
            if parameter is None:
                continue
            name = clean(f"{path}.{own}" if path else own)
            key = id(parameter) if parameter.is_meta or not parameter.numel() else \
                (parameter.data_ptr(), parameter.dtype, parameter.shape, parameter.stride())
            if key not in found:
                called = None if left_out(name) else name if names is None else names(name)
                found[key] = None if called is None else _Bound(called, parameter)
            bound = found[key]
            if bound is not None:
                bound.sites.append(_Site(holder, own))
    return [bound for bound in found.values() if bound is not None]


def _memory(bound: _Bound) -> torch.Tensor:
    if bound.meta:
        raise UsageError(f"{bound.name!r} is on the meta device, and own_memory writes where parameters lie: open the "
                         "worker without own_memory, or materialise the module")
    return bound.parameter.detach()


def _declare(inference: Inference, bound: _Bound, pieces: Optional[PiecesHook], trained: Any) -> None:
    shape = folded_shape(bound.shape)
    parameter = Tensor(bound.name, dtype_name(bound.parameter.dtype), shape)
    given = pieces(bound.name, parameter) if pieces is not None else None
    if given is None:
        dtype = trained(bound.name, parameter) if callable(trained) else trained
        given = [parameter if dtype is None else Tensor(bound.name, dtype, shape)]
    memory = _memory(bound) if inference.own_memory else None
    bound.id = inference.declare_param(bound.name, parameter.dtype, shape, memory=memory)
    bound.at = 0 if memory is None else memory.data_ptr()
    at, element = 0, dtype_of(parameter.dtype).bytes
    for piece in given:
        if isinstance(piece, Fill):
            inference.declare_fill(bound.id, at, piece.bytes)
            bound.fills.append((at, at + piece.bytes))
            at += piece.bytes
            continue
        tensor, lo, hi = (piece, None, None) if isinstance(piece, Tensor) else piece
        tensor = tensor._replace(dtype=dtype_name(tensor.dtype), shape=folded_shape(tensor.shape))
        low = (0,) * len(tensor.shape) if lo is None else tuple(lo)
        high = tensor.shape if hi is None else tuple(hi)
        inference.declare_piece(tensor, bound.id, lo=low, hi=high, offset_bytes=at)
        count = element
        for begin, end in zip(low, high):
            count *= end - begin
        at += count
    if at != parameter.bytes:
        raise UsageError(f"{bound.name!r} is {parameter.dtype} {list(shape)}, {parameter.bytes} bytes, and its pieces "
                         f"are {at}: list all that it is made of in the order of its bytes, and Fill for what is from "
                         "no tensor")

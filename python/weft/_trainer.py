# SPDX-License-Identifier: Apache-2.0
"""A trainer: what it holds, and versions that it sends."""
from __future__ import annotations

import threading
import weakref
from types import TracebackType
from typing import Any, Iterable, Mapping, Optional, Sequence, Union

from weft import _waits
from weft._errors import Error, StateError, UsageError, failed, slot
from weft._library import ffi, lib
from weft._memory import Memory, memory_of
from weft._structs import (
    HoldingView,
    Tensor,
    TensorView,
    described,
    encoded,
    fill_memory,
    holding_view,
    memory_struct,
    shape_of,
    sized,
    tensor_view,
)
from weft._worker import Worker

Data = Union[Mapping[Any, Any], Sequence[Any]]  # memory by id or name, or one for each id


_LARGE_BYTES = 4 << 20  # from here on the thread that hears signals can have another one write: that takes 20 us


def _nothing() -> None:
    """As a weak reference whose object is gone."""


class _Source:
    """A declared tensor, and its memory as it was written last. That the same tensor of torch still lies there is quicker
    seen than where it lies: `quick` refers to it, weakly, and to nothing for any other object."""
    __slots__ = ("id", "name", "dtype", "struct", "quick", "pointer", "bytes", "type")

    def __init__(self, view: TensorView, struct: Any):
        self.id, self.name, self.dtype, self.struct = view.id, view.name, view.dtype, struct
        self.quick: Any = _nothing
        self.pointer = self.bytes = 0
        self.type: Any = None  # torch's word for dtype

    def locate(self, data: Any) -> Any:
        """Fills the struct; what keeps the memory alive."""
        memory = memory_of(data)
        if memory.dtype is not None and memory.dtype != self.dtype:
            raise UsageError(f"{self.name!r} was declared as {self.dtype}, and what is to be written has {memory.dtype}: "
                             "declare it as what it is (engines of another dtype get it converted)")
        self.quick = _nothing  # Ctrl-C from here on leaves a struct that is looked at again
        fill_memory(self.struct, memory)
        self.pointer, self.bytes = memory.pointer, memory.bytes
        quick = memory.device is None and hasattr(data, "data_ptr")
        self.quick, self.type = (weakref.ref(data), data.dtype) if quick else (_nothing, None)
        return memory.owner

    def still(self, data: Any) -> bool:
        return (data is not None and self.quick() is data and data.data_ptr() == self.pointer and data.nbytes == self.bytes
                and data.dtype is self.type and bool(data.is_contiguous()))


class Trainer(Worker):
    """A trainer of the job.

    ::

        with weft.Trainer("tcp://node0:29600", rank) as trainer:
            ids = [trainer.declare_tensor(weft.Tensor(name, p.dtype, p.shape)) for name, p in parameters]
            trainer.join()
            for version in range(1, 100):
                train()
                trainer.publish(version, dict(parameters))

    Args:
        controller: "tcp://host:29600"; None: what the launcher's variables say (WEFT_CONTROLLER, and of torchrun).
        rank: among the trainers, from 0; None: the launcher's.
        job: the job's name, if the controller has one.
        transport: "shm" (default), "cuda", "verbs", "tcp", "efa", "auto", or a list: "shm,verbs,tcp".
        memory: where tensors lie that are written: "host" (default), "cuda", "cuda:N".
        replica: "ring" (default), "host" or "full": how what must be packed is packed (docs/replica.md).
        ring_bytes: of the ring, at most. None: 1 GiB.
        pack_threads: that pack, the calling one included. None: as many as processors, at most 4.
        checksums: every piece is summed and verified; all workers agree.
        nic: which NICs, a list of names. None: weft chooses.
        key_file: the job's key. None: what WEFT_KEY_FILE names.
        metrics: figures for Prometheus are served there, ":9464" or "127.0.0.1:9464" (":9464+": the first free port from there
            on); "off": nowhere. None: what WEFT_METRICS says (docs/metrics.md).
        metrics_file: and written there every 5 s, for node-exporter; %h, %p and %r are host, process and rank.
        trace: a file of when this worker did what, for ui.perfetto.dev (docs/traces.md); named as metrics_file.
        join_timeout_s: None: 60 s.
        update_timeout_s: of any wait inside an update. None: the controller's.

    Raises:
        Error: the transport cannot be opened here, or an option is wrong; the message says which.
    """

    _role = lib.WEFT_TRAINER

    def __init__(self, controller: Optional[str] = None, rank: Optional[int] = None, *, job: Optional[str] = None,
                 transport: Optional[str] = None, memory: Optional[str] = None, replica: Optional[str] = None,
                 ring_bytes: Optional[int] = None, pack_threads: Optional[int] = None, checksums: bool = False,
                 nic: Optional[str] = None, key_file: Optional[str] = None, metrics: Optional[str] = None,
                 metrics_file: Optional[str] = None, trace: Optional[str] = None, join_timeout_s: Optional[float] = None,
                 update_timeout_s: Optional[float] = None):
        self._order: dict[str, int] = {}
        self._sources: dict[Union[int, str], _Source] = {}
        self._by_id: list[_Source] = []
        self._structs: Any = None
        self._locating = threading.Lock()
        self._kept: list[Any] = []  # what writes of this update read, until they are over
        self._version = self._begun = 0
        super().__init__(controller, rank, {
            "job": job, "transport": transport, "memory": memory, "replica": replica, "ring_bytes": ring_bytes,
            "pack_threads": pack_threads, "checksums": int(checksums), "nic": nic, "key_file": key_file,
            "metrics": metrics, "metrics_file": metrics_file, "trace": trace,
            "join_timeout_s": join_timeout_s, "update_timeout_s": update_timeout_s})

    # ---- declare

    def _order_of(self, tensor: Tensor, order: Optional[int]) -> int:
        return self._order.setdefault(tensor.name, len(self._order)) if order is None else order

    def declare_tensor(self, tensor: Tensor, *, rows: Optional[tuple[int, int]] = None, order: Optional[int] = None) -> int:
        """Rows of a tensor are readable here.

        Args:
            tensor: the whole tensor.
            rows: [first, behind the last) of dimension 0. None: all of them.
            order: the tensor's place in the checkpoint, the same on every trainer. None: its place among the names that
                this worker has declared so far, which is right where all trainers declare the same names.

        Returns:
            Its id, for ``write``.
        """
        keep: list[Any] = []
        struct, number = described("weft_tensor", tensor, keep), ffi.new("uint32_t *")
        lo, hi = (0, tensor.shape[0]) if rows is None else rows
        self._now(lib.weft_declare_tensor, struct, self._order_of(tensor, order), lo, hi, number)
        return int(number[0])

    def declare_local(self, local: Tensor) -> int:
        """A parameter as it lies here, for trainers that are cut otherwise than in rows: ``declare_holding`` and
        ``declare_flat`` say which parts of which tensors are where in it. Its name is its own.

        Returns:
            Its id, for ``write``.
        """
        keep: list[Any] = []
        number = ffi.new("uint32_t *")
        self._now(lib.weft_declare_local, described("weft_tensor", local, keep), number)
        return int(number[0])

    def declare_holding(self, tensor: Tensor, local: int, lo: Sequence[int], hi: Sequence[int], *,
                        order: Optional[int] = None, offset: int = 0, strides: Optional[Sequence[int]] = None) -> None:
        """The box [lo, hi) of a tensor lies in a local parameter.

        Args:
            tensor: the whole tensor.
            local: id of the local parameter.
            lo, hi: the box, in elements, a number for each dimension.
            order: as in ``declare_tensor``.
            offset: of the box's first element in the local parameter, in elements.
            strides: in elements, one for each dimension. None: the box's own, row after row.
        """
        keep: list[Any] = []
        holding = sized("weft_holding")
        holding.local, holding.order, holding.offset = local, self._order_of(tensor, order), offset
        shape_of(holding, lo, f"lo of {tensor.name!r}", "lo")
        shape_of(holding, hi, f"hi of {tensor.name!r}", "hi")
        if strides is not None:
            shape_of(holding, strides, f"strides of {tensor.name!r}", "stride")
        self._now(lib.weft_declare_holding, described("weft_tensor", tensor, keep), holding)

    def declare_flat(self, tensor: Tensor, start: int, stop: int, local: int, *, order: Optional[int] = None,
                     offset: int = 0) -> None:
        """Elements [start, stop) of a tensor, row after row, lie from element ``offset`` of a local parameter on, as ZeRO-3
        and FSDP1 have it."""
        keep: list[Any] = []
        self._now(lib.weft_declare_flat, described("weft_tensor", tensor, keep), self._order_of(tensor, order), start, stop,
                  local, offset)

    def register(self, memory: Any) -> None:
        """Memory that tensors will lie in when they are written, which RDMA then reads straight from there
        (weft_source_register in weft.h). It stays as it is until ``close``.

        Args:
            memory: as ``memory_of`` takes it.
        """
        found = memory_of(memory)
        self._handle.keep.append(found)
        self._waiting(lib.weft_source_register, memory_struct(found))

    @property
    def tensors(self) -> list[TensorView]:
        """What was declared, by id."""
        return self._views(lib.weft_tensor_at, "weft_tensor_view", tensor_view)

    @property
    def holdings(self) -> list[HoldingView]:
        """Every box that is held here; sorted by tensor after join."""
        return self._views(lib.weft_holding_at, "weft_holding_view", holding_view)

    # ---- updates

    @property
    def version(self) -> int:
        """The last version that ended here; 0: none."""
        return self._version

    def begin(self, version: int) -> None:
        """Starts a version, larger than any before; waits until every inference rank accepts it.

        Raises:
            WaitTimeout: with who does not. VersionError: it is not larger.
        """
        if _waits.hears_signals():
            try:
                self._until(lambda: self._now(lib.weft_update_try_begin, version))
            except (Error, TypeError, ValueError):
                raise
            except BaseException as exception:  # which may have come as the last rank accepted
                self._give_up(exception)
                raise
        else:
            self._now(lib.weft_update_begin, version)
        self._begun = version

    async def begin_async(self, version: int) -> None:
        """``begin`` for an event loop. Cancelled: nothing was begun."""
        await self._until_async(lambda: self._now(lib.weft_update_try_begin, version))
        self._begun = version

    def write(self, tensor: Union[int, str], data: Any) -> None:
        """[any thread, many at once] Sends all pieces of a tensor.

        Args:
            tensor: its id, or its name (of a local parameter: the local name).
            data: memory with the rows that are held, row-major (``memory_of`` says what may be given): of the dtype that was
                declared, unchanged until ``end`` or ``drain`` returns. It is kept alive until then. With memory of a GPU, what
                is queued on its stream comes first.

        Raises:
            UsageError: another size or dtype, not contiguous, written twice; nothing was sent. Of less than 4 MiB, Ctrl-C is
            heard when it returns: it waits for room, and at most the update timeout.
        """
        source = self._sources.get(tensor) or self._source(tensor)
        kept, owner = self._kept, data if source.still(data) else source.locate(data)
        kept.append(owner)
        try:
            if source.bytes >= _LARGE_BYTES and _waits.hears_signals():
                self._waiting(lib.weft_update_write, source.id, source.struct)
                return
            error = slot.error  # what _now does, a tenth sooner: this is called for each tensor
            rc = self._raw(lib.weft_update_write, source.id, source.struct, error)
        finally:
            if self._kept is not kept:  # another thread has drained what was written before this was
                self._kept.append(owner)
        if rc < 0:
            raise failed(rc, error)

    def write_all(self, data: Data) -> None:
        """Sends all tensors in the plan's order, on all packing threads: the quickest way.

        Args:
            data: memory by id or name, or one for each id; as in ``write``. Those that nobody wants, and those that were
                written before, may be left out.
        """
        self._waiting(lib.weft_update_write_all, *self._all(data))

    async def write_all_async(self, data: Data) -> None:
        """``write_all`` for an event loop. Cancelled: part of it may have gone; all that is left is ``abort``."""
        await self._in_thread(lib.weft_update_write_all, *self._all(data))

    def _all(self, data: Data) -> tuple[Any, int, int]:
        items: Iterable[tuple[Any, Any]] = data.items() if isinstance(data, Mapping) else enumerate(data)
        self._located()
        given = set()
        for tensor, memory in items:
            source = self._sources.get(tensor) or self._source(tensor)
            self._kept.append(memory if source.still(memory) else source.locate(memory))
            given.add(source.id)
        if len(given) < len(self._by_id):
            for source in self._by_id:
                if source.id not in given:
                    source.quick, source.struct.pointer = _nothing, ffi.NULL
        return self._structs, len(self._by_id), ffi.sizeof("weft_memory")

    def write_bucket(self, slices: Iterable[tuple[str, Any]]) -> None:
        """Some tensors by name, as a framework's all-gather gives them; each is this trainer's held rows. A name that was
        not declared, a dtype, shape or size that differs: UsageError, and nothing of the bucket is sent.

        Args:
            slices: (name, memory): memory that has a dtype and a shape (a tensor, an array).
        """
        found: list[tuple[str, Memory]] = []
        for name, given in slices:
            memory = memory_of(given)
            if memory.dtype is None or memory.shape is None:
                raise UsageError(f"{name!r} in a bucket: plain bytes have no dtype and shape; give an array or tensor, or "
                                 "use write")
            found.append((name, memory))
        structs = ffi.new("weft_slice[]", len(found))
        keep: list[Any] = []
        for i, (name, memory) in enumerate(found):
            structs[i] = described("weft_slice", Tensor(name, memory.dtype, memory.shape or ()), keep)[0]
            keep.append(memory_struct(memory))
            structs[i].memory = keep[-1]
            self._kept.append(memory.owner)
        self._waiting(lib.weft_update_write_bucket, structs, len(found), ffi.sizeof("weft_slice"))

    def _located(self) -> None:
        """After join no tensor is added: their structs lie in one array, as write_all wants them."""
        if self._structs is not None:
            return
        if self._state == "open":
            raise StateError(f"{self!r}: nothing can be written before join")
        with self._locating:  # of threads that all write first
            if self._structs is not None:
                return
            views = self.tensors
            structs = ffi.new("weft_memory[]", max(len(views), 1))
            sources: dict[Union[int, str], _Source] = {}
            by_id: list[_Source] = []
            for view in views:
                fill_memory(structs[view.id], Memory(0, 0))
                source = _Source(view, structs + view.id)
                by_id.append(source)
                sources[view.id] = source
                sources.setdefault(view.name, source)
            self._by_id, self._sources = by_id, sources
            self._structs = structs  # the last: who finds it finds the others

    def _source(self, tensor: Union[int, str]) -> _Source:
        self._located()
        found = self._sources.get(tensor)
        if found is None:
            raise UsageError(f"{tensor!r} is no tensor that {self!r} declared; it has {len(self._by_id)}"
                             + (f", from {self._by_id[0].name!r} on" if self._by_id else ""))
        return found

    def drain(self) -> None:
        """Waits until the memory of everything written may be reused; the update stays open."""
        kept, self._kept = self._kept, []
        try:
            self._waiting(lib.weft_update_drain)
        except BaseException:
            self._kept += kept
            raise

    async def drain_async(self) -> None:
        """``drain`` for an event loop."""
        kept, self._kept = self._kept, []
        try:
            await self._in_thread(lib.weft_update_drain)
        except BaseException:
            self._kept += kept
            raise

    def end(self) -> None:
        """Waits for all writes, then tells the inference ranks that the version is complete.

        Raises:
            StateError: wanted tensors were not written; up to four are named, and the update stays open.
        """
        self._waiting(lib.weft_update_end)
        self._ended()

    async def end_async(self) -> None:
        """``end`` for an event loop."""
        await self._in_thread(lib.weft_update_end)
        self._ended()

    def _ended(self) -> None:
        self._version = self._begun
        self._kept.clear()

    def abort(self, why: str = "given up") -> None:
        """Gives the update up: inference ranks are told, publish nothing, and accept a later version."""
        self._waiting(lib.weft_update_abort, encoded(why))
        self._kept.clear()

    def replay(self, version: int) -> None:
        """A whole update from what replica "full" keeps: the last version once more, as ``version``."""
        self._waiting(lib.weft_update_replay, version)
        self._version = version

    def repeat(self) -> int:
        """Between two updates: takes in an engine that waits to come in, and goes on without a trainer that was lost.

        All trainers call it together, as they begin updates: from when one waits in it, the others are waited for, here or in
        ``begin``. Where nobody waits it returns at once, and may be asked as often as one likes.

        Returns:
            The version that all trainers are to send once more, as any update, to those engines alone that come in or had to give
            it up: the last one that was ended. 0: none; so it is where other engines of its layout show that version, and
            send it (``Controller(catch_up_from=)``). What it named it names until that was begun, and ``begin`` for another
            version is a StateError: after Ctrl-C, or a task that was cancelled, ask again.

        Raises:
            StateError: an update is open.
        """
        version = ffi.new("uint64_t *")
        self._waiting(lib.weft_update_repeat, version)
        return int(version[0])

    async def repeat_async(self) -> int:
        """``repeat`` for an event loop."""
        version = ffi.new("uint64_t *")
        await self._in_thread(lib.weft_update_repeat, version)
        return int(version[0])

    def admit(self) -> None:
        """``repeat`` of a trainer that has nothing to send once more, such as one whose tensors have changed: who comes in has the
        last version from another engine that shows it, or else the next one.

        Raises:
            StateError: an update is open, or what ``repeat`` has named is still to be sent.
        """
        self._waiting(lib.weft_update_admit)

    async def admit_async(self) -> None:
        """``admit`` for an event loop."""
        await self._in_thread(lib.weft_update_admit)

    def publish(self, version: int, data: Data) -> None:
        """begin, write_all, end; where one fails, abort."""
        self.begin(version)
        try:
            self._handed(self._write_and_end, *self._all(data))
            self._ended()
        except BaseException as failure:
            self._give_up(failure)
            raise

    def _write_and_end(self, *everything: Any) -> int:
        """In one: handing a call over costs a tenth of a millisecond."""
        self._now(lib.weft_update_write_all, *everything)
        return self._now(lib.weft_update_end)

    async def publish_async(self, version: int, data: Data) -> None:
        """``publish`` for an event loop."""
        async with self.update(version):
            await self.write_all_async(data)

    def update(self, version: int) -> "Update":
        """``with trainer.update(version): trainer.write(..)``: ``end`` at its end, ``abort`` where an exception passes."""
        return Update(self, version)

    def _give_up(self, exception: BaseException) -> None:
        try:
            self.abort(f"{type(exception).__name__}: {exception}")
        except Error:
            pass  # the job itself has failed, which the exception on its way says

    async def _give_up_async(self, exception: BaseException) -> None:
        try:
            await self._in_thread(lib.weft_update_abort, encoded(f"{type(exception).__name__}: {exception}"))
            self._kept.clear()
        except Error:
            pass

    def _released(self) -> None:
        if not self._handle.freed:  # something reads it until the library's worker is gone
            self._handle.keep += self._kept
        self._kept.clear()


class Update:
    """An open update of a trainer: what ``Trainer.update`` gives."""

    def __init__(self, trainer: Trainer, version: int):
        self._trainer, self.version = trainer, version

    def write(self, tensor: Union[int, str], data: Any) -> None:
        """Trainer.write."""
        self._trainer.write(tensor, data)

    def write_all(self, data: Data) -> None:
        """Trainer.write_all."""
        self._trainer.write_all(data)

    def __enter__(self) -> "Update":
        self._trainer.begin(self.version)
        return self

    def __exit__(self, kind: Optional[type[BaseException]], exception: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if exception is not None:
            self._trainer._give_up(exception)
            return
        try:
            self._trainer.end()
        except BaseException as failure:
            self._trainer._give_up(failure)
            raise

    async def __aenter__(self) -> "Update":
        await self._trainer.begin_async(self.version)
        return self

    async def __aexit__(self, kind: Optional[type[BaseException]], exception: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        if exception is not None:
            await self._trainer._give_up_async(exception)
            return
        try:
            await self._trainer.end_async()
        except BaseException as failure:
            await self._trainer._give_up_async(failure)
            raise

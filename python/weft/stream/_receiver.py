# SPDX-License-Identifier: Apache-2.0
"""An engine's rank of a stream: each bucket is looked at, and given tensor by tensor while the next one arrives.

    weft: two copies of the bucket      copy A: loaded by the engine  │ copy B: written by the trainers (``wait`` of version v + 1)
                                        ── all of A was taken ──►       B loaded, A written

``wait`` of the next version begins before the first tensor of this one is given, and the one behind it only when the last was
taken: so a copy is never written while it is read. Behind the last bucket of a stream it begins when all was taken, which is
what trainers wait for.
"""
from __future__ import annotations

import asyncio
import contextlib
import select
import time
from typing import Any, AsyncGenerator, Generator, NamedTuple, Optional

import torch

from weft import Array, ConflictError, Error, Inference, StateError, Tensor, UsageError
from weft._library import ffi, lib
from weft._structs import milliseconds
from weft.stream._base import (
    BUCKET_BYTES,
    TABLE_BYTES,
    UPDATE_TIMEOUT_S,
    End,
    Figures,
    Loop,
    asked_device,
    device_of,
    labelled,
    share_bytes,
)
from weft.stream._table import CLOSING, Head, Row, decoded, difference, used

_CLOSING_S = 5.0  # that trainers may take to leave, too
_AHEAD_S = 30 * 24 * 3600.0

Batch = list[tuple[str, torch.Tensor]]


class Receiver(End[Inference]):
    """A rank of an engine that is given named tensors, in the trainers' order.

    Args:
        controller: "tcp://host:29600".
        rank: among the receivers, from 0.
        world: how many trainers there are.
        receivers: how many receivers.
        bucket_bytes, table_bytes: as the senders have them. Two buckets are kept here.
        memory: where buckets arrive: "host" (default), "cuda" or "cuda:N".
        transport: as the senders'.
        nic, key_file, checksums, job, join_timeout_s: as Inference's.
        update_timeout_s: that trainers may take for a bucket. Default 300 s.
    """

    def __init__(self, controller: Optional[str], rank: int, world: int, *, receivers: int, bucket_bytes: int = BUCKET_BYTES,
                 table_bytes: int = TABLE_BYTES, memory: Optional[str] = None, transport: Optional[str] = "auto",
                 nic: Optional[str] = None, key_file: Optional[str] = None, checksums: bool = False, job: Optional[str] = None,
                 join_timeout_s: Optional[float] = None, update_timeout_s: float = UPDATE_TIMEOUT_S):
        size = share_bytes(bucket_bytes, world)
        self._device, self._world, self._update_timeout_s = device_of(memory), world, update_timeout_s
        self._accepted = False  # a version behind the last stream,
        self._came: Optional[int] = None  # or it was here at once
        self._version_bytes = world * (size + table_bytes)
        inference = Inference(controller, rank, transport=transport, memory=memory, shadow=True, nic=nic, key_file=key_file,
                              checksums=checksums, job=job, join_timeout_s=join_timeout_s, update_timeout_s=update_timeout_s)
        super().__init__(inference, f"receiver {rank}")
        try:
            self._declare(inference, size, table_bytes, receivers)
        except BaseException:
            inference.close()
            raise

    def _declare(self, inference: Inference, size: int, table_bytes: int, receivers: int) -> None:
        labelled(inference, self._world, receivers)
        tables = inference.declare_param("tables", "U8", (self._world, table_bytes))
        bucket = inference.declare_param("bucket", "U8", (self._world * size,))
        for rank in range(self._world):
            inference.declare_piece(Tensor(f"table.{rank}", "U8", (table_bytes,)), tables, offset_bytes=rank * table_bytes)
        for rank in range(self._world):
            inference.declare_piece(Tensor(f"share.{rank}", "U8", (size,)), bucket, offset_bytes=rank * size)

    # ---- a stream

    def receive(self, step: Optional[int] = None, *, own: bool = False,
                device: "Optional[str | torch.device]" = None) -> Generator[tuple[str, torch.Tensor], None, None]:
        """The next stream's (name, tensor), in the trainers' order.

        Args:
            step: that the trainers must have given. None: any.
            own: each tensor has memory of its own. Otherwise most lie in the bucket: good until the one behind it is asked for.
            device: each tensor is copied there.

        Raises:
            ConflictError: trainers differ, with the first tensor and the rank; or in the step. Error: somebody failed. After
            each of these, or when this is closed before the end, the job is over for all; what came is no complete stream.
        """
        for batch in self.batches(step, own=own, device=device):
            yield from batch

    def batches(self, step: Optional[int] = None, *, own: bool = False,
                device: "Optional[str | torch.device]" = None) -> Generator[Batch, None, None]:
        """``receive``, a list a bucket: tensors of a list are good together, until the next list is asked for."""
        loop, batches = Loop("batches_async, or receive_async"), self.batches_async(step, own=own, device=device)
        try:
            while True:
                batch = loop.run(_next(batches))
                if batch is None:
                    return
                yield batch
        finally:
            loop.run(_closed(batches))
            loop.close()

    async def receive_async(self, step: Optional[int] = None, *, own: bool = False,
                            device: "Optional[str | torch.device]" = None) -> AsyncGenerator[tuple[str, torch.Tensor], None]:
        """``receive`` for an event loop. Close it (contextlib.aclosing) where its end is not waited for."""
        batches = self.batches_async(step, own=own, device=device)
        try:
            async for batch in batches:
                for item in batch:
                    yield item
        finally:
            await batches.aclose()

    async def batches_async(self, step: Optional[int] = None, *, own: bool = False,
                            device: "Optional[str | torch.device]" = None) -> AsyncGenerator[Batch, None]:
        """``batches`` for an event loop."""
        self._begin()
        began = time.monotonic()
        coming: Optional[asyncio.Task[int]] = None
        try:
            unpack = _Unpack(self, step, own, device)
            version = await self._first()
            while True:
                batch = unpack.bucket(version)
                if not unpack.last:
                    coming = asyncio.ensure_future(self._worker.wait_async(None, self._update_timeout_s))
                    await asyncio.sleep(0)  # it has opened the other copy when this returns
                if batch:
                    yield batch
                self._taken(device)
                del batch
                if coming is None:
                    self._accept()
                    break
                version, coming = await coming, None
        except BaseException as failure:
            if coming is not None:
                coming.cancel()
                await asyncio.wait([coming])
                if not coming.cancelled():
                    coming.exception()
            await self._fail(failure)
            raise
        self._end(Figures(unpack.head.step, unpack.tensors, unpack.bytes, unpack.buckets, unpack.buckets * self._version_bytes,
                          time.monotonic() - began))

    def _accept(self) -> None:
        """All was taken: the trainers, who wait for that, may begin the version behind, whenever it comes."""
        self._came = self._try()
        self._accepted = self._came is None

    def _try(self) -> Optional[int]:
        """The version that was accepted ahead, once it is here. Its clock runs from then on, through all that is between two
        streams, so it is not what ends a wait."""
        published = ffi.new("uint64_t *")
        rc = self._worker._hooked(lib.weft_update_try_wait, lib.WEFT_VERSION_NEXT, milliseconds(_AHEAD_S), published)
        return None if rc == lib.WEFT_AGAIN else int(published[0])

    async def _first(self) -> int:
        """The version with which a stream begins."""
        (came, self._came), (accepted, self._accepted) = (self._came, None), (self._accepted, False)
        if came is not None:
            return came
        waits = asyncio.ensure_future(self._worker.wait_async(None, self._update_timeout_s))
        try:
            await asyncio.wait([waits], timeout=self._update_timeout_s if accepted else None)
        finally:
            if not waits.done():
                waits.cancel()
                await asyncio.wait([waits])
        if not waits.cancelled():
            return waits.result()
        return await self._worker._threaded(self._worker.wait, None, 0.001)  # says who is missing

    def _leave(self) -> None:
        """With the trainers, where they leave too: they write what was accepted."""
        deadline, poll = time.monotonic() + _CLOSING_S, select.poll()
        poll.register(self._worker.fileno(), select.POLLIN)
        with contextlib.suppress(Error):  # of a trainer that failed
            while self._accepted and self._try() is None and time.monotonic() < deadline:
                poll.poll(50)
        self._worker.leave()

    def _taken(self, device: "Optional[str | torch.device]") -> None:
        """Before a copy may be written again: what the engine queued on its stream has read it."""
        if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.current_stream(device if device is not None and torch.device(device).type == "cuda" else None).synchronize()


class _Part(NamedTuple):
    """A tensor of which a bucket has not all."""
    row: Row
    memory: torch.Tensor     # flat, of bytes
    tensor: torch.Tensor     # the same as what it is


class _Unpack:
    """A stream as it comes."""

    def __init__(self, receiver: Receiver, step: Optional[int], own: bool, device: "Optional[str | torch.device]"):
        self._receiver, self._step, self._own = receiver, step, own
        self._device = asked_device(device)
        self._part: Optional[_Part] = None
        self._filled = 0
        self.head = Head(0, None, -1, False)
        self.tensors = self.bytes = self.buckets = 0

    @property
    def last(self) -> bool:
        return self.head.last

    def bucket(self, version: int) -> Batch:
        """Tensors that are complete with it."""
        worker = self._receiver._worker
        tables, bucket = (_bytes(worker.memory(name, version)) for name in ("tables", "bucket"))
        tables = tables.cpu()  # no copy where they are on the host
        given = [used(memoryview(table.numpy())) for table in tables.view(self._receiver._world, -1)]
        differs = difference(given)
        if differs is not None:
            raise ConflictError(differs)
        head, rows = decoded(given[0])
        self._follows(head)
        self.head, self.buckets = head, self.buckets + 1
        batch = [(row.name, tensor) for row in rows for tensor in [self._tensor(row, bucket)] if tensor is not None]
        if head.last and self._part is not None:
            raise ConflictError(f"the stream ended inside of {self._part.row.name!r}: {self._filled} bytes of it came")
        return batch

    def _follows(self, head: Head) -> None:
        if head.bucket == CLOSING:
            raise StateError(f"{self._receiver._what}: no stream comes any more: the senders were closed")
        if (head.stream, head.bucket) != (self._receiver._streams, self.buckets):
            raise ConflictError(f"the trainers are in {head}, where {self._receiver._what} expects stream "
                                f"{self._receiver._streams}, bucket {self.buckets}: all go through the same streams since join")
        if self._step is not None and head.step != self._step:
            raise ConflictError(f"the trainers send step {head.step}, and {self._receiver._what} expects step {self._step}: call "
                                "both sides with the same step")

    def _tensor(self, row: Row, bucket: torch.Tensor) -> Optional[torch.Tensor]:
        """None: part of it is still to come."""
        dtype = getattr(torch, row.dtype, None)
        if not isinstance(dtype, torch.dtype):
            raise UsageError(f"{row.name!r} has dtype {row.dtype}, which torch {torch.__version__} here does not know: use the "
                             "trainers' version of torch")
        whole = dtype.itemsize
        for size in row.shape:
            whole *= size
        found = bucket[row.offset:row.offset + row.size]
        if row.size < whole:
            return self._more(row, found, dtype, whole)
        self.tensors, self.bytes = self.tensors + 1, self.bytes + whole
        tensor = found.view(dtype).view(row.shape) if whole else torch.empty(row.shape, dtype=dtype, device=bucket.device)
        if self._own or self._device is not None:
            return tensor.to(self._device or tensor.device, copy=True)
        return tensor

    def _more(self, row: Row, found: torch.Tensor, dtype: torch.dtype, whole: int) -> Optional[torch.Tensor]:
        if row.start == 0 and self._part is None:
            memory = torch.empty(whole, dtype=torch.uint8, device=self._device or found.device)
            self._part, self._filled = _Part(row, memory, memory.view(dtype).view(row.shape)), 0
        part = self._part
        if part is None or row.start != self._filled or (row.name, row.shape) != (part.row.name, part.row.shape):
            begun = "nothing was begun" if part is None else f"{self._filled} bytes of {part.row.name!r} are here"
            raise ConflictError(f"{row} came, where {begun}: no sender of weft.stream does that; are all of one version?")
        part.memory[row.start:row.start + row.size].copy_(found)
        self._filled += row.size
        if self._filled < whole:
            return None
        self._part = None
        self.tensors, self.bytes = self.tensors + 1, self.bytes + whole
        return part.tensor


def _bytes(array: Array) -> torch.Tensor:
    """Flat, over it."""
    if array.device is None:
        return torch.frombuffer(array.buffer, dtype=torch.uint8)
    return torch.as_tensor(array, device=f"cuda:{array.device}").view(-1)


async def _next(batches: AsyncGenerator[Batch, None]) -> Optional[Batch]:
    try:
        return await batches.__anext__()
    except StopAsyncIteration:
        return None


async def _closed(batches: AsyncGenerator[Any, None]) -> None:
    await batches.aclose()

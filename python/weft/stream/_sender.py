# SPDX-License-Identifier: Apache-2.0
"""A trainer of a stream: packs its share of each bucket, and sends it while it packs the next.

    tensors ──►  cut where the bucket ends  ──►  bytes of [lo, hi), this trainer's share  ──►  side 0 │ side 1
                                                                                   packed now ┘      └ on its way

A bucket that is full is published by a thread (a weft version), and the generator goes on: on the caller's thread, as
collectives and torch's thread-local state need it. The third bucket waits for the first to have landed.

A stream is over when the version behind its last bucket has begun: receivers accept that one when they have taken all. It
stays open, and the next stream's first bucket is written into it, or an empty one at the end, so that both sides know it:

    stream 1   begin 1, write, end   begin 2, write, end   begin 3 ┄┄┐ open while training goes on
    stream 2                                                         └┄ write, end   begin 4 ┄┄┐
    close                                                                                      └┄ write, end, leave
"""
from __future__ import annotations

import asyncio
import time
from typing import Any, AsyncIterable, AsyncIterator, Iterable, Optional, Union

import torch

from weft import Tensor, Trainer, UsageError, _waits
from weft.stream._base import (
    ALIGN_BYTES,
    BUCKET_BYTES,
    TABLE_BYTES,
    UPDATE_TIMEOUT_S,
    End,
    Figures,
    Loop,
    device_of,
    finished,
    labelled,
    share_bytes,
)
from weft.stream._table import CLOSING, Draft, Head, Row

Weights = Union[Iterable[tuple[str, torch.Tensor]], AsyncIterable[tuple[str, torch.Tensor]]]


class Sender(End[Trainer]):
    """A trainer that streams named tensors; all trainers give the same ones in the same order.

    Args:
        controller: "tcp://host:29600".
        rank: among the trainers, from 0.
        world: how many trainers there are.
        receivers: how many receivers.
        bucket_bytes: of a bucket, the same on all sides (rounded up to shares). Two shares of it are kept here, world to a bucket.
        table_bytes: for a bucket's names, shapes and dtypes, at most; the same on all sides. What does not fit opens the next.
        memory: where buckets are packed: "host" (default; tensors may lie on a GPU all the same), "cuda" or "cuda:N".
        transport: "auto" (default), "shm", "verbs", "tcp", .., or a list, the same on all sides.
        nic, key_file, checksums, job, join_timeout_s: as Trainer's.
        update_timeout_s: that a receiver may take for a bucket. Default 300 s.
    """

    def __init__(self, controller: Optional[str], rank: int, world: int, *, receivers: int, bucket_bytes: int = BUCKET_BYTES,
                 table_bytes: int = TABLE_BYTES, memory: Optional[str] = None, transport: Optional[str] = "auto",
                 nic: Optional[str] = None, key_file: Optional[str] = None, checksums: bool = False, job: Optional[str] = None,
                 join_timeout_s: Optional[float] = None, update_timeout_s: float = UPDATE_TIMEOUT_S):
        if not 0 <= rank < world:
            raise UsageError(f"rank {rank!r} of world {world!r}: trainers count from 0 to world - 1")
        size, device = share_bytes(bucket_bytes, world), device_of(memory)
        self._lo, self._hi, self._bucket_bytes = rank * size, (rank + 1) * size, world * size
        self._table_bytes, self._receivers = table_bytes, receivers
        trainer = Trainer(controller, rank, transport=transport, memory=memory, nic=nic, key_file=key_file, checksums=checksums,
                          job=job, join_timeout_s=join_timeout_s, update_timeout_s=update_timeout_s)
        super().__init__(trainer, f"sender {rank} of {world}")
        try:
            self._declare(trainer, world, size, device)
        except BaseException:
            trainer.close()
            raise
        self._version = self._begun = 0  # that was sent, and that is open
        self._side = 0
        self._flight: Optional[asyncio.Future[Any]] = None
        self._devices: set[torch.device] = set()  # of the GPUs whose copies are queued

    def _declare(self, trainer: Trainer, world: int, size: int, device: torch.device) -> None:
        rank, pinned = trainer.rank, device.type == "cpu" and torch.cuda.is_available()
        # a side is one memory, share and then table, so that it is registered once
        self._memory = torch.zeros((2, size + self._table_bytes), dtype=torch.uint8, device=device, pin_memory=pinned)
        self._shares, self._tables = self._memory[:, :size], self._memory[:, size:]
        labelled(trainer, world, self._receivers)
        self._table_id = trainer.declare_tensor(Tensor(f"table.{rank}", "U8", (self._table_bytes,)), order=rank)
        self._share_id = trainer.declare_tensor(Tensor(f"share.{rank}", "U8", (size,)), order=world + rank)
        trainer.register(self._memory)

    # ---- a stream

    def send(self, weights: Weights, step: Optional[int] = None) -> Figures:
        """Sends a stream: all that ``weights`` gives, to all receivers. When it returns, each of them has taken every tensor.

        Args:
            weights: (name, tensor): whole tensors, of any dtype and shape, on a CPU or GPU; contiguous or not. A tensor may be
                reused when the next is asked for. A name may come again (tied parameters): it is sent again.
            step: the framework's own number of this stream; receivers that expect another one fail.

        Raises:
            UsageError: something else than a tensor with memory came; named. Whatever ``weights`` raises. Error: somebody
            failed. After each of these the job is over for all.
        """
        loop = Loop("send_async")
        try:
            return loop.run(self.send_async(weights, step))
        finally:
            loop.close()

    async def send_async(self, weights: Weights, step: Optional[int] = None) -> Figures:
        """``send`` for an event loop; ``weights`` may be an async iterator too. It runs on the loop's thread, and what waits
        for others does not hold the loop. Cancelled: the job is over for all."""
        self._begin()
        began = time.monotonic()
        try:
            pack = _Pack(self, step)
            async for name, tensor in _each(weights):
                await pack.add(name, tensor)
            await pack.flush(last=True)
            await self._settled()
            self._flight = _waits.in_loop(self._open, self._version + 1)
            await self._settled()
        except BaseException as failure:
            await self._give_up(failure)
            raise
        moved = pack.buckets * (self._hi - self._lo + self._table_bytes) * self._receivers
        figures = Figures(step, pack.tensors, pack.bytes, pack.buckets, moved, time.monotonic() - began)
        self._end(figures)
        return figures

    async def _publish(self, table: bytes) -> None:
        """The side that was packed goes out; the other one is free when this returns."""
        await self._settled()
        data = self._side_with(table)
        self._version += 1
        self._flight = _waits.in_loop(self._write, self._version, data)

    def _side_with(self, table: bytes) -> dict[int, torch.Tensor]:
        """What was packed, to be sent; the next is packed into the other one."""
        side, self._side = self._side, 1 - self._side
        self._tables[side, :len(table)].copy_(torch.frombuffer(bytearray(table), dtype=torch.uint8))
        for device in self._devices:
            torch.cuda.current_stream(device).synchronize()
        self._devices.clear()
        return {self._table_id: self._tables[side], self._share_id: self._shares[side]}

    def _write(self, version: int, data: dict[int, torch.Tensor]) -> int:
        if self._begun != version:
            self._open(version)
        self._worker.write_all(data)
        self._worker.end()
        return 0

    def _open(self, version: int) -> None:
        self._worker.begin(version)
        self._begun = version

    async def _settled(self) -> None:
        flight = self._flight
        if flight is None:
            return
        try:
            await asyncio.shield(flight)
        finally:
            if flight.done():
                self._flight = None

    async def _give_up(self, failure: BaseException) -> None:
        flight, self._flight = self._flight, None
        if flight is not None and not flight.done():
            self._worker.interrupt()
            try:
                await finished(flight)
            except BaseException:  # it is `failure` that is told
                pass
            self._worker.interrupt_clear()
        elif flight is not None:
            flight.exception()
        await self._fail(failure)

    def _leave(self) -> None:
        if self._begun > self._version:
            table = Draft(self._table_bytes).encoded(Head(self._streams + 1, None, CLOSING, True))
            self._worker._handed(self._write, self._begun, self._side_with(table))
        self._worker.leave()


class _Pack:
    """A stream as it is packed."""

    def __init__(self, sender: Sender, step: Optional[int]):
        self._sender, self._step = sender, step
        self.tensors = self.bytes = self.buckets = 0
        self._open()

    def _open(self) -> None:
        self._draft, self._at = Draft(self._sender._table_bytes), 0

    async def add(self, name: str, tensor: torch.Tensor) -> None:
        flat, dtype, shape = _flat(name, tensor), str(tensor.dtype).partition(".")[2], tuple(tensor.shape)
        start, whole = 0, flat.numel()
        while True:
            offset = -(-self._at // ALIGN_BYTES) * ALIGN_BYTES
            size = min(whole - start, self._sender._bucket_bytes - offset)
            full = size <= 0 < whole
            if full or not self._draft.add(Row(name, dtype, shape, start, offset, size)):
                await self.flush(last=False)
                continue
            self._copy(flat, start, offset, size)
            start, self._at = start + size, offset + size
            if start == whole:
                break
        self.tensors += 1
        self.bytes += whole

    def _copy(self, flat: torch.Tensor, start: int, offset: int, size: int) -> None:
        """What of it is this trainer's."""
        sender = self._sender
        lo, hi = max(offset, sender._lo), min(offset + size, sender._hi)
        if lo >= hi:
            return
        with torch.no_grad():
            part = flat[start + lo - offset:start + hi - offset]
            sender._shares[sender._side, lo - sender._lo:hi - sender._lo].copy_(part, non_blocking=flat.is_cuda)
        if flat.is_cuda:
            sender._devices.add(flat.device)
        if sender._memory.is_cuda:
            sender._devices.add(sender._memory.device)

    async def flush(self, last: bool) -> None:
        head = Head(self._sender._streams, self._step, self.buckets, last)
        await self._sender._publish(self._draft.encoded(head))
        self.buckets += 1
        self._open()


async def _each(weights: Weights) -> AsyncIterator[tuple[str, torch.Tensor]]:
    if isinstance(weights, AsyncIterable):
        async for item in weights:
            yield _pair(item)
        return
    iterator = iter(weights)
    while True:
        with torch.no_grad():  # gathered parameters would keep their graph
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield _pair(item)


def _pair(item: Any) -> tuple[str, torch.Tensor]:
    try:
        name, tensor = item
    except (TypeError, ValueError):
        raise UsageError(f"a stream is given (name, tensor), and {type(item).__name__} came") from None
    if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
        raise UsageError(f"a stream is given (name, tensor) with a str and a torch.Tensor, and ({type(name).__name__}, "
                         f"{type(tensor).__name__}) came: {name!r}")
    return name, tensor


def _flat(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Its bytes, in order."""
    if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_quantized:
        what = "on the meta device" if tensor.is_meta else "quantized" if tensor.is_quantized else str(tensor.layout)
        raise UsageError(f"{name!r}, shape {tuple(tensor.shape)}, is {what}: a stream needs strided tensors that have memory")
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) and hasattr(tensor, "to_local"):
        raise UsageError(f"{name!r}, shape {tuple(tensor.shape)}, is a {type(tensor).__qualname__} that is cut over ranks: give "
                         "full_tensor() of it, on all ranks")
    if tensor.device.type not in ("cpu", "cuda"):
        raise UsageError(f"{name!r} lies on {tensor.device}: a stream takes tensors of CPUs and of CUDA's GPUs")
    with torch.no_grad():
        return tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)

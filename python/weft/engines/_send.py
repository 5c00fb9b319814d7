# SPDX-License-Identifier: Apache-2.0
"""The trainers' side of engines that are given weights by name.

    trainer 0   Sender ── starts the controller ── endpoint(k) ──► engine k's init request     (the host's own way)
    trainer r   Sender(controller=address of 0)
    all         join() ◄──────────── beside the engines' ranks ───────────► Receiver.join()
    all         send(named, version) ─────── one-sided writes ────────────► Receiver.receive(version)

Every trainer holds each tensor whole while it is sent, as a gather of FSDP or of Megatron leaves it, and they share the
sending. Trainers that are to send their own shards are weft.Trainers that declare them (weft.torch), and engines are told an
Endpoint of theirs.
"""
from __future__ import annotations

import itertools
import time
from types import TracebackType
from typing import Any, Iterable, Optional

from weft._controller import Controller
from weft._errors import UsageError
from weft._structs import Tensor
from weft._trainer import Trainer
from weft.engines._endpoint import Endpoint, GivenTensor, tensors_of
from weft.torch._cuts import folded_shape

_LEAVE_S = 1.0
_DRAIN_BYTES = 1 << 30  # gathered tensors that writes may keep alive before their memory is waited for


class Sender:
    """One trainer's part of a job whose engines are given tensors by name.

    Args:
        tensors: what is sent: weft.Tensor or (name, dtype, shape), by the checkpoint's names, whole; the same on every
            trainer.
        engines: how many.
        ranks: inference ranks of one engine (tp times pp).
        rank, world: this trainer's among all.
        controller: "tcp://host:29600". None, on rank 0: one is started in this process, and ``controller`` says where.
        bind: where that one listens (weft.Controller). None: on this host alone, any port.
        transport, key_file, job: as of weft.Trainer and weft.Controller.
        insecure: as of weft.Controller: listen to other hosts without a key.
        layout, update, left_alone: what engines are told (``Endpoint``).
        join_timeout_s, update_timeout_s: None: weft's own.
        options: more of weft.Trainer's (checksums, memory, ..).
    """

    def __init__(self, tensors: Iterable[GivenTensor], *, engines: int, ranks: int, rank: int = 0, world: int = 1,
                 controller: Optional[str] = None, bind: Optional[str] = None, transport: Optional[str] = None,
                 key_file: Optional[str] = None, insecure: bool = False, job: Optional[str] = None, layout: str = "auto",
                 update: str = "paused", left_alone: "tuple[str, ...] | list[str]" = (),
                 join_timeout_s: Optional[float] = None, update_timeout_s: Optional[float] = None, **options: Any):
        for what, value, least in (("engines", engines, 1), ("ranks", ranks, 1), ("world", world, 1), ("rank", rank, 0)):
            if type(value) is not int or value < least:
                raise UsageError(f"{what}={value!r}: a whole number, at least {least}")
        if rank >= world:
            raise UsageError(f"rank {rank} of world={world}: ranks count from 0")
        self.tensors = tensors_of(tensors)
        if not self.tensors:
            raise UsageError("no tensors: list what is sent, as (name, dtype, shape)")
        self._names = {tensor.name: tensor for tensor in self.tensors}
        self.engines, self.ranks, self.rank, self.world = engines, ranks, rank, world
        self._own: Optional[Controller] = None
        if controller is None:
            if rank:
                raise UsageError(f"trainer {rank} has no controller: give it trainer 0's Sender.controller")
            self._own = Controller(f"world={world},source=gathered", f"engines={engines},tp={ranks}", bind=bind,
                                   key_file=key_file, insecure=insecure, job=job)
            controller = self._own.address
        self.controller = controller
        self._last: dict[str, Any] = {}
        try:
            self._endpoint = Endpoint(controller, 0, self.tensors, job, transport, key_file, layout, update,
                                      tuple(left_alone), join_timeout_s, update_timeout_s)
            self.trainer = Trainer(controller, rank, job=job, transport=transport, key_file=key_file,
                                   join_timeout_s=join_timeout_s, update_timeout_s=update_timeout_s, **options)
            for tensor in self.tensors:
                self.trainer.declare_tensor(tensor)
        except BaseException:
            self._stop()
            raise
        self.version = 0

    def endpoint(self, engine: int = 0) -> dict[str, Any]:
        """What engine number `engine` is told, as JSON has it."""
        if not 0 <= engine < self.engines:
            raise UsageError(f"engine {engine}: this job has {self.engines}, counted from 0")
        return {**self._endpoint.to_dict(), "rank_offset": engine * self.ranks}

    def join(self, timeout_s: Optional[float] = None) -> None:
        """Waits until all trainers and all ranks of all engines are here; they must be told meanwhile.

        Raises:
            WaitTimeout: with who is missing.
        """
        self.trainer.join(timeout_s)

    def send(self, named: "Iterable[tuple[str, Any]]", version: Optional[int] = None) -> int:
        """Sends one version and waits until all engines have it.

        Args:
            named: (name, tensor) in any order, each once; made one after the other, so that a generator that gathers
                holds a few at a time (1 GiB and the last).
            version: None: the next.

        Returns:
            The version.

        Raises:
            UsageError: a name, a dtype or a shape is not as declared, or tensors are missing: no engine shows the version.
            Error: a peer failed; the message says who. Engines' readers get no version until another one succeeds.
        """
        version = self.version + 1 if version is None else version
        began = time.monotonic()
        with self.trainer.update(version) as update:
            began_sending = time.monotonic()
            kept, left = 0, dict(self._names)
            for name, data in named:
                tensor = left.pop(name, None)
                if tensor is None:
                    raise UsageError(f"{name!r} came twice in version {version}" if name in self._names else
                                     f"{name!r} was not declared; version {version} has {len(self._names)} tensors, from "
                                     f"{self.tensors[0].name!r} on")
                self._must_be(tensor, data)
                update.write(name, data)
                kept += tensor.bytes
                del data
                if kept > _DRAIN_BYTES:
                    self.trainer.drain()
                    kept = 0
            if left:
                raise UsageError(f"version {version} lacks {len(left)} of {len(self._names)} tensors: "
                                 + ", ".join(itertools.islice(left, 3)) + (", .." if len(left) > 3 else ""))
        self.version = version
        now = time.monotonic()
        self._last = {"version": version, "wait_s": began_sending - began, "send_s": now - began_sending,
                      "total_s": now - began, "bytes": sum(tensor.bytes for tensor in self.tensors)}
        return version

    @staticmethod
    def _must_be(tensor: Tensor, data: Any) -> None:
        """Bytes alone would let a transposed tensor pass."""
        shape = getattr(data, "shape", None)
        if shape is not None and folded_shape(tuple(int(size) for size in shape)) != tensor.shape:
            raise UsageError(f"{tensor.name!r} was declared as {list(tensor.shape)}, and what is to be sent is {list(shape)}: send "
                             "the whole tensor, as the checkpoint has it")

    async def send_async(self, named: "Iterable[tuple[str, Any]]", version: Optional[int] = None) -> int:
        """``send`` for an event loop, in a thread of its own: `named` is iterated there. Cancelled: the update is given up."""
        return await self.trainer._threaded(self.send, named, version)

    def stats(self) -> dict[str, Any]:
        """Of the last version: version, bytes of all tensors, seconds until the engines were ready (wait_s), of sending
        (send_s), of both (total_s); and the trainer's own counters."""
        return {**self.trainer.stats(), **self._last}

    def close(self) -> None:
        """Leaves the job. A controller of this process ends with it: engines that did not leave before hear so."""
        try:
            self.trainer.close()
        finally:
            self._stop()

    def _stop(self) -> None:
        own, self._own = self._own, None
        if own is not None:
            own.end(_LEAVE_S)  # engines that leave now do it in peace

    def __enter__(self) -> "Sender":
        return self

    def __exit__(self, kind: Optional[type[BaseException]], exception: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        try:
            self.trainer.__exit__(kind, exception, traceback)
        finally:
            self._stop()

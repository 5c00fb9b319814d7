# SPDX-License-Identifier: Apache-2.0
"""What senders and receivers have in common: the job's sizes, its end, and a loop for those who have none."""
from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Coroutine, Generic, NamedTuple, Optional, TypeVar

import torch

from weft import ConflictError, Controller, Error, Interrupted, StateError, UnsupportedError, UsageError, Worker, _waits

BUCKET_BYTES = 256 << 20
TABLE_BYTES = 32 << 10
UPDATE_TIMEOUT_S = 300.0  # a bucket may wait for trainers that gather, and for an engine that loads
ALIGN_BYTES = 64          # of tensors in a bucket, and of shares: more than any dtype needs

_OURS = (ConflictError, Interrupted, StateError, UsageError)  # what no call of the library fails the job with inside a stream

Result = TypeVar("Result")
Role = TypeVar("Role", bound=Worker)


class Figures(NamedTuple):
    """Of one stream, on one rank.

    Attributes:
        step: the framework's.
        tensors, bytes: of the tensors: what a model has.
        buckets: that they came in.
        moved_bytes: that this rank sent, to all receivers; or that came to this rank.
        seconds: from the first tensor asked for to the end.
    """
    step: Optional[int]
    tensors: int
    bytes: int
    buckets: int
    moved_bytes: int
    seconds: float

    @property
    def gigabytes_per_s(self) -> float:
        """Of the tensors' bytes, 10^9 each."""
        return self.bytes / self.seconds / 1e9 if self.seconds else 0.0

    def __str__(self) -> str:
        return (f"tensors: {self.tensors} in {self.buckets} buckets, total bytes: {self.bytes}, time cost: {self.seconds:.2f}s, "
                f"bandwidth: {self.gigabytes_per_s:.2f} GB/s")


def start_controller(world: int, receivers: int, **options: Any) -> Controller:
    """The controller of a stream's job.

    Args:
        world: trainers.
        receivers: engines' ranks; each gets every tensor.
        options: as Controller's.
    """
    train, infer = _specs(world, receivers)
    return Controller(train=train, infer=infer, **options)


def _specs(world: int, receivers: int) -> tuple[str, str]:
    return f"world={world},source=gathered", f"engines={receivers},tp=1"


def labelled(worker: Worker, world: int, receivers: int) -> None:
    """A side that has other numbers, or a worker of something else, is refused when it joins."""
    worker.declare_labels("weft.stream", *_specs(world, receivers))


def share_bytes(bucket_bytes: int, world: int) -> int:
    """Of each trainer: rounded up, so that shares lie one behind another."""
    if world < 1:
        raise UsageError(f"world {world!r}: a stream has one trainer or more")
    if bucket_bytes < 1:
        raise UsageError(f"bucket_bytes {bucket_bytes!r}: give the bytes of a bucket, the same on all senders and receivers")
    return -(-bucket_bytes // (world * ALIGN_BYTES)) * ALIGN_BYTES


def device_of(memory: Optional[str]) -> torch.device:
    """Of a bucket in `memory`."""
    if memory is None or memory == "host":
        return torch.device("cpu")
    if memory.partition(":")[0] != "cuda":
        raise UsageError(f"memory {memory!r}: buckets lie in \"host\" (default), \"cuda\" or \"cuda:N\"")
    if not torch.cuda.is_available():
        raise UnsupportedError(f"memory {memory!r}: this torch ({torch.__version__}) sees no GPU of CUDA: use memory=\"host\", "
                               "which takes tensors of GPUs too")
    return torch.device(memory if ":" in memory else f"cuda:{torch.cuda.current_device()}")


def asked_device(device: "Optional[str | torch.device]") -> Optional[torch.device]:
    """On which a receiver is to give its tensors. None: where they lie."""
    if device is None:
        return None
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise UsageError(f"device {device!r} is none that torch {torch.__version__} knows: give \"cpu\", \"cuda\" or \"cuda:N\", "
                         "or leave it out: tensors then lie where buckets do") from error
    if found.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"device {device!r}: this torch ({torch.__version__}) sees no GPU of CUDA in this process: show it one "
                         "(CUDA_VISIBLE_DEVICES), or leave device out: tensors then lie where buckets do")
    return found


class End(Generic[Role]):
    """One rank of a stream's job: base of Sender and Receiver.

    Attributes:
        figures: of the last stream that ended here; None: none has.
    """

    def __init__(self, worker: Role, what: str):
        self._worker, self._what = worker, what
        self._failure: Optional[str] = None
        self._busy = False
        self._streams = 0
        self.figures: Optional[Figures] = None

    def __repr__(self) -> str:
        return f"weft.stream.{type(self).__name__}({self._worker.controller!r}, rank={self._worker.rank}, state={self.state!r})"

    @property
    def state(self) -> str:
        """"open", "joined", "left", "failed" or "closed"."""
        return "failed" if self._failure else self._worker.state

    @property
    def worker(self) -> Role:
        """Of the job: for its plan, its stats, and ``check``."""
        return self._worker

    def join(self, timeout_s: Optional[float] = None) -> None:
        """Waits until all senders and receivers are here (Worker.join)."""
        self._worker.join(timeout_s)

    async def join_async(self, timeout_s: Optional[float] = None) -> None:
        """``join`` for an event loop."""
        await self._worker.join_async(timeout_s)

    def close(self) -> None:
        """Leaves the job, and frees its memory. In the middle of a stream all others are told. Twice is once."""
        if self._busy and self._failure is None:
            self._failure = "closed in the middle of a stream"
            self._tell(StateError(f"{self._what} was closed in the middle of a stream"))
            return
        try:
            if self._worker.state == "joined":
                self._leave()
        except Error:
            pass  # the job is over already: there is nobody to tell
        finally:
            self._worker.close()

    def __enter__(self: "Self") -> "Self":
        return self

    def __exit__(self, kind: Optional[type[BaseException]], exception: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if exception is None or self._failure is not None:
            self.close()
        else:
            self._tell(exception)

    # ---- for the roles

    def _leave(self) -> None:
        self._worker.leave()

    def _begin(self) -> None:
        """A stream."""
        if self._failure is not None:
            raise StateError(f"{self._what}: the job of this stream failed ({self._failure}): close, and join again")
        if self._worker.state != "joined":
            raise StateError(f"{self._what} is {self._worker.state}: a stream comes after join, and before close")
        if self._busy:
            raise StateError(f"{self._what}: another stream is under way here, and one at a time may")
        self._busy = True
        self._streams += 1

    def _end(self, figures: Figures) -> None:
        self._busy, self.figures = False, figures

    async def _fail(self, failure: BaseException) -> None:
        """The job ends for all, who are told why."""
        self._busy = False
        told = failure
        if isinstance(failure, (asyncio.CancelledError, GeneratorExit)):
            words = "cancelled" if isinstance(failure, asyncio.CancelledError) else "given up by who received"
            told = StateError(f"{self._what}: {words} in the middle of a stream")
        self._failure = f"{type(told).__name__}: {told}"
        await finished(_waits.in_loop(self._tell, told))

    def _tell(self, failure: BaseException) -> None:
        """What the library failed with, it tells itself when it is closed."""
        try:
            if isinstance(failure, _OURS):
                self._worker.fail(failure.text, failure.code)
            elif not isinstance(failure, Error):
                self._worker.fail(f"{type(failure).__name__}: {failure}")
        except Error:
            pass  # the job's own failure came first, and is what everybody hears
        finally:
            self._worker.close()


Self = TypeVar("Self", bound="End[Any]")


async def finished(future: "asyncio.Future[Any]") -> Any:
    """Its result, or exception: what a thread does is waited for, however often this task is cancelled meanwhile."""
    cancelled: Optional[asyncio.CancelledError] = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        future.exception()
        raise cancelled
    return future.result()


class Loop:
    """For a caller without an event loop: one of its own. Ctrl-C cancels what runs, and waits for its end."""

    def __init__(self, instead: str):
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._loop = asyncio.new_event_loop()
            return
        raise UsageError(f"an event loop runs in this thread, and would stand still: await {instead}")

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        task = self._loop.create_task(work)
        try:
            return self._loop.run_until_complete(task)
        except BaseException:
            while not task.done():  # KeyboardInterrupt came between two steps of it
                task.cancel()
                try:
                    self._loop.run_until_complete(asyncio.wait([task]))
                except KeyboardInterrupt:
                    continue
            if not task.cancelled():
                task.exception()
            raise

    def close(self) -> None:
        self._loop.close()

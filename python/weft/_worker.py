# SPDX-License-Identifier: Apache-2.0
"""What trainers and inference ranks have in common: a process's place in the job, from open to close.

The library's worker is freed when its user has closed it, no call is inside and no array lies over its memory any more:

    close() ──► leave or fail ──► calls inside are interrupted ──► last Array gone ──► weft_close

So neither a reader thread nor a tensor that outlives its worker finds memory that is not there.
"""
from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
import warnings
import weakref
from types import TracebackType
from typing import Any, Callable, NamedTuple, Optional, TypeVar

from weft import _log, _waits
from weft._errors import Code, Error, HookFailed, Interrupted, StateError, Unsafe, UsageError, VersionError, failed, slot
from weft._launch import launch_find
from weft._library import ffi, lib
from weft._library import text as text_of
from weft._structs import Loss, Plan, encoded, milliseconds, sized

Self = TypeVar("Self", bound="Worker")
View = TypeVar("View")

_CLOSE_TIMEOUT_S = 30.0


class Progress(NamedTuple):
    """What a join that takes long is told about, once a second.

    Attributes:
        elapsed_s: since the call.
        waiting_for: the library's last line of this worker's log: who is missing, what is registered; "" at first.
    """
    elapsed_s: float
    waiting_for: str


_unsafe: list[Any] = []  # memory that a trainer may still write, for as long as the process lives (weft_close in weft.h)


class _Handle:
    """The library's worker, and what keeps it from being freed."""

    def __init__(self) -> None:
        self.pointer: Any = ffi.NULL
        self.pid = os.getpid()
        self.closed = False
        self.inside: set[object] = set()  # a mark for each call that is in the library: add and discard are atomic
        self.polls: dict[object, int] = {}  # and for each that waits on the descriptor, with its thread
        self.arrays = 0
        self.lock = threading.Lock()
        self.freed = False
        self.keep: list[Any] = []     # what the library may read until it is freed

    def free_when_unused(self) -> int:
        """weft_close, once. 0 also while something is still in use."""
        with self.lock:
            if self.freed or not self.closed or self.arrays or self.inside or not self.pointer:
                return 0
            self.freed = True
        holder = ffi.new("weft_worker **", self.pointer)
        rc = int(lib.weft_close(holder))
        if rc == -lib.WEFT_E_UNSAFE:
            _unsafe.append(self.keep)
            self.keep = []
        self.keep.clear()
        return rc

    def array_made(self) -> None:
        with self.lock:
            if self.closed:
                raise StateError("the worker was closed meanwhile, and its memory with it")
            self.arrays += 1

    def array_gone(self) -> None:
        """May run wherever garbage is collected, in the log's sink too: what frees is another thread."""
        with self.lock:
            self.arrays -= 1
            last = self.closed and not self.arrays
        if last:
            _free_later(self)


def _free_later(handle: _Handle) -> None:
    if sys.is_finalizing():  # a thread that is started now never runs, and start() would wait for it
        return
    try:
        threading.Thread(target=handle.free_when_unused, name="weft-close", daemon=True).start()
    except RuntimeError:  # the interpreter is at its end, and the process frees all
        pass


def _forgotten(handle: _Handle, what: str) -> None:
    """A worker that nobody closed: the others are told, as of a process that died."""
    if handle.closed or handle.pid != os.getpid():
        return
    handle.closed = True
    _free_later(handle)
    warnings.warn(f"{what} was never closed: use it in a with statement", ResourceWarning, stacklevel=2)


class Worker:
    """Base of Trainer and Inference; see there.

    In a ``with`` statement a worker leaves at the end and is closed; where an exception passes, the whole job is told it
    (as ``fail`` does), so nobody waits for a process that gave up.

    Threads: one at a time, but for what says [any thread]. In the main thread whatever waits ends on Ctrl-C, with
    KeyboardInterrupt (and on any exception that a signal's handler raises), and the worker can be used on: what then holds,
    call by call, is the table at ``weft_interrupt`` in weft.h. Every wait frees the interpreter's lock.
    """

    _role: int

    def __init__(self, controller: Optional[str], rank: Optional[int], options: dict[str, Any]):
        self._handle = _Handle()
        self._state = "new"
        self._joined_callbacks: list[Callable[[], None]] = []
        self._descriptor = -1
        self._watch: Optional[_Watch] = None
        self._join_done = False
        self._unhandled: Optional[tuple[str, int]] = None  # text and code of what the last call of _WORK failed with
        if controller is None or rank is None:
            launch = launch_find(controller=controller)
            controller = launch.controller if controller is None else controller
            rank = launch.rank if rank is None else rank
            if options.get("key_file") is None and launch.key_file:
                options.update(key_file=launch.key_file, key_waits=int(launch.key_waits))
        if not controller:
            raise UsageError("no controller: give its address (\"tcp://host:29600\", Controller.address), or set "
                             "WEFT_CONTROLLER")
        if not 0 <= rank < 1 << 32:
            raise UsageError(f"rank {rank!r}: ranks of a role count from 0")
        self.rank = int(rank)
        self.controller = controller
        self._who = f"{'t' if self._role == lib.WEFT_TRAINER else 'i'}{self.rank}"
        _log.install()
        self._open(options)
        self._finalizer = weakref.finalize(self, _forgotten, self._handle, repr(self))
        self._finalizer.atexit = False

    def _open(self, options: dict[str, Any]) -> None:
        struct, keep = sized("weft_options"), []
        struct.role, struct.rank = self._role, self.rank
        for name, value in {"controller": self.controller, **options}.items():
            if value is None:
                continue
            if name.endswith("_timeout_s"):
                name, value = name[:-1] + "ms", milliseconds(value, name)
            if isinstance(value, (str, os.PathLike)):
                value = encoded(value)
                keep.append(value)
            try:
                setattr(struct, name, value)
            except (TypeError, OverflowError) as error:
                raise UsageError(f"option {name}={value!r}: {error}") from None
        holder = ffi.new("weft_worker **")
        rc = lib.weft_open(holder, struct, slot.error)
        if rc < 0:
            raise failed(rc, slot.error)
        self._handle.pointer = holder[0]
        self._state = "open"

    def __repr__(self) -> str:
        return f"weft.{type(self).__name__}({self.controller!r}, rank={self.rank}, state={self.state!r})"

    # ---- calls

    def _raw(self, function: Any, *arguments: Any) -> Any:
        """What a function of the worker answers. A handler of a signal may raise anywhere here: the mark goes all the same."""
        handle, mark = self._handle, object()
        try:
            handle.inside.add(mark)
            if handle.closed:
                raise StateError(f"{self!r} is closed")
            return function(handle.pointer, *arguments)
        except OverflowError as error:
            raise UsageError(f"{self!r}: {error}") from None
        finally:
            handle.inside.discard(mark)

    def _now(self, function: Any, *arguments: Any) -> int:
        """A call that may fail."""
        error = slot.error
        rc = int(self._raw(function, *arguments, error))
        if rc < 0:
            failure = failed(rc, error)
            if function in _WORK and not isinstance(failure, _NO_END):
                self._unhandled = failure.text, failure.code
            raise failure
        if function in _WORK:
            self._unhandled = None
        return rc

    def _views(self, function: Any, kind: str, made: Callable[[int, Any], View]) -> list[View]:
        """What was declared: struct `kind` of each number, until the library says that there is none."""
        views: list[View] = []
        while True:
            view = sized(kind)
            try:
                self._now(function, len(views), view)
            except UsageError:
                return views
            views.append(made(len(views), view))

    def _waiting(self, function: Any, *arguments: Any) -> int:
        """A call of the library that waits: in the main thread it ends where a signal's handler raises."""
        return self._handed(self._now, function, *arguments)

    def _handed(self, function: Callable[..., int], *arguments: Any,
                progress: Optional[Callable[[Progress], None]] = None) -> int:
        """The same of a function of ours that makes such calls."""
        began = time.monotonic()

        def tick() -> None:
            assert progress is not None
            progress(Progress(time.monotonic() - began, _log.last.get(self._who, "")))
        result: int = _waits.call(self._interrupt, self._interrupt_clear, function, *arguments, tick=tick if progress else None)
        return result

    def _until(self, attempt: Callable[[], int]) -> None:
        """A try (WEFT_AGAIN: not yet) again and again, whenever the worker's descriptor is readable."""
        polls, mark = self._handle.polls, object()
        try:
            polls[mark] = threading.get_ident()
            while attempt() == lib.WEFT_AGAIN:
                _waits.readable(self._fd())
        finally:
            polls.pop(mark, None)

    async def _until_async(self, attempt: Callable[[], int]) -> None:
        if self._watch is not None:
            raise StateError(f"{self!r}: another task waits for it already, and one at a time may")
        self._watch = watch = _Watch()
        try:
            while attempt() == lib.WEFT_AGAIN:
                await watch.readable(self._fd())
        finally:
            self._watch = None

    async def _in_thread(self, function: Any, *arguments: Any) -> int:
        """``_waiting`` for an event loop, of what has no try."""
        return await self._threaded(self._now, function, *arguments)

    async def _threaded(self, function: Callable[..., int], *arguments: Any) -> int:
        """``_handed`` for an event loop: in a thread, which is over when this is, cancelled or not. Each has its own: the
        loop's pool may be full of workers that wait for one another."""
        done: asyncio.Future[int] = _waits.in_loop(function, *arguments)
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            while not done.done():
                self._interrupt()
                try:
                    await asyncio.wait([done])
                except asyncio.CancelledError:  # once more: the thread still uses what the caller would free
                    continue
            done.exception()  # it is the cancellation that is told
            self._interrupt_clear()
            raise

    def _fd(self) -> int:
        if self._descriptor < 0:
            descriptor = ffi.new("int *")
            self._now(lib.weft_descriptor, descriptor)
            self._descriptor = descriptor[0]
        return self._descriptor

    def _interrupt(self) -> None:
        if not self._handle.freed:
            lib.weft_interrupt(self._handle.pointer)

    def _interrupt_clear(self) -> None:
        if not self._handle.freed:
            lib.weft_interrupt_clear(self._handle.pointer)

    def interrupt(self) -> None:
        """[any thread] Ends every wait of this worker within 0.1 s with Interrupted, and every later call that would wait,
        until ``interrupt_clear``."""
        self._raw(lib.weft_interrupt)

    def interrupt_clear(self) -> None:
        """[any thread] Takes ``interrupt`` back."""
        self._raw(lib.weft_interrupt_clear)

    # ---- declare and join

    def declare_labels(self, model: str, train: str, infer: str) -> None:
        """What the routing dump calls the job; all workers give the same. Specs given here are held to the controller's."""
        self._now(lib.weft_declare_labels, encoded(model), encoded(train), encoded(infer))

    def declare_model(self, model: "str | os.PathLike[str]", train: str, infer: str, *, family: Optional[str] = None) -> None:
        """All that this worker holds or needs of a model that weft knows, in one call.

        Args:
            model: a built-in name ("Qwen2.5-0.5B"), a config.json or its folder, or a layout file.
            train: the trainers' spec, as the controller has it: "world=4,source=gathered".
            infer: the engines': "engines=2,tp=2".
            family: the model_type whose names and shapes the model has, where its own class is not known ("llama").
        """
        self._now(lib.weft_declare_model_as, encoded(model), encoded(family), encoded(train), encoded(infer))

    def join(self, timeout_s: Optional[float] = None, *, progress: Optional[Callable[[Progress], None]] = None) -> None:
        """Waits until every worker of the job is here, routed and connected.

        Args:
            timeout_s: None: the option join_timeout_s (60 s).
            progress: called once a second on this thread, with a Progress.

        Raises:
            WaitTimeout: with who is missing. Other errors: the worker can only be closed.
        """
        if self._state != "joined" or self._join_done:  # else Ctrl-C came when it was over, but for the callbacks
            self._handed(self._joining, milliseconds(timeout_s), progress=progress)
        self._after_join()

    async def join_async(self, timeout_s: Optional[float] = None) -> None:
        """``join`` for an event loop. Cancelled, it can be called again, and goes on where it was."""
        if self._state != "joined" or self._join_done:
            await self._threaded(self._joining, milliseconds(timeout_s))
        self._after_join()

    def _joining(self, timeout_ms: int) -> int:
        rc = self._now(lib.weft_join, timeout_ms)
        self._state = "joined"
        return rc

    def _after_join(self) -> None:
        while self._joined_callbacks:
            self._joined_callbacks[0]()
            del self._joined_callbacks[0]
        self._join_done = True

    def on_join(self, callback: Callable[[], None]) -> None:
        """``callback()`` runs when a join has gone well, on its thread, before it returns."""
        self._joined_callbacks.append(callback)

    @property
    def plan(self) -> Plan:
        """This worker's part of the routing table, after join."""
        view = sized("weft_plan_view")
        self._now(lib.weft_plan, view)
        return Plan(text_of(view.digest), text_of(view.policy), text_of(view.order), view.bytes, view.pieces, view.peers)

    @property
    def device(self) -> Optional[int]:
        """[any thread] The GPU that this worker uses; None: none."""
        number = int(self._raw(lib.weft_device))
        return None if number < 0 else number

    @property
    def state(self) -> str:
        """"open", "joined", "left" or "closed"."""
        return "closed" if self._handle.closed else self._state

    def stats(self) -> dict[str, int]:
        """Figures of the updates so far, by weft_stats' names: times in nanoseconds (update_ns of the last one), bytes.
        [any thread] On an inference rank not while it waits for a version."""
        stats = sized("weft_stats")
        self._now(lib.weft_get_stats, stats)
        return {name: int(getattr(stats, name)) for name, _ in ffi.typeof("weft_stats").fields if name != "size"}

    @property
    def losses(self) -> tuple[Loss, ...]:
        """[any thread] The engines, and trainers (``role``), that have left the job so far, as this worker has heard
        (``Controller(on_loss="continue")``): whom a host that gives engines work gives none any more, until another one is
        ``back`` in its place."""
        found: list[Loss] = []
        loss = sized("weft_loss")
        while self._now(lib.weft_loss_at, len(found), loss) == 0:
            role = "trainer" if loss.role == lib.WEFT_TRAINER else "inference"
            ranks = range(loss.first, loss.first + loss.count)
            found.append(Loss(ranks, int(loss.code), text_of(loss.text), bool(loss.back), role))
        return tuple(found)

    @property
    def next_version(self) -> int:
        """[any thread] After join: the version that trainers were about to begin when an engine or a trainer came back to the job
        last, or was gone on without; of who came, the first one there is for it. 0: none has."""
        return int(self._raw(lib.weft_next_version))

    def check(self) -> None:
        """After join: raises what the job or this worker has failed with, if it has (weft_poll in weft.h); for a program that
        waits for nothing, or was told of a failure by other means and wants weft's words. Not while another task waits."""
        self._now(lib.weft_poll)

    def fileno(self) -> int:
        """After join: a descriptor that is readable when there may be something to do (weft_descriptor in weft.h), for an
        event loop of one's own. The async methods watch it: use one or the other."""
        return self._fd()

    # ---- close

    def leave(self) -> None:
        """Tells the controller that this worker's work is done."""
        self._waiting(lib.weft_leave)
        self._state = "left"

    async def leave_async(self) -> None:
        """``leave`` for an event loop."""
        await self._in_thread(lib.weft_leave)
        self._state = "left"

    def fail(self, text: str, code: int = Code.HOST) -> None:
        """This worker cannot go on, for a reason of its own program: everybody else is told ``text``, one line, within a
        second, and their calls fail with it. At any stage; it can only be closed then."""
        self._now(lib.weft_fail, int(code), encoded(" ".join(text.split()) or "failed"))

    def close(self) -> None:
        """Ends what waits in other threads, leaves if that was not done, and frees the worker when no Array lies over its
        memory any more. Twice is once.

        Raises:
            Unsafe: memory that was bound may still be written (weft_close in weft.h); the worker is closed all the same.
            StateError: called inside of this worker's own hook, or another thread's call does not end.
        """
        handle = self._handle
        if handle.closed or self._state == "new":
            return
        if handle.pid != os.getpid():  # a forked child: it has none of the parent's threads
            handle.closed = True
            handle.free_when_unused()
            return
        if self._in_hook():
            raise StateError(f"{self!r}: close inside of the post-load hook")
        interrupted = self._end_calls()
        if handle.arrays and self._state == "joined":
            self._leave_before_arrays(interrupted)
        handle.closed = True  # nobody comes in any more
        self._finalizer.detach()
        while True:
            self._end_calls()
            rc = handle.free_when_unused()
            if handle.freed or handle.arrays:
                break
        if self._watch is not None:
            self._watch.end()
        self._released()
        if rc < 0:
            raise failed(rc, _no_words())

    def _leave_before_arrays(self, interrupted: bool) -> None:
        """Memory stays while arrays lie over it, and weft_close with it: the job is not kept waiting for that. What weft_close
        would tell, of a worker that could not go on, is told here."""
        try:
            if self._unhandled is not None:
                self.fail(*self._unhandled)
            elif interrupted:
                self.fail("closed while another call of it waited", Code.INTERRUPTED)
            else:
                self._now(lib.weft_leave)
        except Error:
            pass  # the job has failed already, or is told so by the library

    def _waited_in(self) -> bool:
        """Whether another thread is in a call, or waits between two of them."""
        here, watch = threading.get_ident(), self._watch
        return bool(self._handle.inside) or any(thread != here for thread in list(self._handle.polls.values())) \
            or watch is not None and watch.elsewhere()

    def _end_calls(self) -> bool:
        """Whether there were any."""
        deadline, any_was = time.monotonic() + _CLOSE_TIMEOUT_S, False
        while self._waited_in():
            any_was = True
            self._interrupt()
            if time.monotonic() > deadline:
                self._interrupt_clear()
                raise StateError(f"{self!r}: a call of another thread does not end within {_CLOSE_TIMEOUT_S:.0f} s of being "
                                 "interrupted; close it when that thread is done")
            time.sleep(0.001)
        return any_was

    def _in_hook(self) -> bool:
        return False

    def _released(self) -> None:
        """What a role keeps alive may go."""

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, kind: Optional[type[BaseException]], exception: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if self._handle.closed:
            return
        if exception is None:
            try:
                if self._state == "joined":
                    self.leave()
            finally:
                self.close()
            return
        try:
            if isinstance(exception, HookFailed):
                self.fail(exception.text, exception.code)
            elif self._told(exception):
                self.fail(f"{type(exception).__name__}: {exception}")
        except Error:
            pass  # the job's own failure came first, and is what everybody hears
        finally:
            self.close()

    def _told(self, exception: BaseException) -> bool:
        """What the library failed with it tells by itself when it is closed."""
        return not isinstance(exception, Error) or isinstance(exception, (Interrupted, UsageError, StateError))


_NO_END = (Interrupted, Unsafe, UsageError, StateError, VersionError)  # after these the worker goes on as before
# whose failure, if nothing comes after it, is why a worker is closed (as the library itself has it)
_WORK = frozenset((lib.weft_join, lib.weft_update_begin, lib.weft_update_try_begin, lib.weft_update_write_all,
                   lib.weft_update_write_bucket, lib.weft_update_drain, lib.weft_update_end, lib.weft_update_replay,
                   lib.weft_update_repeat, lib.weft_update_admit,
                   lib.weft_update_wait, lib.weft_update_try_wait))


def _no_words() -> Any:
    """weft_close has a code and no message: the log has it."""
    error = slot.error
    error.code = 0
    return error


class _Watch:
    """A task that waits on the worker's descriptor."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor = -1
        self._ready: Optional[asyncio.Future[None]] = None

    async def readable(self, descriptor: int) -> None:
        self._ready, self._descriptor = self._loop.create_future(), descriptor
        self._loop.add_reader(descriptor, self._heard)
        try:
            await self._ready
        finally:
            self._forget()

    def _heard(self) -> None:
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)

    def _forget(self) -> None:
        if self._descriptor >= 0:  # after close another one may have its number
            self._loop.remove_reader(self._descriptor)
            self._descriptor = -1

    def elsewhere(self) -> bool:
        """Its loop runs in another thread, and ends it when the worker is interrupted."""
        return self._loop.is_running() and asyncio._get_running_loop() is not self._loop

    def end(self) -> None:
        """The worker is closed by the loop that it waits in: the task goes on, and finds that."""
        if not self._loop.is_closed():
            self._forget()
            self._heard()

# SPDX-License-Identifier: Apache-2.0
"""Waiting in a foreign call so that Python's signals are heard.

A foreign call frees the interpreter's lock, but the handlers of signals run in the main thread, and only between its own
instructions: a main thread inside of a call would hear Ctrl-C when the call is over. So in the main thread the call is
made by another one:

    main thread      ── job ──►  caller thread
    waits for the job            library call .....................
    handler of a signal runs     .
      returns:  waits on         .
      raises:   weft_interrupt ► ends within 0.1 s ── done ──►  weft_interrupt_clear, and the exception goes on

Every other thread hears no signals and makes its calls itself.
"""
from __future__ import annotations

import asyncio
import os
import queue
import select
import threading
from typing import Any, Callable, Optional


class _Job:
    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]):
        self.function, self.arguments = function, arguments
        self.over = threading.Event()
        self.given = False  # to a thread
        self.result: Any = None
        self.exception: Optional[BaseException] = None
        self.then: Optional[Callable[[], None]] = None  # called by its thread when it is over

    def run(self) -> None:
        try:
            self.result = self.function(*self.arguments)
        except BaseException as exception:  # handed to who waits
            self.exception = exception
        self.over.set()
        if self.then is not None:
            self.then()


_idle: list[queue.SimpleQueue[_Job]] = []  # of threads that wait for a job


def _serve(jobs: queue.SimpleQueue[_Job]) -> None:
    while True:
        job = jobs.get()
        job.run()
        del job  # and what its arguments keep alive
        _idle.append(jobs)


def _start(job: _Job) -> None:
    try:
        jobs = _idle.pop()
    except IndexError:
        jobs = queue.SimpleQueue()
        threading.Thread(target=_serve, args=(jobs,), name="weft-call", daemon=True).start()
    job.given = True
    jobs.put(job)


os.register_at_fork(after_in_child=_idle.clear)


def hears_signals() -> bool:
    """Whether handlers of signals run in this thread."""
    return threading.current_thread() is threading.main_thread()


def call(interrupt: Callable[[], None], clear: Callable[[], None], function: Callable[..., Any], *arguments: Any,
         tick: Optional[Callable[[], None]] = None, tick_s: float = 1.0) -> Any:
    """function(*arguments), which waits; ``tick`` is called now and then meanwhile, on this thread."""
    if tick is None and not hears_signals():
        return function(*arguments)
    job = _Job(function, arguments)
    try:
        _start(job)
        while not job.over.wait(tick_s if tick else None):
            if tick:
                tick()
    except BaseException:
        if job.given:
            _end(job, interrupt)
            clear()
        raise
    if job.exception is not None:
        raise job.exception
    return job.result


def in_loop(function: Callable[..., Any], *arguments: Any) -> "asyncio.Future[Any]":
    """function(*arguments) by a thread of its own, as a future of the running loop."""
    loop, job = asyncio.get_running_loop(), _Job(function, arguments)
    done: "asyncio.Future[Any]" = loop.create_future()

    def tell() -> None:
        if done.cancelled():
            return
        if job.exception is not None:
            done.set_exception(job.exception)
        else:
            done.set_result(job.result)

    def over() -> None:
        try:
            loop.call_soon_threadsafe(tell)
        except RuntimeError:  # the loop was closed, and nobody waits
            pass
    job.then = over
    _start(job)
    return done


def of_a_lasting_thread(function: Callable[[], Any]) -> Any:
    """function(), called by a thread that lives as long as the process: what asks the kernel to be told of its parent's
    death is told when the thread that started it ends."""
    job = _Job(function, ())
    _start(job)
    job.over.wait()
    if job.exception is not None:
        raise job.exception
    return job.result


def _end(job: _Job, interrupt: Callable[[], None]) -> None:
    """Once more Ctrl-C does not leave a call behind that still uses what the caller would free."""
    while not job.over.is_set():
        try:
            interrupt()
            job.over.wait()
        except BaseException:  # the first one is on its way
            continue


def readable(descriptor: int) -> None:
    """Waits until it is; a handler that raises ends it."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.poll()

# SPDX-License-Identifier: Apache-2.0
"""A stream's job in processes of its own, each a function of a module here: what it returned, or how it failed."""
from __future__ import annotations

import multiprocessing
import queue
import time
import traceback
from typing import Any, Callable, NamedTuple

from weft import stream

SECONDS = 60.0
_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(["torch", "weft"])  # once, and not in each process


class Outcome(NamedTuple):
    """Of one process; all None: it ended without a word (it was killed)."""
    value: Any = None
    kind: str | None = None    # of the exception
    text: str | None = None
    at: float = 0.0            # monotonic, the same clock in all processes of a host

    def right(self) -> Any:
        assert self.kind is None, f"{self.kind}: {self.text}"
        return self.value

    def failed(self, kind: str) -> str:
        assert self.kind == kind and self.text is not None, self
        return self.text


def _run(results: Any, key: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        results.put((key, Outcome(function(*arguments), at=time.monotonic())))
    except BaseException as failure:
        traceback.print_exc()
        results.put((key, Outcome(None, type(failure).__name__, str(failure), time.monotonic())))


class Processes:
    """``start`` some, ``outcomes`` of all; none is left behind."""

    def __init__(self) -> None:
        self._results = _server.Queue()
        self.of: dict[str, Any] = {}

    def start(self, key: str, function: Callable[..., Any], *arguments: Any) -> None:
        self.of[key] = _server.Process(target=_run, args=(self._results, key, function, arguments))
        self.of[key].start()

    def outcomes(self) -> dict[str, Outcome]:
        found: dict[str, Outcome] = {}
        deadline = time.monotonic() + SECONDS
        while len(found) < len(self.of):
            assert time.monotonic() < deadline, f"after {SECONDS:.0f} s there is no end of {sorted(set(self.of) - set(found))}"
            try:
                key, outcome = self._results.get(timeout=0.1)
                found[key] = outcome
            except queue.Empty:
                for key, process in self.of.items():
                    if key not in found and process.exitcode not in (None, 0):
                        found[key] = Outcome()
        return found

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: Any) -> None:
        for process in self.of.values():
            if process.is_alive():
                process.kill()
            process.join()


def run(sends: Callable[..., Any], receives: Callable[..., Any], *arguments: Any, world: int = 2, receivers: int = 2,
        between: Callable[[Processes], None] = lambda processes: None, **options: Any) -> dict[str, Outcome]:
    """``sends(address, rank, world, receivers, *arguments)`` for each trainer ("t0", ..), ``receives(..)`` likewise ("i0", ..)."""
    controller = stream.start_controller(world, receivers, **options)
    try:
        with Processes() as processes:
            for rank in range(world):
                processes.start(f"t{rank}", sends, controller.address, rank, world, receivers, *arguments)
            for rank in range(receivers):
                processes.start(f"i{rank}", receives, controller.address, rank, world, receivers, *arguments)
            between(processes)
            outcomes = processes.outcomes()
            if all(outcome.kind is None and outcome.at for outcome in outcomes.values()):
                controller.wait(SECONDS)  # raises where the job did not end well
            return outcomes
    finally:
        controller.stop()

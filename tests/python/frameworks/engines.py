# SPDX-License-Identifier: Apache-2.0
"""Checkpoint engines in processes of their own, called one method at a time, as frameworks call them through Ray."""
from __future__ import annotations

import asyncio
import importlib
import logging
import multiprocessing
import os
import pathlib
import signal
import sys
import time
import traceback
from typing import Any, Iterator, Sequence

HERE = pathlib.Path(__file__).resolve().parent
STREAM = HERE.parent / "stream"
SECONDS = 90.0
_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(["torch", "weft"])  # once, and not in each process


class Failed(Exception):
    """What a call of an engine raised there."""


class Engine:
    """A process with an engine that ``module:function(**arguments)`` makes."""

    def __init__(self, paths: Sequence[pathlib.Path], maker: str, **arguments: Any):
        self._conn, theirs = _server.Pipe()
        folders = [str(path) for path in (*paths, HERE, STREAM)]
        self._process = _server.Process(target=_serve, args=(theirs, folders, maker, arguments))
        self._process.start()
        theirs.close()

    def begin(self, method: str, *args: Any, **kwargs: Any) -> None:
        self._conn.send((method, args, kwargs))

    def end(self) -> Any:
        if not self._conn.poll(SECONDS):
            raise AssertionError(f"no answer of an engine's process ({self._process.pid}) for {SECONDS:.0f} s")
        try:
            kind, value = self._conn.recv()
        except EOFError:
            return Failed("the process ended")
        return value if kind == "right" else Failed(value)

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        self.begin(method, *args, **kwargs)
        return right([self.end()])[0]

    def kill(self) -> None:
        os.kill(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        self._process.kill()
        self._process.join()


def right(results: list[Any]) -> list[Any]:
    for result in results:
        if isinstance(result, Failed):
            raise result
    return results


def of_all(engines: Sequence[Engine], method: str, *args: Any, **kwargs: Any) -> list[Any]:
    """The same call of all at once."""
    for engine in engines:
        engine.begin(method, *args, **kwargs)
    return [engine.end() for engine in engines]


def _serve(conn: Any, paths: list[str], maker: str, arguments: dict[str, Any]) -> None:
    sys.path[:0] = paths
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    module, _, function = maker.partition(":")
    engine = None
    while True:
        try:
            method, args, kwargs = conn.recv()
        except EOFError:
            return
        try:
            if engine is None:
                engine = getattr(importlib.import_module(module), function)(**arguments)
                for name in ("weft.verl", "weft.nemo"):  # which say by themselves how much they log
                    logging.getLogger(name).addHandler(handler)
            if method in _OURS:
                value = _OURS[method](engine, *args, **kwargs)
            elif method == "log":
                value, lines[:] = list(lines), []
            else:
                value = getattr(engine, method)(*args, **kwargs)
            conn.send(("right", value))
        except BaseException as failure:
            traceback.print_exc()
            conn.send(("failed", f"{type(failure).__name__}: {failure}"))


# ---- what the frameworks' workers do with an engine

def _send(engine: Any, step: int, *, takes_step: bool = True, breaks_at: int = -1) -> Any:
    import stream_ranks as ranks

    def weights() -> Iterator[Any]:
        for at, item in enumerate(ranks.weights(step)):
            if at == breaks_at:
                raise RuntimeError("the optimizer's state is gone")
            yield item
    return asyncio.run(engine.send_weights(weights(), global_steps=step) if takes_step else engine.send_weights(weights()))


def _receive(engine: Any, step: int) -> list[str]:
    """As a rollout that gathers tensors before it loads them."""
    import stream_ranks as ranks

    async def work() -> list[str]:
        kept = [item async for item in engine.receive_weights(global_steps=step)]
        return [ranks.mark(*item) for item in kept]
    return asyncio.run(work())


def _receive_batches(engine: Any, dies: bool = False) -> list[str]:
    import stream_ranks as ranks

    async def work() -> list[str]:
        found: list[str] = []
        async for batch in engine.receive_weight_batches():
            found += [ranks.mark(*item) for item in batch]
            if dies:
                os.kill(os.getpid(), signal.SIGKILL)
        return found
    return asyncio.run(work())


def _stop_in_the_middle(engine: Any, step: int) -> None:
    """Receives a tensor, and hangs."""
    async def work() -> None:
        async for _ in engine.receive_weights(global_steps=step):
            time.sleep(SECONDS)
    asyncio.run(work())


_OURS = {"send": _send, "receive": _receive, "receive_batches": _receive_batches, "stop_in_the_middle": _stop_in_the_middle}

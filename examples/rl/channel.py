# SPDX-License-Identifier: Apache-2.0
"""Samples on their way from engines to trainers: values under keys of a TCPStore, which the launcher has. Every wait has a
deadline, and one on a store whose launcher is gone fails at once."""
from __future__ import annotations

import ctypes
import datetime
import io
import os
import signal
import sys
import time
from typing import Any, Callable

import torch
import torch.distributed as dist

STORE = "WEFT_RL_STORE"  # variable with host:port
LAUNCHER = "WEFT_RL_LAUNCHER"  # and with the process id of run.py


def served(timeout_s: float) -> "tuple[dist.TCPStore, str]":
    """The launcher's side: the store, and its address for STORE."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=_delta(timeout_s))
    return store, f"127.0.0.1:{store.port}"


def connected(timeout_s: float) -> dist.TCPStore:
    """Everybody else's."""
    address = os.environ.get(STORE)
    if not address:
        sys.exit(f"{STORE} is not set: run.py starts trainers and engines, with the address of its store in it")
    host, _, port = address.rpartition(":")
    return dist.TCPStore(host, int(port), is_master=False, timeout=_delta(timeout_s))


def _delta(timeout_s: float) -> datetime.timedelta:
    return datetime.timedelta(seconds=timeout_s)


def put(store: dist.Store, key: str, value: Any) -> None:
    """Tensors, numbers, and dicts and lists of them."""
    data = io.BytesIO()
    torch.save(value, data)
    store.set(key, data.getvalue())


def get(store: dist.Store, key: str) -> Any:
    """Waits for it."""
    return torch.load(io.BytesIO(store.get(key)), weights_only=True)


def delivering(store: dist.Store, step: int, engines: "list[int]", absent: "Callable[[], set[int]]",
               timeout_s: float) -> "list[int]":
    """Those whose samples of the step are there: all that are not absent."""
    deadline, there = time.monotonic() + timeout_s, []
    for engine in engines:
        while not store.check([f"samples/{step}/{engine}"]) and engine not in absent():
            if time.monotonic() > deadline:
                raise TimeoutError(f"engine {engine} has no samples of step {step} after {timeout_s:.0f} s, and has not left")
            time.sleep(0.002)
        if store.check([f"samples/{step}/{engine}"]):
            there.append(engine)
    return there


def collect(store: dist.Store, step: int, engines: "list[int]") -> "dict[str, Any]":
    """All samples of a step, in the order of their ids whoever came first; and what each engine says of the version that
    made them."""
    parts = [get(store, f"samples/{step}/{engine}") for engine in engines]
    order = torch.cat([part["ids"] for part in parts]).argsort()
    joined = {name: torch.cat([part[name] for part in parts])[order]
              for name in ("ids", "versions", "prompts", "answers", "logprobs")}
    return {**joined, "engines": [part["times"] for part in parts]}


def die_with_parent() -> None:
    """A process whose launcher was killed does not stay (Linux)."""
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    try:
        os.kill(int(os.environ.get(LAUNCHER, os.getpid())), 0)
    except ProcessLookupError:  # it was killed before
        sys.exit("run.py is gone")

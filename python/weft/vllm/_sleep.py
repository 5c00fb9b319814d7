# SPDX-License-Identifier: Apache-2.0
"""Whether vLLM's sleep has taken the parameters' memory away.

    sleep(level 1)      the memory goes, its bytes are kept on the host
    sleep(level 2)      the memory goes, its bytes too
    wake_up(tags)       other memory at the same addresses

A process that writes into memory by what it registered (a NIC, an IPC handle) goes on writing into the memory that went:
after a sleep a worker must join again, although no pointer has changed. vLLM's allocator does not keep how often it slept, and
before 0.27 not even whether it does, so its methods are wrapped, once a process."""
from __future__ import annotations

import functools
import importlib
from typing import Any, NamedTuple, Optional

_ALLOCATORS = (("vllm.device_allocator.cumem", "CuMemAllocator"), ("vllm.device_allocator.xpumem", "XpuMemAllocator"))
_WEIGHTS = "weights"


class _Watch:
    """Of one process."""

    def __init__(self) -> None:
        self.times = 0                        # that memory of the weights went
        self.level: Optional[int] = None      # of the sleep that lasts; None: awake


_watch = _Watch()


class Asleep(NamedTuple):
    times: int
    level: Optional[int]


def now() -> Asleep:
    return Asleep(_watch.times, _watch.level)


def watch() -> None:
    """Where vLLM has its allocator: from now on it is known. Again: nothing."""
    for module, name in _ALLOCATORS:
        try:
            allocator = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue  # of another device, or of another release
        if not getattr(allocator, "_weft_watched", False):
            _wrap(allocator)
            allocator._weft_watched = True


def _wrap(allocator: Any) -> None:
    sleep, wake_up = allocator.sleep, allocator.wake_up

    @functools.wraps(sleep)
    def sleeping(self: Any, offload_tags: Any = None, *rest: Any, **named: Any) -> Any:
        kept = (offload_tags,) if isinstance(offload_tags, str) else tuple(offload_tags or ())
        if _watch.level is None:
            _watch.times += 1
        _watch.level = 1 if _WEIGHTS in kept else 2  # what vLLM calls its levels
        return sleep(self, offload_tags, *rest, **named)

    @functools.wraps(wake_up)
    def waking(self: Any, tags: Any = None, *rest: Any, **named: Any) -> Any:
        done = wake_up(self, tags, *rest, **named)
        if tags is None or _WEIGHTS in tags:
            _watch.level = None
        return done

    allocator.sleep, allocator.wake_up = sleeping, waking
    discard = getattr(allocator, "discard", None)
    if discard is None:
        return

    @functools.wraps(discard)
    def discarding(self: Any, tags: Any, *rest: Any, **named: Any) -> Any:
        if _WEIGHTS in ((tags,) if isinstance(tags, str) else tags) and _watch.level is None:
            _watch.times, _watch.level = _watch.times + 1, 2
        return discard(self, tags, *rest, **named)

    allocator.discard = discarding

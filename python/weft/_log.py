# SPDX-License-Identifier: Apache-2.0
"""The library's lines become those of the logger "weft".

The library calls its sink with a lock held, on any thread, its own too. A handler of logging may do anything there (lock,
allocate, collect garbage and with it a worker, whose close logs), so the sink only puts the line into a queue, and a
thread of ours hands it on. $WEFT_LOG, where it is set, decides which lines there are; else the logger's level does, as it
is when a worker opens.
"""
from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
from typing import Any, Optional

from weft._errors import failed, slot
from weft._library import ffi, lib, text

logger = logging.getLogger("weft")

_LEVELS = {lib.WEFT_LOG_ERROR: logging.ERROR, lib.WEFT_LOG_WARN: logging.WARNING, lib.WEFT_LOG_INFO: logging.INFO,
           lib.WEFT_LOG_DEBUG: logging.DEBUG}
#: The last line of each worker, by its name in the log ("t3"): what a join that takes long says it waits for.
last: dict[str, str] = {}

_lines: queue.SimpleQueue[Any] = queue.SimpleQueue()
_lock = threading.Lock()
_pump: Optional[threading.Thread] = None
_level = -1


@ffi.callback("weft_log_sink")  # type: ignore[untyped-decorator, unused-ignore]
def _sink(context: Any, entry: Any) -> None:
    who, message = text(entry.who), text(entry.text)
    last[who] = message
    _lines.put((_LEVELS.get(entry.level, logging.INFO), entry.time_ms, who, message))


def _emit(level: int, time_ms: int, who: str, message: str) -> None:
    if not logger.isEnabledFor(level):
        return
    record = logger.makeRecord("weft", level, "libweft", 0, "%s", (f"{who}: {message}" if who else message,), None)
    record.created, record.msecs = time_ms / 1000, time_ms % 1000
    record.weft_worker = who
    logger.handle(record)


def _hand_on() -> None:
    while True:
        line = _lines.get()
        if isinstance(line, threading.Event):
            line.set()
        else:
            _emit(*line)


def flush(timeout_s: float = 2.0) -> None:
    """Waits until every line that the library has said is with the logger."""
    if _pump is not None and _pump.is_alive():
        done = threading.Event()
        _lines.put(done)
        done.wait(timeout_s)


def _wanted() -> int:
    if os.environ.get("WEFT_LOG"):
        return 0  # the library reads it
    enabled = [ours for ours, level in sorted(_LEVELS.items(), reverse=True) if logger.isEnabledFor(level)]
    return int(enabled[0]) if enabled else int(lib.WEFT_LOG_ERROR)


def install() -> None:
    """Called when a worker opens."""
    global _pump, _level
    with _lock:
        if _pump is None or not _pump.is_alive():
            _pump = threading.Thread(target=_hand_on, name="weft-log", daemon=True)
            _pump.start()
        level = _wanted()
        if level == _level:
            return
        rc = lib.weft_set_log(_sink, ffi.NULL, level, slot.error)
        if rc < 0:
            raise failed(rc, slot.error)
        _level = level


def _uninstall() -> None:
    """Before the interpreter goes: a thread of the library must not find it gone."""
    global _level
    if _level != -1:
        lib.weft_set_log(ffi.NULL, ffi.NULL, 0, ffi.NULL)
        _level = -1
        flush()


def _forked() -> None:
    """In a child: the thread and whoever held the lock are not there."""
    global _pump, _lock, _lines, _level
    _pump, _lock, _lines = None, threading.Lock(), queue.SimpleQueue()
    if _level != -1:
        lib.weft_set_log(ffi.NULL, ffi.NULL, 0, ffi.NULL)
        _level = -1


atexit.register(_uninstall)
os.register_at_fork(after_in_child=_forked)

# SPDX-License-Identifier: Apache-2.0
"""What fails is an exception with weft.h's code and its one message."""
from __future__ import annotations

import enum
import threading
from typing import Any

from weft._library import ffi, lib, text


class Code(enum.IntEnum):
    """enum weft_code of weft_base.h: Code.TIMEOUT is WEFT_E_TIMEOUT, 130."""
    USAGE = 101
    CONFIG = 102
    STATE = 103
    FILE = 110
    IO = 111
    MEMORY = 112
    MESSAGE = 120
    JOB = 121
    WIRE_VERSION = 122
    DUPLICATE_RANK = 123
    CONFLICT = 124
    UNSOURCED = 125
    UNPROVED = 126
    LIMIT = 127
    TIMEOUT = 130
    PEER_LOST = 131
    CONTROLLER_LOST = 132
    TRANSPORT = 140
    UNSUPPORTED = 141
    BOUNDS = 142
    CHECKSUM = 150
    VERSION = 151
    ABORTED = 152
    INTERRUPTED = 153
    POST_LOAD = 154
    UNSAFE = 155
    HOST = 156
    INTERNAL = 199


class Error(RuntimeError):
    """A call failed.

    Attributes:
        code: enum weft_code, as ``Code.TIMEOUT``; of a newer library it may be a number that Code does not have.
        text: one message: what, where, value seen and needed, what to change.
        exit_code: what a program should end with: 1 failed, 2 usage, 75 try again, 78 bad configuration.
    """

    def __init__(self, text: str, code: int = 0):
        super().__init__(text, code)
        self.text = text
        self.code = code or self._code
        self.exit_code: int = lib.weft_exit_code(self.code)

    _code: int = Code.INTERNAL

    def __str__(self) -> str:
        return f"WEFT-E{int(self.code)} {self.text}"

    def __reduce__(self) -> Any:
        return type(self), (self.text, self.code)


class UsageError(Error, ValueError):
    """A wrong argument (WEFT_E_USAGE)."""
    _code = Code.USAGE


class ConfigError(Error):
    """Bad configuration: flag, spec, variable (WEFT_E_CONFIG)."""
    _code = Code.CONFIG


class StateError(Error):
    """A call out of order; nothing has changed (WEFT_E_STATE)."""
    _code = Code.STATE


class FileError(Error):
    """A malformed file (WEFT_E_FILE)."""
    _code = Code.FILE


class ConflictError(Error):
    """Declarations contradict each other, or an engine's parameters what was declared (WEFT_E_CONFLICT)."""
    _code = Code.CONFLICT


class UnsourcedError(Error):
    """An engine parameter that nobody can source (WEFT_E_UNSOURCED)."""
    _code = Code.UNSOURCED


class WaitTimeout(Error, TimeoutError):
    """A deadline passed; the message names who is missing (WEFT_E_TIMEOUT)."""
    _code = Code.TIMEOUT


class PeerLost(Error):
    """The job has lost a worker: close, and start again (WEFT_E_PEER_LOST)."""
    _code = Code.PEER_LOST


class ControllerLost(Error):
    """The controller does not answer, or has ended (WEFT_E_CONTROLLER_LOST)."""
    _code = Code.CONTROLLER_LOST


class TransportError(Error):
    """A write, a connection or a device failed (WEFT_E_TRANSPORT)."""
    _code = Code.TRANSPORT


class UnsupportedError(Error):
    """Not to be had on this machine or in this build (WEFT_E_UNSUPPORTED)."""
    _code = Code.UNSUPPORTED


class ChecksumError(Error):
    """Bytes arrived that are not those that were sent; nothing was published (WEFT_E_CHECKSUM)."""
    _code = Code.CHECKSUM


class VersionError(Error):
    """A version out of order; nothing has changed (WEFT_E_VERSION)."""
    _code = Code.VERSION


class Aborted(Error):
    """A trainer gave the update up; a later version recovers (WEFT_E_ABORTED)."""
    _code = Code.ABORTED


class Interrupted(Error):
    """Worker.interrupt was called (WEFT_E_INTERRUPTED)."""
    _code = Code.INTERRUPTED


class HookFailed(Error):
    """The post-load hook failed; nothing was published (WEFT_E_POST_LOAD). ``__cause__`` is its exception."""
    _code = Code.POST_LOAD


class Unsafe(Error):
    """A process that was given up may still write this memory (WEFT_E_UNSAFE): see weft_close in weft.h."""
    _code = Code.UNSAFE


class HostFailed(Error):
    """A host program of the job gave up (WEFT_E_HOST); the message has its words."""
    _code = Code.HOST


class NothingPublished(StateError):
    """A reader finds no version: none has come yet, or one is being written in place. Try again later."""


class Torn(StateError):
    """An update came while the parameters were read: what was read is to be thrown away, and read again."""


_CLASSES = {int(one._code): one for one in (
    UsageError, ConfigError, StateError, FileError, ConflictError, UnsourcedError, WaitTimeout, PeerLost,
    ControllerLost, TransportError, UnsupportedError, ChecksumError, VersionError, Aborted, Interrupted, HookFailed,
    Unsafe, HostFailed)}


def of_code(code: int, message: str) -> Error:
    """The exception of a code."""
    return _CLASSES.get(code, Error)(message, Code(code) if code in Code._value2member_map_ else code)


class _Slot(threading.local):
    """An error struct for each thread: a call that fails fills it, and its thread reads it at once."""

    def __init__(self) -> None:
        self.error = ffi.new("weft_error *")
        self.error.size = ffi.sizeof("weft_error")


slot = _Slot()


def failed(rc: int, error: Any) -> Error:
    """The exception of a call that answered ``rc`` < 0."""
    message = text(error.text) if error.code == -rc else text(lib.weft_strerror(-rc))
    error.code = 0
    return of_code(-rc, message)

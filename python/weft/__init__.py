# SPDX-License-Identifier: Apache-2.0
"""Weft moves freshly trained weights from trainers into inference engines: one-sided writes, planned once by a controller,
proved before a byte moves, verified after.

    Controller              the process that gathers a job's workers and routes
    Trainer, Inference      a worker: declare, join, and then versions
    weft.torch              models of torch, FSDP, Megatron: declared as they are cut
    weft.route              plans, offline: certificate, comparison, dump
    memory_of, dtype_of     what may be given as memory, and as dtype

A worker's life is that of weft.h, which this package is made over: its functions' words hold here too. Importing it imports
neither torch nor numpy. Everything that fails raises weft.Error or a class of it, with code and message.
"""
from __future__ import annotations

from weft import programs, route
from weft._array import Array
from weft._controller import Controller
from weft._dtypes import DType, dtype_name, dtype_of
from weft._errors import (
    Aborted,
    ChecksumError,
    Code,
    ConfigError,
    ConflictError,
    ControllerLost,
    Error,
    FileError,
    HookFailed,
    HostFailed,
    Interrupted,
    NothingPublished,
    PeerLost,
    StateError,
    Torn,
    TransportError,
    Unsafe,
    UnsourcedError,
    UnsupportedError,
    UsageError,
    VersionError,
    WaitTimeout,
)
from weft._inference import Inference, Snapshot, Transform
from weft._launch import Launch, launch_find
from weft._library import version as __version__
from weft._log import flush as flush_log
from weft._memory import Memory, memory_of
from weft._ranks import count_ranks
from weft._structs import HoldingView, Loss, ParamView, Plan, Tensor, TensorView
from weft._trainer import Trainer, Update
from weft._worker import Progress, Worker

__all__ = [
    "Aborted", "Array", "ChecksumError", "Code", "ConfigError", "ConflictError", "Controller", "ControllerLost", "DType",
    "Error", "FileError", "HoldingView", "HookFailed", "HostFailed", "Inference", "Interrupted", "Launch", "Loss", "Memory",
    "NothingPublished", "ParamView", "PeerLost", "Plan", "Progress", "Snapshot", "StateError", "Tensor", "TensorView",
    "Torn", "Trainer", "Transform", "TransportError", "Unsafe", "UnsourcedError", "UnsupportedError", "Update",
    "UsageError", "VersionError", "WaitTimeout", "Worker", "__version__", "count_ranks", "dtype_name", "dtype_of",
    "flush_log", "launch_find", "memory_of", "programs", "route",
]

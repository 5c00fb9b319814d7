# SPDX-License-Identifier: Apache-2.0
"""Weft inside of vLLM.

    vllm serve M --weight-transfer-config '{"backend": "weft"}'      the plug-in: vLLM finds it by its entry point
    vllm serve M --worker-extension-cls weft.vllm.WorkerExtension    where vLLM takes no back end but its own
    python -m weft.vllm                                              which of both, and whether vLLM finds it

                    trainer, rank 0                       server (each of several)
    WeightSync ──►  HTTPClient    ── init, start, update, finish ──►  worker of each rank: Session
               ──►  engines.Sender ═══════ one-sided writes ═══════►  engines.Receiver in the live parameters

What is here imports neither torch nor vLLM before it is used: vLLM imports it in every process, those without a device too.
"""
from __future__ import annotations

from typing import Any

from weft.vllm._client import HTTPClient
from weft.vllm._extension import WorkerExtension
from weft.vllm._generation import Generation, generation
from weft.vllm._register import register
from weft.vllm._sync import WeightSync

__all__ = ["Generation", "HTTPClient", "TrainerInitInfo", "WeightSync", "WorkerExtension", "generation", "register"]


def __getattr__(name: str) -> Any:
    if name == "TrainerInitInfo":  # a class of vLLM's
        from weft.vllm._trainer import WeftTrainerInitInfo
        return WeftTrainerInitInfo
    raise AttributeError(f"module 'weft.vllm' has no attribute {name!r}")

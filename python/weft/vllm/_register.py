# SPDX-License-Identifier: Apache-2.0
"""What vLLM calls in each of its processes (entry point group "vllm.general_plugins", name "weft"): in some more than once,
and in some that have no device and transfer nothing. So it may be called again, and whatever is wrong is a line in the log."""
from __future__ import annotations

import importlib
import logging
import os
from typing import Any

from weft.vllm._generation import BACKEND, generation

logger = logging.getLogger("weft.vllm")

#: Frameworks that hard-code what their vLLM workers are: their module puts Weft there, where this variable is set.
SWITCHES = {"WEFT_OPENRLHF": "weft.openrlhf", "WEFT_SKYRL": "weft.skyrl"}


def _add(factory: Any, module: str, name: str) -> None:
    if BACKEND not in getattr(factory, "_registry", {}):
        try:
            factory.register_engine(BACKEND, module, name)
        except ValueError as error:  # there already, in a registry that is called otherwise
            if "already" not in str(error):
                raise


def _be_heard() -> None:
    """vLLM's handlers are those of its own logger: Weft's lines go there too, where nobody has said where they go."""
    ours, theirs = logging.getLogger("weft"), logging.getLogger("vllm")
    if theirs.handlers and not ours.handlers and not logging.getLogger().handlers:
        for handler in theirs.handlers:
            ours.addHandler(handler)
        ours.setLevel(max(theirs.getEffectiveLevel(), logging.INFO))


def register() -> None:
    """Makes "weft" a back end of this process's vLLM."""
    try:
        _be_heard()
        for variable, module in SWITCHES.items():
            if os.environ.get(variable):
                importlib.import_module(module).install()
        found = generation()
        if not found.plugin:
            logger.info("weft is no back end of this process: %s; --worker-extension-cls weft.vllm.WorkerExtension works "
                        "in every release", found.why)
            return
        factory = importlib.import_module("vllm.distributed.weight_transfer.factory")
        _add(factory.WeightTransferEngineFactory, "weft.vllm._engine", "WeftWeightTransferEngine")
        if found.trainer:
            _add(factory.WeightTransferTrainerFactory, "weft.vllm._trainer", "WeftTrainerWeightTransferEngine")
    except Exception as error:  # a plug-in that raises would end the server, also where nobody asked for weft
        logger.error("weft is no back end of this process: %s: %s", type(error).__name__, error)

# SPDX-License-Identifier: Apache-2.0
"""Which of vLLM's interfaces for weight transfer this vLLM has. Found by looking at it, not by its number: releases between
those that were read have one of these too.

    seen in   back ends    worker side                                   trainer side
    0.17.1    its own      (config, parallel_config)                     static functions       -> worker extension
    0.22.1    any          (config, parallel_config, model), callback    static functions
    0.24.0    any          as 0.22.1                                     static functions
    0.27.1    any          (config, vllm_config, device, model)          objects; source is iterated, metadata()
    0.33.0    any          as 0.27.1                                     objects; source.iter_full(), metadata
"""
from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import typing
from typing import Any, NamedTuple, Optional

BACKEND = "weft"


class Generation(NamedTuple):
    """What was found. ``plugin``: a back end of others can be registered; else the worker extension is the way."""
    vllm: str                      # the release, "none"
    plugin: bool
    worker: str                    # "model" (from 0.27), "callback" (0.22 to 0.24), "none"
    trainer: bool                  # trainer side as objects
    why: str                       # where there is no plug-in: why

    def __str__(self) -> str:
        if not self.plugin:
            return f"worker extension only: {self.why}"
        worker = {"model": "the engine loads into the model itself, and has start and finish",
                  "callback": "the worker prepares and finishes each update"}[self.worker]
        return f"{worker}; trainer side: {'objects' if self.trainer else 'static functions'}"


def release() -> Optional[str]:
    """vLLM's, without importing it."""
    try:
        return importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError:
        return None


def _takes_others(config: Any) -> bool:
    """Whether the field takes names that are not vLLM's."""
    hints = typing.get_type_hints(config)
    field = hints.get("backend", str)
    kinds = typing.get_args(field) or (field,)
    return field is str or str in kinds


def generation() -> Generation:
    """Imports vLLM."""
    number = release() or "none"
    try:
        base = importlib.import_module("vllm.distributed.weight_transfer.base")
        factory = importlib.import_module("vllm.distributed.weight_transfer.factory")
        config = importlib.import_module("vllm.config.weight_transfer").WeightTransferConfig
    except ImportError as error:
        return Generation(number, False, "none", False, f"vLLM {number} has no weight transfer ({error})")
    if not hasattr(factory.WeightTransferEngineFactory, "register_engine"):
        return Generation(number, False, "none", False, f"vLLM {number} registers no back ends of others")
    if not _takes_others(config):
        return Generation(number, False, "none", False, f"vLLM {number} takes no back end but its own")
    names = set(inspect.signature(base.WeightTransferEngine.__init__).parameters)
    if "vllm_config" in names:
        worker = "model"
    elif {"parallel_config", "model"} <= names:
        worker = "callback"
    else:
        return Generation(number, False, "none", False,
                          f"vLLM {number} makes its engines with {sorted(names - {'self'})}, and gives them no model")
    return Generation(number, True, worker, hasattr(factory, "WeightTransferTrainerFactory"), "")

# SPDX-License-Identifier: Apache-2.0
"""One worker's updates: what the back end of each of vLLM's generations, and the worker extension, are made over.

               init(endpoint)                 receive(v)
      none ───────────────────► joined ──────────────────► received v ──┐ finish()
       ▲                          ▲  │  fails                           │
       │ close()                  │  └──────────► failed: finish() says │ why, and the next receive may mend it
       └──── from each            └─────────────────────────────────────┘

A second init leaves the first job and joins another. Before each update the parameters are looked at: what vLLM's sleep took
away, or what was moved since join, would get no bytes, and is refused by name."""
from __future__ import annotations

import contextlib
import importlib
import logging
from typing import Any, Callable, Optional

from weft._errors import Error, StateError, UsageError
from weft.vllm import _sleep

logger = logging.getLogger("weft.vllm")

_SHOWN = 3  # names in a message


def places(model: Any) -> dict[str, int]:
    """Where each parameter lies; 0: on the meta device, which is nowhere."""
    return {name: 0 if parameter.is_meta else int(parameter.data_ptr())
            for name, parameter in model.named_parameters(remove_duplicate=False)}


def _some(names: "list[str]") -> str:
    shown = ", ".join(names[:_SHOWN])
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


class Session:
    """Of one worker.

    Args:
        model: a function: the worker may have its model later than this.
        vllm_config: None where this release gives the back end none; weft.engines then looks for it in the model.
        parallel_config: None: that of vllm_config.
    """

    def __init__(self, model: Callable[[], Any], vllm_config: Any = None, parallel_config: Any = None):
        self._model, self._config = model, vllm_config
        self._parallel = parallel_config if vllm_config is None else vllm_config.parallel_config
        self._receiver: Any = None
        self._places: dict[str, int] = {}
        self._sleeps = 0
        self._received = 0            # version that finish may report
        self._abandoned = False       # finish reports none
        self._failure: Optional[str] = None

    @property
    def version(self) -> int:
        return int(self._receiver.version) if self._receiver is not None else 0

    @property
    def joined(self) -> bool:
        return self._receiver is not None

    def init(self, endpoint: "dict[str, Any]", timeout_s: Optional[float] = None) -> None:
        """Joins the job of ``endpoint``, with all the others of it; leaves another one first."""
        engines = importlib.import_module("weft.engines")
        self.close()
        _sleep.watch()
        self._awake("join")
        model = self._model()
        self._set_aside(model)
        receiver = engines.Receiver(model, self._own(endpoint), config=self._config)
        try:
            receiver.join(timeout_s)
        except BaseException:
            receiver.close()
            raise
        self._receiver, self._places, self._sleeps = receiver, places(model), _sleep.now().times
        for note in receiver.notes:
            logger.info("%s", note)
        logger.info("joined %s: weights come the %s way", endpoint.get("controller", "the job"), receiver.way)

    def _set_aside(self, model: Any) -> None:
        """vLLM up to 0.24 begins a layerwise reload by itself, where start_weight_update was not told
        is_checkpoint_format=False: parameters are on the meta device, their memory is set aside. Nothing was loaded yet, and
        finalizing puts them back; the worker's own finish later finds nothing to do."""
        if not any(parameter.is_meta for parameter in model.parameters()):
            return
        config = self._config or next((module.vllm_config for module in model.modules() if hasattr(module, "vllm_config")), None)
        current = contextlib.nullcontext() if config is None else \
            importlib.import_module("vllm.config").set_current_vllm_config(config)
        with current:
            importlib.import_module("vllm.model_executor.model_loader.reload").finalize_layerwise_reload(
                model, getattr(config, "model_config", None))
        logger.info("a reload by layers was begun and is undone: start with is_checkpoint_format=False saves that")

    def _own(self, endpoint: "dict[str, Any]") -> "dict[str, Any]":
        """Replicas of a server are told the same. Those that share experts know their place (weft.engines); of the others vLLM
        tells each that it is alone, but for an index, and they stand one after the other in the job."""
        parallel = self._parallel
        index = int(getattr(parallel, "data_parallel_index", 0) or 0)
        if not index or int(getattr(parallel, "data_parallel_size", 1)) > 1:
            return endpoint
        return {**endpoint, "rank_offset": int(endpoint.get("rank_offset", 0)) + index * int(parallel.world_size)}

    def _awake(self, what: str) -> None:
        level = _sleep.now().level
        if level is not None:
            raise StateError(f"{what} while vLLM sleeps (level {level}): the parameters have no memory now; first "
                             'wake_up(tags=["weights"])')

    def receive(self, version: Optional[int] = None, timeout_s: Optional[float] = None) -> int:
        """One version into the parameters."""
        if self._receiver is None:
            raise StateError("receive before init: this worker is in no job; POST /init_weight_transfer_engine (or weft_init) "
                             "first")
        self._received = 0
        try:
            self._awake("an update")
            model = self._model()
            self._set_aside(model)
            if self._receiver.way == "direct":
                self._still_there(model)
            received = int(self._receiver.receive(version, timeout_s))
        except BaseException as error:
            text = error.text if isinstance(error, Error) else f"{type(error).__name__}: {error}"
            self._failure = f"version {version or 'that came'} was not received: {text}"
            raise
        self._received, self._failure = received, None
        return received

    def _still_there(self, model: Any) -> None:
        if _sleep.now().times != self._sleeps:
            raise StateError("vLLM slept since this worker joined: the same addresses are other memory now, and what trainers "
                             "registered is gone; init again after wake_up")
        now = places(model)
        moved = [name for name, place in self._places.items() if now.get(name) != place]
        if moved:
            raise StateError(f"{len(moved)} of {len(self._places)} parameters do not lie where they lay at init ({_some(moved)}): "
                             "the trainers' writes would not reach them; init again")

    def finish(self) -> int:
        """The version that the last update brought; 0: it was given up. Fails where it failed, or brought none."""
        if self._receiver is None:
            raise StateError("finish before init: this worker is in no job")
        if self._abandoned:
            self._abandoned = False
            return 0
        if self._failure is not None:
            raise StateError(f"there is nothing to finish: {self._failure}")
        if self._receiver.tainted:
            raise StateError("there is nothing to finish: memory holds a mixture of versions; send a version again")
        if not self._received:
            raise StateError("finish without an update: no version was received since start")
        received, self._received = self._received, 0
        return received

    def start(self) -> None:
        """An update follows; the last one's failure is over."""
        if self._receiver is None:
            raise StateError("start before init: this worker is in no job; POST /init_weight_transfer_engine first")
        self._received, self._failure, self._abandoned = 0, None, False
        self._awake("an update")

    def abandon(self) -> None:
        """The update is given up, because it failed elsewhere: finish just ends it."""
        self._received, self._abandoned = 0, True

    def describe(self) -> "dict[str, Any]":
        """For a look from outside; made of what JSON has."""
        receiver = self._receiver
        if receiver is None:
            return {"joined": False}
        return {"joined": True, "version": self.version, "tainted": bool(receiver.tainted), "way": receiver.way,
                "notes": list(receiver.notes), "stats": dict(receiver.stats())}

    def close(self) -> None:
        """Leaves the job. Again: nothing."""
        receiver, self._receiver = self._receiver, None
        self._places, self._received, self._failure, self._abandoned = {}, 0, None, False
        if receiver is not None:
            receiver.close()


def endpoint_of(given: "dict[str, Any]") -> "dict[str, Any]":
    """What init was posted with: the endpoint itself, or under "endpoint"."""
    endpoint = given.get("endpoint", given)
    if not isinstance(endpoint, dict) or not endpoint:
        raise UsageError(f"init_info is {given!r}: give what weft.engines.Sender.endpoint(k) says (a dict)")
    return endpoint

# SPDX-License-Identifier: Apache-2.0
"""miles and slime: their Megatron trainers send their own shards straight into the rollout engines' parameters.

    --custom-megatron-init-path weft.miles.install        beside --update-weight-transfer-mode broadcast or p2p (miles)

    actor (each rank)                                     rollout engine (SGLang with weft installed)
    connect_rollout_engines                               init_weights_update_group, by rank 0 through Ray
      Trainer: declares its shards as they are cut          Receiver, join
    update_weights
      rank 0: pause, flush                                pause_generation, flush_cache
      all:    publish ═══ one-sided writes ═════════════► update_weights_from_distributed
      all agree that it went well                           weight_version: all ranks have it
      rank 0: continue                                    continue_generation

Nothing is gathered. Where Weft has no rows for the model, or rollout is quantised, WEFT_MEGATRON=gathered has the framework's own
conversion gather tensor by tensor, and all ranks share the sending. A version counts only when every engine has it: the one that
failed is raised on every rank, engines stay paused, and the next update connects anew."""
from __future__ import annotations

import importlib
import logging
import os
import re
import sys
import time
from typing import Any, Callable, Iterator, Optional, Sequence

from weft._errors import Code, Error, StateError, UnsupportedError, UsageError, WaitTimeout
from weft.sglang._beside import beside
from weft.sglang._wire import GROUP, init_body, update_body

logger = logging.getLogger("weft.miles")

#: Classes of the actor's module that are replaced; colocated and disk updaters stay.
_REPLACED = {"miles": ("UpdateWeightFromDistributed", "UpdateWeightP2P"), "slime": ("UpdateWeightFromDistributed",)}
_JOIN_S = 300.0
_CLOSE_S = 30.0


def install(args: Any) -> None:
    """What ``--custom-megatron-init-path`` calls in each actor, before it makes its updater.

    Raises:
        UsageError: options under which weights would not go through Weft, or neither framework is running here.
    """
    if getattr(args, "colocate", False):
        raise UsageError("--colocate: trainers and engines share GPUs and weights are handed over on the device, without Weft: "
                         "leave out --custom-megatron-init-path weft.miles.install, or --colocate")
    mode = getattr(args, "update_weight_transfer_mode", None) or getattr(args, "update_weight_transport", None) or "broadcast"
    if mode not in ("broadcast", "p2p", "nccl") or getattr(args, "update_weight_mode", "full") != "full":
        raise UsageError(f"weights go by {mode!r} ({getattr(args, 'update_weight_mode', 'full')}), without Weft: say "
                         "--update-weight-transfer-mode broadcast (miles), --update-weight-transport nccl (slime), or leave out "
                         "--custom-megatron-init-path weft.miles.install")
    done = []
    for framework, names in _REPLACED.items():
        actor = sys.modules.get(f"{framework}.backends.megatron_utils.actor")
        for name in names if actor is not None else ():
            if not hasattr(actor, name):
                raise UnsupportedError(f"{framework}.backends.megatron_utils.actor has no {name}: this release of Weft does not "
                                       f"know where {framework} makes its updater; read: miles 31f1ca961, slime 624b824a8")
            setattr(actor, name, _class_for(framework))
            done.append(f"{framework}'s {name}")
    if not done:
        raise UsageError("weft.miles.install was called where neither miles' nor slime's Megatron actor is loaded: it is for "
                         "--custom-megatron-init-path weft.miles.install")
    logger.info("weft: weights go by Weft in place of %s", ", ".join(done))


def _class_for(framework: str) -> type:
    return type("UpdateWeightWeft", (Updater,), {"framework": framework, "__module__": __name__})


class Updater:
    """The interface of both frameworks' updaters."""

    framework = "miles"

    def __init__(self, args: Any, model: Sequence[Any], weights_getter: Callable[[], Any], *, model_name: str,
                 quantization_config: Any, is_lora: bool = False):
        if is_lora:
            raise UnsupportedError("LoRA: adapters are small and change names in engines; weft sends base weights. Leave out "
                                   "--custom-megatron-init-path weft.miles.install")
        self.args, self.model, self.model_name, self.quantization_config = args, model, model_name, quantization_config
        self.weight_version = 0
        self.rollout_engines: Optional[Sequence[Any]] = None
        self._weights = weights_getter
        self._job: Any = None
        self._stale = False
        self._failed: Optional[str] = None
        self._metrics: dict[str, float] = {}

    # ---- what the actor calls

    def connect_rollout_engines(self, rollout_engines: Sequence[Any], rollout_engine_lock: Any,
                                engine_gpu_counts: Optional[Sequence[int]] = None,
                                engine_gpu_offsets: Optional[Sequence[int]] = None, **_: Any) -> None:
        """On all ranks, whenever there are new engines."""
        self._close()
        self.rollout_engines = list(rollout_engines)
        counts = list(engine_gpu_counts or [self.args.rollout_num_gpus_per_engine] * len(self.rollout_engines))
        if not counts or len(counts) != len(self.rollout_engines):
            raise UsageError(f"{len(self.rollout_engines)} rollout engines and {len(counts)} numbers of GPUs: each engine has one")

        def made() -> Optional[str]:
            self._job = self._made(counts)
            return str(self._job.start()) if _rank() == 0 else None

        def join() -> None:
            if _rank() == 0:
                beside(lambda: self._init(counts), lambda: self._job.join(_JOIN_S), self._job.close)
            else:
                self._job.join(_JOIN_S)
        controller = self._together("starting a job", made)[0]
        self._together("declaring the model", lambda: self._job.declare(controller))
        self._together("joining", join)
        self._stale, self._failed = False, None

    def update_weights(self) -> None:
        """On all ranks."""
        if self._job is None or self.rollout_engines is None:
            raise StateError("update_weights before connect_rollout_engines" if self._failed is None else
                             f"the last update failed ({self._failed}): connect_rollout_engines before the next")
        version, started = int(self.weight_version) + 1, time.monotonic()
        self._together("pausing the engines", self._pause)

        def send() -> None:
            if _rank() == 0:
                beside(lambda: self._tell(version), lambda: self._job.send(version), self._job.close)
            else:
                self._job.send(version)
        self._together(f"version {version}", send)
        self.weight_version = version
        self._metrics = self._job.metrics()
        self._together("continuing generation", self._continue)
        self._metrics["perf/update_weights_total_s"] = time.monotonic() - started
        if _rank() == 0:
            logger.info("[weft] %d engine(s) have version %d: %s", len(self.rollout_engines), version, " ".join(
                f"{name.rpartition('/')[2]}={value:.4g}" for name, value in self._metrics.items()))

    def pop_metrics(self) -> dict[str, float]:
        found, self._metrics = self._metrics, {}
        return found

    def disconnect_rollout_engines(self) -> None:
        """On all ranks: slime does so before it puts the trainers to sleep."""
        self._close()

    def is_rollout_engines_fresh(self) -> bool:
        return self._job is not None and not self._stale

    def mark_engine_connection_stale(self) -> None:
        self._stale = True

    # ---- the job

    def _made(self, counts: list[int]) -> Any:
        way = os.environ.get("WEFT_MEGATRON", "shards")
        if way not in ("shards", "gathered"):
            raise UsageError(f"WEFT_MEGATRON={way!r} is none of shards, gathered")
        if way == "shards" and self.quantization_config:
            raise UnsupportedError(f"rollout is quantised ({self.quantization_config.get('quant_method', '?')}) and trainers hold "
                                   "unquantised shards: set WEFT_MEGATRON=gathered, which has the framework quantise")
        from weft._megatron_jobs import Gathered, Shards, options_of

        options = options_of(self.args, _hosts_many())
        if way == "shards":
            return Shards(_rank(), counts, options, self.args.hf_checkpoint, self.model)
        return Gathered(_rank(), counts, options, _world(), self._chunks)

    def _chunks(self) -> Iterator[tuple[str, Any]]:
        """Whole tensors by the checkpoint's names, on every rank; buckets as --update-weight-buffer-size says."""
        base = importlib.import_module(f"{self.framework}.backends.megatron_utils.update_weight.hf_weight_iterator_base")
        made = base.HfWeightIteratorBase.create(args=self.args, model=self.model, model_name=self.model_name,
                                                quantization_config=self.quantization_config)
        for chunk in made.get_hf_weight_chunks(self._weights()):
            yield from chunk

    def _close(self) -> None:
        job, self._job = self._job, None
        if job is None:
            return
        if _rank() == 0 and self.rollout_engines and not self._stale:
            try:  # engines leave at the same time; one that is gone is no matter
                self._ask("destroy_weights_update_group", [(GROUP,)] * len(self.rollout_engines), _CLOSE_S)
            except Exception as error:
                logger.warning("weft: leaving the engines: %s", error)
        job.close()

    def _together(self, what: str, act: Callable[[], Any]) -> list[Any]:
        """All ranks do it and hear how all fared: none goes on alone, and none reports what another lost. What each returned."""
        failure: Optional[BaseException] = None
        result = None
        try:
            result = act()
        except Exception as error:
            failure = error
        words = None if failure is None else getattr(failure, "text", f"{type(failure).__name__}: {failure}")
        told = _all((words, result))
        failed = [f"trainer {rank}: {one}" for rank, (one, _) in enumerate(told) if one is not None]
        if not failed:
            return [one for _, one in told]
        self._failed = " | ".join(failed)
        job, self._job = self._job, None
        if job is not None:
            try:
                job.close()
            except Error as error:
                logger.debug("weft: closing after a failure: %s", error)
        text = f"{what}: {self._failed}. Engines stay paused; no version was counted ({self.weight_version} is the last)"
        if isinstance(failure, Error):
            raise type(failure)(text, failure.code) if type(failure).__init__ is Error.__init__ else Error(text, failure.code) \
                from failure
        raise Error(text, Code.HOST) from failure

    # ---- the engines, on rank 0, through Ray

    def _ask(self, method: str, arguments: Sequence[Any], timeout_s: Optional[float]) -> list[Any]:
        ray: Any = importlib.import_module("ray")
        refs = [getattr(engine, method).remote(**given) if isinstance(given, dict) else getattr(engine, method).remote(*given)
                for engine, given in zip(self.rollout_engines or (), arguments)]
        try:
            return list(ray.get(refs, timeout=timeout_s))
        except Exception as error:
            if type(error).__name__ == "GetTimeoutError":
                raise WaitTimeout(f"rollout engines: no answer to {method} within {timeout_s:g} s") from error
            said = re.findall(r"weft: [^\"\n]+", f"{error} {getattr(error, '__notes__', '')}")
            raise Error(f"rollout engines: {method}: {said[-1] if said else str(error)[-1000:]}", Code.HOST) from error

    def _each(self, method: str, timeout_s: Optional[float], **given: Any) -> None:
        self._ask(method, [given] * len(self.rollout_engines or ()), timeout_s)

    def _draft(self) -> str:
        """As miles' own selector: a draft model that the trainer does not train is left as it is."""
        speculative = getattr(self.args, "sglang_speculative_algorithm", None)
        return "keep" if speculative and not getattr(self.args, "mtp_num_layers", None) else "refuse"

    def _init(self, counts: list[int]) -> None:
        bodies = [init_body(self._job.endpoint(engine), count, join_timeout_s=_JOIN_S, draft=self._draft())
                  for engine, count in enumerate(counts)]
        self._ask("init_weights_update_group", bodies, _JOIN_S + _CLOSE_S)

    def _pause(self) -> None:
        if _rank() != 0:
            return
        mode = getattr(self.args, "pause_generation_mode", None)
        self._each("pause_generation", None, **({"mode": mode} if mode else {}))
        if mode != "in_place":
            self._each("flush_cache", None)

    def _tell(self, version: int) -> None:
        body = update_body(version)
        if self._draft() == "keep" and self.framework == "miles":
            body["selector"] = "target"
        self._each("update_weights_from_distributed", None, **body)  # ends with the job: its waits have deadlines

    def _continue(self) -> None:
        if _rank() == 0:
            self._each("continue_generation", None)


# ---- torch.distributed, as the frameworks set it up

def _rank() -> int:
    import torch.distributed as dist

    return dist.get_rank() if dist.is_initialized() else 0


def _world() -> int:
    import torch.distributed as dist

    return dist.get_world_size() if dist.is_initialized() else 1


def _gloo() -> Any:
    for framework in _REPLACED:
        utils = sys.modules.get(f"{framework}.utils.distributed_utils")
        if utils is not None:
            return utils.get_gloo_group()
    return None


def _all(mine: Any) -> list[Any]:
    import torch.distributed as dist

    if _world() == 1:
        return [mine]
    told: list[Any] = [None] * _world()
    dist.all_gather_object(told, mine, group=_gloo())
    return told


def _hosts_many() -> bool:
    ray: Any = importlib.import_module("ray")
    return len([node for node in ray.nodes() if node.get("Alive", True)]) > 1

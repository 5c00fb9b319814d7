# SPDX-License-Identifier: Apache-2.0
"""Weft in OpenRLHF (0.11.2): a launcher and a flag.

    python -m weft.openrlhf openrlhf.cli.train_ppo_ray --vllm.sync_backend weft ..

OpenRLHF names its vLLM worker extension and its way of sending in its own code. What is replaced, when it is imported:

    trainer.ray.ppo_actor.ActorPPOTrainer._init_vllm_sync_group     nothing is joined yet: what is sent is known later
                                         .broadcast_to_vllm         every trainer rank sends; the first time all join
    trainer.ray.vllm_worker_wrap.WorkerWrap                         takes weft.vllm.WorkerExtension as a base, and two of its
                                                                    methods, which OpenRLHF's actor passes on, mean Weft's:

        init_process_group(.., group_name = endpoint as JSON, backend = "weft")      weft_init
        update_weight("weft", None, version)                                         weft_receive

With another --vllm.sync_backend everything is as it was. Not for engines on the trainers' own GPUs (--train.colocate_all)."""
from __future__ import annotations

import importlib
import json
import logging
import sys
import time
from typing import Any, Iterator

from weft._errors import HostFailed, UnsupportedError
from weft.vllm._after_import import after_import, bind_of, launch, must_have
from weft.vllm._extension import WorkerExtension
from weft.vllm._sync import WeightSync

logger = logging.getLogger("weft.openrlhf")

BACKEND = "weft"
TESTED = "0.11.2"
_ACTOR, _WRAP = "openrlhf.trainer.ray.ppo_actor", "openrlhf.trainer.ray.vllm_worker_wrap"


def install() -> None:
    """In each process: again, nothing more."""
    after_import(_ACTOR, _change_actor)
    after_import(_WRAP, _change_wrap)


class Engines:
    """OpenRLHF's vLLM actors, as WeightSync wants them. Calls are Ray's, and end with the first failure."""

    def __init__(self, engines: "list[Any]", ranks: int):
        self._engines, self._ranks = engines, ranks
        self._ray = importlib.import_module("ray")

    def world_sizes(self) -> "list[tuple[int, int]]":
        return [(self._ranks, 1)] * len(self._engines)

    def init(self, endpoints: "list[dict[str, Any]]") -> None:
        self._get([engine.init_process_group.remote("", 0, 0, 0, json.dumps(endpoint), backend=BACKEND, use_ray=False)
                   for engine, endpoint in zip(self._engines, endpoints)])

    def start(self) -> None:
        pass

    def update(self, version: int) -> None:
        self._get([engine.update_weight.remote(BACKEND, None, version) for engine in self._engines])

    def finish(self, version: int) -> None:
        pass  # weft_receive has

    def abandon(self) -> None:
        pass

    def _get(self, references: "list[Any]") -> None:
        left = list(references)
        while left:  # not get(all): one that failed is told before the others have waited it out
            done, left = self._ray.wait(left, num_returns=1)
            try:
                self._ray.get(done)
            except Exception as error:
                raise HostFailed(f"a vLLM engine: {error}") from error


def _change_wrap(module: Any) -> None:
    must_have(module, ["WorkerWrap.init_process_group", "WorkerWrap.update_weight"], TESTED)
    old = module.WorkerWrap
    if issubclass(old, WorkerExtension):
        return

    class WorkerWrap(old, WorkerExtension):  # type: ignore[misc, valid-type]
        def init_process_group(self, master_address: str, master_port: int, rank_offset: int, world_size: int,
                               group_name: str, backend: str = "nccl", use_ray: bool = False) -> Any:
            if backend == BACKEND:
                return self.weft_init(json.loads(group_name))
            return super().init_process_group(master_address, master_port, rank_offset, world_size, group_name, backend, use_ray)

        def update_weight(self, name: str, dtype: Any, shape: Any, empty_cache: bool = False) -> Any:
            if name == BACKEND and dtype is None:
                return self.weft_receive(int(shape))
            return super().update_weight(name, dtype, shape, empty_cache)
    WorkerWrap.__module__ = old.__module__
    module.WorkerWrap = WorkerWrap


def _change_actor(module: Any) -> None:
    must_have(module, ["ActorPPOTrainer._init_vllm_sync_group", "ActorPPOTrainer.broadcast_to_vllm"], TESTED)
    trainer = module.ActorPPOTrainer
    if getattr(trainer, "_weft", False):
        return
    init, broadcast = trainer._init_vllm_sync_group, trainer.broadcast_to_vllm

    def _init_vllm_sync_group(self: Any, backend: str) -> None:
        if backend != BACKEND:
            init(self, backend)

    def broadcast_to_vllm(self: Any) -> None:
        if getattr(self.strategy.args.vllm, "sync_backend", "nccl") != BACKEND:
            broadcast(self)
        else:
            _broadcast(self, module)
    trainer._init_vllm_sync_group, trainer.broadcast_to_vllm, trainer._weft = _init_vllm_sync_group, broadcast_to_vllm, True


def _broadcast(trainer: Any, module: Any) -> None:
    """On every trainer rank, as OpenRLHF's own: gather, send, barrier."""
    args, torch, ray = trainer.strategy.args, module.torch, module.ray
    if getattr(args.train, "colocate_all", False):
        raise UnsupportedError("--vllm.sync_backend weft with --train.colocate_all: engines share the trainers' GPUs there, and "
                               "weights go by CUDA IPC; leave the flag out")
    rank, began = torch.distributed.get_rank(), time.monotonic()
    resets = []
    if getattr(args.vllm, "enable_prefix_caching", False) and rank == 0:
        resets = [engine.reset_prefix_cache.remote() for engine in trainer.vllm_engines]
    sync = trainer.__dict__.get("_weft_sync")
    if sync is None:
        sync = trainer._weft_sync = _made(trainer, torch, rank)
        sync.connect()
    sync.send(_gathered(trainer, module))
    if resets:
        ray.get(resets)
    module.torch_dist_barrier_and_cuda_sync()
    if rank == 0:
        logger.info("version %d: weight_sync_time_s=%.3f", sync.version, time.monotonic() - began)


def _made(trainer: Any, torch: Any, rank: int) -> WeightSync:
    args = trainer.strategy.args

    def share(value: Any) -> Any:
        given = [value]
        torch.distributed.broadcast_object_list(given, src=0)
        return given[0]
    tensors = [(name, parameter.dtype, tuple(parameter.ds_shape if args.ds.zero_stage == 3 else parameter.shape))
               for name, parameter in _sent(trainer)]
    client = Engines(trainer.vllm_engines, args.vllm.tensor_parallel_size) if rank == 0 else None
    options: "dict[str, Any]" = {} if rank else {"bind": bind_of(importlib.import_module("ray").util.get_node_ip_address())}
    return WeightSync(tensors, client, rank=rank, world=torch.distributed.get_world_size(), share=share, **options)


def _sent(trainer: Any) -> "list[tuple[str, Any]]":
    """As OpenRLHF chooses: of a model with a vision tower only what is trained."""
    return [(name, parameter) for name, parameter in trainer.actor.model.module.named_parameters()
            if parameter.requires_grad or not getattr(trainer.actor, "is_vlm", False)]


def _gathered(trainer: Any, module: Any) -> "Iterator[tuple[str, Any]]":
    """Each parameter whole, while this yields it: copied where DeepSpeed takes it apart again when it is over."""
    args, deepspeed, model = trainer.strategy.args, module.deepspeed, trainer.actor.model.module
    for name, parameter in _sent(trainer):
        if args.ds.tensor_parallel_size > 1:
            gather = deepspeed.module_inject.layers.GatherReplacedLayerParams([parameter], model, enabled=True)
        else:
            gather = deepspeed.zero.GatheredParameters([parameter], enabled=args.ds.zero_stage == 3)
        with gather:
            apart = args.ds.tensor_parallel_size > 1 or args.ds.zero_stage == 3
            whole = parameter.data.clone() if apart else parameter.data
        yield name, whole.contiguous()


if __name__ == "__main__":
    sys.modules["weft.openrlhf"] = sys.modules["__main__"]
    launch("weft.openrlhf", "WEFT_OPENRLHF", install, sys.argv[1:])

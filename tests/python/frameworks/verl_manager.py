# SPDX-License-Identifier: Apache-2.0
"""verl's own CheckpointEngineManager and CheckpointEngineWorker, through Ray, on CPUs, with weft as backend: two actors, two
rollouts, three steps; a rollout worker more for the last one.

    driver                  CheckpointEngineManager.update_weights(step)
    2 Trainer actors        the methods of verl's training worker that the manager calls, with ranks.weights as the model
    2, 3 rollout actors     verl's CheckpointEngineWorker, whose server adapter marks what it gets
"""
from __future__ import annotations

import asyncio
import pathlib
import sys
from types import SimpleNamespace

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "stream")]

import ray  # noqa: E402
import stream_ranks as ranks  # noqa: E402
from verl.checkpoint_engine import CheckpointEngineManager, CheckpointEngineRegistry, CheckpointEngineWorker  # noqa: E402
from verl.single_controller.base import Worker  # noqa: E402
from verl.single_controller.base.decorator import Dispatch, register  # noqa: E402
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup  # noqa: E402
from verl.utils.import_utils import import_external_libs  # noqa: E402
from verl.workers.config import CheckpointEngineConfig, RolloutConfig  # noqa: E402

CONFIG = CheckpointEngineConfig(backend="weft", custom_backend_module="weft.verl", update_weights_bucket_megabytes=1,
                                engine_kwargs={"weft": {"bucket_bytes": ranks.BUCKET, "timeout_s": 60.0}})


class Trainer(Worker):
    def __init__(self):
        super().__init__()
        import_external_libs(CONFIG.custom_backend_module)
        self.checkpoint_engine = CheckpointEngineRegistry.new(
            CONFIG.backend, is_master=self.rank == 0, bucket_size=CONFIG.update_weights_bucket_megabytes << 20,
            **CONFIG.engine_kwargs["weft"])

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    async def update_weights(self, global_steps=None, mode="auto"):
        return await self.checkpoint_engine.send_weights(ranks.weights(global_steps), global_steps=global_steps)

    @register(dispatch_mode=Dispatch.DP_COMPUTE, blocking=False)
    def execute_checkpoint_engine(self, method, *args, **kwargs):
        return getattr(self.checkpoint_engine, method)(*args, **kwargs)


class Adapter:
    """In the place of an engine: what it got, by step."""

    replica_rank, is_leader_rank = 0, True

    def __init__(self):
        self.got = {}

    async def update_weights(self, weights, global_steps=None, **_):
        self.got[global_steps] = [ranks.mark(*item) async for item in weights]


class Rollout(CheckpointEngineWorker):
    def __init__(self, rollout_config):
        super().__init__(rollout_config, None, server_adapter=Adapter())

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def got(self, step):
        return self.server_adapter.got[step]


def replica(workers):
    async def nothing(**_):
        pass
    return SimpleNamespace(workers=workers, abort_all_requests=nothing, resume_generation=nothing, release_kv_cache=nothing,
                           resume_kv_cache=nothing)


def group(cls, count, *args):
    pool = RayResourcePool(process_on_nodes=[count], use_gpu=False, max_colocate_count=1)
    return RayWorkerGroup(resource_pool=pool, ray_cls_with_init=RayClassWithInitArgs(ray.remote(cls), *args), device_name="cpu")


def main():
    ray.init(num_cpus=8, include_dashboard=False, runtime_env={"env_vars": {"PYTHONPATH": ":".join(sys.path)}})
    config = RolloutConfig(name="vllm", checkpoint_engine=CONFIG)
    actors, rollouts, more = group(Trainer, 2), group(Rollout, 2, config), group(Rollout, 1, config)
    manager = CheckpointEngineManager(CONFIG, actors, [replica(rollouts.workers)])
    for step in (1, 2, 3):
        if step == 3:
            manager.add_replicas([replica(more.workers)])
        metrics = manager.update_weights(global_steps=step)
        if asyncio.iscoroutine(metrics):
            metrics = asyncio.run(metrics)
        found = rollouts.got(step) + (more.got(step) if step == 3 else [])
        assert found == [ranks.marks(step)] * (3 if step == 3 else 2), f"step {step}: other bytes"
        print(f"{len(rollouts.workers)} rollouts have the bytes of step {step}; metrics {metrics}", flush=True)
    ray.shutdown()


if __name__ == "__main__":
    main()

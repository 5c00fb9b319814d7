# SPDX-License-Identifier: Apache-2.0
"""NeMo-RL's own checkpoint-engine code, from a checkout of its repository, through Ray, on CPUs, with weft as refit_transport.
By hand, since PyPI has a placeholder alone:

    python nemo_manager.py CHECKOUT [async]       # needs torch, ray, hydra-core, omegaconf, pyzmq, nvidia-ml-py, accelerate and
                                                  # the transformers that the checkout asks for (no vLLM)

    driver               NeMo-RL's load_config (its grpo_math_1B recipe, and examples/nemo_rl/config.yaml over it), factory,
                         synchronizer, virtual cluster and worker groups
    2 policy workers     its PolicyCheckpointEngineMixin, with ranks.weights as the model
    2 vLLM workers       its mixin of (a)synchronous engines; the engine is a double: two processes without Ray, TP's ranks, each
                         with its VllmCheckpointEngineMixin, which marks what it is to load

Three refits, with release_after_refit off and on; one that fails, and what everybody says; the next one."""
from __future__ import annotations

import asyncio
import multiprocessing
import os
import pathlib
import sys
from types import SimpleNamespace

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PATHS = [str(HERE), str(HERE.parent / "stream")]
if __name__ == "__main__":
    PATHS.append(str(pathlib.Path(sys.argv[1]).resolve()))
    os.environ["PYTHONPATH"] = ":".join([*PATHS, *filter(None, [os.environ.get("PYTHONPATH")])])
sys.path[:0] = PATHS

import numpy  # noqa: E402
import ray  # noqa: E402
import stream_ranks as ranks  # noqa: E402
import torch  # noqa: E402
from nemo_rl.distributed.named_sharding import NamedSharding  # noqa: E402
from nemo_rl.distributed.ray_actor_environment_registry import ACTOR_ENVIRONMENT_REGISTRY  # noqa: E402
from nemo_rl.distributed.virtual_cluster import PY_EXECUTABLES, RayVirtualCluster  # noqa: E402
from nemo_rl.distributed.worker_groups import RayWorkerBuilder, RayWorkerGroup  # noqa: E402
from nemo_rl.models.generation.vllm.checkpoint_engine import (  # noqa: E402
    VllmAsyncCheckpointEngineRpcMixin,
    VllmCheckpointEngineMixin,
    VllmCheckpointEngineRpcMixin,
)
from nemo_rl.models.policy.workers.checkpoint_engine import PolicyCheckpointEngineMixin  # noqa: E402
from nemo_rl.utils.config import load_config  # noqa: E402
from nemo_rl.weight_sync.factory import create_weight_synchronizer  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402

NAME = "weft.nemo:WeftCheckpointEngine"
TP = 2


def without_a_gpu():
    """What NeMo-RL asks of a GPU: its memory, and that what was queued is done."""
    torch.cuda.current_device = lambda: 0
    torch.cuda.get_device_properties = lambda _: SimpleNamespace(total_memory=64 << 20)
    torch.cuda.current_stream = lambda *_: SimpleNamespace(synchronize=lambda: None)
    torch.cuda.nvtx = SimpleNamespace(range_push=lambda _: None, range_pop=lambda: None)


@ray.remote
class Policy(PolicyCheckpointEngineMixin):
    def __init__(self):
        without_a_gpu()
        self.rank, self.step = int(os.environ["RANK"]), 0

    def _checkpoint_engine_weight_iterator(self, kv_scales=None):
        self.step += 1
        for count, item in enumerate(ranks.weights(self.step)):
            if kv_scales is not None and self.rank == 1 and count == 12:
                raise RuntimeError("the optimizer's state is gone")
            yield item


class Rank(VllmCheckpointEngineMixin):
    """In the place of vLLM's worker with NeMo-RL's extension."""

    def _load_weights(self, weights):
        self.got = [*getattr(self, "got", []), *(ranks.mark(*item) for item in weights)]

    def _maybe_process_fp8_kv_cache(self):
        pass

    def taken(self):
        got, self.got = getattr(self, "got", []), []
        return got


def serve(rank, port, conn):
    without_a_gpu()
    torch.distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=TP)
    worker = Rank()
    while True:
        method, args = conn.recv()
        try:
            conn.send((True, getattr(worker, method)(*args)))
        except Exception as error:  # noqa: BLE001  # as vLLM's executor: its words go back
            conn.send((False, f"{type(error).__name__}: {error}"))


class Engine:
    """collective_rpc of vLLM's LLM."""

    def __init__(self):
        import socket
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        spawn = multiprocessing.get_context("spawn")
        self.ends, self.processes = [], []
        for rank in range(TP):
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=serve, args=(rank, port, theirs), daemon=True)
            process.start()
            self.ends.append(ours)
            self.processes.append(process)

    def collective_rpc(self, method, args=()):
        for end in self.ends:
            end.send((method, args))
        answers = [end.recv() for end in self.ends]
        for right, value in answers:
            if not right:
                raise RuntimeError(value)
        return [value for _, value in answers]


class AsyncEngine(Engine):
    async def collective_rpc(self, method, args=()):
        return await asyncio.to_thread(super().collective_rpc, method, args)


@ray.remote
class Vllm(VllmCheckpointEngineRpcMixin):
    def __init__(self, bundle_indices=None):
        self.llm = Engine() if int(os.environ["RANK"]) % TP == 0 else None


@ray.remote
class AsyncVllm(VllmAsyncCheckpointEngineRpcMixin):
    def __init__(self, bundle_indices=None):
        self.llm = AsyncEngine() if int(os.environ["RANK"]) % TP == 0 else None


def generation_config(checkout, is_async, release):
    """The recipe's, with what examples/nemo_rl/config.yaml and this machine say."""
    config = load_config(checkout / "examples/configs/grpo_math_1B.yaml")
    example = OmegaConf.load(ROOT / "examples/nemo_rl/config.yaml")
    example.pop("defaults", None)
    example.policy.generation.refit_cfg[NAME].update(device="cpu", transport="shm,tcp", timeout_s=60.0, release_after_refit=release,
                                                     bucket_bytes=ranks.BUCKET)
    example.policy.generation.vllm_cfg = {"async_engine": is_async, "tensor_parallel_size": TP}
    merged = OmegaConf.merge(config, example).policy.generation
    return {key: OmegaConf.to_container(merged[key], resolve=False) if OmegaConf.is_config(merged[key]) else merged[key]
            for key in ("backend", "colocated", "refit_transport", "refit_cfg", "vllm_cfg")}


def group(name, tp, tied=None):
    """Data parallel over two."""
    bundles = 2 * tp
    sharding = NamedSharding(numpy.arange(bundles).reshape(2, 1, tp), ["data_parallel", "pipeline_parallel", "tensor_parallel"])
    cluster = RayVirtualCluster([bundles], use_gpus=False, num_gpus_per_node=bundles, name=name)
    ACTOR_ENVIRONMENT_REGISTRY[f"nemo_manager.{name}"] = PY_EXECUTABLES.SYSTEM
    return RayWorkerGroup(cluster, RayWorkerBuilder(f"nemo_manager.{name}"), name_prefix=name, sharding_annotations=sharding,
                          bundle_indices_list=tied)


def fails_once(synchronizer, step, taken):
    """A refit that fails, and the one behind it."""
    try:
        synchronizer.sync_weights(kv_scales={})  # which makes policy worker 1's generator raise
        raise AssertionError("a refit that failed ended well")
    except ray.exceptions.RayTaskError as error:
        assert "the optimizer's state is gone" in str(error), error
        print(f"a refit that fails says: {str(error).strip().splitlines()[-1]}", flush=True)
    taken()
    synchronizer.shutdown()  # done already with release_after_refit
    step += 1
    synchronizer.sync_weights()
    assert taken() == [ranks.marks(step)] * 4, f"refit {step}: other bytes"
    print("and the next one goes well", flush=True)
    return step


def main(checkout, is_async):
    ray.init(num_cpus=8, include_dashboard=False)
    policies = group("Policy", 1)
    engines = group("AsyncVllm" if is_async else "Vllm", TP, [(0, [0, 1]), (0, [2, 3])])
    policy = SimpleNamespace(worker_group=policies, prepare_refit_info=dict)
    generation = SimpleNamespace(worker_group=engines, dp_size=2, prepare_refit_info=lambda info: None)
    rpc = "checkpoint_engine_rpc_async" if is_async else "checkpoint_engine_rpc"

    def taken():
        got = ray.get(engines.run_all_workers_single_data(rpc, checkpoint_method="taken", method_args=(),
                                                          run_rank_0_only_axes=["tensor_parallel", "pipeline_parallel"]))
        return [rank for engine in got for rank in engine]

    step = 0
    for release in (False, True):
        generation.cfg = generation_config(checkout, is_async, release)
        # a worker keeps the engine that it made first: release_after_refit is the synchronizer's to ask
        synchronizer = create_weight_synchronizer(policy, generation, generation.cfg["backend"],
                                                  generation.cfg["colocated"]["enabled"])
        synchronizer.init_communicator()
        for _ in range(3):
            step += 1
            synchronizer.sync_weights()
            assert taken() == [ranks.marks(step)] * 4, f"refit {step}: other bytes"
            print(f"4 ranks have the bytes of refit {step}; release_after_refit {release}", flush=True)
        step = fails_once(synchronizer, step + 1, taken)
        synchronizer.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).resolve(), "async" in sys.argv[2:])

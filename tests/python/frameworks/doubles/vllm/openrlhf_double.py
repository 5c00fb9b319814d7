# SPDX-License-Identifier: Apache-2.0
"""What weft.openrlhf replaces, and what is around it, written from the sources of OpenRLHF 0.11.2: its trainer's part that
sends, its worker extension, its vLLM actors. Ray's calls are threads."""
import concurrent.futures
import contextlib
import types

import vllm_double

POOL = concurrent.futures.ThreadPoolExecutor(16)


def ray_double():
    ray = types.ModuleType("ray")

    def wait(references, num_returns=1):
        done, _ = concurrent.futures.wait(references, 60, concurrent.futures.FIRST_COMPLETED)
        one = next(iter(done))
        return [one], [each for each in references if each is not one]
    ray.get = lambda given: [each.result(60) for each in given] if isinstance(given, list) else given.result(60)
    ray.wait = wait
    ray.util = types.SimpleNamespace(get_node_ip_address=lambda: "127.0.0.1")
    return ray


class WorkerWrap:
    def init_process_group(self, master_address, master_port, rank_offset, world_size, group_name, backend="nccl", use_ray=False):
        self.joined = group_name

    def update_weight(self, name, dtype, shape, empty_cache=False):
        self.updated = name


class RolloutRayActor:
    """Passes calls on to the workers of its engine."""

    def __init__(self, workers):
        self.workers, self.resets = workers, 0
        for name, order in (("init_process_group", ["master_address", "master_port", "rank_offset", "world_size", "group_name",
                                                    "backend", "use_ray"]),
                            ("update_weight", ["name", "dtype", "shape"])):
            setattr(self, name, types.SimpleNamespace(remote=self._remote(name, order)))
        self.reset_prefix_cache = types.SimpleNamespace(remote=lambda: POOL.submit(self._reset))

    def _reset(self):
        self.resets += 1

    def _remote(self, name, order):
        def remote(*given, **named):
            arguments = [*given, *(named[key] for key in order[len(given):])]
            return POOL.submit(lambda: [getattr(worker, name)(*arguments) for worker in self.workers])
        return remote


def actor_module(monkeypatch, rank=0, world=1, share=None):
    """openrlhf.trainer.ray.ppo_actor as a trainer rank has it."""
    module = types.ModuleType("openrlhf.trainer.ray.ppo_actor")

    class ActorPPOTrainer:
        def __init__(self, model, engines, backend, **given):
            self.strategy = types.SimpleNamespace(args=types.SimpleNamespace(
                vllm=types.SimpleNamespace(sync_backend=backend, tensor_parallel_size=1, enable_prefix_caching=True),
                ds=types.SimpleNamespace(zero_stage=2, tensor_parallel_size=1),
                train=types.SimpleNamespace(colocate_all=given.get("colocate_all", False))))
            self.actor = types.SimpleNamespace(model=types.SimpleNamespace(module=model), is_vlm=False)
            self.vllm_engines, self.did = engines, []
            if rank == 0:
                self._init_vllm_sync_group(backend)

        def _init_vllm_sync_group(self, backend):
            self.did.append("init " + backend)

        def broadcast_to_vllm(self):
            self.did.append("broadcast")
    module.ActorPPOTrainer, module.ray = ActorPPOTrainer, ray_double()
    monkeypatch.setitem(__import__("sys").modules, "ray", module.ray)
    group = types.SimpleNamespace(get_rank=lambda: rank, get_world_size=lambda: world,
                                  broadcast_object_list=lambda given, src: given.__setitem__(0, share(given[0])) if share else None)
    module.torch = types.SimpleNamespace(distributed=group)
    module.deepspeed = types.SimpleNamespace(zero=types.SimpleNamespace(
        GatheredParameters=lambda parameters, enabled: contextlib.nullcontext()))
    module.torch_dist_barrier_and_cuda_sync = lambda: None
    return module


def workers_of(double, wrap, models):
    """vLLM makes the extension a base of its worker, by the name that OpenRLHF wrote."""
    made = type("Extended", (vllm_double.Worker, wrap), {})
    return [made(double, model, None, rank) for rank, model in enumerate(models)]



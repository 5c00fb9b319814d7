# SPDX-License-Identifier: Apache-2.0
"""verl.checkpoint_engine.base: the registry, and what an engine must have."""
from abc import ABC, abstractmethod


class CheckpointEngineRegistry:
    known = {}

    @staticmethod
    def register(backend):
        def decorate(engine):
            CheckpointEngineRegistry.known[backend] = engine
            return engine
        return decorate

    @classmethod
    def get(cls, backend):
        if backend not in cls.known:
            raise ValueError(f"no checkpoint engine {backend}; there are {sorted(cls.known)}")
        return cls.known[backend]

    @classmethod
    def new(cls, backend, *args, **kwargs):
        return cls.get(backend)(*args, **kwargs)


class CheckpointEngine(ABC):
    wire_format = "named_tensors"

    @abstractmethod
    def prepare(self):
        ...

    @classmethod
    @abstractmethod
    def build_topology(cls, actor_wg_world_size, rollout_world_size, metadata):
        ...

    @abstractmethod
    def init_process_group(self, **kwargs):
        ...

    @abstractmethod
    def finalize(self):
        ...

    @abstractmethod
    async def send_weights(self, weights, global_steps=None):
        ...

    @abstractmethod
    async def receive_weights(self, global_steps=None):
        ...

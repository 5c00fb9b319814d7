# SPDX-License-Identifier: Apache-2.0
"""nemo_rl.utils.checkpoint_engines.base: what an engine must have, and how one is made."""
import importlib
from abc import ABC, abstractmethod


class CheckpointEngine(ABC):
    shard_expert_weights = False

    def get_target_weight_layout(self):
        return None

    @abstractmethod
    def prepare(self):
        ...

    @abstractmethod
    def init_policy_process_group(self, *, worker_rank, train_world_size, rollout_world_size, metadata):
        ...

    @abstractmethod
    def init_rollout_process_group(self, *, rollout_rank, train_world_size, rollout_world_size, metadata):
        ...

    def finalize(self):  # noqa: B027
        ...

    @abstractmethod
    async def send_weights(self, weights):
        ...

    @abstractmethod
    def receive_weight_batches(self):
        ...


def create_checkpoint_engine(backend, *, bucket_size_bytes, engine_kwargs):
    module, _, name = backend.partition(":")
    return getattr(importlib.import_module(module), name)(bucket_size=bucket_size_bytes, **engine_kwargs)

# SPDX-License-Identifier: Apache-2.0
"""NeMo-RL's weights by weft: a checkpoint engine that NeMo-RL finds by its own configuration, without a change to it.

::

    policy.generation.refit_transport: "weft.nemo:WeftCheckpointEngine"
    policy.generation.refit_cfg: {"weft.nemo:WeftCheckpointEngine": {}}      # NeMo-RL wants it to be there

NeMo-RL's synchronizer calls, on all policy and vLLM workers:

    prepare()                       every worker offers a job: nobody knows yet who is policy worker 0, whose offer is taken
    init_{policy,rollout}_process_group(..)     all join that
    send_weights()                  ALL policy workers send, each its share of every bucket (weft.stream)
    receive_weight_batches()        vLLM workers: a list of tensors for each bucket, which they load while the next arrives
    finalize()                      leaves the job: at the end, or after each refit where release_after_refit is set

A failed refit ends the job for all, with who and why.
"""
from __future__ import annotations

import logging
import os
from typing import Any, AsyncGenerator, Iterable, Optional

import torch
from nemo_rl.utils.checkpoint_engines.base import CheckpointEngine

from weft import UsageError, stream
from weft.stream._group import Group
from weft.stream._options import check

logger = logging.getLogger(__name__)
logger.setLevel(os.getenv("NRL_LOG_LEVEL", "INFO").upper())  # as NeMo-RL's own: its root logger is at WARNING

Batch = list[tuple[str, torch.Tensor]]


class WeftCheckpointEngine(CheckpointEngine):  # type: ignore[misc]  # NeMo-RL may not be there when this is checked
    """Args, of which all but the first are refit_cfg["weft.nemo:WeftCheckpointEngine"]:

    bucket_size: update_weights_bucket_memory_ratio of a GPU, in bytes: what may be taken for one bucket (two are kept).
    release_after_refit: NeMo-RL calls finalize after each refit: memory is free until the next one, which joins anew.
    bucket_bytes: of weft's own buckets. None: 256 MiB, or bucket_size where that is less. A refit's last bucket moves whole, so
        a smaller one wastes less at the end.
    memory: where buckets lie: "host" (default), "cuda".
    device: vLLM workers load tensors from there ("cuda"). None: from where buckets lie.
    transport: "auto" (default: shared memory, else RDMA), "shm,verbs,tcp", ..
    nic, checksums: as weft's.
    timeout_s: that a refit may stand still, and a join may take. 300 s.
    host: this host's address in the job. None: Ray's.
    shard_expert_weights: is refused: all workers get whole tensors.
    """

    shard_expert_weights = False

    def __init__(self, bucket_size: int, *, release_after_refit: bool = False, bucket_bytes: Optional[int] = None,
                 memory: Optional[str] = None, device: Optional[str] = None, transport: str = "auto", nic: Optional[str] = None,
                 checksums: bool = False, timeout_s: float = stream.UPDATE_TIMEOUT_S, host: Optional[str] = None,
                 shard_expert_weights: bool = False, **unknown: Any):
        check('refit_cfg["weft.nemo:WeftCheckpointEngine"]', {
            "release_after_refit": release_after_refit, "bucket_bytes": bucket_bytes, "memory": memory, "device": device,
            "transport": transport, "nic": nic, "checksums": checksums, "timeout_s": timeout_s, "host": host}, unknown)
        if shard_expert_weights:
            raise UsageError("shard_expert_weights: weft.nemo sends whole tensors to every rollout worker, and vLLM cuts them "
                             "as it loads them: leave it out of refit_cfg")
        if bucket_bytes is not None and bucket_bytes > bucket_size:
            raise UsageError(f"refit_cfg's bucket_bytes is {bucket_bytes}, above the {bucket_size} bytes that "
                             "update_weights_bucket_memory_ratio allows: raise that, or lower this")
        self.bucket_size, self.release_after_refit = bucket_size, release_after_refit
        self._device, self._refits = device, 0
        self._bucket_bytes = bucket_bytes or min(bucket_size, stream.BUCKET_BYTES)
        self._group = Group(host=host, bucket_bytes=self._bucket_bytes, memory=memory, transport=transport, nic=nic,
                            checksums=checksums, update_timeout_s=timeout_s, join_timeout_s=timeout_s,
                            controller_options={"join_timeout_s": timeout_s, "update_timeout_s": timeout_s})

    def get_target_weight_layout(self) -> Optional[dict[str, Any]]:
        """None: whole tensors."""
        return None

    # ---- topology

    def prepare(self) -> dict[str, Any]:
        return {"weft": self._group.offer()}

    def init_policy_process_group(self, *, worker_rank: int, train_world_size: int, rollout_world_size: int,
                                  metadata: list[Any]) -> None:
        self._join("trainer", worker_rank, train_world_size, rollout_world_size, metadata)

    def init_rollout_process_group(self, *, rollout_rank: int, train_world_size: int, rollout_world_size: int,
                                   metadata: list[Any]) -> None:
        self._join("receiver", rollout_rank, train_world_size, rollout_world_size, metadata)

    def _join(self, role: str, rank: int, world: int, receivers: int, metadata: list[Any]) -> None:
        if len(metadata) != world + receivers:
            raise UsageError(f"metadata of {len(metadata)} workers came, of {world} policy and {receivers} rollout workers: "
                             "prepare must be called on each")
        first = metadata[0]
        if not isinstance(first, dict) or "weft" not in first:
            raise UsageError(f"policy worker 0 did not prepare weft's engine: its metadata is {type(first).__name__}; all workers "
                             "need the same refit_transport")
        self._group.join(first["weft"], role, rank, world, receivers)
        self._refits = 0
        logger.info("[weft refit] %s %d joined: %d policy workers, %d rollout workers, bucket=%.2fMiB", role, rank, world,
                    receivers, self._bucket_bytes / (1 << 20))

    def finalize(self) -> None:
        self._group.close()

    # ---- weights

    async def send_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        self._refits += 1
        figures = await self._group.sender.send_async(weights, self._refits)
        self._log("Sent", figures)

    async def receive_weight_batches(self) -> AsyncGenerator[Batch, None]:
        """Tensors of a list lie in the bucket, unless they have a device of their own: good until the next list."""
        self._refits += 1
        receiver = self._group.receiver
        batches = receiver.batches_async(self._refits, device=self._device)
        try:
            async for batch in batches:
                yield batch
        finally:
            await batches.aclose()
        self._log("Received", receiver.figures)

    def _log(self, what: str, figures: Optional[stream.Figures]) -> None:
        """As NeMo-RL's own engine and vLLM workers have it."""
        joined = self._group.joined
        if joined is not None and figures is not None:
            logger.info("[weft refit] %s %d: %s %d tensors in %d batches; bytes=%.2fGiB total=%.2fs bandwidth=%.2fGB/s "
                        "moved=%.2fGiB", *joined[1:3], what, figures.tensors, figures.buckets, figures.bytes / (1 << 30),
                        figures.seconds, figures.gigabytes_per_s, figures.moved_bytes / (1 << 30))

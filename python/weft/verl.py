# SPDX-License-Identifier: Apache-2.0
"""verl's weights by weft: a checkpoint engine that verl finds by its own configuration, without a change to it.

::

    actor_rollout_ref.rollout.checkpoint_engine.backend=weft
    actor_rollout_ref.rollout.checkpoint_engine.custom_backend_module=weft.verl

verl's manager calls, for each update of weights, on all actors and rollout workers:

    prepare()            every worker says in which job it is; actor 0 also where it would start a controller, with a key
    build_topology()     on the driver: the same workers in the same job: on with it; otherwise a new one, as actor 0 offers
    init_process_group() joins that, or has nothing to do
    send_weights()       ALL actors send, each its share of every bucket (weft.stream) │ receive_weights(): rollout workers
    finalize()           keeps the job for the next update (rebuild_group=True: leaves it)

A failed update ends the job for all, with who and why; the next prepare begins a new one.
"""
from __future__ import annotations

import logging
import os
from typing import Any, AsyncGenerator, AsyncIterable, Iterable, Optional, Union

import torch
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry

from weft import StateError, UsageError, stream
from weft.stream._group import Group
from weft.stream._options import check

logger = logging.getLogger(__name__)
logger.setLevel(os.getenv("VERL_LOGGING_LEVEL", "INFO"))

Weights = Union[Iterable[tuple[str, torch.Tensor]], AsyncIterable[tuple[str, torch.Tensor]]]


@CheckpointEngineRegistry.register("weft")
class WeftCheckpointEngine(CheckpointEngine):  # type: ignore[misc]  # verl may not be there when this is checked
    """Args, of which all but the first two are checkpoint_engine.engine_kwargs.weft:

    bucket_size: update_weights_bucket_megabytes in bytes: what may be taken for one bucket (two are kept).
    is_master: actor 0, says verl.
    bucket_bytes: of weft's own buckets. None: 256 MiB, or bucket_size where that is less. A stream's last bucket moves whole, so
        a smaller one wastes less at the end.
    memory: where buckets lie: "host" (default), "cuda".
    device: rollout workers hand on tensors there ("cuda"). None: where buckets lie.
    transport: "auto" (default: shared memory, else RDMA), "shm,verbs,tcp", ..
    nic, checksums: as weft's.
    rebuild_group: leave the job at finalize, and free its memory; the next update joins anew.
    timeout_s: that an update may stand still, and a join may take. 300 s.
    host: this host's address in the job. None: Ray's.
    """

    wire_format = "named_tensors"

    def __init__(self, bucket_size: int, is_master: bool = False, *, bucket_bytes: Optional[int] = None,
                 memory: Optional[str] = None, device: Optional[str] = None, transport: str = "auto", nic: Optional[str] = None,
                 checksums: bool = False, rebuild_group: bool = False, timeout_s: float = stream.UPDATE_TIMEOUT_S,
                 host: Optional[str] = None, **unknown: Any):
        check("checkpoint_engine.engine_kwargs.weft", {
            "bucket_bytes": bucket_bytes, "memory": memory, "device": device, "transport": transport, "nic": nic,
            "checksums": checksums, "rebuild_group": rebuild_group, "timeout_s": timeout_s, "host": host}, unknown)
        self.bucket_size, self.is_master, self.rebuild_group = bucket_size, is_master, rebuild_group
        if bucket_bytes is not None and bucket_bytes > bucket_size:
            raise UsageError(f"engine_kwargs.weft.bucket_bytes is {bucket_bytes}, above checkpoint_engine."
                             f"update_weights_bucket_megabytes ({bucket_size} bytes): raise that, or lower this")
        self._device = device
        self._group = Group(host=host, bucket_bytes=bucket_bytes or min(bucket_size, stream.BUCKET_BYTES), memory=memory,
                            transport=transport, nic=nic, checksums=checksums, update_timeout_s=timeout_s,
                            join_timeout_s=timeout_s,
                            controller_options={"join_timeout_s": timeout_s, "update_timeout_s": timeout_s})

    # ---- topology

    def prepare(self) -> dict[str, Any]:
        return {"standing": self._group.standing, "offer": self._group.offer() if self.is_master else None}

    @classmethod
    def build_topology(cls, actor_wg_world_size: int, rollout_world_size: int,
                       metadata: list[dict[str, Any]]) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        world, receivers = actor_wg_world_size, rollout_world_size
        if len(metadata) != world + receivers:
            raise UsageError(f"metadata of {len(metadata)} workers came, of {world} actors and {receivers} rollout workers: "
                             "prepare must be called on each")
        seats = [("trainer", rank) for rank in range(world)] + [("receiver", rank) for rank in range(receivers)]
        offer = metadata[0]["offer"]
        if offer is None:
            raise UsageError("the first of metadata is not the master's: actor 0 must be made with is_master=True, and come first")
        job = (metadata[0]["standing"] or (None,))[0]
        stands = job is not None and all(said["standing"] is not None and tuple(said["standing"]) == (job, *seat, world, receivers)
                                         for said, seat in zip(metadata, seats))
        kwargs = [{"role": role, "rank": rank, "world": world, "receivers": receivers, "job": job if stands else offer["job"],
                   "offer": None if stands else offer} for role, rank in seats]
        return _lists(kwargs[:world]), _lists(kwargs[world:])

    def init_process_group(self, *, role: str, rank: int, world: int, receivers: int, job: str,
                           offer: Optional[dict[str, Any]]) -> None:
        here = job, role, rank, world, receivers
        if offer is None:
            if self._group.standing != here:
                raise StateError(f"{role} {rank} is to go on in job {job}, and is in {self._group.standing or 'none'}: "
                                 "build_topology must follow a prepare of all workers")
            return
        self._group.join(offer, role, rank, world, receivers)
        logger.info("Rank %s %d init_process_group done, trainers: %d, rollouts: %d, controller: %s", role, rank, world, receivers,
                    offer["controller"])

    def finalize(self) -> None:
        if self.rebuild_group:
            self._group.close()

    # ---- weights

    async def send_weights(self, weights: Weights, global_steps: Optional[int] = None) -> dict[str, float]:
        """Metrics of the update, which verl (0.9 and later) logs with the trainer's."""
        figures = await self._group.sender.send_async(weights, global_steps)
        self._log("send_weights", figures)
        return {"checkpoint_engine/payload_mbytes": figures.bytes / (1 << 20), "checkpoint_engine/buckets": float(figures.buckets),
                "checkpoint_engine/time_cost_s": figures.seconds, "checkpoint_engine/gigabytes_per_s": figures.gigabytes_per_s}

    async def receive_weights(self, global_steps: Optional[int] = None) -> AsyncGenerator[tuple[str, torch.Tensor], None]:
        """Each tensor has memory of its own: rollouts gather up to update_weights_bucket_megabytes of them before they load."""
        receiver = self._group.receiver
        tensors = receiver.receive_async(global_steps, own=True, device=self._device)
        try:
            async for item in tensors:
                yield item
        finally:
            await tensors.aclose()
        self._log("receive_weights", receiver.figures)

    def _log(self, what: str, figures: Optional[stream.Figures]) -> None:
        joined = self._group.joined
        if joined is not None and figures is not None:
            logger.info("Rank %s %d %s done, global_steps: %s, trainers: %d, rollouts: %d, %s, moved here: %d bytes", *joined[1:3],
                        what, figures.step, *joined[3:], figures, figures.moved_bytes)


def _lists(kwargs: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """One entry a worker, as verl hands them out."""
    return {name: [one[name] for one in kwargs] for name in kwargs[0]} if kwargs else {}

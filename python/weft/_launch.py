# SPDX-License-Identifier: Apache-2.0
"""Who am I: what a launcher's variables say (torchrun, MPI, Slurm, Kubernetes), as the programs read them."""
from __future__ import annotations

from typing import NamedTuple, Optional

from weft._errors import failed, slot
from weft._library import ffi, lib, text
from weft._structs import sized


class Launch(NamedTuple):
    """weft_launch of weft.h.

    Attributes:
        rank: among all workers of the launch.
        world: how many; -1: unknown.
        local_rank: on this host; -1: unknown.
        restart_count: 0 unless the launcher says.
        controller: "tcp://host:port", "" when nothing says.
        starts_controller: controller was "auto", and this is rank 0, which starts it (Controller.of_launch).
        key_file: the job's key, "" without.
        key_waits: rank 0 makes the key; the file comes with it.
        rank_source: where the rank is from, "RANK".
        controller_source: where the controller's address is from.
    """
    rank: int
    world: int
    local_rank: int
    restart_count: int
    controller: str
    starts_controller: bool
    key_file: str
    key_waits: bool
    rank_source: str
    controller_source: str


def launch_find(rank: Optional[int] = None, world: Optional[int] = None, controller: Optional[str] = None) -> Launch:
    """What is given here, then WEFT_*, torchrun's, PET_*, MPI's, PMI's, Slurm's and Kubernetes' variables.

    Raises:
        ConfigError: two of them disagree; both are named.
    """
    launch = sized("weft_launch")
    launch.rank = -1 if rank is None else rank
    launch.world = -1 if world is None else world
    if controller is not None:
        ffi.memmove(launch.controller, controller.encode()[:255] + b"\0", min(len(controller.encode()), 255) + 1)
    rc = lib.weft_launch_find(launch, slot.error)
    if rc < 0:
        raise failed(rc, slot.error)
    return Launch(launch.rank, launch.world, launch.local_rank, launch.restart_count, text(launch.controller),
                  bool(launch.start_controller), text(launch.key_file), bool(launch.key_waits), text(launch.rank_source),
                  text(launch.controller_source))

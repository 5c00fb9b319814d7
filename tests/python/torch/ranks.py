# SPDX-License-Identifier: Apache-2.0
"""Ranks as forked processes. Of torch's "fake" group they communicate with nobody, and where a rank stands is kept from
the first time that it is asked for, so each has a process of its own. Loading takes seconds, a fork a tenth of one."""
import os
import pickle
import sys
import warnings

import torch
import torch._dynamo  # noqa: F401  of some use or other in every rank, and slow to load
import torch.distributed as dist
import torch.distributed.fsdp
import torch.distributed.tensor.parallel  # noqa: F401  as above
from torch.testing._internal.distributed.fake_pg import FakeStore


def _child(function, rank, world, pipe, group):
    try:
        torch.set_num_threads(1)
        warnings.filterwarnings("ignore")
        group(rank, world)
        with os.fdopen(pipe, "wb") as out:
            pickle.dump(function(rank), out)
        sys.stdout.flush()
        os._exit(0)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(1)


def fake(rank, world):
    """Everybody is there, and what is received is whatever lay there."""
    dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())


def alone(rank, world):
    """No group at all."""


def gloo(folder):
    """A real group, that meets in a file."""
    def init(rank, world):
        dist.init_process_group("gloo", rank=rank, world_size=world,
                                store=dist.FileStore(str(folder / "store"), world))
    return init


def started(world, function, group=fake):
    """Starts the ranks: [(process, pipe)]."""
    processes = []
    for rank in range(world):
        reader, writer = os.pipe()
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            os.close(reader)
            _child(function, rank, world, writer, group)
        os.close(writer)
        processes.append((child, reader))
    return processes


def finished(processes, what="rank"):
    """What each rank returned."""
    results, failed = [], []
    for number, (child, reader) in enumerate(processes):
        with os.fdopen(reader, "rb") as pipe:
            data = pipe.read()
        _, status = os.waitpid(child, 0)
        if status:
            failed.append(number)
        else:
            results.append(pickle.loads(data))
    assert not failed, f"{what} {failed} failed: its trace is on standard error"
    return results


def each_rank(world, function, group=fake):
    """``function(rank)`` in a process for each rank: what they return. Two at a time, where they need not meet."""
    if group not in (fake, alone):
        return finished(started(world, function, group))
    results = []
    for first in range(0, world, 2):
        some = range(first, min(first + 2, world))
        results += finished(started(len(some), lambda number, first=first: function(first + number),
                                    lambda number, _, first=first: group(first + number, world)))
    return results

# SPDX-License-Identifier: Apache-2.0
"""Ranks as processes, forked when everything is loaded: ranks of torch's "fake" group communicate with nobody, and
where a rank stands is kept from the first time that it is asked for. Loading takes seconds, a rank a tenth of one."""
import gc
import json
import os
import pathlib
import pickle
import sys
import warnings

import torch
import torch._dynamo  # noqa: F401: of some use or other in every rank, and slow to load
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore


def one_rank(case, rank, hold, out):
    try:
        torch.set_num_threads(1)
        dist.init_process_group("fake", rank=rank, world_size=case["world"], store=FakeStore())
        out.write_bytes(pickle.dumps(hold(case)))
        os._exit(0)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(1)


def reap(running):
    child, status = os.wait()
    running.remove(child)
    if status:
        sys.exit(1)


def each_rank(hold, cases, out):
    """Of each case (JSON, a list of objects with `world`) and rank: what `hold` returns in it, as OUT/{case}.{rank}, a
    pickle."""
    warnings.filterwarnings("ignore")
    gc.freeze()  # what is loaded stays shared
    running = set()
    for number, case in enumerate(json.loads(pathlib.Path(cases).read_text())):
        for rank in range(case["world"]):
            if len(running) >= len(os.sched_getaffinity(0)):
                reap(running)
            child = os.fork()
            if child == 0:
                one_rank(case, rank, hold, pathlib.Path(out) / f"{number}.{rank}")
            running.add(child)
    while running:
        reap(running)

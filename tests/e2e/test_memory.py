# SPDX-License-Identifier: Apache-2.0
"""A trainer's memory: its tensors, or its shard of them, the ring and little else."""
import json
import math
import pathlib
import re
import subprocess
import time

import pytest

import job as jobs


@pytest.mark.skipif(jobs.BIN.name != "release", reason="sanitizers keep memory that was freed")
def test_trainer_of_a_published_run__has_little_beside_its_ring():
    ring = 64 << 20
    done = subprocess.run([jobs.BIN / "tests" / "bench_replica", "--ring-mib", "64", "Moonlight"],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert rows
    for row in rows:
        assert row["ring_bytes"] == ring
        assert row["peak_extra_bytes"] > ring
        assert row["beyond_ring_bytes"] <= 64 << 20


def resident_bytes(process, kinds):
    """None when it has ended."""
    try:
        status = pathlib.Path(f"/proc/{process.popen.pid}/status").read_text()
    except OSError:
        return None
    found = [re.search(rf"{kind}:\s+(\d+) kB", status) for kind in kinds]
    return sum(int(match[1]) << 10 for match in found) if all(found) else None


def shard_bytes(model, train, rank):
    held = jobs.weft("model", "holding", model, "--train", train, "--rank", rank, "--json").stdout.splitlines()
    boxes = [json.loads(line) for line in held]
    return sum(2 * math.prod(hi - lo for lo, hi in zip(box["lo"], box["hi"], strict=True)) for box in boxes)  # bf16


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """216 MB, nearly all of it experts."""
    return jobs.make_model(tmp_path_factory.mktemp("large"), "qwen3-moe", num_hidden_layers=4, num_experts=16,
                           hidden_size=512, moe_intermediate_size=1088)


# The first packs into the engine's memory, which is what it shares; the second has the ring as shared memory, and no other.
@pytest.mark.skipif(jobs.BIN.name != "release", reason="sanitizers keep memory that was freed")
@pytest.mark.parametrize("flags,kinds", [((), ["RssAnon"]), (("--own-memory",), ["RssAnon", "RssShmem"])],
                         ids=["mapped", "own-memory"])
def test_trainer_as_it_is_cut__has_its_shard_the_ring_and_little_else(tmp_path, large, flags, kinds):
    train, ring, little, most = "world=4,source=megatron,tp=2,pp=2,ep=2,etp=1", 16 << 20, 16 << 20, {}
    with jobs.Job(tmp_path, large, train, "engines=1,tp=2,ep=2,dtype=F16") as job:
        job.controller()
        job.workers(updates=20, trainer_flags=("--ring-bytes", "16M"), inference_flags=flags)
        trainers = [job.processes[f"trainer-{rank}"] for rank in range(4)]
        updated = set()  # those that were looked at between two updates or later
        deadline = time.monotonic() + 60
        while any(trainer.code is None for trainer in trainers):
            assert time.monotonic() < deadline, job.said()
            for rank, trainer in enumerate(trainers):
                been = bool(trainer.updates())
                seen = resident_bytes(trainer, kinds)
                if seen:
                    most[rank] = max(most.get(rank, 0), seen)
                    updated |= {rank} if been else set()
            time.sleep(0.002)
        job.succeed()
    shards = [shard_bytes(large, train, rank) for rank in range(4)]
    assert updated == {0, 1, 2, 3}
    for rank, shard in enumerate(shards):
        stage = shards[rank] + shards[rank ^ 1]
        assert shard + ring + little < stage  # whoever gathers is found
        used = ring if flags else 0
        assert shard + used <= most[rank] <= shard + used + little, (rank, shard, most[rank])

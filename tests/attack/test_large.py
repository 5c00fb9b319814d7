# SPDX-License-Identifier: Apache-2.0
"""Messages that need many frames, members that do not read them, and strangers who say that they have one."""
import re
import struct
import time

import pytest

import job as jobs
from stranger import Dealer, Proxy, Wire

TRAIN, INFER = "world=2,source=gathered", "engines=1,tp=2"


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """5,000 small tensors: a plan of some hundred KiB."""
    return jobs.make_model(tmp_path_factory.mktemp("wide"), "qwen3-moe", num_hidden_layers=50, num_experts=32,
                           hidden_size=8, moe_intermediate_size=8, num_attention_heads=2, num_key_value_heads=2,
                           head_dim=4)


def memory_kib(process, what="VmRSS"):
    return int(re.search(rf"{what}:\s+(\d+) kB", open(f"/proc/{process.popen.pid}/status").read()).group(1))


def until(seen, seconds=20):
    deadline = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("keyed", [False, True])
def test_job__of_large_messages_runs(tmp_path, wide, keyed):
    key = []
    if keyed:
        jobs.weft("key", "make", tmp_path / "key")
        key = ["--key", tmp_path / "key"]
    with jobs.Job(tmp_path, wide, TRAIN, INFER) as job:
        controller = job.controller(*key, env={"WEFT_LOG": "debug"})
        job.workers(*key, "--verify")
        job.succeed()
        sizes = [int(found) for found in re.findall(r"plan \((\d+) bytes\)", controller.stderr)]
        assert max(sizes) > 100000, sizes


def test_part__of_a_stranger_is_refused(tmp_path, model):
    with jobs.Job(tmp_path, model, TRAIN, INFER) as job:
        controller = job.controller()
        before = memory_kib(controller)
        head = b"\xc1" + struct.pack("<III", 1, 60 << 20, 0)
        with Dealer(job.address) as stranger:
            for number in range(1000):
                stranger.send(head + bytes(16000))
            assert stranger.receive() is None
        with Wire(job.address) as stranger:  # and a frame above all limits ends the connection
            stranger.send(bytes(20000))
            assert stranger.is_closed()
        assert memory_kib(controller) - before < 32 << 10
        job.workers()
        job.succeed()


def test_member__that_does_not_read_costs_one_plan(tmp_path, wide):
    """A member asks for its plan again and again and reads nothing: what it is sent is kept once."""
    asks = []

    def count(frame):
        if b"declare" in frame[:32]:
            asks.append(frame)
            return [frame] * (1 if proxy.reads.is_set() else 30)
        return [frame]

    with jobs.Job(tmp_path, wide, TRAIN, INFER) as job:
        controller = job.controller("--lost-after", "60s", "--exchange-timeout", "60s")
        direct, proxy = job.address, Proxy(job.address, count)
        job.address = proxy.address
        job.worker("inference", 0)
        until(lambda: "inference 0" in controller.stderr and "declares" in controller.stderr)
        time.sleep(1)
        proxy.reads.clear()
        job.address = direct
        for role, rank in (("trainer", 0), ("trainer", 1), ("inference", 1)):
            job.worker(role, rank)
        until(lambda: "plan of epoch" in controller.stderr)
        time.sleep(0.3)
        before, asked = memory_kib(controller), len(asks)
        until(lambda: len(asks) >= asked + 6)
        assert memory_kib(controller) - before < 3 << 10, (before, memory_kib(controller))
        proxy.reads.set()
        job.succeed()
        proxy.close()

# SPDX-License-Identifier: Apache-2.0
"""Trainers that are late, and others that send their pieces in their place (weft-controller --hedge, docs/living.md)."""
import os
import re
import signal
import time

import job as jobs
import pytest
from test_on_loss import INFER, TCP, until

GATHERED = "world=3,source=gathered"
MOCK = {"WEFT_CUDA_MOCK": "devices=2,order=late"}
WAYS = {"shm": [], "tcp": TCP, "list": ["--transport", "shm,tcp", "--nic", "lo"], "registered": ["--register-sources"]}
SOME = WAYS if os.environ.get("WEFT_SOAK") else ["shm", "tcp"]
LATE = "is late with update"
HEDGE = ("--hedge", "200ms", "--lost-after", "30s")


def begin(job, *flags, inference=("--shadow",), updates=4, interval="700ms", controller=HEDGE, env=None):
    job.controller(*controller)
    for rank in range(3):
        job.worker("trainer", rank, "--interval", interval, *flags, updates=updates, env=env)
    for rank in range(6):
        job.worker("inference", rank, "--verify", *inference, *flags, updates=updates, env=env)
    until(lambda: all(job.processes[f"inference-{rank}"].updates() for rank in range(6)), job)


def shown(job, rank):
    return max((update["version"] for update in job.processes[f"inference-{rank}"].updates()), default=0)


def all_is_right(job, updates, killed=()):
    codes = job.wait(90)
    assert {code for name, code in codes.items() if name not in killed} == {0}, f"{codes}\n{job.said()}"
    want = jobs.expected(job.model, job.infer)
    for rank in range(6):
        assert job.digests(rank) == {version: want.digests(version)[rank % want.tp] for version in range(1, updates + 1)}, job.said()


def said(job):
    return "".join(job.processes[f"trainer-{rank}"].stderr for rank in range(3))


@pytest.mark.parametrize("inference", [["--shadow"], []], ids=["shadow", "in place"])
@pytest.mark.parametrize("way", SOME)
def test_version__of_a_trainer_that_is_stopped_is_shown_without_it(tmp_path, models, way, inference):
    with jobs.Job(tmp_path, models["qwen2"], GATHERED, INFER) as job:
        begin(job, *WAYS[way], inference=inference)
        job.kill("trainer-1", signal.SIGSTOP)
        late = re.compile(f"trainer 1 {LATE} ([0-9]+)")
        until(lambda: late.search(job.processes["trainer-2"].stderr), job)
        version = int(late.search(job.processes["trainer-2"].stderr)[1])
        until(lambda: all(shown(job, rank) >= version for rank in range(6)), job)
        time.sleep(1)
        assert all(shown(job, rank) == version for rank in range(6)), job.said()  # the next one waits for it
        job.kill("trainer-1", signal.SIGCONT)
        all_is_right(job, 4)
    assert not jobs.leftovers()


@pytest.mark.parametrize("flags, env", [(["--transport", "cuda", "--memory", "cuda"], MOCK), (["--transport", "tcp", "--nic", "lo", "--memory", "cuda"], MOCK)],
                         ids=["mapped", "landed"])
def test_version__of_gpus_is_shown_without_who_is_stopped(tmp_path, models, flags, env):
    with jobs.Job(tmp_path, models["qwen2"], GATHERED, INFER) as job:
        begin(job, *flags, inference=[], env=env)
        job.kill("trainer-0", signal.SIGSTOP)
        until(lambda: f"trainer 0 {LATE}" in said(job), job)
        seen = max(shown(job, rank) for rank in range(6))
        until(lambda: all(shown(job, rank) >= seen for rank in range(6)), job)
        job.kill("trainer-0", signal.SIGCONT)
        all_is_right(job, 4)
    assert not jobs.leftovers()


@pytest.mark.parametrize("way", SOME)
def test_version__of_a_trainer_that_is_lost_is_shown_by_all(tmp_path, models, way):
    """Without --hedge it is given up, and sent once more, if trainers ask for that."""
    updates = 60
    with jobs.Job(tmp_path, models["qwen2"], GATHERED, INFER) as job:
        begin(job, *WAYS[way], updates=updates, interval="20ms", controller=("--hedge", "5s", "--on-loss", "continue"))
        until(lambda: shown(job, 0) > 10, job)
        job.kill("trainer-1")
        all_is_right(job, updates, killed=["trainer-1"])
    assert not jobs.leftovers()


@pytest.mark.parametrize("commit", ["job", "rank"])
def test_trainers__that_are_late_in_turn_lose_no_version_and_no_byte(tmp_path, models, commit):
    updates = 40
    with jobs.Job(tmp_path, models["qwen2"], GATHERED, INFER) as job:
        begin(job, "--transport", "shm,tcp", "--nic", "lo", updates=updates, interval="30ms", controller=("--hedge", "10ms", "--commit", commit))
        for turn in range(12):
            job.kill(f"trainer-{turn % 3}", signal.SIGSTOP)
            time.sleep(0.08)
            job.kill(f"trainer-{turn % 3}", signal.SIGCONT)
            time.sleep(0.03)
        all_is_right(job, updates)
        assert LATE in said(job)
    assert not jobs.leftovers()


def test_hedge__says_for_whom_nobody_can_stand_in(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], "world=2,fsdp=2,source=sharded", "engines=1,tp=2") as job:
        controller = job.controller("--hedge", "1s")
        job.workers()
        job.succeed()
        assert "for 2 of 2 trainers nobody can stand in (--hedge)" in controller.stderr
    with jobs.Job(tmp_path, models["qwen2"], "world=2,source=gathered", "engines=1,tp=2") as job:
        controller = job.controller("--hedge", "1s")
        job.workers("--replica", "full")
        job.succeed()
        assert "for 2 of 2 trainers nobody can stand in (--hedge)" in controller.stderr


@pytest.mark.parametrize("flags, says", [(["--hedge", "1s", "--delta"], "--hedge does not go with --delta"),
                                         (["--hedge", "60s"], "--hedge 60000 ms is not less than half of --update-timeout 60000 ms"),
                                         (["--hedge", "1s", "--sessions-max", "2"], "--hedge does not go with --sessions-max"),
                                         (["--hedge", "soon"], "--hedge: 'soon' is no time")])
def test_hedge__that_cannot_be_is_refused(flags, says):
    done = jobs.weft("--train", "world=2,source=gathered", "--infer", "engines=1,tp=2", *flags, check=False, program=jobs.CONTROLLER)
    assert done.returncode in (2, 78) and says in done.stderr, done.stderr

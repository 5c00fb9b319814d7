# SPDX-License-Identifier: Apache-2.0
"""Trainers that are lost to a job that goes on, and others that come in their place (--on-loss continue, docs/living.md)."""
import json
import os
import shutil
import signal
import subprocess
import time

import job as jobs
import pytest
from test_on_loss import INFER, TCP, until

GATHERED, SHARDED = "world=2,source=gathered", "world=2,fsdp=2,source=sharded"  # each holds all; each a part
WAYS = {"shm": [], "tcp": TCP, "full": ["--replica", "full", "--checksums"], "list": ["--transport", "shm,tcp", "--nic", "lo"]}
SOAK = bool(os.environ.get("WEFT_SOAK"))
SOME = WAYS if SOAK else ["shm", "tcp"]
UPDATES, GIVEN_UP = 150, 3  # at most, of each loss: the version that it was sending, and what the others begin before they hear of it


def begin(job, *flags, controller=(), inference=("--shadow",)):
    job.controller("--on-loss", "continue", *controller)
    for rank in range(2):
        job.worker("trainer", rank, "--interval", "20ms", *flags, updates=UPDATES)
    for rank in range(6):
        job.worker("inference", rank, "--verify", *inference, *flags, updates=UPDATES)
    until(lambda: len(job.processes["inference-2"].updates()) > 2, job)


def come_back(job, *flags, ranks=(1,), again=""):
    for rank in ranks:
        job.worker("trainer", rank, "--interval", "20ms", *flags, updates=UPDATES, name=f"again{again}-{rank}")


def leaves(job, rank=1):
    until(lambda: f"trainer {rank} leaves, the job goes on with" in job.processes["controller"].stderr, job)


def all_is_right(job, lost=1, killed=("trainer-1",)):
    """Everybody else ends well, at the last version, and no engine's ranks have different ones, or wrong bytes."""
    codes = job.wait(120)
    for name, code in codes.items():
        if name not in killed:
            assert code == 0, f"{name}: {code}\n{job.said()}"
    want = jobs.expected(job.model, job.infer)
    for rank in range(6):
        got = job.digests(rank)
        assert set(got) == set(job.digests(rank // 2 * 2)), job.said()
        assert max(got) == UPDATES and UPDATES - len(got) <= GIVEN_UP * lost, (sorted(got), job.said())
        for version in (1, sorted(got)[len(got) // 2], UPDATES):
            assert got[version] == want.digests(version)[rank % want.tp]


@pytest.mark.parametrize("way", WAYS)
def test_trainer__whose_part_others_hold_is_gone_on_without(tmp_path, models, way):
    with jobs.Job(tmp_path, models["qwen2"], GATHERED, INFER) as job:
        begin(job, *WAYS[way])
        job.kill("trainer-1")
        all_is_right(job)
        assert "3 of 3 engines and 1 of 2 trainers are here from version" in job.processes["controller"].stderr
        assert "engines that were lost: 0 of 3, trainers: 1 of 2" in job.processes["controller"].stderr
    assert not jobs.leftovers()


def diff(job, *files):
    done = subprocess.run([jobs.CONTROLLER.parent / "weft", "route", "diff", "--json", *files], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    return json.loads(done.stdout)


def test_plan__that_follows_another_moves_what_it_has_to_and_another_controller_makes_its_own(tmp_path, models):
    flags = ["--on-loss", "continue", "--orphan", "60s", "--heartbeat", "200ms", "--lost-after", "2s"]
    plans = [tmp_path / f"plan{number}.json" for number in range(3)]
    with jobs.Job(tmp_path, models["qwen2"], "world=3,source=gathered", INFER) as job:
        def saved(number, who):
            until(lambda: f"3 of 3 engines {who}are here from version" in controller.stderr, job)
            shutil.copy(tmp_path / "plan.json", plans[number])
            return json.loads(plans[number].read_text())

        controller = job.controller(*flags, "--dump", tmp_path / "plan.json")
        for rank in range(3):
            job.worker("trainer", rank, "--interval", "60ms", updates=UPDATES)
        for rank in range(6):
            job.worker("inference", rank, "--verify", "--shadow", updates=UPDATES)
        until(lambda: len(job.processes["inference-2"].updates()) > 2, job)
        shutil.copy(tmp_path / "plan.json", plans[0])
        before = json.loads(plans[0].read_text())["summary"]["trainer_bytes"]
        assert "moved" not in json.loads(plans[0].read_text())
        job.kill("trainer-1")
        lost = saved(1, "and 2 of 3 trainers ")
        assert lost["moved"]["bytes"] == diff(job, plans[0], plans[1])["moved_bytes"] == before[1]
        come_back(job)
        back = saved(2, "")
        assert back["moved"]["bytes"] == diff(job, plans[1], plans[2])["moved_bytes"] == back["summary"]["trainer_bytes"][1]
        assert max(back["summary"]["trainer_bytes"]) <= 1.01 * max(before)
        job.kill("controller")
        job.wait(10, names=["controller"])
        controller = job.controller(*flags, bind=job.address, name="other")
        until(lambda: "so it pauses for one of those who are here" in controller.stderr, job)
        until(lambda: "3 of 3 engines are here from version" in controller.stderr, job)
        all_is_right(job, killed=("trainer-1", "controller"))
    assert not jobs.leftovers()


@pytest.mark.parametrize("way, inference", [(way, inference) for k, way in enumerate(WAYS) for i, inference in enumerate((["--shadow"], []))
                                            if SOAK or (k + i) % 2 == 0])
def test_version__that_a_lost_trainer_has_not_sent_is_sent_once_more_by_the_others(tmp_path, models, way, inference):
    last = 4
    with jobs.Job(tmp_path, models["qwen2"], "world=3,source=gathered", INFER) as job:
        job.controller("--on-loss", "continue")
        for rank in range(3):
            job.worker("trainer", rank, "--interval", "3s", "--repeat", *WAYS[way], updates=last)
        for rank in range(6):
            job.worker("inference", rank, "--verify", *inference, *WAYS[way], updates=last)
        until(lambda: all(job.processes[f"inference-{rank}"].updates() for rank in range(6)), job)
        job.kill("trainer-1", signal.SIGSTOP)
        until(lambda: all(len(job.processes[f"trainer-{rank}"].updates()) == 2 for rank in (0, 2)), job)
        job.kill("trainer-1")
        codes = job.wait(60)
        assert codes.pop("trainer-1") == -9 and set(codes.values()) == {0}, f"{codes}\n{job.said()}"
        assert "from version 3 on; who lacks version 2 is sent it before, once more" in job.processes["controller"].stderr, job.said()
        want = jobs.expected(job.model, job.infer)
        for rank in range(6):
            assert job.digests(rank) == {version: want.digests(version)[rank % 2] for version in range(1, last + 1)}, job.said()
        for rank in (0, 2):
            assert [update["version"] for update in job.processes[f"trainer-{rank}"].updates()] == [1, 2, 2, 3, 4]
    assert not jobs.leftovers()


@pytest.mark.parametrize("way", SOME)
def test_trainer__that_begins_what_some_ranks_have_given_up_goes_on_with_the_others(tmp_path, models, way):
    """It is no fault of its own that it is slow when another one is lost."""
    with jobs.Job(tmp_path, models["qwen2"], "world=3,source=gathered", INFER) as job:
        job.controller("--on-loss", "continue")
        for rank in range(3):
            job.worker("trainer", rank, "--interval", "50ms", *WAYS[way], updates=UPDATES)
        for rank in range(6):
            job.worker("inference", rank, "--verify", "--shadow", *WAYS[way], updates=UPDATES)
        until(lambda: all(job.processes[f"inference-{rank}"].updates() for rank in range(6)), job)
        for rank in (1, 2):
            job.kill(f"trainer-{rank}", signal.SIGSTOP)
        done = [len(job.processes[f"trainer-{rank}"].updates()) for rank in (1, 2)]
        until(lambda: len(job.processes["trainer-0"].updates()) > max(done), job)
        job.kill("trainer-1")
        until(lambda: any("was given up" in job.processes[f"inference-{rank}"].stderr for rank in range(6)), job)
        time.sleep(0.5)  # they wait for the next one
        job.kill("trainer-2", signal.SIGCONT)
        all_is_right(job)
    assert not jobs.leftovers()


@pytest.mark.parametrize("way", SOME)
def test_trainer__that_holds_what_nobody_else_does_is_waited_for_and_replaced(tmp_path, models, way):
    with jobs.Job(tmp_path, models["qwen2"], SHARDED, INFER) as job:
        begin(job, *WAYS[way])
        job.kill("trainer-1")
        until(lambda: "waiting for another process for the rank of trainer 1, 120.0 s at most (--join-timeout): without it, " in
              job.processes["controller"].stderr, job)
        come_back(job, *WAYS[way])
        all_is_right(job)
        assert "3 of 3 engines are here from version" in job.processes["controller"].stderr
    assert not jobs.leftovers()


@pytest.mark.parametrize("inference", [[], ["--own-memory"]], ids=["in place", "own memory"])
def test_trainer__is_replaced_whatever_the_ranks_memory_is(tmp_path, models, inference):
    with jobs.Job(tmp_path, models["qwen2"], SHARDED, INFER) as job:
        begin(job, inference=inference)
        job.kill("trainer-0")
        come_back(job, ranks=[0])
        all_is_right(job, killed=["trainer-0"])
    assert not jobs.leftovers()


def test_trainers__that_are_all_replaced_go_on_after_the_last_version(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], SHARDED, INFER) as job:
        begin(job)
        job.kill("trainer-0")
        job.kill("trainer-1")
        leaves(job)
        come_back(job, ranks=[0, 1])
        all_is_right(job, lost=2, killed=["trainer-0", "trainer-1"])
    assert not jobs.leftovers()


def test_trainer__that_nobody_replaces_ends_the_job_with_its_name(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], SHARDED, INFER) as job:
        begin(job, controller=["--join-timeout", "3s"])
        job.kill("trainer-1")
        codes = job.wait(30)
        assert {code for name, code in codes.items() if name != "trainer-1"} == {75}, job.said()
        for name in ("controller", "trainer-0", "inference-3"):
            said = job.processes[name].stderr
            assert "no other process has come for the rank of trainer 1 for 3." in said, said
            assert "start it again, or raise --join-timeout" in said
    assert not jobs.leftovers()


def test_trainer__that_is_stopped_is_not_let_write_into_what_comes_after_it(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], GATHERED, INFER) as job:
        begin(job, *TCP, controller=["--lost-after", "2s"])
        job.kill("trainer-1", signal.SIGSTOP)
        until(lambda: "1 of 2 trainers are here" in job.processes["controller"].stderr, job, 100)
        job.kill("trainer-1", signal.SIGCONT)
        all_is_right(job)
        print(job.said()); assert job.processes["trainer-1"].code == 75 and "was lost: silent for" in job.processes["trainer-1"].stderr
    assert not jobs.leftovers()


def test_trainer__that_is_stopped_and_has_ranks_memory_mapped_is_to_be_killed(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], GATHERED, INFER) as job:
        begin(job, controller=["--lost-after", "2s"])
        job.kill("trainer-1", signal.SIGSTOP)
        leaves(job)
        job.kill("trainer-1")
        all_is_right(job)
    assert not jobs.leftovers()
    with jobs.Job(tmp_path / "unsafe", models["qwen2"], GATHERED, INFER) as job:
        begin(job, controller=["--lost-after", "2s", "--join-timeout", "4s"])
        job.kill("trainer-1", signal.SIGSTOP)
        codes = job.wait(60, [f"inference-{rank}" for rank in range(6)])
        assert 0 not in codes.values(), codes
        said = job.processes["inference-0"].stderr + job.processes["inference-1"].stderr
        assert "trainer 1" in said and "may still write into this rank's memory" in said and "kill -9" in said, said
        job.kill("trainer-1")
        job.wait(30)

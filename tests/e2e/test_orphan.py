# SPDX-License-Identifier: Apache-2.0
"""Real processes whose controller is lost while they run (weft-controller --orphan, docs/living.md)."""
import os
import signal
import time

import job as jobs
import pytest
from test_on_loss import TCP, until

TRAIN, INFER, UPDATES = "world=2,source=gathered", "engines=2,tp=2", 300
SOON = ["--heartbeat", "200ms", "--lost-after", "2s"]
ALONE = "updates go on without it"


def begin(job, *controller, flags=(), updates=UPDATES):
    job.controller(*SOON, *controller)
    job.workers("--verify", *flags, updates=updates, trainer_flags=["--interval", "25ms"])
    until(lambda: len(job.processes["inference-2"].updates()) > 2, job)


def workers(job):
    return [process for name, process in job.processes.items() if name.startswith(("trainer", "inference"))]


def all_say(job, text, seconds=20):
    until(lambda: all(text in worker.stderr for worker in workers(job)), job, seconds)


def did_all(job, ranks=range(4)):
    want = jobs.expected(job.model, job.infer)
    for rank in ranks:
        assert sorted(job.digests(rank)) == list(range(1, UPDATES + 1)), job.said()
        for version in (1, UPDATES):
            assert job.digests(rank)[version] == want.digests(version)[rank % want.tp]


@pytest.mark.parametrize("way", ["shm", *(["tcp"] if os.environ.get("WEFT_SOAK") else [])])
def test_updates__go_on_without_the_controller_and_every_worker_ends_well(tmp_path, models, way):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        begin(job, "--orphan", "60s", flags=TCP if way == "tcp" else [])
        job.kill("controller")
        all_say(job, ALONE)
        codes = job.wait(60)
        assert codes.pop("controller") == -9 and set(codes.values()) == {0}, f"{codes}\n{job.said()}"
        did_all(job)
    assert not jobs.leftovers()


def test_controller__that_wakes_up_has_its_job_back(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        begin(job, "--orphan", "60s")
        job.kill("controller", signal.SIGSTOP)
        all_say(job, ALONE)
        job.kill("controller", signal.SIGCONT)
        all_say(job, "is heard again")
        assert set(job.wait(60).values()) == {0}, job.said()
        did_all(job)
        assert "done: all have left" in job.processes["controller"].stderr


def test_orphans__end_when_their_time_is_over(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        begin(job, "--orphan", "1s", updates=10000)
        job.kill("controller")
        codes = job.wait(60)
        assert codes.pop("controller") == -9 and set(codes.values()) == {75}, f"{codes}\n{job.said()}"
        assert any("WEFT-E132" in worker.stderr and "is silent for 3." in worker.stderr for worker in workers(job)), job.said()
    assert not jobs.leftovers()


def start_other(job, *flags):
    return job.controller(*SOON, *flags, bind=job.address, name="other")


TAKEN = "takes over a job that runs"


@pytest.mark.parametrize("way, late", [("shm", False), ("tcp", True)], ids=["shm, at once", "tcp, missed"])
def test_other_controller__takes_the_job_over(tmp_path, models, way, late):
    flags = ["--orphan", "60s"]
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        begin(job, *flags, flags=TCP if way == "tcp" else [])
        job.kill("controller")
        job.wait(10, names=["controller"])
        if late:
            all_say(job, ALONE)
        other = start_other(job, *flags)
        all_say(job, "has taken the job over: the plan is what it was")
        codes = job.wait(60)
        assert codes.pop("controller") == -9 and set(codes.values()) == {0}, f"{codes}\n{job.said()}"
        assert TAKEN in other.stderr and "done: all have left" in other.stderr
        did_all(job)
    assert not jobs.leftovers()


def test_controllers__may_be_lost_again_and_again(tmp_path, models):
    flags = ["--orphan", "60s"]
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        begin(job, *flags)
        for turn in range(3):
            job.kill("other" if turn else "controller")
            job.wait(10, names=["other" if turn else "controller"])
            other = start_other(job, *flags)
            until(lambda: TAKEN in other.stderr, job)
        codes = job.wait(60)
        assert {codes[name] for name in codes if name != "controller"} == {0}, f"{codes}\n{job.said()}"
        did_all(job)


def comes_again(job, other):
    """Engine 1, which was lost, is started again and comes in, and all do their work."""
    for rank in (2, 3):
        job.worker("inference", rank, "--verify", updates=UPDATES, name=f"again-{rank}")
    codes = job.wait(60)
    assert {codes[name] for name in codes if name not in ("controller", "inference-2", "inference-3")} == {0}, f"{codes}\n{job.said()}"
    assert TAKEN in other.stderr and "2 of 2 engines are here from version" in other.stderr
    did_all(job, ranks=range(2))


def test_taken_over_job__loses_an_engine_and_takes_another(tmp_path, models):
    flags = ["--orphan", "60s", "--on-loss", "continue"]
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        begin(job, *flags)
        job.kill("controller")
        all_say(job, ALONE)
        other = start_other(job, *flags)
        all_say(job, "has taken the job over")
        job.kill("inference-2")
        until(lambda: job.processes["inference-3"].code is not None, job)
        comes_again(job, other)


def test_engine__that_dies_meanwhile_and_is_started_again_comes_in(tmp_path, models):
    flags = ["--orphan", "60s", "--on-loss", "continue"]
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        begin(job, *flags)
        job.kill("controller")
        all_say(job, ALONE)
        job.kill("inference-2")
        job.kill("inference-3")
        comes_again(job, start_other(job, *flags))


def did_without_engine_1(job, other):
    codes = job.wait(60)
    assert {codes[name] for name in codes if name not in ("controller", "inference-2", "inference-3")} == {0}, f"{codes}\n{job.said()}"
    assert "done: all" in other.stderr, job.said()
    did_all(job, ranks=range(2))


@pytest.mark.parametrize("commit", ["engine", "job"])
def test_engine__that_left_before_its_controller_was_lost_is_not_waited_for(tmp_path, models, commit):
    flags = ["--orphan", "60s", "--on-loss", "continue", "--commit", commit]
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        begin(job, *flags)
        job.kill("inference-2")
        until(lambda: job.processes["inference-3"].code is not None, job)
        job.kill("controller")
        job.wait(10, names=["controller"])
        other = start_other(job, *flags, "--join-timeout", "60s")
        until(lambda: TAKEN in other.stderr, job, 10)
        if commit == "job":
            did_without_engine_1(job, other)
        else:
            comes_again(job, other)


def test_engine__that_nobody_starts_again_is_gone_on_without(tmp_path, models):
    flags = ["--orphan", "60s", "--on-loss", "continue"]
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        begin(job, *flags)
        job.kill("controller")
        job.kill("inference-2")
        other = start_other(job, *flags, "--join-timeout", "2s")
        until(lambda: TAKEN in other.stderr, job, 10)
        assert "engine 1 (inference 2..3) leaves, the job goes on with 1 of 2: inference 2 has not come" in other.stderr, job.said()
        did_without_engine_1(job, other)
        assert "inference 2" in job.processes["inference-3"].stderr, job.said()


def test_workers__that_do_their_work_while_another_controller_waits_end_well(tmp_path, models):
    flags = ["--orphan", "60s", "--on-loss", "continue"]
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        begin(job, *flags)
        job.kill("controller")
        job.kill("inference-2")
        job.kill("inference-3")
        other = start_other(job, *flags, "--join-timeout", "60s")
        did_without_engine_1(job, other)
        assert TAKEN not in other.stderr and "all who ran when this controller came have left" in other.stderr, job.said()


def test_controller__that_is_lost_in_the_midst_of_an_exchange_is_replaced(tmp_path, models):
    """A trainer is lost, so the job pauses for another plan; a moment later its controller is too."""
    flags, seen = ["--orphan", "60s", "--on-loss", "continue"], set()
    for turn in range(6):
        with jobs.Job(tmp_path / str(turn), models["qwen2"], TRAIN, INFER) as job:
            begin(job, *flags, flags=["--shadow"])
            job.kill("trainer-1")
            deadline = time.monotonic() + 20
            while job.processes["controller"].stderr.count(" leaves" if turn % 3 == 2 else "plan of epoch") < 2 - (turn % 3 == 2):
                assert time.monotonic() < deadline, job.said()
            job.kill("controller")
            job.wait(10, names=["controller", "trainer-1"])
            other = start_other(job, *flags)
            job.worker("trainer", 1, "--interval", "25ms", updates=UPDATES, name="again")
            until(lambda: TAKEN in other.stderr, job)
            seen.add(next(line.split(": ")[-1] for line in other.stderr.splitlines() if TAKEN in line))
            at = max(max(job.digests(rank)) for rank in range(4))
            until(lambda: all(max(job.digests(rank)) > at + 1 for rank in range(4)), job)
            assert all(job.processes[name].code is None for name in job.processes if name not in ("controller", "trainer-1")), job.said()
    assert any("another one is made" in how for how in seen), seen


@pytest.mark.parametrize("lost", [[0], [0, 1]], ids=["one", "all"])
def test_trainers__that_are_lost_with_their_controller_come_in_with_another(tmp_path, models, lost):
    """As when a host is gone that had them: what they were sending is given up, and nothing else."""
    flags, own = ["--orphan", "60s", "--on-loss", "continue"], ["--interval", "25ms"]
    with jobs.Job(tmp_path, models["qwen2"], "world=2,fsdp=2,source=sharded", INFER) as job:
        begin(job, *flags, flags=["--shadow"])
        killed = ["controller", *(f"trainer-{rank}" for rank in lost)]
        for name in killed:
            job.kill(name)
        job.wait(10, names=killed)
        other = start_other(job, *flags)
        for rank in lost:
            job.worker("trainer", rank, *own, updates=UPDATES, name=f"again-{rank}")
        codes = job.wait(60)
        assert {codes[name] for name in codes if name not in killed} == {0}, f"{codes}\n{job.said()}"
        assert TAKEN in other.stderr and "was started anew while the job had no controller" in other.stderr, job.said()
        want = jobs.expected(job.model, job.infer)
        for rank in range(4):
            versions = job.digests(rank)
            assert {1, 2, *range(UPDATES // 2, UPDATES + 1)} <= set(versions), job.said()
            for version in (1, UPDATES // 2, UPDATES):
                assert versions[version] == want.digests(version)[rank % 2]


def test_other_controller__with_other_options_ends_the_job_and_says_which(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        begin(job, "--orphan", "60s", updates=10000)
        job.kill("controller")
        start_other(job, "--orphan", "60s", "--policy", "round-robin")
        codes = job.wait(60)
        assert codes.pop("controller") == -9 and set(codes.values()) == {78}, f"{codes}\n{job.said()}"
        for worker in workers(job):
            assert "start this controller with the options of the one that was lost" in worker.stderr, job.said()


def test_engine__that_is_lost_meanwhile_takes_nobody_with_it(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        begin(job, "--orphan", "60s", "--on-loss", "continue", flags=["--update-timeout", "8s"])
        job.kill("controller")
        all_say(job, ALONE)
        job.kill("inference-2")
        codes = job.wait(60)
        assert {codes[f"{role}-{rank}"] for role in ("trainer", "inference") for rank in range(2)} == {0}, f"{codes}\n{job.said()}"
        did_all(job, ranks=range(2))


def test_controller__that_takes_over_takes_engines_in_that_came_meanwhile(tmp_path, models):
    """Of two engines one is in the plan; a trainer is gone on without."""
    some = ["--on-loss", "continue", "--engines-min", "1", "--orphan", "60s"]
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.controller(*SOON, *some)
        for rank in range(2):
            job.worker("trainer", rank, "--interval", "25ms", updates=UPDATES)
        for rank in range(2):
            job.worker("inference", rank, "--verify", "--shadow", updates=UPDATES)
        until(lambda: len(job.processes["inference-1"].updates()) > 2, job)
        job.kill("trainer-0")
        until(lambda: "1 of 2 engines and 1 of 2 trainers are here from version" in job.processes["controller"].stderr, job)
        job.kill("controller")
        for rank in (2, 3):
            job.worker("inference", rank, "--verify", "--shadow", updates=UPDATES)
        other = start_other(job, *some)
        until(lambda: TAKEN in other.stderr, job)
        until(lambda: "2 of 2 engines and 1 of 2 trainers are here from version" in other.stderr, job)
        codes = job.wait(60)
        assert {codes.pop("controller"), codes.pop("trainer-0")} == {-9} and set(codes.values()) == {0}, f"{codes}\n{job.said()}"
        want = jobs.expected(job.model, job.infer)
        for rank in range(4):
            assert job.digests(rank)[UPDATES] == want.digests(UPDATES)[rank % want.tp]
    assert not jobs.leftovers()

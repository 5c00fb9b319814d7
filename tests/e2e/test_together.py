# SPDX-License-Identifier: Apache-2.0
"""All engines show versions together (--commit job) in a job that goes on when some are lost (--on-loss continue)."""
import pathlib
import random
import sys
import time

import job as jobs
import pytest
from test_on_loss import INFER, TCP, TRAIN, until
from test_returns import MORE, come_back

WAYS = {"shm": [], "tcp": TCP, "list": ["--transport", "shm,tcp", "--nic", "lo"], "full": ["--replica", "full", "--checksums"]}
UPDATES = 250


def begin(job, *flags, updates=UPDATES, controller=(), inference=("--shadow",), trainer=()):
    job.controller("--on-loss", "continue", "--commit", "job", *controller)
    job.workers("--verify", *flags, updates=updates, inference_flags=inference, trainer_flags=["--interval", "10ms", *trainer])
    until(lambda: all(job.processes[f"inference-{rank}"].updates() for rank in range(job.inference)), job)


def right(job, ranks, updates=UPDATES, first=1):
    """Those ranks, (rank, name), have shown each version, and of the last ones every byte is right."""
    want = jobs.expected(job.model, job.infer)
    for rank, name in ranks:
        got = job.digests(rank, name)
        assert sorted(got) == list(range(min(got) if first is None else first, updates + 1)), f"{name}: {job.said()}"
        assert got[updates] == want.digests(updates)[rank % want.tp]


KINDS = [("shm", ["--shadow"]), ("shm", []), ("tcp", ["--shadow"]), ("list", []), ("full", [])]


@pytest.mark.parametrize("way, inference, victim", [(*kind, victim) for k, kind in enumerate(KINDS) for victim in range(3)
                                                    if MORE or k == 0 or victim == k % 3])
def test_killed_rank__takes_its_engine_out_and_the_others_show_every_version(tmp_path, models, way, inference, victim):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        begin(job, *WAYS[way], inference=inference)
        time.sleep(random.Random(f"{way}{inference}{victim}").uniform(0, 0.3))
        job.kill(f"inference-{victim}")
        codes = job.wait(90)
        lost = {victim, victim ^ 1}
        assert {code for name, code in codes.items() if name not in {f"inference-{rank}" for rank in lost}} == {0}, job.said()
        right(job, [(rank, f"inference-{rank}") for rank in range(6) if rank not in lost])
        assert "2 of 3 engines are here from version" in job.processes["controller"].stderr
    assert not jobs.leftovers()


@pytest.mark.parametrize("infer, engine, trainer, sends", [
    (INFER, 0, ["--repeat"], "is sent it before, once more"), (INFER, 2, ["--repeat"], "is sent it by engines that show it"), (INFER, 2, [], None), (INFER, 1, ["--admit"], "is sent it by engines that show it"),
    ("engines=3,tp=1", 0, ["--repeat"], "is sent it before, once more"), ("engines=3,tp=1", 2, ["--repeat"], "is sent it by engines that show it"),
    ("engines=2,tp=2", 1, ["--repeat"], "is sent it before, once more"), ("engines=2,tp=2", 0, ["--admit"], None)])
def test_engine__that_comes_back_shows_what_the_others_show(tmp_path, models, infer, engine, trainer, sends):
    """The last version by itself, where it is sent that, and all later ones together with them."""
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, infer) as job:
        begin(job, "--checksums", updates=12, trainer=[*trainer, "--interval", "600ms"])
        tp = jobs.counts(TRAIN, infer)[1] // int(jobs.spec(infer)["engines"])
        ranks = list(range(engine * tp, engine * tp + tp))
        job.kill(f"inference-{ranks[-1]}")
        until(lambda: "engines are here from version" in job.processes["controller"].stderr, job)
        done = len(job.processes["trainer-0"].updates())
        until(lambda: len(job.processes["trainer-0"].updates()) > done, job)  # and now it has nothing new
        come_back(job, "--checksums", ranks=ranks, updates=12)
        codes = job.wait(90)
        assert {code for name, code in codes.items() if name not in {f"inference-{rank}" for rank in ranks}} == {0}, job.said()
        right(job, [(rank, f"inference-{rank}") for rank in range(job.inference) if rank not in ranks], 12)
        right(job, [(rank, f"again-{rank}") for rank in ranks], 12, first=None)
        assert not sends or sends in job.processes["controller"].stderr, job.said()
    assert not jobs.leftovers()


@pytest.mark.parametrize("way", ["shm", "tcp"])
def test_engine__that_has_done_its_work_leaves_the_others_to_go_on(tmp_path, models, way):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.controller("--on-loss", "continue", "--commit", "job")
        for rank in range(2):
            job.worker("trainer", rank, "--interval", "10ms", *WAYS[way], updates=80)
        for rank in range(6):
            job.worker("inference", rank, "--verify", *WAYS[way], updates=40 if rank < 4 else 80)
        codes = job.wait(60)
        assert set(codes.values()) == {0}, job.said()
        right(job, [(rank, f"inference-{rank}") for rank in range(4)], 40)
        right(job, [(4, "inference-4"), (5, "inference-5")], 80)
    assert not jobs.leftovers()


@pytest.mark.parametrize("victim", ["inference-0", "inference-3"])
def test_last_version__is_shown_by_all_who_have_it_when_trainers_are_done(tmp_path, models, victim):
    """The last hook ends after trainers have left, and an engine is lost meanwhile."""
    hook = ["--post-load", f'test "$WEFT_VERSION" -lt 5 || sleep {{}}']
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.controller("--on-loss", "continue", "--commit", "job")
        for rank in range(2):
            job.worker("trainer", rank, updates=5)
        for rank in range(6):
            job.worker("inference", rank, "--verify", "--shadow", *[part.format(60 if f"inference-{rank}" == victim else rank % 3) for part in hook], updates=5)
        until(lambda: "5 of 8 still here" in job.processes["controller"].stderr or "6 of 8 still here" in job.processes["controller"].stderr, job)
        job.kill(victim)
        codes = job.wait(30)
        lost = {int(victim[-1]), int(victim[-1]) ^ 1}
        assert {code for name, code in codes.items() if name not in {f"inference-{rank}" for rank in lost}} == {0}, job.said()
        right(job, [(rank, f"inference-{rank}") for rank in range(6) if rank not in lost], 5)
    assert not jobs.leftovers()


def test_engine__that_does_not_load_its_version_in_time_is_gone_on_without(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.controller("--on-loss", "continue", "--commit", "job", "--update-timeout", "6s")
        for rank in range(2):
            job.worker("trainer", rank, updates=30)
        for rank in range(6):
            hook = ["--post-load", 'test "$WEFT_VERSION" -lt 5 || sleep 9'] if rank == 3 else []
            job.worker("inference", rank, "--verify", "--shadow", *hook, updates=30)
        codes = job.wait(60)
        assert {code for name, code in codes.items() if name not in ("inference-2", "inference-3")} == {0}, job.said()
        right(job, [(rank, f"inference-{rank}") for rank in (0, 1, 4, 5)], 30)
        assert "it has not loaded its version for 3.0 s" in job.processes["controller"].stderr
        assert set(job.digests(2)) == {1, 2, 3, 4}


@pytest.mark.parametrize("transport, shadow", [("shm", 0), ("shm", 1), ("tcp", 1)])
def test_readers__are_shown_what_the_plan_has_settled(tmp_path, transport, shadow):
    """An engine that has promised a version shows it, to readers too, when the other one is lost before it has."""
    library = jobs.BIN / "tests" / "programs" / "libweft.so"
    program = pathlib.Path(__file__).resolve().parent / "settled_rank.py"
    with jobs.Job(tmp_path, tmp_path / "no model", "world=2,source=gathered", "engines=2,tp=2") as job:
        job.controller("--on-loss", "continue", "--commit", "job", "--heartbeat", "100ms", "--lost-after", "1s")
        for role, count in (("trainer", 2), ("inference", 4)):
            for rank in range(count):
                job.start(f"{role}-{rank}", [sys.executable, program, library, role, rank, job.address, transport, shadow])
        until(lambda: "loads" in job.processes["inference-1"].stdout, job)
        time.sleep(0.7)  # trainers have ended it, and wait for the next one
        job.kill("inference-1")
        codes = job.wait(60)
        for name in ("trainer-0", "trainer-1", "inference-2", "inference-3"):
            assert codes[name] == 0, f"{name}: {job.said()}"
        for rank in (2, 3):
            said = job.processes[f"inference-{rank}"].stdout.splitlines()
            assert said == [f"waited for {version}, readers are shown {(version, True)}, {(version, True)}" for version in (1, 2, 3)]
    assert not jobs.leftovers()


def test_last_engine__that_has_done_its_work_is_followed_by_one_that_comes(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, "engines=2,tp=2") as job:
        job.controller("--on-loss", "continue", "--engines-min", "1", "--commit", "job")
        for rank in range(2):
            job.worker("trainer", rank, "--interval", "300ms", updates=12)
        for rank in range(2):
            job.worker("inference", rank, "--verify", updates=3)
        until(lambda: "2 of 6 still here" in job.processes["controller"].stderr, job)
        for rank in (2, 3):
            job.worker("inference", rank, "--verify", updates=12)
        codes = job.wait(60)
        assert set(codes.values()) == {0}, job.said()
        right(job, [(0, "inference-0"), (1, "inference-1")], 3)
        right(job, [(2, "inference-2"), (3, "inference-3")], 12, first=None)
        assert "engine 0 (inference 0..1) leaves, the job goes on with 0 of 2: its work is done" in job.processes["controller"].stderr
    assert not jobs.leftovers()

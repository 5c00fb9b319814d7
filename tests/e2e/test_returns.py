# SPDX-License-Identifier: Apache-2.0
"""Engines that come back to a job that goes on (--on-loss continue, docs/living.md)."""
import json
import os
import signal
import subprocess

import job as jobs
import pytest
from test_on_loss import INFER, TCP, TRAIN, until

MORE = bool(os.environ.get("WEFT_SOAK"))
WAYS = {"shm": [], "full": ["--replica", "full", "--checksums"], "list": ["--transport", "shm,tcp", "--nic", "lo"],
        **({"tcp": TCP, "sums": ["--checksums"]} if MORE else {})}
UPDATES = 400 if MORE else 250  # at 20 ms each: long enough to be lost and come back on a busy machine


def begin(job, *flags, updates=UPDATES, controller=(), inference=("--shadow",), ranks=6):
    job.controller("--on-loss", "continue", *controller)
    for rank in range(2):
        job.worker("trainer", rank, "--interval", "20ms", *flags, updates=updates)
    for rank in range(ranks):
        job.worker("inference", rank, "--verify", *inference, *flags, updates=updates)
    if ranks:
        until(lambda: len(job.processes["inference-2"].updates()) > 2, job)


def lose(job, rank=2, mate=3):
    job.kill(f"inference-{rank}")
    until(lambda: job.processes[f"inference-{mate}"].code is not None, job)


def come_back(job, *flags, ranks=(2, 3), updates=UPDATES, inference=("--shadow",), again=""):
    for rank in ranks:
        job.worker("inference", rank, "--verify", *inference, *flags, updates=updates, name=f"again{again}-{rank}")
    until(lambda: all(len(job.processes[f"again{again}-{rank}"].updates()) > 2 for rank in ranks), job)


def all_is_right(job, others=(0, 1, 4, 5), again=(2, 3), updates=UPDATES):
    codes = job.wait(120)
    want = jobs.expected(job.model, job.infer)
    for name, code in codes.items():
        if name not in {f"inference-{rank}" for rank in again}:
            assert code == 0, f"{name}: {code}\n{job.said()}"
    for rank in others:
        assert sorted(job.digests(rank)) == list(range(1, updates + 1)), job.said()
    for rank in again:
        got = job.digests(rank, f"again-{rank}")
        assert sorted(got) == list(range(min(got), updates + 1)) and min(got) > 2, job.said()
        for version in (min(got), updates):
            assert got[version] == want.digests(version)[rank % want.tp]
            assert job.digests(0)[version] == want.digests(version)[0]
    assert "3 of 3 engines are here from version" in job.processes["controller"].stderr
    assert "done: all have left" in job.processes["controller"].stderr
    return codes


@pytest.mark.parametrize("way", WAYS)
def test_engine__that_comes_back_has_every_version_from_then_on(tmp_path, models, way, monkeypatch):
    monkeypatch.setenv("WEFT_LOG", "info")
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        begin(job, *WAYS[way])
        lose(job)
        come_back(job, *WAYS[way])
        all_is_right(job)
        kept = {"trainer-0": "4 of 6", **{f"inference-{rank}": "3 of 3" for rank in (0, 1, 4, 5)},
                **{f"again-{rank}": "0 of 3" for rank in (2, 3)}}
        for name, count in kept.items():  # nothing is opened anew but for those that come
            assert f"; {count} endpoints kept" in job.processes[name].stderr, job.said()
    assert not jobs.leftovers()


@pytest.mark.parametrize("memory", ["own", "cuda", *(["in place", "trainer=cuda"] if MORE else [])])
def test_engine__comes_back_whatever_its_memory_is(tmp_path, models, memory, monkeypatch):
    monkeypatch.setenv("WEFT_CUDA_MOCK", "order=late")
    flags, inference = {"in place": ([], []), "own": (TCP, ["--own-memory"]), "cuda": (["--transport", "cuda", "--memory", "cuda"], []),
                        "trainer=cuda": (["--memory", "trainer=cuda"], ["--shadow"])}[memory]
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        begin(job, *flags, inference=inference)
        lose(job)
        come_back(job, *flags, inference=inference)
        all_is_right(job)
    assert not jobs.leftovers()


def test_engine__that_has_done_its_work_leaves_the_others_to_go_on_and_can_come_back(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        begin(job, ranks=0)
        for rank in range(6):
            job.worker("inference", rank, "--verify", "--shadow", updates=40 if rank in (2, 3) else UPDATES)
        until(lambda: all(job.processes[f"inference-{rank}"].code is not None for rank in (2, 3)), job)
        come_back(job)
        codes = all_is_right(job)
        assert codes["inference-2"] == codes["inference-3"] == 0, job.said()
        said = job.processes["controller"].stderr
        assert "engine 1 (inference 2..3) leaves, the job goes on with 2 of 3: its work is done after version 40" in said
        assert not any("goes on without" in job.processes[f"trainer-{rank}"].stderr for rank in range(2)), job.said()
    assert not jobs.leftovers()


def test_engines__that_come_and_go_again_and_again_harm_nobody(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        begin(job, updates=600)
        lose(job)
        for round in range(4):
            come_back(job, again=str(round), updates=600)
            job.kill(f"again{round}-{2 + round % 2}")
            until(lambda: job.processes[f"again{round}-{3 - round % 2}"].code is not None, job)
        come_back(job, updates=600)
        lose(job, 4, 5)
        codes = job.wait(120)
        assert {codes[name] for name in ("controller", "trainer-0", "trainer-1", "inference-0", "inference-1", "again-2", "again-3")} == {0}, job.said()
        want = jobs.expected(job.model, job.infer)
        for rank, name in ((0, None), (1, None), (2, "again-2"), (3, "again-3")):
            assert job.digests(rank, name)[600] == want.digests(600)[rank % want.tp]
        assert sorted(job.digests(0)) == list(range(1, 601))
        assert job.processes["controller"].stderr.count("comes in when all trainers begin their next update") == 5
    assert not jobs.leftovers()


@pytest.mark.parametrize("way", ["shm", "tcp", "list", "full"] if MORE else ["shm", "list"])
def test_engines__that_the_job_began_without_have_every_version_from_when_they_came(tmp_path, models, way):
    flags = {**WAYS, "tcp": TCP}[way]
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.controller("--on-loss", "continue", "--engines-min", "1")
        for rank in range(2):
            job.worker("trainer", rank, "--interval", "20ms", *flags, updates=UPDATES)
        for rank in range(2):
            job.worker("inference", rank, "--verify", *flags, updates=UPDATES)
        until(lambda: len(job.processes["inference-1"].updates()) > 2, job)
        come_back(job, *flags, ranks=(4, 5), inference=())
        come_back(job, *flags, ranks=(2, 3))
        all_is_right(job, others=(0, 1), again=(2, 3, 4, 5))
        said = job.processes["controller"].stderr
        assert "begins with 1 of 3 engines (--engines-min 1): each of the others comes in when it is here" in said
        assert "engines that were lost" not in said
    assert not jobs.leftovers()


@pytest.mark.parametrize("way", WAYS if MORE else ["shm", "full"])
def test_last_engine__that_is_lost_comes_back_to_trainers_that_wait_for_it(tmp_path, models, way):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, "engines=1,tp=2") as job:
        job.controller("--on-loss", "continue")
        for rank in range(2):
            job.worker("trainer", rank, "--interval", "20ms", *WAYS[way], updates=200)
        for rank in range(2):
            job.worker("inference", rank, "--verify", *WAYS[way], updates=200)
        for round in range(2):
            name = f"again{round - 1}-1" if round else "inference-1"
            until(lambda: len(job.processes[name].updates()) > 2, job)
            job.kill(name)
            until(lambda: job.processes["controller"].stderr.count("waiting for an engine") == round + 1, job)
            come_back(job, *WAYS[way], ranks=(0, 1), inference=(), again=str(round), updates=200)
        codes = job.wait(120)
        assert {codes[name] for name in ("controller", "trainer-0", "trainer-1", "again1-0", "again1-1")} == {0}, job.said()
        want = jobs.expected(job.model, job.infer)
        for rank in range(2):
            got = job.digests(rank, f"again1-{rank}")
            assert sorted(got) == list(range(min(got), 201)) and got[200] == want.digests(200)[rank]
    assert not jobs.leftovers()


def test_dump__of_a_job_that_lacks_engines_and_a_trainer_is_proved_and_simulated(tmp_path, models):
    dump, weft = tmp_path / "plan.json", jobs.CONTROLLER.parent / "weft"
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.controller("--on-loss", "continue", "--engines-min", "1", "--dump", dump, "--policy", "balanced", "--topology", "workers")
        for rank in range(2):
            job.worker("trainer", rank, "--interval", "20ms", updates=100000)
        for rank in (2, 3):
            job.worker("inference", rank, updates=100000)
        until(lambda: len(job.processes["inference-2"].updates()) > 2, job)
        for away in ({"inference": [0, 1, 4, 5]}, {"trainers": [0], "inference": [0, 1, 4, 5]}):
            assert json.loads(dump.read_text())["away"] == away
            for verb in ("verify", "simulate", "show"):
                done = subprocess.run([weft, "route", verb, dump], capture_output=True, text=True, cwd=job.model.parent)
                assert done.returncode == 0, done.stderr
            done = subprocess.run([weft, "route", "export", "--format", "json", dump], capture_output=True, text=True)
            assert done.stdout == dump.read_text()
            if "trainers" not in away:
                job.kill("trainer-0")
                until(lambda: "1 of 2 trainers are here from version" in job.processes["controller"].stderr, job)
        wrong = json.loads(dump.read_text())
        for rank, said in ((6, "is no rank of the 6 there are"), (2, "refused by the proof")):
            wrong["away"]["inference"][0] = rank
            dump.write_text(json.dumps(wrong))
            done = subprocess.run([weft, "route", "verify", dump], capture_output=True, text=True, cwd=job.model.parent)
            assert done.returncode and said in done.stderr, done.stderr


def test_newcomer__that_stops_in_the_midst_is_gone_on_without(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        begin(job, controller=["--lost-after", "2s"])
        lose(job)
        job.worker("inference", 2, "--verify", "--shadow", updates=UPDATES, name="again-2")
        stopped = job.worker("inference", 3, "--verify", "--shadow", updates=UPDATES, name="again-3")
        until(lambda: "this engine comes in when" in stopped.stderr, job)
        job.kill("again-3", signal.SIGSTOP)
        codes = job.wait(60, [f"{role}-{rank}" for role, rank in (("trainer", 0), ("trainer", 1), ("inference", 0), ("inference", 5))])
        assert set(codes.values()) == {0}, job.said()
        job.kill("again-3", signal.SIGCONT)
        job.wait(60)
        assert sorted(job.digests(0)) == sorted(job.digests(5)) == list(range(1, UPDATES + 1))


REPEATS = {"shm": [], "full": ["--replica", "full"], "tcp": TCP, "admit": [], "cuda": ["--transport", "cuda", "--memory", "cuda"],
           "staged": ["--transport", "cuda", "--memory", "cuda", "--stage", "host"],
           **({"list": ["--transport", "shm,tcp", "--nic", "lo"], "full, alone": ["--replica", "full"], "trainer=cuda": ["--memory", "trainer=cuda", *TCP]} if MORE else {})}


def copies(folder):
    """{lane: what its slice says} of copies from engine to engine, by the traces of ranks that ended."""
    found = {}
    for path in folder.glob("i*.json"):
        rows = [json.loads(line.rstrip(",")) for line in path.read_text().splitlines() if line.startswith("{") and line.endswith(("}", "},"))]
        lanes = {row["tid"]: row["args"]["name"] for row in rows if row["name"] == "thread_name"}
        found.update({lanes[row["tid"]]: row["args"] for row in rows if row["name"] == "copy"})
    return found


@pytest.mark.parametrize("way", REPEATS)
def test_engine__that_comes_back_is_sent_the_last_version_while_trainers_have_nothing_new(tmp_path, models, way, monkeypatch):
    monkeypatch.setenv("WEFT_CUDA_MOCK", "order=late")
    flags = ["--checksums", "--trace", tmp_path / "%r.%p.json", *REPEATS[way]]
    infer = "engines=2,tp=1" if way == "full, alone" else "engines=2,tp=2"
    asked = "trainers" if way.startswith("full") else "engines"
    by_trainers = asked == "trainers" or way == "staged"  # where readers read it is not where peers write
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, infer) as job:
        job.controller("--on-loss", "continue", "--lost-after", "1s", "--heartbeat", "200ms",
                       "--catch-up-from", asked)
        asks = "--admit" if way == "admit" else "--repeat"
        job.workers(*flags, updates=3, trainer_flags=["--interval", "4s", asks], inference_flags=["--verify"])
        tp, last = job.inference // 2, job.inference - 1
        until(lambda: all(job.processes[f"inference-{rank}"].updates() for rank in range(job.inference)), job)
        job.kill(f"inference-{last}")
        until(lambda: "leaves, the job goes on with 1 of 2" in job.processes["controller"].stderr, job)
        for rank in range(tp, job.inference):
            job.worker("inference", rank, *flags, "--verify", updates=3, name=f"again-{rank}")
        codes = job.wait(60)
        assert {code for name, code in codes.items() if name not in {f"inference-{rank}" for rank in range(tp, job.inference)}} == {0}, job.said()
        want = jobs.expected(job.model, job.infer)
        for rank in range(tp, job.inference):
            assert job.digests(rank, f"again-{rank}") == {version: want.digests(version)[rank % tp] for version in (1, 2, 3)}
        for rank in range(tp):
            assert [update["version"] for update in job.processes[f"inference-{rank}"].updates()] == [1, 2, 3]
        began = {update["version"]: update["time"] - update["seconds"] for update in job.processes["trainer-0"].updates()}
        served = {update["version"]: update["time"] for update in job.processes[f"again-{last}"].updates()}
        assert served[1] < began[2] - 0.1, job.said()
        assert [update["version"] for update in job.processes["trainer-0"].updates()] == [*([1] if by_trainers else []), 1, 2, 3]
        sends = "is sent it before, once more" if by_trainers else "is sent it by engines that show it"
        assert f"who lacks version 1 {sends}" in job.processes["controller"].stderr
        lanes = copies(tmp_path)
        if by_trainers:
            assert lanes == {}
        else:  # each of the ranks that lacked it was sent all that a rank has of a version, by one of the other engine
            bytes_of = {update["bytes"] for update in job.processes["inference-0"].updates()}
            assert {lane.split(" (")[0] for lane in lanes} == {f"to inference {rank}" for rank in range(tp, job.inference)}
            assert {row["bytes"] for row in lanes.values()} == bytes_of and {row["version"] for row in lanes.values()} == {1}
    assert not jobs.leftovers()

# SPDX-License-Identifier: Apache-2.0
"""A process dies at every point of an update at which it says something to another one, or writes (docs/versions.md, "What
happens when"): the ranks of the engine that live show one version, whole, or all of them none."""
import concurrent.futures
import json
import pathlib
import sys

import job as jobs
import pytest

RANK = pathlib.Path(__file__).resolve().parent / "death_rank.py"
LIBRARY = jobs.BIN / "tests" / "programs" / "libweft.so"
TRAIN, INFER, UPDATES = "world=2,source=gathered", "engines=1,tp=2", 2
VICTIMS = ["trainer-1", "inference-0", "inference-1"]  # inference 0 decides
PARALLEL, MOST = 4, 40


def die(folder, victim, transport, op, at, shadow, infer=INFER, controller=(), too=()):
    """Of one job: what each process said last, but the victim, and whether it died. too: others that die, (name, op, at)."""
    faults = {name: {"WEFT_FAULT": f"inner={transport},op={op},at={at},kind=kill"} for name, op, at in ((victim, op, at), *too)}
    with jobs.Job(folder, folder / "no-model", TRAIN, infer) as job:
        tp = int(jobs.spec(infer)["tp"])
        job.controller("--heartbeat", "100ms", "--lost-after", "1s", "--join-timeout", "20s", *controller)
        for role, ranks in (("trainer", job.trainers), ("inference", job.inference)):
            for rank in range(ranks):
                job.start(f"{role}-{rank}", [sys.executable, RANK, LIBRARY, role, rank, job.address, transport, int(shadow),
                                             UPDATES, tp], env={**faults.get(f"{role}-{rank}", {}), "WEFT_LOG": "warn"})
        codes = job.wait(100)
        dead = {"controller", *(name for name in faults if codes[name] == -9)}
        assert all(code == 0 for name, code in codes.items() if name not in dead), job.said()
        said = {name: json.loads(process.stdout.splitlines()[-1]) for name, process in job.processes.items() if name not in dead}
        return codes[victim] == -9, said, job.said()


def wrong(victim, at, died, said, log):
    """What is not as the table says, or None."""
    ranks = [said[name] for name in ("inference-0", "inference-1") if name in said]
    if not all(rank["right"] for rank in ranks):
        return f"{victim} at {at}: wrong bytes are shown: {said}\n{log}"
    if len({rank["shown"] for rank in ranks}) > 1:
        return f"{victim} at {at}: the engine shows two versions: {said}\n{log}"
    if not died and any(one["error"] or name.startswith("inference") and one["shown"] != UPDATES for name, one in said.items()):
        return f"nobody died, and not all is well: {said}\n{log}"
    if died and not any(one["error"] and victim.replace("-", " ") in one["error"] for one in said.values()):
        done = all(rank["shown"] == UPDATES for rank in ranks)  # its last word, and nobody waited for more
        return None if done else f"{victim} at {at}: nobody names it: {said}\n{log}"
    return None


def at_each_point(folder, victims, run, judge):
    """Of each victim jobs in which it dies at one of its calls, from the first on, up to one in which it makes no more: complaints,
    and at which call each died last."""
    complaints, points = [], {}
    with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
        for victim in victims:
            runs = {at: pool.submit(run, folder / f"{victim}-{at}", victim, at) for at in range(1, MOST + 1)}
            for at, one in runs.items():
                if one.cancelled():
                    continue
                died, said, log = one.result()
                complaints += filter(None, [judge(victim, at, died, said, log)])
                if died:
                    points[victim] = at
                else:  # it makes no more such calls in these updates
                    for later in runs.values():
                        later.cancel()
    assert complaints == [], f"{len(complaints)} of {points}:\n" + "\n".join(complaints[:5])
    assert not jobs.leftovers()
    return points


@pytest.mark.parametrize("transport, op, shadow", [("shm", "post_signal", True), ("shm", "post_signal", False),
                                                  ("tcp", "post_write", True), ("tcp", "post_signal", False)])
def test_death__at_any_word_or_write_leaves_one_version_or_none(tmp_path, transport, op, shadow):
    points = at_each_point(tmp_path, VICTIMS, lambda folder, victim, at: die(folder, victim, transport, op, at, shadow), wrong)
    assert points["trainer-1"] >= UPDATES, points
    if op == "post_signal":
        assert min(points["inference-0"], points["inference-1"]) >= 3 * UPDATES, points


def differ(victim, at, died, said, log, tp):
    """Where all engines show versions together, and go on without the one that the victim is of: what is not right, or None."""
    lost = {f"inference-{rank}" for rank in range(99) if died and rank // tp == int(victim.rpartition("-")[2]) // tp}
    others = {name: one for name, one in said.items() if name.startswith("inference") and name not in lost}
    if not all(one["right"] for one in said.values()):
        return f"{victim} at {at}: wrong bytes are shown: {said}\n{log}"
    if any("probing the path" in (one["error"] or "") for one in said.values()):
        return None  # before all had joined: that ends a job
    if any(one["shown"] != UPDATES or one["error"] for one in others.values()):
        return f"{victim} at {at}: not all others show the last version: {said}\n{log}"
    return None


@pytest.mark.parametrize("infer, transport, op, shadow", [
    ("engines=2,tp=2", "shm", "post_signal", True), ("engines=3,tp=1", "shm", "post_signal", False),
    ("engines=3,tp=1", "tcp", "post_write", True), ("engines=2,tp=2", "tcp", "post_signal", False)])
def test_death__in_an_engine_that_shows_versions_with_others_leaves_those_one_version(tmp_path, infer, transport, op, shadow):
    tp = int(jobs.spec(infer)["tp"])
    together = ["--commit", "job", "--on-loss", "continue", "--lost-after", "5s", "--join-timeout", "60s"]
    points = at_each_point(tmp_path, [f"inference-{rank}" for rank in range(jobs.counts(TRAIN, infer)[1])],
                           lambda folder, victim, at: die(folder, victim, transport, op, at, shadow, infer, together),
                           lambda victim, at, died, said, log: differ(victim, at, died, said, log, tp))
    assert op != "post_signal" or points["inference-0"] >= 3 * UPDATES, points


TOGETHER = ["--commit", "job", "--on-loss", "continue"]
BY_PLAN = [("inference-3", "post_signal", 12)]  # one of the last things that it says


@pytest.mark.parametrize("infer, controller, too", [("engines=1,tp=3", [], []), ("engines=2,tp=3", ["--on-loss", "continue"], []),
                                                   ("engines=2,tp=3", TOGETHER, []), ("engines=2,tp=3", TOGETHER, BY_PLAN)],
                         ids=["end", "continue", "job", "job, by plan"])
def test_death__of_who_writes_what_its_engine_shows_leaves_no_two_versions(tmp_path, infer, controller, too):
    """Inference 0 tells each of the others by a write what they show, and dies between two of these; who is not told knows none.
    Whether its mates see that it ended, or are told first, is chance."""
    def run(job):
        at = 2 * UPDATES if job else 2
        return die(tmp_path / str(job), "inference-0", "tcp", "post_write", at, True, infer, [*controller, "--lost-after", "5s"],
                   too)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for died, said, log in pool.map(run, range(4)):
            others = [said[f"inference-{rank}"] for rank in (1, 2)]
            assert died and all(one["right"] for one in others), f"{said}\n{log}"
            assert len({one["shown"] for one in others} - {0}) < 2, f"{said}\n{log}"


def two_versions(victim, at, died, said, log):
    ranks = [one for name, one in said.items() if name.startswith("inference")]
    if len({one["shown"] for one in ranks} - {0}) > 1 or not all(one["right"] for one in ranks):
        return f"{victim} at {at}: {said}\n{log}"
    return None if died or all(one["shown"] == UPDATES for one in ranks) else f"nobody died, and not all is well: {said}\n{log}"


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_death__of_who_decides_for_all_engines_leaves_no_two_versions(tmp_path, transport):
    """The job ends by it. What it had decided the other engine may not have heard."""
    points = at_each_point(tmp_path, ["inference-0"], lambda folder, victim, at: die(
        folder, victim, transport, "post_signal", at, True, "engines=2,tp=2", ["--commit", "job", "--lost-after", "5s"]), two_versions)
    assert points["inference-0"] >= 3 * UPDATES, points

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


def die(folder, victim, transport, op, at, shadow):
    """Of one job: what each process said last, but the victim, and whether it died."""
    with jobs.Job(folder, folder / "no-model", TRAIN, INFER) as job:
        job.controller("--heartbeat", "100ms", "--lost-after", "1s", "--join-timeout", "20s")
        for role in ("trainer", "inference"):
            for rank in range(2):
                fault = {"WEFT_FAULT": f"inner={transport},op={op},at={at},kind=kill"} if f"{role}-{rank}" == victim else {}
                job.start(f"{role}-{rank}", [sys.executable, RANK, LIBRARY, role, rank, job.address, transport, int(shadow),
                                             UPDATES], env={**fault, "WEFT_LOG": "warn"})
        codes = job.wait(60)
        died = codes[victim] == -9
        assert all(code == 0 for name, code in codes.items() if name != "controller" and not (died and name == victim)), job.said()
        said = {name: json.loads(process.stdout.splitlines()[-1]) for name, process in job.processes.items()
                if name != "controller" and not (died and name == victim)}
        return died, said, job.said()


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


@pytest.mark.parametrize("transport, op, shadow", [("shm", "post_signal", True), ("shm", "post_signal", False),
                                                  ("tcp", "post_write", True), ("tcp", "post_signal", False)])
def test_death__at_any_word_or_write_leaves_one_version_or_none(tmp_path, transport, op, shadow):
    complaints, points = [], {}
    with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
        for victim in VICTIMS:
            runs = {at: pool.submit(die, tmp_path / f"{victim}-{at}", victim, transport, op, at, shadow)
                    for at in range(1, MOST + 1)}
            for at, run in runs.items():
                if run.cancelled():
                    continue
                died, said, log = run.result()
                complaints += filter(None, [wrong(victim, at, died, said, log)])
                if died:
                    points[victim] = at
                else:  # it makes no more such calls in these updates
                    for later in runs.values():
                        later.cancel()
    assert complaints == [], f"{len(complaints)} of {points}:\n" + "\n".join(complaints[:5])
    assert points["trainer-1"] >= UPDATES, points
    if op == "post_signal":
        assert min(points["inference-0"], points["inference-1"]) >= 3 * UPDATES, points
    assert not jobs.leftovers()

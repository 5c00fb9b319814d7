# SPDX-License-Identifier: Apache-2.0
"""Send orders in whole jobs: every byte arrives. A trainer of one packing thread posts in exactly the plan's order;
several threads take rows in that order, so that a row overtakes at most one row of each other thread."""
import json

import pytest

import job as jobs

TRAIN, INFER = "world=4,pp=2,source=gathered", "engines=2,tp=2"
POLICIES, ORDERS = ("greedy", "round-robin"), ("table", "rotated", "rounds")


def run(folder, model, policy, order, *flags, updates=1):
    """A job whose engine memory cannot be mapped, so that every row is posted; what each trainer posted,
    as (inference rank, bytes), and the bytes that it packed."""
    posts, packed = [], []
    with jobs.Job(folder, model, TRAIN, INFER) as job:
        job.controller("--policy", policy, "--order", order, "--dump", folder / "live.json")
        for rank in range(job.trainers):
            job.worker("trainer", rank, *flags, updates=updates,
                       env={"WEFT_FAULT": f"inner=shm,kind=none,trace={folder / f'posts-{rank}'}"})
        for rank in range(job.inference):
            job.worker("inference", rank, "--own-memory", "--verify", updates=updates)
        job.succeed()
        job.verify(jobs.expected(model, INFER), list(range(1, updates + 1)))
        assert f"by {policy}, order {order}:" in job.processes["controller"].stderr
        for rank in range(job.trainers):
            events = [json.loads(line) for line in job.processes[f"trainer-{rank}"].stdout.splitlines()]
            assert [e["order"] for e in events if e["event"] == "joined"] == [order]
            packed.append(next(e["bytes_packed"] for e in events if e["event"] == "done"))
            words = [line.split() for line in (folder / f"posts-{rank}").read_text().splitlines()]
            posts.append([(int(w[1]), int(w[5])) for w in words])
    return posts, packed, json.loads((folder / "live.json").read_text())


def planned(model, policy, order, trainer):
    lines = jobs.weft("route", "order", "--model", model, "--train", TRAIN, "--infer", INFER, "--memory", "process",
                      "--policy", policy, "--order", order, "--trainer", trainer, "--json").stdout.splitlines()
    routes = [json.loads(line) for line in lines]
    assert all(route["pieces"] == 1 and route["trainer"] == trainer for route in routes)
    assert [route["position"] for route in routes] == list(range(len(routes)))
    return [(route["inference"], route["bytes"]) for route in routes]


def boxes(dump, trainer):
    """Bytes of the distinct boxes that a trainer packs."""
    found = {}
    for route in dump["routes"]:
        for piece in route["pieces"] if route["trainer"] == trainer else []:
            if piece.get("how", route["how"]) == "replica":
                found[route["tensor"], json.dumps(piece["src"])] = piece["bytes"]
    return sum(found.values())


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("policy", POLICIES)
def test_order__rows_are_posted_as_planned_and_boxes_packed_once(tmp_path, models, policy, order):
    posts, packed, dump = run(tmp_path, models["qwen3"], policy, order, "--pack-threads", "1")
    for trainer in range(4):
        assert posts[trainer] == planned(models["qwen3"], policy, order, trainer)
        assert packed[trainer] == boxes(dump, trainer)
    assert any(packed)


@pytest.mark.parametrize("order", ORDERS)
def test_order__a_row_overtakes_at_most_one_of_each_other_thread(tmp_path, models, order):
    threads = 3
    posts, packed, dump = run(tmp_path, models["qwen3"], "greedy", order, "--pack-threads", threads)
    for trainer in range(4):
        left = planned(models["qwen3"], "greedy", order, trainer)
        for post in posts[trainer]:  # what is still to come begins with what the threads have taken
            assert post in left[:threads], (post, left[:threads])
            left.remove(post)
        assert not left and packed[trainer] == boxes(dump, trainer)
    assert any(packed)


def test_order__differs_between_the_rows(models):
    found = [[planned(models["qwen3"], "greedy", order, trainer) for trainer in range(4)] for order in ORDERS]
    assert found[0] != found[1] != found[2] != found[0]
    for trainer in range(4):
        assert sorted(found[0][trainer]) == sorted(found[1][trainer]) == sorted(found[2][trainer])


@pytest.mark.parametrize("order", ORDERS)
def test_order__finishes_with_a_ring_smaller_than_its_open_boxes(tmp_path, models, order):
    """The smallest ring has four slots of a cache line: every block is packed again for every target."""
    _, packed, dump = run(tmp_path, models["qwen3"], "greedy", order, "--ring-bytes", "1", updates=2)
    assert all(packed[trainer] >= 2 * boxes(dump, trainer) for trainer in range(4))


def test_order__of_an_unknown_name_lists_the_known(tmp_path):
    for command in ([jobs.CONTROLLER, "--train", "world=2", "--infer", "tp=2", "--order", "best"],
                    [jobs.WEFT, "route", "order", "--model", "Qwen2.5-0.5B", "--train", "world=2", "--infer", "tp=2",
                     "--order", "best"]):
        process = jobs.Process("unknown", command, tmp_path)
        process.popen.wait(20)
        assert process.code == 2 and "table, rotated, rounds" in process.stderr, process.stderr
    refused = jobs.weft("route", "order", "--model", "Qwen2.5-0.5B", "--train", "world=2", "--infer", "tp=2",
                        "--trainer", "2", check=False)
    assert refused.returncode == 2 and "--trainer 2 is not a trainer of this job, which has 2, 0 to 1" in refused.stderr


def test_sessions_max__of_a_policy_that_cannot_is_refused_at_start(tmp_path):
    process = jobs.Process("limit", [jobs.CONTROLLER, "--train", "world=2", "--infer", "tp=2", "--sessions-max", "1"],
                           tmp_path)
    process.popen.wait(20)
    assert process.code == 2 and "--sessions-max 1: policy greedy cannot limit sessions" in process.stderr

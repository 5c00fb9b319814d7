# SPDX-License-Identifier: Apache-2.0
"""Whole jobs under every policy, send order and kind of topology: what the controller dumps is what
`weft route plan` says, byte for byte, and every byte of every version arrives."""
import collections
import itertools
import json
import time

import job as jobs
import pytest
from test_job import SHAPES

POLICIES = ("greedy", "round-robin", "round-robin-affinity", "prefix", "first-holder", "modulo", "hash", "lpt", "balanced")
ORDERS = ("table", "rotated", "rounds")
TOPOLOGIES = ("flat", "workers", "per_host=2,nics=1,gbps=100", "file")
# ways of the bytes: mapped by the trainers, packed by them; in place or into a second copy
MODES = {"mapped": [], "replica": ["--own-memory"], "shadow": ["--shadow"]}
# `balanced` cuts tensors of both among several trainers, for each inference rank
CUT = {"qwen2": ("world=5,source=gathered", "engines=3,tp=1"),
       "deepseek-fp8": ("world=3,fsdp=3,source=sharded", "engines=1,tp=2")}


def plan(folder, model, train, infer, topology, mode, *flags):
    """The offline plan of a job; for one over its workers' report, the topology is taken from its dump."""
    if topology == "workers":
        topology = folder / "reported.json"
        topology.write_text(json.dumps(json.loads((folder / "live.json").read_text())["topology"]))
    return jobs.weft("route", "plan", "--model", model, "--train", train, "--infer", infer, "--topology", topology,
                     "--memory", "process" if mode == "replica" else "mapped", *flags, "--json").stdout


def deliver(folder, model, train, infer, topology, mode, *flags, updates=3):
    """One job with checksums, all bytes compared; its dump, after it was compared too."""
    folder.mkdir(parents=True, exist_ok=True)
    if topology == "file":
        topology = folder / "cluster.json"
        topology.write_text(jobs.weft("route", "topology", "--train", train, "--infer", infer, "--topology",
                                      "per_host=3,nics=2,gbps=200,uplink_gbps=300,rails=2", "--json").stdout)
    with jobs.Job(folder, model, train, infer) as job:
        job.controller("--dump", folder / "live.json", "--topology", topology, *flags)
        job.workers("--verify", "--checksums", updates=updates, inference_flags=MODES[mode])
        job.succeed()
        job.verify(jobs.expected(model, infer), range(1, updates + 1))
    live = (folder / "live.json").read_text()
    assert live == plan(folder, model, train, infer, topology, mode, *flags)
    return json.loads(live)


def cuts(dump):
    """How many times a tensor comes to an inference rank from more than one trainer."""
    senders = collections.defaultdict(set)
    for route in dump["routes"]:
        senders[route["tensor"], route["inference"]].add(route["trainer"])
    return sum(len(trainers) > 1 for trainers in senders.values())


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", CUT)
def test_job__delivers_what_the_offline_plan_says_under_every_policy_and_order(tmp_path, models, kind, policy, order):
    # topologies and modes change from one job to the next, so that each policy and each order meets all
    turn = POLICIES.index(policy) + ORDERS.index(order) + list(CUT).index(kind)
    topology, mode = TOPOLOGIES[turn % len(TOPOLOGIES)], list(MODES)[turn % len(MODES)]
    dump = deliver(tmp_path, models[kind], *CUT[kind], topology, mode, "--policy", policy, "--order", order)
    assert (dump["policy"], dump["order"]) == (policy, order)
    assert policy != "balanced" or cuts(dump) > 0


@pytest.mark.parametrize("kind,train,infer", SHAPES, ids=["-".join(shape) for shape in SHAPES])
def test_job__balanced_in_rounds_delivers_every_byte_of_every_model(tmp_path, models, kind, train, infer):
    for number, (topology, mode) in enumerate(zip(("flat", "workers", "file"), MODES)):
        deliver(tmp_path / str(number), models[kind], train, infer, topology, mode, "--policy", "balanced", "--order",
                "rounds", updates=2)


MADE = [("deepseek-fp8", "world=3,source=gathered", "engines=1,tp=2,dtype=F16,fp8=4x8", "greedy"),
        ("qwen3", "world=4,fsdp=2,source=sharded", "engines=2,tp=2,fp8=8x8", "balanced"),
        ("qwen3-moe", "world=4,pp=2,source=gathered", "engines=2,tp=2,gate=F32,fp8=8x8", "hash")]


@pytest.mark.parametrize("kind,train,infer,policy", MADE, ids=["-".join(row) for row in MADE])
def test_job__of_made_pieces_delivers_what_the_offline_plan_says(tmp_path, models, kind, train, infer, policy):
    turn = [row[0] for row in MADE].index(kind)
    dump = deliver(tmp_path, models[kind], train, infer, TOPOLOGIES[turn], list(MODES)[turn], "--policy", policy)
    assert any("make" in piece for route in dump["routes"] for piece in route["pieces"])


@pytest.mark.parametrize("kind,infer,limits", [("qwen2", "engines=2,tp=2", (1, 2)),
                                               ("qwen3", "engines=2,tp=2,fp8=8x8", (1,))], ids=["copied", "made"])
def test_job__keeps_every_trainer_within_sessions_max(tmp_path, models, kind, infer, limits):
    train = "world=4,source=gathered"
    for limit, topology in itertools.product(limits, ("flat", "workers")[:len(limits)]):
        dump = deliver(tmp_path / f"{limit}-{topology}", models[kind], train, infer, topology, "mapped", "--policy",
                       "balanced", "--sessions-max", limit)
        targets = collections.defaultdict(set)
        for route in dump["routes"]:
            targets[route["trainer"]].add(route["inference"])
        assert max(map(len, targets.values())) <= limit


def test_job__that_no_plan_within_sessions_max_can_serve_fails_with_the_tensor_named(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], "world=1,source=gathered", "engines=1,tp=2") as job:
        job.controller("--policy", "balanced", "--sessions-max", "1", "--restarts", "3")
        job.workers(updates=1)
        codes = job.wait()
        assert set(codes.values()) == {78}, job.said()
        for process in job.processes.values():
            assert "--sessions-max 1" in process.stderr.splitlines()[-1], process.stderr


@pytest.mark.parametrize("policy,order", [("greedy", "table"), ("balanced", "rotated"), ("balanced", "rounds")])
def test_kill__of_a_trainer_is_named_by_all_in_every_order(tmp_path, models, policy, order):
    with jobs.Job(tmp_path, models["qwen3"], "world=4,pp=2,source=gathered", "engines=2,tp=2") as job:
        job.controller("--policy", policy, "--order", order, "--lost-after", "3s")
        job.workers("--checksums", updates=100000)
        deadline = time.monotonic() + 30
        while len(job.processes["inference-3"].updates()) < 3:
            assert time.monotonic() < deadline, job.said()
            time.sleep(0.02)
        job.kill("trainer-2")
        codes = job.wait(30)
        assert codes.pop("trainer-2") == -9
        assert set(codes.values()) == {75}, job.said()
        for name in codes:
            assert "trainer 2" in job.processes[name].stderr.splitlines()[-1], job.said([name])


def test_job__whose_planning_takes_longer_than_lost_after_loses_nobody(tmp_path):
    model = jobs.make_model(tmp_path, "qwen3-moe", num_hidden_layers=40, num_experts=128, moe_intermediate_size=16)
    train, infer = "world=4,fsdp=4,source=sharded", "engines=1,tp=4"
    flags = ("--policy", "balanced", "--order", "rounds")
    began = time.monotonic()
    offline = jobs.weft("route", "plan", "--model", model, "--train", train, "--infer", infer, *flags, "--json").stdout
    lost_after = max(1, (time.monotonic() - began) / 2)
    with jobs.Job(tmp_path, model, train, infer) as job:
        controller = job.controller("--dump", tmp_path / "live.json", "--heartbeat", f"{lost_after * 200:.0f}ms",
                                    "--lost-after", f"{lost_after * 1000:.0f}ms", *flags, env={"WEFT_LOG": "debug"})
        job.workers(updates=1)
        job.succeed(120)
        assert (tmp_path / "live.json").read_text() == offline
        # nor is it sent again for each of their questions meanwhile; one that comes just before its answer may be answered twice
        assert 8 <= sum(" plan (" in line and " > " in line for line in controller.stderr.splitlines()) < 16

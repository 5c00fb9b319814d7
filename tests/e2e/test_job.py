# SPDX-License-Identifier: Apache-2.0
"""Whole jobs: every version on every inference rank equals the independent recomputation."""
import json
import pathlib
import tempfile

import pytest

import job as jobs

SHAPES = [
    # model, train, infer: counts free, layouts differ on both sides
    ("qwen2", "world=4,source=gathered", "engines=2,tp=2"),
    ("qwen2", "world=1,source=gathered", "engines=1,tp=1"),
    ("qwen2", "world=2,source=gathered", "engines=1,tp=4"),
    ("qwen2", "world=5,source=gathered", "engines=3,tp=1"),
    ("qwen3", "world=4,pp=2,source=gathered", "engines=1,tp=2"),
    ("qwen3", "world=4,pp=4,source=gathered", "engines=2,tp=1"),
    ("llama", "world=4,fsdp=4,source=sharded", "engines=1,tp=4"),
    ("llama", "world=4,fsdp=2,source=sharded", "engines=2,tp=2"),
    ("llama", "world=3,fsdp=3,source=sharded", "engines=1,tp=2"),
    ("glm4", "world=6,pp=2,fsdp=3,source=sharded", "engines=1,tp=2"),
    ("glm4", "world=3,pp=3,layers=1/1/3,source=gathered", "engines=1,tp=4"),
    ("qwen3-moe", "world=4,pp=2,source=gathered", "engines=1,tp=4,ep=4"),
    ("qwen3-moe", "world=4,fsdp=4,source=sharded", "engines=1,tp=4,ep=2,dp=2,dp_lm_head=1"),
    ("glm4-moe", "world=3,fsdp=3,source=sharded", "engines=2,tp=2,ep=2"),
    ("moonlight", "world=2,source=gathered", "engines=1,tp=4,ep=2"),
    ("deepseek-fp8", "world=4,pp=2,source=gathered", "engines=1,tp=4,ep=4,dp=2,dp_lm_head=1,moe_dense_tp=1"),
    ("deepseek-fp8", "world=3,fsdp=3,source=sharded", "engines=1,tp=2"),
    ("glm-dsa", "world=4,pp=2,fsdp=2,source=sharded", "engines=1,tp=4,ep=4,dp=4,dp_lm_head=1,moe_dense_tp=1"),
]


@pytest.mark.parametrize("kind,train,infer", SHAPES, ids=["-".join(shape) for shape in SHAPES])
def test_job__delivers_every_byte_of_every_version(tmp_path, models, kind, train, infer):
    with jobs.Job(tmp_path, models[kind], train, infer) as job:
        job.controller()
        job.workers("--verify", updates=3)
        job.succeed()
        job.verify(jobs.expected(models[kind], infer), [1, 2, 3])
        assert all(len(job.processes[f"inference-{rank}"].updates()) == 3 for rank in range(job.inference))


@pytest.mark.parametrize("flags,inference_flags", [
    (["--checksums"], []), ([], ["--own-memory"]), (["--checksums"], ["--own-memory"]),
    ([], ["--shadow"]), (["--checksums"], ["--shadow"])],
    ids=["checksums", "own-memory", "own-memory-checksums", "shadow", "shadow-checksums"])
def test_job__delivers_every_byte_in_every_mode(tmp_path, models, flags, inference_flags):
    train, infer = "world=3,source=gathered", "engines=2,tp=2"
    with jobs.Job(tmp_path, models["qwen2"], train, infer) as job:
        job.controller()
        job.workers("--verify", *flags, updates=4, inference_flags=inference_flags)
        job.succeed()
        job.verify(jobs.expected(models["qwen2"], infer), [1, 2, 3, 4])


@pytest.mark.shm
@pytest.mark.parametrize("flags,engines,packs", [([], 1, False), (["--checksums"], 2, False), ([], 4, True)],
                         ids=["one-target", "checksums", "many-targets"])
def test_job__long_rows_reach_own_memory_without_being_packed(tmp_path, flags, engines, packs):
    """down_proj's columns are rows of 4352 bytes, which process_vm_writev gathers where they lie; o_proj's of
    96 bytes go through the ring, and so do all of them where many ranks want the same ones."""
    model = jobs.make_model(tmp_path, "qwen2", intermediate_size=4352)
    infer = f"engines={engines},tp=2"
    with jobs.Job(tmp_path, model, "world=1,source=gathered", infer) as job:
        job.controller()
        job.workers("--verify", *flags, updates=2, inference_flags=["--own-memory"])
        job.succeed()
        job.verify(jobs.expected(model, infer), [1, 2])
        events = [json.loads(line) for line in job.processes["trainer-0"].stdout.splitlines()]
    layers, hidden, wide, updates = 3, 96, 4352, 2
    attention, down = layers * hidden * hidden * 2 * updates, layers * hidden * wide * 2 * updates
    packed = next(event["bytes_packed"] for event in events if event["event"] == "done")
    assert packed == attention + (down if packs else 0)


def test_job__versions_may_start_anywhere(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], "world=2,source=gathered", "engines=1,tp=2") as job:
        job.controller()
        job.workers("--first-version", "4000000000", updates=2)
        job.succeed()
        job.verify(jobs.expected(models["qwen2"], job.infer), [4000000000, 4000000001])


def test_every__has_trainers_begin_versions_in_different_periods_of_the_clock(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], "world=2,source=gathered", "engines=1,tp=2") as job:
        job.controller()
        job.workers(updates=4, trainer_flags=["--every", "250ms"])
        job.succeed()
        for rank in range(2):
            begins = [update["time"] - update["seconds"] - update["wait_seconds"] for update in job.processes[f"trainer-{rank}"].updates()]
            assert len({(begin + 0.05) // 0.25 for begin in begins}) == 4, begins  # clocks are rounded


@pytest.mark.parametrize("bind,host", [("tcp://[::1]:0", "[::1]"), ("tcp://*:0", "localhost")])
def test_job__reaches_its_controller_by_ipv6_and_by_name(tmp_path, models, bind, host):
    if "::1" in host and not pathlib.Path("/proc/net/if_inet6").read_text().strip():
        pytest.skip("this machine has no IPv6")
    with jobs.Job(tmp_path, models["qwen2"], "world=1,source=gathered", "engines=1,tp=1") as job:
        job.controller(*(["--insecure"] if "*" in bind else []), bind=bind)
        job.address = job.address.replace("127.0.0.1", host)
        job.workers(updates=1)
        job.succeed()


def test_job__two_jobs_share_a_machine(tmp_path, models):
    train, infer = "world=2,source=gathered", "engines=1,tp=2"
    with jobs.Job(tmp_path / "a", models["qwen2"], train, infer, "a") as one, \
            jobs.Job(tmp_path / "b", models["llama"], train, infer, "b") as two:
        for job in (one, two):
            job.controller()
            job.workers(updates=3)
        for job in (one, two):
            job.succeed()
            job.verify(jobs.expected(job.model, infer), [1, 2, 3])


def test_job__a_late_worker_is_waited_for(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], "world=2,source=gathered", "engines=1,tp=1") as job:
        job.controller()
        job.worker("trainer", 0)
        job.worker("inference", 0)
        import time
        time.sleep(1.5)
        job.worker("trainer", 1)
        job.succeed()
        job.verify(jobs.expected(models["qwen2"], job.infer), [1, 2])


@pytest.mark.shm  # an offline plan is told of no transport, and takes the one that maps memory
def test_dump__of_a_live_job_equals_the_offline_plan_byte_for_byte(tmp_path, models):
    for number, (kind, train, infer) in enumerate(SHAPES):
        for policy in ("greedy", "round-robin"):
            folder = tmp_path / f"{number}-{policy}"
            with jobs.Job(folder, models[kind], train, infer) as job:
                job.controller("--dump", folder / "live.json", "--policy", policy)
                job.workers(updates=1)
                job.succeed()
            offline = jobs.weft("route", "plan", "--model", models[kind], "--train", train, "--infer", infer,
                                "--policy", policy, "--json").stdout
            assert (folder / "live.json").read_text() == offline
            assert json.loads(offline)["schema"] == "weft.routing/1"


def test_dump__of_a_job_with_host_memory_says_replica(tmp_path, models):
    train, infer = "world=2,source=gathered", "engines=1,tp=2"
    with jobs.Job(tmp_path, models["qwen2"], train, infer) as job:
        job.controller("--dump", tmp_path / "live.json")
        job.workers(updates=1, inference_flags=["--own-memory"])
        job.succeed()
    offline = jobs.weft("route", "plan", "--model", models["qwen2"], "--train", train, "--infer", infer,
                        "--memory", "process", "--json").stdout
    assert (tmp_path / "live.json").read_text() == offline
    hows = {route["how"] for route in json.loads(offline)["routes"]}
    assert hows == {"direct", "replica"}


def test_leftovers__are_of_these_tests_and_not_what_was_there_before(monkeypatch):
    with tempfile.NamedTemporaryFile(prefix="weft-") as file, tempfile.TemporaryDirectory(prefix="weft-net-"):
        assert file.name in jobs.leftovers(patience=0)
        monkeypatch.setattr(jobs, "BEFORE", {file.name})
        assert [name for name in jobs.leftovers(patience=0) if name == file.name or "weft-net-" in name] == []


def test_job__leaves_nothing_behind(tmp_path, models):
    before = jobs.leftovers()
    with jobs.Job(tmp_path, models["qwen2"], "world=2,source=gathered", "engines=1,tp=2") as job:
        job.controller()
        job.workers(updates=2)
        job.succeed()
    assert jobs.leftovers() == before

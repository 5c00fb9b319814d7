# SPDX-License-Identifier: Apache-2.0
"""Whole jobs with memory of GPUs, on mock devices: the ways that the main suite's jobs do not take (it runs with memory
of GPUs too: ./bootstrap, cuda_processes)."""
import json

import pytest

import job as jobs

TRAIN, INFER = "world=2,source=gathered", "engines=1,tp=2"
LATE, RANDOM = {"WEFT_CUDA_MOCK": "devices=2,order=late"}, {"WEFT_CUDA_MOCK": "devices=2,order=random,seed=3"}
CUDA, TCP = ["--transport", "cuda"], ["--transport", "tcp", "--nic", "lo"]
WAYS = {
    "staged-on-the-gpu": [*CUDA, "--memory", "cuda", "--stage", "device"],
    "staged-on-the-gpu-checksums": [*CUDA, "--memory", "cuda", "--stage", "device", "--checksums"],
    "staged-into-own-memory": [*CUDA, "--memory", "cuda", "--stage", "device", "--own-memory"],
    "staged-on-the-host": [*CUDA, "--memory", "cuda", "--stage", "host", "--checksums"],
    "staged-by-a-host-trainer": [*CUDA, "--memory", "inference=cuda:1", "--stage", "device"],
    "shm": ["--transport", "shm", "--memory", "cuda", "--stage", "host"],
    "shm-own-memory": ["--transport", "shm", "--memory", "cuda", "--stage", "host", "--own-memory", "--checksums"],
    "shm-host-rank": ["--transport", "shm", "--memory", "trainer=cuda:1"],
    "tcp": [*TCP, "--memory", "cuda", "--stage", "host"],
    "tcp-checksums": [*TCP, "--memory", "trainer=cuda", "--checksums"],
    "shm-gpu-to-host": ["--transport", "shm", "--memory", "trainer=cuda", "--checksums"],
    "tcp-in-place": [*TCP, "--memory", "cuda", "--checksums"],
    "tcp-host-to-gpu": [*TCP, "--memory", "inference=cuda:1", "--shadow"],
    "shm-in-place": ["--transport", "shm", "--memory", "cuda", "--landing-bytes", "1", "--checksums"],
    "shm-host-to-gpu": ["--transport", "shm", "--memory", "inference=cuda", "--replica", "full", "--landing-bytes", "200K"],
    "shm-into-own-memory": ["--transport", "shm", "--memory", "cuda", "--own-memory", "--replica", "host"],
    "list": ["--transport", "shm,tcp", "--nic", "lo", "--memory", "cuda", "--stage", "host"],
    "list-in-place": ["--transport", "cuda,tcp", "--nic", "lo", "--memory", "cuda", "--checksums"],
    "two-gpus": [*CUDA, "--memory", "trainer=cuda:0,inference=cuda:1", "--checksums"],
    "small-ring": ["--transport", "shm", "--memory", "cuda", "--stage", "host", "--ring-bytes", "16K"],
}


@pytest.mark.parametrize("kind", ["qwen2", "deepseek-fp8"])
@pytest.mark.parametrize("flags", WAYS.values(), ids=WAYS.keys())
def test_way__delivers_every_byte_of_every_version(tmp_path, models, flags, kind):
    with jobs.Job(tmp_path, models[kind], TRAIN, INFER) as job:
        job.controller()
        job.workers("--verify", *flags, updates=3, env=RANDOM if kind == "qwen2" else LATE)
        job.succeed()
        job.verify(jobs.expected(models[kind], INFER), [1, 2, 3])


PATHS = {
    "both": ([*CUDA, "--memory", "cuda"], {"mapped"}),
    "trainers": ([*CUDA, "--memory", "trainer=cuda"], {"mapped"}),
    "ranks": ([*CUDA, "--memory", "inference=cuda"], {"direct", "replica"}),
    "shm": (["--transport", "shm", "--memory", "trainer=cuda"], {"mapped"}),
    "own-memory": ([*CUDA, "--memory", "trainer=cuda", "--own-memory"], {"replica"}),
    "tcp": ([*TCP, "--memory", "trainer=cuda"], {"replica"}),
    "list": (["--transport", "tcp,cuda", "--nic", "lo", "--memory", "cuda"], {"mapped"}),
    "landed-list": (["--transport", "tcp,shm", "--nic", "lo", "--memory", "cuda"], {"landed"}),
    "landed": ([*TCP, "--memory", "cuda"], {"landed"}),
    "landed-shm": (["--transport", "shm", "--memory", "inference=cuda"], {"landed"}),
}


@pytest.mark.parametrize("flags,paths", PATHS.values(), ids=PATHS.keys())
def test_plan__says_how_each_piece_travels(tmp_path, models, flags, paths):
    dump = tmp_path / "plan.json"
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.controller("--dump", dump)
        job.workers("--verify", *flags, env=LATE)
        job.succeed()
    table = json.loads(dump.read_text())
    found = {route["how"] for route in table["routes"]}
    assert found == paths
    jobs.weft("route", "verify", dump, "--model", models["qwen2"])
    assert jobs.weft("route", "export", dump, "--format", "json").stdout == dump.read_text()


@pytest.mark.parametrize("memory", ["cuda", "trainer=cuda", "inference=cuda"])
def test_two_hosts__share_gpus_on_each_and_land_between_them(tmp_path, models, memory):
    dump, train = tmp_path / "plan.json", "world=2,fsdp=2,source=sharded"
    with jobs.Job(tmp_path, models["qwen2"], train, INFER) as job:
        job.hosts = {f"{role}-{rank}": "ab"[rank] for role in ("trainer", "inference") for rank in range(2)}
        job.controller("--dump", dump)
        job.workers("--verify", "--checksums", "--transport", "cuda,tcp", "--nic", "lo", "--memory", memory, updates=3, env=LATE)
        job.succeed()
        job.verify(jobs.expected(models["qwen2"], INFER), [1, 2, 3])
    jobs.weft("route", "verify", dump, "--model", models["qwen2"])
    found = {(route["transport"], route["how"] == "landed") for route in json.loads(dump.read_text())["routes"]}
    assert found == {("cuda", False), ("tcp", memory != "trainer=cuda")}


@pytest.mark.parametrize("way,memory", [(CUDA, "cuda"), (CUDA, "trainer=cuda"), (CUDA, "inference=cuda"), (TCP, "cuda")],
                         ids=["both", "trainers", "ranks", "landed"])
def test_killed_trainer__is_told_and_its_version_is_not_published(tmp_path, models, way, memory):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.controller()
        job.workers("--verify", *way, "--memory", memory, updates=100000, env=LATE)
        deadline = 200
        while not job.processes["inference-0"].updates() and deadline:
            deadline -= 1
            jobs.time.sleep(0.05)
        job.kill("trainer-1")
        codes = job.wait()
        assert codes["trainer-1"] == -9 and set(codes.values()) == {-9, 75}, job.said()
        for rank in range(2):
            assert "trainer 1" in job.processes[f"inference-{rank}"].stderr
            # all that was published was verified, and equals the recomputation
            versions = sorted(job.digests(rank))[-3:]
            want = jobs.expected(models["qwen2"], INFER)
            assert all(job.digests(rank)[version] == want.digests(version)[rank] for version in versions[:-1])
    assert not jobs.leftovers()


def test_killed_rank__whose_window_a_trainer_waits_for_is_told(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.controller()
        job.workers(*TCP, "--memory", "cuda", "--landing-bytes", "1", updates=100000, env=LATE)
        deadline = 200
        while not job.processes["inference-1"].updates() and deadline:
            deadline -= 1
            jobs.time.sleep(0.05)
        job.kill("inference-1")
        codes = job.wait()
        assert codes["inference-1"] == -9 and set(codes.values()) == {-9, 75}, job.said()
        for name in ("trainer-0", "trainer-1", "inference-0"):
            assert "inference 1" in job.processes[name].stderr, job.said()
    assert not jobs.leftovers()


def test_device__that_is_lost_is_told_to_everybody(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.controller()
        for rank in range(2):
            lose = {"WEFT_CUDA_MOCK": "devices=1,order=late,lose=60"} if rank else LATE
            job.worker("trainer", rank, *CUDA, "--memory", "cuda", updates=50, env=lose)
            job.worker("inference", rank, *CUDA, "--memory", "cuda", updates=50, env=LATE)
        codes = job.wait()
        assert 0 not in codes.values(), job.said()
        for name in ("trainer-0", "inference-0", "inference-1"):
            assert "trainer 1" in job.processes[name].stderr and "CUDA error" in job.processes[name].stderr, job.said()


SOURCES = [  # how trainers are cut, the engine, and the ways they go
    ("world=4,source=megatron,tp=2,ep=2,etp=1", "engines=1,tp=2,ep=2", [*CUDA, "--memory", "cuda", "--checksums"]),
    ("world=4,source=megatron,tp=2,ep=2,etp=2,grouped=legacy", "engines=1,tp=4,ep=2", [*CUDA, "--memory", "cuda"]),
    ("world=4,source=megatron,tp=2,ep=2,etp=1", "engines=1,tp=2,ep=2", [*TCP, "--memory", "cuda", "--checksums"]),
    ("world=3,source=zero3", "engines=2,tp=2", [*CUDA, "--memory", "cuda", "--checksums"]),
    # some pieces spread, and some not, on one way
    ("world=4,source=megatron,tp=4", "engines=2,tp=2,dtype=F16", [*CUDA, "--memory", "cuda", "--checksums"]),
    ("world=4,source=dtensor,mesh=2/2,ep=2", "engines=1,tp=1", [*TCP, "--memory", "cuda", "--checksums", "--shadow"]),
]


@pytest.mark.parametrize("train,infer,flags", SOURCES, ids=["-".join((*case[:2], *case[2])) for case in SOURCES])
def test_source__of_gpus_delivers_every_byte(tmp_path, models, train, infer, flags):
    with jobs.Job(tmp_path, models["qwen3-moe"], train, infer) as job:
        job.controller()
        job.workers("--verify", *flags, updates=3, env=RANDOM)
        job.succeed()
        job.verify(jobs.expected(models["qwen3-moe"], infer), [1, 2, 3])


FINER = "world=4,source=megatron,tp=2,ep=2,etp=2"
FP8 = "engines=1,tp=2,ep=2,fp8=8x8"
SPREAD = {  # of trainers that are cut finer than the engine: flags, how what is spread travels, --memory of the same plan
    "gpu-to-gpu": ([*CUDA, "--memory", "cuda", "--checksums"], "mapped", None),
    "gpu-to-gpu-staged": ([*CUDA, "--memory", "cuda", "--stage", "device", "--own-memory", "--checksums"], "mapped", None),
    "gpu-to-gpu-by-the-host": ([*CUDA, "--memory", "cuda", "--stage", "host", "--checksums"], "mapped", None),
    "gpu-to-host": ([*CUDA, "--memory", "trainer=cuda", "--checksums"], "mapped", None),
    "host-to-gpu-staged": ([*CUDA, "--memory", "inference=cuda", "--stage", "device", "--landing-bytes", "1"], "landed", "process"),
    "shm": (["--transport", "shm", "--memory", "cuda", "--shadow", "--checksums"], "landed", "landed"),
    "shm-gpu-to-host": (["--transport", "shm", "--memory", "trainer=cuda", "--checksums"], "mapped", None),
    "tcp": ([*TCP, "--memory", "cuda", "--checksums"], "landed", "landed"),
    "list": (["--transport", "cuda,tcp", "--nic", "lo", "--memory", "cuda", "--checksums"], "mapped", None),
}
IN_BLOCKS = ("gpu-to-gpu", "tcp")


@pytest.mark.parametrize("train,around", [(FINER, {"landed"}), ("world=4,source=gathered", {"direct", "replica"})], ids=["finer", "whole"])
def test_trainers__of_which_some_lie_on_the_host_reach_a_gpu_each_its_way(tmp_path, models, train, around):
    dump, infer, flags = tmp_path / "plan.json", "engines=1,tp=2,ep=2", ["--verify", "--transport", "cuda,tcp", "--nic", "lo"]
    with jobs.Job(tmp_path, models["qwen3-moe"], train, infer) as job:
        job.controller("--dump", dump)
        for rank in range(4):
            job.worker("trainer", rank, *flags, *(["--memory", "cuda"] if rank % 2 else []), updates=2, env=LATE)
        for rank in range(2):
            job.worker("inference", rank, *flags, "--memory", "cuda", updates=2, env=LATE)
        job.succeed()
        job.verify(jobs.expected(models["qwen3-moe"], infer), [1, 2])
    ways = {(route["trainer"] % 2, route["how"]) for route in json.loads(dump.read_text())["routes"]}
    assert ways == {(1, "mapped"), *((0, way) for way in around)}
    jobs.weft("route", "verify", dump, "--model", models["qwen3-moe"])


@pytest.mark.parametrize("flags,trainer_flags", [(["--transport", "cuda"], []), (["--transport", "tcp", "--checksums"], ["--memory", "cuda"])],
                         ids=["host-to-gpu", "gpu-to-gpu-tcp"])
def test_small__pieces_for_a_gpu_land_many_to_a_write(tmp_path, models, flags, trainer_flags):
    jobs.run(tmp_path, models, "qwen3-moe", "world=6,source=dtensor,mesh=3/2", "engines=1,tp=4,ep=2", ["--verify", *flags], env=LATE,
             trainer_flags=trainer_flags, inference_flags=["--memory", "cuda"])


def spread_of(dump):
    return {route["how"] for route in json.loads(dump.read_text())["routes"] if "run_bytes" in json.dumps(route)}


@pytest.mark.parametrize("infer,way", [("engines=1,tp=2,ep=2", way) for way in SPREAD] + [(FP8, way) for way in IN_BLOCKS])
def test_finer__than_the_engine_reaches_its_runs_by_every_way(tmp_path, models, infer, way):
    flags, how, memory = SPREAD[way]
    dump = tmp_path / "plan.json"
    with jobs.Job(tmp_path, models["qwen3-moe"], FINER, infer) as job:
        job.controller("--dump", dump)
        job.workers("--verify", *flags, updates=2, env=RANDOM if infer == FP8 else LATE)
        job.succeed()
        job.verify(jobs.expected(models["qwen3-moe"], infer), [1, 2])
    assert spread_of(dump) == {how}
    if memory:
        planned = tmp_path / "planned.json"
        jobs.weft("route", "plan", "--model", models["qwen3-moe"], "--train", FINER, "--infer", infer, "--memory", memory,
                  "--output", planned)
        assert planned.read_text() == dump.read_text()
    jobs.weft("route", "verify", dump, "--model", models["qwen3-moe"])
    assert jobs.weft("route", "export", dump, "--format", "json").stdout == dump.read_text()

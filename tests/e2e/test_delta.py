# SPDX-License-Identifier: Apache-2.0
"""weft-controller --delta: trainers send what differs from the version before, and engines hold every byte of each version."""
import json
import time

import job as jobs
import pytest

TCP = ["--transport", "tcp", "--nic", "lo"]
BIG = {"hidden_size": 256, "num_hidden_layers": 2, "intermediate_size": 1024, "vocab_size": 4000}
MODES = {
    "in-place": [],
    "shadow": ["--shadow"],
    "own-memory": ["--own-memory"],
    "full-replica": ["--replica", "full"],
    "registered": ["--register-sources"],
    "small-ring": ["--ring-bytes", "262144", "--landing-bytes", "200000"],
}


def saved(process, updates):
    """Of each of a trainer's versions, the share of its bytes that was not sent."""
    lines = process.updates()
    assert len(lines) == updates, process.stdout
    return [line["bytes_saved"] / line["bytes"] for line in lines]


def run(tmp_path, model, train, infer, flags, updates=4, controller=("--delta",), one_in=20, env=None):
    with jobs.Job(tmp_path, model, train, infer) as job:
        job.controller(*controller)
        job.workers("--verify", "--change-one-in", one_in, *flags, updates=updates, env=env)
        job.succeed(120)
        if one_in > 1:
            job.verify(jobs.expected(model, infer, one_in), range(1, updates + 1))
        trainers = [process for name, process in job.processes.items() if name.startswith("trainer")]
        return [saved(process, updates) for process in trainers], job.said()


@pytest.mark.parametrize("flags", MODES.values(), ids=MODES.keys())
def test_delta__sends_an_eighth_of_a_version_of_which_one_value_in_twenty_differs(tmp_path, flags):
    model = jobs.make_model(tmp_path, "qwen2", **BIG)
    shares, said = run(tmp_path, model, "world=2,source=gathered", "engines=1,tp=2", [*TCP, *flags])
    for first, *later in shares:
        assert first == 0, said
        assert all(0.85 < share < 0.92 for share in later), said


@pytest.mark.parametrize("kind,train,infer,least", [
    ("qwen2", "world=4,fsdp=4,source=sharded", "engines=2,tp=2", 0.8),   # columns that land as runs
    ("qwen3-moe", "world=4,pp=2,source=gathered", "engines=1,tp=4,ep=4", 0.7),
    ("llama", "world=2,pp=2,source=gathered", "engines=1,tp=2", 0.7),    # float32: half of a value is a change
    ("deepseek-fp8", "world=2,source=gathered", "engines=1,tp=2,ep=2", 0.6),
    ("qwen3", "world=4,fsdp=2,source=sharded", "engines=2,tp=2,fp8=8x8", 0.2),
], ids=["boxes", "experts", "float32", "fp8", "quantised"])
def test_delta__of_every_kind_of_piece_delivers_every_byte(tmp_path, models, kind, train, infer, least):
    model = models[kind] if kind != "qwen2" else jobs.make_model(tmp_path, "qwen2", **BIG)
    shares, said = run(tmp_path, model, train, infer, TCP, one_in=50)
    for first, *later in shares:
        assert first == 0, said
        assert all(share > least for share in later), said


@pytest.mark.parametrize("kind", ["qwen2", "deepseek-fp8"])
@pytest.mark.parametrize("flags,saves", [
    (["--memory", "trainer=cuda"], True),
    (["--memory", "cuda", "--stage", "host"], True),
    (["--memory", "inference=cuda", "--stage", "host", "--replica", "full"], True),
    (["--memory", "cuda"], False),
    (["--memory", "inference=cuda", "--shadow"], False),
    (["--memory", "cuda", "--stage", "device"], False),
], ids=lambda value: "-".join(value).replace("--", "") if isinstance(value, list) else None)
def test_delta__of_memory_of_gpus_is_what_the_processor_can_compare_and_put_in_place(tmp_path, models, kind, flags, saves):
    shares, said = run(tmp_path, models[kind], "world=2,source=gathered", "engines=1,tp=2", [*TCP, *flags], one_in=50,
                       env={"WEFT_CUDA_MOCK": "devices=2,order=late"})
    for first, *later in shares:
        assert first == 0 and all((share > 0.5) if saves else (share == 0) for share in later), said


def test_delta__sends_next_to_nothing_of_what_is_frozen(tmp_path):
    model = jobs.make_model(tmp_path, "qwen2", **BIG)
    shares, said = run(tmp_path, model, "world=2,source=gathered", "engines=1,tp=2", TCP, one_in=65536)
    assert all(share > 0.995 for _, *later in shares for share in later), said


def test_delta__of_versions_whose_every_value_differs_saves_nothing_and_loses_nothing(tmp_path):
    model = jobs.make_model(tmp_path, "qwen2", **BIG)
    shares, said = run(tmp_path, model, "world=2,source=gathered", "engines=1,tp=2", TCP, updates=12, one_in=1)
    assert all(share == 0 for all_of_one in shares for share in all_of_one), said


def test_delta__has_nothing_to_save_where_no_network_is(tmp_path, models):
    shares, said = run(tmp_path, models["qwen2"], "world=2,source=gathered", "engines=1,tp=2", [])
    assert all(share == 0 for all_of_one in shares for share in all_of_one), said


def test_delta__of_a_list_saves_on_the_pairs_that_a_network_is_between(tmp_path):
    model = jobs.make_model(tmp_path, "qwen2", **BIG)
    with jobs.Job(tmp_path, model, "world=1,source=gathered", "engines=2,tp=1") as job:
        job.hosts = {"inference-1": "b"}
        job.controller("--delta")
        job.workers("--verify", "--change-one-in", 20, "--nic", "lo", "--transport", "shm,tcp", updates=3)
        job.succeed(60)
        first, *later = saved(job.processes["trainer-0"], 3)
        assert first == 0 and all(0.42 < share < 0.46 for share in later), job.said()


def test_delta__gives_an_engine_that_comes_back_the_whole_version(tmp_path, models):
    flags = ["--verify", "--change-one-in", 20, *TCP]
    with jobs.Job(tmp_path, models["qwen2"], "world=2,source=gathered", "engines=2,tp=1") as job:
        job.controller("--delta", "--on-loss", "continue", "--lost-after", "2s")
        job.workers(*flags, updates=400, trainer_flags=["--interval", "50ms"])
        wait_for(job, "inference-1", 3)
        job.kill("inference-1")
        wait_for(job, "inference-0", len(job.processes["inference-0"].updates()) + 5)
        job.worker("inference", 1, *flags, updates=400, name="again")
        wait_for(job, "again", 5)
        job.kill("controller", 15)
        job.wait(30)
        # every version of everybody was verified when it was shown
        for name, process in job.processes.items():
            assert "differs" not in process.stderr, job.said([name])


def wait_for(job, name, updates):
    deadline = time.monotonic() + 60
    while len(job.processes[name].updates()) < updates:
        assert time.monotonic() < deadline, job.said()
        time.sleep(0.05)


def test_delta__in_the_plan_is_seen_in_the_log(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], "world=1,source=gathered", "engines=1,tp=1") as job:
        job.controller("--delta")
        job.workers(*TCP, updates=2, env={"WEFT_LOG": "info"})
        job.succeed(60)
        assert "sends what differs" in job.processes["trainer-0"].stderr
        assert "what differs from the version before lands" in job.processes["inference-0"].stderr
        done = json.loads(job.processes["trainer-0"].stdout.splitlines()[-1])
        assert done["event"] == "done" and "bytes_saved" in done

# SPDX-License-Identifier: Apache-2.0
"""Real processes in a job that goes on when an engine is lost (--on-loss continue, docs/living.md)."""
import signal
import time

import job as jobs
import pytest

TRAIN, INFER = "world=2,source=gathered", "engines=3,tp=2"
TCP = ["--transport", "tcp", "--nic", "lo"]
WAYS = {"shm": [], "tcp": TCP, "full": ["--replica", "full"], "list": ["--transport", "shm,tcp", "--nic", "lo"]}
UPDATES = 200


def until(condition, job, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, job.said()
        time.sleep(0.01)


def begin(job, *flags, updates=UPDATES, controller=()):
    job.controller("--on-loss", "continue", *controller)
    job.workers("--verify", *flags, updates=updates, inference_flags=["--shadow"])
    until(lambda: len(job.processes["inference-2"].updates()) > 2, job)


def others_did_all(job, lost=(2, 3), updates=UPDATES, timeout=90):
    """Who was not of that engine has done all its updates, and every byte of them is right."""
    codes = job.wait(timeout)
    rest = {name: code for name, code in codes.items() if name not in {"late", *(f"inference-{rank}" for rank in lost)}}
    assert set(rest.values()) == {0}, f"{codes}\n{job.said()}"
    want = jobs.expected(job.model, job.infer)
    for rank in set(range(job.inference)) - set(lost):
        assert sorted(job.digests(rank)) == list(range(1, updates + 1)), job.said()
        for version in (1, updates // 2, updates):
            assert job.digests(rank)[version] == want.digests(version)[rank % want.tp]
    return codes


@pytest.mark.parametrize("way", WAYS)
def test_killed_rank__takes_its_engine_out_and_nobody_else(tmp_path, models, way):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        begin(job, *WAYS[way])
        job.kill("inference-2")
        codes = others_did_all(job)
        assert codes["inference-2"] == -9 and codes["inference-3"] == 75
        assert "inference 2" in job.processes["inference-3"].stderr
        said = job.processes["controller"].stderr
        assert said.count("engine 1 (inference 2..3) leaves, the job goes on with 2 of 3") == 1, said
        assert "done: all others have left; engines that were lost: 1 of 3" in said
        for rank in range(2):
            assert "without inference 2" in job.processes[f"trainer-{rank}"].stderr
    assert not jobs.leftovers()


@pytest.mark.parametrize("way", ["shm", "tcp"])
def test_stopped_rank__is_lost_and_told_so_when_it_wakes(tmp_path, models, way):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        begin(job, *WAYS[way], controller=["--lost-after", "2s"])
        job.kill("inference-2", signal.SIGSTOP)
        until(lambda: job.processes["inference-3"].code is not None, job)
        job.kill("inference-2", signal.SIGCONT)
        codes = others_did_all(job)
        assert codes["inference-2"] and codes["inference-3"] == 75, job.said()
        assert "was lost: silent for" in job.processes["controller"].stderr


@pytest.mark.parametrize("memory", ["cuda", "trainer=cuda"])
def test_killed_rank__whose_memory_gpus_write_takes_its_engine_out(tmp_path, models, memory):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.controller("--on-loss", "continue")
        transport = ["--transport", "cuda" if memory == "cuda" else "shm", "--memory", memory]
        job.workers("--verify", *transport, updates=60, inference_flags=["--shadow"], env={"WEFT_CUDA_MOCK": "order=late"})
        until(lambda: len(job.processes["inference-2"].updates()) > 2, job)
        job.kill("inference-2")
        codes = others_did_all(job, updates=60)
        assert codes["inference-3"] == 75


def test_rank__that_fails_or_is_interrupted_takes_its_engine_out(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.controller("--on-loss", "continue")
        for rank in range(2):
            job.worker("trainer", rank, updates=1000)
        for rank in range(6):
            hook = ["--post-load", 'test "$WEFT_VERSION" -lt 5 || exit 9'] if rank == 3 else []
            job.worker("inference", rank, "--shadow", *hook, updates=1000)
        until(lambda: job.processes["inference-2"].code is not None, job)
        job.kill("inference-5", signal.SIGTERM)
        codes = others_did_all(job, lost=(2, 3, 4, 5), updates=1000)
        assert all(codes[f"inference-{rank}"] for rank in (2, 3, 4, 5)), codes
        assert set(job.digests(2)) == set(job.digests(3)) == {1, 2, 3, 4}
        assert "the post-load hook returned 9" in job.processes["controller"].stderr


def test_last_engine__that_is_lost_is_waited_for_and_then_ends_the_job(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, "engines=2,tp=2") as job:
        begin(job, updates=100000, controller=["--join-timeout", "4s"])
        job.kill("inference-2")
        until(lambda: "leaves, the job goes on with 1 of 2" in job.processes["controller"].stderr, job)
        job.kill("inference-0")
        codes = job.wait(30)
        assert codes["trainer-0"] == codes["trainer-1"] == codes["inference-1"] == codes["inference-3"] == 75, job.said()
        assert codes["controller"] == 75
        said = job.processes["controller"].stderr
        assert "waiting for an engine, 4.0 s at most (--join-timeout): without it, trainers have nobody to send to" in said
        assert "the job fails: no engine has come for 4." in said and said.count("the job fails") == 1


def test_on_loss__that_is_unknown_or_lacks_what_it_needs_is_refused(tmp_path):
    for flags, said in ((["--engines-min", "1"], "--engines-min needs --on-loss continue"),
                        (["--engines-min", "2", "--on-loss", "continue"], "--engines-min 2 is more than the 1 engines of --infer"),
                        (["--on-miss", "leave"], "--on-miss leave needs --on-loss continue"),
                        (["--on-miss", "hope"], "--on-miss 'hope' is none of stay, leave"),
                        (["--on-loss", "hope"], "--on-loss 'hope' is none of end, continue")):
        process = jobs.Process("refused", [jobs.CONTROLLER, "--train", "world=2", "--infer", "tp=1", *flags], tmp_path)
        assert process.popen.wait(20) == 78
        assert said in process.stderr and process.stderr.count("WEFT-E") == 1


def test_rank__that_does_not_come_for_a_version_in_time_is_gone_on_without(tmp_path, models):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, INFER) as job:
        job.controller("--on-loss", "continue", "--update-timeout", "6s")
        for rank in range(2):
            job.worker("trainer", rank, updates=UPDATES)
        for rank in range(6):
            hook = ["--post-load", 'test "$WEFT_VERSION" -lt 5 || sleep 9'] if rank == 3 else []
            job.worker("inference", rank, "--shadow", *hook, updates=UPDATES)
        codes = others_did_all(job)
        assert codes["inference-2"] == 75 and codes["inference-3"], codes
        assert "not accepted by inference " in job.processes["controller"].stderr
        assert set(job.digests(2)) == {1, 2, 3, 4}

# SPDX-License-Identifier: Apache-2.0
"""The real torchrun (PyTorch's CPU build) launches the native worker."""
import concurrent.futures
import contextlib
import os
import re
import shlex
import signal
import socket
import subprocess
import time

import pytest

import job as jobs
from test_on_loss import until

TORCHRUN = os.environ.get("WEFT_TORCHRUN")
TRAIN, INFER = "world=2,source=gathered", "engines=1,tp=2"


@pytest.fixture(autouse=True)
def needs_torchrun():
    assert TORCHRUN, "WEFT_TORCHRUN names no torchrun: run ./bootstrap test"


def torchrun(folder, model, *flags, workers=4, port=29517, env=None, train=TRAIN):
    command = [TORCHRUN, "--nnodes", "1", "--nproc-per-node", str(workers), "--master-addr", "127.0.0.1",
               "--master-port", str(port), "--redirects", "1", "--tee", "1", "--log-dir", str(folder / "logs"),
               "--no-python", str(jobs.WORKER), "--model", str(model), "--checkpoint", str(model),
               "--train", train, "--infer", INFER, *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **(env or {})})


def test_torchrun__finds_ranks_and_starts_the_controller(tmp_path, models):
    done = torchrun(tmp_path, models["qwen2"], "--controller", "auto", "--updates", "3", "--verify")
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    for rank in range(4):
        assert f"rank {rank}/4 (from RANK)" in said
    assert "29617" in said  # MASTER_PORT + 100
    assert said.count("update version=3") == 4


def greeting(port, seconds=60):
    """What the controller says first to whoever connects: 64 bytes with the mechanism it wants (ZeroMQ RFC 37)."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as stranger:
            stranger.sendall(b"\xff" + bytes(8) + b"\x7f\x03")
            said = stranger.makefile("rb").read(32)
            if said:
                return said
        time.sleep(0.05)
    raise AssertionError(f"nobody listens on port {port}")


def test_torchrun__on_one_host_makes_a_key_and_hands_it_over(tmp_path, models):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        run = pool.submit(torchrun, tmp_path, models["qwen2"], "--controller", "auto", "--updates", "100", "--interval",
                          "20ms", port=29521, env={"XDG_RUNTIME_DIR": str(tmp_path)})
        assert b"CURVE" in greeting(29621)
        done = run.result()
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(tmp_path.glob("weft-auto*/*")) == []


def test_torchrun__shows_the_message_of_a_failing_worker(tmp_path, models):
    done = torchrun(tmp_path, models["qwen2"], "--controller", "auto", "--updates", "1",
                    "--checkpoint", tmp_path / "nowhere", port=29518)
    assert done.returncode != 0
    table = done.stderr[done.stderr.index("FAILED"):]
    assert "nowhere" in table and "WEFT-E" in table


def test_torchrun__a_world_that_does_not_add_up_is_an_error(tmp_path, models):
    done = torchrun(tmp_path, models["qwen2"], "--controller", "auto", workers=3, port=29519)
    assert done.returncode != 0
    assert "3" in done.stderr and "4" in done.stderr and "WEFT-E102" in done.stdout + done.stderr


def test_torchrun__disagreeing_sources_are_an_error(tmp_path, models):
    done = torchrun(tmp_path, models["qwen2"], "--controller", "auto", port=29520, env={"WEFT_RANK": "9"})
    assert done.returncode != 0
    assert "WEFT_RANK" in done.stdout + done.stderr


def test_torchrun__that_restarts_an_engine_brings_it_back_into_the_job(tmp_path, models):
    """A killed rank: torchrun ends the rest of its engine and starts all of it again, while the job goes on."""
    updates, infer, said = "400", "engines=2,tp=2", tmp_path / "torchrun"
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, infer) as job, said.open("w") as out:
        job.controller("--on-loss", "continue")
        for rank in range(2):
            job.worker("trainer", rank, "--interval", "20ms", updates=updates)
            job.worker("inference", rank, "--verify", "--shadow", updates=updates)
        worker = [jobs.WORKER, "--controller", job.address, "--job", job.name, "--model", job.model, "--checkpoint", job.model,
                  "--train", TRAIN, "--infer", infer, "--updates", updates, "--verify", "--shadow", "--role", "inference"]
        launch = subprocess.Popen(
            [TORCHRUN, "--nproc-per-node", "2", "--max-restarts", "1", "--monitor-interval", "0.1", "--master-addr", "127.0.0.1",
             "--master-port", "29523", "--no-python", "sh", "-c", f"exec {shlex.join(map(str, worker))} --rank $((2 + RANK))"],
            stdout=out, stderr=subprocess.STDOUT)
        try:
            until(lambda: said.read_text().count("update version=3 ") == 2, job)
            joined = re.search(r"inference 3 \(host \S+, pid (\d+)\) joins", job.processes["controller"].stderr)
            os.kill(int(joined[1]), signal.SIGKILL)
            until(lambda: "2 of 2 engines are here from version" in job.processes["controller"].stderr, job)
            assert launch.wait(120) == 0, said.read_text()
        finally:
            launch.kill()
        assert set(job.wait(60).values()) == {0}, job.said()
        assert said.read_text().count(f"update version={updates} ") == 2
        assert sorted(job.digests(0)) == list(range(1, int(updates) + 1))


def test_torchrun__elastic_brings_an_engine_more_into_the_job_and_loses_it(tmp_path, models):
    """--nnodes 1:2, an engine a node: when a node comes or goes torchrun starts all engines anew, the trainers go on."""
    updates, infer = "250", "engines=2,tp=2"
    said, launches = [tmp_path / "node0", tmp_path / "node1"], []
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, infer) as job:
        job.controller("--on-loss", "continue", "--engines-min", "1")
        for rank in range(2):
            job.worker("trainer", rank, "--interval", "40ms", updates=updates)
        controller = job.processes["controller"]

        def node(index):
            command = [TORCHRUN, "--nnodes", "1:2", "--nproc-per-node", "2", "--max-restarts", "5", "--monitor-interval", "0.1",
                       "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:29524", "--rdzv-id", "engines",
                       "--rdzv-conf", "last_call_timeout=1", "--local-addr", "127.0.0.1", "--no-python", str(jobs.WORKER),
                       "--controller", job.address,
                       "--job", job.name, "--model", str(job.model), "--checkpoint", str(job.model), "--train", TRAIN,
                       "--infer", infer, "--updates", updates, "--verify", "--role", "inference"]
            # PyTorch 2.13: without it two agents of one rendezvous may wait for each other for ever
            env = {**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
            with said[index].open("w") as out:
                launches.append(subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=env))

        try:
            node(0)
            until(lambda: said[0].read_text().count("update version=3 ") == 2, job)
            assert "begins with 1 of 2 engines" in controller.stderr
            node(1)
            until(lambda: "2 of 2 engines are here from version" in controller.stderr, job, 40)
            until(lambda: "update version=" in said[1].read_text(), job)
            launches[1].terminate()
            assert set(job.wait(90).values()) == {0}, job.said()
        finally:
            for launch in launches:  # who is left waits for the other one's end, for minutes
                launch.kill()
        assert "engine 1 (inference 2..3) leaves, the job goes on with 1 of 2: " in controller.stderr
        assert said[0].read_text().count(f"update version={updates} ") == 2

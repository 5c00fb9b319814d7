# SPDX-License-Identifier: Apache-2.0
"""Connections that come and say nothing, and processes that may open hardly anything."""
import os
import resource
import signal
import socket
import struct
import time

import pytest

import job as jobs
from stranger import port_of

TRAIN, INFER = "world=1,source=gathered", "engines=1,tp=1"
TICKS = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def descriptors():
    """This process may hold the other ends."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def processor_seconds(process):
    fields = open(f"/proc/{process.popen.pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def test_idle_connections__more_than_the_controller_may_open_cost_nothing(tmp_path, model, descriptors):
    with jobs.Job(tmp_path, model, TRAIN, INFER) as job:
        port = tmp_path / "port"
        controller = job.start("controller", ["prlimit", "--nofile=400:400", jobs.CONTROLLER, "--job", job.name, "--bind",
                                              "tcp://127.0.0.1:0", "--port-file", port, "--train", TRAIN, "--infer",
                                              INFER])
        deadline = time.monotonic() + 20
        while not port.exists():
            assert controller.code is None and time.monotonic() < deadline, controller.stderr
            time.sleep(0.01)
        job.address = f"tcp://127.0.0.1:{port.read_text().strip()}"
        job.workers("--interval", "50ms", updates=100)
        while len(job.processes["inference-0"].updates()) < 2:
            assert time.monotonic() < deadline, job.said()
            time.sleep(0.01)
        idle = [socket.create_connection(("127.0.0.1", port_of(job.address))) for _ in range(700)]
        time.sleep(0.5)
        before = processor_seconds(controller)
        time.sleep(2)
        assert processor_seconds(controller) - before < 0.4, "the controller is busy with connections that say nothing"
        job.succeed()
        assert "that were turned away" in controller.stderr
        for connection in idle:
            connection.close()


def test_idle_connections__do_not_keep_a_worker_out(tmp_path, model, descriptors):
    """The oldest of those who say nothing makes room, not the newcomer."""
    jobs.weft("key", "make", tmp_path / "key")
    with jobs.Job(tmp_path, model, TRAIN, INFER) as job:
        port = tmp_path / "port"
        controller = job.start("controller", ["prlimit", "--nofile=400:400", jobs.CONTROLLER, "--job", job.name, "--bind",
                                              "tcp://127.0.0.1:0", "--port-file", port, "--train", TRAIN, "--infer",
                                              INFER, "--key", tmp_path / "key"])
        deadline = time.monotonic() + 20
        while not port.exists():
            assert controller.code is None and time.monotonic() < deadline, controller.stderr
            time.sleep(0.01)
        job.address = f"tcp://127.0.0.1:{port.read_text().strip()}"
        idle = [socket.create_connection(("127.0.0.1", port_of(job.address))) for _ in range(700)]
        job.workers("--key", tmp_path / "key")
        job.succeed(6)  # a handshake may take 10 s
        for connection in idle:
            connection.close()


def call(address, says, is_reset=False):
    with socket.create_connection(("127.0.0.1", port_of(address))) as stranger:
        if is_reset:
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        stranger.sendall(says)


def test_broken_connections__of_the_jobs_own_workers_are_not_told_and_a_strangers_are(tmp_path, model):
    """A worker that looks whether anybody listens says one byte; one that nobody answered, as the controller was
    stopped, hung up in the middle of a greeting."""
    with jobs.Job(tmp_path, model, TRAIN, INFER) as job:
        controller = job.controller("--join-timeout", "2s")
        call(job.address, b"\0")
        job.kill("controller", signal.SIGSTOP)
        call(job.address, b"\xff" + bytes(8) + b"\x7f")
        time.sleep(1.6)
        job.kill("controller", signal.SIGCONT)
        job.wait(10)
        assert "waiting for trainer 0" in controller.stderr, job.said()
        assert "broke off" not in controller.stderr and "same key" not in controller.stderr, job.said()
    with jobs.Job(tmp_path, model, TRAIN, INFER) as job:
        controller = job.controller("--join-timeout", "0.5s")
        call(job.address, b"\xff" + bytes(8) + b"\x7f", is_reset=True)
        job.wait(10)
        assert "connections that broke off before they were made" in controller.stderr, job.said()
        assert "perhaps for want of the same key: 1" in controller.stderr.splitlines()[-1], job.said()


@pytest.mark.parametrize("most", [6, 8, 10, 16, 24, 32])
def test_few_descriptors__are_one_clear_error(tmp_path, most):
    commands = {
        "weft-controller": [jobs.CONTROLLER, "--train", TRAIN, "--infer", INFER, "--bind", "tcp://127.0.0.1:0"],
        "weft-worker": [jobs.WORKER, "--controller", "tcp://127.0.0.1:1", "--model", "Qwen2.5-0.5B", "--train", TRAIN,
                        "--infer", INFER, "--role", "inference", "--rank", "0", "--join-timeout", "100ms"],
    }
    for name, command in commands.items():
        process = jobs.Process(f"{name}-{most}", ["prlimit", f"--nofile={most}:{most}", *command], tmp_path)
        try:
            process.popen.wait(10)
        finally:
            process.popen.kill()
        assert process.code == 78 or (name == "weft-worker" and process.code == 75), (process.code, process.stderr)
        if process.code == 78:
            assert "WEFT-E127" in process.stderr and "ulimit -n" in process.stderr, process.stderr


def test_job__larger_than_the_descriptors_is_refused_before_it_gathers(tmp_path):
    process = jobs.Process("large", ["prlimit", "--nofile=100:100", jobs.CONTROLLER, "--train", "world=200", "--infer",
                                     "tp=2", "--bind", "tcp://127.0.0.1:0"], tmp_path)
    process.popen.wait(10)
    assert process.code == 78 and "202 workers needs 242 file descriptors" in process.stderr, process.stderr

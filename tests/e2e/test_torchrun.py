# SPDX-License-Identifier: Apache-2.0
"""The real torchrun (PyTorch's CPU build) launches the native worker."""
import concurrent.futures
import contextlib
import os
import socket
import subprocess
import time

import pytest

import job as jobs

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

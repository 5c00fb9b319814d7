# SPDX-License-Identifier: Apache-2.0
"""A trainer is stopped between its check and its write of a host's own memory, and goes on when that memory
is somebody else's: the host is told, and nothing that it published changes."""
import os
import signal
import subprocess
import time

import pytest

import job as jobs

HOST = jobs.BIN / "tests" / "late_host"
TRAIN, INFER = "world=1,source=gathered", "engines=1,tp=1"
UNSAFE = "155"


class Host:
    """late_host: a line in, a line out."""

    def __init__(self, role, folder):
        self.log = open(folder / f"{role}-{time.monotonic_ns()}.err", "w+")
        self.popen = subprocess.Popen([HOST, role], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
                                      text=True, bufsize=1)

    def say(self, *words):
        self.popen.stdin.write(" ".join(str(word) for word in words) + "\n")

    def hear(self):
        return self.popen.stdout.readline().strip()

    def ask(self, *words):
        self.say(*words)
        return self.hear()

    def stderr(self):
        self.log.seek(0)
        return self.log.read()

    def stopped(self, patience=10):
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            with open(f"/proc/{self.popen.pid}/stat") as stat:
                if stat.read().rsplit(")", 1)[1].split()[0] == "T":
                    return True
            time.sleep(0.01)
        return False


@pytest.fixture
def host(tmp_path):
    started = []

    def start(role):
        started.append(Host(role, tmp_path))
        return started[-1]

    yield start
    for one in started:
        one.popen.send_signal(signal.SIGKILL)
        one.popen.wait()
        one.popen.stdin.close()
        one.popen.stdout.close()
        one.log.close()


def run_job(folder, trainer, inference, buffer):
    """A job of its own for the two; returns what each said to joining it."""
    job = jobs.Job(folder, "none", TRAIN, INFER, name=folder.name)
    job.controller("--lost-after", "2s")
    trainer.say("open", job.address, job.name)
    inference.say("open", job.address, job.name, buffer)
    return job, inference.hear()


def publish(trainer, inference, version):
    inference.say("wait", version, 5000)
    assert trainer.ask("update", version) == "ok"
    assert inference.hear() == "ok"


@pytest.mark.parametrize("end", ["goes on", "is killed"])
def test_stopped_trainer__writes_nothing_that_is_published(tmp_path, host, end):
    late, rank, fresh = host("trainer"), host("inference"), host("trainer")
    first, joined = run_job(tmp_path / "first", late, rank, 0)
    with first:
        assert (joined, late.hear()) == ("ok", "ok")
        publish(late, rank, 1)
        assert late.ask("plant", 1) == "ok"
        late.say("update", 2)
        rank.say("wait", 2, 300)
        assert late.stopped()
        assert rank.hear().startswith("error ")

        # the host closes: it is told, in bounded time, and may not have that memory again
        began = time.monotonic()
        assert rank.ask("close").split()[:2] == ["error", UNSAFE], rank.stderr()
        assert time.monotonic() - began < 15
        assert f"process {late.popen.pid}" in rank.stderr()
    second, joined = run_job(tmp_path / "second", fresh, rank, 0)
    with second:
        for fact in (f"error {UNSAFE} ", "parameter w", "trainer 0", f"process {late.popen.pid}", "30720 bytes"):
            assert fact in joined
        assert rank.ask("close") == "ok"  # that worker never had it

        # with other memory it goes on at once
        rank.say("open", second.address, second.name, 1)
        assert (rank.hear(), fresh.hear()) == ("ok", "ok")
        publish(fresh, rank, 1000)
        os.kill(late.popen.pid, signal.SIGCONT if end == "goes on" else signal.SIGKILL)
        if end == "goes on":
            assert late.hear().startswith("error ")  # it learns that it was given up
            assert rank.ask("holds", 0, 2) == "ok"   # there the write landed
        else:
            late.popen.wait()
        assert rank.ask("holds", 1, 1000) == "ok"
        assert rank.ask("close") == "ok"
        assert fresh.ask("close") == "ok"

    # it is over: the memory is the host's again
    third, joined = run_job(tmp_path / "third", fresh, rank, 0)
    with third:
        assert (joined, fresh.hear()) == ("ok", "ok")
        publish(fresh, rank, 1001)
        assert rank.ask("holds", 0, 1001) == "ok"
        assert rank.ask("close") == "ok"


def test_trainer_that_is_stopped_elsewhere__costs_nobody_anything(tmp_path, host):
    """It is between two writes: nothing of it can land, so the host closes at once and has its memory."""
    late, rank, fresh = host("trainer"), host("inference"), host("trainer")
    first, joined = run_job(tmp_path / "first", late, rank, 0)
    with first:
        assert (joined, late.hear()) == ("ok", "ok")
        publish(late, rank, 1)
        late.popen.send_signal(signal.SIGSTOP)
        assert late.stopped()
        assert rank.ask("close") == "ok", rank.stderr()
    second, joined = run_job(tmp_path / "second", fresh, rank, 0)
    with second:
        assert (joined, fresh.hear()) == ("ok", "ok")
        publish(fresh, rank, 1000)
        late.popen.send_signal(signal.SIGCONT)
        late.ask("update", 2)
        assert rank.ask("holds", 0, 1000) == "ok"
        assert rank.ask("close") == "ok"

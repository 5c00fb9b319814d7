# SPDX-License-Identifier: Apache-2.0
"""`weft doctor --serve` and `weft bench write`, whose port anybody may reach: who has the job's key is the other
side, nobody else is; a wrong key is one error on both sides, at once."""
import contextlib
import os
import re
import socket
import subprocess
import time

import pytest

import job as jobs
from stranger import Dealer, Wire
from test_keys import pair

SHM = ("--transport", "shm")
HELLO = b"\x83\xa4type\xa5hello\xa4tool\x01\xa7program\xabbench write"


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    for name in ("job", "other"):
        jobs.weft("key", "make", folder / f"{name}.key")
    for role in ("trainer", "observer"):
        jobs.weft("key", "role", "--role", role, folder / "job.key", folder / f"{role}.key")
    return {path.stem: path for path in folder.glob("*.key")}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """Either tool's serving side, once it says that it serves."""

    def __init__(self, tool, *flags, env=None):
        port = free_port()
        words = ["doctor", "--serve"] if tool == "doctor" else ["bench", "write", *SHM, "--persist"]
        self.tool, self.port, self.address = tool, port, f"127.0.0.1:{port}"
        self.process = subprocess.Popen([str(word) for word in (jobs.WEFT, *words, "--port", port, *flags)],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, **(env or {})})
        self.said = self.process.stdout.readline()
        if tool == "bench":
            self.said += self.process.stdout.readline()
        assert str(port) in self.said, self.said + self.process.stderr.read()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stderr()

    def stderr(self):
        self.process.kill()
        return self.process.communicate()[1] if not self.process.stderr.closed else ""

    def ask(self, *flags, host=None, env=None):
        """The other side's: exit code, all it said, seconds."""
        where = f"{host or '127.0.0.1'}:{self.port}"
        words = ["doctor", "--peer", where] if self.tool == "doctor" else \
            ["bench", "write", where, *SHM, "--sizes", "4K", "--iterations", 5]
        begin = time.monotonic()
        done = subprocess.run([str(word) for word in (jobs.WEFT, *words, *flags)], capture_output=True, text=True,
                              timeout=60, env={**os.environ, **(env or {})})
        return done.returncode, done.stdout + done.stderr, time.monotonic() - begin


@pytest.mark.parametrize("tool, here, there", [
    ("bench", "job", "job"), ("bench", "job", "observer"), ("bench", "observer", "job"), ("doctor", "observer", "observer"),
])
def test_key__of_the_job_or_of_an_observer_joins_the_two_sides(keys, tool, here, there):
    with Server(tool, "--key", keys[here]) as server:
        assert "--key FILE" in server.said
        code, said, _ = server.ask("--key", keys[there])
        assert code == 0, said
        code, said, _ = server.ask(env={"WEFT_KEY_FILE": str(keys[there])})
        assert code == 0, said
        assert server.stderr() == ""


# who serves, who asks, what he is told, what is logged where he asked
WRONG = [("job", "none", "wants a key", "refused: no key of this job"),
         ("none", "job", "has no key and this side has one|it has none or that of another job",
          "has a key and this side has none"),
         ("job", "other", "that of another job", "refused: no key of this job")]


@pytest.mark.parametrize("tool", ["bench", "doctor"])
@pytest.mark.parametrize("serves, asks, told, logged", WRONG)
def test_wrong_key__is_one_error_at_once_on_both_sides(keys, tool, serves, asks, told, logged):
    def flags(name):
        return ("--key", keys[name]) if name != "none" else ()

    with Server(tool, *flags(serves)) as server:
        code, said, seconds = server.ask(*flags(asks), *(("--timeout", "20s") if tool == "bench" else ()))
        lines = [line for line in said.splitlines() if re.search(told, line) and "fix first" not in line]
        assert len(lines) == 1 and server.address in lines[0], said
        assert code == (78 if tool == "bench" else 1) and "nobody serves there" not in said, said
        assert seconds < 2 + (2 if tool == "doctor" else 0)  # the doctor's own checks come first
        if tool == "bench":
            assert said.count("WEFT-E") == 1, said
        code, said, _ = server.ask(*flags(serves))
        assert code == 0, said
        stderr = server.stderr()
        assert logged in stderr and re.search(r"(127\.0\.0\.1:\d+|a connection that has gone)", stderr), stderr


@pytest.mark.parametrize("tool", ["bench", "doctor"])
def test_role__of_another_key_is_refused_by_name_on_both_sides(keys, tool):
    with Server(tool, "--key", keys["job"]) as server:
        code, said, _ = server.ask("--key", keys["trainer"])
        assert code == (78 if tool == "bench" else 1), said
        assert "good for trainer alone" in said and "observer is asked for" in said, said
    words = ["bench", "write"] if tool == "bench" else ["doctor", "--serve"]
    done = jobs.weft(*words, "--port", free_port(), "--key", keys["trainer"], check=False)
    assert done.returncode == 78 and "good for trainer alone" in done.stderr, done.stderr


def test_role__of_a_trainer_that_knows_the_observers_public_key_is_not_heard(keys):
    """The gate lets all roles of the job in, and a public key is no secret."""
    with Server("bench", "--key", keys["job"]) as server:
        curve = (pair(keys["observer"])[1], *pair(keys["trainer"])[1:])
        with Dealer(f"tcp://{server.address}", curve=curve, wait_ms=500) as trainer:
            trainer.send(HELLO)
            assert trainer.receive() is None
        code, said, _ = server.ask("--key", keys["observer"])
        assert code == 0, said
        assert "refused: the key of role trainer, from 127.0.0.1" in server.stderr()


@pytest.mark.parametrize("tool", ["bench", "doctor"])
def test_without_a_key__this_host_alone_is_served_unless_insecure_is_said(tool):
    for insecure in ((), ("--insecure",)):
        with Server(tool, *insecure) as server:
            assert ("this host alone" in server.said) != bool(insecure)
            with socket.create_connection(("127.0.0.1", server.port)):
                pass
            with contextlib.nullcontext() if insecure else pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.2", server.port)).close()
            if not insecure:
                code, said, _ = server.ask(host="127.0.0.2", *(("--timeout", "300ms") if tool == "bench" else ()))
                assert code in (1, 75) and "refuses connections" in said and "--key FILE" in said, said
            stderr = server.stderr()
            assert stderr.count("no key (--insecure): whoever reaches") == len(insecure), stderr


def test_strangers__without_a_key_are_not_heard_and_the_log_is_bounded(keys):
    with Server("bench", "--key", keys["job"]) as server:
        for _ in range(40):
            with socket.create_connection(("127.0.0.1", server.port)) as stranger:
                stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with Dealer(f"tcp://{server.address}", wait_ms=300) as stranger:
            stranger.send(HELLO)
            assert stranger.receive() is None
        code, said, _ = server.ask("--key", keys["job"])
        assert code == 0, said
        assert 1 <= len(server.stderr().splitlines()) <= 10


def test_second_client__is_told_that_the_server_is_busy_and_with_whom():
    with Server("bench") as server:
        first = subprocess.Popen([str(jobs.WEFT), "bench", "write", server.address, *SHM, "--sizes", "1M",
                                  "--seconds", "1s"], stdout=subprocess.PIPE, text=True)
        for _ in range(3):
            first.stdout.readline()  # connected: the header is out
        code, said, seconds = server.ask()
        assert code == 75 and "says: busy with 127.0.0.1; try again" in said and seconds < 1, said
        assert first.wait(20) == 0
        code, said, _ = server.ask()
        assert code == 0, said


@contextlib.contextmanager
def frames(server, count, body):
    strangers = [Wire(server.address) for _ in range(count)]
    for stranger in strangers:
        for _ in range(20):
            stranger.send(body)
    yield
    for stranger in strangers:
        stranger.socket.close()


def test_junk__and_claims_of_ids_end_neither_the_server_nor_who_is_served():
    """Without a seed ROUTER's own ids are known beforehand, and a claimed one ended the process."""
    with Server("bench") as server, frames(server, 4, b"\xc1"), frames(server, 4, b"\x81\xa4type\xa3bye"):
        claims = [Wire(server.address, b"\0" + (0x6b8b4567 + i).to_bytes(4, "big")) for i in range(16)]
        others = [Wire(server.address) for _ in range(16)]
        code, said, _ = server.ask()
        assert code == 0, said
        assert server.process.poll() is None
        for stranger in claims + others:
            stranger.socket.close()


@pytest.mark.parametrize("words", [("bench", "write", *SHM), ("bench", "write", "--local", *SHM), ("doctor", "--serve"),
                                   ("bench", "write", "127.0.0.1:9", *SHM)])
def test_few_descriptors__are_one_error_and_no_abort(words):
    for most in (6, 8, 12, 16):
        done = subprocess.run(["sh", "-c", f'ulimit -n {most}; exec "$@"', "sh", str(jobs.WEFT), *words],
                              capture_output=True, text=True, timeout=20, close_fds=True)
        assert done.returncode == 78 and done.stderr.count("WEFT-E") == 1, (most, done.returncode, done.stderr)
        assert "raise ulimit -n" in done.stderr, done.stderr

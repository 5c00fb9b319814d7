# SPDX-License-Identifier: Apache-2.0
"""`weft bench write`: what it prints, and what it says when the two sides do not fit."""
import contextlib
import json
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import job as jobs
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "attack"))
from stranger import Dealer  # noqa: E402

SHM = ("--transport", "shm")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def bench(*arguments, timeout=60, program=jobs.WEFT):
    done = jobs.weft("bench", "write", *arguments, check=False, timeout=timeout, program=program)
    return done.returncode, done.stdout, done.stderr


def one_message(code, stderr, *words, exit_code):
    assert code == exit_code, stderr
    lines = [line for line in stderr.splitlines() if "WEFT-E" in line]
    assert len(lines) == 1, stderr
    for word in words:
        assert word in lines[0], f"'{word}' is not in: {lines[0]}"


class Server:
    """A server that has said where it waits."""

    def __init__(self, *flags, port=None):
        self.port = port or free_port()
        self.process = subprocess.Popen([str(jobs.WEFT), "bench", "write", "--port", str(self.port), *flags],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.said = [self.process.stdout.readline(), self.process.stdout.readline()]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def ends(self, timeout=20):
        _, stderr = self.process.communicate(timeout=timeout)
        return self.process.returncode, stderr


def test_local__prints_one_verified_object_a_size():
    code, stdout, stderr = bench("--local", *SHM, "--sizes", "4K..1M", "--iterations", 50, "--json")
    assert code == 0, stderr
    lines = [json.loads(line) for line in stdout.splitlines()]
    assert [line["bytes"] for line in lines] == [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20]
    for line in lines:
        assert line["iterations"] == 50 and line["checked"] is True
        assert line["transport"] == "shm" and line["depth"] == 128 and line["rails"] == 1
        assert 0 < line["p50_us"] <= line["p99_us"] <= line["max_us"] * 1.01
        assert line["first_ms"] > 0 and line["connect_ms"] > 0 and line["kernel"]
        assert line["bytes_per_second"] == pytest.approx(50 * line["bytes"] / line["seconds"], rel=1e-6)
        assert line["requests_per_second"] == pytest.approx(50 / line["seconds"], rel=1e-6)


def test_footprint__is_gone_round_and_all_of_it_verified():
    code, stdout, stderr = bench("--local", *SHM, "--sizes", "64K", "--footprint", "1M", "--iterations", 100,
                                 "--json")
    assert code == 0, stderr
    line = json.loads(stdout)
    assert line["footprint"] == 1 << 20 and line["checked"] is True


def test_seconds__bound_the_time_of_a_size():
    begin = time.monotonic()
    code, stdout, stderr = bench("--local", *SHM, "--sizes", "64K,1M", "--seconds", "300ms", "--json")
    assert code == 0, stderr
    assert all(0.3 <= json.loads(line)["seconds"] < 3 for line in stdout.splitlines())
    assert time.monotonic() - begin < 10


def test_server__prints_the_command_that_works():
    with Server(*SHM, "--depth", "7") as server:
        command = server.said[1].split()
        assert command[:3] == ["weft", "bench", "write"]
        assert command[4:] == ["--transport", "shm", "--port", str(server.port), "--depth", "7"]
        code, stdout, stderr = bench("127.0.0.1", *command[4:], "--sizes", "64K", "--iterations", 10)
        assert code == 0, stderr
        assert re.search(r"^ +65536 +10 .* verified$", stdout, re.M), stdout
        assert server.ends() == (0, "")


def test_settings__of_one_side_hold_for_both():
    with Server(*SHM, "--depth", "3") as server:
        code, stdout, stderr = bench(f"localhost:{server.port}", "--sizes", "64K", "--iterations", 10, "--json")
        assert code == 0, stderr
        assert json.loads(stdout)["depth"] == 3 and json.loads(stdout)["transport"] == "shm"


def test_settings__that_contradict_are_told_to_both_with_both_values():
    with Server(*SHM, "--depth", "3") as server:
        code, _, stderr = bench(f"127.0.0.1:{server.port}", *SHM, "--depth", 5)
        one_message(code, stderr, "--depth 3", "--depth 5", str(server.port), exit_code=78)
        one_message(*server.ends(), "--depth 3", "--depth 5", exit_code=78)
    with Server(*SHM) as server:
        code, _, stderr = bench(f"127.0.0.1:{server.port}", "--transport", "mock", program=jobs.TESTED_WEFT)
        one_message(code, stderr, "--transport shm", "--transport mock", exit_code=78)


def test_persist__serves_again_after_a_client_that_failed():
    with Server(*SHM, "--depth", "3", "--persist") as server:
        assert bench(f"127.0.0.1:{server.port}", "--depth", 5)[0] == 78
        for _ in range(2):
            code, _, stderr = bench(f"127.0.0.1:{server.port}", "--sizes", "4K", "--iterations", 5)
            assert code == 0, stderr
        assert server.process.poll() is None


def test_absent_server__is_named_with_its_port():
    port = free_port()
    code, _, stderr = bench(f"127.0.0.1:{port}", *SHM, "--timeout", "500ms")
    one_message(code, stderr, f"127.0.0.1:{port}", "refuses connections", exit_code=75)
    assert "worker was lost" not in stderr


def test_absent_server__is_said_long_before_the_deadline():
    port = free_port()
    client = subprocess.Popen([str(jobs.WEFT), "bench", "write", f"127.0.0.1:{port}", *SHM], stderr=subprocess.PIPE, text=True)
    said = client.stderr.readline()
    client.kill()
    client.communicate()
    assert f"127.0.0.1:{port}: nobody listens there (connection refused)" in said and "s more" in said, said


def test_server__without_rdma_refuses_at_once_and_names_what_would_do():
    code, stdout, stderr = bench("--port", free_port(), timeout=10)
    one_message(code, stderr, "RDMA", "--transport tcp", exit_code=78)
    assert stdout == ""


def test_late_server__is_waited_for():
    port = free_port()
    result = []
    client = threading.Thread(target=lambda: result.append(
        bench(f"127.0.0.1:{port}", *SHM, "--sizes", "4K", "--iterations", 5, "--timeout", "20s")))
    client.start()
    time.sleep(0.7)
    with Server(*SHM, port=port) as server:
        client.join()
        assert result[0][0] == 0, result
        assert server.ends()[0] == 0


def test_port_in_use__says_which():
    with Server(*SHM) as server:
        code, _, stderr = bench(*SHM, "--port", server.port)
        one_message(code, stderr, str(server.port), "in use", exit_code=78)


def test_foreign_server__is_told_from_weft():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def greet():
            connection, _ = listener.accept()
            connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
            connection.recv(1000)
            connection.close()

        other = threading.Thread(target=greet)
        other.start()
        code, _, stderr = bench(f"127.0.0.1:{port}", *SHM, "--timeout", "5s")
        other.join()
        one_message(code, stderr, f"127.0.0.1:{port}", "no weft tool", exit_code=78)


def test_silent_server__is_a_deadline():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        code, _, stderr = bench(f"127.0.0.1:{port}", *SHM, "--timeout", "500ms")
        one_message(code, stderr, f"127.0.0.1:{port}", "deadline", exit_code=75)


def text(value):
    return bytes([0xa0 | len(value)]) + value


def hello(version=1, tool=b"bench write"):
    """A frame of wire/tool.h, by hand."""
    pairs = text(b"type") + text(b"hello") + text(b"tool") + bytes([version]) + text(b"program") + text(tool)
    return b"\x83" + pairs


@pytest.mark.parametrize("greeting, words", [
    (hello(version=9), ("version 9", "version 1")),
    (hello(tool=b"doctor"), ("weft doctor", "weft bench write")),
])
def test_other_weft__is_told_what_differs_and_hears_our_hello(greeting, words):
    with Server(*SHM) as server, Dealer(f"tcp://127.0.0.1:{server.port}", wait_ms=10000) as client:
        client.send(greeting)
        assert client.receive() == hello()
        one_message(*server.ends(), *words, exit_code=78)


def test_stranger__does_not_end_the_server():
    with Server(*SHM) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            try:
                assert stranger.recv(100)[:1] in (b"", b"\xff")  # ZMTP's greeting, which everybody gets
            except ConnectionResetError:
                pass  # closed with what it sent unread
        with Dealer(f"tcp://127.0.0.1:{server.port}", wait_ms=300) as stranger:
            stranger.send(b"GET / HTTP/1.1\r\n\r\n")
            assert stranger.receive() is None
        code, _, stderr = bench(f"127.0.0.1:{server.port}", *SHM, "--sizes", "4K", "--iterations", 5)
        assert code == 0, stderr
        code, stderr = server.ends()
        assert code == 0 and stderr.count("no weft tool") == 2, stderr


def start_client(port):
    client = subprocess.Popen([str(jobs.WEFT), "bench", "write", f"127.0.0.1:{port}", *SHM, "--sizes", "1M",
                               "--seconds", "60s"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for _ in range(3):
        client.stdout.readline()  # connected: the header is out
    time.sleep(0.2)
    return client


def test_killed_server__is_named_by_the_client():
    with Server(*SHM) as server:
        client = start_client(server.port)
        server.process.send_signal(signal.SIGKILL)
        _, stderr = client.communicate(timeout=20)
        one_message(client.returncode, stderr, "the server on 127.0.0.1", exit_code=75)


def test_killed_client__is_named_by_the_server():
    with Server(*SHM) as server:
        client = start_client(server.port)
        client.kill()
        client.communicate()
        one_message(*server.ends(), "127.0.0.1", "closed the connection", exit_code=75)


@pytest.mark.parametrize("flags, words", [
    (("--sizes", "4K"), "without HOST this is the server"),
    (("--local", "HOST"), "leave out 'HOST'"),
    (("--local", "--iterations", "5", "--seconds", "2"), "not both"),
    (("--local", *SHM, "--qps", "2"), "--transport shm has none"),
    (("--local", "--sizes", "64K..4K"), "--sizes is '64K..4K'"),
    (("--local", "--sizes", "4K,0"), "--sizes is '4K,0'"),
    (("--local", "--sizes", "4K..1M:1"), "--sizes is"),
    (("--mtu", "9000"), "4096"),
    (("--port", "70000"), "--port is '70000'"),
    (("--local", "--depth", "0"), "--depth is '0'"),
    (("HOST", "--persist"), "--persist is the server's"),
    (("HOST", "--peer-nic", "rxe0"), "--peer-nic is for --local"),
    (("[::1", ), "is no address"),
])
def test_wrong_usage__is_exit_code_2_and_one_reason(flags, words):
    code, stdout, stderr = bench(*flags)
    assert code == 2 and stdout == "", stderr
    assert words in stderr.splitlines()[0], stderr


def test_unknown_transport__lists_those_there_are():
    code, _, stderr = bench("--local", "--transport", "pigeon", "--sizes", "4K")
    one_message(code, stderr, "pigeon", "shm", exit_code=78)


def test_failed_write__ends_the_run_with_the_size(monkeypatch):
    monkeypatch.setenv("WEFT_FAULT", "inner=shm,op=completion,at=3,kind=flip")
    code, _, stderr = bench("--local", *SHM, "--sizes", "64K", "--iterations", 10, program=jobs.TESTED_WEFT)
    one_message(code, stderr, "writes of 65536 bytes", "flipped", exit_code=75)


def test_lost_completion__is_a_deadline_that_counts_what_is_missing(monkeypatch):
    monkeypatch.setenv("WEFT_FAULT", "inner=shm,op=completion,at=3,kind=drop")
    code, _, stderr = bench("--local", *SHM, "--sizes", "64K", "--iterations", 10, "--timeout", "700ms",
                            program=jobs.TESTED_WEFT)
    one_message(code, stderr, "writes of 65536 bytes", "700.0 ms", "9 of 10", exit_code=75)


@contextlib.contextmanager
def until_closed():
    with contextlib.suppress(OSError):  # one of both has left: that is what is tested
        yield


@until_closed()
def forward(source, target, change=lambda body: body):
    """Passes on ZMTP: a greeting of 64 bytes, of which each side says more when it has heard some, then frames."""
    stream, left = source.makefile("rb"), 64
    while left and (part := stream.read1(left)):
        target.sendall(part)
        left -= len(part)
    while flags := stream.read(1):
        head = stream.read(8 if flags[0] & 2 else 1)
        body = stream.read(int.from_bytes(head, "big"))
        target.sendall(flags + head + (body if flags[0] & 4 else change(body)))
    target.shutdown(socket.SHUT_WR)


def test_checksum__that_differs_is_told_to_both():
    def spoil(body):
        at = body.index(text(b"sum")) + 5 if text(b"pass") in body else 0  # behind the kind of number
        return body[:at] + bytes([body[at] ^ 1]) + body[at + 1:] if at else body

    with Server(*SHM) as server, socket.create_server(("127.0.0.1", 0)) as listener:
        result = []
        client = threading.Thread(target=lambda: result.append(
            bench(f"127.0.0.1:{listener.getsockname()[1]}", *SHM, "--sizes", "64K", "--iterations", 5)))
        client.start()
        near, _ = listener.accept()
        far = socket.create_connection(("127.0.0.1", server.port))
        back = threading.Thread(target=forward, args=(far, near))
        back.start()
        forward(near, far, spoil)
        client.join()
        one_message(*server.ends(), "65536 bytes", "checksum", exit_code=1)
        one_message(result[0][0], result[0][2], "65536 bytes", "checksum", exit_code=1)
        back.join()
        near.close()
        far.close()


def test_ipv6__works_with_and_without_brackets():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as why:
        pytest.skip(f"no IPv6 here: {why}")
    for address in ("[::1]:{}", "::1"):
        with Server(*SHM) as server:
            code, _, stderr = bench(address.format(server.port), "--port", server.port, "--sizes", "4K",
                                    "--iterations", 5)
            assert code == 0, stderr

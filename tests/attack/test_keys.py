# SPDX-License-Identifier: Apache-2.0
"""Who has the job's key takes part, in the role that the key is of; who has none is nobody."""
import os
import stat
import time

import pytest

import job as jobs
from stranger import Dealer, Wire

TRAIN, INFER = "world=2,source=gathered", "engines=1,tp=2"


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    for name in ("job", "other"):
        jobs.weft("key", "make", folder / f"{name}.key")
    for role in ("trainer", "inference", "observer"):
        jobs.weft("key", "role", "--role", role, folder / "job.key", folder / f"{role}.key")
    return {path.stem: path for path in folder.glob("*.key")}


def hex_of(path, word):
    return bytes.fromhex(dict(line.split(" ", 1) for line in path.read_text().splitlines())[word])


def start(job, keys, *flags):
    job.controller("--key", keys["job"], "--join-timeout", "8s", "--lost-after", "2s", *flags)


def test_job__with_the_jobs_key_runs(tmp_path, model, keys):
    with jobs.Job(tmp_path, model, TRAIN, INFER) as job:
        start(job, keys)
        job.workers("--key", keys["job"], "--verify")
        job.succeed()
        job.verify(jobs.expected(model, INFER), (1, 2))


def test_job__with_a_key_for_each_role_runs(tmp_path, model, keys):
    with jobs.Job(tmp_path, model, TRAIN, INFER) as job:
        start(job, keys)
        job.workers(trainer_flags=("--key", keys["trainer"]), inference_flags=("--key", keys["inference"]))
        job.succeed()


def test_job__takes_the_key_from_the_environment(tmp_path, model, keys):
    with jobs.Job(tmp_path, model, TRAIN, INFER) as job:
        job.controller(env={"WEFT_KEY_FILE": str(keys["job"])})
        job.workers(env={"WEFT_KEY_FILE": str(keys["job"])})
        job.succeed()


def test_role__of_another_key_is_refused_by_name(tmp_path, model, keys):
    with jobs.Job(tmp_path, model, TRAIN, INFER) as job:
        start(job, keys)
        liar = job.worker("trainer", 0, "--key", keys["inference"])
        job.wait(20, ["trainer-0"])
        assert liar.code == 78
        assert "good for inference alone" in liar.stderr and "trainer is asked for" in liar.stderr, liar.stderr
        job.workers("--key", keys["job"])
        job.wait(30, [name for name in job.processes if name != "controller"])


def test_hello__of_another_role_than_its_keys_is_refused(tmp_path, model, keys):
    """Past the program's own check: the handshake as inference, the hello of a trainer."""
    with jobs.Job(tmp_path, model, TRAIN, INFER) as job:
        start(job, keys)
        with recorded_hello(tmp_path, model) as hello, Dealer(job.address, curve=pair(keys["inference"])) as liar:
            liar.send(hello)
            answer = liar.receive()
        assert answer and b"came with the key of role inference" in answer, answer
        job.workers("--key", keys["job"])
        job.succeed()


@pytest.mark.parametrize("key", ["none", "other", "observer"])
def test_stranger__is_not_heard_and_the_job_runs(tmp_path, model, keys, key):
    """No key, another job's, or one that is good for no worker: nothing is answered and nobody is disturbed."""
    with jobs.Job(tmp_path, model, TRAIN, INFER) as job:
        start(job, keys)
        job.worker("trainer", 1, "--key", keys["job"], updates=20)
        curve = None if key == "none" else (hex_of(keys["job"], "controller"), *pair(keys[key])[1:])
        with recorded_hello(tmp_path, model) as hello, Dealer(job.address, curve=curve, wait_ms=500) as stranger:
            for _ in range(1 if key == "observer" else 20):
                stranger.send(hello)
                stranger.send(b"\xc1junk")
            answer = stranger.receive()
            if key == "observer":  # is let in, to be no worker
                assert b"came with the key of role observer" in answer or b"message" in answer, answer
            else:
                assert answer is None
        job.worker("trainer", 0, "--key", keys["job"], updates=20)
        for rank in range(2):
            job.worker("inference", rank, "--key", keys["job"], updates=20)
        job.succeed()
        if key == "other":
            assert "for want of a key of this job: 1, the last from 127.0.0.1" in \
                job.processes["controller"].stderr


def test_worker__without_a_key_or_with_another_jobs_is_told_so(tmp_path, model, keys):
    with jobs.Job(tmp_path, model, TRAIN, INFER) as job:
        start(job, keys)
        job.worker("trainer", 0, "--join-timeout", "5s")
        job.worker("trainer", 1, "--join-timeout", "5s", "--key", keys["other"])
        job.wait(20, ["trainer-0", "trainer-1"])
        for name in ("trainer-0", "trainer-1"):
            assert job.processes[name].code == 75, job.said()
            assert "key" in job.processes[name].stderr, job.said()


def test_key_file__that_others_may_read_is_refused(tmp_path, model, keys):
    open_key = tmp_path / "open.key"
    open_key.write_bytes(keys["job"].read_bytes())
    os.chmod(open_key, 0o644)
    with jobs.Job(tmp_path, model, TRAIN, INFER) as job:
        process = job.start("controller", [jobs.CONTROLLER, "--key", open_key, "--train", TRAIN, "--infer", INFER])
        job.wait(10)
        assert process.code == 78 and "mode 644" in process.stderr and "chmod 600" in process.stderr
    assert stat.S_IMODE(os.stat(keys["job"]).st_mode) == 0o600


def test_controller__without_a_key_listens_on_this_host_alone(tmp_path, model):
    for bind in ([], ["--bind", "tcp://127.0.0.1:0"], ["--bind", "tcp://*:0", "--insecure"]):
        with jobs.Job(tmp_path, model, TRAIN, INFER) as job:
            process = job.start("controller", [jobs.CONTROLLER, "--train", TRAIN, "--infer", INFER, *bind])
            deadline = time.monotonic() + 10
            while "listening on" not in process.stderr and time.monotonic() < deadline and process.code is None:
                time.sleep(0.01)
            assert ("tcp://0.0.0.0:" in process.stderr or "tcp://[::]:" in process.stderr) == ("--insecure" in bind), \
                process.stderr
            assert ("whoever reaches" in process.stderr) == ("--insecure" in bind), process.stderr


@pytest.mark.parametrize("bind", ["tcp://*:0", "tcp://0.0.0.0:0", "tcp://[::]:0", "tcp://eth0:29600"])
def test_controller__open_to_other_hosts_needs_a_key_or_the_users_word(tmp_path, bind):
    done = jobs.subprocess.run([str(jobs.CONTROLLER), "--train", TRAIN, "--infer", INFER, "--bind", bind],
                               capture_output=True, text=True, timeout=20)
    assert done.returncode == 78
    assert bind in done.stderr and "weft key make" in done.stderr and "--insecure" in done.stderr


def pair(path):
    """(server key, public key, secret key) of a role's file, as a CURVE client takes them."""
    import ctypes
    secret = hex_of(path, "secret")
    sodium = ctypes.CDLL("libsodium.so.23")
    public = ctypes.create_string_buffer(32)
    if path.stem in ("job", "other"):  # as trainer: crypto_kdf, then a pair of that seed
        seed, out = ctypes.create_string_buffer(32), ctypes.create_string_buffer(32)
        sodium.crypto_kdf_derive_from_key(seed, ctypes.c_size_t(32), ctypes.c_uint64(1), b"weft-key", secret)
        sodium.crypto_box_seed_keypair(public, out, seed)
        secret = out.raw
    else:
        sodium.crypto_scalarmult_base(public, secret)
    return hex_of(path, "controller"), public.raw, secret


class recorded_hello:
    """The hello of a real trainer 0, taken from a socket that only listens."""

    def __init__(self, folder, model):
        self.folder, self.model = folder, model

    def __enter__(self):
        import socket
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
            worker = jobs.subprocess.Popen(
                [str(part) for part in (jobs.WORKER, "--controller", address, "--job", "test", "--model", self.model,
                                        "--train", TRAIN, "--infer", INFER, "--role", "trainer", "--rank", 0,
                                        "--checkpoint", self.model, "--join-timeout", "20s")],
                stdout=jobs.subprocess.DEVNULL, stderr=jobs.subprocess.DEVNULL)
            try:
                return first_message(server.accept()[0])
            finally:
                worker.kill()
                worker.wait()

    def __exit__(self, *_):
        pass


def first_message(peer):
    """Answers the ZMTP handshake as a ROUTER does and reads one frame."""
    peer.settimeout(10)
    peer.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + b"\x01" + bytes(31))
    data = b""

    def need(count):
        nonlocal data
        while len(data) < count:
            data += peer.recv(1 << 16)
        taken, data = data[:count], data[count:]
        return taken

    need(64)
    ready = b"\x05READY" + Wire.property("Socket-Type", b"ROUTER")
    peer.sendall(b"\x04" + bytes([len(ready)]) + ready)
    while True:
        flags = need(1)[0]
        size = int.from_bytes(need(8), "big") if flags & 2 else need(1)[0]
        body = need(size)
        if not flags & 4:
            return body

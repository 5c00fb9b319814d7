# SPDX-License-Identifier: Apache-2.0
"""Over tcp: the cookie of a connection, the keys of registered memory and the job's own keys are in no output,
log or dump, in no form. Each program's random bytes are told to the test (preload/told_random.c)."""
import contextlib
import ctypes.util
import json
import os
import re
import signal
import subprocess
import time

import pytest

import job as jobs
from stranger import Proxy

TOLD = jobs.BIN / "tests" / "libtold_random.so"
TRAIN, INFER = "world=2,source=gathered", "engines=1,tp=2"
TCP = ("--transport", "tcp", "--nic", "lo")
METRICS = ("--metrics", "127.0.0.1:0", "--metrics-file")
COOKIE, KEY = 16, 8  # bytes; a domain's nonce has 8 too
FORMS = 11  # in which told_random.c prints what is planted


def words(secret):
    """A secret and its words of 8 bytes, each in both byte orders."""
    parts = {secret, *(secret[at:at + 8] for at in range(0, len(secret), 8))}
    return parts | {part[::-1] for part in parts}


def unescaped(data):
    return re.sub(rb"\\(?:x|u00)([0-9a-fA-F]{2})", lambda match: bytes.fromhex(match[1].decode()), data)


def printed(secrets, data):
    """Those of the secrets that are in this output: raw, escaped, in hexadecimal of either case, with what stands
    between bytes or without, in decimal, or a byte a number; in either byte order."""
    raw = data + b"\0" + unescaped(data)
    text = data.decode("latin-1").lower()
    joined, listed = re.sub(r"0x|\\x|[\s:,-]", "", text), re.sub(r"\s", "", text)

    def is_there(part):
        numbers = {int.from_bytes(part, "big"), int.from_bytes(part, "big", signed=True)}
        return part in raw or part.hex().lstrip("0") in joined or ",".join(map(str, part)) in listed or \
            any(str(number) in text for number in numbers)

    return {secret for secret in secrets if any(is_there(part) for part in words(secret))}


def outputs(folder):
    """Whatever the programs left: standard output and error, dumps, digests, log files; but the key files."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".key"}


class Told:
    """What the programs of one test asked for, by process."""

    def __init__(self, folder):
        self.folder = folder / "told"
        self.folder.mkdir()
        library = folder / "told.so"
        library.symlink_to(TOLD)  # a blank ends a path in LD_PRELOAD, and the clone's may have one
        self.env = {"WEFT_TOLD": str(self.folder), "LD_PRELOAD": str(library), "WEFT_LOG": "debug"}

    def of(self, pid=None):
        paths = [self.folder / str(pid)] if pid else list(self.folder.iterdir())
        return {bytes.fromhex(line) for path in paths for line in path.read_text().split()}

    def count(self, size):
        return sum(len(secret) == size for secret in self.of())


@pytest.fixture
def told(tmp_path_factory):
    return Told(tmp_path_factory.mktemp("random"))


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    """The job's key, and every secret that comes of it: the file's, the roles', the controller's."""
    folder = tmp_path_factory.mktemp("keys")
    jobs.weft("key", "make", folder / "job.key")
    secrets = set()
    for role in ("trainer", "inference", "observer"):
        jobs.weft("key", "role", "--role", role, folder / "job.key", folder / f"{role}.key")
    for path in folder.glob("*.key"):
        secrets.add(bytes.fromhex(re.search(r"^secret (\w+)$", path.read_text(), re.M)[1]))
    sodium = ctypes.CDLL(ctypes.util.find_library("sodium") or "libsodium.so.23")
    of_job = bytes.fromhex(re.search(r"^secret (\w+)$", (folder / "job.key").read_text(), re.M)[1])
    seed, public, secret = (ctypes.create_string_buffer(32) for _ in range(3))
    sodium.crypto_kdf_derive_from_key(seed, 32, ctypes.c_uint64(0), b"weft-key", of_job)
    sodium.crypto_box_seed_keypair(public, secret, seed)
    assert f"controller {public.raw.hex()}" in (folder / "job.key").read_text()
    return folder / "job.key", secrets | {seed.raw, secret.raw}


def nothing_of(secrets, folder, *more):
    found = {str(path): [secret.hex() for secret in hits] for path, data in
             [*outputs(folder).items(), *enumerate(more)] if (hits := printed(secrets, data))}
    assert not found, f"what is secret is told to a file or a pipe: {found}"


def in_use(job, updates=2, patience=30):
    deadline = time.monotonic() + patience
    while min(len(job.processes[f"inference-{rank}"].updates()) for rank in range(2)) < updates:
        assert time.monotonic() < deadline, job.said()
        time.sleep(0.01)


@pytest.mark.parametrize("log", [{}, {"WEFT_LOG_FORMAT": "json"}], ids=["text", "json"])
def test_job__prints_no_cookie_and_no_key_at_its_most_talkative(tmp_path, model, told, key, log):
    path, secrets = key
    env = {**told.env, **log, "WEFT_KEY_FILE": str(path)}
    with jobs.Job(tmp_path, model, TRAIN, INFER) as job:
        job.controller("--dump", tmp_path / "dump.json", *METRICS, tmp_path / "%r.prom", env=env)
        job.workers(*TCP, "--verify", "--checksums", *METRICS, tmp_path / "%r.prom", env=env)
        job.succeed()
        said = job.said()
    assert told.count(COOKIE) >= 8 and told.count(KEY) >= 8, said  # 2 x 2 pairs, an endpoint at each end
    assert len(list(tmp_path.glob("*.prom"))) == 5  # the same text as on a port
    assert "> endpoints" in said and json.loads((tmp_path / "dump.json").read_text())["routes"]
    nothing_of(told.of() | secrets, tmp_path, jobs.weft("key", "show", path).stdout.encode())


@contextlib.contextmanager
def disturbed(tmp_path, model, env, how):
    with jobs.Job(tmp_path, model, TRAIN, INFER) as job:
        job.controller("--dump", tmp_path / "dump.json", "--lost-after", "2s", env=env)
        trainer = {**env, "WEFT_FAULT": "inner=tcp,op=post_write,at=9,kind=fail"} if how == "fault" else env
        job.worker("trainer", 0, *TCP, updates=100000, env=env)
        job.worker("trainer", 1, *TCP, updates=100000, env=trainer)
        for rank in range(2):
            job.worker("inference", rank, *TCP, updates=100000, env=env)
        yield job


@pytest.mark.parametrize("how", ["kill", "fault"])
def test_job_that_fails__names_the_peer_and_prints_no_cookie_and_no_key(tmp_path, model, told, key, how):
    path, secrets = key
    with disturbed(tmp_path, model, {**told.env, "WEFT_KEY_FILE": str(path)}, how) as job:
        if how == "kill":
            in_use(job)
            job.kill("inference-1", signal.SIGKILL)
        codes = job.wait(30)
        assert codes["controller"] == codes["trainer-0"] == codes["inference-0"] == 75, job.said()
        assert ("inference 1" if how == "kill" else "trainer 1") in job.processes["controller"].stderr
    assert told.count(COOKIE) >= 4
    nothing_of(told.of() | secrets, tmp_path)


def test_doctor_and_bench__print_no_cookie_and_no_key(tmp_path, told, key):
    path, secrets = key
    env = {**os.environ, **told.env, "WEFT_NIC": "lo", "WEFT_KEY_FILE": str(path)}
    said = []
    with open(tmp_path / "serve.err", "wb") as errors, subprocess.Popen(
            [jobs.WEFT, "doctor", "--serve", "--port", "0", "--transport", "tcp"], stdout=subprocess.PIPE, stderr=errors,
            env=env) as server:
        try:
            said.append(server.stdout.readline())
            port = re.search(rb"--peer \S+:(\d+) ", said[0])[1].decode()
            for command in (["doctor", "--peer", f"127.0.0.1:{port}", "--transport", "tcp", "--json"],
                            ["bench", "write", "--local", "--transport", "tcp", "--sizes", "4K", "--iterations", "9"]):
                done = subprocess.run([jobs.WEFT, *command], env=env, capture_output=True, timeout=60)
                assert done.returncode == 0, done.stdout + done.stderr
                said += [done.stdout, done.stderr]
        finally:
            server.kill()
        said.append(server.stdout.read())
    assert told.count(COOKIE) >= 4 and told.count(KEY) >= 4, said
    nothing_of(told.of() | secrets, tmp_path, *said)


# ---- that the test looks for the right bytes, and would find them ----

def test_what_is_told__is_what_the_records_carry(tmp_path, model, told):
    """Without a key the control channel can be read: cookies, nonce and keys of an inference rank pass there raw."""
    frames = []

    def keep(frame):
        frames.append(frame)
        return [frame]

    with jobs.Job(tmp_path, model, TRAIN, INFER) as job:
        job.controller(env=told.env)
        direct, proxy = job.address, Proxy(job.address, keep)
        for name in ("trainer-0", "trainer-1", "inference-1", "inference-0"):
            role, rank = name.split("-")
            job.address = proxy.address if name == "inference-0" else direct
            job.worker(role, int(rank), *TCP, env=told.env)
        job.succeed()
        proxy.close()
        mine = told.of(job.processes["inference-0"].popen.pid)
    carried = {secret for secret in mine if any(secret in frame for frame in frames)}
    assert sum(len(secret) == COOKIE for secret in carried) == 3  # for each trainer, and the other rank
    assert sum(len(secret) == KEY for secret in carried) >= 3  # the nonce, of the memory to try paths with, of the weights
    assert {len(secret) for secret in mine - carried} <= {KEY}


def test_planted__each_form_is_found(tmp_path, model, told):
    """The same job, whose programs print what they must not."""
    with jobs.Job(tmp_path, model, TRAIN, INFER) as job:
        job.controller(env=told.env)
        for first, (role, rank) in enumerate((role, rank) for role in ("trainer", "inference") for rank in range(2)):
            job.worker(role, rank, *TCP, env={**told.env, "WEFT_TOLD_PLANT": str(3 * first)})
        job.succeed()
    secrets, forms = told.of(), set()
    for path in tmp_path.glob("*.err"):
        for said in path.read_bytes().split(b"\nplanted ")[1:]:
            form, said = said.split(b" ", 1)
            said = said.split(b"\n20")[0]  # the next line of the log begins with the year
            assert printed(secrets, said), (form, said)
            forms.add(int(form))
    assert forms == set(range(FORMS))
    with pytest.raises(AssertionError, match="told to a file"):
        nothing_of(secrets, tmp_path)

# SPDX-License-Identifier: Apache-2.0
"""Jobs with a key, while strangers flood them, the network breaks bytes on the way, and processes are killed,
stopped or started twice. WEFT_CAMPAIGN_RUNS says how many (./bootstrap soak: 1000).

Whatever happens: no version is published that a recomputation does not confirm; who survives ends with 0 or 75,
inside its deadlines; nothing is left behind. Without a kill or a stop the job does its work."""
import concurrent.futures
import contextlib
import os
import pathlib
import random
import signal
import socket
import threading
import time

import job as jobs
from stranger import Dealer, Wire, port_of
from test_keys import pair

RUNS = int(os.environ.get("WEFT_CAMPAIGN_RUNS", "16"))
SEED = int(os.environ.get("WEFT_CAMPAIGN_SEED", "1"))
PARALLEL = int(os.environ.get("WEFT_CAMPAIGN_PARALLEL", "2"))
TRAIN, INFER = "world=2,source=gathered", "engines=1,tp=2"
WORKERS = ["trainer-0", "trainer-1", "inference-0", "inference-1"]
DEEDS = ["nothing", "nothing", "kill", "stop", "twice"]
UPDATES = {"nothing": 60, "twice": 300}  # else more than any run reaches
LOST_S, WAIT_S = 3, 30


class Breaker:
    """Passes a connection on, and now and then flips a byte or cuts it."""

    def __init__(self, address, chance):
        self.target, self.chance = port_of(address), chance
        self.server = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self.server.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                one = self.server.accept()[0]
                other = socket.create_connection(("127.0.0.1", self.target))
                for ends in ((one, other), (other, one)):
                    threading.Thread(target=self.carry, args=ends, daemon=True).start()

    def carry(self, source, sink):
        with contextlib.suppress(OSError):
            while data := bytearray(source.recv(1 << 16)):
                if self.chance.random() < 0.02:
                    data[self.chance.randrange(len(data))] ^= 1 << self.chance.randrange(8)
                sink.sendall(data)
                if self.chance.random() < 0.005:
                    break
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.server.close()


def garbage(address, chance):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port_of(address)), timeout=0.2) as peer:
        peer.sendall(chance.randbytes(chance.randrange(1, 5000)))


def no_key(address, chance):
    with contextlib.suppress(OSError), Wire(address, chance.randbytes(chance.randrange(0, 60)), wait=0.2) as peer:
        for _ in range(chance.randrange(1, 50)):
            peer.send(chance.randbytes(chance.randrange(0, 400)))


def idle(address, chance):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port_of(address)), timeout=0.2):
        time.sleep(chance.uniform(0, 0.3))


def flood(address, keys, chance, stop):
    """Strangers until `stop`: with no key, another job's, or no idea at all."""
    while not stop.is_set():
        what = chance.choice([garbage, no_key, idle, None])
        if what:
            what(address, chance)
            continue
        curve = (pair(keys["job"])[0], *pair(keys["other"])[1:])
        with Dealer(address, identity=chance.randbytes(5), curve=curve, wait_ms=20) as peer:
            peer.send(chance.randbytes(300))
            assert peer.receive() is None


def one_run(number, folder, model, keys):
    """What it was, the versions published on each rank, and a complaint or None."""
    chance = random.Random(SEED * 1000003 + number)
    deed, victim = chance.choice(DEEDS), chance.choice(WORKERS)
    updates = UPDATES.get(deed, 100000)
    what = f"run {number}: {deed} {victim}"
    stop = threading.Event()
    with jobs.Job(folder, model, TRAIN, INFER) as job:
        controller = job.controller("--key", keys["job"], "--heartbeat", "100ms", "--lost-after", f"{LOST_S}s",
                                    "--join-timeout", "20s")
        strangers = [threading.Thread(target=flood, args=(job.address, keys, random.Random(chance.random()), stop))
                     for _ in range(3)]
        for stranger in strangers:
            stranger.start()
        direct, breaker = job.address, Breaker(job.address, random.Random(chance.random()))
        try:
            for name in WORKERS:
                job.address = breaker.address if chance.random() < 0.5 else direct
                role, rank = name.split("-")
                job.worker(role, rank, "--key", keys["job"], "--join-timeout", "20s", "--update-timeout", "10s",
                           "--interval", "10ms", updates=updates)
            complaint = act(job, deed, victim, keys, chance)
        except AssertionError as error:
            complaint = str(error)
        finally:
            stop.set()
            breaker.close()
            for stranger in strangers:
                stranger.join()
        if controller.code not in (0, 1, 75):
            complaint = complaint or f"the controller ended with {controller.code}"
        if complaint:
            complaint = f"{what}: {complaint}\n{job.said()[-6000:]}"
        return what, {rank: job.digests(rank) for rank in range(job.inference)}, complaint


def act(job, deed, victim, keys, chance):
    if deed == "nothing":
        codes = job.wait(WAIT_S + 30)
        # the last word that a worker waits for may be broken too, and nobody is left to say it again
        unanswered = {name for name in codes if "leaving: no answer from the controller" in job.processes[name].stderr}
        return None if {codes[name] for name in codes if name not in unanswered} == {0} else f"{codes}"
    time.sleep(chance.uniform(0, 1.5))
    job.kill(victim, signal.SIGSTOP if deed == "stop" else signal.SIGKILL)
    names = [name for name in job.processes if name != victim]
    if deed == "twice":
        role, rank = victim.split("-")
        job.worker(role, rank, "--key", keys["job"], "--join-timeout", "5s", "--interval", "10ms",
                   updates=UPDATES["twice"], name="again")
    codes = job.wait(WAIT_S, names)
    if deed == "stop":
        job.kill(victim, signal.SIGCONT)
        codes |= job.wait(WAIT_S, [victim])
    # killed before it joined, it is replaced by the second, and the job does its work
    right = {75, 0} if deed == "twice" else {75}
    wrong = {name: code for name, code in codes.items() if code not in right and name not in ("controller", "again")}
    return f"{wrong} should be 75" if wrong else None


def test_campaign__publishes_nothing_wrong_and_leaves_nothing_behind(tmp_path, model):
    keys = {name: tmp_path / f"{name}.key" for name in ("job", "other")}
    for path in keys.values():
        jobs.weft("key", "make", path)
    before, expected = jobs.leftovers(), jobs.expected(model, INFER)
    known, complaints, published = {}, [], 0
    with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
        runs = [pool.submit(one_run, number, tmp_path / str(number), model, keys) for number in range(RUNS)]
        for run in concurrent.futures.as_completed(runs):
            what, ranks, complaint = run.result()
            complaints += [complaint] if complaint else []
            for rank, versions in ranks.items():
                for version, params in versions.items():
                    if version not in known:
                        known[version] = expected.digests(version)
                    published += 1
                    if any(known[version][rank][name] != value for name, value in params.items()):
                        complaints.append(f"{what}: version {version} on inference {rank} has wrong bytes")
    assert complaints == [], f"{len(complaints)} of {RUNS}:\n" + "\n".join(complaints[:5])
    assert published > 20 * RUNS, "hardly anything was published: the campaign proved little"
    assert jobs.leftovers() == before
    assert [path.name for path in pathlib.Path("/proc").glob("[0-9]*") if str(tmp_path) in command_line(path)] == []


def command_line(path):
    try:
        return (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""

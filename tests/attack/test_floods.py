# SPDX-License-Identifier: Apache-2.0
"""More than anybody can read, from strangers that a job without a key lets in: on this host, short of joining."""
import contextlib
import random
import re
import signal
import socket
import struct
import threading
import time

import job as jobs
from stranger import Wire

TRAIN, INFER = "world=1,source=gathered", "engines=1,tp=1"
FRAME, PING = b"\x00\x01\xc1", b"\x04\x07\x04PING\x00\x00"


def memory_kib(process):
    """What it has now: nothing, once it ended, which the controller may before its workers are known to have."""
    found = re.search(r"VmRSS:\s+(\d+) kB", open(f"/proc/{process.popen.pid}/status").read())
    return int(found.group(1)) if found else 0


def test_ping_behind_a_flood__does_not_end_the_controller(tmp_path, model):
    """libzmq stops reading a connection that has too much for its reader. Reset then, with a PING behind what was
    read, it ended the process by an assertion."""
    chance = random.Random(1)
    with jobs.Job(tmp_path, model, TRAIN, INFER) as job:
        controller = job.controller()
        for _ in range(150):
            with contextlib.suppress(OSError), Wire(job.address) as stranger:
                stranger.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                stranger.socket.sendall(2000 * FRAME + PING)
                until = time.perf_counter() + chance.uniform(0, 0.003)
                while time.perf_counter() < until:
                    pass
            assert controller.code is None, controller.stderr
        job.workers()
        job.succeed()
        assert "as they said what no worker says, or too much" in controller.stderr


def test_flood__is_ended_and_costs_no_memory(tmp_path, model):
    stop, sent = threading.Event(), []

    def flood(address):
        while not stop.is_set():
            with contextlib.suppress(OSError), Wire(address) as stranger:
                while not stop.is_set():
                    stranger.socket.sendall(100000 * FRAME)
                    sent.append(100000)

    with jobs.Job(tmp_path, model, TRAIN, INFER) as job:
        controller = job.controller()
        before = memory_kib(controller)
        floods = [threading.Thread(target=flood, args=(job.address,)) for _ in range(8)]
        for one in floods:
            one.start()
        try:
            job.workers("--interval", "20ms", updates=100)
            most = 0
            while job.processes["trainer-0"].code is None:
                most = max(most, memory_kib(controller))
                time.sleep(0.01)
            job.succeed()
        finally:
            stop.set()
            for one in floods:
                one.join()
        # what is read before the controller's thread gets a processor counts, on a busy machine some 100 MB; kept, each frame
        # would take 64 bytes and more
        assert most - before < max(64 << 10, sum(sent) * 64 // 1024 // 10), (most - before, sum(sent))
        assert sum(sent) > 1000000


def test_flood__does_not_keep_the_controller_from_ending(tmp_path, model):
    stop = threading.Event()

    def flood(address):
        while not stop.is_set():
            with contextlib.suppress(OSError), Wire(address) as stranger:
                while not stop.is_set():
                    stranger.socket.sendall(100000 * FRAME)

    with jobs.Job(tmp_path, model, TRAIN, INFER) as job:
        controller = job.controller()
        floods = [threading.Thread(target=flood, args=(job.address,)) for _ in range(8)]
        for one in floods:
            one.start()
        try:
            time.sleep(1)
            job.kill("controller", signal.SIGTERM)
            job.wait(5)
        finally:
            stop.set()
            for one in floods:
                one.join()
        assert controller.code == 75

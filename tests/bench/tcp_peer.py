# SPDX-License-Identifier: Apache-2.0
"""One side of another engine's transfer over TCP; tests/bench/tcp starts both, in two network namespaces.

    tcp_peer.py ENGINE target ADDRESS BYTES [SETTING=VALUE ...]
    tcp_peer.py ENGINE source ADDRESS BYTES [SETTING=VALUE ...]     the target's line comes on stdin

The target says in one JSON line how it is reached and waits for its stdin to end; then it says what the bytes
are that it has. The source writes for SECONDS, one transfer of BYTES after the other with `depth` of them
in flight, into the same memory each time (as `weft bench write` does), and says in one JSON line how fast.
"""
import base64
import ctypes
import hashlib
import json
import mmap
import select
import socket
import sys
import threading
import time

import numpy

SETTINGS = {"seconds": 1.0, "depth": 2, "split": 1, "threads": 0, "workers": 1, "batch": 0, "progress": 1, "streams": 1}


class Memory:
    """Page-aligned memory, touched."""

    def __init__(self, size, seed):
        self.map = mmap.mmap(-1, max(size, mmap.PAGESIZE))
        self.bytes = numpy.frombuffer(self.map, dtype=numpy.uint8, count=size)
        self.bytes[:] = numpy.random.default_rng(seed).integers(0, 256, size, dtype=numpy.uint8) if seed else 0
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        self.size = size

    def digest(self):
        return hashlib.blake2b(self.bytes).hexdigest()

    def pieces(self, count):
        """The memory in `count` pieces: (offset, bytes)."""
        step = -(-self.size // count)
        return [(at, min(step, self.size - at)) for at in range(0, self.size, step)]


class Engine:
    def settle(self):
        """All that was sent is in the target's memory."""


class Mooncake(Engine):
    def __init__(self, _role, address, memory, _settings):
        from mooncake.engine import TransferEngine
        self.engine = TransferEngine()
        if self.engine.initialize(address, "P2PHANDSHAKE", "tcp", "") != 0:
            sys.exit("mooncake: initialize failed")
        if self.engine.register_memory(memory.address, memory.size) != 0:
            sys.exit("mooncake: register_memory failed")
        self.memory, self.session = memory, f"{address}:{self.engine.get_rpc_port()}"

    def reached(self):
        return {"session": self.session, "address": self.memory.address}

    def connect(self, reached, settings):
        pieces = self.memory.pieces(settings["split"]) * settings["depth"]
        self.words = (reached["session"], [self.memory.address + at for at, _ in pieces],
                      [reached["address"] + at for at, _ in pieces], [size for _, size in pieces])

    def write(self):
        if self.engine.batch_transfer_sync_write(*self.words) != 0:
            sys.exit("mooncake: a transfer failed")


class Nixl(Engine):
    def __init__(self, role, address, memory, settings):
        import nixl_cu12._api as api
        backend = {"num_workers": str(settings["workers"])}
        self.name = f"agent-{address}"
        config = api.nixl_agent_config(backends=[], enable_prog_thread=role == "target" or bool(settings["progress"]))
        self.agent = api.nixl_agent(self.name, config)
        if settings["threads"]:
            backend |= {"num_threads": str(settings["threads"]), "split_batch_size": str(settings["batch"] or 1)}
        self.agent.create_backend("UCX", backend)
        self.memory = memory
        self.held = self.agent.register_memory([(memory.address, memory.size, 0, "")], "DRAM")

    def reached(self):
        return {"metadata": base64.b64encode(self.agent.get_agent_metadata()).decode(), "address": self.memory.address}

    def connect(self, reached, settings):
        other = self.agent.add_remote_agent(base64.b64decode(reached["metadata"]))
        pieces = self.memory.pieces(settings["split"]) * settings["depth"]

        def described(base):
            return self.agent.get_xfer_descs([(base + at, size, 0) for at, size in pieces], "DRAM")

        self.handle = self.agent.initialize_xfer("WRITE", described(self.memory.address),
                                                 described(reached["address"]), other, b"")

    def write(self):
        state = self.agent.transfer(self.handle)
        while state == "PROC":
            state = self.agent.check_xfer_state(self.handle)
        if state != "DONE":
            sys.exit(f"nixl: a transfer ended as {state}")


class Sockets(Engine):
    """No engine: as many streams as iperf3 has, a thread on each side, each stream one part of the memory again and
    again. What is left of iperf3's rate when the bytes come from somewhere and go somewhere."""
    CALL = 512 << 10  # bytes; the best of 64 KiB to 1 MiB here

    def __init__(self, role, address, memory, settings):
        self.memory = memory
        self.parts = [[at, size, 0] for at, size in memory.pieces(settings["streams"])]  # start, bytes, moved
        if role == "target":
            self.listener = socket.create_server((address, 0))
            self.taker = threading.Thread(target=self.take)
            self.taker.start()

    def reached(self):
        return {"name": self.listener.getsockname()}

    def settle(self):
        self.taker.join()

    def take(self):
        streams = [self.listener.accept()[0] for _ in self.parts]
        self.each(streams, select.EPOLLIN, lambda one, where: one.recv_into(where), float("inf"))

    def connect(self, reached, settings):
        self.streams, self.rounds, self.depth = [], 0, settings["depth"]
        for _ in self.parts:
            self.streams.append(socket.create_connection(reached["name"]))

    def write(self):
        self.rounds += self.depth
        self.each(self.streams, select.EPOLLOUT, lambda one, where: one.send(where), self.rounds)

    def each(self, streams, event, move, rounds):
        """Moves bytes wherever a stream can, until each has its rounds or its end."""
        view, ready = memoryview(self.memory.bytes), select.epoll()
        left = {one.fileno(): (one, part) for one, part in zip(streams, self.parts)}
        for one in streams:
            one.setblocking(False)
            ready.register(one, event)
        while left:
            for name, _ in ready.poll():
                one, part = left[name]
                at = part[2] % part[1]
                moved = move(one, view[part[0] + at:part[0] + min(part[1], at + self.CALL)])
                part[2] += moved
                if not moved or part[2] == rounds * part[1]:
                    ready.unregister(one)
                    del left[name]

ENGINES = {"mooncake": Mooncake, "nixl": Nixl, "sockets": Sockets}


def main():
    kind, role, address, size, *rest = sys.argv[1:]
    settings = dict(SETTINGS)
    for word in rest:
        name, _, value = word.partition("=")
        settings[name] = type(SETTINGS[name])(value)
    memory = Memory(int(size), 7 if role == "source" else 0)
    engine = ENGINES[kind](role, address, memory, settings)
    if role == "target":
        print(json.dumps(engine.reached()), flush=True)
        sys.stdin.read()
        engine.settle()
        print(json.dumps({"digest": memory.digest()}), flush=True)
        return
    engine.connect(json.loads(sys.stdin.readline()), settings)
    engine.write()  # connects, and grows the windows
    engine.write()
    rounds, began = 0, time.monotonic()
    while time.monotonic() - began < settings["seconds"] or rounds < 2:
        engine.write()
        rounds += 1
    took = time.monotonic() - began
    print(json.dumps({"bytes_per_second": rounds * settings["depth"] * memory.size / took,
                      "digest": memory.digest()}), flush=True)


if __name__ == "__main__":
    main()

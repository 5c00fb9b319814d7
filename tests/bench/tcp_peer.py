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
import sys
import time

import numpy

SETTINGS = {"seconds": 1.0, "depth": 2, "split": 1, "threads": 0, "workers": 1, "batch": 0, "progress": 1}


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


class Mooncake:
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


class Nixl:
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


ENGINES = {"mooncake": Mooncake, "nixl": Nixl}


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

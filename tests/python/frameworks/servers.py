# SPDX-License-Identifier: Apache-2.0
"""Servers of doubles/vllm/serve.py as processes, and what their ranks hold."""
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time
import urllib.request

import torch

HERE = pathlib.Path(__file__).resolve().parent
SHAPES = {"embed": (8, 16), "layer.weight": (32, 16), "layer.bias": (32,)}
TENSORS = [(name, torch.float32, shape) for name, shape in SHAPES.items()]
QUICK = {"join_timeout_s": 30, "update_timeout_s": 20}


def named(value):
    return ((name, torch.full(shape, float(value))) for name, shape in SHAPES.items())


class Server:
    def __init__(self, folder, generation, ranks=1, extension=False, shapes=None):
        file = folder / f"port-{time.monotonic_ns()}"
        given = {}
        if shapes:
            given["WEFT_DOUBLE_SHAPES"] = str(folder / "shapes.json")
            (folder / "shapes.json").write_text(json.dumps(shapes))
        path = [str(HERE / "doubles/vllm"), *(entry for entry in sys.path if entry)]
        self.process = subprocess.Popen([sys.executable, HERE / "doubles/vllm/serve.py", generation, str(ranks), file,
                                         *(["extension"] if extension else [])],
                                        env={**os.environ, "PYTHONPATH": ":".join(path), **given})
        deadline = time.monotonic() + 60
        while not file.exists():
            assert self.process.poll() is None, f"the server ended with {self.process.returncode}"
            assert time.monotonic() < deadline, "the server has no port after 60 s"
            time.sleep(0.02)
        self.url = f"http://127.0.0.1:{file.read_text()}"

    def get(self, route):
        with urllib.request.urlopen(self.url + route, timeout=10) as answer:
            return json.loads(answer.read())

    def holds(self, value):
        return all(mean == float(value) for rank in self.get("/parameters") for mean in rank.values())

    def kill(self):
        self.process.kill()
        self.process.wait(10)


@contextlib.contextmanager
def running(folder, generation, servers=1, ranks=1, extension=False, shapes=None):
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(servers):
            server = Server(folder, generation, ranks, extension, shapes)
            stack.callback(server.kill)
            found.append(server)
        yield found

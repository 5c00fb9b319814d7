# SPDX-License-Identifier: Apache-2.0
"""Starts engines of sglang_engine.py, and ends them."""
import contextlib
import os
import pathlib
import subprocess
import sys
import time

import torch

HERE = pathlib.Path(__file__).resolve().parent
TENSORS = [("model.a.weight", torch.float32, (8, 16)), ("model.b.weight", torch.float32, (8, 16))]


def weights(value):
    """Each element its own number."""
    return {name: torch.arange(128, dtype=torch.float32).view(8, 16) + value + 1000 * place
            for place, (name, _, _) in enumerate(TENSORS)}


class Served:
    def __init__(self, url, processes, log):
        self.url, self.processes, self.log = url, processes, log


@contextlib.contextmanager
def engine(folder, generation="new", ranks=1, **environment):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log"
    with open(log, "w") as file:
        command = [sys.executable, str(HERE / "sglang_engine.py"), generation, str(ranks)]
        processes = [subprocess.Popen([*command, str(rank), str(folder)], env={**os.environ, **environment}, stdout=file,
                                      stderr=subprocess.STDOUT) for rank in range(ranks)]
    try:
        deadline = time.monotonic() + 60
        while not (folder / "port").exists():
            assert all(one.poll() is None for one in processes), log.read_text()
            assert time.monotonic() < deadline, f"no engine within 60 s: {log.read_text()}"
            time.sleep(0.05)
        yield Served(f"http://127.0.0.1:{(folder / 'port').read_text()}", processes, log)
    finally:
        for one in processes:
            one.kill()
        for one in processes:
            one.wait(10)

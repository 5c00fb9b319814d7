#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One process of test_deaths.py, through weft.h alone: what its readers are shown when the job is over, however it ended.

    death_rank.py LIBRARY ROLE RANK CONTROLLER TRANSPORT SHADOW UPDATES [TP]

Ends with a line of JSON: {"error": null or text, "shown": version, 0 for none, "right": whether its bytes are that version's}
"""
import ctypes
import json
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "gpu"))
from torch_tensors import U32, U64, Error, Memory, Options, Param, Tensor, box, sized  # noqa: E402

ROWS, COLUMNS = 64, 512
HOST_MEMORY, NONE = 1, 2
SETTLE_S = 0.4  # what was decided when the job ended is stored by then, wherever it was decided


def contents(version, first, count):
    return (ctypes.c_float * (count * COLUMNS))(*(version * 1000.0 + row for row in range(first, first + count)
                                                  for _ in range(COLUMNS)))


class Worker:
    def __init__(self, library, **options):
        self.library, self.worker = library, ctypes.c_void_p()
        library.weft_param_memory.restype = ctypes.c_void_p
        self.call("open", ctypes.byref(sized(Options, checksums=1, **options)), first=ctypes.byref(self.worker))

    def call(self, name, *arguments, first=None):
        error = sized(Error)
        if getattr(self.library, f"weft_{name}")(first or self.worker, *arguments, ctypes.byref(error)):
            raise RuntimeError(error.text.decode())


TENSOR = sized(Tensor, name=b"w", dtype=b"F32", dims=2, shape=(U64 * 4)(ROWS, COLUMNS))


def trainer(worker, updates):
    worker.call("declare_tensor", ctypes.byref(TENSOR), U32(0), U64(0), U64(ROWS), None)
    worker.call("join", U32(60000))
    for version in range(1, updates + 1):
        data = contents(version, 0, ROWS)
        memory = sized(Memory, kind=HOST_MEMORY, pointer=ctypes.addressof(data), bytes=ctypes.sizeof(data))
        worker.call("update_begin", U64(version))
        worker.call("update_write", U32(0), ctypes.byref(memory))
        worker.call("update_end")


def inference(worker, rank, updates, tp):
    rows, rank = ROWS // tp, rank % tp
    param = sized(Param, name=b"p", dtype=b"F32", dims=2, shape=(U64 * 4)(rows, COLUMNS))
    worker.call("declare_param", ctypes.byref(param), None)
    worker.call("declare_piece", ctypes.byref(TENSOR), box(rank * rows, 0), box((rank + 1) * rows, COLUMNS), U32(0), U64(0))
    worker.call("join", U32(60000))
    for version in range(1, updates + 1):
        worker.call("update_wait", U64(version), U32(20000), None)


def shown(worker, rank, tp):
    """What readers get, and whether every byte of it is right."""
    rows, rank, version = ROWS // tp, rank % tp, U64()
    if worker.library.weft_read_begin(worker.worker, ctypes.byref(version)) == NONE:
        return 0, True
    there = worker.library.weft_param_memory(worker.worker, U32(0), version)
    want = contents(version.value, rank * rows, rows)
    return version.value, ctypes.string_at(there, ctypes.sizeof(want)) == bytes(want)


def main(library, role, rank, controller, transport, shadow, updates, tp=2):
    failure, version, right = None, 0, True
    worker = Worker(ctypes.CDLL(library), controller=controller.encode(), job=b"test", role=1 if role == "trainer" else 2,
                    rank=int(rank), transport=transport.encode(), nic=b"lo" if transport == "tcp" else None,
                    shadow=int(shadow) if role == "inference" else 0, update_timeout_ms=8000)
    try:
        if role == "trainer":
            trainer(worker, int(updates))
        else:
            inference(worker, int(rank), int(updates), int(tp))
    except RuntimeError as error:
        failure = str(error)
        time.sleep(SETTLE_S)
    if role == "inference":
        version, right = shown(worker, int(rank), int(tp))
    print(json.dumps({"error": failure, "shown": version, "right": right}), flush=True)
    worker.library.weft_close(ctypes.byref(worker.worker))


if __name__ == "__main__":
    main(*sys.argv[1:])

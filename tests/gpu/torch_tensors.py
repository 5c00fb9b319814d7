#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tensors of torch on both sides of a job of one GPU: a trainer's, filled on a stream that is still at work when they are
handed over, and the parameters of two ranks, each somewhere inside a block of the caching allocator.

    torch_tensors.py FOLDER      that tests/gpu/pack made; exit code 77 where there is no torch with a GPU

Run once more with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: the same over mapped memory.
"""
import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROWS, COLUMNS, VERSIONS, RANKS = 512, 256, 3, 2
SKIP = 77
BUSY_CYCLES = 200_000_000  # some 0.1 s, in which the tensor's bytes are not there yet
U32, U64, TEXT = ctypes.c_uint32, ctypes.c_uint64, ctypes.c_char_p


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("controller", TEXT), ("job", TEXT), ("role", ctypes.c_int), ("rank", U32),
                ("transport", TEXT), ("join_timeout_ms", U32), ("update_timeout_ms", U32), ("ring_bytes", U64),
                ("checksums", ctypes.c_int), ("shadow", ctypes.c_int), ("own_memory", ctypes.c_int), ("pack_threads", U32),
                ("nic", TEXT), ("replica", TEXT), ("key_file", TEXT), ("key_waits", ctypes.c_int), ("reserved", ctypes.c_int),
                ("memory", TEXT), ("stage", TEXT), ("landing_bytes", U64)]


class Memory(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("kind", U32), ("device", ctypes.c_int32), ("pointer", ctypes.c_void_p),
                ("bytes", U64), ("stream", ctypes.c_void_p)]


class Tensor(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("name", TEXT), ("dtype", TEXT), ("dims", U32), ("shape", U64 * 4)]


class Param(ctypes.Structure):
    _fields_ = Tensor._fields_ + [("memory", ctypes.POINTER(Memory))]


class Error(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("code", ctypes.c_int), ("reserved", U32), ("text", ctypes.c_char * 1024)]


def sized(type_, **fields):
    return type_(size=ctypes.sizeof(type_), **fields)


class Worker:
    def __init__(self, library, controller, role, rank, **options):
        self.library, self.worker = library, ctypes.c_void_p()
        options = sized(Options, controller=controller.encode(), role=role, rank=rank, transport=b"cuda", memory=b"cuda:0",
                        checksums=1, **options)
        self.call("open", ctypes.byref(options), first=ctypes.byref(self.worker))

    def call(self, name, *arguments, first=None):
        error = sized(Error)
        if getattr(self.library, f"weft_{name}")(first or self.worker, *arguments, ctypes.byref(error)):
            sys.exit(f"weft_{name}: {error.text.decode()}")

    def close(self):
        self.library.weft_close(ctypes.byref(self.worker))


def memory_of(tensor, stream=None):
    return sized(Memory, kind=2, pointer=tensor.data_ptr(), bytes=4 * tensor.numel(), stream=stream)


def box(*bounds):
    return (U64 * len(bounds))(*bounds)


def declared():
    return sized(Tensor, name=b"w", dtype=b"F32", dims=2, shape=(U64 * 4)(ROWS, COLUMNS))


def contents(torch, version):
    return torch.arange(ROWS * COLUMNS, dtype=torch.float32) + version * 1000


def inside(torch, count):
    """A piece of a block that torch has: neither its first byte nor all of it."""
    return torch.zeros(count + 96, dtype=torch.float32, device="cuda:0")[64:64 + count]


def trainer(torch, library, controller, _):
    tensor = inside(torch, ROWS * COLUMNS)
    worker = Worker(library, controller, 1, 0)
    worker.call("declare_tensor", ctypes.byref(declared()), U32(0), U64(0), U64(ROWS), None)
    worker.call("join", U32(60000))
    for version in range(1, VERSIONS + 1):
        stream, host = torch.cuda.Stream(), contents(torch, version).pin_memory()
        worker.call("update_begin", U64(version))
        with torch.cuda.stream(stream):
            torch.cuda._sleep(BUSY_CYCLES)
            tensor.copy_(host, non_blocking=True)
        worker.call("update_write", U32(0), ctypes.byref(memory_of(tensor, stream.cuda_stream)))
        worker.call("update_end")
    worker.close()


def inference(torch, library, controller, rank):
    width = COLUMNS // RANKS
    mine = inside(torch, ROWS * width)
    worker = Worker(library, controller, 2, rank, own_memory=1)
    memory = memory_of(mine)
    param = sized(Param, name=b"p", dtype=b"F32", dims=2, shape=(U64 * 4)(ROWS, width), memory=ctypes.pointer(memory))
    worker.call("declare_param", ctypes.byref(param), None)
    worker.call("declare_piece", ctypes.byref(declared()), box(0, rank * width), box(ROWS, (rank + 1) * width), U32(0), U64(0))
    worker.call("join", U32(60000))
    for version in range(1, VERSIONS + 1):
        stream = torch.cuda.Stream()
        # queued before the version is here: the copy waits on the GPU
        worker.call("stream_wait", U64(version), ctypes.c_void_p(stream.cuda_stream))
        with torch.cuda.stream(stream):
            there = mine.clone()
        worker.call("update_wait", U64(version), U32(60000), None)
        stream.synchronize()
        here = there.cpu()
        want = contents(torch, version).reshape(ROWS, COLUMNS)[:, rank * width:(rank + 1) * width].reshape(-1)
        if not torch.equal(here, want):
            sys.exit(f"rank {rank}: what torch reads is not version {version}")
    worker.close()


def play(folder, role, controller, rank):
    import torch
    library = ctypes.CDLL(str(folder / "lib" / "libweft.so"))
    {"trainer": trainer, "inference": inference}[role](torch, library, controller, int(rank))


def first_failure(processes, deadline):
    """The exit code of the first that fails, for the others then wait for it; 0 when all have ended well."""
    while time.monotonic() < deadline:
        codes = [process.poll() for process in processes]
        failed = [code for code in codes if code]
        if failed or None not in codes:
            return abs(failed[0]) if failed else 0
        time.sleep(0.05)
    sys.exit("torch_tensors.py: the job does not end")


def main(folder):
    try:
        import torch
    except ImportError:
        return SKIP
    if not torch.cuda.is_available():
        return SKIP
    with tempfile.TemporaryDirectory() as work:
        port = pathlib.Path(work) / "port"
        processes = [subprocess.Popen([folder / "bin" / "weft-controller", "--bind", "tcp://127.0.0.1:0", "--port-file", port,
                                       "--train", "world=1,source=gathered", "--infer", f"engines=1,tp={RANKS}"])]
        deadline = time.monotonic() + 20
        while not port.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        controller = f"tcp://127.0.0.1:{port.read_text().strip()}"
        for role, rank in [("trainer", 0)] + [("inference", rank) for rank in range(RANKS)]:
            processes.append(subprocess.Popen([sys.executable, __file__, folder, role, controller, str(rank)]))
        try:
            return first_failure(processes, time.monotonic() + 120)
        finally:
            for process in processes:
                process.kill()


if __name__ == "__main__":
    if len(sys.argv) == 5:
        play(pathlib.Path(sys.argv[1]), *sys.argv[2:])
    elif len(sys.argv) == 2:
        os.environ.setdefault("WEFT_LOG", "warn")
        sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
    else:
        sys.exit(__doc__)

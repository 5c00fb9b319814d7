# SPDX-License-Identifier: Apache-2.0
"""A rank of a job of test_together.py: what its readers are shown after each wait. Rank 1 never loads version 2."""
import ctypes
import sys
import time

from death_rank import COLUMNS, ROWS, TENSOR, U32, U64, Param, Worker, box, shown, sized, trainer

UPDATES = 3


def say(*words):
    print(*words, flush=True)


def inference(worker, rank):
    def post_load(_, version):
        if rank == 1 and version == 2:
            say("loads")
            time.sleep(60)
        return 0

    hook = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, U64)(post_load)
    rows, half = ROWS // 2, rank % 2
    param = sized(Param, name=b"p", dtype=b"F32", dims=2, shape=(U64 * 4)(rows, COLUMNS))
    worker.call("set_post_load", hook, None)
    worker.call("declare_param", ctypes.byref(param), None)
    worker.call("declare_piece", ctypes.byref(TENSOR), box(half * rows, 0), box((half + 1) * rows, COLUMNS), U32(0), U64(0))
    worker.call("join", U32(60000))
    for version in range(1, UPDATES + 1):
        worker.call("update_wait", U64(version), U32(20000), None)
        at_once = shown(worker, rank, 2)
        time.sleep(1 if version == 2 else 0)  # a plan comes meanwhile, where it has not before
        say(f"waited for {version}, readers are shown {at_once}, {shown(worker, rank, 2)}")


def main(library, role, rank, controller, transport, shadow):
    worker = Worker(ctypes.CDLL(library), controller=controller.encode(), job=b"test", role=1 if role == "trainer" else 2,
                    rank=int(rank), transport=transport.encode(), nic=b"lo" if transport == "tcp" else None,
                    shadow=int(shadow) if role != "trainer" else 0, update_timeout_ms=15000)
    if role == "trainer":
        trainer(worker, UPDATES)
    else:
        inference(worker, int(rank))
    worker.library.weft_close(ctypes.byref(worker.worker))


if __name__ == "__main__":
    main(*sys.argv[1:])

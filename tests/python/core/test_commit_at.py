# SPDX-License-Identifier: Apache-2.0
"""An engine of two processes whose scheduler says at which step both ranks switch."""
import multiprocessing
import threading

import numpy
import pytest
from pair import Thread

import weft

ROWS, VERSIONS, SECONDS = 64, 12, 40.0
W = weft.Tensor("w", "F32", (ROWS, 256))
SPAWN = multiprocessing.get_context("spawn")


def rank(address, number, way, step, said):
    """Each version is prepared, then shown on both ranks between two steps; a reader looks all the while."""
    try:
        with weft.Inference(address, number, shadow=True, commit_by_host=True, update_timeout_s=SECONDS, **way) as worker:
            worker.declare_param("half", "F32", (ROWS // 2, 256))
            worker.declare_piece(W, "half", lo=(number * ROWS // 2, 0), hi=((number + 1) * ROWS // 2, 256))
            worker.join()
            seen, ends = set(), threading.Event()

            def read():
                while not ends.is_set():
                    seen.add((worker.published, worker.published))

            reader = Thread(read)
            for version in range(1, VERSIONS + 1):
                assert worker.wait(version) == version and worker.published == version - 1
                step.wait(SECONDS)  # both have prepared it
                assert worker.published == version - 1
                step.wait(SECONDS)
                worker.commit_at(version)
                step.wait(SECONDS)  # both have switched
                with worker.read() as snapshot:
                    half = numpy.frombuffer(snapshot["half"].buffer, "f4")
                    assert snapshot.version == version and (half == version * 10 + number).all()
            ends.set()
            reader.done()
            assert all(a <= b for a, b in seen), seen
        said.put(None)
    except BaseException as failure:
        step.abort()
        said.put(f"rank {number}: {type(failure).__name__}: {failure}")


@pytest.mark.parametrize("way", [{}, {"transport": "tcp", "nic": "lo"}], ids=["shm", "tcp"])
def test_ranks__switch_at_the_step_that_their_host_says(way):
    with weft.Controller(train="world=1", infer="engines=1,tp=2") as running:
        step, said = SPAWN.Barrier(2), SPAWN.Queue()
        ranks = [SPAWN.Process(target=rank, args=(running.address, number, way, step, said), daemon=True) for number in range(2)]
        for process in ranks:
            process.start()
        with weft.Trainer(running.address, 0, update_timeout_s=SECONDS, **way) as trainer:
            trainer.declare_tensor(W)
            trainer.join()
            for version in range(1, VERSIONS + 1):
                value = numpy.repeat(numpy.array([version * 10, version * 10 + 1], "f4"), ROWS // 2 * 256).reshape(ROWS, 256)
                trainer.publish(version, {"w": value})
            assert [said.get(timeout=SECONDS) for _ in ranks] == [None, None]
        for process in ranks:
            process.join(SECONDS)


def test_commit_at__says_what_is_missing():
    with weft.Controller(train="world=1", infer="engines=1,tp=1") as running:
        with pytest.raises(weft.UsageError, match="set shadow too"):
            weft.Inference(running.address, 0, commit_by_host=True)
        with weft.Inference(running.address, 0, shadow=True) as worker, pytest.raises(weft.StateError, match="commit_by_host"):
            worker.commit_at(1)
        running.stop()

# SPDX-License-Identifier: Apache-2.0
"""Engines that leave a job that goes on: who is told, and of whom."""
import contextlib
import threading

from pair import SECONDS, K, Q, Thread, right, values

import weft


def engine(address, rank):
    worker = weft.Inference(address, rank, shadow=True, update_timeout_s=SECONDS)
    worker.declare_param("qk", "F32", (96, 32))
    worker.declare_piece(Q, "qk")
    worker.declare_piece(K, "qk", offset_bytes=Q.bytes)
    return worker


def heard(worker):
    """They come on a thread of their own."""
    for _ in range(200):
        if worker.losses:
            break
        threading.Event().wait(0.05)
    return worker.losses


def test_losses__name_the_engine_that_left_and_why_to_all_that_go_on():
    with contextlib.ExitStack() as stack:
        running = weft.Controller(train="world=1", infer="engines=2,tp=1", on_loss="continue")
        stack.callback(running.stop)
        trainer = stack.enter_context(weft.Trainer(running.address, 0, update_timeout_s=SECONDS))
        trainer.declare_tensor(Q)
        trainer.declare_tensor(K)
        engines = [engine(running.address, rank) for rank in range(2)]
        stack.enter_context(engines[0])
        joins = [Thread(worker.join) for worker in (trainer, *engines)]
        for join in joins:
            join.done()
        for version in range(1, 4):
            waits = [Thread(worker.wait, version) for worker in engines[:2 if version == 1 else 1]]
            trainer.publish(version, values(version))
            assert [wait.done() for wait in waits] == [version] * len(waits)
            if version == 1:
                assert trainer.losses == engines[0].losses == ()
                with contextlib.suppress(ZeroDivisionError), engines[1]:
                    raise ZeroDivisionError("of this test")
        for worker in (trainer, engines[0]):
            (loss,) = heard(worker)
            assert loss.ranks == range(1, 2) and loss.code == weft.Code.HOST, loss
            assert "inference 1" in loss.text and "ZeroDivisionError" in loss.text, loss
        with engines[0].read() as snapshot:
            assert right(snapshot["qk"], 3)

# SPDX-License-Identifier: Apache-2.0
"""A job of one trainer and one inference rank, of two tensors that one parameter is made of: the trainer in a thread."""
from __future__ import annotations

import contextlib
import threading

import numpy

import weft

Q, K = weft.Tensor("q", "F32", (64, 32)), weft.Tensor("k", "F32", (32, 32))
SECONDS = 20.0


def values(version):
    """Of each tensor, in any version."""
    return {"q": numpy.full(Q.shape, version, "f4"), "k": numpy.full(K.shape, -version, "f4")}


def right(array, version):
    found = numpy.frombuffer(array.buffer, "f4").reshape(96, 32)
    return bool((found[:64] == version).all() and (found[64:] == -version).all())


class Thread(threading.Thread):
    """Its exception is raised where it is joined."""

    def __init__(self, function, *arguments):
        super().__init__(daemon=True)
        self.function, self.arguments, self.failure, self.result = function, arguments, None, None
        self.start()

    def run(self):
        try:
            self.result = self.function(*self.arguments)
        except BaseException as failure:
            self.failure = failure

    def done(self):
        self.join(3 * SECONDS)
        assert not self.is_alive()
        if self.failure:
            raise self.failure
        return self.result


def trainer(address, **options):
    worker = weft.Trainer(address, 0, update_timeout_s=SECONDS, **options)
    worker.declare_tensor(Q)
    worker.declare_tensor(K)
    return worker


def inference(address, **options):
    worker = weft.Inference(address, 0, update_timeout_s=SECONDS, **options)
    param = worker.declare_param("qk", "F32", (96, 32))
    worker.declare_piece(Q, param)
    worker.declare_piece(K, "qk", offset_bytes=Q.bytes)
    return worker


@contextlib.contextmanager
def controller():
    """Stopped at the end, however the job ends."""
    running = weft.Controller(train="world=1", infer="engines=1,tp=1")
    try:
        yield running
    finally:
        running.stop()


@contextlib.contextmanager
def pair(trainer_options=None, **options):
    """Both, joined."""
    with controller() as running:
        sender, receiver = trainer(running.address, **(trainer_options or {})), inference(running.address, **options)
        joins = Thread(sender.join)
        receiver.join()
        joins.done()
        try:
            yield sender, receiver
        finally:
            sender.close()
            receiver.close()

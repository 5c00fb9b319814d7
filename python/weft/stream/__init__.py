# SPDX-License-Identifier: Apache-2.0
"""Named tensors in buckets: trainers give (name, tensor) one after the other, engines get (name, tensor) in that order, with
bounded memory on both sides. For frameworks whose engines load whole tensors by name; all trainers share the sending.

::

    with weft.stream.Sender(controller, rank, world, receivers=2) as sender:        # each trainer, the same tensors in order
        sender.join()
        sender.send(model.state_dict().items(), step=1)

    with weft.stream.Receiver(controller, rank, world, receivers=2) as receiver:              # each engine's rank
        receiver.join()
        for name, tensor in receiver.receive(step=1):
            load(name, tensor)

What moves is a weft job like any other (it needs a Controller: ``start_controller``). Its tensors are one bucket, and its
versions are buckets, counted over all streams:

    trainer 0   [ table.0 | share.0 ]──┐            ┌─► table.0 table.1   what lies where, by each trainer: all must be equal
    trainer 1   [ table.1 | share.1 ]──┴─ version v ┴─► [ share.0  share.1 ] = bucket: the tensors' bytes one behind another

A trainer packs and sends its own share of each bucket: 1 / world of the bytes leave its GPU and its host. While one bucket
goes out the next is packed; while one is loaded the next arrives (two buckets of memory on either side). Tensors are cut
wherever a bucket ends, so they may be larger than one. Every bucket moves whole, the last of a stream too.

All or nothing: a stream that fails anywhere (a process died, a generator raised, tensors differ, somebody stopped) fails for
all within seconds, with who and why, and the join with it: close, and join again.
"""
from __future__ import annotations

from weft.stream._base import BUCKET_BYTES, TABLE_BYTES, UPDATE_TIMEOUT_S, Figures, start_controller
from weft.stream._receiver import Receiver
from weft.stream._sender import Sender

__all__ = ["BUCKET_BYTES", "TABLE_BYTES", "Figures", "Receiver", "Sender", "UPDATE_TIMEOUT_S", "start_controller"]

# SPDX-License-Identifier: Apache-2.0
"""Models of torch on both sides of a job: a trainer's declared as it is cut, an engine's module with its parameters
where weft writes.

    declare, publish            a trainer's model: whole, DTensor (FSDP2, HSDP, tp, ep), FSDP1, ZeRO-3, Megatron-Core
    megatron_train              the train spec of a running Megatron-Core job
    attach                      an engine's module
    empty_shared, without_memory, tensor_over, dtype_of    weft's memory as tensors

A trainer::

    fully_shard(model)                                        # or DDP, FSDP1, deepspeed.initialize, Megatron, ..
    trainer = weft.Trainer(controller, rank)
    weft.torch.declare(trainer, model)
    trainer.join()
    for version in range(1, 100):
        ..; optimizer.step()
        weft.torch.publish(trainer, model, version)

An engine's rank::

    inference = weft.Inference(controller, rank)
    attached = weft.torch.attach(inference, module, pieces=..)
    inference.join()
    while True:
        attached.wait()
        with attached.read():
            module(..)
"""
from __future__ import annotations

import torch as _torch

if tuple(map(int, _torch.__version__.split("+")[0].split(".")[:2])) < (2, 6):
    raise ImportError(f"weft.torch: torch {_torch.__version__} is older than 2.6, from which on FSDP2's modules can "
                      "be told")

from weft.torch._attach import Attached, Fill, attach
from weft.torch._declare import Declared, declare
from weft.torch._megatron import megatron_train
from weft.torch._names import Part, experts_apart
from weft.torch._publish import publish, publish_async
from weft.torch._tensors import dtype_of, empty_shared, tensor_over, without_memory

__all__ = ["Attached", "Declared", "Fill", "Part", "attach", "declare", "dtype_of", "empty_shared", "experts_apart",
           "megatron_train", "publish", "publish_async", "tensor_over", "without_memory"]

# SPDX-License-Identifier: Apache-2.0
"""A version of a model that was declared."""
from __future__ import annotations

import contextlib
from typing import Any, Iterator

import torch

from weft import StateError, Trainer, Update, UsageError
from weft.torch import _megatron
from weft.torch._declare import Declared, declared_of
from weft.torch._survey import Modules

#: Bytes of tensors from `gathered` after which what is kept is sent and let go, unless what comes next is needed for it.
GATHERED_BYTES = 256 << 20


def publish(trainer: Trainer, model: Modules, version: int) -> None:
    """Sends the model as it is now, on every rank, after ``optimizer.step()``: begin, write, end. When it returns the
    parameters may change.

    Parameters may have moved since ``declare`` (an offload that came back), but not where they were registered. FSDP2
    modules that are gathered are resharded, and Megatron's overlapped gather of parameters is brought to its end.

    Args:
        trainer: after join.
        model: that was declared.
        version: larger than any before.

    Raises:
        StateError: a parameter is of another dtype, shape or shard than was declared; it is named, and nothing was
        begun. Others: as ``Trainer.begin``, ``write_all`` and ``end``; the update was given up.
    """
    declared, memory = _prepared(trainer, model)
    with trainer.update(version) as update:
        for _ in _written(update, declared):
            with contextlib.suppress(StateError):  # a weight whose scales come next: then with those that follow
                trainer.drain()
        update.write_all(memory)


async def publish_async(trainer: Trainer, model: Modules, version: int) -> None:
    """``publish`` for an event loop; the model stays as it is until it is done. Functions of `gathered` run on the
    loop's thread."""
    declared, memory = _prepared(trainer, model)
    async with trainer.update(version) as update:
        for _ in _written(update, declared):
            with contextlib.suppress(StateError):
                await trainer.drain_async()
        await trainer.write_all_async(memory)


@torch.no_grad()
def _prepared(trainer: Trainer, model: Modules) -> tuple[Declared, dict[int, torch.Tensor]]:
    declared = declared_of(trainer)
    _megatron.synchronised(model)
    return declared, declared.memory(model)


def _written(update: Update, declared: Declared) -> Iterator[None]:
    """Writes what `gathered` yields; stops whenever so much of it is kept that the update is to be drained."""
    kept = 0
    for number, tensor in _made(declared):
        update.write(number, tensor)
        kept += tensor.nbytes
        if kept > GATHERED_BYTES:
            yield
            kept = 0


@torch.no_grad()
def _made(declared: Declared) -> Iterator[tuple[int, Any]]:
    """From the user's function: (id, tensor) of what this rank declared."""
    missing = dict(declared.gathered)
    for name, tensor in declared.make() if declared.make is not None else ():
        number = missing.pop(name, None)
        if (number is None) != (tensor is None):
            raise UsageError(f"gathered yields {name!r} " + ("twice, or it was none of this rank's at declare"
                                                             if number is None else "as None, and at declare it had a "
                                                                                    "tensor"))
        if tensor is not None and number is not None:
            yield number, tensor.detach().contiguous()
    if missing:
        raise UsageError(f"gathered does not yield {sorted(missing)[0]!r}, which it did at declare ({len(missing)} "
                         "are missing)")

# SPDX-License-Identifier: Apache-2.0
"""Weights move by weft: each trainer writes what it holds, where each rank of each engine has it."""
from __future__ import annotations

import json
import os
import pathlib
import tempfile
from types import TracebackType
from typing import Any, ContextManager, Optional

import engine_model
import torch
import torch.distributed as dist
from settings import Settings

import weft
import weft.torch

# whose engine here is laid out as those that weft has rows for; what others' parameters are made of is said piece by piece
KNOWN = ("qwen2",)


def _transport(settings: Settings) -> "dict[str, Any]":
    return {"transport": settings.transport, "nic": "lo" if settings.transport == "tcp" else None}


class Sender:
    """A trainer's side: ``publish`` is called on every rank."""

    def __init__(self, settings: Settings, store: dist.Store, model: torch.nn.Module):
        del store
        self.model, self.tp = model, settings.tp
        self.trainer = weft.Trainer(rank=int(os.environ["RANK"]), update_timeout_s=settings.timeout_s, pack_threads=1,
                                    **_transport(settings))
        if settings.model in KNOWN:  # as declare_model on the other side has them
            self.trainer.declare_labels(settings.model, settings.train, settings.infer)
        weft.torch.declare(self.trainer, model)
        self.trainer.join(settings.timeout_s)
        self.since: dict[int, int] = {}  # by loss: the first version of the engine that came in its place

    def publish(self, version: int) -> None:
        weft.torch.publish(self.trainer, self.model, version)  # an engine that is back comes in here
        self.absent(version)

    def absent(self, version: int) -> "set[int]":
        """Engines that have no part in a version: they had left, or came after it. Nobody waits for their samples."""
        gone = set()
        for index, loss in enumerate(self.trainer.losses):
            if loss.role == "trainer":
                continue
            engine = loss.ranks.start // self.tp
            if not loss.back:
                gone.add(engine)
            elif version < self.since.setdefault(index, self.trainer.next_version):
                gone.add(engine)
        return gone

    def __enter__(self) -> "Sender":
        return self

    def __exit__(self, kind: Optional[type[BaseException]], exception: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.trainer.__exit__(kind, exception, trace)


class Receiver:
    """A rank of an engine: the model's parameters lie where weft writes."""

    def __init__(self, settings: Settings, store: dist.Store, model: engine_model.Model, rank: int):
        del store
        self.inference = weft.Inference(rank=rank, update_timeout_s=settings.timeout_s, **_transport(settings))
        if settings.model in KNOWN:
            with tempfile.TemporaryDirectory() as folder:
                checkpoint = pathlib.Path(folder) / settings.model  # its name is the label
                checkpoint.mkdir()
                (checkpoint / "config.json").write_text(json.dumps(settings.config))
                self.inference.declare_model(checkpoint, settings.train, settings.infer)
            self.attached = weft.torch.attach(self.inference, model)
        else:
            self.attached = weft.torch.attach(self.inference, model, pieces=pieces(model))
        self.inference.join(settings.timeout_s)

    def first(self) -> int:
        """The first version that there is for this engine, of one that came to a run; 0: any."""
        return self.inference.next_version

    def receive(self, version: int) -> int:
        return self.attached.wait(version)

    def reading(self) -> "ContextManager[Any]":
        return self.attached.read()

    def __enter__(self) -> "Receiver":
        return self

    def __exit__(self, kind: Optional[type[BaseException]], exception: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.inference.__exit__(kind, exception, trace)


def pieces(model: engine_model.Model) -> "weft.torch.PiecesHook":
    """For ``attach``: what each parameter is made of, in the trainers' dtype."""
    sources = model.sources()

    def hook(name: str, parameter: weft.Tensor) -> "list[Any]":
        return [(weft.Tensor(box.tensor, "F32", box.shape), box.lo, box.hi) for box in sources[name]]
    return hook

# SPDX-License-Identifier: Apache-2.0
"""Weights move as frameworks do it without weft: tensors are gathered whole on trainer 0, which broadcasts them bucket by
bucket to all ranks of all engines, and each takes its part of each."""
from __future__ import annotations

import contextlib
import datetime
import math
from types import TracebackType
from typing import Any, ContextManager, Iterator, Optional

import channel
import engine_model
import torch
import torch.distributed as dist
from settings import Settings
from torch.distributed.tensor import DTensor

Entry = tuple[str, tuple[int, ...]]  # name and shape of a tensor


def _group(settings: Settings, store: dist.Store, rank: int) -> Any:
    """Trainer 0 is rank 0; the engines' ranks follow. Their own groups stay as they are."""
    return dist.ProcessGroupGloo(dist.PrefixStore("broadcast", store), rank, 1 + settings.engine_ranks,
                                 datetime.timedelta(seconds=settings.timeout_s))


def _buckets(entries: "list[Entry]", settings: Settings) -> "Iterator[list[Entry]]":
    """Tensors that go together: at most bucket_mib, or one that is larger."""
    dtype = getattr(torch, settings.engine_dtype)
    limit = settings.bucket_mib * (1 << 20) / dtype.itemsize
    bucket: list[Entry] = []
    for entry in entries:
        if bucket and sum(math.prod(shape) for _, shape in [*bucket, entry]) > limit:
            yield bucket
            bucket = []
        bucket.append(entry)
    yield bucket


class Sender:
    """A trainer's side: ``publish`` is called on every rank, for all take part in gathering."""

    def __init__(self, settings: Settings, store: dist.Store, model: torch.nn.Module):
        self.model, self.dtype = model, getattr(torch, settings.engine_dtype)
        entries = [(name, tuple(parameter.shape)) for name, parameter in self._parameters()]
        self.buckets = list(_buckets(entries, settings))
        self.group = None
        if dist.get_rank() == 0:
            channel.put(store, "tensors", entries)
            self.group = _group(settings, store, 0)

    def _parameters(self) -> "Iterator[tuple[str, torch.Tensor]]":
        for name, parameter in self.model.named_parameters():
            yield name.removeprefix("module."), parameter.detach()

    def publish(self, version: int) -> None:
        parameters = self._parameters()
        for bucket in self.buckets:
            flat = []
            for name, _ in bucket:
                own, parameter = next(parameters)
                assert own == name
                parameter = parameter.to(self.dtype)
                full = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
                if self.group is not None:
                    flat.append(full.flatten())
            if self.group is not None:
                self.group.broadcast(torch.cat(flat), 0).wait()
        if self.group is not None:
            self.group.broadcast(torch.tensor([version]), 0).wait()

    def absent(self, version: int) -> "set[int]":
        return set()  # an engine that is gone ends the group, for all

    def __enter__(self) -> "Sender":
        return self

    def __exit__(self, kind: Optional[type[BaseException]], exception: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.group = None


class Receiver:
    """A rank of an engine: takes whole tensors, and copies its part of each to where its parameter has it."""

    def __init__(self, settings: Settings, store: dist.Store, model: engine_model.Model, rank: int):
        self.group = _group(settings, store, 1 + rank)
        self.dtype = model.dtype
        self.buckets = list(_buckets([(name, tuple(shape)) for name, shape in channel.get(store, "tensors")], settings))
        self.takes: dict[str, list[tuple[torch.Tensor, tuple[slice, ...]]]] = {}
        own = dict(model.named_parameters())
        for name, boxes in model.sources().items():
            flat, at = own[name].detach().view(-1), 0
            for box in boxes:
                shape = [hi - lo for lo, hi in zip(box.lo, box.hi)]
                part = flat[at:at + math.prod(shape)].view(shape)
                self.takes.setdefault(box.tensor, []).append((part, tuple(map(slice, box.lo, box.hi))))
                at += part.numel()
            if at != flat.numel():
                raise ValueError(f"{name} has {flat.numel()} elements, and its sources {at}")

    def first(self) -> int:
        return 0

    def receive(self, version: int) -> int:
        for bucket in self.buckets:
            data = torch.empty(sum(math.prod(shape) for _, shape in bucket), dtype=self.dtype)
            self.group.broadcast(data, 0).wait()
            for (name, shape), full in zip(bucket, data.split([math.prod(shape) for _, shape in bucket])):
                for part, where in self.takes.get(name, ()):
                    part.copy_(full.view(shape)[where])
        came = torch.empty(1, dtype=torch.int64)
        self.group.broadcast(came, 0).wait()
        if came.item() != version:
            raise RuntimeError(f"version {came.item()} was broadcast, and this rank is at {version}")
        return int(came.item())

    def reading(self) -> "ContextManager[Any]":
        return contextlib.nullcontext()

    def __enter__(self) -> "Receiver":
        return self

    def __exit__(self, kind: Optional[type[BaseException]], exception: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.group = None

# SPDX-License-Identifier: Apache-2.0
"""A process of a rollout engine: takes the version of each batch, generates it with a KV cache, and says which version made it.

    python engine.py SETTINGS ENGINE RANK LIFE        (run.py starts it; LIFE 1 comes to a run, in the place of one that was lost)
"""
from __future__ import annotations

import datetime
import importlib
import sys
import time
from typing import Any

import channel
import engine_model
import settings as run_settings
import task
import torch
import torch.distributed as dist


@torch.no_grad()
def generate(model: engine_model.Model, asked: torch.Tensor, count: int,
             generator: torch.Generator) -> "tuple[torch.Tensor, torch.Tensor]":
    """``count`` tokens after each prompt, and the logarithm of the probability that each was drawn with. All ranks have the
    same logits; rank 0 draws."""
    cache = model.cache(len(asked), asked.shape[1] + count - 1)
    tokens, logprobs, reads = [], [], asked
    for _ in range(count):
        likely = model(reads, cache).log_softmax(-1)
        reads = torch.multinomial(likely.exp(), 1, generator=generator)
        if model.ranks.size > 1:
            dist.broadcast(reads, src=0)
        tokens.append(reads)
        logprobs.append(likely.gather(1, reads))
    return torch.cat(tokens, dim=1), torch.cat(logprobs, dim=1)


def batch(model: engine_model.Model, settings: run_settings.Settings, engine: int, step: int) -> "dict[str, torch.Tensor]":
    """This engine's share of a step's prompts, each asked ``group`` times."""
    ids = torch.arange(settings.prompts * settings.group).view(settings.prompts, settings.group)
    ids = ids[engine::settings.engines].flatten()
    asked = task.prompts(settings.seed, step, settings.prompts, settings.digits)[ids // settings.group]
    answers, logprobs = generate(model, asked, settings.digits, task.seeded(settings.seed, step, 1, engine))
    return {"ids": ids, "prompts": asked, "answers": answers, "logprobs": logprobs}


def slowest(ranks: engine_model.Ranks, *times: float) -> "list[float]":
    """The latest of each time among the engine's ranks: one host has one clock."""
    latest = torch.tensor(times, dtype=torch.float64)
    if ranks.size > 1:
        dist.all_reduce(latest, op=dist.ReduceOp.MAX)
    return latest.tolist()


def serve(settings: run_settings.Settings, engine: int, ranks: engine_model.Ranks, store: dist.Store,
          model: engine_model.Model, receiver: Any) -> None:
    version, first = 0, receiver.first()
    for step in range(first + settings.lag if first else 1, settings.steps + 1):
        times = {}
        if settings.made_by(step) != version:
            began = time.monotonic()
            version = receiver.receive(settings.made_by(step))
            times["receive_began"], times["receive_ended"] = slowest(ranks, began, time.monotonic())
        began = time.monotonic()
        with receiver.reading():
            made = batch(model, settings, engine, step)
        if ranks.rank == 0:
            made["versions"] = torch.full_like(made["ids"], version)
            times["generate_s"] = time.monotonic() - began
            channel.put(store, f"samples/{step}/{engine}", {**made, "times": times})


def main(settings_file: str, engine: int, rank: int, life: int) -> None:
    channel.die_with_parent()
    torch.set_num_threads(1)
    settings = run_settings.load(settings_file)
    store = channel.connected(settings.timeout_s)
    ranks = engine_model.Ranks(rank, settings.tp)
    if ranks.size > 1:
        dist.init_process_group("gloo", store=dist.PrefixStore(f"engine{engine}-life{life}", store), rank=rank,
                                world_size=ranks.size, timeout=datetime.timedelta(seconds=settings.timeout_s))
    model = engine_model.MODELS[settings.model](settings.config, ranks).to(getattr(torch, settings.engine_dtype))
    sync = importlib.import_module(f"sync_{settings.sync}")
    with sync.Receiver(settings, store, model, engine * settings.tp + rank) as receiver:
        serve(settings, engine, ranks, store, model, receiver)
    if ranks.size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]))

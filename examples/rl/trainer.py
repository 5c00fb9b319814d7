# SPDX-License-Identifier: Apache-2.0
"""A rank of the trainers, under torchrun: GRPO with AdamW on a small model of transformers with random weights, held by
FSDP2 or DDP over gloo.

    torchrun --nproc-per-node 2 trainer.py SETTINGS FOLDER      (run.py starts it)
"""
from __future__ import annotations

import datetime
import hashlib
import importlib
import json
import os
import pathlib
import sys
import time
from typing import Any

import channel
import settings as run_settings
import task
import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor


def build(settings: run_settings.Settings) -> torch.nn.Module:
    """The same random weights on every rank, then cut."""
    from transformers import AutoConfig, AutoModelForCausalLM
    torch.manual_seed(settings.seed)
    config = dict(settings.config)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(config.pop("model_type"), **config))
    if settings.parallel == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model)
    mesh = dist.init_device_mesh("cpu", (settings.trainers,))
    trunk = model.model.layers if settings.model == "qwen2" else model.transformer.h
    for layer in trunk:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def advantages(reward: torch.Tensor, group: int) -> torch.Tensor:
    """Each answer beside the others to its prompt: (reward - mean) / deviation."""
    grouped = reward.view(-1, group)
    spread = grouped.std(dim=1, keepdim=True, unbiased=False)
    return ((grouped - grouped.mean(dim=1, keepdim=True)) / (spread + 1e-4)).view(-1)


def loss_of(model: torch.nn.Module, samples: "dict[str, Any]", gain: torch.Tensor,
            settings: run_settings.Settings) -> torch.Tensor:
    """The clipped objective of GRPO over every token of the answers; the old probabilities are the engine's own."""
    read = torch.cat([samples["prompts"], samples["answers"][:, :-1]], dim=1)
    likely = model(input_ids=read, use_cache=False).logits[:, -settings.digits:].log_softmax(-1)
    drawn = likely.gather(2, samples["answers"][..., None]).squeeze(2)
    ratio = (drawn - samples["logprobs"]).exp()
    clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
    gained = torch.minimum(ratio * gain[:, None], clipped * gain[:, None]).mean()
    entropy = -(likely.exp() * likely).sum(-1).mean()
    return -gained - settings.entropy * entropy


class Learner:
    """The model and its optimizer; of each batch this rank has its share, whole groups."""

    def __init__(self, settings: run_settings.Settings, model: torch.nn.Module):
        self.settings, self.model = settings, model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, betas=(0.9, 0.95), weight_decay=0.01)

    def step(self, step: int, samples: "dict[str, Any]") -> "dict[str, float]":
        """One step of the optimizer; figures of all ranks."""
        reward = task.rewards(samples["prompts"], samples["answers"]).mean(dim=1)
        share = len(reward) // self.settings.trainers
        mine = slice(share * dist.get_rank(), share * (dist.get_rank() + 1))
        own = {name: samples[name][mine] for name in ("prompts", "answers", "logprobs")}
        loss = loss_of(self.model, own, advantages(reward[mine], self.settings.group), self.settings)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.learning_rate * min(1.0, step / max(1, self.settings.warmup))
        self.optimizer.step()
        self.optimizer.zero_grad()
        total = loss.detach().clone()
        dist.all_reduce(total)
        return {"reward": reward.mean().item(), "loss": total.item() / self.settings.trainers, "gradient_norm": norm.item()}


def latest(when: float) -> float:
    """Among trainers."""
    among = torch.tensor([when], dtype=torch.float64)
    dist.all_reduce(among, op=dist.ReduceOp.MAX)
    return among.item()


def synchronised(published: float, engines: "list[dict[str, float]]") -> "dict[str, Any]":
    """What the version of a batch took: from when the last trainer and the last engine had come to it, until the last
    engine had it; None where the batch was made with the version before. One host has one clock."""
    generate = max(engine["generate_s"] for engine in engines)
    if "receive_ended" not in engines[0]:
        return {"sync_s": None, "generate_s": generate}
    there = max(published, *(engine["receive_began"] for engine in engines))
    return {"sync_s": max(engine["receive_ended"] for engine in engines) - there, "generate_s": generate}


def progress(row: "dict[str, Any]", settings: run_settings.Settings) -> None:
    if row["step"] == 1 or row["step"] % 10 == 0 or row["step"] == settings.steps:
        sync = "none" if row["sync_s"] is None else f"{row['sync_s'] * 1e3:.1f} ms"  # a batch of the version before
        print(f"{settings.sync:>9}: step {row['step']:>4}/{settings.steps}  reward {row['reward']:.3f}  "
              f"sync {sync:>9}  staleness {row['staleness']}  "
              f"generate {row['generate_s']:.2f} s  train {row['train_s']:.2f} s", flush=True)


def agreed(settings: run_settings.Settings, store: dist.Store, sender: Any, step: int) -> "list[int]":
    """Whose samples of a step are learned from: the same on all trainers, as the first one finds it."""
    there = torch.zeros(settings.engines, dtype=torch.int64)
    if dist.get_rank() == 0:
        there[channel.delivering(store, step, list(range(settings.engines)), lambda: sender.absent(settings.made_by(step)),
                                 settings.timeout_s)] = 1
    dist.broadcast(there, src=0)
    if not there.any():
        raise RuntimeError(f"step {step}: no engine is left")
    return [engine for engine in range(settings.engines) if there[engine]]


def learn(settings: run_settings.Settings, store: dist.Store, learner: Learner, sender: Any, steps_file: pathlib.Path) -> None:
    published: dict[int, float] = {}  # when the last trainer began

    def publish(version: int) -> None:
        if settings.is_wanted(version):
            began = time.monotonic()
            sender.publish(version)
            published[version] = latest(began)
    publish(1)
    start = time.monotonic()
    for step in range(1, settings.steps + 1):
        engines = agreed(settings, store, sender, step)
        samples = channel.collect(store, step, engines)
        began = time.monotonic()
        figures = learner.step(step, samples)
        row = {"step": step, **figures, **synchronised(published[settings.made_by(step)], samples["engines"]),
               "engines": len(engines), "staleness": step - int(samples["versions"].min()), "train_s": time.monotonic() - began,
               "elapsed_s": began - start, "sample_versions": samples["versions"].tolist(),
               "samples": hashlib.sha256(samples["answers"].numpy().tobytes() + samples["logprobs"].numpy().tobytes()).hexdigest()}
        publish(step + 1)
        if dist.get_rank() == 0:
            for engine in engines:
                store.delete_key(f"samples/{step - 1}/{engine}")  # all ranks are past that step
            with steps_file.open("a") as file:
                file.write(json.dumps(row) + "\n")
            progress(row, settings)


@record
def main() -> None:
    channel.die_with_parent()
    torch.set_num_threads(1)
    settings, folder = run_settings.load(sys.argv[1]), pathlib.Path(sys.argv[2])
    store = channel.connected(settings.timeout_s)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=settings.timeout_s))
    model = build(settings)
    learner = Learner(settings, model)
    sync = importlib.import_module(f"sync_{settings.sync}")
    with sync.Sender(settings, store, model) as sender:
        learn(settings, store, learner, sender, folder / "steps.jsonl")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
    # fully_shard keeps the group beyond its end (torch 2.13): a thread of it that lets a tensor go while Python is being taken
    # down aborts the process
    os._exit(0)

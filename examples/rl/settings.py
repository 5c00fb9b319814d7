# SPDX-License-Identifier: Apache-2.0
"""What a run is: the same file for every process of it, so that two runs of one seed differ in how weights move alone."""
from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
from typing import Any, Optional

import task

SYNCS = ("weft", "broadcast")
TRANSPORTS = ("shm", "tcp")
PARALLELS = ("fsdp2", "ddp")
POSITIONS = 64  # of both models: a prompt and its answer

# config.json of both models; every other number is the family's own. The vocabulary is larger than the task needs, so that
# two ranks of an engine have tokens each.
MODELS: dict[str, dict[str, Any]] = {
    "qwen2": {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "torch_dtype": "float32", "vocab_size": task.VOCAB,
        "hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": POSITIONS, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
        "hidden_act": "silu", "initializer_range": 0.02, "tie_word_embeddings": False},
    "gpt2": {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "torch_dtype": "float32", "vocab_size": task.VOCAB,
        "n_embd": 256, "n_layer": 2, "n_head": 4, "n_positions": POSITIONS, "layer_norm_epsilon": 1e-5,
        "activation_function": "gelu_new", "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
        "initializer_range": 0.02, "tie_word_embeddings": True, "bos_token_id": None, "eos_token_id": None},
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """Everything but the addresses, which the launcher makes."""
    sync: str = "weft"
    model: str = "qwen2"
    parallel: str = "fsdp2"
    trainers: int = 2
    engines: int = 2
    tp: int = 2
    engine_dtype: str = "bfloat16"
    steps: int = 150
    lag: int = 0
    prompts: int = 64
    group: int = 8
    digits: int = 3
    learning_rate: float = 5e-4
    warmup: int = 5
    entropy: float = 0.05
    clip: float = 0.2
    transport: str = "shm"
    lose_engine: int = 0
    take_engine: int = 0
    bucket_mib: float = 32.0
    seed: int = 0
    timeout_s: float = 120.0

    @property
    def config(self) -> dict[str, Any]:
        """The model's config.json."""
        return MODELS[self.model]

    @property
    def train(self) -> str:
        """The trainers, as weft writes them down."""
        return f"world={self.trainers}," + (f"source=dtensor,mesh=1/{self.trainers}/1" if self.parallel == "fsdp2"
                                            else "source=gathered")

    @property
    def infer(self) -> str:
        """The engines' ranks, as weft writes them down."""
        dtype = {"bfloat16": "BF16", "float32": "F32"}[self.engine_dtype]
        return f"engines={self.engines},tp={self.tp},dtype={dtype}"

    @property
    def engine_ranks(self) -> int:
        return self.engines * self.tp

    def made_by(self, step: int) -> int:
        """The version that makes the samples of a step. Version 1 is the weights before the first step."""
        return max(1, step - self.lag)

    def is_wanted(self, version: int) -> bool:
        """Some batch is still to be made with it."""
        return version <= self.made_by(self.steps)

    def save(self, file: pathlib.Path) -> None:
        file.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n")


def load(file: "str | pathlib.Path") -> Settings:
    return Settings(**json.loads(pathlib.Path(file).read_text()))


# what --short changes: under a minute, and enough to see that both ways give the same numbers
SHORT = {"steps": 6, "prompts": 16}

HELP = {
    "model": "transformers' Qwen2 or GPT-2, with random weights", "parallel": "how the trainers hold it",
    "trainers": "ranks under torchrun", "engines": "rollout engines", "tp": "processes of one engine, 1 or 2",
    "engine_dtype": "of engines' parameters; trainers have float32", "steps": "of the optimizer",
    "lag": "steps between the version that makes samples and the one that learns from them; 0 or 1",
    "prompts": "a step", "group": "answers to a prompt, which are compared with one another", "digits": "to sort",
    "learning_rate": "of AdamW", "warmup": "steps until the learning rate is reached", "entropy": "its weight in the loss",
    "clip": "of the ratio of probabilities", "transport": "of weft; broadcast has gloo, over tcp",
    "lose_engine": "step after which a process of the last engine is killed, and the run goes on without it; 0: none",
    "take_engine": "step after which another engine is started in its place; 0: none",
    "bucket_mib": "what is broadcast at a time", "seed": "of everything",
    "timeout_s": "of any wait",
}


def parse(parser: argparse.ArgumentParser, arguments: Optional[list[str]] = None) -> "tuple[Settings, argparse.Namespace]":
    """Adds an option for each setting but sync; what was not given is the default, or with --short its smaller one."""
    choices = {"model": list(MODELS), "parallel": PARALLELS, "engine_dtype": ("bfloat16", "float32"), "lag": (0, 1), "tp": (1, 2),
               "transport": TRANSPORTS}
    for field in dataclasses.fields(Settings):
        if field.name != "sync":
            parser.add_argument("--" + field.name.replace("_", "-"), type=type(field.default), default=argparse.SUPPRESS,
                                choices=choices.get(field.name), help=f"{HELP[field.name]} ({field.default})")
    given = parser.parse_args(arguments)
    values = {field.name: getattr(given, field.name) for field in dataclasses.fields(Settings)
              if field.name != "sync" and hasattr(given, field.name)}
    settings = Settings(**{**(SHORT if given.short else {}), **values})
    problem = _problem(settings)
    if problem:
        parser.error(problem)
    return settings, given


def _problem(settings: Settings) -> str:
    for name in ("trainers", "engines", "steps", "prompts", "digits"):
        if getattr(settings, name) < 1:
            return f"--{name} {getattr(settings, name)}: give 1 or more"
    if settings.group < 2:
        return f"--group {settings.group}: an answer is compared with others to its prompt; give 2 or more"
    for name in ("trainers", "engines"):
        if settings.prompts % getattr(settings, name):
            return f"--prompts {settings.prompts} cannot be shared out evenly to {getattr(settings, name)} {name}"
    if settings.lose_engine:
        left = settings.prompts // settings.engines * (settings.engines - 1)
        if not 0 < settings.lose_engine < settings.steps:
            return f"--lose-engine {settings.lose_engine}: give a step before the last, {settings.steps}"
        if settings.engines < 2 or left % settings.trainers:
            return (f"--lose-engine: without the last of {settings.engines} engines {left} prompts a step are left, which "
                    f"{settings.trainers} trainers cannot share out evenly")
    if settings.take_engine and not 0 < settings.lose_engine <= settings.take_engine < settings.steps:
        return (f"--take-engine {settings.take_engine}: another engine comes in the place of one that was lost; give "
                f"--lose-engine, and a step from then on, before the last, {settings.steps}")
    if 2 * settings.digits > POSITIONS:
        return (f"--digits {settings.digits}: a prompt and its answer are {2 * settings.digits} tokens, and the models have "
                f"{POSITIONS} positions")
    if not 0 <= settings.seed < 1 << 62:
        return f"--seed {settings.seed}: give a number from 0 to {(1 << 62) - 1}"
    for name in ("learning_rate", "clip", "bucket_mib", "timeout_s"):
        if not 0 < getattr(settings, name) <= 1e6:
            return f"--{name.replace('_', '-')} {getattr(settings, name)}: give a number above 0, and at most a million"
    for name in ("warmup", "entropy"):
        if not 0 <= getattr(settings, name) <= 1e6:
            return f"--{name} {getattr(settings, name)}: give 0 or more, and at most a million"
    return ""

# SPDX-License-Identifier: Apache-2.0
"""The task: sort digits. A prompt is ``digits`` digits and a mark; the answer is as many tokens. Its reward can be
computed: the share of positions that hold the right digit, so a policy that does not know the task yet earns something
now and then, and one that sorts earns 1.

Everything is a function of seed and step: both ways to move weights, and every process, see the same prompts.
"""
from __future__ import annotations

import torch

MARK = 10   # what ends a prompt
VOCAB = 64  # tokens of the model: ten digits, the mark, and others that are never right


def seeded(*numbers: int) -> torch.Generator:
    """A generator of random numbers for just this purpose: nothing that another one draws, or when, changes it."""
    state = 0
    for number in numbers:
        state = (state * 1_000_003 + number + 1) % (1 << 62)
    return torch.Generator().manual_seed(state)


def prompts(seed: int, step: int, count: int, digits: int) -> torch.Tensor:
    """``count`` prompts, [count, digits + 1]."""
    drawn = torch.randint(0, 10, (count, digits), generator=seeded(seed, step, 0))
    return torch.cat([drawn, torch.full((count, 1), MARK)], dim=1)


def rewards(asked: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
    """Of each position of each answer, 1.0 where it is right. The reward of an answer is their mean.

    Args:
        asked: [n, digits + 1].
        answers: [n, digits].
    """
    right = asked[:, :-1].sort(dim=1).values
    return (answers == right).float()

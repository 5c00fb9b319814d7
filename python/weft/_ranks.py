# SPDX-License-Identifier: Apache-2.0
"""What two parallel layouts come to."""
from __future__ import annotations

from typing import NamedTuple

from weft._errors import failed, slot
from weft._library import ffi, lib
from weft._structs import encoded


class Ranks(NamedTuple):
    """How many workers a job has, by role."""
    trainers: int
    inference: int


def count_ranks(train: str, infer: str) -> Ranks:
    """How many trainers and inference ranks two specs have ("world=4,source=gathered", "engines=2,tp=2").

    Raises:
        ConfigError: a spec is wrong; the message says where.
    """
    trainers, inference = ffi.new("uint32_t *"), ffi.new("uint32_t *")
    rc = lib.weft_count_ranks(encoded(train), encoded(infer), trainers, inference, slot.error)
    if rc < 0:
        raise failed(rc, slot.error)
    return Ranks(trainers[0], inference[0])

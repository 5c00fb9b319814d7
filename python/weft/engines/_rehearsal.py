# SPDX-License-Identifier: Apache-2.0
"""An update rehearsed between two models of a probe: what it would leave wrong in the live engine.

    model A, weights of load n - 1    ─► parameters of B written over A's ─► derived anew, twice ─► is A now as B is?
    model B, weights of load n        ─► or: B's weights through the engine's own reload into A  ─► is A now as B is?
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from weft.engines._engine import Engine
from weft.engines._layout import Param
from weft.engines._marks import CHECKS
from weft.engines._state import Value, bytes_of, equal, loadable, state_of

if TYPE_CHECKING:
    from weft.engines._probe import _Reading


class Rehearsal:
    """Of what a probe has read.

    Args:
        written: what a direct update writes, by the probed model's names.
    """

    def __init__(self, engine: Engine, reading: "_Reading", written: "dict[str, Param]"):
        self.engine, self.reading, self.written = engine, reading, written
        self._noise: "set[str] | None" = None

    def stale(self) -> "tuple[str, ...]":
        """What is not right after writes into parameters, and the engine's last post-load step; computed parameters, which
        no write makes, are left out."""
        (model, context), (wanted, _) = self.reading.last
        theirs = loadable(wanted)
        with torch.no_grad():
            for name, tensor in loadable(model).items():
                if name in self.written:
                    self._write(name, tensor, theirs[name])
            try:
                for _ in range(2):  # what drifts when it is repeated shows the second time
                    self.engine.derive(model, context)
            except Exception as error:  # the engine's own code
                return (f"{self.engine.name}'s post-load work cannot be repeated: {type(error).__name__}: {error}",)
        return tuple(name for name in self._unlike(state_of(model), state_of(wanted))
                     if name not in self.reading.params or name in self.written)

    def _write(self, name: str, tensor: torch.Tensor, wanted: torch.Tensor) -> None:
        """As weft does it: bytes of tensors, and others stay."""
        kept = self.written[name].kept
        if not kept:
            tensor.copy_(wanted)
            return
        before = tensor.clone()
        tensor.copy_(wanted)
        for first, last in kept:
            bytes_of(tensor)[first:last] = bytes_of(before)[first:last]

    def reload_wrong(self) -> str:
        """What the engine's own reload leaves wrong, of the last load's weights into the model before it; twice, since an
        engine that runs is reloaded again and again."""
        (model, context), (wanted, _) = self.reading.last
        last = self.reading.marks.loads + CHECKS - 1
        try:
            with torch.no_grad():
                for load in (last - 1, last):
                    self.engine.reload(model, context, self.reading.named(load))
        except Exception as error:  # the engine's own code
            return f"{self.engine.name}'s own reload failed on marked weights: {type(error).__name__}: {error}"
        wrong = self._unlike(state_of(model), state_of(wanted))
        return f"{self.engine.name}'s own reload leaves {len(wrong)} tensors otherwise than a first load does, first {wrong[0]}" \
            if wrong else ""

    def _unlike(self, mine: "dict[str, Value]", other: "dict[str, Value]") -> "list[str]":
        """What differs, but for what differs between two models of the same weights too: memory that nobody has written."""
        found = [name for name in other if not (name in mine and equal(mine[name], other[name]))]
        if not found:
            return found
        if self._noise is None:
            again: Any = state_of(self.reading.made(self.reading.marks.loads + CHECKS - 1)[0])
            self._noise = {name for name in other if not (name in again and equal(again[name], other[name]))}
        return [name for name in found if name not in self._noise]

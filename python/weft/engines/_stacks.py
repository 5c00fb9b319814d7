# SPDX-License-Identifier: Apache-2.0
"""Layers of a model: which of them are alike, and how many have one of each kind.

    model.layers.0.mlp.gate_up_proj.weight      stack "model.layers.", layer 0
    model.layers.7.mlp.experts.3.w1.weight      stack "model.layers.", layer 7
    visual.blocks.31.attn.qkv.weight            another stack, with numbers of its own

The first number between dots is the layer's. Two layers of a stack are of one kind if they have the same parameters.
"""
from __future__ import annotations

import re
from typing import Any, Iterable, NamedTuple, Optional

_LAYER = re.compile(r"(?<=\.)(\d+)(?=\.)")


class Place(NamedTuple):
    """Where a name belongs."""
    stack: str
    layer: int
    rest: str

    def at(self, layer: int) -> str:
        """The same name of another layer."""
        return f"{self.stack}{layer}{self.rest}"


def place_of(name: str) -> Optional[Place]:
    """None: it is in no layer."""
    match = _LAYER.search(name)
    return None if match is None else Place(name[:match.start()], int(match.group()), name[match.end():])


class Stacks:
    """The layers that some parameters are in: {stack: {layer: its kind}}."""

    def __init__(self, listed: "dict[str, Any]"):
        found: dict[str, dict[int, set[Any]]] = {}
        for name, what in listed.items():
            place = place_of(name)
            if place is not None:
                found.setdefault(place.stack, {}).setdefault(place.layer, set()).add((place.rest, what))
        self.kinds = {stack: {layer: frozenset(each) for layer, each in sorted(layers.items())}
                      for stack, layers in found.items()}

    def first(self, stack: str) -> int:
        """The lowest number there; of a later pipeline stage it is not 0."""
        return min(self.kinds.get(stack, ()), default=0)

    def wanted(self) -> int:
        """How many layers, from the first on, have one of each kind of every stack."""
        wanted = 1
        for stack, layers in self.kinds.items():
            seen: set[Any] = set()
            for layer, kind in layers.items():
                if kind not in seen:
                    seen.add(kind)
                    wanted = max(wanted, layer - self.first(stack) + 1)
        return wanted

    def repeats(self, stack: str) -> bool:
        """Whether these are layers, of which a smaller model has fewer: numbered one after the other, and not each of a kind of
        its own. Other numbers tell parts of one thing apart (``projector.proj.0`` and ``.2``: what is between has no weights)."""
        layers = self.kinds.get(stack, {})
        return len(set(layers.values())) < len(layers) == max(layers) - min(layers) + 1

    def alike(self, place: Place) -> "Iterable[int]":
        """Layers of the same kind, first the lowest."""
        kinds = self.kinds.get(place.stack, {})
        return (layer for layer, kind in kinds.items() if kind == kinds.get(place.layer))


def unlike(one: "frozenset[Any]", other: "frozenset[Any]") -> str:
    """The first name that only one of two kinds has, or has otherwise."""
    return min(str(rest) for rest, _ in one ^ other)

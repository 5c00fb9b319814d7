# SPDX-License-Identifier: Apache-2.0
"""What an engine is, in its own process: versions, sizes, options, parameters, and what each of them is made of.

Two ways lead to a layout, and where both do they must agree:

    rows    Weft's own tables for the model's class, with the options that the engine's arguments and its list of parameters say
    probe   marked weights through the engine's own loader

A list of parameters cannot tell [gate, up] from [up, gate]; a probe can. Where they differ the option that agrees is looked
for, and where there is none the probe is believed, since it is the engine itself.
"""
from __future__ import annotations

import dataclasses
import re
from typing import Any, Mapping, Optional

from weft._dtypes import dtype_of
from weft._errors import ConfigError, ConflictError, Error, UnsupportedError, UsageError
from weft._structs import Tensor
from weft.engines._endpoint import LAYOUTS
from weft.engines._engine import Engine, engine_of
from weft.engines._layout import Layout, from_rows, tensors_of_folder
from weft.engines._probe import Probed, probe

_SAY = re.compile(r"; say (no )?([a-z0-9_]+)=([^ ,;\n]+)")
_OPEN = re.compile(r"ROWS|COLUMNS|\bN\b")  # of a hint that leaves the value to its reader
_ORDERS = ("expert_halves=up_gate",)  # what no list of parameters shows: tried where the probe disagrees
_HINTS_MAX = 8
_PLAIN = ("F32", "BF16", "F16")  # what no engine rewrites for its kernels under the same name, dtype and shape


@dataclasses.dataclass(frozen=True)
class Description:
    """An engine rank.

    Attributes:
        engine, version: "vllm", "0.33.0".
        rank, ranks: this process's among the engine's.
        infer: the --infer spec of one engine ("tp=4,ep=4,names=vllm"); "" where no row knows the model's class.
        model: the class's name, as config.json has it.
        params: the engine's own parameters: name, dtype, shape.
        layout: what they are made of, or None where neither way leads to one (``refusals`` says why).
        notes: what was decided and by what, a line each.
        moved: parameters that post-load work has changed, each with how.
        stale: tensors that the engine derives from its parameters and that would be wrong after a direct update.
        refusals: why weft must not write into this engine as it runs; empty where it may.
        reload_refused: why its own reload must not be used, where it was tried because writes alone are not enough.
    """
    engine: str
    version: str
    rank: int
    ranks: int
    infer: str
    model: str
    params: tuple[Tensor, ...]
    layout: Optional[Layout]
    notes: tuple[str, ...]
    moved: tuple[str, ...]
    stale: tuple[str, ...]
    refusals: tuple[str, ...]
    reload_refused: str = ""

    @property
    def computed(self) -> tuple[str, ...]:
        """What the engine computes from what it loads and no write can make right, each with why."""
        computed = () if self.layout is None else tuple(f"{param.name}: {param.computed}" for param in self.layout.params
                                                        if param.computed)
        return computed + tuple(f"{name}: derived from parameters, and not by the step that can be repeated"
                                for name in self.stale)

    def __str__(self) -> str:
        lines = [f"{self.engine} {self.version}, rank {self.rank} of {self.ranks}, {self.model}, {len(self.params)} parameters",
                 f"--infer engines=N,{self.infer}" if self.infer else "no --infer: weft has no rows for this class"]
        lines += self.notes
        lines += [f"moved after the load: {line}" for line in self.moved[:8]]
        lines += [f"no write makes {line}" for line in self.computed[:8]]
        lines += [f"refused: {line}" for line in self.refusals]
        return "\n".join(lines)


def describe(model: Any, *, config: Any = None, tensors: Optional[Mapping[str, Tensor]] = None,
             layout: str = "auto") -> Description:
    """Reads an engine in its own process. The live model is not touched.

    Args:
        model: the module that the engine runs, or the worker or model runner that has it.
        config: vLLM: its VllmConfig, where the first argument does not lead to it.
        tensors: what trainers send, by name. None: the checkpoint in the engine's folder.
        layout: "auto", "rows", "probe" or "loader" (``Endpoint``).

    Raises:
        UsageError: it is no engine that weft knows.
    """
    if layout not in LAYOUTS:
        raise UsageError(f"layout is one of {', '.join(LAYOUTS)}, not {layout!r}")
    engine = engine_of(model, config)
    return _Reading(engine, tensors, layout).description()


class _Reading:
    """One description in the making."""

    def __init__(self, engine: Engine, tensors: Optional[Mapping[str, Tensor]], way: str):
        self.engine, self.way = engine, way
        self.live = tuple(_listed(name, param) for name, param in engine.model.named_parameters())
        self.listed = self.live  # those that rows are compared with
        self.given = None if tensors is None else dict(tensors)
        self.notes: list[str] = []
        self.refusals = list(engine.refusals())
        self.infer = ""

    def description(self) -> Description:
        engine = self.engine
        probed = self._probe() if self.way != "rows" else None
        if probed is not None:  # what post-load work adds to the model is in no row
            self.listed = tuple(param for param in self.live if param.name not in probed.added)
            if probed.unwritten:
                self.notes.append(f"no load changes {len(probed.unwritten)} parameters, first {probed.unwritten[0]}: left alone")
            other = list(probed.layout.constants)
            if other:
                self.notes.append(f"{len(other)} parameters have, where no load writes, other values than a new model, first "
                                  f"{other[0]}: " + ("they get a new model's at join, since this one was loaded with dummies"
                                                     if self.engine.dummy() else "left alone"))
        rows = self._rows() if self.way != "probe" else None
        layout = self._agreed(rows, probed)
        if layout is None:
            self.refusals.append("no layout: " + ("; ".join(self.notes) or "neither rows nor probe gave one"))
        config = engine.hf_config()
        return Description(engine.name, engine.version(), engine.rank(), engine.ranks(), self.infer,
                           (config.get("architectures") or [type(engine.model).__name__])[0], self.live, layout,
                           tuple(self.notes), () if probed is None else probed.moved, () if probed is None else probed.stale,
                           tuple(self.refusals), "" if probed is None else probed.reload_refused)

    # ---- rows

    def _rows(self, *more: str) -> Optional[Layout]:
        """With each option that the comparison with the engine's own list asks for."""
        sizes = dict(self.engine.sizes())
        for option in more:
            key, _, value = option.partition("=")
            sizes[key] = value
        config = self._trained_config(sizes)
        for _ in range(_HINTS_MAX):
            infer = ",".join(f"{key}={value}" for key, value in sizes.items())
            try:
                layout = from_rows(config, infer, self.engine.place(), self.listed)
            except (ConfigError, UsageError) as error:
                said = _SAY.search(str(error))
                if said is None or _OPEN.search(said[3]) or (not said[1] and sizes.get(said[2]) == said[3]):
                    self.notes.append(f"rows: {error.text.splitlines()[0]} (with {infer})")
                    return None
                if said[1]:
                    sizes.pop(said[2], None)
                else:
                    sizes[said[2]] = said[3]
                continue
            self.infer = infer
            return layout
        self.notes.append(f"rows: no set of options agrees with the engine's parameters (last {infer})")
        return None

    def _trained_config(self, sizes: "dict[str, str]") -> "dict[str, Any]":
        """The model's config as trainers have it: in BF16 where the engine is in fp8 blocks and they send no scales."""
        config = self.engine.hf_config()
        quantised = config.get("quantization_config") or {}
        block = quantised.get("weight_block_size")
        if self.given is not None and block and not any(name.endswith("_scale_inv") for name in self.given):
            config = {key: value for key, value in config.items() if key != "quantization_config"}
            sizes["fp8"] = f"{block[0]}x{block[1]}"
            self.notes.append(f"trainers send no scales: quantised on the way, in blocks of {sizes['fp8']}")
        return config

    # ---- probe

    def _checkpoint(self) -> "dict[str, Tensor]":
        """What the engine's loader is given: the files' tensors, else what trainers send."""
        try:
            return tensors_of_folder(self.engine.folder())
        except UsageError:
            if self.given is not None:
                return dict(self.given)
            raise

    def _probe(self) -> Optional[Probed]:
        try:
            return probe(self.engine, self._checkpoint(), reload=self.way == "loader")
        except Error as error:
            self.notes.append(f"probe: {error.text}")
        except Exception as error:  # of the engine's own code, which may not run on this machine
            self.notes.append(f"probe: {self.engine.name}'s own loader failed on marked weights: {type(error).__name__}: {error}")
        if self.way == "probe":
            self.refusals.append(self.notes[-1])
        return None

    # ---- both

    def _agreed(self, rows: Optional[Layout], probed: Optional[Probed]) -> Optional[Layout]:
        if probed is None:
            return self._rows_alone(rows) if rows is not None else None
        layout = probed.layout
        if any(param.computed for param in layout.params):
            return layout
        if rows is None:
            self.notes.append(f"layout: by {_layers(probed)}")
            return layout
        differing = rows.differences(layout)
        if not differing:
            self.notes.append(f"layout: rows, and {_layers(probed)} agrees")
            return _joined(rows, layout)
        for option in _ORDERS:
            notes, infer = list(self.notes), self.infer
            other = self._rows(option)
            if other is not None and not other.differences(layout):
                self.notes.append(f"layout: rows with {option}, which {_layers(probed)} found")
                return _joined(other, layout)
            self.notes, self.infer = notes, infer
        self.notes.append(f"layout: by {_layers(probed)}; rows differ in {len(differing)} parameters, first "
                          f"{differing[0]}")
        self.infer = ""
        return layout

    def _rows_alone(self, rows: Layout) -> Optional[Layout]:
        """Halves of experts may lie either way, and what is quantised is shuffled and computed by some kernels, under the same
        names and shapes; nothing has shown how: only a user who says rows has that."""
        doubtful = next((param.name for param in rows.params
                         if "w13_weight" in param.name or dtype_of(param.dtype).name not in _PLAIN), None)
        if self.way == "rows" or doubtful is None:
            self.notes.append("layout: rows; no probe was made" if self.way == "rows" else
                              "layout: rows alone; nothing in this model can lie another way under the same names and shapes")
            return rows
        self.notes.append(f"a list of parameters cannot tell how {doubtful} lies (which half of experts is first, what a kernel "
                          "for quantised weights has made of them), and no probe could be made: say layout=rows to take it as "
                          "the rows have it, if you know that it is so")
        return None


def _listed(name: str, param: Any) -> Tensor:
    try:
        return Tensor(name, dtype_of(param.dtype).name, tuple(param.shape))
    except UsageError as error:
        raise UnsupportedError(f"the engine's parameter {name}: {error.text}") from error


def _joined(rows: Layout, probed: Layout) -> Layout:
    """Rows, and what only a probe knows of: parameters that post-load work makes of others' elements, buffers, and what in a
    parameter must stay."""
    known, seen = {param.name for param in rows.params}, {param.name: param for param in probed.params}
    params = tuple(seen[param.name] if param.name in seen and seen[param.name].kept else param for param in rows.params)
    return dataclasses.replace(rows, params=params + tuple(param for param in probed.params if param.name not in known),
                               tensors={**probed.tensors, **rows.tensors}, derived=probed.derived, constants=probed.constants)


def _layers(probed: Probed) -> str:
    return "a probe of " + (f"{probed.layers} layers" if probed.layers > 1 else "one layer")


def must(description: Description) -> Layout:
    """The layout that may be written.

    Raises:
        UnsupportedError: there is none; with why.
    """
    if description.refusals:
        raise UnsupportedError(f"{description.engine} {description.version}, rank {description.rank}: "
                               + "; ".join(description.refusals))
    if description.layout is None or description.computed:
        raise ConflictError(f"{description.engine} {description.version}, rank {description.rank}: after a load it computes "
                            f"{len(description.computed)} tensors, first {description.computed[0]}: no write makes them. "
                            "Say layout=loader: whole tensors, through the engine's own loader")
    return description.layout

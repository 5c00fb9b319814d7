# SPDX-License-Identifier: Apache-2.0
"""Routing, offline: plans, their comparison, their dumps, as ``weft route`` makes them; no GPU and no cluster.

    dump = weft.route.plan("Qwen3-30B-A3B", "world=16,source=gathered", "engines=2,tp=8,ep=8", policy="balanced")
    dump.summary["gap"], dump.save("plan.json")
    weft.route.compare("Qwen3-30B-A3B", "world=16,source=gathered", "engines=2,tp=8,ep=8").to_pandas()

Figures are in bytes and seconds; docs/routing.md says what each is.
"""
from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import tempfile
from typing import Any, Iterator, Mapping, Optional, Sequence, Union

from weft import programs
from weft._errors import Code, WaitTimeout, of_code

File = Union[str, "os.PathLike[str]"]


def _weft(*arguments: str, fine: Sequence[int] = (0,), timeout_s: float = 600.0) -> str:
    """Standard output of the program; what it says on standard error is the exception's text."""
    try:
        done = subprocess.run([programs.path("weft"), "route", *arguments], capture_output=True, text=True, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise WaitTimeout(f"weft route {arguments[0]} was not done after {timeout_s:.0f} s") from None
    if done.returncode in fine:
        return done.stdout
    said = done.stderr.strip()
    coded = re.search(r"WEFT-E(\d+)", said)
    code = int(coded.group(1)) if coded else {2: Code.USAGE, 78: Code.CONFIG}.get(done.returncode, Code.HOST)
    raise of_code(code, said or f"weft route {arguments[0]} ended with exit code {done.returncode}")


def _options(given: Mapping[str, Any]) -> list[str]:
    return [f"--{name.replace('_', '-')}={os.fspath(value) if isinstance(value, os.PathLike) else value}"
            for name, value in given.items() if value is not None]


class Table(Sequence[Mapping[str, Any]]):
    """Rows of figures, each a mapping by column."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]):
        self.rows = list(rows)

    @property
    def columns(self) -> list[str]:
        """In the order in which rows name them."""
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def to_pandas(self) -> Any:
        """A data frame, a column a figure; pandas must be there."""
        try:
            import pandas
        except ImportError:
            raise ImportError("weft.route: to_pandas needs pandas (pip install pandas); rows are here without it") from None
        return pandas.DataFrame(self.rows, columns=self.columns)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self.rows)

    def __repr__(self) -> str:
        return f"weft.route.Table({len(self.rows)} rows of {', '.join(self.columns)})"


class Dump:
    """A routing dump (schema weft.routing/1).

    Attributes:
        json: all of it, as the schema has it.
    """

    def __init__(self, json: Mapping[str, Any]):
        self.json = json

    @classmethod
    def load(cls, file: File) -> "Dump":
        """A dump's file, as a controller writes it (``Controller(dump=..)``)."""
        return cls(json.loads(pathlib.Path(file).read_text()))

    def save(self, file: File) -> None:
        """Writes the file, whole or not at all."""
        target = pathlib.Path(file)
        part = target.with_name(f".{target.name}.{os.getpid()}")
        part.write_text(json.dumps(self.json) + "\n")
        part.replace(target)

    @property
    def digest(self) -> str:
        """Of the table: 32 hex digits; equal tables have equal ones."""
        return str(self.json["digest"])

    @property
    def summary(self) -> Mapping[str, Any]:
        """bytes_total, makespan_bytes, lower_bound_bytes, gap, imbalance, .."""
        found: Mapping[str, Any] = self.json["summary"]
        return found

    @property
    def routes(self) -> Table:
        """Who sends which part of which tensor to whom."""
        if "routes" not in self.json:
            raise LookupError("this dump has no routes: it was made with summary=True")
        return Table(self.json["routes"])

    def verify(self, model: Optional[File] = None) -> str:
        """Proves it against the model, byte by byte; what the program says. Error: it is wrong, and where."""
        with tempfile.TemporaryDirectory(prefix="route-") as folder:
            file = pathlib.Path(folder) / "dump.json"
            self.save(file)
            return _weft("verify", *_options({"model": model}), str(file))

    def diff(self, other: "Dump", *, top: int = 10) -> Mapping[str, Any]:
        """What another plan of the same job changes: moved bytes, trainers, tensors, figures."""
        with tempfile.TemporaryDirectory(prefix="route-") as folder:
            files = [pathlib.Path(folder) / name for name in ("a.json", "b.json")]
            for dump, file in zip((self, other), files):
                dump.save(file)
            found: Mapping[str, Any] = json.loads(_weft("diff", "--json", f"--top={top}", *map(str, files), fine=(0, 1)))
            return found

    def __repr__(self) -> str:
        return f"weft.route.Dump({self.json['model']!r}, {self.json['policy']}, digest {self.digest})"


def plan(model: File, train: str, infer: str, *, policy: Optional[str] = None, order: Optional[str] = None,
         topology: Optional[File] = None, transport: Optional[str] = None, memory: Optional[str] = None,
         sessions_max: Optional[int] = None, family: Optional[str] = None, summary: bool = False) -> Dump:
    """Plans who sends which bytes to whom, and proves it; a live controller makes the same plan.

    Args:
        model: a built-in name, a folder, config.json or layout file.
        train, infer: the parallel layouts.
        policy: "greedy" (default), "round-robin", "balanced", .. (``weft route plan --help`` has them).
        order: "rotated" (default), "table", "rounds".
        topology: "flat" (default), a spec ("per_host=8,nics=8,gbps=400") or a file (docs/topology.md).
        transport: the job's list.
        memory: "mapped" (default), "process" or "landed": of the engine.
        sessions_max: inference ranks for one trainer, for policies that can limit it.
        family: the model_type that an unknown class is read as.
        summary: leave the routes out.

    Raises:
        ConfigError, UsageError, Error: with the program's words.
    """
    options = _options({"model": model, "train": train, "infer": infer, "policy": policy, "order": order, "topology": topology,
                        "transport": transport, "memory": memory, "sessions_max": sessions_max, "as": family})
    return Dump(json.loads(_weft("plan", "--json", *(["--summary"] if summary else []), *options)))


def compare(model: File, train: str, infer: str, *, simulate: bool = False, order: Optional[str] = None,
            topology: Optional[File] = None, memory: Optional[str] = None, sessions_max: Optional[int] = None,
            family: Optional[str] = None) -> Table:
    """All policies on one input, a row each; with ``simulate`` seconds of an update in each order, too."""
    options = _options({"model": model, "train": train, "infer": infer, "order": order, "topology": topology, "memory": memory,
                        "sessions_max": sessions_max, "as": family})
    said = _weft("compare", "--json", *(["--simulate"] if simulate else []), *options)
    return Table([json.loads(line) for line in said.splitlines()])

# SPDX-License-Identifier: Apache-2.0
"""Reward, sync seconds and staleness of runs as a PNG.

    python plot.py OUT.png FOLDER...      (each FOLDER has a steps.jsonl)
"""
from __future__ import annotations

import json
import pathlib
import statistics
import sys
from typing import Any

Rows = list[dict[str, Any]]


def read(folder: pathlib.Path) -> Rows:
    return [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]


def draw(runs: "dict[str, Rows]", file: pathlib.Path) -> None:
    """A line for each run, by its name; dashes show those that lie under another."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure, (reward, sync, staleness) = pyplot.subplots(3, 1, figsize=(8, 9), sharex=True, height_ratios=(3, 3, 1),
                                                        layout="constrained")
    for i, (name, rows) in enumerate(runs.items()):
        steps, style = [row["step"] for row in rows], {"linestyle": ("-", (0, (3, 3)))[i % 2], "color": f"C{i}"}
        reward.plot(steps, [row["reward"] for row in rows], label=name, **style)
        came = [(row["step"], row["sync_s"] * 1e3) for row in rows if row["sync_s"] is not None]
        median = statistics.median(taken for _, taken in came)
        sync.plot(*zip(*came), label=f"{name}: median {median:.1f} ms", color=f"C{i}")
        staleness.plot(steps, [row["staleness"] for row in rows], label=name, **style)
    reward.axhline(0.8, color="grey", linewidth=0.8, label="0.8")
    reward.set(ylabel="reward (1: all right)", ylim=(0, 1.02))
    sync.set(ylabel="sync, ms", yscale="log")
    sync.yaxis.set_major_formatter("{x:g}")
    sync.yaxis.set_minor_formatter("{x:g}")
    staleness.set(ylabel="staleness,\nversions", xlabel="step", ylim=(-0.2, 2.2), yticks=(0, 1, 2))
    for axes in (reward, sync):
        axes.legend()
    for axes in (reward, sync, staleness):
        axes.grid(alpha=0.3)
    figure.savefig(file, dpi=110)
    pyplot.close(figure)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    draw({folder: read(pathlib.Path(folder)) for folder in sys.argv[2:]}, pathlib.Path(sys.argv[1]))

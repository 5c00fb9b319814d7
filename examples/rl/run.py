# SPDX-License-Identifier: Apache-2.0
"""Reinforcement learning of a small model that sorts digits: trainers under torchrun, rollout engines of their own, weights
between them by weft or by torch.distributed's broadcast.

    python run.py                          weft, about a minute on 2 cores
    python run.py --sync broadcast         the same numbers
    python run.py --sync both              both, one after the other, and compares them
    python run.py --short                  both in six steps, for CI
    python run.py --lose-engine 50         a process of one engine is killed after step 50, and the run goes on
    python run.py --lose-engine 50 --take-engine 60     and after step 60 another one is started in its place
"""
from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import pathlib
import signal
import statistics
import sys
import time

import all_there  # noqa: F401
import channel
import plot
import settings as run_settings
from jobs import Failed, Jobs

import weft

HERE = pathlib.Path(__file__).resolve().parent
SAME = ("reward", "loss", "gradient_norm", "samples", "sample_versions", "staleness")  # of rows, to the last bit


def run(settings: run_settings.Settings, folder: pathlib.Path) -> plot.Rows:
    """One run: its rows, which folder/steps.jsonl has too."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in ("steps.jsonl", "routing.json"):
        (folder / old).unlink(missing_ok=True)
    file = folder / "settings.json"
    settings.save(file)
    store, address = channel.served(settings.timeout_s)
    env = {channel.STORE: address, channel.LAUNCHER: str(os.getpid()), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1",
           "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo")}
    with contextlib.ExitStack() as stack:
        if settings.sync == "weft":
            controller = stack.enter_context(weft.Controller(settings.train, settings.infer, dump=folder / "routing.json",
                                                             on_loss="continue" if settings.lose_engine else None,
                                                             join_timeout_s=settings.timeout_s))
            env["WEFT_CONTROLLER"] = controller.address
        jobs = stack.enter_context(Jobs(folder))

        def start_engine(engine: int, life: int = 0) -> None:
            for rank in range(settings.tp):
                jobs.start(f"engine{engine}-rank{rank}" + (f"-life{life}" if life else ""),
                           [sys.executable, str(HERE / "engine.py"), str(file), str(engine), str(rank), str(life)], env)

        def take_engine() -> None:
            print(f"another engine {settings.engines - 1} is started", flush=True)
            start_engine(settings.engines - 1, 1)
        for engine in range(settings.engines):
            start_engine(engine)
        jobs.start("trainers", [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
                                str(settings.trainers), str(HERE / "trainer.py"), str(file), str(folder)], env)
        if settings.lose_engine:
            jobs.plan(lambda: steps_done(folder) >= settings.lose_engine, lambda: jobs.lose(f"engine{settings.engines - 1}-"))
        if settings.take_engine:
            jobs.plan(lambda: steps_done(folder) >= settings.take_engine, take_engine)
        jobs.wait()
    del store
    return plot.read(folder)


def steps_done(folder: pathlib.Path) -> int:
    file = folder / "steps.jsonl"
    return len(file.read_text().splitlines()) if file.exists() else 0


def sync_ms(rows: plot.Rows) -> float:
    """Median, of the steps before which a version came."""
    return statistics.median(row["sync_s"] for row in rows if row["sync_s"] is not None) * 1e3


def summary(rows: plot.Rows) -> str:
    last = rows[-10:]
    reward = sum(row["reward"] for row in last) / len(last)
    return (f"reward {rows[0]['reward']:.3f} at first, {reward:.3f} in the last {len(last)} steps; "
            f"sync {sync_ms(rows):.1f} ms (median)")


def differing(runs: "dict[str, plot.Rows]") -> str:
    """The first figure that is not the same number in both runs; "" where all are."""
    (one, mine), (other, theirs) = runs.items()
    for a, b in zip(mine, theirs):
        for name in SAME:
            if a[name] != b[name]:
                return f"step {a['step']}: {name} is {a[name]} by {one}, and {b[name]} by {other}"
    return "" if len(mine) == len(theirs) else f"{one} has {len(mine)} steps, and {other} {len(theirs)}"


def compared(runs: "dict[str, plot.Rows]") -> int:
    difference = differing(runs)
    if difference:
        print(f"run.py: the ways differ: {difference}", file=sys.stderr)
        return 1
    print(f"the same numbers in all {len(runs['weft'])} steps; sync by weft is "
          f"{sync_ms(runs['broadcast']) / sync_ms(runs['weft']):.1f} times faster")
    return 0


def stop(number: int, frame: object) -> None:
    """What was started is ended on the way out."""
    print(f"run.py: ended by {signal.Signals(number).name}", file=sys.stderr)
    sys.exit(128 + number)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sync", choices=(*run_settings.SYNCS, "both"), help="how weights move (weft; with --short both)")
    parser.add_argument("--short", action="store_true", help="few steps, both ways, compared")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("rl-out"), help="folder for all that is written")
    settings, given = run_settings.parse(parser)
    sync = given.sync or ("both" if given.short else "weft")
    if settings.lose_engine and sync != "weft":
        parser.error("--lose-engine needs --sync weft: a broadcast to a process that is gone ends for all")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    runs: dict[str, plot.Rows] = {}
    for name in run_settings.SYNCS if sync == "both" else (sync,):
        began = time.monotonic()
        try:
            runs[name] = run(dataclasses.replace(settings, sync=name), given.out / name)
        except (Failed, weft.Error, OSError) as error:
            print(f"run.py: the run by {name} failed after {time.monotonic() - began:.1f} s\n{error}", file=sys.stderr)
            return 1
        print(f"{name:>9}: {summary(runs[name])}; {time.monotonic() - began:.0f} s in all", flush=True)
    picture = given.out / "rl.png"
    plot.draw(runs, picture)
    code = compared(runs) if len(runs) == 2 else 0
    print(f"{picture}, {', '.join(str(given.out / name / 'steps.jsonl') for name in runs)}")
    return code


if __name__ == "__main__":
    sys.exit(main())

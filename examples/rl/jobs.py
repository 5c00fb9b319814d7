# SPDX-License-Identifier: Apache-2.0
"""The processes of a run: started together, ended together. The first that fails ends all, within seconds, with what it said."""
from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import time
from types import TracebackType
from typing import Callable, Optional

POLL_S = 0.05
GRACE_S = 3.0    # for others to say what they saw, when one has failed
STOP_S = 10.0    # for torchrun to end its workers, before it is killed
LINES = 10       # of a log that are shown


class Failed(RuntimeError):
    """The run ended with an error of one of its processes."""


class Jobs:
    """``with Jobs(folder) as jobs: jobs.start(..); jobs.wait()``. None of the processes outlives the statement."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.spared: list[str] = []  # whose end ends nobody else
        self.plans: "list[tuple[Callable[[], bool], Callable[[], None]]]" = []

    def log(self, name: str) -> pathlib.Path:
        return self.folder / f"{name}.log"

    def start(self, name: str, command: "list[str]", env: "dict[str, str]") -> None:
        """Its standard output is ours, its standard error a log. A session of its own: Ctrl-C is for us, who end it."""
        with self.log(name).open("wb") as log:
            self.processes[name] = subprocess.Popen(command, env={**os.environ, **env}, stdin=subprocess.DEVNULL,
                                                    stderr=log, start_new_session=True)

    def plan(self, due: "Callable[[], bool]", action: "Callable[[], None]") -> None:
        """While we wait: what is done once, when it is due; in the order in which it was planned."""
        self.plans.append((due, action))

    def lose(self, prefix: str) -> None:
        """The last process of that name is killed, and those of that name may fail from then on."""
        self.spared = [name for name in self.processes if name.startswith(prefix)]
        print(f"{self.spared[-1]} is killed; the run goes on without {', '.join(self.spared)}", flush=True)
        self.processes[self.spared[-1]].kill()

    def wait(self) -> None:
        """Until all have ended well.

        Raises:
            Failed: one has not; with the end of its log, and in a line what became of the others.
        """
        while True:
            codes = {name: process.poll() for name, process in self.processes.items()}
            failed = [name for name, code in codes.items() if code and name not in self.spared]
            if failed:
                raise Failed(self._account(failed[0]))
            if all(code is not None for code in codes.values()):
                return
            if self.plans and self.plans[0][0]():
                self.plans.pop(0)[1]()
            time.sleep(POLL_S)

    def _account(self, first: str) -> str:
        deadline = time.monotonic() + GRACE_S
        while time.monotonic() < deadline and any(process.poll() is None for process in self.processes.values()):
            time.sleep(POLL_S)
        codes = {name: process.poll() or 0 for name, process in self.processes.items()}
        killed = [name for name, code in codes.items() if code < 0]  # who was killed is shown before who noticed, and those alone
        others = ("trainers",) if killed else codes                   # but for torchrun, which says which rank it was
        shown = list(dict.fromkeys([*killed, first, *(name for name in others if codes[name])]))
        lines = []
        for name in shown:
            said = self.log(name).read_text(errors="replace").splitlines()[-LINES:]
            lines += [f"{name} {self._end(name)}; {self.log(name)} ends with:", *("    " + line for line in said or ["(nothing)"])]
        rest = [f"{name} {self._end(name)}" for name in self.processes if name not in shown]
        return "\n".join([*lines, *(["the others: " + ", ".join(rest)] if rest else [])])

    def _end(self, name: str) -> str:
        code = self.processes[name].poll()
        if code is None:
            return f"still ran {GRACE_S:.0f} s later, and was ended"
        return f"ended with exit code {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"

    def __enter__(self) -> "Jobs":
        return self

    def __exit__(self, kind: Optional[type[BaseException]], exception: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        running = [process for process in self.processes.values() if process.poll() is None]
        for process in running:
            process.send_signal(signal.SIGTERM)  # torchrun ends its workers
        deadline = time.monotonic() + STOP_S
        for process in running:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()  # and its workers die with their parent
                process.wait()

# SPDX-License-Identifier: Apache-2.0
"""The controller as a process of this program."""
from __future__ import annotations

import collections
import logging
import os
import pathlib
import re
import signal
import stat
import subprocess
import tempfile
import threading
import time
from types import TracebackType
from typing import Any, Optional

from weft import _waits, programs
from weft._errors import Code, ConfigError, Error, UsageError, WaitTimeout, of_code
from weft._launch import Launch

logger = logging.getLogger("weft.controller")

# as base/log.h makes them: TIME LEVEL PROGRAM[HOST:PID] TEXT
_LINE = re.compile(r"\S+Z ([EWID]) weft-controller\[[^\]]*\] (.*)")
_LEVELS = {"E": logging.ERROR, "W": logging.WARNING, "I": logging.INFO, "D": logging.DEBUG}
_CODE = re.compile(r"WEFT-E(\d+):? (.*)")
_OF_EXIT = {2: Code.USAGE, 75: Code.TIMEOUT, 78: Code.CONFIG}
_START_S = 30.0


class Controller:
    """Starts weft-controller, which gathers the workers of one job, routes and watches.

    ::

        with weft.Controller(train="world=2,source=gathered", infer="engines=1,tp=2") as controller:
            start_workers(controller.address)

    In a ``with`` statement it is waited for at the end: it ends by itself when all workers have left. Where an exception
    passes it is stopped, and tells the workers. It never outlives this process. Its log lines are those of the logger
    "weft.controller".

    Args:
        train: the trainers, "world=4,source=gathered" (all sources: docs/sources.md).
        infer: the inference ranks, "engines=2,tp=2" (all keys: docs/models.md).
        bind: where to listen; port 0 lets the system choose. None: a free port of this host's loopback. An address that
            other hosts reach needs a key (or insecure=True).
        key_file: the job's key, made by ``weft key make``. None: what WEFT_KEY_FILE names.
        insecure: listen to other hosts without a key.
        job: the job's name.
        policy: who sends what: "greedy" (default), "balanced", .. (``weft route plan --help``).
        order: in which order each trainer sends: "rotated" (default), "table", "rounds".
        commit: which inference ranks show a version together: "engine" (default), those of one engine; "job", all of them;
            "rank", each by itself (docs/versions.md).
        on_loss: what the loss of a worker means: "end" (default), the job fails; "continue", an inference rank takes its engine
            out, a trainer is gone on without or replaced (docs/living.md).
        on_miss: what an engine does of which a rank makes no version of what came (checksum, post-load hook): "stay" (default), it
            shows what it has and takes the next one; "leave", as if it was lost; needs on_loss="continue" (docs/living.md).
        engines_min: with so many engines the job begins, and the others come in later; None: it waits for all. Needs
            on_loss="continue" (docs/living.md).
        catch_up_from: who sends the last version to an engine that lacks it while trainers have nothing new: "engines" (default),
            those that show it, where they can; "trainers" (docs/living.md).
        delta: trainers keep what they sent last and send what differs from it, over networks; turns checksums on (docs/delta.md).
        hedge_s: a trainer that is so much later than another one that holds the same is not waited for alone: that one sends its
            pieces too; turns checksums on; None: it is waited for (docs/living.md).
        orphan_s: how long updates go on when the controller is lost; None: the job ends then (docs/living.md).
        topology: "flat" (default), "workers", a spec or a file (docs/topology.md).
        dump: file for the routing table, once it is planned.
        restarts: how often the job may gather again after a loss.
        metrics, metrics_file: where figures for Prometheus are served and written, as a worker's (docs/metrics.md).
        trace: a file of when it did what, as a worker's (docs/traces.md).
        sessions_max: inference ranks that one trainer may write to, for policies that can limit it.
        join_timeout_s, exchange_timeout_s, update_timeout_s, heartbeat_s, lost_after_s: as the program's options.

    Attributes:
        address: for the workers: "tcp://127.0.0.1:41234".
        pid: of the process.

    Raises:
        ConfigError, UsageError, Error: it ended at once; with its own words.
    """

    def __init__(self, train: str, infer: str, *, bind: Optional[str] = None,
                 key_file: "Optional[str | os.PathLike[str]]" = None, insecure: bool = False, job: Optional[str] = None,
                 policy: Optional[str] = None, order: Optional[str] = None, commit: Optional[str] = None,
                 on_loss: Optional[str] = None, on_miss: Optional[str] = None, engines_min: Optional[int] = None,
                 catch_up_from: Optional[str] = None, delta: bool = False, hedge_s: Optional[float] = None,
                 orphan_s: Optional[float] = None,
                 topology: Optional[str] = None, dump: "Optional[str | os.PathLike[str]]" = None, restarts: Optional[int] = None,
                 sessions_max: Optional[int] = None, metrics: Optional[str] = None,
                 metrics_file: "Optional[str | os.PathLike[str]]" = None,
                 trace: "Optional[str | os.PathLike[str]]" = None, join_timeout_s: Optional[float] = None,
                 exchange_timeout_s: Optional[float] = None, update_timeout_s: Optional[float] = None,
                 heartbeat_s: Optional[float] = None, lost_after_s: Optional[float] = None, _remove_key: bool = False):
        self._stopped = False
        self._said: collections.deque[str] = collections.deque(maxlen=50)
        bind = bind or "tcp://127.0.0.1:0"
        given: dict[str, Any] = {
            "train": train, "infer": infer, "bind": bind, "key": key_file, "job": job, "policy": policy, "order": order,
            "commit": commit, "on-loss": on_loss, "on-miss": on_miss, "engines-min": engines_min,
            "catch-up-from": catch_up_from, "hedge": _time(hedge_s), "orphan": _time(orphan_s), "topology": topology, "dump": dump,
            "restarts": restarts, "sessions-max": sessions_max, "metrics": metrics, "metrics-file": metrics_file, "trace": trace,
            "join-timeout": _time(join_timeout_s), "exchange-timeout": _time(exchange_timeout_s),
            "update-timeout": _time(update_timeout_s), "heartbeat": _time(heartbeat_s), "lost-after": _time(lost_after_s)}
        arguments = [f"--{name}={os.fspath(value) if isinstance(value, os.PathLike) else value}"
                     for name, value in given.items() if value is not None]
        if insecure:
            arguments.append("--insecure")
        if delta:
            arguments.append("--delta")
        if _remove_key:
            arguments.append("--remove-key")
        with tempfile.TemporaryDirectory(prefix="controller-") as folder:
            self._start(arguments, pathlib.Path(folder) / "port", bind)

    @classmethod
    def of_launch(cls, launch: Launch, train: str, infer: str, **options: Any) -> "Optional[Controller]":
        """The controller that a launcher's rank 0 starts with WEFT_CONTROLLER=auto; None for everybody else. It listens on all
        addresses, at the port of ``launch.controller``. On one host without a key of the user's it makes the one that the others
        wait for, and removes it at its end (docs/trust.md).

        Raises:
            ConfigError: the folder for that key is not this user's alone; as Controller.
        """
        if not launch.starts_controller:
            return None
        options.setdefault("bind", f"tcp://*:{launch.controller.rpartition(':')[2]}")
        if "key_file" not in options and launch.key_file:
            options["key_file"] = launch.key_file
            if launch.key_waits:
                _make_key(pathlib.Path(launch.key_file))
                options["_remove_key"] = True
        return cls(train, infer, **options)

    def _start(self, arguments: list[str], port_file: pathlib.Path, bind: str) -> None:
        # its lines are read here, whatever form others want them in
        env = {**os.environ, "WEFT_LOG": os.environ.get("WEFT_LOG") or _wanted(), "WEFT_LOG_FORMAT": "text"}
        command = [programs.path("weft-controller"), "--die-with-parent", f"--port-file={port_file}", *arguments]
        self._process: subprocess.Popen[str] = _waits.of_a_lasting_thread(lambda: subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            errors="replace", start_new_session=True))  # Ctrl-C is for us, and we stop it
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._hand_on, name="weft-controller", daemon=True)
        self._reader.start()
        try:
            self.address = self._heard(port_file, bind)
        except BaseException:
            self.stop(timeout_s=1.0)
            raise

    def _heard(self, port_file: pathlib.Path, bind: str) -> str:
        deadline = time.monotonic() + _START_S
        while True:
            if port_file.exists() and port_file.read_text().strip():
                port = port_file.read_text().strip()
                host = bind.rpartition(":")[0]
                for everywhere in ("*", "[::]", "0.0.0.0"):
                    host = host.replace(everywhere, "127.0.0.1")
                return f"{host}:{port}"
            if self._process.poll() is not None:
                raise self._failure()
            if time.monotonic() > deadline:
                raise WaitTimeout(f"weft-controller (pid {self.pid}) has not begun to listen within {_START_S:.0f} s; it said: "
                                  + " | ".join(self._said))
            time.sleep(0.002)

    def _hand_on(self) -> None:
        assert self._process.stderr
        for line in self._process.stderr:
            line = line.rstrip("\n")
            self._said.append(line)
            match = _LINE.match(line)
            level, said = (_LEVELS[match.group(1)], match.group(2)) if match else (logging.WARNING, line)
            logger.log(level, "%s", said)

    def _failure(self) -> Error:
        """Why the process ended, by its own words."""
        self._reader.join(5.0)
        code = self._process.returncode
        coded = [match for match in map(_CODE.search, self._said) if match]
        if coded:
            return of_code(int(coded[-1].group(1)), f"weft-controller: {coded[-1].group(2)}")
        words = " | ".join(list(self._said)[-3:]) or "nothing"
        return of_code(_OF_EXIT.get(code, Code.INTERNAL), f"weft-controller ended with exit code {code}; it said: {words}")

    def __repr__(self) -> str:
        code = self._process.poll()
        return f"weft.Controller({self.address!r}, {'running' if code is None else f'exit code {code}'})"

    @property
    def exit_code(self) -> Optional[int]:
        """None while it runs. 0: all workers left with their work done."""
        return self._process.poll()

    def wait(self, timeout_s: Optional[float] = None) -> None:
        """Waits until it ends, which it does when all workers have left.

        Raises:
            Error: the job failed; with the controller's words. WaitTimeout: it still runs.
        """
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise WaitTimeout(f"weft-controller (pid {self.pid}) still runs after {timeout_s} s: workers of the job have not "
                              "left") from None
        if code:
            raise self._failure()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Ends the job, if it runs: SIGTERM, and after ``timeout_s`` SIGKILL. A ``with`` statement then just ends."""
        self._stopped = True
        if timeout_s <= 0:
            raise UsageError(f"timeout_s is {timeout_s!r}: give seconds above 0")
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._reader.join(5.0)

    def end(self, grace_s: float) -> None:
        """Waits so long for workers to leave, and then stops it: for who is done, and not answerable for those that stay."""
        try:
            self.wait(grace_s)
        except Error:  # the job failed, which its workers said; or somebody stays
            self.stop()

    def __enter__(self) -> "Controller":
        return self

    def __exit__(self, kind: Optional[type[BaseException]], exception: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if exception is not None:
            self.stop()
            return
        if self._stopped:
            return
        try:
            self.wait()
        except BaseException:
            self.stop()
            raise


def _make_key(file: pathlib.Path) -> None:
    """As rank 0 of weft-worker makes it: whole, or not there, in a folder where nobody else may have put one."""
    folder = file.parent
    folder.mkdir(mode=0o700, exist_ok=True)
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o077:
        raise ConfigError(f"{folder}, where the key of WEFT_CONTROLLER=auto goes, is not a folder of this user alone (owner "
                          f"{about.st_uid}, mode {about.st_mode & 0o777:03o}): remove it, or give WEFT_KEY_FILE")
    fresh = file.with_name(file.name + ".new")
    fresh.unlink(missing_ok=True)
    made = subprocess.run([programs.path("weft"), "key", "make", "--quiet", str(fresh)], capture_output=True, text=True,
                          timeout=_START_S)
    if made.returncode:
        raise of_code(Code.IO, f"the job's key: {made.stderr.strip()}")
    fresh.replace(file)


def _time(seconds: Optional[float]) -> Optional[str]:
    return None if seconds is None else f"{round(seconds * 1000)}ms"


def _wanted() -> str:
    names = ((logging.DEBUG, "debug"), (logging.INFO, "info"), (logging.WARNING, "warn"))
    return next((name for level, name in names if logger.isEnabledFor(level)), "error")

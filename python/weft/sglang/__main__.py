# SPDX-License-Identifier: Apache-2.0
"""`python -m weft.sglang`: what SGLang would find of Weft here, and which way an update would go.

    python -m weft.sglang                        says it; 0: ready, 1: not
    python -m weft.sglang launch_server ARGS     sglang.launch_server for releases without plug-ins (before 0.5.10): the same
                                                 hooks, set in each scheduler process as it starts"""
from __future__ import annotations

import importlib
import importlib.util
import os
import runpy
import sys
from typing import Any

from weft import __version__


def _entry_points() -> list[str]:
    from importlib.metadata import entry_points

    found: Any = entry_points()
    group = found.select(group="sglang.srt.plugins") if hasattr(found, "select") else found.get("sglang.srt.plugins", ())
    return [point.value for point in group if point.name == "weft"]


def _there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def report() -> tuple[bool, list[str]]:
    """(ready, lines)."""
    lines = [f"weft {__version__}"]
    if not _there("sglang"):
        return False, [*lines, "sglang: not installed in this environment"]
    try:
        lines.append(f"sglang {importlib.import_module('sglang.version').__version__}")
    except Exception as error:  # SGLang itself does not import here
        return False, [*lines, f"sglang: does not import: {type(error).__name__}: {error}"]
    if not _there("sglang.srt.plugins"):
        lines.append("plug-ins: this release has none; start servers by: python -m weft.sglang launch_server ..")
        return True, lines
    found = _entry_points()
    lines.append("entry point weft of sglang.srt.plugins: "
                 + (", ".join(found) or "MISSING; is weft installed, and not only on PYTHONPATH?"))
    allowed = os.environ.get("SGLANG_PLUGINS", "")
    filtered = bool(allowed) and "weft" not in [one.strip() for one in allowed.split(",")]
    lines.append(f"SGLANG_PLUGINS={allowed!r}: "
                 + (f"LEAVES weft OUT; set SGLANG_PLUGINS={allowed},weft" if filtered else "weft is let in"))
    from weft.sglang._hooks import manager_target

    lines.append(f"way: hooks on {manager_target()}, for requests with backend 'weft'")
    if _there("sglang.srt.weight_sync.external_receiver"):
        lines.append("also: --weight-update-receivers weft.sglang.receiver, where hooks are not wanted")
    return bool(found) and not filtered, lines


def run_scheduler(*arguments: Any, **named: Any) -> Any:
    """What a scheduler process of an older release runs: it is spawned, and finds nothing of its parent's hooks."""
    from sglang.srt.managers import scheduler  # type: ignore[import-not-found, unused-ignore]

    from weft.sglang._hooks import install

    install()
    return scheduler.run_scheduler_process(*arguments, **named)


def launch_server(arguments: list[str]) -> None:
    if _there("sglang.srt.plugins"):
        print("weft: this SGLang has plug-ins, `python -m sglang.launch_server` is enough", file=sys.stderr)
    else:
        from sglang.srt.entrypoints import engine, http_server

        from weft.sglang.__main__ import run_scheduler as spawned  # not this module's own: it is "__main__" to a spawned process
        from weft.sglang._hooks import install

        install()
        for module in (engine, http_server):
            vars(module)["run_scheduler_process"] = spawned
        engine.Engine.run_scheduler_process_func = staticmethod(spawned)
        launch = http_server.launch_server
        if launch.__defaults__:
            launch.__defaults__ = tuple(spawned if getattr(one, "__name__", "") == "run_scheduler_process" else one
                                        for one in launch.__defaults__)
    sys.argv = ["sglang.launch_server", *arguments]
    runpy.run_module("sglang.launch_server", run_name="__main__", alter_sys=True)


def main() -> int:
    if sys.argv[1:2] == ["launch_server"]:
        launch_server(sys.argv[2:])
        return 0
    if sys.argv[1:]:
        print(__doc__, file=sys.stderr)
        return 2
    ready, lines = report()
    print("\n".join(lines))
    return 0 if ready else 1


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""``python -m weft.vllm``: whether this environment's vLLM finds Weft, and which way it would be used."""
from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
from typing import Any

from weft.vllm._generation import BACKEND, Generation, generation, release

GROUP = "vllm.general_plugins"


def _entry_point() -> Any:
    found: Any = importlib.metadata.entry_points()
    group = found.select(group=GROUP) if hasattr(found, "select") else found.get(GROUP, [])  # Python 3.9 has a dict
    return next((point for point in group if point.name == BACKEND), None)


def _filtered() -> "tuple[bool, str]":
    given = os.environ.get("VLLM_PLUGINS")
    if given is None:
        return False, "not set: all plug-ins are loaded"
    names = given.split(",")
    if BACKEND in names:
        return False, f"{given!r}, which has {BACKEND!r}"
    if BACKEND in (name.strip() for name in names):
        return True, f"{given!r} leaves it out, since vLLM keeps blanks: set it to {','.join(name.strip() for name in names)!r}"
    return True, f"{given!r} leaves it out: add {BACKEND!r}"


def report() -> "tuple[list[tuple[str, str]], bool]":
    """Lines, and whether an update could come this way."""
    number = release()
    if number is None:
        return [("vLLM", "not installed in this environment: " + sys.executable)], False
    lines, good = [("vLLM", number)], True
    point = _entry_point()
    if point is None:
        lines.append(("plug-in", f"no entry point {GROUP}: {BACKEND}; install the weft package itself, a PYTHONPATH is not enough"))
        good = False
    else:
        lines.append(("plug-in", f"{GROUP}: {point.name} = {point.value}"))
    filtered, said = _filtered()
    lines.append(("VLLM_PLUGINS", said))
    try:
        found = generation()
    except Exception as error:  # vLLM itself does not import here
        return [*lines, ("interface", f"vLLM does not import: {type(error).__name__}: {error}")], False
    lines.append(("interface", str(found)))
    if not found.plugin:
        return [*lines, ("use", "--worker-extension-cls weft.vllm.WorkerExtension")], True
    registered, said = _registered(found)
    lines.append(("back end", said))
    lines.append(("use", f"VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --weight-transfer-config '{{\"backend\": \"{BACKEND}\"}}'"))
    return lines, good and registered and not filtered


def _registered(found: Generation) -> "tuple[bool, str]":
    """What vLLM's own loading of plug-ins leaves in its registries."""
    plugins = importlib.import_module("vllm.plugins")
    plugins.load_general_plugins()
    factory = importlib.import_module("vllm.distributed.weight_transfer.factory")
    missing = [name for name in ("WeightTransferEngineFactory", *(["WeightTransferTrainerFactory"] if found.trainer else []))
               if BACKEND not in getattr(factory, name)._registry]
    if not missing:
        return True, "registered"
    return False, f"not in {' and '.join(missing)}: " + ("for VLLM_PLUGINS, above" if _filtered()[0] else "the log says why")


def main() -> int:
    lines, good = report()
    for name, said in lines:
        print(f"{name:13} {said}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

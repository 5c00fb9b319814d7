# SPDX-License-Identifier: Apache-2.0
"""For frameworks that hard-code how weights get to vLLM: their module is changed when it is imported, in each process.

    driver                      Ray worker                      vLLM worker
    python -m weft.NAME ..      worker_process_setup_hook       vllm.general_plugins: register()
          └─ sets $WEFT_NAME ───────┴── install() ──────────────────┘
                                           └─ after_import(module, change)"""
from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import runpy
import sys
import types
from typing import Any, Callable, Optional, Sequence

from weft._errors import ConfigError, UsageError

Change = Callable[[Any], None]


class _Finder(importlib.abc.MetaPathFinder):
    """Finds what the others find, and has the change made when it was executed."""

    def __init__(self) -> None:
        self.changes: "dict[str, Change]" = {}

    def find_spec(self, fullname: str, path: Optional[Sequence[str]],
                  target: Optional[types.ModuleType] = None) -> Optional[importlib.machinery.ModuleSpec]:
        change = self.changes.get(fullname)
        if change is None:
            return None
        del self.changes[fullname]  # the search below does not come here again
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def executing(module: types.ModuleType) -> None:
                execute(module)
                change(module)
            spec.loader.exec_module = executing  # type: ignore[method-assign]
        return spec


_finder: Optional[_Finder] = None


def after_import(name: str, change: Change) -> None:
    """``change(module)``, now if it is there, else when somebody imports it."""
    global _finder
    if name in sys.modules:
        change(sys.modules[name])
        return
    if _finder is None or _finder not in sys.meta_path:
        _finder = _Finder()
        sys.meta_path.insert(0, _finder)
    _finder.changes[name] = change


def must_have(module: Any, names: Sequence[str], tested: str) -> None:
    """What is about to be replaced."""
    for dotted in names:
        at = module
        for part in dotted.split("."):
            at = getattr(at, part, None)
            if at is None:
                raise ConfigError(f"{module.__name__} has no {dotted}: this release is another one than those that weft was "
                                  f"tested beside ({tested})")


def bind_of(address: str) -> str:
    """Where a trainer in a cluster of Ray listens: $WEFT_BIND, else its node's address (which needs $WEFT_KEY_FILE)."""
    return os.environ.get("WEFT_BIND") or f"tcp://{address}:0"


def launch(name: str, variable: str, install: Callable[[], None], arguments: "list[str]") -> None:
    """``python -m weft.NAME module arguments``: the framework's own program, with ``install`` in every process of Ray's."""
    if not arguments or arguments[0].startswith("-"):
        raise UsageError(f"python -m {name} MODULE ..: the module that python -m runs without weft, and its arguments")
    os.environ[variable] = "1"
    install()
    ray: Any = importlib.import_module("ray")
    init = ray.init

    def starting(*given: Any, **named: Any) -> Any:
        environment = dict(named.get("runtime_env") or {})
        if "worker_process_setup_hook" in environment:
            raise ConfigError(f"ray.init has a worker_process_setup_hook already ({environment['worker_process_setup_hook']!r}); "
                              f"call {name}.install() in it, and start without python -m {name}")
        environment["worker_process_setup_hook"] = f"{name}.install"
        ours = {name: value for name, value in os.environ.items() if name.startswith("WEFT_")}
        environment["env_vars"] = {**ours, **(environment.get("env_vars") or {})}
        return init(*given, **{**named, "runtime_env": environment})
    ray.init = starting
    sys.argv = [arguments[0], *arguments[1:]]
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)

# SPDX-License-Identifier: Apache-2.0
"""The programs of the package: weft, weft-controller, weft-worker. They lie beside the library; what pip puts on PATH are
entry points that become them (exec), so process ids, signals and exit codes are theirs."""
from __future__ import annotations

import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
NAMES = ("weft", "weft-controller", "weft-worker")


def path(name: str) -> str:
    """The file of a program; $WEFT_BIN names a folder of one's own.

    Raises:
        FileNotFoundError: it is not there.
    """
    folder = pathlib.Path(os.environ.get("WEFT_BIN") or HERE / "bin")
    found = folder / name
    if not found.is_file():
        raise FileNotFoundError(f"weft: no program {found}: " + ("WEFT_BIN names the folder" if os.environ.get("WEFT_BIN")
                                else "this is the source, and not what was installed of it (pip install .)"))
    return str(found)


def _become(name: str) -> None:
    try:
        program = path(name)
        # weft-worker --controller auto starts weft-controller: the one beside it
        os.execv(program, [program, *sys.argv[1:]])
    except OSError as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(1)


def weft() -> None:
    """Entry point."""
    _become("weft")


def controller() -> None:
    """Entry point."""
    _become("weft-controller")


def worker() -> None:
    """Entry point."""
    _become("weft-worker")

# SPDX-License-Identifier: Apache-2.0
"""libweft, opened once. It lies in the package, or where $WEFT_LIBRARY says (a build of one's own)."""
from __future__ import annotations

import os
import pathlib
from typing import Any

from weft._binding import ffi as ffi  # for all others, who have it and lib from here

HERE = pathlib.Path(__file__).resolve().parent
# before 1.0 the minor version is part of the name (docs/abi.md): another one is another library
NEEDED = ".".join(str(ffi.integer_const(f"WEFT_VERSION_{part}")) for part in ("MAJOR", "MINOR"))


def _path() -> str:
    named = os.environ.get("WEFT_LIBRARY")
    if named:
        return named
    found = sorted((HERE / "lib").glob(f"libweft.so.{NEEDED}*"))
    if not found:
        raise ImportError(f"weft: no libweft.so.{NEEDED} in {HERE / 'lib'}: this is the source, and not what was "
                          "installed of it; run 'pip install .' in the repository, or name a library with WEFT_LIBRARY")
    return str(found[0])


def _open() -> Any:
    path = _path()
    try:
        library = ffi.dlopen(path)
    except OSError as error:
        raise ImportError(f"weft: {path} cannot be opened: {error}") from None
    version = ffi.string(library.weft_version_text()).decode()
    if not version.startswith(NEEDED + "."):
        raise ImportError(f"weft: {path} is version {version}, and this package is made for {NEEDED}")
    return library


lib: Any = _open()
version: str = ffi.string(lib.weft_version_text()).decode()


def text(pointer: Any) -> str:
    """A string of the library's; "" for none."""
    return ffi.string(pointer).decode("utf-8", "replace") if pointer else ""

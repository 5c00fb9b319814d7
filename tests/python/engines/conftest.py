# SPDX-License-Identifier: Apache-2.0
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent

sys.path.insert(0, str(HERE))


@pytest.fixture(autouse=True)
def toys(monkeypatch):
    """The toy engine is one that weft knows."""
    import toy

    import weft.engines._engine

    monkeypatch.setattr(weft.engines._engine, "rows", lambda: toy.ROWS)

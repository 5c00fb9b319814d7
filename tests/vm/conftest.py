# SPDX-License-Identifier: Apache-2.0
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import image  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def prepared():
    """Downloads and builds once, before any test looks at what a run prints."""
    try:
        image.prepare(lambda text: None)
    except image.Missing:
        pass  # each test that boots says so itself

# SPDX-License-Identifier: Apache-2.0
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import image  # noqa: E402


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in this hook too
def pytest_collection_modifyitems(items):
    """With --dist loadgroup, tests that share a boot (a fixture of their module) stay together; the rest is free."""
    for item in items:
        shared = [name for name, (*_, found) in item._fixtureinfo.name2fixturedefs.items() if found.scope == "module"]
        if shared:
            item.add_marker(pytest.mark.xdist_group(shared[0]))


@pytest.fixture(scope="session", autouse=True)
def prepared():
    """Downloads and builds once, before any test looks at what a run prints."""
    try:
        image.prepare(lambda text: None)
    except image.Missing:
        pass  # each test that boots says so itself

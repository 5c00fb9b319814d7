# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import signal
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import job as jobs  # noqa: E402


# under nohup SIGHUP is ignored, and so it would be in every program that the tests start
signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_configure(config):
    config.addinivalue_line("markers", "shm: of that transport alone; skipped where WEFT_TRANSPORT names another for the suite")


def pytest_collection_modifyitems(items):
    transport = os.environ.get("WEFT_TRANSPORT", "shm")
    for item in items:
        if transport != "shm" and item.get_closest_marker("shm"):
            item.add_marker(pytest.mark.skip(reason=f"of shm alone, and this run is over {transport}"))


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """One made checkpoint a family, shared by all tests."""
    folder = tmp_path_factory.mktemp("models")
    return {kind: jobs.make_model(folder, kind) for kind in jobs.CONFIGS}


@pytest.fixture(scope="module")
def shots(tmp_path_factory):
    folder = pathlib.Path(os.environ.get("WEFT_SHOTS") or tmp_path_factory.mktemp("shots"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder

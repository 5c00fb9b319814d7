# SPDX-License-Identifier: Apache-2.0
import pathlib
import signal
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e"), str(HERE.parent / "net")]
import hosts  # noqa: E402

# under nohup SIGHUP is ignored, and so it would be in every program that the tests start
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def nodes():
    """For tests that need hosts made of network namespaces."""
    if hosts.missing():
        pytest.skip(hosts.missing())

# SPDX-License-Identifier: Apache-2.0
"""Hosts cannot be made everywhere: then every test here is a skip with the reason; with WEFT_NET=require (CI) a failure."""
import os
import pathlib
import signal
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]
import hosts  # noqa: E402
import job as jobs  # noqa: E402
import net_job  # noqa: E402

# under nohup SIGHUP is ignored, and so it would be in every program that the tests start
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def possible():
    if hosts.missing() and os.environ.get("WEFT_NET") == "require":
        pytest.fail(f"WEFT_NET=require, and there are no network namespaces: {hosts.missing()}")
    if hosts.missing():
        pytest.skip(hosts.missing())


@pytest.fixture(scope="session")
def small(possible, tmp_path_factory):
    """A model that is delivered in no time, and its referee."""
    model = jobs.make_model(tmp_path_factory.mktemp("small"), "qwen2")
    return model, jobs.expected(model, net_job.INFER)


@pytest.fixture(scope="session")
def large(possible, tmp_path_factory):
    """A model whose updates take long enough to be disturbed in the middle, and its referee."""
    model = jobs.make_model(tmp_path_factory.mktemp("large"), "qwen2", **net_job.LARGE)
    return model, jobs.expected(model, net_job.INFER)

# SPDX-License-Identifier: Apache-2.0
"""What strangers, liars and the clumsy do to a job. The jobs are those of tests/e2e."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import job as jobs  # noqa: E402

import pytest  # noqa: E402


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    return jobs.make_model(tmp_path_factory.mktemp("models"), "qwen2")

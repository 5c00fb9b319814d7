# SPDX-License-Identifier: Apache-2.0
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]
import held  # noqa: E402
import job as jobs  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def needs_torch():
    assert held.TORCHRUN, "WEFT_TORCHRUN names no torchrun: run ./bootstrap test"


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """One made checkpoint of two layers a kind that is asked for, shared by all tests."""
    folder, made = tmp_path_factory.mktemp("models"), {}

    def model(kind, **changes):
        key = kind, *changes.items()
        if key not in made:
            made[key] = jobs.make_model(folder / str(len(made)), kind, **{**held.two_layers(kind), **changes})
        return made[key]
    return model

# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("WEFT_BIN", ROOT / "build" / "release"))
sys.path[:0] = [str(ROOT / "deploy" / "package"), str(pathlib.Path(__file__).resolve().parent)]
sys.dont_write_bytecode = True


def run(*command, code=0, **how):
    """What it said on standard output, and it must end with that code."""
    how = {"capture_output": True, "text": True, "timeout": 300, **how}
    how["env"] = {**os.environ, **how.get("env", {})}
    done = subprocess.run([str(word) for word in command], check=False, **how)
    assert done.returncode == code, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def made():
    """What the build of the programs under test has made of their --help."""
    folder = BIN / "manual"
    assert (folder / "made").exists(), f"{folder} is missing: build with -DWEFT_MANUAL=ON, and with Python 3"
    return folder

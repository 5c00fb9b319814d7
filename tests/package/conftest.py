# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import re
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


PACKAGE = ROOT / "build" / "package"
DEBS = {"library": "libweft0.2", "development": "libweft-dev", "tools": "weft"}
VERSION = re.search(r"project\(weft VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]


@pytest.fixture(scope="session")
def debs():
    """{component: its package}, as ./bootstrap package makes them."""
    found = {component: sorted(PACKAGE.glob(f"{name}_*.deb")) for component, name in DEBS.items()}
    assert all(len(paths) == 1 for paths in found.values()), f"{PACKAGE} has not one package of each: run ./bootstrap package"
    return {component: path for component, (path,) in found.items()}


@pytest.fixture(scope="session")
def root(debs, tmp_path_factory):
    """All packages unpacked into one folder, as a machine's root has them."""
    folder = tmp_path_factory.mktemp("root")
    for path in debs.values():
        run("dpkg-deb", "-x", path, folder)
    return folder

# SPDX-License-Identifier: Apache-2.0
"""What the tests in the machine share: how to run a thing in it, and what a missing machine means.

A machine that cannot be built here is a skip with its reason; with WEFT_VM=require (CI) a failure.
"""
import os
import pathlib
import shlex
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RUN = HERE / "run"
BIN = pathlib.Path(os.environ.get("WEFT_BIN", ROOT / "build" / "release"))
MISSING = 77  # exit code of RUN: no machine here


def program(*names):
    """A program of the build as one word of a script: the way to the repository may have spaces."""
    return shlex.quote(str(BIN.joinpath(*names)))


def vm(*words, check=True, timeout=500, **how):
    """RUN with these words. `timeout` bounds the whole call; give --timeout for the command."""
    done = subprocess.run([RUN, *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=timeout, **how)
    if check and done.returncode == MISSING:
        reason = done.stderr.decode()
        if os.environ.get("WEFT_VM") == "require":
            pytest.fail(f"WEFT_VM=require, and there is no machine: {reason}")
        pytest.skip(reason)
    return done


def shell(script, *options, **how):
    return vm(*options, "--", "sh", "-c", script, **how)


def passes(script, *options, seconds=300, **how):
    """The script's stdout; anything but exit code 0 fails with all that was said."""
    return passed(shell(script, "--timeout", seconds, *options, timeout=seconds + 200, **how))


def passed(done):
    assert done.returncode == 0, done.stdout.decode(errors="replace") + done.stderr.decode(errors="replace")
    return done.stdout.decode(errors="replace")

# SPDX-License-Identifier: Apache-2.0
"""The example with actors of real Ray, whose five processes import torch at once: seconds on a quiet machine, and more than the
job's join timeout beside CI's other stages. So it is a soak's."""
import os
import pathlib
import subprocess
import sys

import pytest

RUN = pathlib.Path(__file__).resolve().parents[2] / "examples/ray/run.py"


def ray(*arguments):
    return subprocess.run([sys.executable, RUN, *arguments], capture_output=True, text=True, timeout=180,
                          env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"})


pytestmark = pytest.mark.skipif("not os.environ.get('WEFT_SOAK')", reason="clusters of Ray on a busy machine take minutes (soak)")


def test_actors__say_the_same_and_one_that_dies_is_named_by_the_jobs_error():
    done = ray("--versions", "3", "--kill", "engine")
    assert done.returncode == 75 and "the job failed: inference 1" in done.stderr, done.stderr
    assert done.stdout.count("2 engines say what the trainers say") == 1, done.stdout


def test_actor__that_ray_starts_again_comes_back_into_the_job():
    done = ray("--versions", "5", "--kill", "engine", "--restart")
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stdout.splitlines() if line.startswith(("version", "engine"))]  # Ray has its own between
    back = said.index("engine 1 is back")
    assert ", 1 engines say" in said[back - 1] and ", 2 engines say" in said[0] and ", 2 engines say" in said[-1], done.stdout

# SPDX-License-Identifier: Apache-2.0
"""Snippets of docs/python.md run as they stand, and so does the example."""
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
SNIPPETS = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/python.md").read_text(), re.M | re.S)


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_snippet__runs_as_it_stands(number):
    assert len(SNIPPETS) == 3
    done = subprocess.run([sys.executable, "-c", SNIPPETS[number]], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_example__moves_a_whole_model_between_four_processes():
    done = subprocess.run([sys.executable, ROOT / "examples/python/four_processes.py", "Qwen2.5-0.5B", "1"], capture_output=True,
                          text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.count("494076672 of 494076672") == 2, done.stderr


def test_example__with_a_model_that_is_none_ends_with_its_name():
    done = subprocess.run([sys.executable, ROOT / "examples/python/four_processes.py", "Qwen9"], capture_output=True, text=True,
                          timeout=120)
    assert done.returncode and "Qwen9" in done.stderr, done.stderr

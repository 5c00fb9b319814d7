# SPDX-License-Identifier: Apache-2.0
"""Memory of GPUs from Python: with the library of the tests, whose GPUs are mock ones (docs/cuda.md)."""
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROGRAMS = ROOT / "build/release/tests/programs"


def test_gpu_memory__goes_from_a_trainers_interface_to_a_ranks_array():
    assert (PROGRAMS / "libweft.so").exists(), "build it: ./bootstrap build"
    job = pathlib.Path(__file__).with_name("cuda_job.py")
    done = subprocess.run([sys.executable, job], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "WEFT_LIBRARY": str(PROGRAMS / "libweft.so"), "WEFT_BIN": str(ROOT / "build/release"),
                               "WEFT_CUDA_MOCK": "devices=2,bytes=1G"})
    assert done.returncode == 0 and done.stdout == "q, k on GPUs\n", done.stderr

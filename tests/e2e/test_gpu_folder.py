# SPDX-License-Identifier: Apache-2.0
"""The folder that goes to a machine with a GPU: here its programs run from it on mock devices."""
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

import job as jobs

ROOT = pathlib.Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(not (jobs.BIN / "kernels.fatbin").exists(), reason="built without CUDA")


def run(*words, env=None):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=300,
                          env={**os.environ, **(env or {})})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpu") / "a folder"
    done = run(ROOT / "tests" / "gpu" / "pack", folder, jobs.BIN)
    assert done.returncode == 0, done.stderr
    return folder


def test_folder__is_small_and_brings_its_libraries(folder):
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 60 << 20
    names = [path.name for path in (folder / "lib").iterdir()]
    assert any(name.startswith("libxxhash") for name in names)
    assert not any(name.startswith(("libc.", "libcuda")) for name in names)


def test_folder__runs_every_test_and_prints_figures(folder, tmp_path):
    model = tmp_path / "config.json"
    model.write_text(json.dumps(jobs.CONFIGS["qwen2"]))
    done = run(folder / "run", "--mib", "192", "--rounds", "1",
               env={"WEFT_CUDA_MOCK": "order=random", "GPU_MODEL": str(model), "GPU_UPDATES": "24", "PYTHON": sys.executable,
                    "PYTHONPATH": str(ROOT / "tests" / "gpu" / "fake"), "FAKE_TORCH_WEFT": str(folder / "lib" / "libweft.so")})
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall("^PASS ", done.stdout, re.M)) == 15, done.stdout
    figures = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    kernels = [figure for figure in figures if "device" in figure]
    assert len(kernels) == 6 and all(figure["device"] == "Mock 0" for figure in kernels)
    assert all(figure["launches"] == 1 for figure in kernels[:5])
    assert len([figure for figure in figures if "update" in figure]) == 15


def test_folder__without_a_gpu_says_why_and_fails(folder):
    done = run(folder / "run", env={"GPU_MODEL": "Qwen2.5-0.5B"})
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("there is a GPU")
    assert done.returncode == 1
    assert len(re.findall("^SKIP ", done.stdout, re.M)) == 2
    assert len(re.findall("^FAIL ", done.stdout, re.M)) == 13 and "this host has no NVIDIA GPU" in done.stdout
    assert "bench_gpu: this host has no NVIDIA GPU" in done.stderr


@pytest.mark.parametrize("words,said", [((), "tests/gpu/pack FOLDER"), (("/tmp",), "/tmp exists"),
                                        (("new", "/nowhere"), "there is no /nowhere/tests/test_pack_cuda: build first")])
def test_pack__tells_what_is_wrong(words, said, tmp_path):
    done = subprocess.run([ROOT / "tests" / "gpu" / "pack", *words], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode in (1, 2) and said in done.stderr

# SPDX-License-Identifier: Apache-2.0
"""Each case of silent.py: an engine has every name, shape and dtype that Weft's layout without the option has, and other bytes;
with the option every byte is Weft's. The engines are those of WEFT_ENGINES (tests/engines/install), each in a process of
its own, that is told of a device."""
import json
import os
import pathlib
import subprocess
import tempfile

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ENGINES = pathlib.Path(os.environ.get("WEFT_ENGINES", ROOT / "build" / "engines"))
WEFT = pathlib.Path(os.environ.get("WEFT_BIN", ROOT / "build" / "release")) / "weft"
SECONDS = 300

UP_GATE = {
    "sglang sm90": ("bf16 flashinfer_cutlass", "bf16 flashinfer_trtllm", "fp8 flashinfer_trtllm"),
    "sglang sm100": ("Blackwell Qwen3-MoE bf16", "Blackwell Qwen3-MoE fp8", "Blackwell DeepSeek-V3 bf16",
                     "Blackwell DeepSeek-V3 fp8", "Blackwell Glm4Moe bf16"),
    "vllm sm90": ("Hopper fp8 loaded", "Hopper fp8 processed"),
    "vllm ": ("round_robin with groups",),
}
FEW = ("sglang sm100", "vllm sm90")  # each is a process that loads an engine: the others with WEFT_ENGINES_ALL
ALL = "WEFT_ENGINES_ALL" in os.environ


def folders():
    """The newest of each engine, or all with WEFT_ENGINES_ALL."""
    found = {}
    for folder in sorted(path.name for path in ENGINES.glob("*-*") if path.is_dir()):
        name, version = folder.split("-")
        found.setdefault(name, []).append((tuple(map(int, version.split("."))), folder))
    return [folder for of_engine in found.values()
            for _, folder in sorted(of_engine)[0 if ALL else -1:]]


def python(folder, script, *arguments, **more):
    environment = os.environ | {"PYTHONPATH": str(ENGINES / folder), "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([ENGINES / "base/bin/python", HERE / script, *arguments], env=environment, cwd=HERE, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS, **more)


RAN = {}  # a process an engine and device, for all its cases


def ran(folder, device):
    if (folder, device) not in RAN:
        done = python(folder, "silent.py", "--engine", folder.split("-")[0], "--device", device, "--weft", WEFT)
        lines = [json.loads(line.removeprefix("SILENT ")) for line in done.stdout.splitlines() if line.startswith("SILENT ")]
        RAN[folder, device] = {line["case"]: line for line in lines}, done
    return RAN[folder, device]


CASES = [(folder, key.split(" ")[1], case) for folder in folders() for key, names in UP_GATE.items()
         for case in names if key.split(" ")[0] == folder.split("-")[0] and (ALL or key in FEW)]


def test_engines__are_installed():
    assert {folder.split("-")[0] for folder in folders()} == {"vllm", "sglang"}, f"tests/engines/install {ENGINES}"


@pytest.mark.parametrize("folder, device, case", CASES, ids=[f"{folder}-{device}-{case}" for folder, device, case in CASES])
def test_case__differs_without_the_option_and_is_equal_with_it(folder, device, case):
    cases, done = ran(folder, device)
    assert done.returncode == 0 and case in cases, done.stdout[-4000:]
    found = cases[case]
    assert found["wrong"] == ["silent"] * 2, "the layout without the option has the engine's bytes: this case shows nothing"
    assert found["right"] == ["equal"] * 2, found["bytes"]
    experts = [line.split(" ")[0] for line in found["bytes"]]
    assert experts and all(".experts." in name for name in experts), "only the experts differ"
    if case.startswith("Hopper"):
        assert found["chosen"] == "FLASHINFER_CUTLASS", "the engine's own choice on Hopper with expert parallelism"


def silent_choice(spec, model):
    """What weft says of a spec of a model that is made without an engine."""
    path = ROOT / "tests/engines/compared" / model / "config.json"
    return subprocess.run([WEFT, "model", "layout", path, "--infer", spec], capture_output=True, text=True, timeout=SECONDS)


def test_round_robin__is_refused_where_the_engine_falls_back_to_linear():
    """vLLM's line in its log is all that says so; its bytes are then the linear ones (compare: in-turn)."""
    done = silent_choice("tp=2,ep=2,names=vllm,routed_experts=1,experts=round_robin", "qwen3-moe")
    assert done.returncode == 78 and "falls back to linear there; say experts=linear" in done.stderr
    done = silent_choice("tp=4,ep=4,dp=2,names=vllm,routed_experts=1,experts=round_robin", "deepseek-v3")
    assert done.returncode == 78 and "say experts=round_robin_a2a where --all2all-backend is one of these" in done.stderr


HOPPER = """
import pathlib, tempfile
import loaders, models
from loaders import Setup
from safetensors.torch import load_file, save_file
from weft.engines._vllm import _least_scales
engine, kept = loaders.engine("vllm", "sm90"), {}

def keep(model, *how):
    kept["model"] = model
    return parameters_of(model, *how)
parameters_of, loaders.parameters_of = loaders.parameters_of, keep
with tempfile.TemporaryDirectory() as folder:
    models.make_all(folder, ["qwen3-moe-fp8-128"])
    folder = pathlib.Path(folder) / "qwen3-moe-fp8-128"
    path = folder / "model.safetensors"
    tensors = load_file(path)
    name = "model.layers.0.mlp.experts.0.up_proj.weight_scale_inv"
    tensors[name][0, 0] = 1e-12
    save_file(tensors, path, metadata={"format": "pt"})
    made = engine.load(folder, 0, Setup(tp=2, ep=2, device="sm90", processed=True))
    scales = next(value for key, (_, _, value) in made.items() if "layers.0." in key and key.endswith("w13_weight_scale_inv"))
    print("SCALE", scales[0, 0, 0].item())
found = {scale.data_ptr() for scale in _least_scales(kept["model"])}
wanted = {value.data_ptr() for name, value in kept["model"].named_parameters() if ".experts." in name and "scale_inv" in name}
print("LEAST", found == wanted and len(found) == 4)
"""


@pytest.fixture(scope="module", params=[folder for folder in folders() if folder.startswith("vllm")])
def hopper(request):
    """What one process says of both."""
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "hopper.py"
        script.write_text(f"import sys; sys.path.insert(0, {str(HERE)!r})\n{HOPPER}")
        return python(request.param, script).stdout


def test_hopper_fp8__raises_the_smallest_scales_which_no_layout_does(hopper):
    """The one thing of that post-processing that is no order of bytes: scales below 1e-10 become 1e-10. Published checkpoints
    have such ones for experts that nothing chooses."""
    line = next((line for line in hopper.splitlines() if line.startswith("SCALE ")), None)
    assert line, hopper[-2000:]
    assert abs(float(line.split()[1]) / 1e-10 - 1) < 1e-6


def test_hopper_fp8__a_live_update_raises_them_as_the_engine_does(hopper):
    assert "LEAST True" in hopper, hopper[-2000:]

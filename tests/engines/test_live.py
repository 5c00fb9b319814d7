# SPDX-License-Identifier: Apache-2.0
"""Live updates of the real SGLang and vLLM on a processor: the engine's own model of each family, loaded and processed by its own
code, receives other weights from a trainer in another process, over shm into its live parameters. Afterwards each parameter,
buffer and derived tensor is what the engine's own loader makes of the new checkpoint, to the bit.

PYTHONPATH names the engine (tests/engines/install); WEFT_ENGINES_ALL has every family."""
import importlib.util
import json
import os
import pathlib
import sys
import types

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
ENGINE = next((name for name in ("vllm", "sglang") if importlib.util.find_spec(name) is not None), None)
if ENGINE is None:
    pytest.skip("PYTHONPATH has neither vLLM nor SGLang (tests/engines/install)", allow_module_level=True)

import cases  # noqa: E402
import loaders  # noqa: E402

engine = loaders.engine(ENGINE)

import live_rank  # noqa: E402
import models  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

import weft.engines  # noqa: E402

SMALL = models.SMALL
NO_ROWS = {"olmo2": ("olmo2", SMALL), "granite": ("granite", SMALL)}  # classes that weft has no tables for
models.MODELS.update(NO_ROWS)
FEW = ("llama", "qwen3-moe", "deepseek-v3", "gemma2", "gpt2", "olmo2")
# what no post-load step can be run of here: kernels of a GPU
ON_GPU = ("mxfp4", "-fp8", "deepseek-v3.2", "glm-5") if ENGINE == "vllm" else ("mxfp4", "deepseek-v3.2", "glm-5")


def names():
    if "WEFT_ENGINES_ALL" not in os.environ:
        return FEW
    return [name for name in models.MODELS if not any(part in name for part in ON_GPU)]


def of(name):
    found = [case for case in cases.of(name, engine, types.SimpleNamespace(device="", short=False))
             if case.setup.tp == 2 and not case.refused and not case.setup.arguments]
    return {case.setup: case for case in found}.values()  # other specs of the same engine are the same engine


CASES = [(name, case) for name in names() for case in of(name)]


@pytest.fixture(scope="module", autouse=True)
def kernels():
    live_rank.stand_ins(engine)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """{model: as it is served, as it is after training}"""
    made = {}

    def folders(name):
        if name not in made:
            before, after = tmp_path_factory.mktemp(f"{name}-before"), tmp_path_factory.mktemp(f"{name}-after")
            models.make(name, before)
            for file in before.iterdir():
                (after / file.name).write_bytes(file.read_bytes())
            trained = {key: tensor.roll(1, -1).contiguous() for key, tensor in load_file(before / "model.safetensors").items()}
            save_file(trained, after / "model.safetensors", metadata={"format": "pt"})
            made[name] = before, after
        return made[name]
    return folders


def update(checkpoints, name, case, **options):
    """What came of it, a rank."""
    before, after = checkpoints(name)
    tensors = load_file(after / "model.safetensors")
    listed = [(key, tensor.dtype, tensor.shape) for key, tensor in tensors.items()]
    reads, writes = os.pipe()
    trainer = os.fork()
    if trainer == 0:
        try:
            with weft.engines.Sender(listed, engines=1, ranks=case.setup.tp, **options) as sender:
                os.write(writes, (json.dumps(sender.endpoint(0)) + "\n").encode())
                sender.join(live_rank.WAIT_S)
                sender.send(tensors.items(), 1)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writes)
    with os.fdopen(reads) as lines:
        endpoint = json.loads(lines.readline())
    try:
        ranks = [live_rank.forked(engine, before, after, case, rank, endpoint) for rank in range(case.setup.tp)]
        return [live_rank.ended(*rank) for rank in ranks]
    finally:
        os.waitpid(trainer, 0)


def head_of_its_own(name, differing):
    """SGLang gives some tied models a head that its own loader never writes: memory that nobody has written."""
    return ENGINE == "sglang" and name in ("qwen3-moe-tied", "qwen3-moe-own-head") and differing == ["lm_head.weight"]


@pytest.mark.parametrize("name, case", CASES, ids=[f"{name}-{case.spec}-{case.setup.runner or 'own'}" for name, case in CASES])
def test_live_engine__has_what_its_own_loader_would_have_made(checkpoints, name, case):
    for way, notes, differing, count in update(checkpoints, name, case):
        assert (not differing or head_of_its_own(name, differing)) and count > 10, (way, notes, differing[:5])
        assert way == "direct", notes
        assert any("probe" in line for line in notes)
        if name in NO_ROWS:
            assert any(line.startswith("layout: by a probe") for line in notes), notes


@pytest.mark.parametrize("way, options", [("shadow", {"update": "shadow"}), ("loader", {"layout": "loader"})])
def test_live_engine__takes_weights_by_shadow_and_by_its_own_loader(checkpoints, way, options):
    name = "qwen3-moe"
    for found, notes, differing, count in update(checkpoints, name, next(iter(of(name))), **options):
        assert found == way and not differing and count > 10, (notes, differing[:5])

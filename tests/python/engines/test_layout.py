# SPDX-License-Identifier: Apache-2.0
"""Layouts by Weft's rows for the models that tests/engines/compared has, and the comparison of one layout with another."""
import dataclasses
import json
import pathlib
import random
import re
import subprocess
import time

import pytest
import torch
import toy

import weft
from weft import programs
from weft.engines._layout import Layout, Param, Piece, check_live, from_rows, tensors_of_folder
from weft.engines._marks import Marks

COMPARED = pathlib.Path(__file__).resolve().parents[2] / "engines/compared"
# a spec that `compare` has measured for each; those of fp4 need what no folder of configs says
CONFIGS = sorted(path.parent.name for path in COMPARED.glob("*/config.json") if "mxfp4" not in path.parent.name)


def specs(name):
    """(engine, spec of two ranks) of each engine that was compared."""
    for engine in ("vllm", "sglang"):
        file = COMPARED / name / f"{engine}.json"
        if file.exists():
            for spec in json.loads(file.read_text())["equal"]:
                if spec.startswith("tp=2") and "ep=2" not in spec:
                    yield spec


def listed(folder, spec, rank):
    """The parameters of a rank as its engine lists them."""
    done = subprocess.run([programs.path("weft"), "model", "layout", f"--infer=engines=1,{spec}", f"--rank={rank}", str(folder)],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [weft.Tensor(name, dtype, tuple(int(size) for size in shape.split(", ")))
            for name, dtype, shape in re.findall(r"^(\S+) (\S+) \[([\d, ]+)\], [\d,]+ bytes", done.stdout, re.M)]


@pytest.mark.parametrize("name", CONFIGS)
def test_rows__of_a_model_cover_each_parameter_and_differ_from_themselves_in_nothing(name):
    for spec in list(specs(name))[:1]:
        live = listed(COMPARED / name, spec, 1)
        layout = from_rows(str(COMPARED / name), spec, 1, live)
        assert [param.name for param in layout.params] == [param.name for param in live] and layout.source == "rows"
        for param in layout.params:
            places = sorted([(piece.offset_bytes, piece.offset_bytes + piece.bytes) for piece in param.pieces] + list(param.fills))
            assert places[0][0] == 0 and places[-1][1] == param.bytes
            assert all(before[1] == after[0] for before, after in zip(places, places[1:])), param.name
        assert layout.differences(layout) == []
        renumbered = Layout(layout.params[::-1], layout.tensors, "again")
        assert layout.differences(renumbered) == [] == renumbered.differences(layout)


def test_rows__of_experts_with_their_halves_the_other_way_are_different():
    spec, name = "tp=2,names=vllm", "qwen3-moe"
    live = listed(COMPARED / name, spec, 1)
    one, other = (from_rows(str(COMPARED / name), spec + more, 1, live) for more in ("", ",expert_halves=up_gate"))
    found = one.differences(other)
    assert len(found) == 2 and all("mlp.experts.w13_weight: elements 0 to 1024 are" in line for line in found)
    assert "gate_proj.weight from its element 1024 on by rows" in found[0] and "up_proj.weight from" in found[0]


def test_rows__of_blocks_of_fp8_are_compared_too(tmp_path):
    """Halves of experts that are quantised on the way lie as any others, and so do their scales."""
    spec = "tp=1,names=vllm,fp8=32x32"
    (tmp_path / "config.json").write_text(json.dumps({**toy.config(2, 0), "head_dim": 32}))
    live = listed(tmp_path, spec, 0)
    one, other = (from_rows(str(tmp_path), spec + more, 0, live) for more in ("", ",expert_halves=up_gate"))
    assert any(piece.transform for param in one.params for piece in param.pieces)
    found = one.differences(other)
    assert {line.split(":")[0].rpartition(".")[2] for line in found} == {"w13_weight", "w13_weight_scale_inv"} and len(found) == 4
    assert any("gate_proj.weight_scale_inv from its element 0" in line for line in found)
    assert one.differences(one) == []


def test_check__names_what_differs_and_the_option_that_would_agree(tmp_path):
    folder = str(COMPARED / "qwen3-moe")
    live = listed(folder, "tp=2,names=vllm,routed_experts=1", 0)
    with pytest.raises(weft.ConfigError, match="say names=vllm,routed_experts=1 in --infer"):
        check_live(folder, "tp=2,names=vllm", 0, live, str(tmp_path))
    assert check_live(folder, "tp=2,names=vllm,routed_experts=1", 0, live, str(tmp_path)) == {tensor.name for tensor in live}
    with pytest.raises(weft.ConfigError, match=r"of.the.engine: nothing in the layout, F32 \[3\] in the engine"):
        check_live(folder, "tp=2,names=vllm,routed_experts=1", 0, [*live, weft.Tensor("of.the.engine", "F32", (3,))], str(tmp_path))
    shorter = [tensor._replace(shape=(5, 5)) if tensor.name == "lm_head.weight" else tensor for tensor in live]
    with pytest.raises(weft.ConfigError, match=r"lm_head.weight: BF16 \[128, 64\] in the layout, BF16 \[5, 5\] in the engine"):
        check_live(folder, "tp=2,names=vllm,routed_experts=1", 0, shorter, str(tmp_path))


def test_rows__of_a_class_that_is_unknown_say_so_without_a_folder_that_is_gone():
    with pytest.raises(weft.ConfigError) as failure:
        from_rows({**toy.config(2, 0), "model_type": "unheard", "architectures": ["UnheardForCausalLM"]}, "tp=1", 0, [])
    assert "unheard" in str(failure.value).lower() and "/tmp" not in str(failure.value)


# ---- differences

TENSOR = weft.Tensor("w", "BF16", (64, 48))


def layout(*pieces, shape=(64, 48), source="a", tensors=None):
    return Layout((Param("p", "BF16", shape, pieces),), tensors or {"w": TENSOR}, source)


def test_differences__do_not_depend_on_how_a_layout_is_cut():
    whole = layout(Piece("w", (0, 0), (64, 48), 0, 64 * 96))
    rows = layout(*(Piece("w", (row, 0), (row + 1, 48), row * 96, 96) for row in range(64)), source="b")
    halves = layout(Piece("w", (32, 0), (64, 48), 32 * 96, 32 * 96), Piece("w", (0, 0), (32, 48), 0, 32 * 96), source="b")
    assert whole.differences(rows) == whole.differences(halves) == rows.differences(whole) == []


def test_differences__are_found_wherever_one_element_is_another():
    draw = random.Random(1)
    for _ in range(40):
        row = draw.randrange(63)
        pieces = [Piece("w", (each, 0), (each + 1, 48), each * 96, 96) for each in range(64)]
        pieces[row], pieces[row + 1] = (pieces[row + 1]._replace(offset_bytes=row * 96),
                                        pieces[row]._replace(offset_bytes=(row + 1) * 96))
        found = layout(Piece("w", (0, 0), (64, 48), 0, 64 * 96)).differences(layout(*pieces, source="b"))
        assert len(found) == 1 and "by a, elements" in found[0]


def test_differences__of_a_parameter_that_only_one_has_or_that_lacks_a_part():
    whole, none = layout(Piece("w", (0, 0), (64, 48), 0, 64 * 96)), Layout((), {}, "b")
    assert whole.differences(none) == ["p: elements 0 to 3072 are w from its element 0 on by a, nothing by b"]
    half = layout(Piece("w", (0, 0), (32, 48), 0, 32 * 96), source="b")
    assert "elements 0 to 1536" in whole.differences(half)[0]
    computed = dataclasses.replace(whole, params=(dataclasses.replace(whole.params[0], computed="a maximum"),))
    assert whole.differences(computed) == []


def test_differences__of_tensors_of_other_shapes():
    other = {"w": weft.Tensor("w", "BF16", (48, 64))}
    found = layout(Piece("w", (0, 0), (64, 48), 0, 64 * 96)).differences(
        layout(Piece("w", (0, 0), (48, 64), 0, 64 * 96), source="b", tensors=other))
    assert found == ["p: w is [64, 48] by a, [48, 64] by b"]


def test_differences__and_boxes_of_real_sizes_take_seconds():
    """A vocabulary cut in columns, and 256 experts cut in columns: millions of runs."""
    from weft.engines._boxes import param_of
    from weft.engines._marks import Found
    experts = {f"e{expert}": weft.Tensor(f"e{expert}", "BF16", (7168, 256)) for expert in range(256)}
    columns = [Piece("v", (0, 896), (129280, 1792), 0, 129280 * 896 * 2)]
    cut = [Piece(name, (0, 0), (7168, 32), expert * 7168 * 64, 7168 * 64) for expert, name in enumerate(experts)]
    tensors = {**experts, "v": weft.Tensor("v", "BF16", (129280, 7168))}
    params = (Param("v", "BF16", (129280, 896), tuple(columns)), Param("w2", "BF16", (256, 7168, 32), tuple(cut)))
    marks = Marks({"w": weft.Tensor("w", "BF16", (8192, 512))})
    began = time.process_time()
    one, other = Layout(params, tensors, "a"), Layout(tuple(dataclasses.replace(param) for param in params), tensors, "b")
    again = Layout((params[0], dataclasses.replace(params[1], pieces=tuple(piece._replace(hi=piece.hi) for piece in cut[1:]))),
                   tensors, "b")
    assert one.differences(other) == [] and len(one.differences(again)) == 1
    found = Found((8192, 256), torch.bfloat16, marks)
    for load in range(marks.loads + 4):
        found.add(dict(marks.named(load, torch.device("cpu")))["w"][:, 256:], load)
    assert len(param_of("p", found, marks).pieces) == 1
    assert time.process_time() - began < 20


# ---- files

def test_tensors__of_a_folder_are_read_from_headers_alone(tmp_path):
    for number, names in enumerate((("a", "b"), ("c",))):
        header = json.dumps({"__metadata__": {"format": "pt"},
                             **{name: {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]} for name in names}}).encode()
        (tmp_path / f"model-{number}.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    (tmp_path / "adapter_model.safetensors").write_bytes(b"none of it")
    assert list(tensors_of_folder(str(tmp_path))) == ["a", "b", "c"]
    assert tensors_of_folder(str(tmp_path))["c"] == weft.Tensor("c", "BF16", (2, 3))
    for size, text in ((1 << 40, b"{"), (9, b"{\"a\": 1"), (5, b"{{{{{"), (2, b"[]"), (10, b"{\"a\": {}} ")):
        (tmp_path / "model-9.safetensors").write_bytes(size.to_bytes(8, "little") + text)
        with pytest.raises(weft.Error, match="model-9.safetensors"):
            tensors_of_folder(str(tmp_path))


@pytest.mark.parametrize("folder", ["/nowhere/at/all", "org/name-on-a-hub", ""])
def test_tensors__of_a_folder_that_is_none(folder):
    with pytest.raises(weft.UsageError, match="no .safetensors file, and the trainers did not say what they send"):
        tensors_of_folder(folder)

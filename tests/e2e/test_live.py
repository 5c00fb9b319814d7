# SPDX-License-Identifier: Apache-2.0
"""A running engine's own list of parameters: compared offline by `weft model check`, and by a worker
before it joins; and the command that a worker runs between a version's last byte and its publication."""
import importlib.util
import json
import re

import pytest

from job import ROOT, WORKER, Job, Process, weft

TORCH = {"BF16": "torch.bfloat16", "F32": "torch.float32", "F8_E4M3": "torch.float8_e4m3fn"}


def engine(model, infer, rank=0):
    """What an engine that is laid out like this would say of itself."""
    rows = []
    for line in weft("model", "layout", model, "--infer", infer, "--rank", rank).stdout.splitlines():
        match = re.match(r"(\S+) (\S+) \[(.*)\], ([\d,]+) bytes$", line)
        if match:
            rows.append({"name": match[1], "dtype": TORCH[match[2]],
                         "shape": [int(size) for size in match[3].split(", ")],
                         "bytes": int(match[4].replace(",", ""))})
    assert rows
    return rows


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def check(folder, model, infer, text, rank=0):
    file = folder / "live.json"
    file.write_text(text)
    return weft("model", "check", "--model", model, "--infer", infer, "--rank", rank, "--live", file, check=False)


def test_check__takes_lists_objects_and_lines_and_leaves_scales_alone(tmp_path):
    model, infer = "Qwen3-30B-A3B", "engines=2,tp=4,ep=2"
    rows = engine(model, infer, 5)
    extra = [{"name": "model.layers.0.self_attn.attn.k_scale", "dtype": "float32", "shape": []}]
    named = {row["name"]: {key: row[key] for key in ("shape", "dtype", "bytes")} for row in rows}
    for text in (json.dumps(rows, indent=1), json.dumps(named), lines(rows + extra)):
        done = check(tmp_path, model, infer, text, 5)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"{len(rows)} of {len(rows)} parameters equal, 0 differences" in done.stdout
    assert "model.layers.0.self_attn.attn.k_scale: no source, left alone" in done.stdout


# the engine is laid out with the option, the check is made without: its hint names the option, and with
# it nothing differs
OPTIONS = [
    ("glm4-moe", "engines=1,tp=2", "gate=F32"),
    ("glm-dsa", "engines=1,tp=2", "indexer=fused"),
    ("deepseek-fp8", "engines=1,tp=2,ep=2", "names=vllm"),
    ("qwen3-moe", "engines=1,tp=2,ep=2", "names=vllm,routed_experts=1"),
    ("glm4-moe", "engines=1,tp=2", "fuse_shared=1"),
    ("deepseek-fp8", "engines=1,tp=1", "fp8=none"),
    ("qwen3-moe", "engines=1,tp=1", "fp8=16x16"),
    ("deepseek-fp8", "engines=1,tp=2,ep=2", "embed_replicated=1"),
    ("qwen3", "engines=1,tp=2", "dtype=F32"),
]


@pytest.mark.parametrize("kind,infer,option", OPTIONS)
def test_check__names_the_option_that_agrees(tmp_path, models, kind, infer, option):
    model = f"{models[kind]}/"
    text = lines(engine(model, f"{infer},{option}"))
    same = check(tmp_path, model, f"{infer},{option}", text)
    assert same.returncode == 0, same.stdout + same.stderr
    done = check(tmp_path, model, infer, text)
    assert done.returncode == 1
    assert re.search(rf"; say {option}(, or dp)? in --infer", done.stdout), done.stdout[:2000]


def test_check__says_each_kind_of_difference_in_one_line(tmp_path):
    model, infer = "Qwen2.5-0.5B", "engines=1,tp=2"
    rows = engine(model, infer)
    gone, wrong, renamed = rows[3], rows[5], rows[7]
    rows = [dict(row) for row in rows if row is not gone]
    for row in rows:
        if row["name"] == wrong["name"]:
            row.update(shape=row["shape"] + [1])
        if row["name"] == renamed["name"]:
            row.update(name=row["name"] + "_x")
    done = check(tmp_path, model, infer, lines(rows))
    assert done.returncode == 1
    said = done.stdout.splitlines()
    assert any(line.startswith(gone["name"] + ": BF16") and "nothing in the engine" in line for line in said)
    assert any(line.startswith(wrong["name"] + ": ") and ", 1] in the engine" in line for line in said)
    assert any(line.startswith(renamed["name"] + "_x: nothing in the layout") and
               f"the closest are {renamed['name']}" in line for line in said)
    assert said[-1].endswith("4 differences, 0 left alone")


@pytest.mark.parametrize("text,code,says", [
    ("", 1, "line 1: no JSON"),
    ('[{"name":"a","shape":[2],"dtype":"BF16"},{"name":"a","shape":[2],"dtype":"BF16"}]', 1,
     "entry 1: parameter a stands there twice"),
    ('{"name":"a","shape":[2],"dtype":"BF16"}\n{"name":"b","shape":[2],"dtype":"bf17"}\n', 1,
     "line 2: b: dtype 'bf17' is unknown"),
    ('{"a":{"shape":[2],"dtype":"BF16","bytes":5}}', 1, "a says 5 bytes; its shape and dtype make 4"),
])
def test_check__refuses_a_malformed_list_with_its_place(tmp_path, text, code, says):
    done = check(tmp_path, "Qwen2.5-0.5B", "engines=1,tp=2", text)
    assert done.returncode == code and says in done.stderr and "WEFT-E110" in done.stderr, done.stderr


def test_check__asks_for_what_is_missing():
    done = weft("model", "check", "--model", "Qwen2.5-0.5B", check=False)
    assert done.returncode == 2 and "--infer is missing" in done.stderr


def test_script__writes_what_is_read(tmp_path):
    class Parameter:
        shape, dtype = (3, 2), "torch.bfloat16"
        numel, element_size = lambda self: 6, lambda self: 2

    class Model:
        def named_parameters(self):
            return [("a.weight", Parameter())]

    found = importlib.util.spec_from_file_location("engine_params", ROOT / "deploy" / "engine_params.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    module.write(Model(), tmp_path / "live.json")
    done = check(tmp_path, "Qwen2.5-0.5B", "engines=1,tp=2", (tmp_path / "live.json").read_text())
    assert "a.weight: nothing in the layout, BF16 [3, 2] in the engine" in done.stdout


def test_worker__ends_before_it_joins_when_its_engine_differs(tmp_path, models):
    infer = "engines=1,tp=2"
    rows = engine(f"{models['qwen3']}/", infer, 1)
    (tmp_path / "good.jsonl").write_text(lines(rows))
    rows[2].update(dtype="torch.float32", bytes=rows[2]["bytes"] * 2)
    (tmp_path / "bad.jsonl").write_text(lines(rows[:-1]))
    (tmp_path / "broken.jsonl").write_text("{")
    for file, code, says in (("bad", 78, "WEFT-E124"), ("broken", 1, "WEFT-E110"), ("none", 1, "WEFT-E111")):
        # nobody listens at the address: it never gets as far as joining
        process = Process(file, [WORKER, "--controller", "tcp://127.0.0.1:9", "--model", models["qwen3"], "--train",
                                 "world=1,source=gathered", "--infer", infer, "--role", "inference", "--rank", 1,
                                 "--live-params", tmp_path / f"{file}.jsonl"], tmp_path)
        assert process.popen.wait(30) == code, process.stderr
        assert says in process.stderr
        assert ("--live-params: " in process.stderr) == (file == "none"), process.stderr
        if file == "bad":
            assert "2 differences between the" in process.stderr
            assert (f"weft-worker: inference 1: {rows[2]['name']}: BF16" in process.stderr and
                    f"weft-worker: inference 1: {rows[-1]['name']}: BF16" in process.stderr), process.stderr


def test_worker__compares_then_runs_a_command_before_each_version(tmp_path, models):
    infer, seen = "engines=1,tp=1", tmp_path / "seen"
    (tmp_path / "live.jsonl").write_text(lines(engine(f"{models['qwen3']}/", infer)))
    with Job(tmp_path, models["qwen3"], "world=1,source=gathered", infer) as job:
        job.controller()
        job.workers("--checksums", updates=2,
                    inference_flags=("--verify", "--live-params", tmp_path / "live.jsonl", "--post-load",
                                     f"echo $WEFT_VERSION >> {seen}"))
        job.succeed()
    assert seen.read_text().split() == ["1", "2"]


def test_worker__does_not_publish_what_the_command_refuses(tmp_path, models):
    with Job(tmp_path, models["qwen3"], "world=1,source=gathered", "engines=1,tp=1") as job:
        job.controller()
        job.workers(updates=2, inference_flags=("--post-load", 'test "$WEFT_VERSION" -lt 2 || exit 9'))
        codes = job.wait()
        said = job.processes["inference-0"].stderr
    assert codes["inference-0"] == 1 and "WEFT-E154" in said, said
    assert "update 2: the post-load hook returned 9" in said
    assert [update["version"] for update in job.processes["inference-0"].updates()] == [1]


def test_worker__says_which_command_it_waits_for(tmp_path, models):
    with Job(tmp_path, models["qwen3"], "world=1,source=gathered", "engines=1,tp=1") as job:
        job.controller()
        job.workers(updates=1, inference_flags=("--post-load", "sleep 3"))
        job.succeed()
        said = job.processes["inference-0"].stderr
    assert "inference 0: still waiting for the hook 'sleep 3' (--post-load) before version 1 is published, for " in said

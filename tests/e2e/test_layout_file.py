# SPDX-License-Identifier: Apache-2.0
"""Layout files (docs/layout-file.md): what `weft model layout --output` writes of every family is as good as
the family, the JSON Schema and the reader agree, and a model that no row knows is planned and sent."""
import copy
import json
import re
import sys

import jsonschema
import numpy
import pytest

import job as jobs

sys.path.insert(0, str(jobs.ROOT / "deploy"))
import layout_file as lf  # noqa: E402

SCHEMA = json.loads((jobs.ROOT / "model" / "schema" / "weft.layout-1.schema.json").read_text())
SPECS = {"qwen2": "engines=2,tp=4", "llama": "engines=2,tp=2,names=vllm", "qwen3-moe": "engines=1,tp=4,ep=2,fp8=8x8",
         "deepseek-fp8": "engines=1,tp=2,fp8=none"}


def validator():
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    return jsonschema.Draft7Validator(SCHEMA)


@pytest.fixture(scope="module")
def configs(tmp_path_factory):
    """A folder with a config.json of every family: no tensors."""
    folder = tmp_path_factory.mktemp("configs")
    for kind, config in jobs.CONFIGS.items():
        (folder / kind).mkdir()
        (folder / kind / "config.json").write_text(json.dumps(config))
    return folder


# ---- of a family ----

@pytest.mark.parametrize("kind", jobs.CONFIGS)
def test_file__of_a_family_gives_the_same_plan_byte_for_byte(configs, tmp_path, kind):
    infer, file = SPECS.get(kind, "engines=2,tp=2"), tmp_path / "file.json"
    jobs.weft("model", "layout", configs / kind, "--infer", infer, "--output", file)
    validator().validate(json.loads(file.read_text()))
    dumps = [jobs.weft("route", "plan", "--model", model, "--train", "world=4,pp=2", "--infer", infer, "--json").stdout
             for model in (configs / kind, file)]
    assert dumps[0] == dumps[1]
    (tmp_path / "dump.json").write_text(dumps[0])
    jobs.weft("route", "verify", tmp_path / "dump.json", "--model", file)


@pytest.mark.parametrize("kind,infer", [("qwen3-moe", "engines=1,tp=4,ep=2,gate=F32,fp8=8x8"), ("qwen2", "engines=2,tp=4")])
def test_folder__with_a_layout_file_is_sent_and_verified(tmp_path, models, kind, infer):
    """What the file says wins over the config.json beside it, which the referee reads."""
    folder = tmp_path / kind
    folder.mkdir()
    for path in models[kind].iterdir():
        (folder / path.name).symlink_to(path)
    jobs.weft("model", "layout", models[kind], "--infer", infer, "--output", folder / "weft.layout.json")
    with jobs.Job(tmp_path / "job", folder, "world=2,source=gathered", infer) as job:
        job.controller()
        job.workers("--checksums", "--verify")
        job.succeed()
        job.verify(jobs.expected(folder, infer), (1, 2))


def test_big_file__of_61_layers_and_8_ranks_reads_back(tmp_path):
    file = tmp_path / "big.json"
    jobs.weft("model", "layout", "DeepSeek-V3", "--infer", "tp=8", "--output", file)
    assert file.stat().st_size < 20 << 20
    ranks = jobs.weft("model", "layout", "--from", file).stdout
    assert "DeepSeek-V3: 90427 tensors, 671,026,419,200 parameters, 673,150,611,808 bytes; 1564 more left alone" in ranks
    assert len(set(re.findall(r"engine rank \d: 1327 parameters, .*; ([0-9a-f]{32})", ranks))) == 8


def test_checkpoint__of_a_file_is_made_and_verified(configs, tmp_path):
    file, folder = tmp_path / "file.json", tmp_path / "made"
    jobs.weft("model", "layout", configs / "glm4-moe", "--infer", "tp=2", "--output", file)
    jobs.weft("checkpoint", "make", file, folder, "--quiet")
    assert sorted(path.name for path in folder.iterdir()) == ["model.safetensors", "weft.layout.json"]
    assert (folder / "weft.layout.json").read_text() == file.read_text()
    assert "; the tensors of glm4-moe; the contents of seed 0\n" in jobs.weft("checkpoint", "verify", folder, "--contents").stdout
    assert "; the tensors of glm4-moe; contents not compared (--contents)\n" in jobs.weft("checkpoint", "verify", folder).stdout
    jobs.weft("checkpoint", "verify", folder, "--model", configs / "glm4-moe")
    jobs.weft("checkpoint", "make", file, folder, "--force", "--quiet")
    assert jobs.weft("model", "tensors", file, "--all").stdout == jobs.weft("model", "tensors", configs / "glm4-moe", "--all").stdout


def test_checkpoint__may_have_what_the_file_leaves_alone(models, configs, tmp_path):
    file = tmp_path / "file.json"
    jobs.weft("model", "layout", configs / "qwen2", "--infer", "tp=2", "--output", file)
    whole = json.loads(file.read_text())
    del whole["params"][-1]
    whole["tensors"] = [tensor for tensor in whole["tensors"] if not tensor["name"].startswith("model.norm")]
    file.write_text(json.dumps(whole))
    done = jobs.weft("checkpoint", "verify", models["qwen2"], "--model", file, check=False)
    assert done.returncode == 1 and "tensor model.norm.weight is not one of qwen2" in done.stderr
    whole["left_alone"] = ["model.norm."]
    validator().validate(whole)
    file.write_text(json.dumps(whole))
    assert "good" in jobs.weft("checkpoint", "verify", models["qwen2"], "--model", file).stdout


def test_memory_plan__of_a_file_is_the_families(configs, tmp_path):
    file, spec = tmp_path / "file.json", ("--train", "world=4,pp=2", "--infer", "engines=2,tp=2", "--json")
    for kind in ("qwen3", "glm4-moe"):
        jobs.weft("model", "layout", configs / kind, "--infer", "tp=2", "--output", file)
        plans = [json.loads(jobs.weft("model", "plan-memory", "--model", model, *spec).stdout) for model in (file, configs / kind)]
        assert [plan.pop(key) for plan in plans for key in ("name", "model")] == [str(file)] * 2 + [str(configs / kind)] * 2
        assert plans[0] == plans[1] and plans[0]["published"]["staged"]


# ---- of nobody's family ----

def snippet(language):
    text = (jobs.ROOT / "docs" / "layout-file.md").read_text()
    return re.search(rf"```{language}\n(.*?)```", text, re.S)[1]


@pytest.fixture
def own(tmp_path, monkeypatch):
    """The document's example: a checkpoint that no family knows, and the file that its Python makes."""
    shapes = {"wte.weight": [50, 8], **{f"h.{i}.{name}": shape for i in range(2) for name, shape in (
        ("attn.weight", [24, 8]), ("proj.weight", [8, 8]), ("norm.weight", [8]))}, "ln.weight": [8]}
    header, data, at = {"__metadata__": {"format": "pt"}}, b"", 0
    for number, (name, shape) in enumerate(shapes.items()):
        values = (numpy.arange(numpy.prod(shape), dtype=numpy.float32) + 1000 * number).tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + len(values)]}
        data, at = data + values, at + len(values)
    head = json.dumps(header).encode()
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + data)
    monkeypatch.chdir(tmp_path)
    exec(compile(snippet("python").replace("/models/own", str(folder)), "docs/layout-file.md", "exec"), {})
    return folder, tmp_path / "own.layout.json"


def test_example__is_checked_planned_and_sent(own, tmp_path):
    folder, file = own
    validator().validate(json.loads(file.read_text()))
    told = jobs.weft("model", "layout", "--from", file).stdout
    assert "own: 8 tensors" in told and f"{file}: good, for --infer engines=1,tp=2 (any number of engines)" in told
    pieces = [json.loads(line) for line in jobs.weft("model", "layout", file, "--rank", "1", "--json").stdout.splitlines()]
    assert [(piece["param"], piece["src"], piece["offset"]) for piece in pieces if piece["tensor"] == "h.1.attn.weight"] == [
        ("h.1.qkv", [[4, 8], [0, 8]], 0), ("h.1.qkv", [[12, 16], [0, 8]], 128), ("h.1.qkv", [[20, 24], [0, 8]], 256)]
    live = tmp_path / "live.jsonl"
    live.write_text("".join(json.dumps({key: param[key] for key in ("name", "dtype", "shape")}) + "\n"
                            for param in json.loads(file.read_text())["params"]))
    assert "8 of 8 parameters equal" in jobs.weft("model", "check", "--model", file, "--infer", "tp=2", "--live", live).stdout
    with jobs.Job(tmp_path / "job", file, "world=2,pp=2", "engines=2,tp=2") as job:
        job.controller()
        for role, count in (("trainer", 2), ("inference", 4)):
            for rank in range(count):
                job.worker(role, rank, "--verify", "--checksums", "--checkpoint", folder)
        job.succeed()
        assert all(len(job.digests(rank)[2]) == 8 for rank in range(4))


# ---- refused ----

@pytest.mark.parametrize("arguments, code, words", [
    (("layout",), 2, "name a model"),
    (("layout", "Qwen3-4B", "--from", "f"), 2, "MODEL and --from: give one of the two"),
    (("layout", "Qwen3-4B", "--infer", "tp=2", "--output", "f", "--rank", "1"), 2, "leave --rank out"),
    (("layout", "--from", "FILE", "--infer", "tp=3"), 78, "--infer engines=1,tp=3: the layout file of qwen2 is made for --infer engines=1,tp=2"),
    (("layout", "--from", "FILE", "--derived"), 78, "leave --derived out"),
    (("holding", "FILE", "--train", "world=2,source=megatron,tp=2"), 78, "source=megatron of --train has no row for tensor"),
    (("holding", "FILE", "--train", "world=2,source=dtensor,mesh=1/2"), 78, "the model is a layout file's"),
    (("layout", "--from", "/no/such"), 1, "cannot open /no/such"),
    (("layout", "--from", "CONFIG"), 1, "not a layout file: key \"schema\" is missing"),
])
def test_refused__in_words(configs, tmp_path, arguments, code, words):
    file = tmp_path / "file.json"
    jobs.weft("model", "layout", configs / "qwen2", "--infer", "tp=2", "--output", file)
    names = {"FILE": file, "CONFIG": configs / "qwen2" / "config.json"}
    done = jobs.weft("model", *[names.get(argument, argument) for argument in arguments], check=False)
    assert done.returncode == code and words in done.stderr, done


def spoilt(value, path=()):
    """(path, what is put there): another type, a negative number, an unknown key, a missing one."""
    yield path, {"a": 1} if not isinstance(value, dict) else [1]
    if isinstance(value, int) and not isinstance(value, bool):
        yield path, -2
    if isinstance(value, dict):
        yield (*path, "other"), 1
        for key in value:
            if key not in ("layers", "layer", "tied", "scale", "left_alone", "src", "ranks", "make"):
                yield (*path, key), None
            yield from spoilt(value[key], (*path, key))
    if isinstance(value, list) and value:
        yield from spoilt(value[0], (*path, 0))


def test_schema__refuses_what_the_reader_refuses(configs, tmp_path):
    check, file = validator(), tmp_path / "file.json"
    jobs.weft("model", "layout", configs / "deepseek-fp8", "--infer", "tp=2,fp8=none", "--output", file)
    whole = json.loads(file.read_text())
    lists = {key: whole[key] for key in ("tensors", "params")}
    # a small one with a key of every kind: what is spoilt is spoilt once
    whole["params"] = [next(param for param in lists["params"] if "make" in param["pieces"][0])]
    whole["params"][0]["ranks"] = [[0, 1]]
    whole["params"][0]["pieces"][0].setdefault("src", [[0, size] for size in whole["params"][0]["shape"]])
    whole["tensors"] = [tensor for tensor in lists["tensors"] if tensor["name"] in json.dumps(whole["params"])]
    cases = list(spoilt(whole))
    assert len(cases) > 50
    for path, put in cases:
        other = inner = copy.deepcopy(whole)
        for key in path[:-1]:
            inner = inner[key]
        if not path:
            other = put
        elif put is None:
            del inner[path[-1]]
        else:
            inner[path[-1]] = put
        assert not check.is_valid(other), (path, put)
        file.write_text(json.dumps(other))
        done = jobs.weft("model", "layout", "--from", file, check=False)
        assert done.returncode == 1 and "WEFT-E110" in done.stderr, (path, put, done)

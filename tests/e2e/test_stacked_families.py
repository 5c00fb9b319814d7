# SPDX-License-Identifier: Apache-2.0
"""Classes with linear attention or with tensors that hold all experts, through real processes: every byte that arrives is what
the referee recomputes from the checkpoint and the layout, which test_engines.py holds to the engines' own loaders."""
import json

import jsonschema
import pytest

import job as jobs
from test_more_families import add_tensor

GPT_OSS = jobs.MORE_CONFIGS["gpt-oss"]
CONFIGS = {
    "qwen3-next": jobs.MORE_CONFIGS["qwen3-next"],
    "gpt-oss": GPT_OSS,
    "gpt-oss-mxfp4-odd": {**GPT_OSS, "intermediate_size": 160, "quantization_config": {"quant_method": "mxfp4"}},
    "gpt-oss-mxfp4": {**GPT_OSS, "quantization_config": {"quant_method": "mxfp4"}},
}
SCHEMAS = {"model": jobs.ROOT / "model/schema/weft.layout-1.schema.json",
           "routing": jobs.ROOT / "routing/report/schema/weft.routing-1.schema.json"}
SHARDED = "world=2,fsdp=2,source=sharded"
CASES = [
    ("qwen3-next", SHARDED, "engines=1,tp=4,ep=2", ["--checksums"]),
    ("gpt-oss", SHARDED, "engines=1,tp=2", ["--checksums"]),
    ("gpt-oss", "world=2,source=gathered", "engines=1,tp=4,ep=4,names=vllm,dtype=F16", []),
    ("gpt-oss", SHARDED, "engines=1,tp=2,expert_weights=in_out", []),
    ("qwen3-next", "world=4,source=megatron,tp=2,ep=2,etp=1,out_norm=plus_one", "engines=1,tp=4,ep=2", ["--checksums"]),
    ("gpt-oss", "world=4,source=megatron,tp=2,ep=2,etp=1,glu_interleave=1", "engines=1,tp=2", ["--checksums"]),
    ("gpt-oss-mxfp4", SHARDED, "engines=1,tp=4,ep=2", ["--checksums"]),
    ("gpt-oss-mxfp4-odd", SHARDED, "engines=1,tp=2,mxfp4_pad=64x1", ["--checksums"]),
    ("gpt-oss-mxfp4-odd", "world=1,source=gathered", "engines=1,tp=4,ep=2,mxfp4_pad=128x256", ["--own-memory"]),
    ("gpt-oss-mxfp4-odd", SHARDED, "engines=1,tp=2,mxfp4_pad=128x128", ["--own-memory", "--checksums"]),
]


def make(folder, config):
    (folder / "config").mkdir()
    (folder / "config/config.json").write_text(json.dumps(config))
    jobs.weft("checkpoint", "make", folder / "config/config.json", folder / "model", "--seed", 5)
    return folder / "model"


@pytest.mark.parametrize("kind,train,infer,flags", CASES, ids=["-".join(case[:3]) for case in CASES])
def test_family__arrives_as_its_layout_says(tmp_path, kind, train, infer, flags):
    model = make(tmp_path, CONFIGS[kind])
    assert json.loads((model / "config.json").read_text()).get("quantization_config") == \
        CONFIGS[kind].get("quantization_config")
    with jobs.Job(tmp_path, model, train, infer) as job:
        job.controller()
        job.workers("--verify", *flags, updates=2)
        job.succeed()


@pytest.mark.parametrize("kind,infer,words", [
    ("gpt-oss", "tp=2,ep=2", ("SGLang's loader", "only of MXFP4 checkpoints", "leave ep out")),
    ("gpt-oss-mxfp4", "tp=4,ep=4,names=vllm,experts=round_robin", ("tensors of all experts", "experts=linear")),
    ("gpt-oss-mxfp4", "tp=8", ("cannot be cut for 8 ranks",)),
    ("gpt-oss-mxfp4-odd", "tp=2", ("cannot be cut for 2 ranks", "mxfp4_pad=")),
    ("qwen3-next", "tp=8", ("linear_num_key_heads 4",)),
])
def test_layout__refuses_what_no_engine_loads(tmp_path, kind, infer, words):
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS[kind]))
    done = jobs.weft("model", "layout", tmp_path / "config.json", "--infer", infer, check=False)
    assert done.returncode != 0
    for word in words:
        assert word in done.stderr, done.stderr


@pytest.mark.parametrize("kind,infer", [("gpt-oss", "engines=1,tp=2,expert_weights=in_out"),
                                        ("gpt-oss-mxfp4-odd", "engines=1,tp=4,mxfp4_pad=128x256")])
def test_layout_file__of_it_gives_the_same_plan_byte_for_byte(tmp_path, kind, infer):
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS[kind]))
    file, dump = tmp_path / "file.json", tmp_path / "dump.json"
    jobs.weft("model", "layout", tmp_path, "--infer", infer, "--output", file)
    jsonschema.validate(json.loads(file.read_text()), json.loads(SCHEMAS["model"].read_text()))
    dumps = [jobs.weft("route", "plan", "--model", model, "--train", SHARDED, "--infer", infer, "--json").stdout
             for model in (tmp_path, file)]
    assert dumps[0] == dumps[1]
    jsonschema.validate(json.loads(dumps[0]), json.loads(SCHEMAS["routing"].read_text()))
    dump.write_text(dumps[0])
    jobs.weft("route", "verify", dump, "--model", file)


def test_draft_model__is_left_alone(tmp_path):
    model = make(tmp_path, CONFIGS["qwen3-next"])
    add_tensor(model / "model.safetensors", "mtp.fc.weight", [64, 128])
    assert "left alone: 1 tensors, 16,384 bytes: mtp (1)" in jobs.weft("checkpoint", "verify", model).stdout

# SPDX-License-Identifier: Apache-2.0
"""Families whose layouts are held to the engines' own loaders (test_engines.py), through real processes: every byte that
arrives is what the referee recomputes from the checkpoint and the layout. Beside them: a class that no row knows, and
checkpoints that hold more than the text model."""
import json
import struct
import sys

import pytest

import job as jobs

sys.path.insert(0, str(jobs.ROOT / "deploy"))
import layout_file as lf  # noqa: E402

SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 203, "dtype": "bfloat16"}
CONFIGS = {
    "mixtral": {"architectures": ["MixtralForCausalLM"], **SMALL, "num_local_experts": 4},
    "phi3": {"architectures": ["Phi3ForCausalLM"], **SMALL},
    "gemma3": {"architectures": ["Gemma3ForCausalLM"], **SMALL, "head_dim": 24},
    "gpt2": jobs.MORE_CONFIGS["gpt2"],
    "mistral": {"architectures": ["MistralForCausalLM"], **SMALL},
    "gemma2": {"architectures": ["Gemma2ForCausalLM"], **SMALL, "head_dim": 24},
    "qwen2-moe": {"architectures": ["Qwen2MoeForCausalLM"], **SMALL, "num_local_experts": 4, "moe_intermediate_size": 32,
                  "shared_expert_intermediate_size": 48},
}
for kind in ("qwen3-next", "gpt-oss", "deepseek-v2", "deepseek-v32", "moonlight", "glm-dsa", "glm4-moe-lite"):
    CONFIGS[kind] = {key: value for key, value in jobs.config_of(kind).items() if key != "quantization_config"}
SHARDED = "world=2,fsdp=2,source=sharded"
CASES = [
    ("mixtral", SHARDED, "engines=1,tp=4,ep=2,dtype=F16", ["--checksums"]),
    ("phi3", SHARDED, "engines=1,tp=4", ["--checksums"]),
    ("gemma3", "world=2,pp=2,source=gathered", "engines=1,tp=2,names=vllm", []),
    ("gpt2", "world=2,source=gathered", "engines=1,tp=4", ["--checksums"]),
    ("gpt2", "world=2,pp=2,source=gathered", "engines=1,tp=2,dtype=BF16", ["--own-memory"]),
    # columns of what lies transposed: each trainer's heads are rows of the parameter
    ("gpt2", "world=4,source=megatron,tp=2,pp=2", "engines=1,tp=4", ["--checksums"]),
    ("gpt2", "world=1,source=megatron", "engines=1,tp=2,dtype=BF16", ["--own-memory"]),
    ("qwen2-moe", "world=2,source=gathered", "engines=1,tp=2,ep=2,gate=F32,a2a=1", []),
    # as they are cut: what test_sources.py has not
    ("mistral", "world=4,source=megatron,tp=2,pp=2", "engines=1,tp=2", []),
    ("mixtral", "world=4,source=megatron,tp=2,ep=2,etp=1", "engines=1,tp=2,ep=2", ["--checksums"]),
    ("phi3", "world=4,source=megatron,tp=2,pp=2", "engines=1,tp=1", ["--checksums"]),
    ("gemma2", "world=2,source=megatron,tp=2", "engines=1,tp=2", []),
    ("gemma3", "world=4,source=megatron,tp=2,pp=2", "engines=1,tp=2,names=vllm", ["--checksums"]),
    ("qwen2-moe", "world=4,source=megatron,tp=2,ep=2,etp=1", "engines=1,tp=2,ep=2", []),
    ("deepseek-v32", "world=4,source=megatron,tp=2,ep=2,etp=1", "engines=1,tp=2,ep=2", ["--checksums"]),
    ("mistral", "world=4,source=dtensor,mesh=2/2", "engines=1,tp=2", []),
    ("mixtral", "world=4,source=dtensor,mesh=2/2,ep=2", "engines=1,tp=1", ["--checksums"]),
    ("phi3", "world=4,source=dtensor,mesh=2/2", "engines=1,tp=2", []),
    ("gemma2", "world=4,source=dtensor,mesh=2/2", "engines=1,tp=1", []),
    ("gemma3", "world=4,source=dtensor,mesh=2/2", "engines=1,tp=2,names=vllm", []),
    ("qwen2-moe", "world=4,source=dtensor,mesh=2/2", "engines=1,tp=2,ep=2", []),
    ("qwen3-next", "world=4,source=dtensor,mesh=4", "engines=1,tp=2,ep=2", ["--checksums"]),
    ("gpt-oss", "world=4,source=dtensor,mesh=2/2/1", "engines=1,tp=2", []),
    ("deepseek-v2", "world=4,source=dtensor,mesh=2/2,ep=2", "engines=1,tp=2", []),
    ("deepseek-v32", "world=4,source=dtensor,mesh=2/2", "engines=1,tp=2,ep=2", []),
    ("moonlight", "world=4,source=dtensor,mesh=2/2,ep=4", "engines=1,tp=4,ep=4", []),
    ("glm-dsa", "world=4,source=dtensor,mesh=2/2,ep=2", "engines=1,tp=2,ep=2", ["--checksums"]),
    ("glm4-moe-lite", "world=4,source=dtensor,mesh=2/2", "engines=1,tp=2", []),
]


def make(folder, config):
    (folder / "config").mkdir()
    (folder / "config/config.json").write_text(json.dumps(config))
    jobs.weft("checkpoint", "make", folder / "config/config.json", folder / "model", "--seed", 5)
    return folder / "model"


def run(folder, model, train, infer, flags):
    with jobs.Job(folder, model, train, infer) as job:
        job.controller()
        job.workers("--verify", *flags, updates=2)
        job.succeed()
        return job.said()


@pytest.mark.parametrize("kind,train,infer,flags", CASES, ids=["-".join(case[:3]) for case in CASES])
def test_family__arrives_as_its_layout_says(tmp_path, kind, train, infer, flags):
    run(tmp_path, make(tmp_path, CONFIGS[kind]), train, infer, flags)


def test_transposed__shards_are_refused_by_name(tmp_path):
    """A row of the tensor is a part of every row of the parameter, so nobody who has some rows can send it."""
    model = make(tmp_path, CONFIGS["gpt2"])
    done = jobs.weft("route", "plan", "--model", model, "--train", SHARDED, "--infer", "tp=2", check=False)
    assert done.returncode != 0
    for word in ("transformer.h.0.attn.c_attn.weight", "transposed", "use source=gathered"):
        assert word in done.stderr, done.stderr


def test_as__takes_an_unknown_class_for_a_family(tmp_path):
    model = make(tmp_path, {"architectures": ["LlamaForCausalLM"], **SMALL})
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"architectures": ["NobodyForCausalLM"]}))
    for arguments in (("checkpoint", "verify", model), ("model", "tensors", model),
                      ("model", "layout", model, "--infer", "tp=2"),
                      ("route", "plan", "--model", model, "--train", "world=2", "--infer", "tp=2"),
                      ("model", "plan-memory", "--model", model, "--train", "world=2", "--infer", "tp=2")):
        done = jobs.weft(*arguments, check=False)
        assert done.returncode == 78 and "NobodyForCausalLM" in done.stderr and "--as llama" in done.stderr, done.stderr
        assert "weft model layout --from FILE" in done.stderr and "docs/layout-file.md" in done.stderr, done.stderr
        jobs.weft(*arguments, "--as", "llama")
    run(tmp_path, model, "world=2", "tp=2", ["--as", "llama"])


def add_tensor(path, name, shape):
    """Behind the others of a safetensors file: zeroes of BF16."""
    data = path.read_bytes()
    length, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    size, end = 2, len(data) - 8 - length
    for side in shape:
        size *= side
    header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length:] + bytes(size))


@pytest.fixture
def multimodal(tmp_path):
    model = make(tmp_path, {"architectures": ["Gemma3ForConditionalGeneration"], "dtype": "bfloat16",
                            "text_config": {"model_type": "gemma3_text", **SMALL, "head_dim": 24}})
    file = model / "model.safetensors"
    add_tensor(file, "vision_tower.patch_embed.proj.weight", [2, 3, 1, 2, 2])
    add_tensor(file, "multi_modal_projector.weight", [8, 8])
    return model


def test_multimodal__its_text_model_is_sent_and_the_rest_named(multimodal, tmp_path):
    model = multimodal
    left = "left alone: 2 tensors, 176 bytes: vision_tower (1), multi_modal_projector (1)"
    assert left in jobs.weft("checkpoint", "verify", model).stdout
    assert left in run(tmp_path, model, "world=2", "tp=2", [])


def test_multimodal__its_tower_is_left_alone_in_layout_files_too(multimodal, tmp_path):
    file = tmp_path / "gemma.layout.json"
    jobs.weft("model", "layout", multimodal, "--infer", "tp=2", "--output", file)
    made = lf.Layout("gemma", "tp=2", layers=2)
    made.checkpoint(multimodal)
    assert json.loads(file.read_text())["left_alone"] == ["vision_tower.", "multi_modal_projector."]
    assert sorted(made.beginnings) == ["multi_modal_projector.", "vision_tower."]
    assert set(made.tensors) == {row["name"] for row in json.loads(file.read_text())["tensors"]}
    assert "good" in jobs.weft("checkpoint", "verify", multimodal, "--model", file).stdout


def test_multimodal__an_engines_own_tower_is_no_difference(multimodal, tmp_path):
    """By the class and by a layout file of it; a parameter of the text model that nobody sends is one."""
    file = tmp_path / "file.json"
    jobs.weft("model", "layout", multimodal, "--infer", "tp=1", "--output", file)
    rows = [{key: row[key] for key in ("name", "dtype", "shape")} for row in json.loads(file.read_text())["params"]]
    rows.append({"name": "vision_tower.blocks.0.qkv.weight", "dtype": "BF16", "shape": [6, 2]})
    live = tmp_path / "live.json"
    for model in (multimodal, file):
        for extra, code in ([], 0), ([{"name": "language_model.model.extra.weight", "dtype": "BF16", "shape": [2]}], 1):
            live.write_text(json.dumps(rows + extra))
            done = jobs.weft("model", "check", "--model", model, "--infer", "tp=1", "--live", live, check=False)
            assert done.returncode == code and f"{code} difference" in done.stdout, done.stdout
            assert "vision_tower.blocks.0.qkv.weight: no source, left alone\n" in done.stdout


def test_adapter__alone_is_no_model_and_says_what_is_wanted(tmp_path):
    make_adapter(tmp_path / "adapter")
    for arguments in (("checkpoint", "verify"), ("checkpoint", "show"), ("model", "tensors"),
                      ("model", "layout", "--infer", "tp=2")):
        done = jobs.weft(*arguments[:2], tmp_path / "adapter", *arguments[2:], check=False)
        assert done.returncode == 78 and "WEFT-E141" in done.stderr, done.stderr
        for words in ("LoRA adapter alone", "of the model nobody/llama", "give the base model's folder", "are left alone",
                      "merge_and_unload"):
            assert words in done.stderr, done.stderr
    (tmp_path / "adapter/adapter_config.json").unlink()
    assert "LoRA adapter alone" in jobs.weft("model", "tensors", tmp_path / "adapter", check=False).stderr


def make_adapter(folder):
    """As peft saves an adapter."""
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    header = json.dumps({name: {"dtype": "F32", "shape": [2, 4], "data_offsets": [0, 32]}}).encode()
    folder.mkdir()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(32))
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "base_model_name_or_path": "nobody/llama"}))


def test_adapter__is_named_and_its_base_sent(tmp_path):
    """As peft saves a whole model: its base under base_layer, two matrices beside it."""
    model = make(tmp_path, {"architectures": ["LlamaForCausalLM"], **SMALL})
    file, name = model / "model.safetensors", "model.layers.0.self_attn.q_proj"
    data = file.read_bytes()
    length, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    header[f"base_model.model.{name}.base_layer.weight"] = header.pop(f"{name}.weight")
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length:])
    add_tensor(file, f"base_model.model.{name}.lora_A.default.weight", [4, 64])
    add_tensor(file, f"base_model.model.{name}.lora_B.default.weight", [64, 4])
    assert "left alone: 2 tensors, 1,024 bytes: lora_A (1), lora_B (1)" in jobs.weft("checkpoint", "verify", model).stdout
    run(tmp_path, model, "world=2", "tp=2", [])

# SPDX-License-Identifier: Apache-2.0
"""Tied models whose checkpoint has an lm_head all the same: which engine has it as a parameter, and what is refused.

        config.json        checkpoint                 engine           lm_head is a parameter
        tied               no lm_head                 ties             no
        tied               another than its embedding vLLM, untied=1   yes, from the checkpoint's
        tied               a copy of its embedding    ties             no
        tied               no lm_head                 never ties       refused: nothing would fill it"""
import json

import pytest

import job as jobs

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


def model(folder, kind, head):
    """head: "none", "other", "copy"; config.json says that it is tied."""
    made = jobs.make_model(folder, kind, tie_word_embeddings=head == "none")
    path = made / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tie_word_embeddings": True}))
    if head == "copy":
        copy_embedding(made / "model.safetensors")
    return made


def copy_embedding(path):
    data = bytearray(path.read_bytes())
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    (one, end), (to, to_end) = (header[name]["data_offsets"] for name in (EMBEDDING, HEAD))
    data[begin + to:begin + to_end] = data[begin + one:begin + end]
    path.write_bytes(data)


def params(folder, spec):
    done = jobs.weft("model", "layout", folder, "--infer", spec, "--json")
    return {piece["param"]: piece["tensor"] for piece in map(json.loads, done.stdout.splitlines())}


def tensors(folder):
    return {json.loads(line)["tensor"] for line in jobs.weft("model", "tensors", folder, "--json").stdout.splitlines()}


def refusal(folder, spec):
    done = jobs.weft("model", "layout", folder, "--infer", spec, check=False)
    assert done.returncode == 78 and not done.stdout
    return done.stderr


def test_own_head__is_a_parameter_of_the_engine_that_found_it(tmp_path):
    made = model(tmp_path, "qwen2", "other")
    assert HEAD in tensors(made)
    assert params(made, "tp=2,names=vllm,untied=1")[HEAD] == HEAD
    for spec in ("tp=2", "tp=2,names=vllm"):  # as config.json says, and older versions do
        assert HEAD not in params(made, spec)


def test_own_head__is_told_to_a_host_that_has_config_json_alone(tmp_path):
    made = model(tmp_path, "qwen2", "other")
    (made / "model.safetensors").unlink()
    assert "no lm_head.weight that differs" in refusal(made, "tp=2,names=vllm,untied=1")
    path = made / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"weft_own_lm_head": True}))
    assert params(made, "tp=2,names=vllm,untied=1")[HEAD] == HEAD


@pytest.mark.parametrize("head", ("none", "copy"))
def test_no_own_head__leaves_nothing_to_untie(tmp_path, head):
    made = model(tmp_path, "qwen2", head)
    assert HEAD not in tensors(made)
    assert "no lm_head.weight that differs from its embedding; leave it out" in refusal(made, "tp=2,names=vllm,untied=1")


def test_tied_moe__has_no_head_in_vllm_and_is_refused_where_nothing_fills_it(tmp_path):
    made = model(tmp_path, "qwen3-moe", "none")
    assert HEAD not in params(made, "tp=2,names=vllm")
    words = refusal(made, "tp=2")
    assert "Qwen3MoeForCausalLM never ties lm_head" in words and "save it with one (tie_word_embeddings false)" in words


@pytest.mark.parametrize("head", ("other", "copy"))
def test_tied_moe__has_the_head_of_its_file_where_the_class_never_ties(tmp_path, head):
    made = model(tmp_path, "qwen3-moe", head)
    assert params(made, "tp=2")[HEAD] == HEAD
    assert HEAD not in params(made, "tp=2,names=vllm")
    assert params(made, "tp=2,names=vllm,untied=1")[HEAD] == HEAD


def test_megatron__does_not_hold_what_a_tied_model_has_no_layer_for(tmp_path):
    made = model(tmp_path, "qwen3-moe", "other")
    spec = "world=2,source=megatron,tp=2"
    rows = jobs.weft("model", "holding", made, "--train", spec, "--rank", "0", "--json").stdout
    assert EMBEDDING in rows and HEAD not in rows

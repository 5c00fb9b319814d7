# SPDX-License-Identifier: Apache-2.0
"""The verbs of `weft model`: what they print, in words and as JSON, and what they refuse."""
import json
import math
import pathlib
import re

import pytest

import job as jobs


def lines(*arguments):
    return [json.loads(line) for line in jobs.weft("model", *arguments, "--json").stdout.splitlines()]


def refused(code, *arguments):
    """The one message on standard error."""
    done = jobs.weft("model", *arguments, check=False)
    assert done.returncode == code and done.stdout == "", done
    return done.stderr


# ---- layout ----

def test_layout__prints_every_piece_and_how_it_is_made():
    spec = "engines=2,tp=4,ep=4"
    pieces = lines("layout", "Qwen3-30B-A3B", "--infer", spec, "--rank", "6")
    assert all(list(piece) == ["tensor", "src", "param", "offset", "bytes"] for piece in pieces)
    text = jobs.weft("model", "layout", "Qwen3-30B-A3B", "--infer", spec, "--rank", "6").stdout
    assert text.count("\n  ") == len(pieces)
    assert "Qwen3-30B-A3B, inference rank 6 (engine 1, engine rank 2 of 4): 435 parameters" in text
    k_rows = next(line for line in text.splitlines() if "layers.0.self_attn.k_proj" in line)
    assert k_rows.split() == ["4194304", "+", "524288", "model.layers.0.self_attn.k_proj.weight", "[256..384,", "0..2048]"]


@pytest.mark.parametrize("arguments, code, words", [
    ((), 2, "name a model"),
    (("Qwen3-30B-A3B",), 2, "--infer is missing: say for example --infer engines=1,tp=2"),
    (("Qwen3-30B", "--infer", "tp=2"), 78, "Qwen3-30B-A3B"),
    (("./no-such-folder", "--infer", "tp=2"), 1, "no-such-folder"),
    (("Qwen3-30B-A3B", "--infer", "tp=2", "--rank", "2"), 2, "--rank 2 is not an inference rank; tp=2 has ranks 0 to 1"),
    (("Qwen3-30B-A3B", "--infer", "tp=2", "--rank", "x"), 2, "--rank x is not an inference rank"),
    (("Qwen3-30B-A3B", "--infer", "tpp=2"), 78, "unknown key 'tpp'"),
    (("Qwen3-30B-A3B", "--infer", "tp=3"), 78, "cannot be cut"),
    (("Qwen3-30B-A3B", "extra", "--infer", "tp=2"), 2, "'extra' is one argument too many"),
])
def test_layout__refuses_by_name(arguments, code, words):
    for derived in ((), ("--derived",)):
        assert words in refused(code, "layout", *arguments, *derived)


# ---- layout --derived ----

def test_derived__of_latent_attention_is_its_keys_and_values():
    rows = lines("layout", "Kimi-K2", "--infer", "tp=16,ep=16", "--rank", "3", "--derived")
    keys = [row for row in rows if row["derived"].endswith(".w_kc")]
    assert len(keys) == 61
    assert keys[0] == {
        "derived": "model.layers.0.self_attn.w_kc", "state": "rebuilt", "dtype": "BF16", "shape": [4, 128, 512],
        "strides": [65536, 1, 128], "bytes": 524288,
        "from": ["model.layers.0.self_attn.kv_b_proj.weight", "model.layers.0.self_attn.kv_b_proj.weight_scale_inv"],
        "how": "the first qk_nope_head_dim rows of each head of kv_b_proj, dequantised",
        "by": "the engine's post_load_weights, in end_weight_update", "only": None}
    written = {piece["param"] for piece in lines("layout", "Kimi-K2", "--infer", "tp=16,ep=16", "--rank", "3")}
    for row in rows:
        assert set(row["from"]) <= written
        # packed scales take the place of their parameter; everything else has a name of its own
        assert (row["derived"] in written) == (row["dtype"] == "I32")
        if row["state"] == "rebuilt":
            assert row["bytes"] == math.prod(row["shape"]) * {"BF16": 2, "F32": 4}[row["dtype"]]
            assert 1 + sum((size - 1) * stride for size, stride in zip(row["shape"], row["strides"])) == math.prod(row["shape"])


def test_derived__says_who_makes_it_again_and_warns_of_what_nobody_does():
    text = jobs.weft("model", "layout", "GLM-4.7-Flash", "--infer", "tp=4,ep=4", "--derived").stdout
    assert "model.layers.1.mlp.gate._weight_fp32 F32 [64, 2048], 524,288 bytes, stale" in text
    assert text.count("WARNING: mlp.gate._weight_fp32: ") == 1 and "still routes by the old gate" in text
    assert "self_attn.w_vc: " in text and "post_load_weights" in text
    last = text.splitlines()[-1]
    assert "94 rebuilt" in last and "Weft writes none of them" in last and "weft_set_post_load (weft.h)" in last


def test_derived__of_a_dense_model_is_nothing():
    assert lines("layout", "Qwen3-4B", "--infer", "tp=2", "--derived") == []
    text = jobs.weft("model", "layout", "Qwen3-4B", "--infer", "tp=2", "--derived").stdout
    assert text == "Qwen3-4B, inference rank 0 (engine 0, engine rank 0 of 2): no derived tensors\n"


# ---- plan-memory ----

def test_plan_memory__table_is_that_of_the_page():
    table = jobs.weft("model", "plan-memory", "--all", timeout=400).stdout
    page = (pathlib.Path(__file__).parents[2] / "docs" / "memory.md").read_text()
    blocks = re.findall(r"```\n(.*?)```", page, re.S)
    assert "$ weft model plan-memory --all\n" + table in blocks


@pytest.mark.parametrize("name", ["GLM-Z1-9B", "Moonlight", "GLM-4.5-Air"])
def test_plan_memory__of_a_published_run_adds_up(name):
    for row in lines("plan-memory", "--row", name):
        assert row["name"] == name
        trainers, inference = row["trainers"], row["inference"]
        assert len(trainers) == int(jobs.spec(row["train"])["world"])
        # what trainers send is what inference ranks register: these models have no filled rows
        assert sum(t["sent_bytes"] for t in trainers) == sum(i["registered_bytes"] for i in inference)
        assert sum(t["pieces"] for t in trainers) == sum(i["pieces"] for i in inference)
        for trainer in trainers:
            assert trainer["ring_bytes"] <= 1 << 30
            assert trainer["registered_ring_bytes"] <= trainer["ring_bytes"]
            assert trainer["full_bytes"] <= min(trainer["sent_bytes"], row["published"]["replica_bytes"])
            assert trainer["sums_bytes"] == 8 * trainer["pieces"]
        assert row["published"]["replica_bytes"] == max(i["registered_bytes"] for i in inference)


@pytest.mark.parametrize("source", ["megatron,tp=2", "dtensor,mesh=4", "zero3", "fsdp1"])
def test_plan_memory__has_no_bucket_for_trainers_that_gather_nothing(source):
    text = jobs.weft("model", "plan-memory", "--model", "Qwen2.5-0.5B", "--train", f"world=4,source={source}",
                     "--infer", "engines=1,tp=2").stdout
    bucket = next(line for line in text.splitlines() if "bucket" in line)
    assert bucket.split()[4:8] == ["537", "MB", "-", "-"] and "shards are packed as they lie" in bucket


def test_plan_memory__of_one_job_is_words():
    text = jobs.weft("model", "plan-memory", "--model", "Qwen2.5-0.5B", "--train", "world=4,fsdp=2,source=sharded",
                     "--infer", "engines=2,tp=2", "--ring-bytes", "64M").stdout
    assert text.startswith("Qwen2.5-0.5B: Qwen2.5-0.5B, --train world=4,fsdp=2,source=sharded --infer engines=2,tp=2\n")
    ring = next(line for line in text.splitlines() if "pinned and registered" in line)
    assert "494 MB" in ring and "67.1 MB" in ring
    bucket = next(line for line in text.splitlines() if "bucket" in line)
    assert bucket.split()[4:8] == ["537", "MB", "-", "-"] and "shards are packed as they lie" in bucket
    row = jobs.weft("model", "plan-memory", "--row", "Moonlight", "--bucket-bytes", "1G").stdout
    assert "738 MB" in row and "1.07 GB" in row and "model.layers.1.mlp.experts.w13_weight" in row


@pytest.mark.parametrize("arguments, code, words", [
    ((), 2, "say which job: --model, --train and --infer; or --row NAME of the published runs; or --all of them"),
    (("--all", "--row", "GLM-5"), 2, "say which job"),
    (("--all", "--model", "GLM-5"), 2, "say which job"),
    (("--model", "GLM-5"), 2, "--train is missing; a job has --model, --train and --infer"),
    (("--row", "GLM-6"), 2, "--row GLM-6 is not known; these are: GLM-Z1-9B, Moonlight"),
    (("--row", "GLM-5", "--ring-bytes", "much"), 2, "--ring-bytes is 'much'; give a size like 512M or 1G"),
    (("--row", "GLM-5", "--bucket-bytes", "0"), 2, "--bucket-bytes is '0'"),
    (("--model", "Qwen2.5", "--train", "world=2", "--infer", "tp=2"), 78, "Qwen2.5-0.5B"),
    (("--model", "Qwen2.5-0.5B", "--train", "world=2", "--infer", "tp=3"), 78, "cannot be cut"),
    (("Qwen2.5-0.5B",), 2, "'Qwen2.5-0.5B' is one argument too many"),
])
def test_plan_memory__refuses_by_name(arguments, code, words):
    assert words in refused(code, "plan-memory", *arguments)

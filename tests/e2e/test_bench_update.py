# SPDX-License-Identifier: Apache-2.0
"""`weft bench update`: updates are timed, and what the last one brought is compared byte by byte."""
import json

import pytest

import job as jobs

CONFIG = {"architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 128, "intermediate_size": 256, "moe_intermediate_size": 64,
          "num_experts": 4, "num_experts_per_tok": 2, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 192, "tie_word_embeddings": False,
          "torch_dtype": "bfloat16", "attention_bias": False}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


@pytest.mark.parametrize("flags", [
    ("--train", "world=2,source=gathered", "--infer", "engines=1,tp=2,ep=2,fp8=32x32"),
    ("--train", "world=1,source=gathered", "--infer", "engines=1,tp=1", "--own-memory"),
    ("--train", "world=2,fsdp=2,source=sharded", "--infer", "engines=2,tp=1", "--register-sources", "--checksums"),
])
def test_update__every_byte_of_the_last_one_is_compared(model, flags):
    done = jobs.weft("bench", "update", "--model", model, *flags, "--updates", "2", "--warmup", "1")
    rows = [line.split() for line in done.stdout.splitlines() if not line.startswith("#")]
    assert [row[0] for row in rows] == ["1", "2"] and rows[0][1] == rows[1][1]
    compared = next(line for line in done.stdout.splitlines() if "verified after the last update" in line)
    assert compared.split(": ")[1] == f"{int(rows[0][1]):,} bytes equal"
    assert done.stderr == ""  # nothing here is long


def test_update__json_has_an_object_an_update(model):
    done = jobs.weft("bench", "update", "--model", model, "--train", "world=1,source=gathered", "--infer",
                     "engines=1,tp=1", "--updates", "2", "--warmup", "0", "--json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["update"] for row in rows] == [1, 2]
    assert all(row["ratio"] == pytest.approx(row["bytes_per_second"] / row["memcpy_bytes_per_second"], 1e-6) for row in rows)


def test_update__json_says_the_stricter_measure_and_who_was_disturbed(model):
    done = jobs.weft("bench", "update", "--model", model, "--train", "world=2,source=gathered", "--infer",
                     "engines=1,tp=1", "--updates", "3", "--warmup", "1", "--json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(row["ratio_strict"] == pytest.approx(row["bytes_per_second"] / row["copy_bytes_per_second"], 1e-6) for row in rows)
    assert all(row["bytes_per_second"] == pytest.approx(row["bytes"] / row["seconds"], 1e-6) for row in rows)
    # the best of the warm-up is not in the lines, so it can only be more that is disturbed
    best = 0
    for row in rows:
        pair = row["memcpy_bytes_per_second"], row["memcpy_after_bytes_per_second"]
        best = max(best, *pair)
        assert row["disturbed"] or min(pair) >= 0.8 * best * (1 - 1e-6)


def test_update__people_read_both_measures_and_how_many_were_disturbed(model):
    done = jobs.weft("bench", "update", "--model", model, "--train", "world=1,source=gathered", "--infer",
                     "engines=1,tp=1", "--updates", "4", "--warmup", "0", "--pack-threads", "1")
    lines = done.stdout.splitlines()
    assert any("copy: 1 thread, one plain range each" in line for line in lines)
    assert any(line.split()[-6:] == ["memcpy", "GB/s", "ratio", "copy", "GB/s", "strict"] for line in lines)
    rows = [line.split() for line in lines if not line.startswith("#")]
    assert all(len(row) == 8 or row[8:] == ["disturbed"] for row in rows)
    marked = sum(row[-1] == "disturbed" for row in rows)
    told = [line for line in lines if line.startswith(f"# disturbed: {marked} of 4 updates")]
    assert len(told) == (marked > 0)


def test_report__that_cannot_be_written_is_said_before_anything_runs(model, tmp_path):
    done = jobs.weft("bench", "update", "--model", model, "--train", "world=1,source=gathered", "--infer", "engines=1,tp=1",
                     "--report", tmp_path / "nowhere" / "r.html", check=False)
    assert done.returncode == 1 and done.stdout == "" and "--report" in done.stderr and "nowhere" in done.stderr, done.stderr

# SPDX-License-Identifier: Apache-2.0
"""`weft checkpoint make` against the Python statement of the same contents."""
import json
import os
import pathlib
import subprocess

import numpy
import pytest

import contents

BUILD = pathlib.Path(os.environ.get("WEFT_BIN")
                     or pathlib.Path(__file__).resolve().parents[2] / "build" / "release")
CONFIG = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 96,
          "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 4,
          "num_key_value_heads": 2, "head_dim": 24, "vocab_size": 1003, "tie_word_embeddings": False}


@pytest.mark.parametrize("dtype,name", [("bfloat16", "BF16"), ("float16", "F16"), ("float32", "F32")])
@pytest.mark.parametrize("shard", ["0", "100K"])
def test_made_checkpoints__hold_what_the_page_says(tmp_path, dtype, name, shard):
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CONFIG | {"torch_dtype": dtype}))
    folder = tmp_path / "made"
    subprocess.run([BUILD / "weft", "checkpoint", "make", config, folder, "--seed", "11",
                    "--shard-bytes", shard, "--quiet"], check=True)
    tensors = contents.checkpoint_tensors(folder)
    assert len(tensors) == 3 * 11 + 3
    assert (len(list(folder.glob("*.safetensors"))) > 1) == (shard != "0")
    for tensor, (found, shape, data) in tensors.items():
        assert found == name
        assert numpy.array_equal(data, contents.made_bytes(tensor, name, len(data), 11)), tensor
        again = contents.version_bytes(tensor, data, 5)
        assert not numpy.array_equal(again, data)


def test_versions__every_word_differs_from_the_one_before():
    data = contents.made_bytes("w", "BF16", 4096 + 6, 0)
    versions = [contents.version_bytes("w", data, v)[:4096].view("<u8") for v in range(4)]
    for older, newer in zip(versions, versions[1:]):
        assert (older != newer).all()

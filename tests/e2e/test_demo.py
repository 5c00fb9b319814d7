# SPDX-License-Identifier: Apache-2.0
"""./bootstrap demo in short form: one small model."""
import json
import subprocess
import sys

import job as jobs


def test_demo__moves_a_small_model_and_compares_every_byte(tmp_path):
    model, out = tmp_path / "small", tmp_path / "out"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(jobs.config_of("qwen2")))
    done = subprocess.run([sys.executable, jobs.ROOT / "deploy/demo.py", "--bin", jobs.BIN, "--out", out, "--model", model,
                           "--updates", "2"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((out / "report.json").read_text())
    assert report["mismatches"] == 0
    assert report["bytes_verified"] == 2 * (report["bytes_per_update"] + report["zeroed_bytes"]) > 1_900_000
    assert json.loads((out / "routing.json").read_text())["digest"] == report["digest"]

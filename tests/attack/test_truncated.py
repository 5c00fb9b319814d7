# SPDX-License-Identifier: Apache-2.0
"""A checkpoint that is cut while a job reads it."""
import os
import shutil
import time

import job as jobs

TRAIN, INFER = "world=1,source=gathered", "engines=1,tp=1"


def test_checkpoint__that_is_truncated_ends_the_trainer_with_its_name(tmp_path, model):
    folder = tmp_path / "model"
    shutil.copytree(model, folder)
    weights = max(folder.glob("*.safetensors"), key=lambda path: path.stat().st_size)
    with jobs.Job(tmp_path / "job", folder, TRAIN, INFER) as job:
        job.controller("--lost-after", "2s")
        job.workers("--interval", "20ms", updates=100000)
        deadline = time.monotonic() + 20
        while len(job.processes["inference-0"].updates()) < 2:
            assert time.monotonic() < deadline, job.said()
            time.sleep(0.01)
        os.truncate(weights, 4096)
        codes = job.wait(20)
        said = job.processes["trainer-0"].stderr
        assert codes["trainer-0"] == 1 and f"{weights} has become shorter" in said, (codes, said)
        assert codes["inference-0"] == 75 and "trainer 0" in job.processes["inference-0"].stderr, job.said()

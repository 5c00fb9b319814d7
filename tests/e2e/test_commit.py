# SPDX-License-Identifier: Apache-2.0
"""Real processes whose ranks show a version together (docs/versions.md): over memory that they have mapped, and over TCP, where
the word is written into each rank's own."""
import re

import job as jobs
import pytest

TRAIN = "world=2,source=gathered"
TRANSPORTS = {"shm": [], "tcp": ["--transport", "tcp", "--nic", "lo"]}


@pytest.mark.parametrize("infer", ["engines=1,tp=2", "engines=2,tp=2"])
@pytest.mark.parametrize("commit", ["engine", "job", "rank"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_job__delivers_the_same_bytes_whoever_shows_versions_together(tmp_path, models, transport, commit, infer):
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, infer) as job:
        job.controller("--commit", commit)
        job.workers(*TRANSPORTS[transport], "--verify", updates=5, inference_flags=["--shadow"] if commit == "job" else [])
        job.succeed()
        job.verify(jobs.expected(models["qwen2"], infer), [1, 5])


@pytest.mark.parametrize("refuses", [0, 1])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_hook__that_refuses_on_one_rank_keeps_the_version_from_its_whole_engine(tmp_path, models, transport, refuses):
    other = 1 - refuses
    with jobs.Job(tmp_path, models["qwen2"], TRAIN, "engines=1,tp=2") as job:
        job.controller()
        for rank in range(2):
            job.worker("trainer", rank, *TRANSPORTS[transport], updates=3)
        hook = ["--post-load", 'test "$WEFT_VERSION" -lt 3 || exit 9']
        job.worker("inference", refuses, *TRANSPORTS[transport], *hook, updates=3)
        job.worker("inference", other, *TRANSPORTS[transport], updates=3)
        codes = job.wait(30)
        assert codes[f"inference-{refuses}"] and codes[f"inference-{other}"], job.said()
        assert "update 3: the post-load hook returned 9" in job.processes[f"inference-{refuses}"].stderr
        # its mate says so, as test_worker_commit.c has it; where the machine is busy the controller may be first
        assert re.search(rf"update 3 was given up by inference {refuses} \(host |"
                         rf"inference {refuses} \(host .* failed at version 2: update 3: the post-load hook returned 9",
                         job.processes[f"inference-{other}"].stderr)
        assert set(job.digests(0)) == set(job.digests(1)) == {1, 2}

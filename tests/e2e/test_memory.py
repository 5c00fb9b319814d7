# SPDX-License-Identifier: Apache-2.0
"""A trainer's memory beside its tensors: the ring and at most 64 MiB."""
import json
import subprocess

import pytest

import job as jobs


@pytest.mark.skipif(jobs.BIN.name != "release", reason="sanitizers keep memory that was freed")
def test_trainer_of_a_published_run__has_little_beside_its_ring():
    ring = 64 << 20
    done = subprocess.run([jobs.BIN / "tests" / "bench_replica", "--ring-mib", "64", "Moonlight"],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert rows
    for row in rows:
        assert row["ring_bytes"] == ring
        assert row["peak_extra_bytes"] > ring
        assert row["beyond_ring_bytes"] <= 64 << 20

# SPDX-License-Identifier: Apache-2.0
"""A dump of 10^6 routes is written, shown and verified in bounded memory (docs/routing.md)."""
import os
import subprocess

import job as jobs
import pytest

MIB = 1 << 20


def plan_of(engines):
    """290 tensors to two ranks an engine: engines * 580 routes."""
    return ("route", "plan", "--model", "Qwen2.5-0.5B", "--train", "world=64,pp=4",
            "--infer", f"engines={engines},tp=2")


def peak_bytes(*arguments):
    with open(os.devnull, "w") as null:
        process = subprocess.Popen([str(jobs.WEFT), *map(str, arguments)], stdout=null)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_maxrss * 1024


@pytest.mark.skipif(jobs.BIN.name != "release", reason="sanitizers keep memory that was freed")
def test_million__routes_are_written_shown_and_verified_in_bounded_memory(tmp_path):
    dump, base = tmp_path / "plan.json", peak_bytes("--version")
    assert peak_bytes(*plan_of(1725), "--output", dump) - base < 512 * MIB
    assert dump.stat().st_size > 200 * MIB
    # route by route: a chunk, the names, and what is added up
    assert peak_bytes("route", "show", dump, "--by", "trainer") - base < 64 * MIB
    # the dump, the table that is proved, and round-robin's beside it
    assert peak_bytes("route", "verify", dump) - base < 1_000_500 * 600


@pytest.mark.skipif(jobs.BIN.name != "release", reason="sanitizers keep memory that was freed")
def test_whole__dump_costs_its_compact_arrays(tmp_path):
    small, large = tmp_path / "small.json", tmp_path / "large.json"
    jobs.weft(*plan_of(1), "--output", small)
    jobs.weft(*plan_of(300), "--output", large)
    read = [peak_bytes("route", "export", path, "--format", "json") for path in (small, large)]
    assert (read[1] - read[0]) / (299 * 580) < 250
    lines = [peak_bytes("route", "export", path, "--format", "csv") for path in (small, large)]
    assert lines[1] - lines[0] < 8 * MIB

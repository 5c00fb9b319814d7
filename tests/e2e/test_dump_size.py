# SPDX-License-Identifier: Apache-2.0
"""A dump of 10^6 routes is written and read back in bounded memory (docs/routing.md)."""
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
def test_million__routes_are_written_and_read_in_bounded_memory(tmp_path):
    dump, base = tmp_path / "plan.json", peak_bytes("--version")
    assert peak_bytes(*plan_of(1725), "--output", dump) - base < 512 * MIB
    assert dump.stat().st_size > 200 * MIB
    # route by route: a chunk, the names, and what is added up
    assert peak_bytes("route", "show", dump, "--by", "trainer") - base < 64 * MIB


@pytest.mark.skipif(jobs.BIN.name != "release", reason="sanitizers keep memory that was freed")
def test_whole__dump_costs_its_compact_arrays(tmp_path):
    """What must have all routes at once costs so much a route; shown on fewer, to be quick."""
    routes, small, large = 299 * 580, tmp_path / "small.json", tmp_path / "large.json"
    jobs.weft(*plan_of(1), "--output", small)
    jobs.weft(*plan_of(300), "--output", large)

    def growth(verb, *flags):
        return peak_bytes("route", verb, large, *flags) - peak_bytes("route", verb, small, *flags)

    assert growth("export", "--format", "json") / routes < 250
    # the dump, the table that is proved, and round-robin's beside it
    assert growth("verify") / routes < 600
    assert growth("export", "--format", "csv") < 8 * MIB

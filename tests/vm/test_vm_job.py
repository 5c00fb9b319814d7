# SPDX-License-Identifier: Apache-2.0
"""Whole jobs over real queue pairs: vm_job.py, inside the machine."""
import pytest

from machine import BIN, HERE, vm

PYTHON = "/usr/bin/python3"  # with numpy and xxhash from Debian's packages


def inside(*words, seconds):
    done = vm("--timeout", seconds, "--env", f"WEFT_BIN={BIN.resolve()}", "--", PYTHON, HERE / "vm_job.py", *words,
              timeout=seconds + 200)
    said = done.stdout.decode(errors="replace") + done.stderr.decode(errors="replace")
    assert done.returncode == 0, said
    return said


@pytest.mark.parametrize("modes", [("weft-memory", "own-memory"), ("registered", "shadow")],
                         ids=lambda modes: "-".join(modes))
def test_job__over_verbs_delivers_every_byte_in_every_mode(modes):
    said = inside("deliver", *modes, seconds=600)
    lines = {line.split(":")[0]: line for line in said.splitlines() if "delivered and compared" in line}
    assert set(lines) == set(modes), said
    for mode, line in lines.items():
        # contiguous pieces go straight from registered memory, and nothing does without any
        assert ("direct 0," in line) == (mode != "registered"), line


def test_job__over_verbs_sends_what_differs_and_delivers_every_byte():
    said = inside("deliver", "delta", seconds=400)
    assert said.count("delivered and compared") == 1, said


def test_job__over_verbs_goes_from_gpu_to_gpu():
    said = inside("deliver", "gpu", "gpu-registered", "gpu-staged", "gpu-landed", seconds=900)
    lines = {line.split(":")[0]: line for line in said.splitlines() if "delivered and compared" in line}
    assert len(lines) == 4, said
    for mode, line in lines.items():
        assert ("direct 0," in line) == (mode != "gpu-registered"), line
        assert ("landed 0" in line) == (mode != "gpu-landed"), line


def test_job__over_verbs_is_planned_over_the_nics_that_its_workers_report():
    said = inside("deliver", "routed", seconds=400)
    assert "routed: over " in said and "delivered and compared" in said, said


def test_job__over_verbs_takes_trainers_as_megatron_cuts_them():
    said = inside("sources", seconds=500)
    lines = {line.split(":")[0]: line for line in said.splitlines() if "delivered and compared" in line}
    assert set(lines) == {"megatron", "finer"}, said
    assert "direct 0," not in lines["megatron"] and "landed 0" in lines["megatron"], said
    assert "landed 0" not in lines["finer"], said


def test_job__of_two_hosts_uses_shm_on_one_and_verbs_to_the_other():
    said = inside("mixed", seconds=400)
    assert "by shm and" in said and "delivered and compared" in said, said

# SPDX-License-Identifier: Apache-2.0
"""Whole jobs over real queue pairs: vm_job.py, inside the machine. All in one boot, which takes longer than a job; in a soak
with every way to and from memory of GPUs."""
import json
import os
import shlex

import pytest

from machine import BIN, HERE, shell
from test_vm_transfer import SECOND_CABLE

PYTHON = "/usr/bin/python3"  # with numpy and xxhash from Debian's packages
MODES = ("weft-memory", "own-memory", "registered", "shadow")
GPU_MODES = ("gpu-registered", "gpu-landed", *(("gpu", "gpu-staged") if os.environ.get("WEFT_SOAK") else ()))
SECONDS = 1500
QUIET_LOOK_SECONDS = 2.0  # on two cores with little else to do, while the job moves all that it can


@pytest.fixture(scope="module")
def ran():
    """What each run of vm_job.py said, by the word that it was given."""
    program_of_jobs = f"{PYTHON} {shlex.quote(str(HERE / 'vm_job.py'))}"
    script = "".join(f"echo '=====> {words[0]}'\n{program_of_jobs} {' '.join(words)}\necho \"code $?\"\n"
                     for words in (("deliver", *MODES, "delta", "hedge", "routed", *GPU_MODES), ("sources",), ("mixed",)))
    script += f"{SECOND_CABLE}echo '=====> slow'\n{program_of_jobs} slow\necho \"code $?\"\n"
    done = shell(f"export WEFT_BIN={shlex.quote(str(BIN.resolve()))}\n{script}", "--timeout", SECONDS, timeout=SECONDS + 200)
    said = done.stdout.decode(errors="replace") + done.stderr.decode(errors="replace")
    assert done.returncode == 0, said
    return dict(part.split("\n", 1) for part in said.split("=====> ")[1:])


def delivered(text):
    """The lines of jobs of which every byte was right, by name; of one that was not there is none."""
    return {line.split(":")[0]: line for line in text.splitlines() if "delivered and compared" in line}


@pytest.mark.parametrize("mode", MODES)
def test_job__over_verbs_delivers_every_byte_in_every_mode(ran, mode):
    lines = delivered(ran["deliver"])
    assert mode in lines, ran["deliver"]
    # contiguous pieces go straight from registered memory, and nothing does without any
    assert ("direct 0," in lines[mode]) == (mode != "registered"), lines[mode]


def test_job__over_verbs_sends_what_differs_and_delivers_every_byte(ran):
    assert "delta" in delivered(ran["deliver"]), ran["deliver"]


def test_job__over_verbs_in_which_everybody_is_late_delivers_every_byte(ran):
    assert "hedge" in delivered(ran["deliver"]), ran["deliver"]


@pytest.mark.parametrize("mode", GPU_MODES)
def test_job__over_verbs_goes_from_gpu_to_gpu(ran, mode):
    lines = delivered(ran["deliver"])
    assert mode in lines, ran["deliver"]
    assert ("direct 0," in lines[mode]) == (mode != "gpu-registered"), lines[mode]
    assert ("landed 0" in lines[mode]) == (mode != "gpu-landed"), lines[mode]


def test_job__over_verbs_is_planned_over_the_nics_that_its_workers_report(ran):
    assert "routed: over " in ran["deliver"] and "routed" in delivered(ran["deliver"]), ran["deliver"]


def test_job__over_verbs_takes_trainers_as_megatron_cuts_them(ran):
    lines = delivered(ran["sources"])
    assert set(lines) == {"megatron", "finer"}, ran["sources"]
    assert "direct 0," not in lines["megatron"] and "landed 0" in lines["megatron"], ran["sources"]
    assert "landed 0" not in lines["finer"], ran["sources"]


def test_job__of_two_hosts_uses_shm_on_one_and_verbs_to_the_other(ran):
    assert "by shm and" in ran["mixed"] and "mixed" in delivered(ran["mixed"]), ran["mixed"]


@pytest.mark.parametrize("part", ["deliver", "sources", "mixed"])
def test_run__of_these_jobs_ends_well(ran, part):
    assert ran[part].endswith("code 0\n"), ran[part]


def test_status__names_the_nic_that_became_slow_and_no_other(ran):
    """Within five seconds, on a machine whose looks take no longer than here; stretched where they do."""
    assert "code 0" in ran["slow"], ran["slow"]
    said = json.loads(next(line for line in ran["slow"].splitlines() if line.startswith("{")))
    look = max(said["quiet_look_seconds"], said["slow_seconds"] / said["looks"])
    assert said["slow_seconds"] < 5 * max(1, look / QUIET_LOOK_SECONDS), ran["slow"]

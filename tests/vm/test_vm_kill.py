# SPDX-License-Identifier: Apache-2.0
"""kill -9 of trainers and inference ranks of a job over verbs: who survives names the dead one, nothing
hangs, a new job works at once; or, in a job that goes on, all others do and it comes in again. WEFT_VM_KILLS changes how many."""
import os

from machine import BIN, HERE, vm

PYTHON = "/usr/bin/python3"  # with numpy and xxhash from Debian's packages
KILLS = int(os.environ.get("WEFT_VM_KILLS", "3"))
LOSSES = int(os.environ.get("WEFT_VM_LOSSES", "6"))
SEED = int(os.environ.get("WEFT_VM_SEED", "1"))


def inside(*words, seconds):
    done = vm("--timeout", seconds, "--env", f"WEFT_BIN={BIN.resolve()}", "--", PYTHON, HERE / "vm_job.py", *words,
              timeout=seconds + 200)
    said = done.stdout.decode(errors="replace") + done.stderr.decode(errors="replace")
    assert done.returncode == 0, said
    return said


def test_kill__of_any_worker_is_named_by_all_and_the_next_job_works():
    said = inside("kills", KILLS, SEED, seconds=200 + 45 * KILLS)
    assert f"{KILLS} kills" in said and "0 complaints" in said, said


def test_loss__of_whoever_it_is_leaves_a_job_to_go_on_and_another_process_takes_the_place():
    assert f"{LOSSES} losses, 0 wrong" in inside("endure", LOSSES, SEED, seconds=200 + 60 * LOSSES)
